//! The figures of `shale stat`.

use serde::Serialize;

use crate::output::report::printable;
use crate::output::size;

/// Figures of a file, or of everything below a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Figures {
    pub(super) raw: u64,
    pub(super) stored: u64,
    /// Bytes of `raw` that `stored` stands for.
    pub(super) stored_raw: u64,
    /// Bytes in memory that are not stored yet.
    pub(super) unwritten: u64,
    /// `stored_raw` / `stored`, none when either is 0.
    pub(super) ratio: Option<f64>,
    pub(super) files: u64,
    #[serde(rename = "directories")]
    pub(super) dirs: u64,
}

#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Entry {
    pub(super) path: String,
    pub(super) kind: &'static str,
    /// None for an entry without data, or without permission to ask.
    #[serde(flatten)]
    pub(super) figures: Option<Figures>,
    pub(super) state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) codecs: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) children: Option<Vec<Entry>>,
}

#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Report {
    pub(super) entries: Vec<Entry>,
    pub(super) total: Figures,
}

impl From<&shale_store::Usage> for Figures {
    fn from(taken: &shale_store::Usage) -> Self {
        Self {
            raw: taken.raw,
            stored: taken.stored,
            stored_raw: taken.stored_raw,
            unwritten: taken.unwritten,
            ratio: size::ratio(taken.stored_raw, taken.stored),
            files: taken.files,
            dirs: taken.dirs,
        }
    }
}

impl Figures {
    pub(super) fn sum(all: impl Iterator<Item = Self>) -> Self {
        let mut sum = Self::default();
        for figures in all {
            sum.raw = sum.raw.saturating_add(figures.raw);
            sum.stored = sum.stored.saturating_add(figures.stored);
            sum.stored_raw = sum.stored_raw.saturating_add(figures.stored_raw);
            sum.unwritten = sum.unwritten.saturating_add(figures.unwritten);
            sum.files = sum.files.saturating_add(figures.files);
            sum.dirs = sum.dirs.saturating_add(figures.dirs);
        }
        sum.ratio = size::ratio(sum.stored_raw, sum.stored);
        sum
    }
}

impl Entry {
    /// Its name in a table.
    pub(super) fn shown(&self) -> String {
        let mut name = printable(&self.path);
        if matches!(self.kind, "directory" | "store") && !name.ends_with('/') {
            name.push('/');
        }
        name
    }

    /// Its state, or its kind if it has none.
    pub(super) fn note(&self) -> &str {
        self.state.as_deref().unwrap_or(match self.kind {
            "file" | "directory" | "store" => "",
            kind => kind,
        })
    }

    /// Whether it, or an entry listed in it, has unwritten data.
    pub(super) fn is_unwritten(&self) -> bool {
        self.figures.is_some_and(|figures| figures.unwritten > 0)
            || self.children.iter().flatten().any(Self::is_unwritten)
    }
}
