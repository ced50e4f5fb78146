//! The superblock: which format a directory holds, and which store it is.
//!
//! ```text
//! offset  size  field
//!      0     8  magic "SHALEFS\0"
//!      8     4  format version, little-endian
//!     12     1  1 while the index is upgraded from format 2, otherwise 0
//!     13     3  reserved, 0
//!     16    16  identity of the store, random
//!     32     8  creation time, seconds since the epoch, little-endian
//!     40    16  reserved, 0
//!     56     4  reserved, 0
//!     60     4  crc32c of bytes 0..60, little-endian
//! ```

use std::io::ErrorKind;
use std::path::Path;

use shale_backing::{Access, Backing};

use crate::Error;

/// Name of the superblock in a store.
pub const FILE: &str = "superblock";
const MAGIC: &[u8; 8] = b"SHALEFS\0";
const LEN: usize = 64;

/// The format version this program writes and the newest it reads.
const FORMAT_VERSION: u32 = 3;
/// The format version that this program upgrades.
const OLD_VERSION: u32 = 2;

/// The contents of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Identity of the store.
    pub id: [u8; 16],
    /// Seconds since the epoch at its creation.
    pub created: u64,
    /// Which format it has.
    pub format: Format,
}

/// The format of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// The one that this program writes.
    #[default]
    Current,
    /// On the way from format 2 to that one: its index has keys of both.
    Upgrading,
    /// Format 2.
    Old,
}

/// Why a superblock cannot be used.
#[derive(Debug, PartialEq, Eq)]
enum Flaw {
    Damaged(String),
    /// Sound, but of this unknown version.
    Unknown(u32),
}

impl Superblock {
    /// The superblock of a store; it must exist.
    pub(crate) fn require(backing: &dyn Backing) -> Result<Self, Error> {
        Self::read(backing)?.ok_or_else(|| Error::NotAStore {
            path: backing.root().to_owned(),
            reason: "there is no superblock, so it is not a store".to_owned(),
        })
    }

    /// A superblock for a new store.
    ///
    /// # Errors
    /// When there is no source of randomness.
    pub fn fresh() -> std::io::Result<Self> {
        use std::io::Read;
        let mut id = [0; 16];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut id)?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Ok(Self {
            id,
            created: now.map_or(0, |d| d.as_secs()),
            format: Format::Current,
        })
    }

    pub(crate) fn encode(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(MAGIC);
        let version = match self.format {
            Format::Current | Format::Upgrading => FORMAT_VERSION,
            Format::Old => OLD_VERSION,
        };
        bytes[8..12].copy_from_slice(&version.to_le_bytes());
        bytes[12] = u8::from(self.format == Format::Upgrading);
        bytes[16..32].copy_from_slice(&self.id);
        bytes[32..40].copy_from_slice(&self.created.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        let bytes: &[u8; LEN] = bytes.try_into().map_err(|_| {
            Flaw::Damaged(format!(
                "its superblock has {} bytes instead of {LEN}",
                bytes.len()
            ))
        })?;
        if &bytes[..8] != MAGIC {
            return Err(Flaw::Damaged(
                "its superblock is not one of ShaleFS".to_owned(),
            ));
        }
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let crc = crc32c::crc32c(&bytes[..60]);
        if word(60) != crc {
            return Err(Flaw::Damaged(format!(
                "its superblock is damaged (checksum {:08x}, expected {crc:08x}); \
                 `shale fsck --rebuild` writes a new one",
                word(60)
            )));
        }
        let format = match (word(8), bytes[12]) {
            (FORMAT_VERSION, 0) => Format::Current,
            (FORMAT_VERSION, 1) => Format::Upgrading,
            (OLD_VERSION, _) => Format::Old,
            (version, _) => return Err(Flaw::Unknown(version)),
        };
        let mut id = [0; 16];
        id.copy_from_slice(&bytes[16..32]);
        let mut created = [0; 8];
        created.copy_from_slice(&bytes[32..40]);
        Ok(Self {
            id,
            created: u64::from_le_bytes(created),
            format,
        })
    }

    /// Reads the superblock of a store; `None` when there is none.
    ///
    /// # Errors
    /// When it is damaged, of an unknown version, or cannot be read.
    pub fn read(backing: &dyn Backing) -> Result<Option<Self>, Error> {
        let file = match backing.open(Path::new(FILE), Access::Read) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io("open", FILE)(e)),
        };
        let mut bytes = vec![0; LEN + 1];
        let len = file
            .read_at(&mut bytes, 0)
            .map_err(Error::io("read", FILE))?;
        match Self::decode(&bytes[..len]) {
            Ok(superblock) => Ok(Some(superblock)),
            Err(Flaw::Damaged(reason)) => Err(Error::NotAStore {
                path: backing.root().to_owned(),
                reason,
            }),
            Err(Flaw::Unknown(version)) => Err(Error::UnknownFormat {
                path: backing.root().to_owned(),
                version,
                known: FORMAT_VERSION,
            }),
        }
    }

    /// Writes the superblock durably, replacing any other.
    ///
    /// # Errors
    /// What the backing store says.
    pub fn write(&self, backing: &dyn Backing) -> Result<(), Error> {
        let temporary = Path::new("superblock.new");
        let write = || {
            match backing.remove_file(temporary) {
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            let file = backing.open(temporary, Access::CreateNew)?;
            file.write_all_at(&self.encode(), 0)?;
            file.sync_data()?;
            backing.rename(temporary, Path::new(FILE))?;
            backing.sync_dir(Path::new(""))
        };
        write().map_err(Error::io("write", FILE))
    }
}

/// Whether a directory holds a store of a known format, or none at all.
///
/// # Errors
/// When there is a superblock that is damaged, of an unknown version, or cannot be read.
pub fn check(store: &Path) -> Result<(), Error> {
    Superblock::read(&shale_backing::PosixBacking::new(store)).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_noticed() {
        let block = Superblock {
            id: *b"0123456789abcdef",
            created: 1_700_000_000,
            format: Format::Current,
        };
        let bytes = block.encode();
        assert_eq!(Superblock::decode(&bytes), Ok(block));
        for bit in 0..LEN * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&bad).is_err(), "bit {bit}");
        }
        assert!(Superblock::decode(&bytes[..63]).is_err());
    }

    #[test]
    fn the_format_stays_as_it_is() {
        let block = Superblock {
            id: *b"0123456789abcdef",
            created: 1_700_000_000,
            format: Format::Current,
        };
        let hex = |format| -> String {
            let bytes = Superblock { format, ..block }.encode();
            bytes.iter().map(|b| format!("{b:02x}")).collect()
        };
        assert_eq!(
            hex(Format::Old),
            "5348414c454653000200000000000000303132333435363738396162636465660\
             0f1536500000000000000000000000000000000000000000000000094205c2c"
        );
        assert_eq!(hex(Format::Current)[16..32], *"0300000000000000");
        assert_eq!(hex(Format::Upgrading)[16..32], *"0300000001000000");
        for format in [Format::Old, Format::Upgrading, Format::Current] {
            let block = Superblock { format, ..block };
            assert_eq!(Superblock::decode(&block.encode()), Ok(block));
        }
    }

    #[test]
    fn a_store_of_another_version_is_not_rebuilt_over() {
        let dir = tempfile::tempdir().unwrap();
        let backing = shale_backing::PosixBacking::new(dir.path());
        let block = Superblock {
            id: *b"0123456789abcdef",
            created: 1_700_000_000,
            format: Format::Current,
        };
        let mut bytes = block.encode();
        bytes[8] += 1;
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        let path = dir.path().join(FILE);
        std::fs::write(&path, bytes).unwrap();
        std::fs::create_dir(dir.path().join("packs")).unwrap();
        let unknown = Superblock::read(&backing);
        assert!(matches!(
            unknown,
            Err(Error::UnknownFormat { version: 4, .. })
        ));
        let options = crate::fsck::FsckOptions {
            rebuild: true,
            ..crate::fsck::FsckOptions::default()
        };
        let refused = crate::fsck::fsck(dir.path(), &options, &mut |_, _| {});
        assert!(matches!(refused, Err(Error::UnknownFormat { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
