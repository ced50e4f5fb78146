//! A writer for NetCDF classic files with 64-bit offsets (CDF-2), enough for the demo.
//!
//! ```text
//! "CDF" 2, number of records
//! list of dimensions   tag 10: name, length (0 = unlimited)
//! list of attributes   tag 12: name, type, values
//! list of variables    tag 11: name, dimensions, attributes, type, size, offset
//! data of variables without the unlimited dimension, in order of definition
//! record 0: data of the others, in order of definition; record 1 ...
//! ```
//! Everything is big-endian and padded to 4 bytes. Counts have 4 bytes, offsets 8.

const DIMENSION: u32 = 10;
const VARIABLE: u32 = 11;
const ATTRIBUTE: u32 = 12;

/// External types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Byte = 1,
    Short = 3,
    Float = 5,
    Double = 6,
}

impl Kind {
    fn width(self) -> u64 {
        match self {
            Self::Byte => 1,
            Self::Short => 2,
            Self::Float => 4,
            Self::Double => 8,
        }
    }
}

/// Value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(&'static str),
    Bytes(Vec<i8>),
    Shorts(Vec<i16>),
    Floats(Vec<f32>),
}

/// A name and a value.
pub(crate) type Attribute = (&'static str, Value);

/// A dimension; the one without a length is unlimited.
#[derive(Clone, Debug)]
pub(crate) struct Dimension {
    pub(crate) name: &'static str,
    pub(crate) length: Option<u32>,
}

/// A variable over dimensions given by their position.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) dimensions: Vec<usize>,
    pub(crate) attributes: Vec<Attribute>,
}

/// What a file holds.
#[derive(Clone, Debug)]
pub(crate) struct Dataset {
    pub(crate) dimensions: Vec<Dimension>,
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) variables: Vec<Variable>,
}

impl Dataset {
    /// Whether a variable grows with the unlimited dimension.
    pub(crate) fn is_record(&self, variable: &Variable) -> bool {
        let first = variable
            .dimensions
            .first()
            .and_then(|&d| self.dimensions.get(d));
        first.is_some_and(|dimension| dimension.length.is_none())
    }

    /// Values in a variable, or in one record of it.
    pub(crate) fn values(&self, variable: &Variable) -> u64 {
        let lengths = variable
            .dimensions
            .iter()
            .filter_map(|&d| self.dimensions.get(d)?.length);
        lengths.map(u64::from).product()
    }

    /// Bytes of a variable, or of one record of it, with padding.
    pub(crate) fn size(&self, variable: &Variable) -> u64 {
        (self.values(variable) * variable.kind.width()).next_multiple_of(4)
    }

    /// Bytes of one record.
    pub(crate) fn record_size(&self) -> u64 {
        self.variables
            .iter()
            .filter(|v| self.is_record(v))
            .map(|v| self.size(v))
            .sum()
    }

    /// Bytes of everything but header and records.
    fn fixed_size(&self) -> u64 {
        self.variables
            .iter()
            .filter(|v| !self.is_record(v))
            .map(|v| self.size(v))
            .sum()
    }

    /// Length of a file with this many records.
    pub(crate) fn file_size(&self, records: u32) -> u64 {
        let header = self.header(records).len() as u64;
        header + self.fixed_size() + u64::from(records) * self.record_size()
    }

    /// Where a variable begins in a record of a file.
    pub(crate) fn place(&self, name: &str, record: u32) -> Option<u64> {
        let mut at = self.file_size(record);
        for variable in self.variables.iter().filter(|v| self.is_record(v)) {
            if variable.name == name {
                return Some(at);
            }
            at += self.size(variable);
        }
        None
    }

    /// The header of a file with this many records.
    pub(crate) fn header(&self, records: u32) -> Vec<u8> {
        // Its length does not depend on the offsets in it.
        let length = self.encode(records, 0).len() as u64;
        self.encode(records, length)
    }

    fn encode(&self, records: u32, data: u64) -> Vec<u8> {
        let mut out = Writer::default();
        out.raw(b"CDF\x02");
        out.number(records);
        out.list(DIMENSION, self.dimensions.len());
        for dimension in &self.dimensions {
            out.name(dimension.name);
            out.number(dimension.length.unwrap_or(0));
        }
        out.attributes(&self.attributes);
        out.list(VARIABLE, self.variables.len());
        let (mut fixed, mut record) = (data, data + self.fixed_size());
        for variable in &self.variables {
            out.name(variable.name);
            out.count(variable.dimensions.len());
            for &dimension in &variable.dimensions {
                out.count(dimension);
            }
            out.attributes(&variable.attributes);
            out.number(variable.kind as u32);
            let size = self.size(variable);
            // Readers compute a size that does not fit.
            out.number(u32::try_from(size).unwrap_or(u32::MAX));
            let place = if self.is_record(variable) {
                &mut record
            } else {
                &mut fixed
            };
            out.raw(&place.to_be_bytes());
            *place += size;
        }
        out.bytes
    }
}

#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn number(&mut self, number: u32) {
        self.raw(&number.to_be_bytes());
    }

    fn count(&mut self, count: usize) {
        self.number(u32::try_from(count).unwrap_or(u32::MAX));
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn name(&mut self, name: &str) {
        self.count(name.len());
        self.raw(name.as_bytes());
        self.pad();
    }

    /// An empty list has no tag.
    fn list(&mut self, tag: u32, length: usize) {
        self.number(if length == 0 { 0 } else { tag });
        self.count(length);
    }

    fn attributes(&mut self, attributes: &[Attribute]) {
        self.list(ATTRIBUTE, attributes.len());
        for (name, value) in attributes {
            self.name(name);
            match value {
                Value::Text(text) => {
                    self.number(2);
                    self.count(text.len());
                    self.raw(text.as_bytes());
                }
                Value::Bytes(values) => self.values(Kind::Byte, values, |v| v.to_be_bytes()),
                Value::Shorts(values) => self.values(Kind::Short, values, |v| v.to_be_bytes()),
                Value::Floats(values) => self.values(Kind::Float, values, |v| v.to_be_bytes()),
            }
            self.pad();
        }
    }

    fn values<T: Copy, const N: usize>(&mut self, kind: Kind, values: &[T], be: fn(T) -> [u8; N]) {
        self.number(kind as u32);
        self.count(values.len());
        for &value in values {
            self.raw(&be(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As CDL:
    /// ```text
    /// netcdf golden {
    /// dimensions: time = UNLIMITED ; x = 3 ;
    /// variables:
    ///   byte m(x) ; m:flags = 0b, 1b ;
    ///   float t(time, x) ; t:units = "K" ; t:_FillValue = -1.5f ;
    ///   short p(time, x) ; p:pair = 1s, 2s, 3s ;
    ///   double time(time) ;
    ///   :title = "golden" ;
    /// }
    /// ```
    fn sample() -> Dataset {
        let variable = |name, kind, dimensions: &[usize], attributes| Variable {
            name,
            kind,
            dimensions: dimensions.to_vec(),
            attributes,
        };
        Dataset {
            dimensions: vec![
                Dimension {
                    name: "time",
                    length: None,
                },
                Dimension {
                    name: "x",
                    length: Some(3),
                },
            ],
            attributes: vec![("title", Value::Text("golden"))],
            variables: vec![
                variable(
                    "m",
                    Kind::Byte,
                    &[1],
                    vec![("flags", Value::Bytes(vec![0, 1]))],
                ),
                variable(
                    "t",
                    Kind::Float,
                    &[0, 1],
                    vec![
                        ("units", Value::Text("K")),
                        ("_FillValue", Value::Floats(vec![-1.5])),
                    ],
                ),
                variable(
                    "p",
                    Kind::Short,
                    &[0, 1],
                    vec![("pair", Value::Shorts(vec![1, 2, 3]))],
                ),
                variable("time", Kind::Double, &[0], Vec::new()),
            ],
        }
    }

    #[test]
    fn the_header_is_what_ncgen_writes() {
        let golden = include_bytes!("golden.cdf2");
        let header = sample().header(0);
        assert_eq!(header, golden[..header.len()]);
    }

    #[test]
    fn records_are_counted_in_the_header() {
        let (zero, seven) = (sample().header(0), sample().header(7));
        assert_eq!(seven[4..8], [0, 0, 0, 7]);
        assert_eq!(zero[8..], seven[8..]);
    }

    #[test]
    fn every_piece_is_padded() {
        let dataset = sample();
        let sizes: Vec<u64> = dataset.variables.iter().map(|v| dataset.size(v)).collect();
        assert_eq!(sizes, [4, 12, 8, 8]);
        assert_eq!(dataset.record_size(), 28);
        assert_eq!(
            dataset.file_size(2),
            dataset.header(2).len() as u64 + 4 + 2 * 28
        );
    }

    #[test]
    fn an_empty_dataset_is_all_absent() {
        let empty = Dataset {
            dimensions: vec![],
            attributes: vec![],
            variables: vec![],
        };
        let mut expected = b"CDF\x02".to_vec();
        expected.resize(32, 0);
        assert_eq!(empty.header(0), expected);
    }
}
