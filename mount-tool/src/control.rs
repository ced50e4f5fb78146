//! Queries and controls a mount through its virtual attributes.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use shale_fs::stats::MountStats;

use crate::output::failure::{Failure, exit};
use crate::system::mountinfo::Mounts;
use crate::system::paths;
use crate::system::store_dir::is_store;

/// A report of the mount; none if it has no such report.
pub(crate) fn ask(path: &Path, attribute: &str) -> Result<Option<String>, Failure> {
    ask_now(path, attribute).map_err(|e| unreadable(path, &e.into()))
}

/// The same with the plain error, for callers that expect one.
pub(crate) fn ask_now(path: &Path, attribute: &str) -> Result<Option<String>, Errno> {
    get(path, &format!("user.shale.stat.{attribute}"))
}

/// Fails unless a path is a directory in a mount: files have no statistics of the mount.
pub(crate) fn check_mount(path: &Path) -> Result<(), Failure> {
    check_place(path)?;
    let metadata = std::fs::metadata(path).map_err(|e| unreadable(path, &e))?;
    if metadata.is_dir() {
        return Ok(());
    }
    Err(Failure::new(
        exit::NO_INPUT,
        format_args!(
            "{} is not a directory; give the mount point",
            path.display()
        ),
    ))
}

/// The statistics of a mount, or the reason why there are none.
pub(crate) fn sample(path: &Path) -> Result<MountStats, Failure> {
    let gone = || {
        Failure::new(
            exit::UNAVAILABLE,
            format_args!("{} is no longer mounted; mount it again", path.display()),
        )
    };
    let text = match ask_now(path, "live") {
        Ok(Some(text)) => text,
        Ok(None) | Err(Errno::NOENT) => return Err(gone()),
        Err(Errno::PERM) => {
            return Err(Failure::new(
                exit::NO_PERMISSION,
                format_args!(
                    "only root and the user who mounted {} may watch and control it; run this as one \
                     of them",
                    path.display()
                ),
            ));
        }
        Err(e) => return Err(unreadable(path, &e.into())),
    };
    serde_json::from_str(&text).map_err(|_| {
        Failure::new(
            exit::SOFTWARE,
            format_args!(
                "{}: the daemon answers in a form that this version of shale does not know; unmount \
                 and mount again",
                path.display()
            ),
        )
    })
}

/// The statistics of a mount, if it answers and this user may see them.
pub(crate) fn stats(mountpoint: &Path) -> Option<MountStats> {
    let text = ask_now(mountpoint, "live").ok()??;
    serde_json::from_str(&text).ok()
}

/// The process that serves a mount.
pub(crate) fn server(mountpoint: &Path) -> Option<u32> {
    Some(stats(mountpoint)?.pid)
}

/// The space of a file, or of a directory with all below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PathUsage {
    pub(crate) figures: shale_store::Usage,
    pub(crate) state: String,
}

impl PathUsage {
    /// Asks for all figures at once.
    pub(crate) fn of(path: &Path) -> Result<Self, Failure> {
        let Some(text) = ask(path, "all")? else {
            check_place(path)?;
            return Err(Self::not_understood(path, ""));
        };
        Self::parse(&text).ok_or_else(|| Self::not_understood(path, &text))
    }

    /// The same after unwritten data has been stored, if this user may sync the file.
    pub(crate) fn once_stored(path: &Path) -> Result<Self, Failure> {
        let taken = Self::of(path)?;
        if taken.state != "writing" {
            return Ok(taken);
        }
        let _ = File::open(path).and_then(|file| file.sync_all());
        Self::of(path)
    }

    fn parse(text: &str) -> Option<Self> {
        let value = |name: &str| {
            let mut fields = text.split('\t').filter_map(|field| field.split_once('='));
            fields.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        let number = |name| value(name)?.parse().ok();
        let state = value("state")?.to_owned();
        Some(Self {
            figures: shale_store::Usage {
                raw: number("raw")?,
                stored: number("stored")?,
                stored_raw: number("stored_raw")?,
                unwritten: number("unwritten")?,
                files: number("files")?,
                dirs: number("dirs")?,
                writing: state == "writing",
            },
            state,
        })
    }

    fn not_understood(path: &Path, text: &str) -> Failure {
        Failure::new(
            exit::SOFTWARE,
            format_args!(
                "{}: the daemon reports sizes as '{text}', which this version of shale does not know; \
                 unmount and mount again",
                path.display()
            ),
        )
    }
}

/// An attribute of any name; none if it is not set.
pub(crate) fn read(path: &Path, name: &str) -> Result<Option<String>, Failure> {
    get(path, name).map_err(|e| unreadable(path, &e.into()))
}

fn get(path: &Path, name: &str) -> Result<Option<String>, Errno> {
    // The largest size of an attribute.
    let mut buffer = vec![0; 64 << 10];
    let length = match rustix::fs::getxattr(path, name, &mut buffer[..]) {
        Ok(length) => length,
        Err(Errno::NODATA | Errno::NOTSUP) => return Ok(None),
        Err(e) => return Err(e),
    };
    buffer.truncate(length);
    Ok(Some(
        String::from_utf8_lossy(&buffer)
            .trim_end_matches(['\0', '\n'])
            .to_owned(),
    ))
}

/// Fails unless a path is in a ShaleFS mount.
pub(crate) fn check_place(path: &Path) -> Result<(), Failure> {
    let absolute = paths::absolute(path).map_err(|e| unreadable(path, &e))?;
    match Mounts::read()?.holding(&absolute) {
        Some(mount) if mount.is_shale() => Ok(()),
        _ => match path.symlink_metadata() {
            Ok(_) => Err(stranger(path)),
            Err(e) => Err(unreadable(path, &e)),
        },
    }
}

/// A path that is not in a ShaleFS mount.
pub(crate) fn stranger(path: &Path) -> Failure {
    let shown = path.display();
    let absolute = paths::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mounts = Mounts::read().unwrap_or_default();
    let message = if let Some(mount) = mounts.of_store(&absolute) {
        format!(
            "{shown} is a store, not a mount; use {}, where it is mounted",
            mount.mountpoint.display()
        )
    } else if is_store(path) {
        format!(
            "{shown} is a store that is not mounted; mount it first with 'shale mount {shown} \
             MOUNTPOINT'"
        )
    } else {
        format!("{shown} is not in a ShaleFS mount; 'findmnt -t fuse.shale' lists the mounts")
    };
    Failure::new(exit::NO_INPUT, message)
}

/// A path that is neither in a ShaleFS mount nor a store.
pub(crate) fn neither(path: &Path) -> Failure {
    Failure::new(
        exit::NO_INPUT,
        format_args!(
            "{} is neither in a ShaleFS mount nor a store; 'findmnt -t fuse.shale' lists the mounts",
            path.display()
        ),
    )
}

/// A path that cannot be examined or changed.
pub(crate) fn unreadable(path: &Path, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::ReadOnlyFilesystem {
        return Failure::new(
            exit::IO,
            format_args!(
                "{} is in a read-only mount; to change it, unmount it and mount it without ro",
                path.display()
            ),
        );
    }
    Failure::io("examine", path, error)
}

/// Sets a virtual attribute. The path must be in a ShaleFS mount: another file system would keep
/// it.
pub(crate) fn tell(path: &Path, name: &str, value: &str) -> Result<(), Errno> {
    rustix::fs::setxattr(path, name, value.as_bytes(), XattrFlags::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_understood_or_refused() {
        let text =
            "raw=7\tstored=3\tstored_raw=6\tunwritten=1\tnew=x\tfiles=2\tdirs=1\tstate=settled";
        let taken = PathUsage::parse(text);
        let expected = PathUsage {
            figures: shale_store::Usage {
                raw: 7,
                stored: 3,
                stored_raw: 6,
                unwritten: 1,
                files: 2,
                dirs: 1,
                writing: false,
            },
            state: "settled".to_owned(),
        };
        assert_eq!(taken, Some(expected));
        for text in ["", "raw=7", &text.replace("raw=7", "raw=x")] {
            assert_eq!(PathUsage::parse(text), None, "{text}");
        }
    }
}
