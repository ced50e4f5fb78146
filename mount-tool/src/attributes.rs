//! Talking to a mount through its virtual attributes.

use std::io;
use std::path::Path;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::failure::{Failure, exit};
use crate::mountinfo::Mounts;
use crate::paths;

/// A report, none where there is none.
pub(crate) fn ask(path: &Path, attribute: &str) -> Result<Option<String>, Failure> {
    ask_now(path, attribute).map_err(|e| unreadable(path, &e.into()))
}

/// The same with the error as it is, for those who expect one.
pub(crate) fn ask_now(path: &Path, attribute: &str) -> Result<Option<String>, Errno> {
    get(path, &format!("user.shale.stat.{attribute}"))
}

/// An attribute of any name, none where there is none.
pub(crate) fn read(path: &Path, name: &str) -> Result<Option<String>, Failure> {
    get(path, name).map_err(|e| unreadable(path, &e.into()))
}

fn get(path: &Path, name: &str) -> Result<Option<String>, Errno> {
    // The most that an attribute can have.
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

/// Whether a path is in a ShaleFS mount.
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
    Failure::new(
        exit::NO_INPUT,
        format_args!(
            "{} is not in a ShaleFS mount; see 'findmnt -t fuse.shale' for those there are",
            path.display()
        ),
    )
}

/// A path that cannot be looked at.
pub(crate) fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::io("examine", path, error)
}

/// Sets a virtual attribute; on a path in a ShaleFS mount only, others would keep it.
pub(crate) fn tell(path: &Path, name: &str, value: &str) -> Result<(), Errno> {
    rustix::fs::setxattr(path, name, value.as_bytes(), XattrFlags::empty())
}
