//! NumPy arrays: a Python literal, then the elements.

use crate::builder::{LayoutBuilder, ParseOutcome};
use crate::error::Error;
use crate::extent::{Content, LayoutExtent};
use crate::fields::Fields;
use crate::format::Format;
use crate::reader::BudgetedReader;
use crate::variable::Variable;
use crate::variable::{ByteOrder, Element, ElementKind, bytes};

const MAX_HEADER: u64 = 64 << 10;
const MAX_DEPTH: usize = 16;
const MAX_RANK: usize = 64;

pub(crate) fn parse(
    reader: &mut BudgetedReader<'_>,
    builder: &mut LayoutBuilder,
) -> Result<ParseOutcome, Error> {
    let prefix = reader.read(0, 10)?;
    let mut fields = Fields::new("NumPy header", &prefix);
    fields.expect(b"\x93NUMPY")?;
    let version = fields.u8()?;
    fields.skip(1)?;
    let (len, start) = match version {
        1 => (u64::from(fields.u16()?), 10),
        2 | 3 => {
            let prefix = reader.read(8, 4)?;
            (Fields::new("NumPy header", &prefix).uint(4)?, 12)
        }
        _ => {
            return Err(Error::Unsupported {
                what: "NumPy format version",
                found: u64::from(version),
            });
        }
    };
    if len > MAX_HEADER {
        return Err(Error::Malformed {
            what: "length of a NumPy header",
            found: len,
        });
    }
    let text = reader.read(start, len)?;
    let header = header(&text).ok_or(Error::Malformed {
        what: "NumPy header of length",
        found: len,
    })?;
    let offset = start + len;
    let size = bytes(header.element.width, &header.shape).ok_or(Error::Malformed {
        what: "size of a NumPy array",
        found: u64::from(header.element.width),
    })?;
    let number = builder.variable(
        reader,
        Variable {
            path: "array".into(),
            element: header.element,
            shape: header.shape,
            chunk: None,
            fill: None,
            filters: Vec::new(),
            shuffle: None,
            record: false,
            interleaved: false,
        },
    )?;
    builder.place(
        reader,
        LayoutExtent {
            offset,
            len: size,
            content: Content::Array { variable: number },
        },
    )?;
    Ok(ParseOutcome {
        format: Some(Format::Npy),
        marked_open: false,
        problem: None,
        follows_len: false,
    })
}

struct Header {
    element: Element,
    shape: Vec<u64>,
}

fn header(text: &[u8]) -> Option<Header> {
    let value = Literal { rest: text }.value(0)?;
    let Value::Dict(entries) = value else {
        return None;
    };
    let entry = |name: &str| {
        let found = entries
            .iter()
            .find(|(key, _)| matches!(key, Value::Text(text) if text == name));
        found.map(|(_, value)| value)
    };
    let Value::List(extents) = entry("shape")? else {
        return None;
    };
    let mut shape = numbers(extents)?;
    if matches!(entry("fortran_order"), Some(Value::Word(word)) if word == "True") {
        // The first index varies fastest; here that one comes last.
        shape.reverse();
    }
    let (element, inner) = element(entry("descr")?)?;
    shape.extend(inner);
    (element.width > 0 && shape.len() <= MAX_RANK).then_some(Header { element, shape })
}

fn numbers(values: &[Value]) -> Option<Vec<u64>> {
    values
        .iter()
        .map(|value| match value {
            Value::Number(number) => Some(*number),
            _ => None,
        })
        .collect()
}

/// The element that a type description means, and the dimensions that it adds.
fn element(descr: &Value) -> Option<(Element, Vec<u64>)> {
    let record = |width| Element {
        kind: ElementKind::Opaque,
        width,
        order: ByteOrder::Little,
    };
    match descr {
        Value::Text(code) => simple(code),
        // Fields: (name, type) or (name, type, shape).
        Value::List(fields) => {
            let mut width = 0u32;
            for field in fields {
                let Value::List(field) = field else {
                    return None;
                };
                let (element, inner) = element(field.get(1)?)?;
                let mut shape = match field.get(2) {
                    Some(Value::List(extents)) => numbers(extents)?,
                    Some(Value::Number(extent)) => vec![*extent],
                    Some(_) => return None,
                    None => Vec::new(),
                };
                shape.extend(inner);
                let len = u32::try_from(bytes(element.width, &shape)?).ok()?;
                width = width.checked_add(len)?;
            }
            Some((record(width), Vec::new()))
        }
        _ => None,
    }
}

fn simple(code: &str) -> Option<(Element, Vec<u64>)> {
    let mut letters = code.chars();
    let order = match letters.next()? {
        '>' => ByteOrder::Big,
        '<' | '|' | '=' => ByteOrder::Little,
        _ => return None,
    };
    let class = letters.next()?;
    // Dates carry their unit behind the width: M8[ns].
    let digits: String = letters.take_while(char::is_ascii_digit).collect();
    let width: u32 = digits.parse().ok()?;
    let (kind, width, inner) = match class {
        'f' => (ElementKind::Float, width, vec![]),
        'c' if width.is_multiple_of(2) => (ElementKind::Float, width / 2, vec![2]),
        'i' | 'm' | 'M' => (ElementKind::Int, width, vec![]),
        'u' | 'b' => (ElementKind::Uint, width, vec![]),
        'S' | 'a' => (ElementKind::Char, width, vec![]),
        'U' => (ElementKind::Uint, 4, vec![u64::from(width)]),
        'V' => (ElementKind::Opaque, width, vec![]),
        // 'O': pickled objects follow, not elements.
        _ => return None,
    };
    Some((Element { kind, width, order }, inner))
}

/// A value of the small part of Python's literals that headers are made of.
enum Value {
    Text(String),
    Number(u64),
    Word(String),
    List(Vec<Value>),
    Dict(Vec<(Value, Value)>),
}

struct Literal<'a> {
    rest: &'a [u8],
}

impl Literal<'_> {
    fn peek(&mut self) -> Option<u8> {
        self.rest = self.rest.trim_ascii_start();
        self.rest.first().copied()
    }

    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        if found {
            self.next();
        }
        found
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > MAX_DEPTH {
            return None;
        }
        match self.peek()? {
            quote @ (b'\'' | b'"') => {
                self.next();
                let mut text = Vec::new();
                loop {
                    match self.next()? {
                        byte if byte == quote => break,
                        b'\\' => text.push(self.next()?),
                        byte => text.push(byte),
                    }
                }
                Some(Value::Text(String::from_utf8_lossy(&text).into_owned()))
            }
            b'(' => self.list(b')', depth),
            b'[' => self.list(b']', depth),
            b'{' => self.dict(depth),
            b'0'..=b'9' => {
                let digits = self.while_(|byte| byte.is_ascii_digit());
                // Python 2 wrote long integers.
                self.eat(b'L');
                digits.parse().ok().map(Value::Number)
            }
            _ => {
                let word = self.while_(|byte| byte.is_ascii_alphabetic());
                (!word.is_empty()).then_some(Value::Word(word))
            }
        }
    }

    fn while_(&mut self, keep: impl Fn(u8) -> bool) -> String {
        let mut text = String::new();
        while let Some(&byte) = self.rest.first()
            && keep(byte)
        {
            text.push(char::from(byte));
            self.next();
        }
        text
    }

    fn list(&mut self, close: u8, depth: usize) -> Option<Value> {
        self.next();
        let mut values = Vec::new();
        while !self.eat(close) {
            values.push(self.value(depth + 1)?);
            if !self.eat(b',') && self.peek()? != close {
                return None;
            }
        }
        Some(Value::List(values))
    }

    fn dict(&mut self, depth: usize) -> Option<Value> {
        self.next();
        let mut entries = Vec::new();
        while !self.eat(b'}') {
            let key = self.value(depth + 1)?;
            if !self.eat(b':') {
                return None;
            }
            entries.push((key, self.value(depth + 1)?));
            if !self.eat(b',') && self.peek()? != b'}' {
                return None;
            }
        }
        Some(Value::Dict(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(descr: &str, order: &str, shape: &str) -> Option<(ElementKind, u32, Vec<u64>)> {
        let text =
            format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}   \n");
        header(text.as_bytes())
            .map(|header| (header.element.kind, header.element.width, header.shape))
    }

    #[test]
    fn descriptions_give_widths_and_shapes() {
        use ElementKind::{Float, Int, Opaque, Uint};
        assert_eq!(of("'<f4'", "False", "(2, 3)"), Some((Float, 4, vec![2, 3])));
        assert_eq!(of("'>i2'", "True", "(2, 3)"), Some((Int, 2, vec![3, 2])));
        assert_eq!(of("'|b1'", "False", "()"), Some((Uint, 1, vec![])));
        assert_eq!(of("'<c16'", "False", "(5,)"), Some((Float, 8, vec![5, 2])));
        assert_eq!(of("'<M8[ns]'", "False", "(5L,)"), Some((Int, 8, vec![5])));
        assert_eq!(of("'<U7'", "False", "(5,)"), Some((Uint, 4, vec![5, 7])));
        let record = "[('a', '<f4'), ('b', [('c', '|i1'), ('d', '>f8', (2, 3))])]";
        assert_eq!(of(record, "False", "(9,)"), Some((Opaque, 53, vec![9])));
        assert_eq!(of("'|O'", "False", "(9,)"), None);
        assert_eq!(of("'<f4'", "False", "(-9,)"), None);
        assert!(header(&b"(".repeat(1000)).is_none());
    }
}
