//! Holes, allocation and free space.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, seek, statvfs};
use rustix::io::Errno;
use shale_tests::{Case, Cmd, Outcome, Rng, ensure, ensure_eq};

const MIB: u64 = 1 << 20;

fn fresh(path: &Path) -> std::io::Result<File> {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
}

pub(crate) fn fallocate_modes(case: &Case) -> Outcome {
    let mut fs = case.fs()?;
    let mut rng = Rng::new(11);
    let mut kept = Vec::new();

    let path = fs.at("allocate");
    let file = fresh(&path)?;
    file.write_all_at(b"head", 0)?;
    fallocate(&file, FallocateFlags::empty(), 0, 2 * MIB + 5)?;
    ensure_eq!(file.metadata()?.len(), 2 * MIB + 5, "size after allocating");
    let mut expected = b"head".to_vec();
    expected.resize(2 * MIB as usize + 5, 0);
    ensure!(fs::read(&path)? == expected, "allocating changed contents");
    drop(file);
    kept.push((path, expected));

    let path = fs.at("keep-size");
    let file = fresh(&path)?;
    file.write_all_at(b"head", 0)?;
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 2 * MIB)?;
    ensure_eq!(
        file.metadata()?.len(),
        4,
        "size after allocating with KEEP_SIZE"
    );
    file.set_len(10)?;
    drop(file);
    kept.push((path, b"head\0\0\0\0\0\0".to_vec()));

    for (index, (at, length)) in [
        (0, 4096),
        (100, 50),
        (4000, 200),
        (MIB - 1, 2),
        (MIB, MIB),
        (3 * MIB, 2 * MIB),
        (12_345, 2 * MIB + 777),
    ]
    .into_iter()
    .enumerate()
    {
        for (mode, flags) in [
            (
                "punch",
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            ),
            ("zero", FallocateFlags::ZERO_RANGE),
            (
                "zero-keep",
                FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
            ),
        ] {
            for durable in [false, true] {
                let path = fs.at(&format!("{mode}-{index}-{durable}"));
                let mut expected = rng.bytes(4 * MIB as usize);
                let file = fresh(&path)?;
                file.write_all_at(&expected, 0)?;
                if durable {
                    file.sync_all()?;
                }
                fallocate(&file, flags, at, length)?;
                let end = (at + length) as usize;
                let size = expected.len();
                if mode == "zero" && end > size {
                    expected.resize(end, 0);
                }
                let end = end.min(expected.len());
                expected[at as usize..end].fill(0);
                ensure_eq!(
                    file.metadata()?.len(),
                    expected.len() as u64,
                    "size after {mode} of {length} at {at}"
                );
                ensure!(
                    fs::read(&path)? == expected,
                    "contents after {mode} of {length} at {at}, durable: {durable}"
                );
                // What is written into the hole afterwards stays.
                file.write_all_at(b"again", at + length / 2)?;
                let middle = (at + length / 2) as usize;
                if expected.len() < middle + 5 {
                    expected.resize(middle + 5, 0);
                }
                expected[middle..middle + 5].copy_from_slice(b"again");
                kept.push((path, expected));
            }
        }
    }
    fs.refresh()?;
    for (path, expected) in kept {
        ensure!(
            fs::read(&path)? == expected,
            "{} differs after a remount",
            path.display()
        );
    }
    fs.finish()
}

pub(crate) fn fallocate_refusals(case: &Case) -> Outcome {
    let fs = case.fs()?;
    let path = fs.at("file");
    let file = fresh(&path)?;
    file.write_all_at(b"contents", 0)?;
    let modes = [
        (FallocateFlags::PUNCH_HOLE, Errno::OPNOTSUPP),
        (
            FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
            Errno::OPNOTSUPP,
        ),
    ];
    for (flags, errno) in modes {
        ensure_eq!(
            fallocate(&file, flags, 0, 4096),
            Err(errno),
            "fallocate with {flags:?}"
        );
    }
    ensure_eq!(
        fallocate(&file, FallocateFlags::empty(), 0, 0),
        Err(Errno::INVAL),
        "fallocate of nothing"
    );
    let reader = File::open(&path)?;
    ensure_eq!(
        fallocate(&reader, FallocateFlags::empty(), 0, 10),
        Err(Errno::BADF),
        "fallocate of a reader"
    );
    ensure_eq!(
        fallocate(&file, FallocateFlags::empty(), i64::MAX as u64 - 4096, 8192),
        Err(Errno::FBIG),
        "fallocate beyond the largest file"
    );
    ensure_eq!(
        fs::read(&path)?,
        b"contents",
        "contents after refused calls"
    );
    drop((file, reader));
    fs.finish()
}

/// The data ranges of a file as lseek tells them.
fn ranges(file: &File) -> Outcome<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    let mut at = 0;
    loop {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(found),
            Err(error) => return Err(error.into()),
        };
        let end = seek(file, SeekFrom::Hole(start))?;
        ensure!(end > start, "SEEK_HOLE at {start} gave {end}");
        found.push((start, end));
        at = end;
    }
}

pub(crate) fn seek_hole_and_data(case: &Case) -> Outcome {
    let mut fs = case.fs()?;
    let path = fs.at("sparse");
    let mut rng = Rng::new(12);
    let file = fresh(&path)?;
    let pieces = [(2 * MIB, 100_000u64), (8 * MIB + 4096, MIB), (40 * MIB, 1)];
    for (at, length) in pieces {
        file.write_all_at(&rng.bytes(length as usize), at)?;
    }
    file.set_len(64 * MIB)?;
    drop(file);
    for round in 0..2 {
        let file = File::open(&path)?;
        let found = ranges(&file)?;
        // Data may be reported where there is none, never the other way round;
        // a gap of many MiB must be seen, or nothing is gained.
        for (at, length) in pieces {
            let covered = found
                .iter()
                .any(|(start, end)| *start <= at && *end >= at + length);
            ensure!(
                covered,
                "round {round}: data at {at} is reported as a hole: {found:?}"
            );
        }
        for (start, end) in [(12 * MIB, 38 * MIB), (44 * MIB, 64 * MIB)] {
            let hole = found.iter().all(|(from, to)| *to <= start || *from >= end);
            ensure!(
                hole,
                "round {round}: the hole {start}..{end} is reported as data: {found:?}"
            );
        }
        ensure_eq!(
            seek(&file, SeekFrom::Hole(63 * MIB))?,
            63 * MIB,
            "a hole at the end"
        );
        ensure_eq!(
            seek(&file, SeekFrom::Data(64 * MIB)),
            Err(Errno::NXIO),
            "data at the end of file"
        );
        ensure_eq!(
            seek(&file, SeekFrom::Hole(64 * MIB)),
            Err(Errno::NXIO),
            "a hole at the end of file"
        );
        drop(file);
        fs.refresh()?;
    }
    let dense = fs.at("dense");
    fs::write(&dense, rng.bytes(3_000_000))?;
    let file = File::open(&dense)?;
    ensure_eq!(ranges(&file)?, vec![(0, 3_000_000)], "a file without holes");
    drop(file);
    fs.finish()
}

pub(crate) fn copy_ranges(case: &Case) -> Outcome {
    let mut fs = case.fs()?;
    let (from, to) = (fs.at("from"), fs.at("to"));
    let mut rng = Rng::new(13);
    let data = rng.bytes(5_000_000);
    fs::write(&from, &data)?;
    let source = File::open(&from)?;
    let target = fresh(&to)?;
    let mut expected = vec![0u8; 0];
    for (at, into, length) in [
        (0u64, 0u64, 5_000_000usize),
        (1_000_001, 3, 1_500_000),
        (7, 6_000_000, 123_456),
    ] {
        let mut copied = 0;
        while copied < length {
            let (mut input, mut output) = (at + copied as u64, into + copied as u64);
            let count = copy_file_range(
                &source,
                Some(&mut input),
                &target,
                Some(&mut output),
                length - copied,
            )?;
            ensure!(
                count > 0,
                "copy_file_range stopped after {copied} of {length} bytes"
            );
            ensure_eq!(
                input,
                at + (copied + count) as u64,
                "the input offset advances"
            );
            copied += count;
        }
        let end = into as usize + length;
        if expected.len() < end {
            expected.resize(end, 0);
        }
        expected[into as usize..end].copy_from_slice(&data[at as usize..at as usize + length]);
        ensure!(
            fs::read(&to)? == expected,
            "contents after copying {length} bytes from {at} to {into}"
        );
    }
    let mut end = 5_000_000;
    ensure_eq!(
        copy_file_range(&source, Some(&mut end), &target, Some(&mut 0), 100)?,
        0,
        "copying from the end"
    );
    let same = File::options().read(true).write(true).open(&to)?;
    ensure_eq!(
        copy_file_range(&same, Some(&mut 0), &same, Some(&mut 1000), 5000),
        Err(Errno::INVAL),
        "overlapping ranges of one file"
    );
    drop((source, target, same));
    fs.refresh()?;
    ensure!(
        fs::read(&to)? == expected,
        "contents differ after a remount"
    );
    ensure!(
        fs::read(&from)? == data,
        "the source differs after a remount"
    );
    fs.finish()
}

pub(crate) fn statfs_is_sane(case: &Case) -> Outcome {
    let fs = case.fs()?;
    let found = statvfs(fs.path())?;
    ensure!(
        found.f_bsize >= 512 && found.f_frsize >= 512,
        "block sizes {} and {}",
        found.f_bsize,
        found.f_frsize
    );
    ensure!(found.f_blocks > 0, "no blocks at all");
    ensure!(
        found.f_blocks >= found.f_bfree && found.f_bfree >= found.f_bavail,
        "more free than there is"
    );
    ensure!(found.f_bavail > 0, "nothing available on a disk with room");
    ensure_eq!(found.f_namemax, 255, "longest name");
    fs.finish()
}

/// Archivers treat a file with bytes but no blocks as one hole.
pub(crate) fn blocks_count_what_is_written(case: &Case) -> Outcome {
    let mut fs = case.fs()?;
    let path = fs.at("noise");
    let file = fresh(&path)?;
    file.write_all_at(&Rng::new(14).bytes(4 << 20), 0)?;
    // While pages wait in the kernel a FUSE file system cannot count them; what
    // archivers make of the file must be right even then.
    let archive = case.work().join("noise.tar");
    Cmd::new("tar")
        .args(["--sparse", "-cf"])
        .arg(&archive)
        .arg("-C")
        .arg(fs.path())
        .arg("noise")
        .ok()?;
    Cmd::new("tar")
        .arg("-xf")
        .arg(&archive)
        .arg("-C")
        .arg(case.work())
        .ok()?;
    ensure!(
        fs::read(case.work().join("noise"))? == fs::read(&path)?,
        "tar --sparse archived something else than was just written"
    );
    file.sync_all()?;
    ensure!(
        file.metadata()?.blocks() > 0,
        "4 MiB have no blocks after fsync"
    );
    drop(file);
    fs.refresh()?;
    let blocks = fs::metadata(&path)?.blocks() * 512;
    ensure!(
        (4 << 20..6 << 20).contains(&blocks),
        "4 MiB of noise occupy {blocks} bytes by st_blocks"
    );
    let small = fs.at("small");
    fs::write(&small, b"a few bytes")?;
    ensure!(
        fs::metadata(&small)?.blocks() > 0,
        "a small file has no blocks"
    );
    fs.finish()
}
