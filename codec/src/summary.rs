//! What was done to a chunk, in words.
#![forbid(unsafe_code)]

use std::fmt;

use crate::Error;
use crate::frame::{Directory, FrameHeader, NumberMap, Predictor, Recipe, Scheme, parse_header};
use crate::stream::Coder;

const CODER_NAMES: [(Coder, &str); 8] = [
    (Coder::Raw, "raw"),
    (Coder::Constant, "constant"),
    (Coder::Runs, "runs"),
    (Coder::Entropy, "entropy"),
    (Coder::Lz4, "lz4"),
    (Coder::Zstd, "zstd"),
    (Coder::Rans, "rans"),
    (Coder::Gaps, "gaps"),
];

/// Which transform and coders a frame uses, and what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameSummary {
    /// Length of the chunk.
    pub raw_len: u32,
    /// Length of the frame.
    pub frame_len: u32,
    /// Bytes per element as the transform saw them.
    pub width: u8,
    scheme: Scheme,
    map: NumberMap,
    predictor: Predictor,
    coders: u8,
}

impl FrameSummary {
    pub(crate) fn new(recipe: &Recipe, raw_len: u32, frame_len: u32) -> Self {
        FrameSummary {
            raw_len,
            frame_len,
            width: recipe.width,
            scheme: recipe.scheme,
            map: recipe.map,
            predictor: recipe.predictor,
            coders: 0,
        }
    }

    pub(crate) fn add(&mut self, coder: Coder) {
        self.coders |= 1 << coder as u8;
    }

    /// Name of the scheme: `verbatim`, `constant`, `columns` or `residuals`.
    pub fn scheme(&self) -> &'static str {
        match self.scheme {
            Scheme::Verbatim => "verbatim",
            Scheme::Constant => "constant",
            Scheme::Columns => "columns",
            Scheme::Residuals => "residuals",
        }
    }

    /// Name of the number map: `bytes`, `integer`, `ordered` or `decimal`.
    pub fn map(&self) -> &'static str {
        match self.map {
            NumberMap::Bytes => "bytes",
            NumberMap::Integer => "integer",
            NumberMap::Ordered => "ordered",
            NumberMap::Decimal => "decimal",
            NumberMap::Real => "real",
        }
    }

    /// Name of the predictor: `none`, `delta`, `xor`, `row`, `plane`, `cube` or `line`.
    pub fn predictor(&self) -> &'static str {
        match self.predictor {
            Predictor::None => "none",
            Predictor::Delta => "delta",
            Predictor::Xor => "xor",
            Predictor::Row => "row",
            Predictor::Plane => "plane",
            Predictor::Cube => "cube",
            Predictor::Line => "line",
        }
    }

    /// Names of the coders that at least one stream uses.
    pub fn coders(&self) -> impl Iterator<Item = &'static str> + use<> {
        let coders = self.coders;
        CODER_NAMES
            .into_iter()
            .filter(move |(coder, _)| coders & (1 << *coder as u8) != 0)
            .map(|(_, name)| name)
    }

    /// Raw bytes per stored byte.
    pub fn ratio(&self) -> f64 {
        f64::from(self.raw_len) / f64::from(self.frame_len.max(1))
    }
}

impl fmt::Display for FrameSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.scheme())?;
        if matches!(self.scheme, Scheme::Columns | Scheme::Residuals) {
            write!(f, " {}x{}", self.map(), self.width)?;
            if self.predictor != Predictor::None {
                write!(f, " {}", self.predictor())?;
            }
        }
        for (i, name) in self.coders().enumerate() {
            f.write_str(if i == 0 { ": " } else { "+" })?;
            f.write_str(name)?;
        }
        Ok(())
    }
}

/// Says how a frame was made. Checks its header and directory, not its data.
pub fn describe(frame: &[u8]) -> Result<FrameSummary, Error> {
    let header = parse_header(frame)?;
    let directory = Directory::parse(&header, frame)?;
    summarise(&header, &directory)
}

/// The same when only the first bytes of the frame are at hand; header and directory must be
/// among them.
pub fn describe_head(head: &[u8]) -> Result<FrameSummary, Error> {
    let header = parse_header(head)?;
    let directory = Directory::parse_head(&header, head)?;
    summarise(&header, &directory)
}

/// Bytes of a frame that are stored as they were: they could be written before anything is
/// compressed.
pub fn plain_bytes(frame: &[u8]) -> Result<u32, Error> {
    let header = parse_header(frame)?;
    let directory = Directory::parse(&header, frame)?;
    if directory.recipe.scheme == Scheme::Verbatim {
        return Ok(header.raw_len);
    }
    let mut sum = 0;
    for segment in 0..directory.segments() {
        for stream in 0..directory.recipe.streams as usize {
            let entry = directory.stream(segment, stream)?;
            if entry.coder == Coder::Raw {
                sum += entry.stored_len;
            }
        }
    }
    Ok(sum)
}

fn summarise(header: &FrameHeader, directory: &Directory<'_>) -> Result<FrameSummary, Error> {
    let mut summary = FrameSummary::new(&directory.recipe, header.raw_len, header.frame_len);
    if directory.recipe.scheme == Scheme::Verbatim && header.raw_len > 0 {
        summary.add(Coder::Raw);
    }
    for segment in 0..directory.segments() {
        for stream in 0..directory.recipe.streams as usize {
            let entry = directory.stream(segment, stream)?;
            if entry.raw_len > 0 {
                summary.add(entry.coder);
            }
        }
    }
    Ok(summary)
}
