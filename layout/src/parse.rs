//! Finds the format and runs its parser.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::builder::{LayoutBuilder, ParseOutcome};
use crate::error::Error;
use crate::format::{Format, HDF5_SIGNATURE, MAX_USER_BLOCK, detect, user_blocks};
use crate::formats::{classic, fits, hdf5, npy};
use crate::layout::Layout;
use crate::options::ParseOptions;
use crate::reader::BudgetedReader;
use crate::source::ReadAt;

/// A file of this length does not change its format by growing.
const DECIDED: u64 = MAX_USER_BLOCK + HDF5_SIGNATURE.len() as u64;

/// Parses `source`. Never fails: an unknown file has a layout without extents, and
/// [`Layout::problem`] says why.
#[must_use]
pub fn parse(source: &dyn ReadAt, options: &ParseOptions) -> Layout {
    let mut reader = BudgetedReader::new(source, options.budget);
    let file_len = reader.len();
    let end = if options.growing { u64::MAX } else { file_len };
    let mut builder = LayoutBuilder::new(end);
    // Parsers should not panic; if one does, the file system keeps working.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let outcome = run(&mut reader, &mut builder);
        builder.finish();
        outcome
    }))
    .unwrap_or_else(|_| {
        builder = LayoutBuilder::new(end);
        Err(Error::Panicked)
    });
    let outcome = outcome.unwrap_or_else(|error| ParseOutcome {
        format: None,
        problem: Some(error),
        // A file too short to be recognised may be recognised when it is longer.
        follows_len: file_len < DECIDED,
        marked_open: false,
    });
    Layout {
        format: outcome.format,
        file_len,
        follows_len: outcome.follows_len || builder.truncated,
        marked_open: outcome.marked_open,
        variables: builder.variables,
        extents: builder.extents,
        parsed: reader.into_parsed(),
        problem: outcome.problem,
    }
}

fn run(
    reader: &mut BudgetedReader<'_>,
    builder: &mut LayoutBuilder,
) -> Result<ParseOutcome, Error> {
    let head = reader.read(0, reader.len().min(16))?;
    let format = detect(&head);
    let result = match format {
        Some(Format::Cdf1 | Format::Cdf2 | Format::Cdf5) => classic::parse(reader, builder),
        Some(Format::Npy) => npy::parse(reader, builder),
        Some(Format::Fits) => fits::parse(reader, builder),
        Some(Format::Hdf5 | Format::NetCdf4) => hdf5::parse(reader, builder, 0),
        None => {
            let base = user_block(reader)?.ok_or(Error::NotRecognised)?;
            hdf5::parse(reader, builder, base)
        }
    };
    match (result, format) {
        (Err(error), Some(_)) => {
            builder.extents.clear();
            builder.variables.clear();
            Ok(ParseOutcome {
                format,
                follows_len: error.is_about_len(),
                marked_open: false,
                problem: Some(error),
            })
        }
        (result, _) => result,
    }
}

/// Looks for HDF5 after a user block.
fn user_block(reader: &mut BudgetedReader<'_>) -> Result<Option<u64>, Error> {
    for at in user_blocks() {
        if reader.len() < at + HDF5_SIGNATURE.len() as u64 {
            break;
        }
        let mut found = [0; 8];
        reader.read_into(at, &mut found)?;
        if &found == HDF5_SIGNATURE {
            return Ok(Some(at));
        }
    }
    Ok(None)
}
