//! The context of one test.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Loop, LoopFs, Mount, Outcome, on_ext4};

/// One running test and its directory.
#[derive(Debug)]
pub struct Case {
    work: PathBuf,
}

impl Case {
    pub(crate) fn new(work: PathBuf) -> Self {
        Case { work }
    }

    /// The test's own directory, on the host's file system.
    pub fn work(&self) -> &Path {
        &self.work
    }

    /// A new directory on the host's file system.
    pub fn dir(&self, name: &str) -> Outcome<PathBuf> {
        let path = self.work.join(name);
        fs::create_dir(&path)?;
        Ok(path)
    }

    /// A ShaleFS mount called `name` with a new store.
    pub fn mount(&self, name: &str, options: &[&str]) -> Outcome<Mount> {
        let store = self.work.join(format!("{name}.store"));
        Mount::new(store, self.work.join(name), options)
    }

    /// An ext4 or btrfs of `size` bytes.
    pub fn loop_fs(&self, name: &str, kind: LoopFs, size: u64) -> Outcome<Loop> {
        Loop::new(&self.work, name, kind, size)
    }

    /// A new file system under test: ShaleFS, or ext4 where `SHALE_TEST_ON` asks for it.
    pub fn fs(&self) -> Outcome<Fs> {
        self.fs_with(&[])
    }

    /// As [`Case::fs`], with options for `shale mount`.
    pub fn fs_with(&self, options: &[&str]) -> Outcome<Fs> {
        if on_ext4() {
            Ok(Fs::Ext4(self.loop_fs("fs", LoopFs::Ext4, 8 << 30)?))
        } else {
            Ok(Fs::Shale(self.mount("fs", options)?))
        }
    }
}

/// The file system under test.
#[derive(Debug)]
pub enum Fs {
    /// ShaleFS.
    Shale(Mount),
    /// The reference.
    Ext4(Loop),
}

impl Fs {
    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        match self {
            Fs::Shale(mount) => mount.path(),
            Fs::Ext4(image) => image.path(),
        }
    }

    /// A path on it.
    pub fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// The ShaleFS mount, if ShaleFS is tested.
    pub fn shale(&mut self) -> Option<&mut Mount> {
        match self {
            Fs::Shale(mount) => Some(mount),
            Fs::Ext4(_) => None,
        }
    }

    /// Drops all caches: ShaleFS is unmounted and mounted again.
    pub fn refresh(&mut self) -> Outcome {
        match self {
            Fs::Shale(mount) => mount.remount(),
            Fs::Ext4(_) => {
                nix::unistd::sync();
                fs::write("/proc/sys/vm/drop_caches", "3")?;
                Ok(())
            }
        }
    }

    /// Ends the test: a clean unmount and a clean `shale fsck`.
    pub fn finish(self) -> Outcome {
        if let Fs::Shale(mut mount) = self {
            mount.unmount()?;
            mount.fsck_is_clean()?;
        }
        Ok(())
    }
}

/// Prints a message that is shown even when the test passes.
pub fn note(text: impl AsRef<str>) {
    for line in text.as_ref().lines() {
        println!("note: {line}");
    }
}

/// Reports how many checks of a foreign suite were executed, passed, and not run.
pub fn tally(name: &str, executed: u64, passed: u64, not_run: u64) {
    println!("tally: {name}\t{executed}\t{passed}\t{not_run}");
}
