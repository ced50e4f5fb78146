//! The figures of a store that is not mounted, as its mount would show them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use shale_fs::reports;
use shale_index::ROOT;
use shale_index::schema::Inode;
use shale_store::{Error, OfflineStore};

use super::figures::{Entry, Figures};
use crate::output::failure::{Failure, exit};
use crate::output::report;

/// The figures of a store. Changes nothing.
pub(super) fn examine(store: &Path, summary: bool) -> Result<Entry, Failure> {
    let failed = |error: Error| {
        Failure::new(
            exit::IO,
            format_args!(
                "cannot read the index of {0}: {error}; 'shale fsck {0}' lists everything that is damaged",
                store.display()
            ),
        )
    };
    let reader = OfflineStore::open(store).map_err(|error| Failure::opening(store, error))?;
    let mut children = Vec::new();
    if !summary {
        for found in reader.entries(ROOT).map_err(failed)? {
            let inode = reader.inode(found.ino).map_err(failed)?;
            children.push(entry(&reader, &inode, OsStr::from_bytes(&found.name)).map_err(failed)?);
        }
        children.sort_by(|a, b| a.path.cmp(&b.path));
    }
    let root = reader.inode(ROOT).map_err(failed)?;
    Ok(Entry {
        kind: "store",
        children: (!summary).then_some(children),
        ..entry(&reader, &root, store.as_os_str()).map_err(failed)?
    })
}

fn entry(reader: &OfflineStore, inode: &Inode, name: &OsStr) -> Result<Entry, Error> {
    let has_figures = inode.is_file() || inode.is_dir();
    let figures = if has_figures {
        Some(Figures::from(&reader.taken(inode)?))
    } else {
        None
    };
    Ok(Entry {
        path: report::name(name),
        kind: kind(inode),
        figures,
        state: inode.is_file().then(|| reports::at_rest(inode).to_owned()),
        codecs: None,
        children: None,
    })
}

fn kind(inode: &Inode) -> &'static str {
    use nix::libc::{S_IFIFO, S_IFLNK, S_IFMT, S_IFSOCK};
    match inode.mode & S_IFMT {
        _ if inode.is_file() => "file",
        _ if inode.is_dir() => "directory",
        S_IFLNK => "symlink",
        S_IFIFO => "fifo",
        S_IFSOCK => "socket",
        _ => "device",
    }
}
