//! Requests that programs make by setting an attribute: settle a file, collect garbage.

use std::collections::HashMap;

use shale_index::{Ino, ROOT};

use crate::settle_control::SettleRequest;
use crate::{Caller, Error, Fs};

/// Setting it to `1` settles the file; `rewrite` encodes everything in it again; `cancel` cancels
/// the requests for the file, or for all files below a directory.
const SETTLE_NOW: &[u8] = b"user.shale.settle.now";
/// Setting it collects garbage. Root and the user who mounted may.
const GC_NOW: &[u8] = b"user.shale.gc.now";

/// Whether a caller may watch and steer all of the mount: root and the user who mounted.
pub(super) fn is_operator(caller: &Caller) -> bool {
    caller.uid == 0 || caller.uid == nix::unistd::geteuid().as_raw()
}

impl Fs {
    /// Carries out a request that is made by setting an attribute; `None` when it is not one.
    pub(crate) fn obey(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
    ) -> Option<Result<(), Error>> {
        match name {
            SETTLE_NOW => Some(self.settle_now(caller, ino, value)),
            GC_NOW => Some(self.collect_now(caller, ino, value)),
            _ => None,
        }
    }

    fn settle_now(&self, caller: &Caller, ino: Ino, value: &[u8]) -> Result<(), Error> {
        let inode = self.inode(ino)?;
        if value == b"cancel" {
            // The files below may belong to other users.
            if inode.is_dir() && !is_operator(caller) && caller.uid != inode.uid {
                return Err(Error::NotPermitted);
            }
            return self.cancel_settling_below(ino);
        }
        if !inode.is_file() {
            let reason = "only regular files settle; 'shale settle' goes through directories";
            return self.deny(ino, SETTLE_NOW, reason);
        }
        let request = match value {
            b"1" => SettleRequest::Settle,
            b"rewrite" => SettleRequest::Rewrite,
            _ => return self.deny(ino, SETTLE_NOW, "the value must be 1, rewrite or cancel"),
        };
        if self.has_writers(ino) {
            return Err(Error::BeingWritten);
        }
        self.settling.request(ino, request);
        Ok(())
    }

    /// The value is the share of live bytes, in percent, below which a pack is rewritten.
    fn collect_now(&self, caller: &Caller, ino: Ino, value: &[u8]) -> Result<(), Error> {
        if !is_operator(caller) {
            return Err(Error::NotPermitted);
        }
        let percent = std::str::from_utf8(value)
            .ok()
            .and_then(|text| text.parse().ok())
            .filter(|percent| (1..=100).contains(percent));
        match percent {
            Some(percent) => {
                self.store.request_gc(percent);
                Ok(())
            }
            None => self.deny(ino, GC_NOW, "the value must be a percentage, 1 to 100"),
        }
    }

    /// Number of requested files at or below an inode that are not done yet.
    pub(crate) fn settles_asked_below(&self, ino: Ino) -> Result<usize, Error> {
        Ok(self.at_or_below(ino, self.settling.asked())?.len())
    }

    /// Cancels all requests at or below an inode.
    fn cancel_settling_below(&self, ino: Ino) -> Result<(), Error> {
        let asked = self.at_or_below(ino, self.settling.asked())?;
        self.settling.cancel(&asked);
        Ok(())
    }

    /// The inodes among `inodes` that are `top` or below it.
    fn at_or_below(&self, top: u64, inodes: Vec<Ino>) -> Result<Vec<u64>, Error> {
        // Whether what has been passed on the way up is inside.
        let mut known = HashMap::from([(top, true)]);
        known.entry(ROOT).or_insert(false);
        let mut found = Vec::new();
        for ino in inodes {
            let mut passed = Vec::new();
            let mut at = ino;
            let inside = loop {
                if let Some(&inside) = known.get(&at) {
                    break inside;
                }
                passed.push(at);
                at = match self.inode(at) {
                    Ok(inode) => inode.parent,
                    // Deleted meanwhile.
                    Err(e) if e.is_missing() => break false,
                    Err(e) => return Err(e),
                };
            };
            known.extend(passed.into_iter().map(|at| (at, inside)));
            if inside {
                found.push(ino);
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Access;
    use crate::testing::file_system;

    #[test]
    fn a_request_that_makes_no_sense_is_not_obeyed() {
        let dir = tempfile::tempdir().unwrap();
        let fs = file_system(dir.path());
        let caller = Caller::default();
        let (_, handle) = fs
            .create(&caller, ROOT, b"file", 0o600, Access::WRITE)
            .unwrap();
        let ino = handle.ino();
        fs.release(handle);
        let set = |ino, name, value: &[u8]| {
            let result = fs.setxattr(&caller, ino, name, value, 0);
            result.map_err(|e| e.errno())
        };
        for value in [&b"nonsense"[..], b"", b"0", b"rewrite\n", b"\xff"] {
            assert_eq!(set(ino, SETTLE_NOW, value), Err(libc::EINVAL), "{value:?}");
        }
        assert!(!fs.settling.is_settling(ino));
        assert_eq!(set(ROOT, SETTLE_NOW, b"1"), Err(libc::EINVAL));
        for value in [&b"nonsense"[..], b"", b"0", b"101"] {
            assert_eq!(set(ROOT, GC_NOW, value), Err(libc::EINVAL), "{value:?}");
        }
        for value in [&b"1"[..], b"rewrite"] {
            assert_eq!(set(ino, SETTLE_NOW, value), Ok(()), "{value:?}");
        }
        assert!(fs.settling.is_settling(ino));
    }

    #[test]
    fn requests_are_taken_back_where_they_belong_and_by_whom_they_concern() {
        let dir = tempfile::tempdir().unwrap();
        let fs = file_system(dir.path());
        let root = Caller::default();
        let owner = Caller { uid: 77, ..root };
        let other = Caller { uid: 78, ..root };
        let mut files = Vec::new();
        let mut above = ROOT;
        for name in [b"a", b"b"] {
            above = fs.mkdir(&owner, above, name, 0o755).unwrap().ino;
            let (_, handle) = fs
                .create(&owner, above, b"f", 0o600, Access::WRITE)
                .unwrap();
            files.push((above, handle.ino()));
            fs.release(handle);
        }
        let [(a, first), (b, second)] = files[..] else {
            panic!("two files");
        };
        let set = |caller, ino, value: &[u8]| {
            let result = fs.setxattr(caller, ino, SETTLE_NOW, value, 0);
            result.map_err(|e| e.errno())
        };
        let queued = |ino| {
            let text = fs.getxattr(&other, ino, b"user.shale.stat.queued").unwrap();
            String::from_utf8(text).unwrap()
        };
        for (dir, taken_back) in [
            (b, &[second][..]),
            (a, &[first, second]),
            (ROOT, &[first, second]),
        ] {
            for file in [first, second] {
                set(&owner, file, b"rewrite").unwrap();
            }
            assert_eq!(
                (queued(ROOT), queued(a), queued(b)),
                ("2".into(), "2".into(), "1".into())
            );
            assert_eq!(set(&other, dir, b"cancel"), Err(libc::EPERM));
            let caller = if dir == ROOT { &root } else { &owner };
            assert_eq!(set(caller, dir, b"cancel"), Ok(()));
            for file in [first, second] {
                let cancelled = taken_back.contains(&file);
                assert_eq!(fs.settling.is_settling(file), !cancelled);
                let outcome = if cancelled { "cancelled" } else { "done" };
                assert_eq!(fs.settling.outcome(file).to_string(), outcome);
            }
        }
        set(&owner, second, b"1").unwrap();
        assert_eq!(
            set(&other, second, b"cancel"),
            Ok(()),
            "the kernel has checked that"
        );
        assert_eq!((queued(ROOT), queued(second)), ("0".into(), "0".into()));
        // A request that was never made.
        assert_eq!(set(&owner, first, b"cancel"), Ok(()));
    }
}
