//! Work that makes a daemon fold maps, settle files, collect packs and write checkpoints.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{XattrFlags, fsetxattr};
use shale_tests::versions::{BLOCK, block};
use shale_tests::{Context, Outcome, Rng, ensure, is_dead, shale};

/// The chunk size of the mounts of this suite.
const CHUNK: u64 = 64 << 10;
/// More commits than fit into an inode and then into records of their own.
const SCATTERED: u64 = 100;
/// Attributes: 16 of them are more than the table of changes holds, and they make the journal
/// long enough for a snapshot.
const ATTRIBUTE: usize = 48 << 10;
const ATTRIBUTES: u64 = 96;

/// Files in a directory of its own, all of them synced, with what must be in them.
pub(crate) struct Churn {
    mount: PathBuf,
    rng: Rng,
    next: u64,
    kept: BTreeMap<PathBuf, Vec<u8>>,
}

impl Churn {
    pub(crate) fn new(mount: &Path, seed: u64) -> Outcome<Self> {
        let churn = Churn {
            mount: mount.to_path_buf(),
            rng: Rng::new(seed),
            next: 0,
            kept: BTreeMap::new(),
        };
        fs::create_dir(churn.top())?;
        File::open(mount)?.sync_all()?;
        Ok(churn)
    }

    fn top(&self) -> PathBuf {
        self.mount.join("churn")
    }

    /// One round of everything. An error is fine once the daemon has gone.
    pub(crate) fn cycle(&mut self) -> Outcome {
        let done = self.try_cycle();
        if done.is_err() && is_dead(&self.mount) {
            return Ok(());
        }
        done
    }

    /// Runs until the daemon has gone.
    pub(crate) fn until_death(&mut self) -> Outcome {
        while !is_dead(&self.mount) {
            self.cycle()?;
        }
        Ok(())
    }

    fn try_cycle(&mut self) -> Outcome {
        self.scatter()?;
        self.settle()?;
        self.attributes()?;
        while self.kept.len() > 6 {
            self.remove()?;
        }
        self.collect()
    }

    fn name(&mut self) -> PathBuf {
        self.next += 1;
        self.top().join(format!("file-{}", self.next))
    }

    fn keep(&mut self, path: PathBuf, bytes: Vec<u8>) -> Outcome {
        File::open(self.top())?.sync_all()?;
        self.kept.insert(path, bytes);
        Ok(())
    }

    /// Blocks far apart, each synced by itself: the map of the file is folded.
    fn scatter(&mut self) -> Outcome {
        let path = self.name();
        let file = File::create_new(&path)?;
        let mut bytes = vec![0; (SCATTERED * CHUNK) as usize];
        let version = self.next * 3;
        for number in 0..SCATTERED {
            let piece = block(self.next, version, number);
            let at = number * CHUNK;
            file.write_all_at(&piece, at)?;
            file.sync_data()?;
            bytes[at as usize..at as usize + BLOCK].copy_from_slice(&piece);
        }
        file.set_len(bytes.len() as u64)?;
        file.sync_all()?;
        self.keep(path, bytes)
    }

    /// A smooth field of numbers that is encoded again.
    fn settle(&mut self) -> Outcome {
        let path = self.name();
        let slope = self.rng.between(1, 9) as f32;
        let bytes: Vec<u8> = (0..192 << 10)
            .flat_map(|i| (280.0 + slope * (i as f32 / 900.0).sin()).to_le_bytes())
            .collect();
        fs::write(&path, &bytes)?;
        File::open(&path)?.sync_all()?;
        self.keep(path.clone(), bytes)?;
        shale()
            .args(["settle", "--wait", "--rewrite"])
            .arg(path)
            .ok()?;
        Ok(())
    }

    /// Fills the journal and the table of changes.
    fn attributes(&mut self) -> Outcome {
        let file = File::open(self.top())?;
        for number in 0..ATTRIBUTES {
            let value = self.rng.bytes(ATTRIBUTE);
            let name = format!("user.churn-{}", number % 16);
            fsetxattr(&file, &*name, &value, XattrFlags::empty())?;
        }
        Ok(())
    }

    fn remove(&mut self) -> Outcome {
        let chosen = self.rng.below(self.kept.len() as u64) as usize;
        let path = self.kept.keys().nth(chosen).cloned().doing("choosing")?;
        self.kept.remove(&path);
        fs::remove_file(path)?;
        Ok(())
    }

    fn collect(&mut self) -> Outcome {
        shale()
            .args(["gc", "--wait", "--live", "99"])
            .arg(&self.mount)
            .ok()?;
        Ok(())
    }

    /// Checks every file that counts. Returns how many.
    pub(crate) fn verify(&self) -> Outcome<u64> {
        for (path, bytes) in &self.kept {
            let found = fs::read(path).doing(format!("reading {}", path.display()))?;
            ensure!(found == *bytes, "{} has changed", path.display());
        }
        Ok(self.kept.len() as u64)
    }
}
