//! The header of a classic file, read as a stream.

use crate::error::Error;
use crate::reader::{BudgetedReader, GROWTH};
use crate::variable::{ByteOrder, Element, ElementKind};

const DIMENSIONS: u64 = 0x0a;
const VARIABLES: u64 = 0x0b;
const ATTRIBUTES: u64 = 0x0c;

const MAX_NAME: u64 = 4096;
const MAX_RANK: u64 = 1024;

/// The contents of the header, as far as they matter here.
pub(crate) struct Header {
    pub(crate) version: u8,
    /// Number of records, unless the writer left that open.
    pub(crate) records: Option<u64>,
    /// Lengths of the dimensions; 0 is the record dimension.
    pub(crate) dimensions: Vec<u64>,
    pub(crate) variables: Vec<HeaderVariable>,
    /// First byte after the header.
    pub(crate) end: u64,
}

/// One entry of the list of variables.
pub(crate) struct HeaderVariable {
    pub(crate) name: String,
    /// Places in the list of dimensions.
    pub(crate) dimensions: Vec<u64>,
    pub(crate) element: Element,
    pub(crate) fill: Vec<u8>,
    /// First byte of its data.
    pub(crate) begin: u64,
}

pub(crate) fn read(reader: &mut BudgetedReader<'_>) -> Result<Header, Error> {
    let mut stream = Stream {
        reader,
        at: 0,
        count_width: 4,
        offset_width: 4,
    };
    let magic = stream.uint(4)?;
    let version = magic as u8;
    if magic >> 8 != 0x43_4446 || !matches!(version, 1 | 2 | 5) {
        return Err(Error::Malformed {
            what: "magic of a classic file",
            found: magic,
        });
    }
    if version == 5 {
        stream.count_width = 8;
    }
    if version > 1 {
        stream.offset_width = 8;
    }
    let streaming = u64::MAX >> (64 - 8 * stream.count_width);
    let records = Some(stream.count()?).filter(|&count| count != streaming);

    let mut dimensions = Vec::new();
    for _ in 0..stream.list(DIMENSIONS)? {
        stream.name()?;
        stream.reader.charge(GROWTH * 8)?;
        dimensions.push(stream.count()?);
    }
    stream.attributes(false)?;
    let mut variables = Vec::new();
    for _ in 0..stream.list(VARIABLES)? {
        let variable = stream.variable()?;
        stream
            .reader
            .charge(GROWTH * size_of::<HeaderVariable>() + variable.name.len() + 8)?;
        variables.push(variable);
    }
    Ok(Header {
        version,
        records,
        dimensions,
        variables,
        end: stream.at,
    })
}

/// The header's bytes, one field after the other.
struct Stream<'a, 'b> {
    reader: &'a mut BudgetedReader<'b>,
    at: u64,
    /// Bytes of a count, which CDF-5 made wider.
    count_width: usize,
    /// Bytes of a file offset, which CDF-2 made wider.
    offset_width: usize,
}

impl Stream<'_, '_> {
    fn uint(&mut self, width: usize) -> Result<u64, Error> {
        let mut bytes = [0; 8];
        let (used, _) = bytes.split_at_mut(width.min(8));
        self.reader.read_into(self.at, used)?;
        self.at += width as u64;
        Ok(used.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
    }

    fn count(&mut self) -> Result<u64, Error> {
        self.uint(self.count_width)
    }

    /// Skips bytes, which must exist.
    fn skip(&mut self, len: u64) -> Result<(), Error> {
        let out = Error::OutOfFile {
            offset: self.at,
            len,
            file_len: self.reader.len(),
        };
        match self.at.checked_add(len) {
            Some(at) if at <= self.reader.len() => {
                self.at = at;
                Ok(())
            }
            _ => Err(out),
        }
    }

    /// How many entries a list has. No entry is shorter than eight bytes, so a count that the
    /// file cannot hold is refused.
    fn list(&mut self, expected: u64) -> Result<u64, Error> {
        let tag = self.uint(4)?;
        let count = self.count()?;
        if tag == 0 && count == 0 {
            return Ok(0);
        }
        if tag != expected {
            return Err(Error::Malformed {
                what: "tag of a list",
                found: tag,
            });
        }
        if count > self.reader.len().saturating_sub(self.at) / 8 {
            return Err(Error::Malformed {
                what: "number of entries in a list",
                found: count,
            });
        }
        Ok(count)
    }

    fn name(&mut self) -> Result<String, Error> {
        let len = self.count()?;
        if len > MAX_NAME {
            return Err(Error::Malformed {
                what: "length of a name",
                found: len,
            });
        }
        let bytes = self.reader.read(self.at, len)?;
        self.skip(len.next_multiple_of(4))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads a list of attributes; returns the type and bytes of a variable's fill value.
    fn attributes(&mut self, of_variable: bool) -> Result<Option<(u64, Vec<u8>)>, Error> {
        let mut fill = None;
        for _ in 0..self.list(ATTRIBUTES)? {
            let name = self.name()?;
            let kind = self.uint(4)?;
            let width = u64::from(element(kind)?.width);
            let count = self.count()?;
            let len = count
                .checked_mul(width)
                .and_then(|len| len.checked_next_multiple_of(4))
                .ok_or(Error::Malformed {
                    what: "length of an attribute",
                    found: count,
                })?;
            if of_variable && name == "_FillValue" && count == 1 {
                fill = Some((kind, self.reader.read(self.at, width)?));
            }
            self.skip(len)?;
        }
        Ok(fill)
    }

    fn variable(&mut self) -> Result<HeaderVariable, Error> {
        let name = self.name()?;
        let rank = self.count()?;
        if rank > MAX_RANK {
            return Err(Error::Malformed {
                what: "rank of a variable",
                found: rank,
            });
        }
        self.reader.charge(8 * rank as usize)?;
        let dimensions = (0..rank)
            .map(|_| self.count())
            .collect::<Result<Vec<_>, _>>()?;
        let attribute = self.attributes(true)?;
        let kind = self.uint(4)?;
        let element = element(kind)?;
        let fill = attribute
            .filter(|(of, _)| *of == kind)
            .map_or_else(|| default_fill(kind, element.width), |(_, value)| value);
        // The size in the header saturates and is never needed.
        self.count()?;
        let begin = self.uint(self.offset_width)?;
        Ok(HeaderVariable {
            name,
            dimensions,
            element,
            fill,
            begin,
        })
    }
}

fn element(kind: u64) -> Result<Element, Error> {
    let (kind, width) = match kind {
        1 => (ElementKind::Int, 1),
        2 => (ElementKind::Char, 1),
        3 => (ElementKind::Int, 2),
        4 => (ElementKind::Int, 4),
        5 => (ElementKind::Float, 4),
        6 => (ElementKind::Float, 8),
        7 => (ElementKind::Uint, 1),
        8 => (ElementKind::Uint, 2),
        9 => (ElementKind::Uint, 4),
        10 => (ElementKind::Int, 8),
        11 => (ElementKind::Uint, 8),
        _ => {
            return Err(Error::Malformed {
                what: "type of a variable or attribute",
                found: kind,
            });
        }
    };
    Ok(Element {
        kind,
        width,
        order: ByteOrder::Big,
    })
}

/// The fill value that libraries use unless an attribute says otherwise.
fn default_fill(kind: u64, width: u32) -> Vec<u8> {
    // The largest values but one, and for floats a number near 2^122.9.
    let all: u64 = match kind {
        1 => 0x81,
        2 => 0,
        3 => 0x8001,
        4 => 0x8000_0001,
        5 => 0x7cf0_0000,
        6 => 0x479e_0000_0000_0000,
        7 => 0xff,
        8 => 0xffff,
        9 => 0xffff_ffff,
        10 => 0x8000_0000_0000_0002,
        _ => 0xffff_ffff_ffff_fffe,
    };
    let bytes = all.to_be_bytes();
    let unused = bytes.len().saturating_sub(width as usize);
    bytes.iter().skip(unused).copied().collect()
}
