//! Files that a mount creates before its daemon serves: the directory of the store and the log.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::mount::preflight::MountPaths;
use crate::output::failure::{Failure, mount_exit, reason};

/// The files created for this mount. Dropping it removes them again unless the mount succeeded, but
/// only an empty log and an empty directory: never anything that could hold data.
#[derive(Debug, Default)]
pub(super) struct NewFiles {
    directory: Option<PathBuf>,
    log: Option<PathBuf>,
}

impl NewFiles {
    /// Creates the directory of a new store.
    pub(super) fn store(&mut self, paths: &MountPaths) -> Result<(), Failure> {
        if !paths.store_missing {
            return Ok(());
        }
        match std::fs::DirBuilder::new().mode(0o700).create(&paths.store) {
            Ok(()) => self.directory = Some(paths.store.clone()),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => {
                let failure = Failure::io("make store", &paths.store, &e);
                return Err(failure.with_status(mount_exit::FAILED));
            }
        }
        Ok(())
    }

    /// Opens the log for appending.
    pub(super) fn log(&mut self, path: &Path) -> Result<File, Failure> {
        let mut options = OpenOptions::new();
        options.append(true).mode(0o600);
        let opened = match options.open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let created = options.create_new(true).open(path);
                if created.is_ok() {
                    self.log = Some(path.to_owned());
                }
                created
            }
            other => other,
        };
        opened.map_err(|e| {
            Failure::new(
                mount_exit::USAGE,
                format_args!(
                    "cannot write the log {}: {}; give another file with --log",
                    path.display(),
                    reason(&e)
                ),
            )
        })
    }

    /// The mount answers: keep everything.
    pub(super) fn keep(&mut self) {
        (self.directory, self.log) = (None, None);
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        if let Some(log) = &self.log
            && std::fs::metadata(log).is_ok_and(|metadata| metadata.len() == 0)
        {
            let _ = std::fs::remove_file(log);
        }
        if let Some(directory) = &self.directory {
            let _ = std::fs::remove_dir(directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_in_vain_is_removed_but_never_data() {
        let dir = tempfile::tempdir().unwrap();
        let paths = |name: &str| MountPaths {
            store: dir.path().join(name),
            mountpoint: "/m".into(),
            store_missing: true,
        };
        let mut created = NewFiles::default();
        created.store(&paths("empty")).unwrap();
        created.log(&dir.path().join("empty/shale.log")).unwrap();
        drop(created);
        assert!(!dir.path().join("empty").exists());

        let mut created = NewFiles::default();
        created.store(&paths("used")).unwrap();
        std::fs::write(dir.path().join("used/superblock"), "x").unwrap();
        drop(created);
        assert!(dir.path().join("used/superblock").exists());

        let mut created = NewFiles::default();
        created.store(&paths("kept")).unwrap();
        created.keep();
        drop(created);
        assert!(dir.path().join("kept").exists());
    }
}
