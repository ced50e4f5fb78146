//! Dataspace messages: the shape of a dataset.

use super::file::Hdf5File;
use crate::error::Error;
use crate::fields::Fields;

/// The library's own limit.
const MAX_RANK: u8 = 32;

/// Extents now and at most; a limit of `None` means unlimited.
pub(crate) struct Dataspace {
    pub(crate) shape: Vec<u64>,
    pub(crate) limits: Vec<Option<u64>>,
}

pub(crate) fn parse(file: &Hdf5File<'_, '_>, body: &[u8]) -> Result<Dataspace, Error> {
    let mut fields = Fields::new("dataspace message", body);
    let version = fields.u8()?;
    let rank = fields.u8()?;
    let flags = fields.u8()?;
    match version {
        1 => fields.skip(5)?,
        2 => fields.skip(1)?,
        _ => {
            return Err(Error::Unsupported {
                what: "dataspace version",
                found: u64::from(version),
            });
        }
    }
    if rank > MAX_RANK {
        return Err(Error::Malformed {
            what: "rank of a dataset",
            found: u64::from(rank),
        });
    }
    let shape = (0..rank)
        .map(|_| fields.uint(file.lengths))
        .collect::<Result<Vec<_>, _>>()?;
    let limits = if flags & 1 != 0 {
        (0..rank)
            .map(|_| fields.address(file.lengths))
            .collect::<Result<Vec<_>, _>>()?
    } else {
        shape.iter().copied().map(Some).collect()
    };
    Ok(Dataspace { shape, limits })
}
