//! NetCDF classic: CDF-1, CDF-2, CDF-5.
//!
//! ```text
//! header | fixed variable | fixed variable | record 0 | record 1 | ...
//!                                            `- slab of each record variable
//! ```

mod header;
mod place;

use crate::builder::{LayoutBuilder, ParseOutcome};
use crate::error::Error;
use crate::format::Format;
use crate::reader::BudgetedReader;

pub(crate) fn parse(
    reader: &mut BudgetedReader<'_>,
    builder: &mut LayoutBuilder,
) -> Result<ParseOutcome, Error> {
    let header = header::read(reader)?;
    let format = match header.version {
        1 => Format::Cdf1,
        2 => Format::Cdf2,
        _ => Format::Cdf5,
    };
    let (problem, records) = place::place(reader, builder, header)?;
    // In a growing file the records have no end: only their number as of now depends on it.
    let growing = builder.end() > reader.len();
    Ok(ParseOutcome {
        format: Some(format),
        marked_open: false,
        problem,
        follows_len: records && !growing,
    })
}
