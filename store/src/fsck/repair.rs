//! Rewriting parts that can be derived from the rest.

use shale_backing::{Access, Backing};

use crate::Error;
use crate::pack::{DirectoryEntry, PackId, Scanned, encode_footer, scan};

/// Writes a new directory of a sealed pack after its frames.
pub(super) fn rewrite_directory(
    backing: &dyn Backing,
    pack: PackId,
    directory: u64,
) -> Result<(), Error> {
    let path = pack.path();
    let file = backing
        .open(&path, Access::Write)
        .map_err(Error::io("open", &path))?;
    let mut entries = Vec::new();
    scan(&*file, |found| {
        if let Scanned::Frame { at, header } = found
            && at + u64::from(header.frame_len) <= directory
        {
            entries.push(DirectoryEntry::new(at, &header));
        }
    })
    .map_err(Error::io("read", &path))?;
    let footer = encode_footer(pack, directory, &entries, 0)?;
    file.set_len(directory)
        .and_then(|()| file.write_all_at(&footer, directory))
        .and_then(|()| file.sync_data())
        .map_err(Error::io("write", &path))
}
