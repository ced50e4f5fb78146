//! Which paths of a report count for its total.

use std::fs::Metadata;
use std::path::Path;

use crate::system::file_id::FileId;

/// The paths of a report, so that a total counts nothing twice.
#[derive(Debug, Default)]
pub(super) struct DistinctPaths(Vec<Place>);

#[derive(Debug)]
struct Place {
    id: FileId,
    /// Its parent directories.
    above: Vec<FileId>,
}

impl DistinctPaths {
    pub(super) fn add(&mut self, path: &Path, metadata: &Metadata) {
        let whole = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let above = whole.ancestors().skip(1);
        let above = above.filter_map(|path| Some(FileId::from(&path.metadata().ok()?)));
        self.0.push(Place {
            id: metadata.into(),
            above: above.collect(),
        });
    }

    /// For each path whether it counts: it is not inside another one, and not a repetition.
    pub(super) fn counted(&self) -> Vec<bool> {
        let counts = |(number, place): (usize, &Place)| {
            let before = &self.0[..number];
            !before.iter().any(|other| other.id == place.id)
                && !self.0.iter().any(|other| place.above.contains(&other.id))
        };
        self.0.iter().enumerate().map(counts).collect()
    }
}
