//! HDF5 and NetCDF-4, as far as finding where the elements of datasets lie takes it.
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

use crate::builder::Builder;
use crate::parse::Outcome;
use crate::reader::{GROWTH, Reader};
use crate::{Error, Format};
use file::File;
use group::Link;

/// Groups may contain each other; whoever counts on that ends here.
const MAX_PATH: usize = 4096;

/// Reads the file whose superblock is at `base`.
pub(crate) fn parse(
    reader: &mut Reader<'_>,
    builder: &mut Builder,
    base: u64,
) -> Result<Outcome, Error> {
    let (mut file, root) = File::open(reader, base)?;
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
            // What remembers the address stays counted.
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
    Ok(Outcome {
        format: Some(format),
        follows_len: problem.as_ref().is_some_and(Error::is_about_len),
        marked_open: file.marked_open,
        problem,
    })
}

fn link_cost(path: &str) -> usize {
    GROWTH * size_of::<(u64, String)>() + path.len()
}

/// Takes in one object: a dataset, or the links of a group. Tells whether a NetCDF library has
/// signed it.
fn visit(
    file: &mut File<'_, '_>,
    builder: &mut Builder,
    address: u64,
    path: &str,
    mut follow: impl FnMut(&mut File<'_, '_>, Link) -> Result<(), Error>,
) -> Result<bool, Error> {
    let object = object::read(file, address)?;
    if object.message(object::LAYOUT).is_some() {
        dataset::read(file, builder, &object, path)?;
    } else {
        group::links(file, &object, &mut follow)?;
    }
    Ok(object.netcdf)
}
