//! Detects the kind of device of a store, and opens it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::backing::Backing;
use crate::device::lustre::Striping;
use crate::device::pmem;
use crate::device::posix::PackFiles;
use crate::device::posix::PosixBacking;
use crate::retry::retry_eintr;

/// The type of Lustre in `statfs`.
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

/// How a store's device is to be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceOptions {
    /// The kind of device, or `None` to detect it.
    pub device: Option<Device>,
    /// How packs are striped on Lustre.
    pub striping: Striping,
}

/// Facts about a directory for the detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Detected {
    /// The file system's type, as `statfs(2)` reports it.
    magic: i64,
    /// Files mapped with `MAP_SYNC` are persistent memory.
    is_persistent_memory: bool,
}

impl Detected {
    /// Examines an existing directory in which files can be created.
    fn of(root: &Path) -> io::Result<Self> {
        Ok(Self {
            magic: retry_eintr(|| Ok(rustix::fs::statfs(root)?))?.f_type,
            is_persistent_memory: pmem::is_persistent_memory(root),
        })
    }
}

/// The requested kind of device, or the detected one.
fn choose(asked: Option<Device>, detect: impl FnOnce() -> Option<Detected>) -> Device {
    asked.unwrap_or_else(|| match detect() {
        Some(detected) if detected.magic == LUSTRE_MAGIC => Device::Lustre,
        Some(detected) if detected.is_persistent_memory => Device::Pmem,
        _ => Device::Posix,
    })
}

/// Opens the backing of a directory.
///
/// # Errors
/// When it cannot be used as asked for.
pub fn open_device(root: &Path, options: DeviceOptions) -> io::Result<Arc<dyn Backing>> {
    let device = choose(options.device, || Detected::of(root).ok());
    tracing::info!(?device, "backing chosen");
    let packs = match device {
        Device::Posix => PackFiles::Plain,
        Device::Lustre => PackFiles::Striped(options.striping),
        Device::Pmem => {
            let durable = pmem::probe_directory(root)?;
            if !pmem::is_direct(durable) {
                tracing::warn!(
                    "{} is not persistent memory: packs are mapped and synced by the kernel, which is \
                     slow; mount with backing=auto unless this is intended",
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
                Some(Detected {
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
        let detected = Detected::of(dir.path()).unwrap();
        assert_ne!(detected.magic, LUSTRE_MAGIC);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
