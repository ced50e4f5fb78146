//! Typical work of test suites on small devices: fill, punch, overwrite, delete, and fill again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate};
use shale_tests::{Case, Failure, Loop, LoopFs, Mount, Outcome, Rng, ensure, ensure_eq, note};

use crate::MIB;
use crate::promise::{holds, write_pieces};

/// No single operation may take longer, however full the device is.
const BOUND: Duration = Duration::from_secs(60);

fn small(case: &Case, mib: u64) -> Outcome<(Loop, Mount)> {
    let device = case.loop_fs("device", LoopFs::Ext4, mib << 20)?;
    let store = device.path().join("store");
    let mount = Mount::new(store, case.work().join("fs"), &["--memory", "64M"])?;
    Ok((device, mount))
}

fn full(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOSPC)
}

/// Fails on any error but a full device; returns whether there was room.
fn fits(result: std::io::Result<()>) -> Outcome<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(e) if full(&e) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// The expected contents of the files at the end.
type Contents = BTreeMap<PathBuf, Vec<u8>>;

fn check(kept: &Contents, when: &str) -> Outcome {
    kept.iter()
        .try_for_each(|(path, bytes)| holds(path, bytes, when))
}

fn finish(mut mount: Mount, kept: &Contents) -> Outcome {
    check(kept, "before a remount")?;
    mount.remount()?;
    check(kept, "after a remount")?;
    mount.unmount()?;
    mount.fsck_is_clean()
}

/// Makes small files until one does not fit; those that were made are remembered.
fn fill_with_small_files(dir: &Path, rng: &mut Rng) -> Outcome<Contents> {
    let mut made = Contents::new();
    fs::create_dir(dir)?;
    for index in 0..200_000 {
        let path = dir.join(format!("file-{index}"));
        let len = rng.between(1, 20_000) as usize;
        // Text compresses, noise does not.
        let bytes = if rng.one_in(2) {
            rng.bytes(len)
        } else {
            format!("record {index} ").repeat(len / 8 + 1).into_bytes()
        };
        let begun = Instant::now();
        let written = File::create(&path).and_then(|mut file| file.write_all(&bytes));
        ensure!(begun.elapsed() < BOUND, "a file took {:?}", begun.elapsed());
        if fits(written)? {
            made.insert(path, bytes);
        } else {
            // Half a file may be left; it is not counted on.
            let _ = fs::remove_file(&path);
            return Ok(made);
        }
    }
    Err(Failure::new("200,000 files and never full"))
}

pub(crate) fn many_small_files(case: &Case) -> Outcome {
    let (_device, mount) = small(case, 100)?;
    let mut kept = Contents::new();
    std::thread::scope(|scope| -> Outcome {
        let fillers: Vec<_> = (0..4)
            .map(|index| {
                let dir = mount.path().join(format!("dir-{index}"));
                scope.spawn(move || fill_with_small_files(&dir, &mut Rng::new(60 + index)))
            })
            .collect();
        for filler in fillers {
            kept.extend(filler.join().expect("no panic")?);
        }
        Ok(())
    })?;
    note(format!("{} files", kept.len()));
    ensure!(kept.len() > 4000, "only {} files fit", kept.len());
    finish(mount, &kept)
}

/// Fills the device with one file; returns the accepted bytes.
fn fill(path: &Path, rng: &mut Rng) -> Outcome<Vec<u8>> {
    let mut bytes = rng.bytes(400 * MIB);
    let (accepted, told) = write_pieces(path, &bytes, 64 << 10)?;
    ensure!(told.is_some(), "400 MiB fit");
    bytes.truncate(accepted);
    Ok(bytes)
}

/// Writes a range, again after a moment if there is no room yet; returns whether it was written.
fn write_at(file: &File, bytes: &[u8], at: usize) -> Outcome<bool> {
    let begun = Instant::now();
    let written = fits(file.write_all_at(bytes, at as u64))?;
    ensure!(
        begun.elapsed() < BOUND,
        "a write took {:?}",
        begun.elapsed()
    );
    Ok(written)
}

/// A hole frees space that can be written again, over and over.
pub(crate) fn punch_and_refill(case: &Case) -> Outcome {
    let (_device, mount) = small(case, 150)?;
    let mut rng = Rng::new(61);
    let path = mount.path().join("file");
    let mut bytes = fill(&path, &mut rng)?;
    let file = File::options().read(true).write(true).open(&path)?;
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for round in 0..6 {
        let len = 20 * MIB;
        let at = rng.below((bytes.len() - len) as u64 / 4096) as usize * 4096;
        fallocate(&file, hole, at as u64, len as u64)?;
        bytes[at..at + len].fill(0);
        // Half of the hole: what is dead in packs that are nearly full of life is not given back.
        let new = rng.bytes(len / 2);
        for (index, piece) in new.chunks(MIB).enumerate() {
            let to = at + index * MIB;
            ensure!(
                write_at(&file, piece, to)?,
                "round {round}: no room for MiB {index} of a hole of 20"
            );
            bytes[to..to + piece.len()].copy_from_slice(piece);
        }
    }
    file.sync_all()?;
    drop(file);
    finish(mount, &Contents::from([(path, bytes)]))
}

/// Allocating on a nearly full device is refused, or the file gets the length asked for.
pub(crate) fn fallocate_near_the_end(case: &Case) -> Outcome {
    let (_device, mount) = small(case, 100)?;
    let mut rng = Rng::new(62);
    let path = mount.path().join("file");
    let mut bytes = fill(&path, &mut rng)?;
    let file = File::options().read(true).write(true).open(&path)?;
    for shift in (12..=27).rev() {
        let len = 1u64 << shift;
        let begun = Instant::now();
        let done = fits(
            fallocate(&file, FallocateFlags::empty(), bytes.len() as u64, len).map_err(Into::into),
        )?;
        ensure!(
            begun.elapsed() < BOUND,
            "fallocate took {:?}",
            begun.elapsed()
        );
        if done {
            bytes.resize(bytes.len() + len as usize, 0);
        }
        ensure_eq!(
            file.metadata()?.len(),
            bytes.len() as u64,
            "size after {len}"
        );
        ensure!(
            !done || shift < 24,
            "16 MiB could be allocated on a full device"
        );
    }
    drop(file);
    finish(mount, &Contents::from([(path, bytes)]))
}

/// Overwriting needs room for the new bytes before the old ones are freed, as on every
/// copy-on-write file system. A refused write changes nothing, an accepted one stays, and freeing
/// room helps.
pub(crate) fn overwrite_in_place(case: &Case) -> Outcome {
    let (_device, mount) = small(case, 150)?;
    let mut rng = Rng::new(63);
    let path = mount.path().join("file");
    let mut bytes = fill(&path, &mut rng)?;
    let file = File::options().read(true).write(true).open(&path)?;
    let mut written = 0;
    for _ in 0..400 {
        let len = rng.between(1, 256 << 10) as usize;
        let at = rng.below((bytes.len() - len) as u64) as usize;
        let new = rng.bytes(len);
        if write_at(&file, &new, at)? {
            bytes[at..at + len].copy_from_slice(&new);
            written += len;
        }
    }
    note(format!(
        "{} MiB overwritten on a full device",
        written / MIB
    ));
    let half = bytes.len() / 2;
    file.set_len(half as u64)?;
    bytes.truncate(half);
    let new = rng.bytes(half / 2);
    ensure!(
        write_at(&file, &new, 0)?,
        "no room after half of the file was cut off"
    );
    bytes[..new.len()].copy_from_slice(&new);
    drop(file);
    finish(mount, &Contents::from([(path, bytes)]))
}

/// A program that deletes a file and writes another one of the same size finds room for it, at
/// once and every time.
pub(crate) fn delete_and_reuse(case: &Case) -> Outcome {
    let (_device, mount) = small(case, 150)?;
    let mut rng = Rng::new(64);
    let mut kept = Contents::new();
    let base = mount.path().join("base");
    kept.insert(base.clone(), rng.bytes(40 * MIB));
    write_pieces(&base, &kept[&base], MIB)?;
    for round in 0..12 {
        let path = mount.path().join(format!("round-{round}"));
        let bytes = rng.bytes(60 * MIB);
        let begun = Instant::now();
        let (accepted, told) = write_pieces(&path, &bytes, 1 << (12 + round % 9))?;
        ensure!(
            begun.elapsed() < BOUND,
            "a round took {:?}",
            begun.elapsed()
        );
        ensure_eq!(
            told,
            None,
            "round {round}: refused after {} MiB",
            accepted / MIB
        );
        holds(&path, &bytes, "when it was written")?;
        if round < 11 {
            fs::remove_file(&path)?;
        } else {
            kept.insert(path, bytes);
        }
    }
    finish(mount, &kept)
}
