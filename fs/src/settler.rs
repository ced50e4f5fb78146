//! The background pass: finds quiet files, understands them, settles them.

mod control;
mod sweeper;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shale_layout::ReadAt;
use shale_store::index::schema::{Phase, Time};
use shale_store::{File, SettleBatch, SettleOptions, Store, tried};

use crate::error::refused;
use crate::{Error, Fs, regions};

pub(crate) use control::{Control, Request};

/// Nobody waits for it, and on a busy machine the lowest priority waits for long.
const PATIENT: shale_layout::Options = shale_layout::Options {
    budget: shale_layout::Budget {
        read_bytes: 64 << 20,
        time: Duration::from_secs(120),
        structure_bytes: 14 << 20,
    },
    growing: false,
};

/// Loose files looked at in one go.
const BATCH: usize = 64;
/// Programs that move more than so many bytes per second go first.
const BUSY_RATE: f64 = 20e6;
/// How long to wait before looking again.
const LOOK: Duration = Duration::from_millis(50);
/// However busy the others are, it goes on after this time.
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// How files are settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settling {
    /// Age of the last change from which on a file is quiet; `None` to settle only on request.
    pub quiet: Option<Duration>,
    /// Raw bytes per second at most.
    pub rate: u64,
    /// Workers that encode.
    pub workers: usize,
}

impl Fs {
    /// Starts the background pass.
    pub(crate) fn start_settling(self: &Arc<Self>, how: Settling) -> io::Result<JoinHandle<()>> {
        let fs = Arc::clone(self);
        std::thread::Builder::new()
            .name("shale-settle".to_owned())
            .spawn(move || sweeper::work(&fs, &how))
    }

    /// Encodes a file for a batch; `false` when there is nothing to do.
    fn add_to(
        &self,
        batch: &mut SettleBatch<'_>,
        file: &Arc<File>,
        how: &Settling,
        request: Option<Request>,
    ) -> Result<bool, Error> {
        if request.is_some() && self.store.is_dirty(file.ino()) {
            self.store.sync(file)?;
        }
        #[cfg(test)]
        self.settling.fall_into_trap();
        let inode = self.namespace().inode(file.ino())?;
        let policy = self.policy_of(&inode)?;
        let rewrite = request == Some(Request::Rewrite);
        match inode.phase {
            _ if rewrite => {}
            Phase::Settled => return Ok(false),
            Phase::Hard(with) if with == tried(policy.settle) => return Ok(false),
            Phase::Hard(_) | Phase::Fresh | Phase::Loose => {}
        }
        if rewrite && !self.store.set_chunk(file, policy.chunk_shift)? {
            // It is being written again.
            return refused(libc::EBUSY);
        }
        let source = Source {
            store: &self.store,
            file,
        };
        let layout = shale_layout::parse(&source, &PATIENT);
        let governor = Governor {
            control: &self.settling,
            ino: file.ino(),
            rate: how.rate,
            patient: request.is_none(),
            seen: Mutex::new((Instant::now(), self.settling.traffic())),
        };
        let options = SettleOptions {
            workers: how.workers,
            effort: policy.settle,
            force: rewrite,
            anew: rewrite,
            pace: &|bytes| governor.pace(bytes),
        };
        batch.add(file, &regions::of(&layout), &options)?;
        Ok(true)
    }
}

/// A file of the store as the parsers read it.
pub(crate) struct Source<'a> {
    pub(crate) store: &'a Store,
    pub(crate) file: &'a Arc<File>,
}

impl ReadAt for Source<'_> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut out = Vec::new();
        self.store
            .read(self.file, offset, buf.len(), &mut out)
            .map_err(|e| io::Error::from_raw_os_error(e.errno()))?;
        buf[..out.len()].copy_from_slice(&out);
        Ok(out.len())
    }

    fn len(&self) -> u64 {
        self.file.size()
    }
}

/// Lets programs go first and keeps to the rate.
struct Governor<'a> {
    control: &'a Control,
    ino: u64,
    rate: u64,
    /// Wait for programs to be quiet.
    patient: bool,
    /// When it looked at the traffic last, and what that was.
    seen: Mutex<(Instant, u64)>,
}

impl Governor<'_> {
    /// Waits; `false` to end.
    fn pace(&self, bytes: u64) -> bool {
        let due = self.control.schedule(bytes, self.rate);
        loop {
            let wait = due.saturating_duration_since(Instant::now());
            if wait.is_zero() || self.control.is_over(self.ino) {
                break;
            }
            std::thread::sleep(wait.min(LOOK));
        }
        let begun = Instant::now();
        while self.patient && self.is_busy() && begun.elapsed() < MAX_PAUSE {
            if self.control.is_over(self.ino) {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        !self.control.is_over(self.ino)
    }

    /// Whether programs have moved a lot since the last look.
    fn is_busy(&self) -> bool {
        let now = (Instant::now(), self.control.traffic());
        let then = std::mem::replace(&mut *self.seen.lock(), now);
        let seconds = (now.0 - then.0).as_secs_f64().max(1e-6);
        (now.1 - then.1) as f64 / seconds > BUSY_RATE
    }
}

impl Fs {
    /// Puts those hard files among the loose ones that would be settled otherwise than it was
    /// tried.
    fn loosen_hard(&self) -> Result<(), Error> {
        let mut from = 0;
        loop {
            let batch = self.namespace().hard(from, BATCH)?;
            for &ino in &batch {
                if self.settling.is_stopped() {
                    return Ok(());
                }
                let Ok(inode) = self.namespace().inode(ino) else {
                    continue;
                };
                let settle = self.policy_of(&inode)?.settle;
                if matches!(inode.phase, Phase::Hard(with) if with != tried(settle)) {
                    let file = self.store.file(ino)?;
                    let loosened = self.store.loosen(&file);
                    self.store.close(file);
                    loosened?;
                }
            }
            match batch.last() {
                Some(last) if batch.len() == BATCH => from = last + 1,
                _ => return Ok(()),
            }
        }
    }
}

/// Whether a file has lost its last name, and not only a pack.
fn is_gone(fs: &Fs, ino: u64) -> bool {
    match fs.namespace().inode(ino) {
        Ok(inode) => inode.nlink == 0,
        Err(e) => e.errno() == libc::ENOENT,
    }
}

fn is_quiet(fs: &Fs, ino: u64) -> bool {
    let Ok(inode) = fs.namespace().inode(ino) else {
        return false;
    };
    if inode.nlink == 0 || inode.phase != Phase::Loose {
        return false;
    }
    let Ok(Some(quiet)) = fs.policy_of(&inode).map(|policy| policy.quiet) else {
        return false;
    };
    // Programs cannot set this time.
    let age = Time::now().secs.saturating_sub(inode.ctime.secs);
    age >= quiet.as_secs() as i64 && !fs.has_writers(ino) && !fs.store.is_dirty(ino)
}
