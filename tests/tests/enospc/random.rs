//! Random programs on random small devices. A program that got no error finds everything after a
//! remount; for the others, the data accepted before the error is there.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use shale_tests::{
    Case, Cmd, Failure, LoopFs, Mount, Outcome, Rng, ensure, note, python, rounds, script, seed,
};

use crate::MIB;

/// The traces of a program.
struct Written {
    path: PathBuf,
    bytes: Vec<u8>,
    /// It was written through a mapping.
    mapped: bool,
    /// Bytes that `write` accepted.
    accepted: usize,
    /// `write` or `msync` reported that not everything was written.
    told: bool,
    /// `fsync` or `close` reported that some accepted data is not stored.
    told_late: bool,
}

/// Half noise, half something that compresses.
fn contents(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes = rng.bytes(len);
    if rng.one_in(2) {
        for piece in bytes.chunks_mut(4096) {
            let half = piece.len() / 2;
            piece[half..].fill(7);
        }
    }
    bytes
}

/// Writes front to back; `fsync` perhaps.
fn stream(path: PathBuf, rng: &mut Rng) -> Outcome<Written> {
    let len = rng.between(1, 40 * MIB as u64) as usize;
    let bytes = contents(rng, len);
    let piece = 1 << rng.between(9, 21);
    let syncs = rng.one_in(3);
    let mut file = match File::create(&path) {
        Ok(file) => file,
        Err(e) if e.raw_os_error() == Some(libc::ENOSPC) => {
            return Ok(Written {
                path,
                bytes,
                mapped: false,
                accepted: 0,
                told: true,
                told_late: false,
            });
        }
        Err(e) => return Err(e.into()),
    };
    let (mut accepted, mut told) = (0, false);
    for part in bytes.chunks(piece) {
        match file.write(part) {
            Ok(count) if count == part.len() => accepted += count,
            Ok(count) => accepted += count,
            Err(e) => {
                ensure!(e.raw_os_error() == Some(libc::ENOSPC), "write: {e}");
                told = true;
                break;
            }
        }
    }
    let synced = !syncs || file.sync_all().is_ok();
    let closed = nix::unistd::close(file.into_raw_fd()).is_ok();
    Ok(Written {
        path,
        bytes,
        mapped: false,
        accepted,
        told,
        told_late: !synced || !closed,
    })
}

/// Writes through a mapping, in a separate program, which may die of it.
fn mapped(case: &Case, path: PathBuf, rng: &mut Rng) -> Outcome<Written> {
    let len = rng.between(1, 20 * MIB as u64) as usize;
    let bytes = contents(rng, len);
    let source = case.work().join(format!("source-{}", rng.next_u64()));
    fs::write(&source, &bytes)?;
    let writer = Cmd::new(python()).arg(script("mapped_writer.py"));
    let finished = writer.arg(&path).arg(&source).run()?;
    fs::remove_file(&source)?;
    Ok(Written {
        path,
        mapped: true,
        accepted: 0,
        told: !finished.status.success(),
        told_late: false,
        bytes,
    })
}

fn check(written: &Written) -> Outcome {
    let shown = written.path.display();
    let expected = if written.told {
        &written.bytes[..written.accepted]
    } else {
        &written.bytes
    };
    let found = match File::open(&written.path) {
        Ok(file) => {
            let len = (file.metadata()?.len() as usize).min(expected.len());
            let mut found = vec![0; len];
            file.read_exact_at(&mut found, 0)?;
            found
        }
        Err(_) if written.told && written.accepted == 0 => return Ok(()),
        Err(e) => return Err(e.into()),
    };
    ensure!(
        found == expected,
        "{shown}: {} bytes were accepted, {} are there, told: {}",
        expected.len(),
        found.len(),
        written.told
    );
    Ok(())
}

pub(crate) fn programs(case: &Case) -> Outcome {
    let seed = seed()?;
    let (mut files, mut refused) = (0, 0);
    for round in rounds(2) {
        let mut rng = Rng::new(seed ^ round);
        let size = rng.between(40, 160) << 20;
        let memory = format!("{}M", 1 << rng.between(4, 8));
        let name = format!("device-{round}");
        let device = case.loop_fs(&name, LoopFs::Ext4, size)?;
        let point = case.work().join(format!("fs-{round}"));
        let mut mount = Mount::new(device.path().join("store"), point, &["--memory", &memory])?;
        let mut kept: Vec<Written> = Vec::new();
        let mut overran = false;
        for turn in 0..rng.between(2, 5) {
            let seeds: Vec<u64> = (0..rng.between(1, 4)).map(|_| rng.next_u64()).collect();
            let top = mount.path();
            let results: Vec<Outcome<Written>> = std::thread::scope(|scope| {
                let programs: Vec<_> = seeds
                    .iter()
                    .enumerate()
                    .map(|(index, &seed)| {
                        let path = top.join(format!("file-{turn}-{index}"));
                        scope.spawn(move || {
                            let rng = &mut Rng::new(seed);
                            if rng.one_in(4) {
                                mapped(case, path, rng)
                            } else {
                                stream(path, rng)
                            }
                        })
                    })
                    .collect();
                programs
                    .into_iter()
                    .map(|p| p.join().expect("no panic"))
                    .collect()
            });
            for written in results {
                let written = written?;
                overran |= written.mapped && written.told;
                kept.push(written);
            }
            // Some make room for others.
            while kept.len() > 2 && rng.one_in(2) {
                let gone = kept.swap_remove(rng.below(kept.len() as u64) as usize);
                if gone.path.exists() {
                    fs::remove_file(&gone.path)?;
                }
            }
        }
        files += kept.len();
        refused += kept.iter().filter(|written| written.told).count();
        match mount.remount() {
            Ok(()) => {}
            // A mapping that was told of its loss leaves a mount that says so.
            Err(_) if overran => mount.start()?,
            Err(e) => return Err(e),
        }
        let late: Vec<_> = kept
            .iter()
            .filter(|w| w.told_late)
            .map(|w| &w.path)
            .collect();
        ensure!(
            late.is_empty(),
            "round {round}: told after `write`: {late:?}\n{}",
            mount.log_tail()
        );
        for written in &kept {
            check(written)
                .map_err(|e| Failure::new(format!("round {round}: {e:?}\n{}", mount.log_tail())))?;
        }
        mount.unmount()?;
        mount.fsck_is_clean()?;
    }
    note(format!("{files} files, {refused} of them refused"));
    Ok(())
}
