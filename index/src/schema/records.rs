//! Values of the index. Every record begins with a version byte. Records of version 1 that format
//! 2 wrote are still read.

use crate::encoding::{Reader, put_bytes, put_signed, put_varint};
use crate::extent::{Extent, FramePart, PackBytes, PackId, put_extents, take_extents};

const RECORD_VERSION: u8 = 1;
/// Inodes and commit records have more to say since format 3.
const RECORD_VERSION_2: u8 = 2;

/// Number of an inode.
pub type Ino = u64;

/// A point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since the epoch, negative before it.
    pub secs: i64,
    /// Nanoseconds, below one second.
    pub nanos: u32,
}

impl Time {
    /// Now, by the clock from which the kernel takes the times of what it caches: by a finer one,
    /// a file that is written after another was created could be older.
    #[must_use]
    pub fn now() -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        Self {
            secs: now.tv_sec,
            nanos: now.tv_nsec as u32,
        }
    }

    fn put(self, out: &mut Vec<u8>) {
        put_signed(out, self.secs);
        put_varint(out, u64::from(self.nanos));
    }

    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            secs: reader.signed()?,
            nanos: reader.varint32().filter(|&n| n < NANOS)?,
        })
    }
}

const NANOS: u32 = 1_000_000_000;

impl From<std::time::SystemTime> for Time {
    fn from(time: std::time::SystemTime) -> Self {
        match time.duration_since(std::time::UNIX_EPOCH) {
            Ok(after) => Self {
                secs: after.as_secs() as i64,
                nanos: after.subsec_nanos(),
            },
            Err(before) => {
                let before = before.duration();
                let (secs, nanos) = (before.as_secs() as i64, before.subsec_nanos());
                if nanos == 0 {
                    Self {
                        secs: -secs,
                        nanos: 0,
                    }
                } else {
                    Self {
                        secs: -secs - 1,
                        nanos: NANOS - nanos,
                    }
                }
            }
        }
    }
}

impl From<Time> for std::time::SystemTime {
    fn from(time: Time) -> Self {
        use std::time::Duration;
        let nanos = Duration::from_nanos(u64::from(time.nanos));
        let whole = Duration::from_secs(time.secs.unsigned_abs());
        let seconds = if time.secs >= 0 {
            Self::UNIX_EPOCH.checked_add(whole)
        } else {
            Self::UNIX_EPOCH.checked_sub(whole)
        };
        seconds
            .and_then(|s| s.checked_add(nanos))
            .unwrap_or(Self::UNIX_EPOCH)
    }
}

/// Where the folded extents of a file are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapRoot {
    /// In the inode itself.
    Inline(Vec<Extent>),
    /// In a root segment, a frame in a pack.
    Segments(FramePart),
}

/// File type bits of a mode.
pub const S_IFMT: u32 = 0o170_000;
/// A directory.
pub const S_IFDIR: u32 = 0o040_000;
/// A regular file.
pub const S_IFREG: u32 = 0o100_000;
/// A symbolic link.
pub const S_IFLNK: u32 = 0o120_000;

/// How far the contents of a file have settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Nothing to settle yet.
    #[default]
    New,
    /// Written since it was last settled. It is listed under [`super::keys::stored`].
    Stored,
    /// Settled.
    Settled,
    /// Settling would not make it smaller; it stays as it was written.
    Incompressible(CodecTag),
}

/// The coder that a file has resisted: a number below 64. A pass that uses another coder tries
/// the file again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CodecTag(u8);

impl CodecTag {
    /// None for a number that a record has no room for.
    #[must_use]
    pub fn new(number: u8) -> Option<Self> {
        (number < 64).then_some(Self(number))
    }
}

impl Phase {
    /// The lower two bits are the phase, the others what was tried.
    fn to_byte(self) -> u8 {
        match self {
            Self::New => 0,
            Self::Stored => 1,
            Self::Settled => 2,
            Self::Incompressible(CodecTag(number)) => 3 | number << 2,
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::New),
            1 => Some(Self::Stored),
            2 => Some(Self::Settled),
            _ if byte & 3 == 3 => Some(Self::Incompressible(CodecTag(byte >> 2))),
            _ => None,
        }
    }
}

/// Everything about an inode but its names and extended attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Its number, never reused.
    pub ino: Ino,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node.
    pub rdev: u32,
    /// Number of names; of a directory, 2 and what its totals count, as long as it has a name.
    pub nlink: u32,
    /// Logical size.
    pub size: u64,
    /// Stored bytes of its extents.
    pub stored: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of contents.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Creation.
    pub btime: Time,
    /// The directory above a directory; for anything else the directory in whose roll-up it is
    /// counted.
    pub parent: Ino,
    /// Chunks of a regular file are aligned to 2^this bytes.
    pub chunk_shift: u8,
    /// How far it has settled.
    pub phase: Phase,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    /// Folded extents.
    pub map: MapRoot,
    /// Up to where the times in the inode replace what is told elsewhere, because a program has
    /// set them: for a file the newest commit whose record does not count, for a directory the
    /// nanoseconds of the newest change of its names that does not count.
    pub since: u64,
}

impl Inode {
    /// Whether it is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.mode & S_IFMT == S_IFDIR
    }

    /// Whether it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.mode & S_IFMT == S_IFREG
    }

    /// The record's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(96 + self.target.len());
        out.push(RECORD_VERSION_2);
        for field in [self.mode, self.uid, self.gid, self.rdev, self.nlink] {
            put_varint(&mut out, u64::from(field));
        }
        put_varint(&mut out, self.size);
        put_varint(&mut out, self.stored);
        for time in [self.atime, self.mtime, self.ctime, self.btime] {
            time.put(&mut out);
        }
        put_varint(&mut out, self.parent);
        out.push(self.chunk_shift);
        out.push(self.phase.to_byte());
        put_bytes(&mut out, &self.target);
        match &self.map {
            MapRoot::Inline(extents) => {
                out.push(0);
                put_extents(&mut out, extents);
            }
            MapRoot::Segments(part) => {
                out.push(1);
                put_varint(&mut out, part.pack.0);
                put_varint(&mut out, part.at);
                put_varint(&mut out, u64::from(part.frame_len));
                put_varint(&mut out, u64::from(part.raw_len));
            }
        }
        put_varint(&mut out, self.since);
        out
    }

    /// Reads a record; `None` when the bytes are not one.
    #[must_use]
    pub fn decode(ino: Ino, bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let version = reader.byte()?;
        let mut inode = Self {
            ino,
            since: 0,
            mode: reader.varint32()?,
            uid: reader.varint32()?,
            gid: reader.varint32()?,
            rdev: reader.varint32()?,
            nlink: reader.varint32()?,
            size: reader.varint()?,
            stored: reader.varint()?,
            atime: Time::take(&mut reader)?,
            mtime: Time::take(&mut reader)?,
            ctime: Time::take(&mut reader)?,
            btime: Time::take(&mut reader)?,
            parent: reader.varint()?,
            chunk_shift: reader.byte().filter(|&s| (12..=24).contains(&s))?,
            phase: Phase::from_byte(reader.byte()?)?,
            target: reader.bytes()?.to_vec(),
            map: match reader.byte()? {
                0 => MapRoot::Inline(take_extents(&mut reader)?),
                1 => MapRoot::Segments(FramePart {
                    pack: PackId(reader.varint()?),
                    at: reader.varint()?,
                    frame_len: reader.varint32()?,
                    raw_len: reader.varint32()?,
                    skip: 0,
                }),
                _ => return None,
            },
        };
        match version {
            RECORD_VERSION => {}
            RECORD_VERSION_2 => inode.since = reader.varint()?,
            _ => return None,
        }
        reader.is_empty().then_some(inode)
    }
}

fn versioned(bytes: &[u8]) -> Option<Reader<'_>> {
    let mut reader = Reader::new(bytes);
    (reader.byte()? == RECORD_VERSION).then_some(reader)
}

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dentry {
    /// What it names.
    pub ino: Ino,
    /// File type bits of its mode.
    pub kind: u32,
}

impl Dentry {
    /// The record's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![RECORD_VERSION];
        put_varint(&mut out, self.ino);
        put_varint(&mut out, u64::from(self.kind));
        out
    }

    /// Reads a record; `None` when the bytes are not one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = versioned(bytes)?;
        let dentry = Self {
            ino: reader.varint()?,
            kind: reader.varint32()?,
        };
        reader.is_empty().then_some(dentry)
    }
}

/// What one commit added to a file, until it is folded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitRecord {
    /// Extents (holes among them) to lay over the file, in order.
    pub extents: Vec<Extent>,
    /// What else it did to the file.
    pub effect: Effect,
}

/// What a commit record did to a file beside its extents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: the commit changed the inode as well.
    #[default]
    Laid,
    /// Bytes were written.
    Written {
        /// The size of the file is not less than this.
        reached: u64,
        /// Contents and inode changed then.
        times: (Time, Time),
        /// Stored bytes of the extents.
        stored: u64,
    },
    /// The file was cut off or extended. What lay beyond the size before is gone.
    Cut {
        /// The size of the file.
        size: u64,
        /// Contents and inode changed then.
        times: (Time, Time),
    },
}

impl CommitRecord {
    /// The record's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![RECORD_VERSION_2];
        match self.effect {
            Effect::Laid => out.push(0),
            Effect::Written {
                reached,
                times: (mtime, ctime),
                stored,
            } => {
                out.push(1);
                put_varint(&mut out, reached);
                mtime.put(&mut out);
                ctime.put(&mut out);
                put_varint(&mut out, stored);
            }
            Effect::Cut {
                size,
                times: (mtime, ctime),
            } => {
                out.push(2);
                put_varint(&mut out, size);
                mtime.put(&mut out);
                ctime.put(&mut out);
            }
        }
        put_extents(&mut out, &self.extents);
        out
    }

    /// Reads a record; `None` when the bytes are not one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let times = |reader: &mut Reader<'_>| Some((Time::take(reader)?, Time::take(reader)?));
        let effect = match reader.byte()? {
            RECORD_VERSION => Effect::Laid,
            RECORD_VERSION_2 => match reader.byte()? {
                0 => Effect::Laid,
                1 => Effect::Written {
                    reached: reader.varint()?,
                    times: times(&mut reader)?,
                    stored: reader.varint()?,
                },
                2 => Effect::Cut {
                    size: reader.varint()?,
                    times: times(&mut reader)?,
                },
                _ => return None,
            },
            _ => return None,
        };
        let extents = take_extents(&mut reader)?;
        reader.is_empty().then_some(Self { extents, effect })
    }
}

/// A list of packs in which bytes were freed.
#[must_use]
pub fn encode_freed(freed: &[PackBytes]) -> Vec<u8> {
    let mut out = vec![RECORD_VERSION];
    put_varint(&mut out, freed.len() as u64);
    for PackBytes { pack, bytes } in freed {
        put_varint(&mut out, pack.0);
        put_varint(&mut out, *bytes);
    }
    out
}

/// Reads what [`encode_freed`] wrote; `None` for anything else.
#[must_use]
pub fn decode_freed(bytes: &[u8]) -> Option<Vec<PackBytes>> {
    let mut reader = versioned(bytes)?;
    let count = reader.varint()?;
    let mut freed = Vec::new();
    for _ in 0..count {
        freed.push(PackBytes {
            pack: PackId(reader.varint()?),
            bytes: reader.varint()?,
        });
    }
    reader.is_empty().then_some(freed)
}

/// Encodes a plain number (counters, live bytes of a pack).
#[must_use]
pub fn encode_number(value: u64) -> Vec<u8> {
    let mut out = vec![RECORD_VERSION];
    put_varint(&mut out, value);
    out
}

/// Reads a plain number; `None` when the bytes are not one.
#[must_use]
pub fn decode_number(bytes: &[u8]) -> Option<u64> {
    let mut reader = versioned(bytes)?;
    let value = reader.varint()?;
    reader.is_empty().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::super::{Delta, Rollup};
    use super::*;
    use crate::extent::Place;
    use proptest::prelude::*;

    fn sample() -> Inode {
        Inode {
            ino: 42,
            mode: S_IFREG | 0o644,
            uid: 1000,
            gid: 100,
            rdev: 0,
            nlink: 1,
            size: 5 << 30,
            stored: 1 << 30,
            atime: Time {
                secs: -1,
                nanos: 999_999_999,
            },
            mtime: Time {
                secs: 1_700_000_000,
                nanos: 1,
            },
            ctime: Time {
                secs: 1_700_000_000,
                nanos: 2,
            },
            btime: Time { secs: 0, nanos: 0 },
            parent: 1,
            chunk_shift: 20,
            phase: Phase::Settled,
            target: Vec::new(),
            map: MapRoot::Inline(vec![Extent {
                offset: 0,
                len: 9,
                place: Place::Hole,
            }]),
            since: 7,
        }
    }

    #[test]
    fn the_inode_format_stays_as_it_is() {
        let hex: String = sample()
            .encode()
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        assert_eq!(
            hex,
            "02a48302e8076400018080808014808080800401ff93ebdc0380c49fd50c0180c49fd50c02000001140200000100000907"
        );
        let mut old = sample().encode();
        old[0] = 1;
        old.pop();
        let expected = Inode {
            since: 0,
            ..sample()
        };
        assert_eq!(Inode::decode(42, &old), Some(expected), "of format 2");
        assert_eq!(Inode::decode(42, &sample().encode()), Some(sample()));
    }

    #[test]
    fn every_phase_survives() {
        let mut phases = vec![Phase::New, Phase::Stored, Phase::Settled];
        phases.extend((0..64).filter_map(CodecTag::new).map(Phase::Incompressible));
        assert_eq!(phases.len(), 67);
        for phase in phases {
            assert_eq!(Phase::from_byte(phase.to_byte()), Some(phase));
        }
        assert_eq!(Phase::Incompressible(CodecTag::default()).to_byte(), 3);
        assert_eq!(Phase::from_byte(4), None);
        assert_eq!(CodecTag::new(64), None);
    }

    #[test]
    fn totals_beyond_all_numbers_come_back() {
        let file = Delta {
            raw: i64::MAX,
            files: 1,
            ..Delta::default()
        };
        let empty = Rollup::default();
        let full = (0..5).fold(empty, |total, _| total.plus(&file));
        let moved = empty.plus(&full.as_delta());
        assert_eq!(moved, full);
        let again = (0..5).fold(full, |total, _| total.plus(&file.negated()));
        assert_eq!(again, empty);
        assert_eq!(full.plus(&full.as_delta().negated()), empty);
        assert_eq!(file.and(&file).and(&file.negated()), file);
    }

    #[test]
    fn times_before_the_epoch_survive() {
        for secs in [-2, -1, 0, 1] {
            for nanos in [0, 1, 999_999_999] {
                let time = Time { secs, nanos };
                assert_eq!(Time::from(std::time::SystemTime::from(time)), time);
            }
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = Inode::decode(1, &bytes);
            let _ = Dentry::decode(&bytes);
            let _ = CommitRecord::decode(&bytes);
            let _ = (Rollup::decode_old(&bytes), decode_freed(&bytes));
            let _ = decode_number(&bytes);
        }

        #[test]
        fn truncated_inodes_are_refused(cut in 0usize..40) {
            let bytes = sample().encode();
            prop_assert_eq!(Inode::decode(42, &bytes[..bytes.len() - 1 - cut.min(bytes.len() - 1)]), None);
        }
    }
}
