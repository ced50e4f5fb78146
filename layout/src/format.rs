//! Detects the format of a file.

use serde::Serialize;

/// The formats that are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Format {
    /// NetCDF classic, 32-bit offsets.
    Cdf1,
    /// NetCDF classic, 64-bit offsets.
    Cdf2,
    /// NetCDF classic, 64-bit data.
    Cdf5,
    /// HDF5.
    Hdf5,
    /// HDF5 written by a NetCDF library.
    #[serde(rename = "netcdf4")]
    NetCdf4,
    /// A NumPy array.
    Npy,
    /// FITS.
    Fits,
}

impl Format {
    /// The name for users.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cdf1 => "NetCDF classic (CDF-1)",
            Self::Cdf2 => "NetCDF 64-bit offset (CDF-2)",
            Self::Cdf5 => "NetCDF 64-bit data (CDF-5)",
            Self::Hdf5 => "HDF5",
            Self::NetCdf4 => "NetCDF-4 (HDF5)",
            Self::Npy => "NumPy array",
            Self::Fits => "FITS",
        }
    }
}

/// The signature of an HDF5 superblock.
pub(crate) const HDF5_SIGNATURE: &[u8; 8] = b"\x89HDF\r\n\x1a\n";

/// An HDF5 superblock is at the start, or after a user block of at most this length.
pub(crate) const MAX_USER_BLOCK: u64 = 64 << 10;

/// The format of a file that begins with `head`. 16 bytes decide, except for HDF5 after a user
/// block of 512 bytes times a power of two, which is found as far as `head` reaches. NetCDF-4 is
/// not distinguished from HDF5 here.
pub(crate) fn detect(head: &[u8]) -> Option<Format> {
    match head {
        [b'C', b'D', b'F', 1, ..] => return Some(Format::Cdf1),
        [b'C', b'D', b'F', 2, ..] => return Some(Format::Cdf2),
        [b'C', b'D', b'F', 5, ..] => return Some(Format::Cdf5),
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => return Some(Format::Npy),
        _ if head.starts_with(b"SIMPLE  =") => return Some(Format::Fits),
        _ => {}
    }
    std::iter::once(0)
        .chain(user_blocks())
        .filter_map(|at| head.get(usize::try_from(at).ok()?..))
        .any(|rest| rest.starts_with(HDF5_SIGNATURE))
        .then_some(Format::Hdf5)
}

/// Places after the start where an HDF5 superblock may be.
pub(crate) fn user_blocks() -> impl Iterator<Item = u64> {
    std::iter::successors(Some(512), |at| Some(at * 2)).take_while(|&at| at <= MAX_USER_BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_is_known_by_its_first_bytes() {
        for (head, format) in [
            (&b"CDF\x01"[..], Some(Format::Cdf1)),
            (b"CDF\x02\0\0", Some(Format::Cdf2)),
            (b"CDF\x05", Some(Format::Cdf5)),
            (b"CDF\x03", None),
            (b"\x89HDF\r\n\x1a\n\0", Some(Format::Hdf5)),
            (b"\x93NUMPY\x01\0", Some(Format::Npy)),
            (b"SIMPLE  =                    T", Some(Format::Fits)),
            (b"GRIB\0\0\0\x02", None),
            (b"", None),
        ] {
            assert_eq!(detect(head), format, "{head:?}");
        }
        let mut head = vec![0; 2048];
        head.extend_from_slice(HDF5_SIGNATURE);
        assert_eq!(detect(&head), Some(Format::Hdf5));
        head.insert(0, 0);
        assert_eq!(detect(&head), None);
    }
}
