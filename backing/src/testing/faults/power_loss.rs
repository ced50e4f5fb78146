//! The directory that a machine finds after a loss of power.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::disk::FaultDisk;
use super::shadow::{NameTarget, SECTOR, SLED};
use super::step::Left;

/// Pseudo-random numbers (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn coin(&mut self) -> bool {
        self.roll() >> 40 & 1 == 1
    }
}

impl FaultDisk {
    /// Creates the directory that is found after a loss of power. sled's part is copied unchanged.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn after_power_loss(&self, to: &Path, left: Left) -> io::Result<()> {
        let mut dice = Dice(match left {
            Left::Some(seed) => seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            _ => 1,
        });
        let mut stays = || match left {
            Left::Nothing => false,
            Left::Everything => true,
            Left::Some(_) => dice.coin(),
        };
        let shadow = self.shadow.lock();
        let mut names = shadow.durable_names.clone();
        for change in &shadow.pending {
            if stays() {
                change.apply(&mut names);
            }
        }
        fs::create_dir_all(to)?;
        let mut dirs = BTreeSet::from([PathBuf::new()]);
        // Parents come before their children.
        for (name, node) in &names {
            if !name.parent().is_some_and(|parent| dirs.contains(parent)) {
                continue;
            }
            match node {
                NameTarget::Dir => {
                    fs::create_dir_all(to.join(name))?;
                    dirs.insert(name.clone());
                }
                NameTarget::File(id) => {
                    let synced = shadow.durable.get(id).cloned().unwrap_or_default();
                    let now = match shadow.path_of(*id) {
                        Some(path) => shadow.reaching(*id, fs::read(self.root.join(path))?),
                        None => synced.clone(),
                    };
                    fs::write(to.join(name), torn(synced, &now, &mut stays))?;
                }
            }
        }
        let sled = Path::new(SLED);
        if self.root.join(sled).is_dir() && to.join("index").is_dir() {
            copy_dir(&self.root.join(sled), &to.join(sled))?;
        }
        Ok(())
    }
}

/// A file as it is found: every sector as it was synced or as it was last written.
fn torn(mut synced: Vec<u8>, now: &[u8], stays: &mut impl FnMut() -> bool) -> Vec<u8> {
    if stays() {
        synced.resize(now.len(), 0);
    }
    for (number, sector) in now.chunks(SECTOR).enumerate() {
        let at = number * SECTOR;
        let end = (at + sector.len()).min(synced.len());
        if at < end && synced[at..end] != sector[..end - at] && stays() {
            synced[at..end].copy_from_slice(&sector[..end - at]);
        }
    }
    synced
}

/// Copies a directory that may be in use.
///
/// # Errors
/// What the operating system says.
pub fn copy_dir(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => copy_dir(&entry.path(), &target)?,
            // A file may be removed meanwhile.
            _ => drop(fs::copy(entry.path(), target)),
        }
    }
    Ok(())
}
