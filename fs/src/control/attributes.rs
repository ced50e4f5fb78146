//! Virtual attributes: reports about a file, a directory with all below it, or the mount.

use shale_index::Ino;
use shale_index::schema::Inode;
use shale_store::{GcState, Usage};

use super::requests::is_operator;
use crate::reports::at_rest;
use crate::{Caller, Error, Fs};

/// Prefix of the reports among the attributes that belong to ShaleFS.
const STAT: &[u8] = b"user.shale.stat.";
/// Explains the policies in effect.
const EFFECTIVE: &[u8] = b"user.shale.effective";

/// Reports about the whole mount. They reveal what other users do, and some name files.
const OF_THE_MOUNT: [&[u8]; 6] = [
    b"live",
    b"damaged",
    b"gc",
    b"garbage",
    b"frames_read",
    b"bytes_read",
];

impl Fs {
    /// The value of a virtual attribute; `None` when the name is not one.
    pub(crate) fn virtual_attribute(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
    ) -> Result<Option<Vec<u8>>, Error> {
        if let Some(report) = name.strip_prefix(STAT) {
            return self.report(caller, ino, report).map(Some);
        }
        if name == EFFECTIVE {
            return Ok(Some(self.policies.explain(&self.store, ino)?.into_bytes()));
        }
        Ok(None)
    }

    /// The virtual attributes that report about a file or a directory with all below it.
    fn report(&self, caller: &Caller, ino: Ino, what: &[u8]) -> Result<Vec<u8>, Error> {
        let inode = self.inode(ino)?;
        if let Some(page) = what.strip_prefix(b"vars") {
            return self
                .variable_reports
                .page(&self.store, ino, page_number(page)?);
        }
        if OF_THE_MOUNT.contains(&what) && inode.is_dir() && !is_operator(caller) {
            return Err(Error::NotPermitted);
        }
        match what {
            b"live" if inode.is_dir() => return self.snapshot_with_names(),
            b"damaged" if inode.is_dir() => return self.damaged(),
            _ => {}
        }
        let taken = if inode.is_dir() {
            self.store.usage_below(ino)?
        } else {
            self.store.usage(ino)?
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
            b"progress" if inode.is_file() => self.settling.progress(ino).to_string(),
            b"outcome" if inode.is_file() => self.settling.outcome(ino).to_string(),
            b"queued" => self.settles_asked_below(ino)?.to_string(),
            b"garbage" if inode.is_dir() => self.store.garbage().to_string(),
            b"frames_read" if inode.is_dir() => self.store.counters().pack_reads.get().to_string(),
            b"bytes_read" if inode.is_dir() => self.store.counters().pack_read.get().to_string(),
            b"gc" if inode.is_dir() => match self.store.gc_state() {
                GcState::Running => "running",
                GcState::Idle => "idle",
                GcState::Failed => "failed",
            }
            .to_owned(),
            b"codecs" if inode.is_file() => self.store.codecs(ino)?,
            _ => return Err(Error::NoAttribute),
        };
        Ok(text.into_bytes())
    }

    /// The state of a file, or whether data below a directory is not stored yet.
    fn state(&self, inode: &Inode, taken: &Usage) -> &'static str {
        if !self.store.lost(inode.ino).is_empty() {
            "lost"
        } else if self.settling.is_settling(inode.ino) {
            "settling"
        } else if taken.writing {
            "writing"
        } else {
            at_rest(inode)
        }
    }
}

/// The empty text is the first page, `.N` the one from variable N on.
fn page_number(text: &[u8]) -> Result<usize, Error> {
    if text.is_empty() {
        return Ok(0);
    }
    let number = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.strip_prefix('.')?.parse().ok());
    number.ok_or(Error::NoAttribute)
}
