//! The background pass: finds quiet files, understands them, settles them.

mod control;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shale_backing::{Priority, set_priority};
use shale_layout::ReadAt;
use shale_store::index::schema::{Inode, Phase, Time};
use shale_store::{File, SettleOptions, Settled, Store, tried};

use crate::error::refused;
use crate::{Error, Fs, regions};

pub(crate) use control::{Control, Outcome, Request};

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
/// How long a file is left alone after settling it failed.
const RETRY: Duration = Duration::from_secs(300);
/// How often a file is tried that somebody has asked for.
const ATTEMPTS: u32 = 8;
/// Programs that move more than so many bytes per second go first.
const BUSY_RATE: f64 = 20e6;
/// How long to wait before looking again.
const LOOK: Duration = Duration::from_millis(50);
/// However busy the others are, it goes on after this time.
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// A pack was not found where the file had something in it.
const GONE: Outcome = Outcome::Failed(libc::ENOENT);
/// After looking through all files, it rests so many times as long as that took.
const REST: u32 = 20;

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
            .spawn(move || work(&fs, &how))
    }

    fn settle(&self, ino: u64, how: &Settling, request: Option<Request>) -> Result<Settled, Error> {
        let file = self.store.file(ino)?;
        let settle = AssertUnwindSafe(|| self.settle_file(&file, how, request));
        let result = catch_unwind(settle).unwrap_or_else(|_| {
            tracing::error!(inode = ino, "settling panicked; please report this");
            refused(libc::EIO)
        });
        self.store.close(file);
        // What the kernel remembers of its chunks and blocks is not true any more.
        self.settling.changed(ino);
        result
    }

    fn settle_file(
        &self,
        file: &Arc<File>,
        how: &Settling,
        request: Option<Request>,
    ) -> Result<Settled, Error> {
        if request.is_some() {
            self.store.sync(file)?;
        }
        #[cfg(test)]
        self.settling.fall_into_trap();
        let inode = self.namespace().inode(file.ino())?;
        let policy = self.policy_of(&inode)?;
        let rewrite = request == Some(Request::Rewrite);
        match inode.phase {
            _ if rewrite => {}
            Phase::Settled => return Ok(Settled::default()),
            Phase::Hard(with) if with == tried(policy.settle) => return Ok(Settled::default()),
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
            rate: how.rate,
            begun: Instant::now(),
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
        Ok(self.store.settle(file, &regions::of(&layout), &options)?)
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
    rate: u64,
    begun: Instant,
    /// Wait for programs to be quiet.
    patient: bool,
    /// When it looked at the traffic last, and what that was.
    seen: Mutex<(Instant, u64)>,
}

impl Governor<'_> {
    /// Waits; `false` to end.
    fn pace(&self, bytes: u64) -> bool {
        let done = self.control.progress(bytes);
        let due = Duration::from_secs_f64(done as f64 / self.rate.max(1) as f64);
        while self.begun.elapsed() < due && !self.control.is_stopped() {
            std::thread::sleep((due - self.begun.elapsed().min(due)).min(LOOK));
        }
        let begun = Instant::now();
        while self.patient && self.is_busy() && begun.elapsed() < MAX_PAUSE {
            if self.control.is_stopped() {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        !self.control.is_stopped()
    }

    /// Whether programs have moved a lot since the last look.
    fn is_busy(&self) -> bool {
        let now = (Instant::now(), self.control.traffic());
        let then = std::mem::replace(&mut *self.seen.lock(), now);
        let seconds = (now.0 - then.0).as_secs_f64().max(1e-6);
        (now.1 - then.1) as f64 / seconds > BUSY_RATE
    }
}

/// The thread, between one file and the next.
struct Sweeper<'a> {
    fs: &'a Fs,
    how: &'a Settling,
    failed: HashMap<u64, Instant>,
    /// Where to go on among the loose files; 0 at the end of the list.
    cursor: u64,
    /// The generation of the policies in which the hard files were looked through.
    policies: u64,
    /// Time that looking through the lists has taken since they were begun.
    looked: Duration,
    /// When to begin them again.
    resume: Instant,
}

fn work(fs: &Fs, how: &Settling) {
    set_priority(Priority::Idle);
    let mut sweeper = Sweeper::new(fs, how);
    let mut pause = true;
    while let Some(requested) = fs.settling.next(pause) {
        pause = match requested {
            Some((ino, request)) => {
                sweeper.attempt(ino, Some(request));
                false
            }
            None if Instant::now() < sweeper.resume => true,
            None => !sweeper.sweep(),
        };
        fs.settling.rest();
    }
}

impl<'a> Sweeper<'a> {
    fn new(fs: &'a Fs, how: &'a Settling) -> Self {
        Self {
            fs,
            how,
            failed: HashMap::new(),
            cursor: 0,
            policies: 0,
            looked: Duration::ZERO,
            resume: Instant::now(),
        }
    }

    /// Settles what is quiet among some loose files. Returns whether there is more to do now.
    fn sweep(&mut self) -> bool {
        let fs = self.fs;
        let batch = match fs.namespace().loose(self.cursor, BATCH) {
            Ok(batch) => batch,
            Err(e) => {
                tracing::warn!("the list of files to settle cannot be read: {e}");
                self.cursor = 0;
                return false;
            }
        };
        let mut found = false;
        self.failed.retain(|_, since| since.elapsed() < RETRY);
        for &ino in &batch {
            if fs.settling.is_stopped() || fs.settling.is_asked() {
                self.cursor = ino;
                return true;
            }
            let begun = Instant::now();
            let quiet = !self.failed.contains_key(&ino) && is_quiet(fs, ino);
            self.looked += begun.elapsed();
            if quiet {
                self.attempt(ino, None);
                found = true;
            }
        }
        if let Some(last) = batch.last().filter(|_| batch.len() == BATCH) {
            self.cursor = last + 1;
            return true;
        }
        self.cursor = 0;
        self.loosen_hard();
        self.resume = Instant::now() + std::mem::take(&mut self.looked) * REST;
        found
    }

    /// Files that were not worth settling may be so under another policy.
    fn loosen_hard(&mut self) {
        let generation = self.fs.policies.generation();
        if self.policies == generation {
            return;
        }
        let begun = Instant::now();
        match self.fs.loosen_hard() {
            Ok(()) => self.policies = generation,
            Err(e) => tracing::warn!("files that are not settled cannot be looked through: {e}"),
        }
        self.looked += begun.elapsed();
    }

    fn attempt(&mut self, ino: u64, request: Option<Request>) {
        let fs = self.fs;
        let mut outcome = Outcome::Busy;
        for _ in 0..if request.is_some() { ATTEMPTS } else { 1 } {
            // What is void although nobody writes was moved by the collector, and so was what is
            // looked for in a pack that is gone.
            let again = matches!(outcome, Outcome::Busy | GONE);
            if !again || fs.has_writers(ino) || fs.settling.is_stopped() {
                break;
            }
            // The rate is kept from here on.
            fs.settling.begin(ino);
            outcome = self.settle(ino, request);
        }
        if outcome == GONE {
            outcome = Outcome::Failed(libc::EIO);
        }
        if request.is_some() {
            fs.settling.note(ino, outcome);
        }
    }

    fn settle(&mut self, ino: u64, request: Option<Request>) -> Outcome {
        let fs = self.fs;
        let counters = &fs.counters.settle;
        match fs.settle(ino, self.how, request) {
            Ok(done) => {
                tracing::info!(inode = ino, ?done, "settled");
                counters.raw.add(done.raw);
                counters.before.add(done.before);
                counters.after.add(done.after);
                if done.stopped || done.void > 0 || done.changed {
                    counters.failed.one();
                    self.failed.insert(ino, Instant::now());
                    return if done.stopped && !fs.settling.is_stopped() {
                        Outcome::Failed(libc::ENOSPC)
                    } else {
                        Outcome::Busy
                    };
                }
                if done.hard {
                    let inode = fs.namespace().inode(ino);
                    if inode.is_ok_and(|inode| is_incompressible(&inode)) {
                        counters.incompressible.one();
                    } else {
                        counters.compact.one();
                    }
                } else if done.raw > 0 {
                    counters.files.one();
                }
                Outcome::Done
            }
            Err(e) if e.errno() == libc::ENOENT && is_gone(fs, ino) => Outcome::Done,
            Err(e) => {
                if let Error::Store(e) = &e {
                    fs.store.note_damage(e);
                }
                // The collector may have moved what was just being read: nothing is wrong with it.
                if e.errno() == libc::ENOENT {
                    tracing::info!(inode = ino, "settling is put off: {e}");
                } else {
                    tracing::warn!(inode = ino, "settling failed and is put off: {e}");
                }
                counters.failed.one();
                self.failed.insert(ino, Instant::now());
                match e.errno() {
                    libc::EBUSY => Outcome::Busy,
                    errno => Outcome::Failed(errno),
                }
            }
        }
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

/// Whether a file that settling would not make smaller takes about as much as it holds: its ratio
/// is below 1.02.
pub(crate) fn is_incompressible(inode: &Inode) -> bool {
    u128::from(inode.size) * 100 < u128::from(inode.stored) * 102
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
