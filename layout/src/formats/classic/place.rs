//! Where the variables of a classic file lie.

use super::header::{Header, HeaderVariable};
use crate::builder::LayoutBuilder;
use crate::error::Error;
use crate::extent::{Content, LayoutExtent, RecordField};
use crate::reader::{BudgetedReader, GROWTH};
use crate::variable::Variable;
use crate::variable::bytes;

/// A record variable that has no place in the records yet.
struct Slab {
    begin: u64,
    len: u64,
    variable: u32,
}

/// Adds variables and extents. Returns the first problem, and whether there are records,
/// whose number may depend on the length of the file.
pub(crate) fn place(
    reader: &mut BudgetedReader<'_>,
    builder: &mut LayoutBuilder,
    header: Header,
) -> Result<(Option<Error>, bool), Error> {
    let mut problem = None;
    let mut slabs = Vec::new();
    let mut stride = Some(0u64);
    for variable in header.variables {
        reader.tick()?;
        let Some((shape, record)) = shape(&header.dimensions, &variable) else {
            problem.get_or_insert(Error::Malformed {
                what: "dimension of a variable",
                found: variable.begin,
            });
            // It may be a record variable, and then no record's length is known.
            stride = None;
            continue;
        };
        let inner = if record {
            shape.get(1..).unwrap_or_default()
        } else {
            &shape
        };
        let len = bytes(variable.element.width, inner);
        let begin = variable.begin;
        reader.charge(GROWTH * (size_of::<Slab>() + size_of::<RecordField>()))?;
        let number = builder.variable(
            reader,
            Variable {
                path: variable.name,
                element: variable.element,
                chunk: None,
                fill: Some(variable.fill),
                filters: Vec::new(),
                shuffle: None,
                record,
                interleaved: record,
                shape,
            },
        )?;
        if record {
            // Padding to four bytes may be more than there is.
            stride = stride
                .zip(len)
                .and_then(|(sum, len)| sum.checked_add(len.checked_next_multiple_of(4)?));
        }
        let Some(len) = len.filter(|_| begin >= header.end) else {
            problem.get_or_insert(Error::Malformed {
                what: "place or size of a variable",
                found: begin,
            });
            continue;
        };
        if record {
            slabs.push(Slab {
                begin,
                len,
                variable: number,
            });
        } else {
            builder.place(
                reader,
                LayoutExtent {
                    offset: begin,
                    len,
                    content: Content::Array { variable: number },
                },
            )?;
        }
    }
    let count = builder.variables.iter().filter(|one| one.record).count();
    if count == 1 {
        // A single record variable is not padded.
        stride = stride.and(slabs.first().map(|slab| slab.len));
    }
    match stride {
        Some(stride) if stride > 0 => records(reader, builder, slabs, stride, header.records)?,
        Some(_) => {}
        None => {
            problem.get_or_insert(Error::Malformed {
                what: "length of a record",
                found: 0,
            });
        }
    }
    Ok((problem, count > 0))
}

/// The shape of a variable, 0 for the record dimension, and whether it has that; nothing if its
/// dimensions do not exist or the record dimension is not the first.
fn shape(dimensions: &[u64], variable: &HeaderVariable) -> Option<(Vec<u64>, bool)> {
    let shape = variable
        .dimensions
        .iter()
        .map(|&number| dimensions.get(usize::try_from(number).ok()?).copied())
        .collect::<Option<Vec<_>>>()?;
    let record = shape.first() == Some(&0);
    let inner = shape.get(1..).unwrap_or_default();
    (!inner.contains(&0)).then_some((shape, record))
}

fn records(
    reader: &mut BudgetedReader<'_>,
    builder: &mut LayoutBuilder,
    mut slabs: Vec<Slab>,
    stride: u64,
    header_records: Option<u64>,
) -> Result<(), Error> {
    slabs.sort_by_key(|slab| (slab.begin, slab.variable));
    let Some(first) = slabs.first().map(|slab| slab.begin) else {
        return Ok(());
    };
    let mut fields: Vec<RecordField> = Vec::new();
    let mut used = 0;
    for slab in slabs {
        let offset = slab.begin - first;
        // Slabs that overlap the one before, or lie in no record, are left out.
        let end = offset.saturating_add(slab.len);
        if slab.len > 0 && offset >= used && end <= stride {
            fields.push(RecordField {
                offset,
                len: slab.len,
                variable: slab.variable,
            });
            used = end;
        }
    }
    if used == 0 {
        return Ok(());
    }
    let room = reader.len().saturating_sub(first);
    // Writers set the number late; the last record's padding may be missing.
    let whole = room.saturating_add(stride - used) / stride;
    let begun = room.div_ceil(stride);
    let count = header_records.map_or(whole, |count| count.min(begun).max(whole));
    for variable in &mut builder.variables {
        if variable.record
            && let Some(slowest) = variable.shape.first_mut()
        {
            *slowest = count;
        }
    }
    builder.place(
        reader,
        LayoutExtent {
            offset: first,
            len: if builder.end() > reader.len() {
                // Still growing: records without end.
                builder.end().saturating_sub(first)
            } else {
                count.saturating_mul(stride)
            },
            content: Content::Records {
                stride,
                fields: fields.into(),
            },
        },
    )
}
