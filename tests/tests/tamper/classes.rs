//! The classes of bytes of a store.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use shale_codec::{FrameKind, HEADER_LEN, parse_header};
use shale_tests::{Failure, Outcome};

/// Bytes of a pack before its first frame, and after its directory.
const PACK_HEADER: usize = 64;
const PACK_TRAILER: usize = 32;

/// A class of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    Superblock,
    /// A pack as a whole.
    Pack,
    PackHeader,
    FrameHeader,
    /// Directory and columns of a frame of data.
    Column,
    /// Directory of a frame and what it holds of a file's map.
    MapSegment,
    /// Directory of a pack and its trailer.
    PackFooter,
    Catalog,
    Journal,
    Snapshot,
    Checkpoint,
    Sled,
}

/// Bytes of a file.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) file: PathBuf,
    pub(crate) range: Range<usize>,
}

impl Class {
    pub(crate) const ALL: [Self; 12] = [
        Self::Superblock,
        Self::Pack,
        Self::PackHeader,
        Self::FrameHeader,
        Self::Column,
        Self::MapSegment,
        Self::PackFooter,
        Self::Catalog,
        Self::Journal,
        Self::Snapshot,
        Self::Checkpoint,
        Self::Sled,
    ];

    /// Whether it consists of whole files.
    pub(crate) fn is_whole(self) -> bool {
        !matches!(
            self,
            Self::PackHeader
                | Self::FrameHeader
                | Self::Column
                | Self::MapSegment
                | Self::PackFooter
        )
    }

    /// Whether each piece of it belongs to one file.
    pub(crate) fn is_of_one_file(self) -> bool {
        matches!(self, Self::FrameHeader | Self::Column | Self::MapSegment)
    }

    /// Whether packs and catalog hold everything that it holds.
    pub(crate) fn is_spare(self) -> bool {
        matches!(
            self,
            Self::Superblock | Self::Journal | Self::Snapshot | Self::Checkpoint | Self::Sled
        )
    }

    /// Whether nothing is lost with it, but fsck reports it and can write it again.
    pub(crate) fn is_mendable(self) -> bool {
        matches!(self, Self::PackFooter | Self::Catalog)
    }

    /// The class of a file as a whole.
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "superblock" => Self::Superblock,
            _ if name.starts_with("packs/catalog/") => Self::Catalog,
            _ if name.starts_with("packs/") => Self::Pack,
            _ if name.starts_with("index/sled/") => Self::Sled,
            _ if name.starts_with("index/journal-") => Self::Journal,
            _ if name.starts_with("index/snapshot-") => Self::Snapshot,
            "index/checkpoint" => Self::Checkpoint,
            _ => return None,
        })
    }
}

/// Everything in a store, by class.
pub(crate) fn classes(store: &Path) -> Outcome<BTreeMap<Class, Vec<Place>>> {
    let mut classes: BTreeMap<Class, Vec<Place>> = BTreeMap::new();
    for file in files(store)? {
        let name = file.to_string_lossy().into_owned();
        if matches!(name.as_str(), "lock" | "shale.log") {
            continue;
        }
        let class =
            Class::of(&name).ok_or_else(|| Failure::new(format!("{name} belongs to no class")))?;
        let bytes = fs::read(store.join(&file))?;
        if class == Class::Pack {
            for (class, range) in parts(&bytes) {
                let file = file.clone();
                classes
                    .entry(class)
                    .or_default()
                    .push(Place { file, range });
            }
        }
        let range = 0..bytes.len();
        classes
            .entry(class)
            .or_default()
            .push(Place { file, range });
    }
    Ok(classes)
}

/// All files below a directory, in order, relative to it.
fn files(store: &Path) -> Outcome<Vec<PathBuf>> {
    let (mut files, mut dirs) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(store.join(&dir))? {
            let entry = entry?;
            let path = dir.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                dirs.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The parts of a sealed pack.
fn parts(pack: &[u8]) -> Vec<(Class, Range<usize>)> {
    let mut parts = vec![(Class::PackHeader, 0..PACK_HEADER)];
    let mut at = PACK_HEADER;
    while let Ok(header) = parse_header(&pack[at..]) {
        let end = at + header.frame_len as usize;
        let class = match header.meta.kind {
            FrameKind::Catalog => {
                parts.push((Class::PackFooter, at..end));
                at = end;
                continue;
            }
            FrameKind::Map => Class::MapSegment,
            FrameKind::Data | FrameKind::Tile | FrameKind::Tiles | FrameKind::Gather => {
                Class::Column
            }
        };
        parts.push((Class::FrameHeader, at..at + HEADER_LEN));
        parts.push((class, at + HEADER_LEN..end));
        at = end;
    }
    parts.push((Class::PackFooter, pack.len() - PACK_TRAILER..pack.len()));
    parts
}
