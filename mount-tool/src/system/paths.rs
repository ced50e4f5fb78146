//! Absolute paths, mounts without a daemon, programs in the search path.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::fs::statvfs;

/// The absolute path without symbolic links. The last component need not exist, and may be a mount
/// whose daemon has died.
pub(crate) fn absolute(path: &Path) -> io::Result<PathBuf> {
    match std::fs::canonicalize(path) {
        Ok(path) => Ok(path),
        Err(error) => match (path.components().next_back(), path.file_name()) {
            (Some(Component::Normal(_)), Some(name)) => Ok(parent(path).canonicalize()?.join(name)),
            _ => Err(error),
        },
    }
}

/// The directory that a path is in, `.` for a bare name.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    }
}

/// Whether an error is that of a mount whose daemon has died, or dies meanwhile.
pub(crate) fn is_dead(error: &io::Error) -> bool {
    use nix::libc::{ECONNABORTED, ENOTCONN};
    matches!(error.raw_os_error(), Some(ENOTCONN | ECONNABORTED))
}

/// The metadata of a path whose mount is served. The kernel may have cached the attributes of a
/// mount whose daemon has died, but not its space.
pub(crate) fn metadata(path: &Path) -> io::Result<Metadata> {
    statvfs(path)?;
    std::fs::metadata(path)
}

/// Whether the daemon of a mount has died.
pub(crate) fn is_dead_mount(mountpoint: &Path) -> bool {
    metadata(mountpoint).is_err_and(|e| is_dead(&e))
}

/// A program in the search path.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let search = std::env::var_os("PATH");
    let search = search
        .as_deref()
        .unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"));
    std::env::split_paths(search)
        .map(|directory| directory.join(name))
        .find(|path| nix::unistd::eaccess(path, nix::unistd::AccessFlags::X_OK).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_step_need_not_exist() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        assert_eq!(absolute(&dir.path().join("new")).unwrap(), root.join("new"));
        assert!(absolute(&dir.path().join("no/new")).is_err());
        assert!(absolute(&dir.path().join("no/..")).is_err());
    }

    #[test]
    fn links_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", dir.path().join("link")).unwrap();
        let path = absolute(&dir.path().join("link/")).unwrap();
        assert_eq!(path, dir.path().canonicalize().unwrap().join("real"));
    }

    #[test]
    fn a_bare_name_is_in_the_current_directory() {
        assert_eq!(parent(Path::new("x")), Path::new("."));
        assert_eq!(parent(Path::new("a/x")), Path::new("a"));
        assert_eq!(parent(Path::new("/")), Path::new("/"));
    }

    #[test]
    fn programs_are_found_in_the_search_path() {
        assert!(program("sh").is_some());
        assert_eq!(program("no-such-program-anywhere"), None);
    }
}
