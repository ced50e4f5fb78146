//! Filter pipeline and fill value messages.

use crate::error::Error;
use crate::extent::Coding;
use crate::fields::Fields;

const MAX_FILTERS: u8 = 32;
const SHUFFLE: u16 = 2;
const FLETCHER32: u16 = 3;

/// The filters of a dataset, in the order of writing.
#[derive(Default)]
pub(crate) struct Filters {
    ids: Vec<u16>,
    pub(crate) names: Vec<String>,
    /// Bytes of an element as the shuffle filter sees it.
    pub(crate) shuffle: Option<u32>,
}

impl Filters {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Error> {
        let mut fields = Fields::new("filter pipeline message", body);
        let version = fields.u8()?;
        let count = fields.u8()?;
        match version {
            1 => fields.skip(6)?,
            2 => {}
            _ => {
                return Err(Error::Unsupported {
                    what: "filter pipeline version",
                    found: u64::from(version),
                });
            }
        }
        if count > MAX_FILTERS {
            return Err(Error::Malformed {
                what: "number of filters",
                found: u64::from(count),
            });
        }
        let mut filters = Self::default();
        for _ in 0..count {
            let id = fields.u16()?;
            let named = version == 1 || id >= 256;
            let len = if named { fields.u16()? } else { 0 };
            fields.skip(2)?;
            let values = usize::from(fields.u16()?);
            let len = usize::from(len);
            let padded = if version == 1 {
                len.next_multiple_of(8)
            } else {
                len
            };
            let name = fields.take(padded)?;
            let odd = usize::from(version == 1 && values % 2 == 1);
            let mut parameters = Fields::new("filter parameters", fields.take(4 * (values + odd))?);
            if id == SHUFFLE {
                filters.shuffle = parameters.u32().ok();
            }
            filters.ids.push(id);
            filters.names.push(name_of(id, name));
        }
        Ok(filters)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The effect of the filters on a chunk; a bit of `skipped` says that one was not applied.
    pub(crate) fn coding(&self, skipped: u32) -> Coding {
        let mut coding = Coding::Plain;
        for (number, &id) in self.ids.iter().enumerate() {
            if number < 32 && skipped >> number & 1 != 0 {
                continue;
            }
            match id {
                // A checksum after the chunk.
                FLETCHER32 => {}
                SHUFFLE if coding == Coding::Plain => coding = Coding::Rearranged,
                SHUFFLE => {}
                _ => coding = Coding::Compressed,
            }
        }
        coding
    }
}

fn name_of(id: u16, recorded: &[u8]) -> String {
    let known = match id {
        1 => "deflate",
        2 => "shuffle",
        3 => "fletcher32",
        4 => "szip",
        5 => "nbit",
        6 => "scaleoffset",
        307 => "bzip2",
        32000 => "lzf",
        32001 => "blosc",
        32004 => "lz4",
        32008 => "bitshuffle",
        32013 => "zfp",
        32015 => "zstd",
        32026 => "blosc2",
        _ => {
            let end = recorded.iter().position(|&byte| byte == 0);
            let name = recorded.get(..end.unwrap_or(recorded.len()));
            let name = String::from_utf8_lossy(name.unwrap_or_default());
            if name.is_empty() || name.len() > 64 {
                return format!("filter-{id}");
            }
            return name.into_owned();
        }
    };
    known.into()
}

/// The value of a fill value message, if it has one of this width.
pub(crate) fn fill(body: &[u8], old: bool, width: u32) -> Option<Vec<u8>> {
    let mut fields = Fields::new("fill value message", body);
    if !old {
        match fields.u8().ok()? {
            1 | 2 => {
                fields.skip(2).ok()?;
                if fields.u8().ok()? == 0 {
                    return None;
                }
            }
            3 if fields.u8().ok()? & 0x20 == 0 => return None,
            3 => {}
            _ => return None,
        }
    }
    let len = fields.u32().ok()?;
    if len != width || len == 0 {
        return None;
    }
    fields.take(len as usize).ok().map(<[u8]>::to_vec)
}
