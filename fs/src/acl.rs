//! POSIX access control lists as the kernel passes them in extended
//! attributes: a version word, then entries of tag, permissions and id, little-endian.

use crate::Error;

/// Access ACL.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// Default ACL of a directory.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    perm: u16,
    id: u32,
}

/// A valid access control list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl {
    entries: Vec<Entry>,
}

impl Acl {
    /// Checks and reads a list; one without entries is `None`.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Self>, Error> {
        let Some((version, rest)) = bytes.split_first_chunk::<4>() else {
            return Err(Error::Invalid("access control list"));
        };
        if u32::from_le_bytes(*version) != VERSION || !rest.len().is_multiple_of(8) {
            return Err(Error::Invalid("access control list"));
        }
        let entries: Vec<Entry> = rest
            .chunks_exact(8)
            .map(|e| Entry {
                tag: u16::from_le_bytes([e[0], e[1]]),
                perm: u16::from_le_bytes([e[2], e[3]]),
                id: u32::from_le_bytes([e[4], e[5], e[6], e[7]]),
            })
            .collect();
        if entries.is_empty() {
            return Ok(None);
        }
        let acl = Self { entries };
        if acl.is_valid() {
            Ok(Some(acl))
        } else {
            Err(Error::Invalid("access control list"))
        }
    }

    fn is_valid(&self) -> bool {
        let count = |tag| self.entries.iter().filter(|e| e.tag == tag).count();
        let named = count(USER) + count(GROUP);
        let order = |e: &Entry| {
            (
                e.tag,
                if matches!(e.tag, USER | GROUP) {
                    e.id
                } else {
                    0
                },
            )
        };
        self.entries.iter().all(|e| {
            e.perm <= 7 && matches!(e.tag, USER_OBJ | USER | GROUP_OBJ | GROUP | MASK | OTHER)
        }) && self.entries.is_sorted_by(|a, b| order(a) < order(b))
            && count(USER_OBJ) == 1
            && count(GROUP_OBJ) == 1
            && count(OTHER) == 1
            && count(MASK) <= 1
            && (named == 0 || count(MASK) == 1)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            out.extend_from_slice(&entry.tag.to_le_bytes());
            out.extend_from_slice(&entry.perm.to_le_bytes());
            out.extend_from_slice(&entry.id.to_le_bytes());
        }
        out
    }

    /// Whether permission bits can express all of it.
    pub(crate) fn is_minimal(&self) -> bool {
        self.entries.len() == 3
    }

    fn entry(&mut self, tag: u16) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|e| e.tag == tag)
    }

    /// The entry that the group bits of a mode stand for.
    fn group_class(&mut self) -> Option<&mut Entry> {
        let tag = if self.entries.iter().any(|e| e.tag == MASK) {
            MASK
        } else {
            GROUP_OBJ
        };
        self.entry(tag)
    }

    /// The permission bits that the list stands for.
    pub(crate) fn mode(&self) -> u32 {
        let mut copy = self.clone();
        let perm = |entry: Option<&mut Entry>| entry.map_or(0, |e| u32::from(e.perm));
        let user = perm(copy.entry(USER_OBJ));
        let group = perm(copy.group_class());
        let other = perm(copy.entry(OTHER));
        user << 6 | group << 3 | other
    }

    /// Applies a change of permission bits.
    pub(crate) fn set_mode(&mut self, mode: u32) {
        let set = |entry: Option<&mut Entry>, bits: u32| {
            if let Some(entry) = entry {
                entry.perm = (bits & 7) as u16;
            }
        };
        set(self.entry(USER_OBJ), mode >> 6);
        set(self.group_class(), mode >> 3);
        set(self.entry(OTHER), mode);
    }

    /// What a new inode gets from the default list of its directory: its own list and the
    /// permission bits that are left of `mode`.
    pub(crate) fn inherit(&self, mode: u32) -> (Self, u32) {
        let mut acl = self.clone();
        let mut bits = mode & 0o777;
        let mut limit = |entry: Option<&mut Entry>, shift: u32| {
            if let Some(entry) = entry {
                entry.perm &= (bits >> shift & 7) as u16;
                bits = bits & !(7 << shift) | u32::from(entry.perm) << shift;
            }
        };
        limit(acl.entry(USER_OBJ), 6);
        limit(acl.entry(OTHER), 0);
        limit(acl.group_class(), 3);
        (acl, mode & !0o777 | bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16, u32)]) -> Acl {
        Acl {
            entries: entries
                .iter()
                .map(|&(tag, perm, id)| Entry { tag, perm, id })
                .collect(),
        }
    }

    #[test]
    fn lists_without_the_basic_entries_or_a_needed_mask_are_refused() {
        let no_mask = acl(&[
            (USER_OBJ, 7, 0),
            (USER, 7, 5),
            (GROUP_OBJ, 5, 0),
            (OTHER, 5, 0),
        ])
        .encode();
        assert!(Acl::parse(&no_mask).is_err());
        let no_other = acl(&[(USER_OBJ, 7, 0), (GROUP_OBJ, 5, 0)]).encode();
        assert!(Acl::parse(&no_other).is_err());
        let good = acl(&[(USER_OBJ, 7, 0), (GROUP_OBJ, 5, 0), (OTHER, 5, 0)]);
        assert_eq!(Acl::parse(&good.encode()).unwrap(), Some(good));
        assert!(Acl::parse(b"\x02\0\0\0").unwrap().is_none());
        assert!(Acl::parse(b"\x01\0\0\0").is_err());
        assert!(Acl::parse(b"").is_err());
    }

    #[test]
    fn a_new_file_gets_no_more_than_its_mode_and_the_default_list_allow() {
        let default = acl(&[
            (USER_OBJ, 7, 0),
            (USER, 6, 1000),
            (GROUP_OBJ, 5, 0),
            (MASK, 6, 0),
            (OTHER, 4, 0),
        ]);
        let (inherited, mode) = default.inherit(0o100_644);
        assert_eq!(mode, 0o100_644);
        assert_eq!(inherited.mode(), 0o644);
        let (inherited, mode) = default.inherit(0o100_600);
        assert_eq!((mode, inherited.mode()), (0o100_600, 0o600));
        assert!(!inherited.is_minimal());
    }

    #[test]
    fn a_change_of_mode_changes_the_mask() {
        let mut list = acl(&[
            (USER_OBJ, 7, 0),
            (USER, 7, 5),
            (GROUP_OBJ, 5, 0),
            (MASK, 7, 0),
            (OTHER, 5, 0),
        ]);
        list.set_mode(0o640);
        assert_eq!(list.mode(), 0o640);
        assert_eq!(list.entry(GROUP_OBJ).unwrap().perm, 5);
    }
}
