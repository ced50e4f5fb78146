//! Summarises how a frame was made.
#![forbid(unsafe_code)]

use std::fmt;

use super::directory::{Coder, FrameDirectory};
use super::header::{FrameHeader, parse_header};
use super::recipe::{NumberMap, Predictor, Recipe, Scheme};
use crate::error::Error;

/// Which transform and coders a frame uses, and its lengths.
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
        self.scheme.name()
    }

    /// Name of the number map: `bytes`, `integer`, `ordered`, `decimal` or `real`.
    pub fn map(&self) -> &'static str {
        self.map.name()
    }

    /// Name of the predictor: `none`, `delta`, `xor`, `row`, `plane`, `cube` or `line`.
    pub fn predictor(&self) -> &'static str {
        self.predictor.name()
    }

    /// Names of the coders that at least one stream uses.
    pub fn coders(&self) -> impl Iterator<Item = &'static str> + use<> {
        let coders = self.coders;
        Coder::ALL
            .iter()
            .filter(move |coder| coders & (1 << **coder as u8) != 0)
            .map(|coder| coder.name())
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

/// Summarises a frame. Checks its header and directory, not its data.
pub fn describe(frame: &[u8]) -> Result<FrameSummary, Error> {
    let header = parse_header(frame)?;
    let directory = FrameDirectory::parse(&header, frame)?;
    summarise(&header, &directory)
}

/// The same for the first bytes of a frame; header and directory must be among them.
pub fn describe_head(head: &[u8]) -> Result<FrameSummary, Error> {
    let header = parse_header(head)?;
    let directory = FrameDirectory::parse_head(&header, head)?;
    summarise(&header, &directory)
}

/// Number of bytes that a frame stores uncompressed: they can be written before the others are
/// compressed.
pub fn plain_bytes(frame: &[u8]) -> Result<u32, Error> {
    let header = parse_header(frame)?;
    let directory = FrameDirectory::parse(&header, frame)?;
    if directory.recipe.scheme == Scheme::Verbatim {
        return Ok(header.raw_len);
    }
    let mut sum = 0;
    for block in 0..directory.blocks() {
        for stream in 0..directory.recipe.streams as usize {
            let entry = directory.stream(block, stream)?;
            if entry.coder == Coder::Raw {
                sum += entry.stored_len;
            }
        }
    }
    Ok(sum)
}

fn summarise(header: &FrameHeader, directory: &FrameDirectory<'_>) -> Result<FrameSummary, Error> {
    let mut summary = FrameSummary::new(&directory.recipe, header.raw_len, header.frame_len);
    if directory.recipe.scheme == Scheme::Verbatim && header.raw_len > 0 {
        summary.add(Coder::Raw);
    }
    for block in 0..directory.blocks() {
        for stream in 0..directory.recipe.streams as usize {
            let entry = directory.stream(block, stream)?;
            if entry.raw_len > 0 {
                summary.add(entry.coder);
            }
        }
    }
    Ok(summary)
}
