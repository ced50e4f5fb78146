//! Which kind of device a store is on.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::interrupted::again;
use crate::posix::PackFiles;
use crate::{Backing, PosixBacking, Striping, pmem};

/// What Lustre answers to `statfs`.
const LUSTRE_MAGIC: i64 = 0x0BD0_0BD0;

/// Kinds of devices that are treated differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// Any directory.
    Posix,
    /// Persistent memory: packs are mapped.
    Pmem,
    /// Lustre: packs are striped.
    Lustre,
}

/// What was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The kind of device, or `None` to find out.
    pub device: Option<Device>,
    /// Used on Lustre.
    pub striping: Striping,
}

/// What there is to know of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The file system's number, as `statfs(2)` has it.
    pub magic: i64,
    /// Files mapped with `MAP_SYNC` are persistent memory.
    pub is_persistent_memory: bool,
}

impl Facts {
    /// Those of an existing directory that files can be made in.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn of(root: &Path) -> io::Result<Self> {
        Ok(Self {
            magic: again(|| Ok(nix::sys::statfs::statfs(root)?))?
                .filesystem_type()
                .0,
            is_persistent_memory: pmem::is_persistent_memory(root),
        })
    }
}

/// The kind of device, from what was asked for and what there is.
#[must_use]
pub fn choose(asked: Option<Device>, facts: impl FnOnce() -> Option<Facts>) -> Device {
    asked.unwrap_or_else(|| match facts() {
        Some(facts) if facts.magic == LUSTRE_MAGIC => Device::Lustre,
        Some(facts) if facts.is_persistent_memory => Device::Pmem,
        _ => Device::Posix,
    })
}

/// The backing for a directory.
///
/// # Errors
/// When it cannot be used as asked for.
pub fn open_device(root: &Path, choice: Choice) -> io::Result<Arc<dyn Backing>> {
    let device = choose(choice.device, || Facts::of(root).ok());
    tracing::info!(?device, "backing chosen");
    let packs = match device {
        Device::Posix => PackFiles::Plain,
        Device::Lustre => PackFiles::Striped(choice.striping),
        Device::Pmem => {
            let durable = pmem::probe_directory(root)?;
            if !pmem::is_direct(durable) {
                tracing::warn!(
                    "{} is not persistent memory; packs are mapped all the same and synced by \
                     the kernel, mount with backing=auto unless that is meant",
                    root.display()
                );
            }
            PackFiles::Mapped(durable)
        }
    };
    Ok(Arc::new(PosixBacking::with(root, packs)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_recognised() {
        let found = |magic, is_persistent_memory| {
            choose(None, || {
                Some(Facts {
                    magic,
                    is_persistent_memory,
                })
            })
        };
        const EXT4: i64 = 0xEF53;
        assert_eq!(found(EXT4, false), Device::Posix);
        assert_eq!(found(EXT4, true), Device::Pmem);
        assert_eq!(found(LUSTRE_MAGIC, false), Device::Lustre);
        assert_eq!(choose(None, || None), Device::Posix);
    }

    #[test]
    fn what_was_asked_for_is_not_questioned() {
        for device in [Device::Posix, Device::Pmem, Device::Lustre] {
            assert_eq!(choose(Some(device), || panic!("asked")), device);
        }
    }

    #[test]
    fn an_ordinary_directory_is_posix() {
        let dir = tempfile::tempdir().unwrap();
        let facts = Facts::of(dir.path()).unwrap();
        assert_ne!(facts.magic, LUSTRE_MAGIC);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
