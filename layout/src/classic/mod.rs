//! NetCDF classic: CDF-1, CDF-2, CDF-5.
//!
//! ```text
//! header | fixed variable | fixed variable | record 0 | record 1 | ...
//!                                            `- slab of each record variable
//! ```

mod header;
mod place;

use crate::builder::Builder;
use crate::parse::Outcome;
use crate::reader::Reader;
use crate::{Error, Format};

pub(crate) fn parse(reader: &mut Reader<'_>, builder: &mut Builder) -> Result<Outcome, Error> {
    let header = header::read(reader)?;
    let format = match header.version {
        1 => Format::Cdf1,
        2 => Format::Cdf2,
        _ => Format::Cdf5,
    };
    let (problem, records) = place::place(reader, builder, header)?;
    // In a growing file the records have no end: only their number as of now depends on it.
    let growing = builder.end() > reader.len();
    Ok(Outcome {
        format: Some(format),
        marked_open: false,
        problem,
        follows_len: records && !growing,
    })
}
