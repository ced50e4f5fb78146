//! The contents of a file, from every handle, at every time.

use std::fs::{self, File, OpenOptions};
use std::io::{IoSlice, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::time::Duration;

use rustix::fs::OFlags;
use shale_tests::{Case, Cmd, Context, Outcome, Rng, ensure, ensure_eq};

pub(crate) fn append_from_two_handles(case: &Case) -> Outcome {
    let mut fs = case.fs()?;
    let path = fs.at("log");
    let mut one = OpenOptions::new().append(true).create(true).open(&path)?;
    let mut two = OpenOptions::new().append(true).open(&path)?;
    let mut expected = Vec::new();
    for line in 0..3000 {
        let text = format!("{line:05} {}\n", "x".repeat(line % 97));
        if line % 3 == 0 {
            one.write_all(text.as_bytes())?
        } else {
            two.write_all(text.as_bytes())?
        }
        expected.extend(text.into_bytes());
    }
    // An append goes to the end even when the handle's position is elsewhere.
    one.seek(SeekFrom::Start(0))?;
    one.write_all(b"end")?;
    expected.extend(b"end");
    ensure!(fs::read(&path)? == expected, "appended contents differ");
    drop((one, two));
    fs.refresh()?;
    ensure!(
        fs::read(&path)? == expected,
        "appended contents differ after a remount"
    );
    fs.finish()
}

pub(crate) fn concurrent_appenders(case: &Case) -> Outcome {
    let fs = case.fs()?;
    let path = fs.at("log");
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4u8)
            .map(|worker| {
                let path = &path;
                scope.spawn(move || -> Outcome {
                    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
                    for _ in 0..1000 {
                        file.write_all(&[worker; 100])?;
                    }
                    Ok(())
                })
            })
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("an appender panicked"))
    })?;
    let bytes = fs::read(&path)?;
    ensure_eq!(
        bytes.len(),
        400_000,
        "size after 4 x 1000 appends of 100 bytes"
    );
    let mut counts = [0; 4];
    for record in bytes.chunks(100) {
        ensure!(
            record.iter().all(|byte| *byte == record[0]),
            "two appends overlap"
        );
        counts[usize::from(record[0])] += 1;
    }
    ensure_eq!(counts, [1000; 4], "records per appender");
    fs.finish()
}

pub(crate) fn open_with_truncation(case: &Case) -> Outcome {
    let fs = case.fs()?;
    let path = fs.at("file");
    let mut rng = Rng::new(1);
    fs::write(&path, rng.bytes(3 << 20))?;
    let reader = File::open(&path)?;
    let writer = OpenOptions::new().write(true).truncate(true).open(&path)?;
    ensure_eq!(
        reader.metadata()?.len(),
        0,
        "size seen by a handle that was open before"
    );
    ensure_eq!(
        reader.read_at(&mut [0; 100], 0)?,
        0,
        "bytes read after truncation"
    );
    writer.write_all_at(b"new", 5)?;
    drop((reader, writer));
    ensure_eq!(
        fs::read(&path)?,
        b"\0\0\0\0\0new",
        "contents after truncation and a write"
    );
    fs.finish()
}

/// Room for `length` bytes that begin at a page boundary.
pub(crate) fn aligned(room: &mut Vec<u8>, length: usize) -> &mut [u8] {
    room.resize(length + 4096, 0);
    let start = room.as_ptr().align_offset(4096);
    &mut room[start..start + length]
}

pub(crate) fn direct_io(case: &Case) -> Outcome {
    let mut fs = case.fs()?;
    let path = fs.at("file");
    let mut rng = Rng::new(2);
    let mut expected = rng.bytes(4 << 20);
    let mut room = Vec::new();
    let flags = OFlags::DIRECT.bits() as i32;
    let direct = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .custom_flags(flags)
        .open(&path)?;
    let buffered = OpenOptions::new().read(true).write(true).open(&path)?;
    let buffer = aligned(&mut room, expected.len());
    buffer.copy_from_slice(&expected);
    direct.write_all_at(buffer, 0)?;
    ensure!(
        fs::read(&path)? == expected,
        "a buffered read differs from what was written directly"
    );

    let patch = rng.bytes(10_000);
    buffered.write_all_at(&patch, 123_457)?;
    expected[123_457..133_457].copy_from_slice(&patch);
    let buffer = aligned(&mut room, 1 << 20);
    direct.read_exact_at(buffer, 0)?;
    ensure!(
        buffer == &expected[..1 << 20],
        "a direct read misses what was written through the cache"
    );

    let buffer = aligned(&mut room, 8192);
    rng.fill(buffer);
    direct.write_all_at(buffer, 2 << 20)?;
    expected[2 << 20..(2 << 20) + 8192].copy_from_slice(buffer);
    let mut seen = vec![0; 16384];
    buffered.read_exact_at(&mut seen, (2 << 20) - 4096)?;
    ensure!(
        seen == expected[(2 << 20) - 4096..(2 << 20) + 12288],
        "a stale page hides a direct write"
    );

    // At the end of the file a direct read is short, as any read.
    buffered.set_len((4 << 20) - 1000)?;
    expected.truncate((4 << 20) - 1000);
    let buffer = aligned(&mut room, 8192);
    ensure_eq!(
        direct.read_at(buffer, (4 << 20) - 4096)?,
        3096,
        "direct read at the end"
    );
    drop((direct, buffered));
    fs.refresh()?;
    ensure!(
        fs::read(&path)? == expected,
        "contents differ after a remount"
    );
    fs.finish()
}

pub(crate) fn truncate_down_and_up(case: &Case) -> Outcome {
    let mut fs = case.fs()?;
    let mut rng = Rng::new(3);
    for (index, cut) in [
        0u64,
        1,
        4095,
        4096,
        65_537,
        (1 << 20) - 1,
        1 << 20,
        (2 << 20) + 12_345,
    ]
    .iter()
    .enumerate()
    {
        for durable in [false, true] {
            let path = fs.at(&format!("file-{index}-{durable}"));
            let mut expected = rng.bytes(3 << 20);
            let file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(&path)?;
            file.write_all_at(&expected, 0)?;
            if durable {
                file.sync_all()?;
            }
            file.set_len(*cut)?;
            file.set_len(3 << 20)?;
            expected[*cut as usize..].fill(0);
            file.write_all_at(b"tail", (3 << 20) - 4)?;
            expected[(3 << 20) - 4..].copy_from_slice(b"tail");
            ensure!(
                fs::read(&path)? == expected,
                "cut at {cut} (durable: {durable}): contents differ"
            );
        }
    }
    fs.refresh()?;
    for (index, cut) in [
        0u64,
        1,
        4095,
        4096,
        65_537,
        (1 << 20) - 1,
        1 << 20,
        (2 << 20) + 12_345,
    ]
    .iter()
    .enumerate()
    {
        let bytes = fs::read(fs.at(&format!("file-{index}-true")))?;
        let zeros = &bytes[*cut as usize..(3 << 20) - 4];
        ensure!(
            zeros.iter().all(|byte| *byte == 0),
            "cut at {cut}: old bytes came back after a remount"
        );
        ensure_eq!(
            &bytes[(3 << 20) - 4..],
            b"tail",
            "cut at {cut}: tail after a remount"
        );
    }
    fs.finish()
}

pub(crate) fn sparse_giants(case: &Case) -> Outcome {
    let mut fs = case.fs()?;
    let path = fs.at("giant");
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)?;
    let places = [0u64, (4 << 30) - 2, (4 << 30) + 1_000_000, 5 << 30, 1 << 40];
    for (index, place) in places.iter().enumerate() {
        file.write_all_at(format!("piece {index}").as_bytes(), *place)?;
    }
    file.sync_all()?;
    drop(file);
    for round in ["before", "after"] {
        let meta = fs::metadata(&path)?;
        ensure_eq!(meta.len(), (1 << 40) + 7, "size {round} the remount");
        ensure!(
            meta.blocks() * 512 < 16 << 20,
            "{} blocks for five pieces",
            meta.blocks()
        );
        let mut file = File::open(&path)?;
        for (index, place) in places.iter().enumerate() {
            let mut seen = [0; 7];
            file.read_exact_at(&mut seen, *place)?;
            ensure_eq!(
                seen,
                format!("piece {index}").as_bytes(),
                "at {place} {round} the remount"
            );
        }
        let mut hole = vec![1; 1 << 20];
        file.seek(SeekFrom::Start((3 << 30) + 17))?;
        file.read_exact(&mut hole)?;
        ensure!(
            hole.iter().all(|byte| *byte == 0),
            "a hole does not read as zeros {round} the remount"
        );
        drop(file);
        if round == "before" {
            fs.refresh()?;
        }
    }
    fs.finish()
}

pub(crate) fn size_in_mid_write(case: &Case) -> Outcome {
    let fs = case.fs()?;
    let path = fs.at("growing");
    let mut writer = File::create(&path)?;
    let other = File::open(&path)?;
    let mut rng = Rng::new(4);
    let mut size = 0;
    for step in 0..400 {
        let piece = rng.bytes(8192 + step);
        writer.write_all(&piece)?;
        size += piece.len() as u64;
        ensure_eq!(writer.metadata()?.len(), size, "fstat of the writer");
        ensure_eq!(other.metadata()?.len(), size, "fstat of another handle");
        ensure_eq!(fs::metadata(&path)?.len(), size, "stat by name");
        let mut seen = vec![0; piece.len()];
        other.read_exact_at(&mut seen, size - piece.len() as u64)?;
        ensure!(
            seen == piece,
            "another handle reads something else at step {step}"
        );
        if step % 100 == 0 {
            let text = Cmd::new("stat").args(["-c", "%s"]).arg(&path).ok()?;
            ensure_eq!(text.trim(), size.to_string(), "stat from another process");
        }
    }
    drop((writer, other));
    fs.finish()
}

pub(crate) fn unlinked_but_open(case: &Case) -> Outcome {
    let fs = case.fs()?;
    let path = fs.at("gone");
    let mut rng = Rng::new(5);
    let mut expected = rng.bytes(2 << 20);
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)?;
    file.write_all_at(&expected[..1 << 20], 0)?;
    fs::remove_file(&path)?;
    ensure!(!path.exists(), "the name is still there");
    ensure_eq!(file.metadata()?.nlink(), 0, "links of an unlinked file");
    file.write_all_at(&expected[1 << 20..], 1 << 20)?;
    file.sync_all()?;
    // A new file of the same name has nothing to do with it.
    fs::write(&path, b"successor")?;
    let mut seen = vec![0; expected.len()];
    file.read_exact_at(&mut seen, 0)?;
    ensure!(seen == expected, "an unlinked file lost its contents");
    file.set_len(1000)?;
    file.set_len(2000)?;
    expected.truncate(1000);
    expected.resize(2000, 0);
    let mut seen = vec![0; 2000];
    file.read_exact_at(&mut seen, 0)?;
    ensure!(seen == expected, "an unlinked file is not truncated right");
    ensure_eq!(fs::read(&path)?, b"successor", "the successor");
    drop(file);

    let directory = fs.at("dir");
    fs::create_dir(&directory)?;
    let handle = File::open(&directory)?;
    fs::remove_dir(&directory)?;
    ensure!(
        handle.metadata()?.is_dir(),
        "an open removed directory is still a directory"
    );
    drop(handle);
    fs.finish()
}

pub(crate) fn replaced_but_open(case: &Case) -> Outcome {
    let fs = case.fs()?;
    let (old, new) = (fs.at("data"), fs.at("data.new"));
    for round in 0..50u32 {
        fs::write(&old, round.to_le_bytes().repeat(50_000))?;
        let reader = File::open(&old)?;
        fs::write(&new, b"replacement")?;
        fs::rename(&new, &old)?;
        let mut seen = vec![0; 200_000];
        reader.read_exact_at(&mut seen, 0)?;
        ensure!(
            seen == round.to_le_bytes().repeat(50_000),
            "round {round}: the old contents are gone"
        );
        ensure_eq!(reader.metadata()?.nlink(), 0, "links of the replaced file");
        ensure_eq!(fs::read(&old)?, b"replacement", "the new contents");
    }
    fs.finish()
}

/// Programs are killed while the daemon works on their requests. The log does not mention it.
pub(crate) fn killed_readers(case: &Case) -> Outcome {
    let mut fs = case.fs()?;
    let path = fs.at("file");
    File::create(&path)?.write_all(&Rng::new(8).bytes(48 << 20))?;
    for pause in 0..60 {
        let mut reader = Cmd::new("dd")
            .args(["bs=1M", "iflag=direct", "of=/dev/null", "status=none"])
            .arg(format!("if={}", path.display()))
            .spawn()?;
        std::thread::sleep(Duration::from_millis(pause % 20));
        reader.kill()?;
        reader.wait()?;
    }
    if let Some(mount) = fs.shale() {
        ensure_eq!(mount.log_text(), "", "in the log");
    }
    fs.finish()
}

pub(crate) fn small_pieces(case: &Case) -> Outcome {
    let mut fs = case.fs()?;
    let path = fs.at("file");
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)?;
    let mut expected = vec![0u8; 5 << 20];
    let mut rng = Rng::new(7);
    // Backwards, overlapping and unaligned, as header updates of netCDF are.
    for step in 0..4000u64 {
        let length = rng.between(1, 9000) as usize;
        let at = rng.below((expected.len() - length) as u64) as usize;
        let piece = rng.bytes(length);
        if step % 5 == 0 {
            file.seek(SeekFrom::Start(at as u64))?;
            let (head, tail) = piece.split_at(length / 2);
            let written = file.write_vectored(&[IoSlice::new(head), IoSlice::new(tail)])?;
            ensure_eq!(written, length, "bytes of a vectored write");
        } else {
            file.write_all_at(&piece, at as u64)?;
        }
        expected[at..at + length].copy_from_slice(&piece);
        if step % 7 == 0 {
            let from = rng.below((expected.len() - 20_000) as u64) as usize;
            let mut seen = vec![0; 20_000];
            let got = file.read_at(&mut seen, from as u64)?;
            ensure!(
                seen[..got] == expected[from..from + got],
                "step {step}: contents differ at {from}"
            );
        }
    }
    file.set_len(expected.len() as u64)?;
    drop(file);
    fs.refresh()?;
    ensure!(
        fs::read(&path)? == expected,
        "contents differ after a remount"
    );
    fs.finish()
}

/// Chunks that are partly noise, partly constant, partly smooth: codecs decide by sampling.
pub(crate) fn mixed_chunks(case: &Case) -> Outcome {
    let mut fs = case.fs()?;
    let mut rng = Rng::new(8);
    let mut kept = Vec::new();
    for index in 0..120u64 {
        let mut bytes = vec![rng.below(3) as u8 * 127; rng.between(1, 2_500_000) as usize];
        for _ in 0..rng.below(4) {
            let at = if rng.one_in(2) {
                0
            } else {
                rng.below(bytes.len() as u64) as usize
            };
            let end = (at + rng.between(1, 50_000) as usize).min(bytes.len());
            match rng.below(3) {
                0 => rng.fill(&mut bytes[at..end]),
                1 => {
                    for (i, word) in bytes[at..end].chunks_exact_mut(4).enumerate() {
                        word.copy_from_slice(&(i as f32 * 0.01).sin().to_le_bytes());
                    }
                }
                _ => {
                    for (i, word) in bytes[at..end].chunks_exact_mut(8).enumerate() {
                        word.copy_from_slice(&(i as u64 * 3 + index).to_be_bytes());
                    }
                }
            }
        }
        let path = fs.at(&format!("file-{index}"));
        fs::write(&path, &bytes)?;
        kept.push((path, bytes));
    }
    fs.refresh()?;
    for (path, bytes) in kept {
        let found = fs::read(&path).doing(format!("reading {}", path.display()))?;
        ensure!(found == bytes, "{} differs", path.display());
    }
    fs.finish()
}
