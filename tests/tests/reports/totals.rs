//! Totals of directories.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use shale_tests::{Case, Context, Outcome, Rng, ensure_eq, seed};

use crate::report;

/// Sums below a directory as its files have them.
fn below(dir: &Path) -> Outcome<[u64; 4]> {
    let mut all = [0; 4];
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let more = if path.is_dir() {
            let inner = below(&path)?;
            [inner[0], inner[1], inner[2], inner[3] + 1]
        } else {
            let stored = report(&path, "stored")?.parse()?;
            [fs::metadata(&path)?.size(), stored, 1, 0]
        };
        for (sum, more) in all.iter_mut().zip(more) {
            *sum += more;
        }
    }
    Ok(all)
}

fn check_totals(dir: &Path) -> Outcome {
    let mut found = [0; 4];
    for (value, what) in found.iter_mut().zip(["raw", "stored", "files", "dirs"]) {
        *value = report(dir, what)?.parse()?;
    }
    ensure_eq!(found, below(dir)?, "totals of {}", dir.display());
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            check_totals(&path)?;
        }
    }
    Ok(())
}

pub(crate) fn totals(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=1"])?;
    let mut rng = Rng::new(seed()?);
    for round in 0..6 {
        for number in 0..12 {
            let dir = mount
                .path()
                .join(format!("d{}/e{}", number % 3, number % 2));
            fs::create_dir_all(&dir)?;
            let path = dir.join(format!("f{number}"));
            match rng.below(5) {
                0 if path.exists() => fs::remove_file(&path)?,
                1 if path.exists() => {
                    let to = mount
                        .path()
                        .join(format!("d{}/moved{number}", rng.below(3)));
                    fs::rename(&path, to)?;
                }
                2 if path.exists() => {
                    File::options()
                        .write(true)
                        .open(&path)?
                        .set_len(rng.below(50_000))?;
                }
                _ => {
                    let len = 1 + rng.below(400_000) as usize;
                    let mut bytes = rng.bytes(len);
                    bytes[..len / 2].fill(7);
                    let file = File::create(&path)?;
                    file.write_all_at(&bytes, rng.below(100_000))?;
                    if rng.below(2) == 0 {
                        file.sync_all()?;
                    }
                }
            }
        }
        std::thread::sleep(Duration::from_millis(rng.below(900)));
        mount.kill9()?;
        mount.detach();
        mount
            .fsck_is_clean()
            .doing(format!("checking after kill {round}"))?;
        mount.start()?;
        // Orphans of the kill are freed a moment later; they are in no directory.
        check_totals(mount.path()).doing(format!("after kill {round}"))?;
    }
    mount.unmount()
}
