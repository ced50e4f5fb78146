//! Finds deflated chunks among bytes, inflates and unshuffles them.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{
    TINFL_FLAG_COMPUTE_ADLER32, TINFL_FLAG_PARSE_ZLIB_HEADER,
    TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF,
};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};
use shale_layout::Variable;

/// How many chunks may be inflated in vain before the search stops.
const VAIN: usize = 8;
/// Bytes of a checksum of the filter fletcher32.
const CHECKSUM: usize = 4;

/// Consecutive chunks, inflated.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    /// Their plain bytes.
    pub(super) plain: Vec<u8>,
    /// Their bytes in the file.
    pub(super) deflated: usize,
}

impl Chunks {
    /// Length of the plain chunks of a variable whose filters are known: deflate, perhaps after
    /// shuffle, perhaps before fletcher32.
    pub(super) fn len(variable: &Variable) -> Option<u64> {
        let filters: Vec<&str> = variable.filters.iter().map(String::as_str).collect();
        let filters = filters.strip_prefix(&["shuffle"]).unwrap_or(&filters);
        let filters = filters.strip_suffix(&["fletcher32"]).unwrap_or(filters);
        if filters != ["deflate"] || variable.chunk.is_none() {
            return None;
        }
        variable.slab_len().filter(|&len| len > 0)
    }

    /// The first chunks among some bytes, which may begin in the middle of a chunk, until there are
    /// about `enough` plain bytes.
    pub(super) fn find(variable: &Variable, chunk_len: u64, bytes: &[u8], enough: usize) -> Self {
        let filtered = |name: &str| variable.filters.iter().any(|filter| filter == name);
        let behind = if filtered("fletcher32") { CHECKSUM } else { 0 };
        let chunk_len = chunk_len as usize;
        let mut chunk = vec![0; chunk_len];
        let mut found = Self::default();
        let mut vain = 0;
        let mut at = 0;
        while found.plain.len() < enough {
            let Some(rest) = bytes.get(at..).filter(|rest| rest.len() > behind) else {
                break;
            };
            let (inflated, made) = inflate(rest, &mut chunk);
            match inflated {
                Some(len) => {
                    if filtered("shuffle") {
                        let width = variable.shuffle.unwrap_or(variable.element.width);
                        unshuffle(width as usize, &chunk, &mut found.plain);
                    } else {
                        found.plain.extend_from_slice(&chunk);
                    }
                    found.deflated += len + behind;
                    at += len + behind;
                }
                // There is no gap between consecutive chunks.
                None if !found.plain.is_empty() => break,
                None => {
                    vain += made;
                    if vain > VAIN * chunk_len.max(1 << 20) {
                        break;
                    }
                    at += 1;
                }
            }
        }
        found
    }
}

/// Inflates a chunk that begins here, if it fills `chunk` exactly and its checksum is right.
/// Returns its length, and how many bytes were inflated.
fn inflate(bytes: &[u8], chunk: &mut [u8]) -> (Option<usize>, usize) {
    // Deflate without a dictionary, and the check of these two bytes.
    let is_header = matches!(bytes, &[method, flags, ..]
        if method & 0x0f == 8
            && flags & 0x20 == 0
            && u16::from_be_bytes([method, flags]).is_multiple_of(31));
    if !is_header {
        return (None, 0);
    }
    let mut state = DecompressorOxide::new();
    let flags = TINFL_FLAG_PARSE_ZLIB_HEADER
        | TINFL_FLAG_COMPUTE_ADLER32
        | TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    let (status, taken, made) = decompress(&mut state, bytes, chunk, 0, flags);
    let whole = status == TINFLStatus::Done && made == chunk.len();
    (whole.then_some(taken), made)
}

/// Undoes the shuffle filter, which stores the first bytes of all elements, then the second bytes,
/// and so on. Bytes that do not fill an element are at the end, unchanged.
fn unshuffle(width: usize, chunk: &[u8], out: &mut Vec<u8>) {
    let count = chunk.len() / width.max(1);
    if width <= 1 || count <= 1 {
        out.extend_from_slice(chunk);
        return;
    }
    let (columns, rest) = chunk.split_at(count * width);
    let begin = out.len();
    out.resize(begin + columns.len(), 0);
    for (byte, column) in columns.chunks_exact(count).enumerate() {
        let places = out[begin + byte..].iter_mut().step_by(width);
        for (place, value) in places.zip(column) {
            *place = *value;
        }
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use shale_layout::{ByteOrder, Element, ElementKind};

    use super::*;

    /// Made by Python: `zlib.compress(bytes(range(64)) * 4)`.
    const DEFLATED: [u8; 75] = [
        0x78, 0x9c, 0x63, 0x60, 0x64, 0x62, 0x66, 0x61, 0x65, 0x63, 0xe7, 0xe0, 0xe4, 0xe2, 0xe6,
        0xe1, 0xe5, 0xe3, 0x17, 0x10, 0x14, 0x12, 0x16, 0x11, 0x15, 0x13, 0x97, 0x90, 0x94, 0x92,
        0x96, 0x91, 0x95, 0x93, 0x57, 0x50, 0x54, 0x52, 0x56, 0x51, 0x55, 0x53, 0xd7, 0xd0, 0xd4,
        0xd2, 0xd6, 0xd1, 0xd5, 0xd3, 0x37, 0x30, 0x34, 0x32, 0x36, 0x31, 0x35, 0x33, 0xb7, 0xb0,
        0xb4, 0xb2, 0xb6, 0xb1, 0xb5, 0xb3, 0x67, 0x18, 0xe2, 0xfa, 0x01, 0x7c, 0x52, 0x1f, 0x81,
    ];

    fn variable(filters: &[&str]) -> Variable {
        Variable {
            path: "v".to_owned(),
            element: Element {
                kind: ElementKind::Float,
                width: 4,
                order: ByteOrder::Little,
            },
            shape: vec![64],
            chunk: Some(vec![64]),
            fill: None,
            filters: filters.iter().map(|&name| name.to_owned()).collect(),
            shuffle: Some(4),
            record: false,
            interleaved: false,
        }
    }

    fn plain() -> Vec<u8> {
        (0..64).cycle().take(256).collect()
    }

    fn deflated() -> Vec<u8> {
        DEFLATED.to_vec()
    }

    #[test]
    fn only_known_pipelines_are_undone() {
        for good in [
            &["deflate"][..],
            &["shuffle", "deflate"],
            &["shuffle", "deflate", "fletcher32"],
        ] {
            assert_eq!(Chunks::len(&variable(good)), Some(256), "{good:?}");
        }
        for bad in [
            &[][..],
            &["shuffle"],
            &["zstd"],
            &["deflate", "shuffle"],
            &["fletcher32", "deflate"],
            &["deflate", "deflate"],
        ] {
            assert_eq!(Chunks::len(&variable(bad)), None, "{bad:?}");
        }
    }

    #[test]
    fn chunks_are_found_from_the_middle_of_one_on() {
        let all = [&DEFLATED[7..], &deflated(), &deflated(), b"x\x9cnothing"].concat();
        let found = Chunks::find(&variable(&["deflate"]), 256, &all, 1 << 20);
        assert_eq!(found.plain, [plain(), plain()].concat());
        assert_eq!(found.deflated, 2 * deflated().len());
        let some = Chunks::find(&variable(&["deflate"]), 256, &all, 1);
        assert_eq!(some.plain, plain());
        // Another length is another thing.
        let other = Chunks::find(&variable(&["deflate"]), 255, &all, 1 << 20);
        assert_eq!((other.plain.len(), other.deflated), (0, 0));
    }

    #[test]
    fn checksums_lie_between_chunks() {
        let sum = [1, 2, 3, 4];
        let all = [&deflated()[..], &sum, &deflated(), &sum].concat();
        let checked = variable(&["deflate", "fletcher32"]);
        let found = Chunks::find(&checked, 256, &all, 1 << 20);
        assert_eq!(found.plain.len(), 512);
        assert_eq!(found.deflated, all.len());
    }

    #[test]
    fn damaged_chunks_are_not_taken() {
        let mut all = deflated();
        let last = all.len() - 1;
        all[last] ^= 1;
        let found = Chunks::find(&variable(&["deflate"]), 256, &all, 1 << 20);
        assert!(found.plain.is_empty());
    }

    #[test]
    fn elements_are_put_together_again() {
        let mut out = vec![9];
        unshuffle(3, b"adbecfxy", &mut out);
        assert_eq!(out, b"\x09abcdefxy");
        out.clear();
        unshuffle(1, b"abc", &mut out);
        unshuffle(0, b"d", &mut out);
        unshuffle(8, b"efg", &mut out);
        assert_eq!(out, b"abcdefg");
    }
}
