//! FITS: header units of 80-byte cards, each followed by its data, in blocks of 2880 bytes.

use crate::builder::{LayoutBuilder, ParseOutcome};
use crate::error::Error;
use crate::extent::{Content, LayoutExtent};
use crate::format::Format;
use crate::reader::BudgetedReader;
use crate::variable::Variable;
use crate::variable::{ByteOrder, Element, ElementKind, bytes};

const BLOCK: u64 = 2880;
const CARD: usize = 80;
const MAX_AXES: u64 = 999;
const MAX_HEADER_BLOCKS: u64 = 1024;

pub(crate) fn parse(
    reader: &mut BudgetedReader<'_>,
    builder: &mut LayoutBuilder,
) -> Result<ParseOutcome, Error> {
    let mut at = 0;
    let mut number = 0u32;
    let mut problem = None;
    while at < reader.len() {
        match unit(reader, builder, at, number) {
            Ok(Some(next)) => at = next,
            Ok(None) => break,
            Err(error) => {
                problem = Some(error);
                break;
            }
        }
        number += 1;
    }
    Ok(ParseOutcome {
        format: Some(Format::Fits),
        marked_open: false,
        problem,
        // Another unit may follow.
        follows_len: true,
    })
}

/// The contents of the cards of a header unit.
#[derive(Default)]
struct Cards {
    simple: bool,
    extension: Option<String>,
    name: Option<String>,
    bitpix: Option<i64>,
    axes: Vec<u64>,
    pcount: u64,
    gcount: Option<u64>,
    groups: bool,
    compressed: bool,
    blank: Option<i64>,
}

/// Reads the header unit at `at`; returns where the next one begins.
fn unit(
    reader: &mut BudgetedReader<'_>,
    builder: &mut LayoutBuilder,
    at: u64,
    number: u32,
) -> Result<Option<u64>, Error> {
    let mut cards = Cards::default();
    let mut offset = at;
    loop {
        if offset - at >= MAX_HEADER_BLOCKS * BLOCK {
            return Err(Error::Malformed {
                what: "length of a FITS header",
                found: offset - at,
            });
        }
        let block = reader.read(offset, BLOCK)?;
        offset += BLOCK;
        let first = offset == at + BLOCK;
        if cards.read(&block, first)? {
            break;
        }
    }
    if !cards.simple && cards.extension.is_none() {
        // Special records may follow the last unit.
        return Ok(None);
    }
    let malformed = Error::Malformed {
        what: "size of FITS data",
        found: at,
    };
    let (Some(len), Some(element)) = (cards.data_len(), cards.element()) else {
        return Err(malformed);
    };
    let Some(next) = len
        .checked_next_multiple_of(BLOCK)
        .and_then(|len| len.checked_add(offset))
        .filter(|&next| next <= i64::MAX as u64)
    else {
        return Err(malformed);
    };
    cards.place(reader, builder, element, offset, number)?;
    Ok(Some(next))
}

impl Cards {
    /// Reads a block of cards; returns true when it holds the last one.
    fn read(&mut self, block: &[u8], first: bool) -> Result<bool, Error> {
        for (position, card) in block.chunks_exact(CARD).enumerate() {
            let (keyword, rest) = card.split_at_checked(8).unwrap_or_default();
            let keyword = keyword.trim_ascii_end();
            if keyword == b"END" {
                return Ok(true);
            }
            if first && position == 0 && keyword != b"SIMPLE" && keyword != b"XTENSION" {
                return Ok(true);
            }
            if let Some(value) = rest.strip_prefix(b"= ") {
                self.card(keyword, value)?;
            }
        }
        Ok(false)
    }

    fn card(&mut self, keyword: &[u8], value: &[u8]) -> Result<(), Error> {
        let is_true = || value.trim_ascii_start().first() == Some(&b'T');
        let bad = |found| Error::Malformed {
            what: "number in a FITS header",
            found,
        };
        let count = || {
            integer(value)
                .and_then(|number| u64::try_from(number).ok())
                .ok_or(bad(0))
        };
        match keyword {
            b"SIMPLE" => self.simple = is_true(),
            b"XTENSION" => self.extension = text(value),
            b"EXTNAME" => self.name = text(value),
            b"BITPIX" => self.bitpix = integer(value),
            b"NAXIS" => {
                let axes = count()?;
                if axes > MAX_AXES {
                    return Err(bad(axes));
                }
                self.axes = vec![0; axes as usize];
            }
            b"PCOUNT" => self.pcount = count()?,
            b"GCOUNT" => self.gcount = Some(count()?),
            b"GROUPS" => self.groups = is_true(),
            b"ZIMAGE" => self.compressed = is_true(),
            b"BLANK" => self.blank = integer(value),
            _ => {
                if let Some(digits) = keyword.strip_prefix(b"NAXIS")
                    && let Some(axis) = integer(digits)
                    && let Some(extent) = usize::try_from(axis - 1)
                        .ok()
                        .and_then(|axis| self.axes.get_mut(axis))
                {
                    *extent = count()?;
                }
            }
        }
        Ok(())
    }

    fn element(&self) -> Option<Element> {
        let (kind, width) = match self.bitpix? {
            8 => (ElementKind::Uint, 1),
            16 => (ElementKind::Int, 2),
            32 => (ElementKind::Int, 4),
            64 => (ElementKind::Int, 8),
            -32 => (ElementKind::Float, 4),
            -64 => (ElementKind::Float, 8),
            _ => return None,
        };
        Some(Element {
            kind,
            width,
            order: ByteOrder::Big,
        })
    }

    /// Bytes of the data, without the padding of the last block.
    fn data_len(&self) -> Option<u64> {
        let axes = match self.axes.as_slice() {
            [] => return Some(0),
            // Random groups: the first axis is not one.
            [0, rest @ ..] if self.groups => rest,
            axes => axes,
        };
        let elements = bytes(1, axes)?.checked_add(self.pcount)?;
        elements
            .checked_mul(self.gcount.unwrap_or(1))?
            .checked_mul(self.bitpix?.unsigned_abs() / 8)
    }

    fn place(
        self,
        reader: &mut BudgetedReader<'_>,
        builder: &mut LayoutBuilder,
        element: Element,
        offset: u64,
        number: u32,
    ) -> Result<(), Error> {
        let image = self.simple || self.extension.as_deref() == Some("IMAGE");
        let (element, shape) = match self.extension.as_deref() {
            _ if self.groups || self.axes.is_empty() => return Ok(()),
            _ if image => (element, self.axes.iter().rev().copied().collect()),
            // Rows of a table: columns at the stride of a row.
            Some("BINTABLE" | "TABLE") => {
                let [width, rows] = *self.axes.as_slice() else {
                    return Ok(());
                };
                let Ok(width) = u32::try_from(width) else {
                    return Ok(());
                };
                let row = Element {
                    kind: ElementKind::Opaque,
                    width,
                    order: ByteOrder::Big,
                };
                (row, vec![rows])
            }
            _ => return Ok(()),
        };
        let Some(len) = bytes(element.width, &shape) else {
            return Ok(());
        };
        let fill = self.blank.filter(|_| element.kind != ElementKind::Float);
        let fill = fill.filter(|_| image).map(|blank| {
            let bytes = blank.to_be_bytes();
            let unused = bytes.len().saturating_sub(element.width as usize);
            bytes.iter().skip(unused).copied().collect()
        });
        let variable = builder.variable(
            reader,
            Variable {
                path: self.name.unwrap_or_else(|| format!("hdu{number}")),
                element,
                shape,
                chunk: None,
                fill,
                shuffle: None,
                filters: if self.compressed {
                    vec!["tiles".into()]
                } else {
                    Vec::new()
                },
                record: false,
                interleaved: false,
            },
        )?;
        builder.place(
            reader,
            LayoutExtent {
                offset,
                len,
                content: Content::Array { variable },
            },
        )
    }
}

/// The integer that a value begins with.
fn integer(value: &[u8]) -> Option<i64> {
    let end = value.iter().position(|&byte| byte == b'/');
    let value = value.get(..end.unwrap_or(value.len()))?;
    std::str::from_utf8(value.trim_ascii()).ok()?.parse().ok()
}

/// The text between quotes.
fn text(value: &[u8]) -> Option<String> {
    let value = value.trim_ascii_start().strip_prefix(b"'")?;
    let end = value.iter().position(|&byte| byte == b'\'')?;
    let inner = value.get(..end)?.trim_ascii_end();
    Some(String::from_utf8_lossy(inner).into_owned())
}
