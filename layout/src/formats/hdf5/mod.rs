//! HDF5 and NetCDF-4: finds where the elements of datasets lie, and reads nothing else.
//!
//! ```text
//! superblock --> object header --> links of a group --> object headers ...
//!                     |
//!                  dataset: dataspace, datatype, layout, filters, fill value
//!                     |
//!                  chunk index: B-tree 1 or 2, fixed or extensible array --> extents
//! ```
//! Nothing is read that does not lead to an extent: no attributes, no global heaps, no free
//! space. Checksums are not verified: a torn structure is refused by its bounds or gives a
//! wrong layout, which costs density.

mod btree1;
mod btree2;
mod chunk_sink;
mod chunks;
mod dataset;
mod dataspace;
mod datatype;
mod extensible_array;
mod file;
mod filters;
mod fixed_array;
mod group;
mod heap;
mod object;
mod storage;

use std::collections::{HashSet, VecDeque};

use crate::builder::{LayoutBuilder, ParseOutcome};
use crate::error::Error;
use crate::format::Format;
use crate::reader::{BudgetedReader, GROWTH};
use file::Hdf5File;
use group::Link;

/// Groups may contain each other; longer paths are not followed.
const MAX_PATH: usize = 4096;

/// Reads the file whose superblock is at `base`.
pub(crate) fn parse(
    reader: &mut BudgetedReader<'_>,
    builder: &mut LayoutBuilder,
    base: u64,
) -> Result<ParseOutcome, Error> {
    let (mut file, root) = Hdf5File::open(reader, base)?;
    let mut problem = None;
    let mut format = Format::Hdf5;
    let mut seen = HashSet::from([root]);
    let mut queue = VecDeque::from([(root, String::new())]);
    while let Some((address, path)) = queue.pop_front() {
        let cost = link_cost(&path);
        let result = visit(&mut file, builder, address, &path, |file, link| {
            if path.len() + link.name.len() > MAX_PATH || !seen.insert(link.address) {
                return Ok(());
            }
            let path = if path.is_empty() {
                link.name
            } else {
                format!("{path}/{}", link.name)
            };
            // The entry of `seen` stays charged.
            file.reader.charge(link_cost(&path) + GROWTH * 16)?;
            queue.push_back((link.address, path));
            Ok(())
        });
        file.reader.release(cost);
        match result {
            Ok(netcdf) => {
                if netcdf && address == root {
                    format = Format::NetCdf4;
                }
            }
            Err(error) => {
                let last = error.is_final();
                problem.get_or_insert(error);
                if last {
                    break;
                }
            }
        }
    }
    Ok(ParseOutcome {
        format: Some(format),
        follows_len: problem.as_ref().is_some_and(Error::is_about_len),
        marked_open: file.marked_open,
        problem,
    })
}

fn link_cost(path: &str) -> usize {
    GROWTH * size_of::<(u64, String)>() + path.len()
}

/// Reads one object: a dataset, or the links of a group. Returns whether a NetCDF library has
/// marked it as its own.
fn visit(
    file: &mut Hdf5File<'_, '_>,
    builder: &mut LayoutBuilder,
    address: u64,
    path: &str,
    mut follow: impl FnMut(&mut Hdf5File<'_, '_>, Link) -> Result<(), Error>,
) -> Result<bool, Error> {
    let object = object::read(file, address)?;
    if object.message(object::LAYOUT).is_some() {
        dataset::read(file, builder, &object, path)?;
    } else {
        group::links(file, &object, &mut follow)?;
    }
    Ok(object.netcdf)
}
