//! A temporary directory with a store and a mount point.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;

use crate::commands::mount::{self, MountArgs};
use crate::commands::unmount;
use crate::output::failure::{Failure, exit};
use crate::output::size;
use crate::system::paths;

/// Removed when dropped, unless kept.
pub(crate) struct Scratch {
    root: PathBuf,
    /// The root existed before and stays.
    given: bool,
    mounted: bool,
    keep: bool,
}

impl Scratch {
    /// Creates the directory, or uses an empty one.
    pub(crate) fn new(directory: Option<&Path>) -> Result<Self, Failure> {
        let (root, given) = match directory {
            Some(directory) => (
                paths::absolute(directory).map_err(cannot(directory))?,
                directory.exists(),
            ),
            None => {
                let template = std::env::temp_dir().join("shale-demo-XXXXXX");
                let root =
                    nix::unistd::mkdtemp(&template).map_err(|e| cannot(&template)(e.into()))?;
                (root.canonicalize().map_err(cannot(&root))?, false)
            }
        };
        if given {
            let mut entries = std::fs::read_dir(&root).map_err(cannot(&root))?;
            if entries.next().is_some() {
                return Err(Failure::new(
                    exit::CANNOT_CREATE,
                    format_args!(
                        "{} is not empty; give an empty directory, or a new name",
                        root.display()
                    ),
                ));
            }
        } else if directory.is_some() {
            std::fs::create_dir(&root).map_err(cannot(&root))?;
        }
        let scratch = Self {
            root,
            given,
            mounted: false,
            keep: false,
        };
        std::fs::create_dir(scratch.mountpoint()).map_err(cannot(&scratch.root))?;
        Ok(scratch)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.root.join("store")
    }

    pub(crate) fn mountpoint(&self) -> PathBuf {
        self.root.join("mnt")
    }

    /// Fails when there is too little space.
    pub(crate) fn need(&self, bytes: u64) -> Result<(), Failure> {
        let space = statvfs(&self.root).map_err(|e| cannot(&self.root)(e.into()))?;
        let available = space.f_bavail * space.f_frsize;
        if available < bytes {
            return Err(Failure::new(
                exit::CANNOT_CREATE,
                format_args!(
                    "{} has only {} free, and {} may be needed; give a directory with more space, or \
                     fewer --steps",
                    self.root.display(),
                    size::human(available),
                    size::human(bytes)
                ),
            ));
        }
        Ok(())
    }

    pub(crate) fn mount(&mut self) -> Result<(), Failure> {
        let args = MountArgs {
            store: self.store(),
            mountpoint: self.mountpoint(),
            ..MountArgs::default()
        };
        mount::run(&args).map_err(|failure| failure.with_status(exit::UNAVAILABLE))?;
        self.mounted = true;
        Ok(())
    }

    pub(crate) fn unmount(&mut self) -> Result<(), Failure> {
        unmount::unmount(&self.mountpoint())?;
        self.mounted = false;
        Ok(())
    }

    /// Keeps everything, the mount too.
    pub(crate) fn keep(mut self) {
        self.keep = true;
    }

    /// Removes everything, or fails.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.keep = true;
        self.remove()
    }

    fn remove(&mut self) -> Result<(), Failure> {
        if self.mounted {
            self.unmount()?;
        }
        // Never recursively into what could be a mount.
        std::fs::remove_dir(self.mountpoint()).map_err(cannot(&self.root))?;
        match std::fs::remove_dir_all(self.store()) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(cannot(&self.root)(e)),
            _ => {}
        }
        if !self.given {
            std::fs::remove_dir(&self.root).map_err(cannot(&self.root))?;
        }
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        if let Err(failure) = self.remove() {
            let root = self.root.display();
            Failure::new(
                exit::IO,
                format_args!("{root} was not removed: {failure}; remove it yourself"),
            )
            .print();
        }
    }
}

fn cannot(path: &Path) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::io("use directory", path, &error).with_status(exit::CANNOT_CREATE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("new");
        let scratch = Scratch::new(Some(&new)).unwrap();
        std::fs::create_dir_all(scratch.store().join("packs")).unwrap();
        assert!(scratch.mountpoint().is_dir());
        drop(scratch);
        assert!(!new.exists());
    }

    #[test]
    fn a_directory_that_was_there_stays() {
        let dir = tempfile::tempdir().unwrap();
        drop(Scratch::new(Some(dir.path())).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_with_files_is_refused_untouched() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("precious"), "x").unwrap();
        assert!(Scratch::new(Some(dir.path())).is_err());
        assert_eq!(std::fs::read(dir.path().join("precious")).unwrap(), b"x");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn more_space_than_there_is_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(Some(dir.path())).unwrap();
        assert!(scratch.need(1).is_ok());
        assert_eq!(
            scratch.need(u64::MAX).unwrap_err().status,
            exit::CANNOT_CREATE
        );
    }
}
