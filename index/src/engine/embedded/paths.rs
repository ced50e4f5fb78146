//! Paths in the index directory, and small operations on its files.

use std::hash::{BuildHasher, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use shale_backing::{Access, Backing};

use crate::Error;

/// The directory of everything here, relative to the store.
pub(crate) const DIR: &str = "index";
/// The directory of sled's instances.
pub(crate) const SLED_DIR: &str = "index/sled";

/// A path in the index directory.
pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

/// The path of a numbered file.
pub(crate) fn numbered(prefix: &str, number: u64) -> PathBuf {
    path(&numbered_name(prefix, number))
}

/// The same without the directory.
pub(crate) fn numbered_name(prefix: &str, number: u64) -> String {
    format!("{prefix}{number:016x}")
}

/// The number in a name that [`numbered`] made.
pub(crate) fn number_of(prefix: &str, name: &Path) -> Option<u64> {
    let digits = name.to_str()?.strip_prefix(prefix)?;
    let lower = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    (digits.len() == 16 && digits.bytes().all(lower))
        .then(|| u64::from_str_radix(digits, 16).ok())
        .flatten()
        // Every version has a successor.
        .filter(|number| *number < u64::MAX)
}

/// Turns an error of the operating system into one that names the file.
pub(crate) fn io_error<'a>(
    action: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> Error + 'a {
    move |source| Error::Io {
        action,
        path: path.to_path_buf(),
        source,
    }
}

/// The numbers of all files with this prefix, in order.
pub(crate) fn list_numbered(backing: &dyn Backing, prefix: &str) -> Result<Vec<u64>, Error> {
    let dir = Path::new(DIR);
    let entries = match backing.list(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(io_error("list", dir)(e)),
    };
    let mut numbers: Vec<u64> = entries
        .iter()
        .filter_map(|entry| number_of(prefix, &entry.name))
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Removes a file; a missing one is fine.
pub(crate) fn remove(backing: &dyn Backing, path: &Path) -> Result<(), Error> {
    match backing.remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(io_error("remove", path)(e)),
        _ => Ok(()),
    }
}

/// The whole of a file, `None` when there is none.
pub(crate) fn read(backing: &dyn Backing, path: &Path) -> Result<Option<Vec<u8>>, Error> {
    let mut bytes = Vec::new();
    Ok(read_into(backing, path, &mut bytes)?.then_some(bytes))
}

/// As [`read`], into a buffer that is reused; false when there is no such file.
pub(crate) fn read_into(
    backing: &dyn Backing,
    path: &Path,
    bytes: &mut Vec<u8>,
) -> Result<bool, Error> {
    bytes.clear();
    let file = match backing.open(path, Access::Read) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(io_error("open", path)(e)),
    };
    let len = file.len().map_err(io_error("measure", path))?;
    let too_large = || io::Error::from(io::ErrorKind::FileTooLarge);
    let len = usize::try_from(len).map_err(|_| io_error("read", path)(too_large()))?;
    bytes.resize(len, 0);
    let got = file.read_at(bytes, 0).map_err(io_error("read", path))?;
    bytes.truncate(got);
    Ok(true)
}

/// Replaces a file so that after a crash there is the old one or the new one.
pub(crate) fn replace(backing: &dyn Backing, path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let new = path.with_extension("new");
    remove(backing, &new)?;
    let file = backing
        .open(&new, Access::CreateNew)
        .map_err(io_error("create", &new))?;
    file.write_all_at(bytes, 0)
        .map_err(io_error("write", &new))?;
    file.sync_data().map_err(io_error("sync", &new))?;
    backing
        .rename(&new, path)
        .map_err(io_error("rename", &new))?;
    backing
        .sync_dir(Path::new(DIR))
        .map_err(io_error("sync", Path::new(DIR)))
}

/// A unique number: good enough for names, not secret enough for cryptography.
pub(crate) fn random() -> u64 {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    // The standard library seeds each hasher state from the system's random numbers.
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u64(CALLS.fetch_add(1, Ordering::Relaxed));
    hasher.write_u32(std::process::id());
    hasher.finish().max(1)
}
