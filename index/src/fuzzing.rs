//! Invariants of the readers of every file of an index, for any bytes. Fuzzing calls this, and so
//! do tests with the seeds of the fuzzer.
//!
//! Every reader gets the bytes unchanged, and once more with corrected checksums, so that the
//! damage reaches the code behind the check.

use std::ops::Range;

use shale_backing::static_files::StaticFiles;

use crate::encoding::{decode_commit, encode_commit};
use crate::engine::embedded::base::block::{self, Lookup};
use crate::engine::embedded::checkpoint::Checkpoint;
use crate::engine::embedded::journal::reader::{SegmentChain, replay};
use crate::engine::embedded::journal::{record, segment};
use crate::engine::embedded::{paths, snapshot};
use crate::extent::{decode_extents, encode_extents};
use crate::kv::Counter;
use crate::schema::{CommitRecord, Dentry, Inode, Rollup, decode_freed, encode_freed};

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let word = bytes.get(at..at + 4)?.first_chunk()?;
    usize::try_from(u32::from_le_bytes(*word)).ok()
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..at + 8)?.first_chunk()?))
}

/// Writes the checksum of two ranges, one after the other, at an offset.
fn sign(bytes: &mut [u8], at: usize, first: Range<usize>, second: Range<usize>) {
    let (Some(first), Some(second)) = (bytes.get(first), bytes.get(second)) else {
        return;
    };
    let crc = crc32c::crc32c_append(crc32c::crc32c(first), second);
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&crc.to_le_bytes());
    }
}

fn repair_segment(bytes: &mut [u8]) {
    sign(bytes, 12, 0..0, 16..segment::HEADER);
    let mut at = segment::HEADER;
    while at + record::HEADER <= bytes.len() {
        let len = word(bytes, at + 8).unwrap_or(0);
        let whole = at.checked_add(record::HEADER + len);
        match whole.filter(|end| *end <= bytes.len() && bytes[at..at + 4] == record::MAGIC) {
            Some(end) => {
                // The salt in the header comes before the bytes of the record.
                sign(bytes, at + 4, 24..32, at + 8..end);
                at += record::stored_len(len);
            }
            None => at += 8,
        }
    }
}

/// Segments of a journal, one after the other; the first two bytes say up to where a checkpoint
/// covers them, and how far beyond it they were durable.
pub fn journal(input: &[u8]) {
    let Some((&[after, beyond], bytes)) = input.split_first_chunk::<2>() else {
        return;
    };
    let mut bytes = bytes.to_vec();
    for repaired in [false, true] {
        let starts: Vec<usize> = (0..bytes.len().saturating_sub(7))
            .filter(|&at| bytes[at..].starts_with(b"SHALEJNL"))
            .chain([bytes.len()])
            .collect();
        let mut index = StaticFiles::default();
        for range in starts.windows(2) {
            let part = &mut bytes[range[0]..range[1]];
            if repaired {
                repair_segment(part);
            }
            let first = long(part, segment::HEADER + 16).unwrap_or(1);
            index = index.with(paths::numbered(segment::PREFIX, first), part);
        }
        let Ok(chain) = SegmentChain::load(&index) else {
            continue;
        };
        let (after, durable) = (u64::from(after), u64::from(after) + u64::from(beyond));
        let mut last = after;
        let mut visited = 0;
        let result = replay(&index, &chain, after, durable, &mut |commit| {
            assert_eq!(commit.version, last + 1, "a commit is missing");
            last = commit.version;
            visited += 1;
            Ok(())
        });
        if let Ok(replay) = result {
            assert!(replay.last >= durable, "what was durable is missing");
            assert_eq!(replay.records, visited);
        }
    }
    commit(input);
}

/// One commit as the catalog keeps it.
pub fn commit(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    for _ in 0..2 {
        if let Ok(commit) = decode_commit(&bytes) {
            assert_eq!(decode_commit(&encode_commit(&commit)).ok(), Some(commit));
        }
        let end = bytes.len().saturating_sub(4);
        sign(&mut bytes, end, 0..0, 0..end);
    }
}

/// A snapshot.
pub fn snapshot(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    for _ in 0..2 {
        let version = long(&bytes, 16).unwrap_or(0);
        let index = StaticFiles::default().with(snapshot::path_of(version), &bytes);
        let mut visited = 0;
        let loaded = snapshot::load(&index, version, &mut |_, slot| {
            assert!(slot.value.is_some());
            visited += 1;
            Ok(())
        });
        if let Ok(summary) = loaded {
            assert_eq!(summary.entries, visited);
            assert_eq!(snapshot::peek(&index, version).ok(), Some(summary));
        }
        let _ = snapshot::peek(&index, version);
        repair_snapshot(&mut bytes);
    }
}

fn repair_snapshot(bytes: &mut [u8]) {
    sign(bytes, 12, 0..0, 16..24);
    let mut at = 24;
    while let Some(stored) = word(bytes, at) {
        let end = stored == u32::MAX as usize;
        let Some(next) = (at + 16).checked_add(if end { 24 } else { stored }) else {
            return;
        };
        sign(bytes, at + 12, at..at + 12, at + 16..next);
        at = next;
    }
}

/// A checkpoint.
pub fn checkpoint(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    for _ in 0..2 {
        let load = |bytes: &[u8]| {
            let index = StaticFiles::default().with(paths::path("checkpoint"), bytes);
            Checkpoint::load(&index).expect("reading works").ok()
        };
        if let Some(checkpoint) = load(&bytes) {
            assert_eq!(load(&checkpoint.encode()), Some(checkpoint));
        }
        let end = bytes.len();
        sign(&mut bytes, 12, 0..0, 16..end);
    }
}

/// A block of the base in sled. The first byte is the length of its key, which follows.
pub fn base_block(input: &[u8]) {
    let Some((len, rest)) = input.split_first() else {
        return;
    };
    let (start, bytes) = rest.split_at(usize::from(*len).min(rest.len()));
    let mut bytes = bytes.to_vec();
    for _ in 0..2 {
        let decoded = block::decode(start, &bytes);
        if let Some(decoded) = &decoded {
            let again = block::encode(start, &decoded.end, &decoded.entries);
            assert_eq!(block::decode(start, &again).as_ref(), Some(decoded));
            let sorted = decoded.entries.is_sorted_by(|a, b| a.key < b.key);
            for entry in &decoded.entries {
                let inside = decoded.end.is_empty() || entry.key < decoded.end;
                match block::find(start, &bytes, &entry.key) {
                    Lookup::Found(found) => assert!(!sorted || found == *entry),
                    Lookup::Absent | Lookup::Bad => assert!(!sorted || !inside),
                }
            }
        } else {
            let _ = block::find(start, &bytes, b"key");
        }
        if bytes.len() >= 4 {
            let crc = crc32c::crc32c_append(crc32c::crc32c(start), &bytes[4..]);
            bytes[..4].copy_from_slice(&crc.to_le_bytes());
        }
    }
}

/// A value of the index: everything read from it can be written and read again.
pub fn value(bytes: &[u8]) {
    if let Some(inode) = Inode::decode(7, bytes) {
        assert_eq!(Inode::decode(7, &inode.encode()), Some(inode));
    }
    if let Some(dentry) = Dentry::decode(bytes) {
        assert_eq!(Dentry::decode(&dentry.encode()), Some(dentry));
    }
    if let Some(record) = CommitRecord::decode(bytes) {
        assert_eq!(CommitRecord::decode(&record.encode()), Some(record));
    }
    if let Some(counter) = Counter::decode(bytes) {
        assert_eq!(Counter::decode(&counter.encode()), Some(counter));
    }
    if let Some(freed) = decode_freed(bytes) {
        assert_eq!(decode_freed(&encode_freed(&freed)), Some(freed));
    }
    let _ = Rollup::decode_old(bytes);
    if let Some(extents) = decode_extents(bytes) {
        assert_eq!(decode_extents(&encode_extents(&extents)), Some(extents));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use shale_backing::mutate::mutate_corpus;

    fn mutate(target: &str, times: usize, check: impl Fn(&[u8])) {
        mutate_corpus(Path::new(env!("CARGO_MANIFEST_DIR")), target, times, check);
    }

    #[test]
    fn any_journal_is_replayed_or_refused() {
        mutate("journal", 3000, super::journal);
    }

    #[test]
    fn any_snapshot_is_loaded_or_refused() {
        mutate("snapshot", 3000, super::snapshot);
    }

    #[test]
    fn any_checkpoint_is_read_or_refused() {
        mutate("checkpoint", 5000, super::checkpoint);
    }

    #[test]
    fn any_block_of_the_base_is_read_or_refused() {
        mutate("block", 5000, super::base_block);
    }

    #[test]
    fn any_value_is_read_or_refused() {
        mutate("value", 20_000, super::value);
    }
}
