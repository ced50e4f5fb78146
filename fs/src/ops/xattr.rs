//! Extended attributes, those of access control lists, and the virtual ones that report.

use shale_store::index::schema::{Inode, Time};
use shale_store::index::{AttrChange, XattrMode};
use shale_store::{Collecting, Taken};

use crate::acl::{self, Acl};
use crate::error::refused;
use crate::policy::is_own;
use crate::settler::Request;
use crate::state::at_rest;
use crate::{Caller, Error, Fs};

/// Prefix of the reports among the attributes that belong to ShaleFS.
const STAT: &[u8] = b"user.shale.stat.";
/// Explains the policies that hold.
const EFFECTIVE: &[u8] = b"user.shale.effective";
/// Setting it to `1` settles the file; with `rewrite` everything in it is encoded again; `cancel`
/// takes back what was asked for the file, or for all below a directory.
const SETTLE_NOW: &[u8] = b"user.shale.settle.now";
/// Setting it collects garbage; root and who mounted may.
const GC_NOW: &[u8] = b"user.shale.gc.now";
const S_ISGID: u32 = 0o2000;

impl Fs {
    /// The value of an attribute.
    ///
    /// # Errors
    /// `ENODATA`, `EOPNOTSUPP`, or when the store fails.
    pub fn getxattr(&self, caller: &Caller, ino: u64, name: &[u8]) -> Result<Vec<u8>, Error> {
        if let Some(report) = name.strip_prefix(STAT) {
            return self.report(caller, ino, report);
        }
        if name == EFFECTIVE {
            return Ok(self.effective(ino)?.into_bytes());
        }
        check_namespace(name)?;
        match self.namespace().xattr(ino, name)? {
            Some(value) => Ok(value),
            None => refused(libc::ENODATA),
        }
    }

    /// Names of all attributes that the caller may see, policies among them. Virtual ones are not
    /// listed, so that copies do not carry them along.
    ///
    /// # Errors
    /// When the store fails.
    pub fn listxattr(&self, caller: &Caller, ino: u64) -> Result<Vec<Vec<u8>>, Error> {
        let mut names = self.namespace().xattr_names(ino)?;
        if caller.uid != 0 {
            names.retain(|name| !name.starts_with(b"trusted."));
        }
        Ok(names)
    }

    /// Sets an attribute; `flags` as setxattr(2).
    ///
    /// # Errors
    /// As setxattr(2).
    pub fn setxattr(
        &self,
        caller: &Caller,
        ino: u64,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> Result<(), Error> {
        self.store.check_writable()?;
        check_namespace(name)?;
        match name {
            SETTLE_NOW => return self.settle_now(caller, ino, value),
            GC_NOW => return self.collect_now(caller, ino, value),
            _ => {}
        }
        self.store.admit_names()?;
        if name == acl::ACCESS || name == acl::DEFAULT {
            return self.set_acl(caller, ino, name, value);
        }
        let mode = match flags {
            0 => XattrMode::Set,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return refused(libc::EINVAL),
        };
        if is_own(name) {
            return self.set_policy(ino, name, value, mode);
        }
        self.namespace().set_xattr(ino, name, value, mode)?;
        self.attributes_changed()
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// As removexattr(2).
    pub fn removexattr(&self, ino: u64, name: &[u8]) -> Result<(), Error> {
        self.store.check_writable()?;
        check_namespace(name)?;
        if is_own(name) {
            return self.remove_policy(ino, name);
        }
        if name == acl::ACCESS || name == acl::DEFAULT {
            // Removing a list that is not there is fine.
            match self.namespace().remove_xattr(ino, name) {
                Err(e) if e.errno() == libc::ENODATA => {}
                other => {
                    other?;
                }
            }
            return self.attributes_changed();
        }
        self.namespace().remove_xattr(ino, name)?;
        self.attributes_changed()
    }

    fn set_acl(&self, caller: &Caller, ino: u64, name: &[u8], value: &[u8]) -> Result<(), Error> {
        let inode = self.namespace().inode(ino)?;
        if name == acl::DEFAULT && !inode.is_dir() {
            return refused(libc::EACCES);
        }
        let list = Acl::parse(value)?;
        let mut change = AttrChange {
            ctime: Some(Time::now()),
            ..AttrChange::default()
        };
        let stored = match &list {
            Some(list) if name == acl::ACCESS => {
                let mut mode = inode.mode & !0o777 | list.mode();
                if caller.uid != 0 && !is_member(caller, inode.gid) {
                    mode &= !S_ISGID;
                }
                change.mode = Some(mode);
                (!list.is_minimal()).then(|| list.encode())
            }
            Some(list) => Some(list.encode()),
            None => None,
        };
        change.xattrs.push((name.to_vec(), stored));
        self.store.set_attr(ino, &change)?;
        self.attributes_changed()
    }

    /// What the store is doing with a file, or whether something below a directory is not
    /// stored yet.
    fn state(&self, inode: &Inode, taken: &Taken) -> &'static str {
        if !self.store.lost(inode.ino).is_empty() {
            "lost"
        } else if self.is_settling(inode.ino) {
            "settling"
        } else if taken.writing {
            "writing"
        } else {
            at_rest(inode)
        }
    }

    fn settle_now(&self, caller: &Caller, ino: u64, value: &[u8]) -> Result<(), Error> {
        let inode = self.namespace().inode(ino)?;
        if value == b"cancel" {
            // The files below may be anybody's.
            if inode.is_dir() && !is_operator(caller) && caller.uid != inode.uid {
                return refused(libc::EPERM);
            }
            return self.cancel_settling(ino);
        }
        if !inode.is_file() {
            let reason = "only regular files settle; 'shale settle' goes through directories";
            return self.deny(ino, SETTLE_NOW, reason);
        }
        let request = match value {
            b"1" => Request::Settle,
            b"rewrite" => Request::Rewrite,
            _ => return self.deny(ino, SETTLE_NOW, "the value must be 1, rewrite or cancel"),
        };
        if self.has_writers(ino) {
            return refused(libc::EBUSY);
        }
        self.request_settle(ino, request);
        Ok(())
    }

    /// The value is the share of live bytes, in percent, below which a pack is rewritten.
    fn collect_now(&self, caller: &Caller, ino: u64, value: &[u8]) -> Result<(), Error> {
        if !is_operator(caller) {
            return refused(libc::EPERM);
        }
        let percent = std::str::from_utf8(value)
            .ok()
            .and_then(|text| text.parse().ok())
            .filter(|percent| (1..=100).contains(percent));
        match percent {
            Some(percent) => {
                self.store.collect(percent);
                Ok(())
            }
            None => self.deny(ino, GC_NOW, "the value must be a percentage, 1 to 100"),
        }
    }

    /// The virtual attributes that report about a file or a directory with all below it.
    fn report(&self, caller: &Caller, ino: u64, what: &[u8]) -> Result<Vec<u8>, Error> {
        let inode = self.namespace().inode(ino)?;
        if let Some(page) = what.strip_prefix(b"vars") {
            return self.variables(ino, page_number(page)?);
        }
        if OF_THE_MOUNT.contains(&what) && inode.is_dir() && !is_operator(caller) {
            return refused(libc::EPERM);
        }
        match what {
            b"live" if inode.is_dir() => return self.live(),
            b"damaged" if inode.is_dir() => return self.damaged(),
            _ => {}
        }
        let taken = if inode.is_dir() {
            self.store.taken_below(ino)?
        } else {
            self.store.taken(ino)?
        };
        let text = match what {
            b"raw" => taken.raw.to_string(),
            b"stored" => taken.stored.to_string(),
            b"stored_raw" => taken.stored_raw.to_string(),
            b"unwritten" => taken.unwritten.to_string(),
            b"files" => taken.files.to_string(),
            b"dirs" => taken.dirs.to_string(),
            b"ratio" if taken.stored > 0 => {
                format!("{:.3}", taken.stored_raw as f64 / taken.stored as f64)
            }
            b"ratio" => "1.000".to_owned(),
            b"state" => self.state(&inode, &taken).to_owned(),
            // So that long listings ask once for each name.
            b"all" => format!(
                "raw={}\tstored={}\tstored_raw={}\tunwritten={}\tfiles={}\tdirs={}\tstate={}",
                taken.raw,
                taken.stored,
                taken.stored_raw,
                taken.unwritten,
                taken.files,
                taken.dirs,
                self.state(&inode, &taken)
            ),
            b"lost" if inode.is_file() => self
                .store
                .lost(ino)
                .iter()
                .map(|range| format!("{}-{}", range.start, range.end))
                .collect::<Vec<_>>()
                .join(","),
            b"progress" if inode.is_file() => self.settled_so_far(ino).to_string(),
            b"outcome" if inode.is_file() => self.settle_outcome(ino).to_string(),
            b"queued" => self.asked_below(ino)?.to_string(),
            b"garbage" if inode.is_dir() => self.store.garbage().to_string(),
            b"frames_read" if inode.is_dir() => self.store.read_so_far().0.to_string(),
            b"bytes_read" if inode.is_dir() => self.store.read_so_far().1.to_string(),
            b"gc" if inode.is_dir() => match self.store.collecting() {
                Collecting::Running => "running",
                Collecting::Idle => "idle",
                Collecting::Failed => "failed",
            }
            .to_owned(),
            b"codecs" if inode.is_file() => self.store.codecs(ino)?,
            _ => return refused(libc::ENODATA),
        };
        Ok(text.into_bytes())
    }
}

/// Reports that tell what others do: they count it for the whole mount, and some name
/// files.
const OF_THE_MOUNT: [&[u8]; 6] = [
    b"live",
    b"damaged",
    b"gc",
    b"garbage",
    b"frames_read",
    b"bytes_read",
];

/// Whether a caller may watch and steer all of the mount: root and who mounted.
fn is_operator(caller: &Caller) -> bool {
    caller.uid == 0 || caller.uid == nix::unistd::geteuid().as_raw()
}

/// Nothing is the first page, `.N` the one from variable N on.
fn page_number(text: &[u8]) -> Result<usize, Error> {
    if text.is_empty() {
        return Ok(0);
    }
    let number = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.strip_prefix('.')?.parse().ok());
    number.map_or_else(|| refused(libc::ENODATA), Ok)
}

fn check_namespace(name: &[u8]) -> Result<(), Error> {
    let prefixes = [&b"user."[..], b"trusted.", b"security."];
    if prefixes.contains(&name) {
        return refused(libc::EINVAL);
    }
    let known = prefixes.iter().any(|prefix| name.starts_with(prefix));
    if known || name == acl::ACCESS || name == acl::DEFAULT {
        Ok(())
    } else {
        refused(libc::EOPNOTSUPP)
    }
}

/// Whether a caller is in a group, by its main group or by those that the system lists for its
/// process.
fn is_member(caller: &Caller, gid: u32) -> bool {
    if caller.gid == gid {
        return true;
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", caller.pid));
    status.is_ok_and(|status| {
        status
            .lines()
            .find_map(|line| line.strip_prefix("Groups:"))
            .is_some_and(|groups| groups.split_whitespace().any(|g| g.parse() == Ok(gid)))
    })
}

#[cfg(test)]
mod tests {
    use shale_store::index::ROOT;

    use super::*;
    use crate::fixture::file_system;

    #[test]
    fn a_request_that_makes_no_sense_is_not_obeyed() {
        let dir = tempfile::tempdir().unwrap();
        let fs = file_system(dir.path());
        let caller = Caller::default();
        let (_, handle) = fs.create(&caller, ROOT, b"file", 0o600, 0, true).unwrap();
        let ino = handle.ino();
        fs.release(handle);
        let set = |ino, name, value: &[u8]| {
            let result = fs.setxattr(&caller, ino, name, value, 0);
            result.map_err(|e| e.errno())
        };
        for value in [&b"nonsense"[..], b"", b"0", b"rewrite\n", b"\xff"] {
            assert_eq!(set(ino, SETTLE_NOW, value), Err(libc::EINVAL), "{value:?}");
        }
        assert!(!fs.is_settling(ino));
        assert_eq!(set(ROOT, SETTLE_NOW, b"1"), Err(libc::EINVAL));
        for value in [&b"nonsense"[..], b"", b"0", b"101"] {
            assert_eq!(set(ROOT, GC_NOW, value), Err(libc::EINVAL), "{value:?}");
        }
        for value in [&b"1"[..], b"rewrite"] {
            assert_eq!(set(ino, SETTLE_NOW, value), Ok(()), "{value:?}");
        }
        assert!(fs.is_settling(ino));
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
            above = fs.mkdir(&owner, above, name, 0o755, 0).unwrap().ino;
            let (_, handle) = fs.create(&owner, above, b"f", 0o600, 0, true).unwrap();
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
                assert_eq!(fs.is_settling(file), !cancelled);
                let outcome = if cancelled { "cancelled" } else { "done" };
                assert_eq!(fs.settle_outcome(file).to_string(), outcome);
            }
        }
        set(&owner, second, b"1").unwrap();
        assert_eq!(
            set(&other, second, b"cancel"),
            Ok(()),
            "the kernel has checked that"
        );
        assert_eq!((queued(ROOT), queued(second)), ("0".into(), "0".into()));
        // What was not asked for.
        assert_eq!(set(&owner, first, b"cancel"), Ok(()));
    }
}
