//! The thread of the background pass: which file is next, and what became of it.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use shale_backing::{Priority, set_priority};
use shale_store::{File, SettleBatch, Settled};

use super::control::{Outcome, Request};
use super::{BATCH, Settling, is_gone, is_quiet};
use crate::error::refused;
use crate::state::is_incompressible;
use crate::{Error, Fs};

/// How long a file is left alone after settling it failed.
const RETRY: Duration = Duration::from_secs(300);
/// How often a file is tried that somebody has asked for.
pub(super) const ATTEMPTS: u32 = 8;
/// Others do not wait in their batch until a file of this size has been encoded.
const LARGE: u64 = 16 << 20;
/// A batch is committed after this time, however small it is.
const BATCH_AGE: Duration = Duration::from_millis(500);
/// A pack was not found where the file had something in it.
const GONE: Outcome = Outcome::Failed(libc::ENOENT);
/// After looking through all files, it rests so many times as long as that took.
const REST: u32 = 20;

/// The thread, between one file and the next.
pub(super) struct Sweeper<'a> {
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
    batch: Option<SettleBatch<'a>>,
    /// The files of the batch, in the same order.
    begun: Vec<(Attempt, Arc<File>)>,
    /// When the batch was begun.
    since: Instant,
}

/// A file that is being settled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    ino: u64,
    request: Option<Request>,
    /// How often it has been tried, with this time.
    count: u32,
}

pub(super) fn work(fs: &Fs, how: &Settling) {
    set_priority(Priority::Idle);
    let mut sweeper = Sweeper::new(fs, how);
    let mut pause = true;
    while let Some(requested) = fs.settling.next(pause) {
        pause = match requested {
            Some((ino, request)) => {
                sweeper.begin(ino, Some(request));
                false
            }
            // Nothing else is asked for at the moment.
            None if !sweeper.begun.is_empty() => {
                sweeper.finish(None);
                false
            }
            None if Instant::now() < sweeper.resume => true,
            None => !sweeper.sweep(),
        };
    }
    sweeper.finish(None);
}

impl<'a> Sweeper<'a> {
    pub(super) fn new(fs: &'a Fs, how: &'a Settling) -> Self {
        Self {
            fs,
            how,
            failed: HashMap::new(),
            cursor: 0,
            policies: 0,
            looked: Duration::ZERO,
            resume: Instant::now(),
            batch: None,
            begun: Vec::new(),
            since: Instant::now(),
        }
    }

    /// Settles what is quiet among some loose files. Returns whether there is more to do now.
    fn sweep(&mut self) -> bool {
        let more = self.look_through();
        self.finish(None);
        more
    }

    fn look_through(&mut self) -> bool {
        let fs = self.fs;
        if fs.store.check_writable().is_err() {
            // Nothing can be stored any more, and the log has said why.
            return false;
        }
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
                self.begin(ino, None);
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

    /// Begins with a file. What becomes of it shows when the batch is finished.
    pub(super) fn begin(&mut self, ino: u64, request: Option<Request>) {
        if !self.begun.is_empty() && self.is_large(ino) {
            self.finish(None);
        }
        let again = self.add(Attempt {
            ino,
            request,
            count: 1,
        });
        let full = self.batch.as_ref().is_some_and(SettleBatch::is_full);
        if again.is_some() || full || self.since.elapsed() >= BATCH_AGE {
            self.finish(again);
        }
    }

    fn is_large(&self, ino: u64) -> bool {
        let inode = self.fs.namespace().inode(ino);
        inode.is_ok_and(|inode| inode.size >= LARGE)
    }

    #[cfg(test)]
    pub(super) fn settle_now(&mut self, ino: u64, request: Request) {
        self.begin(ino, Some(request));
        self.finish(None);
    }

    /// Finishes the batch, and whatever has to be tried again.
    pub(super) fn finish(&mut self, again: Option<Attempt>) {
        let mut again: Vec<Attempt> = again.into_iter().collect();
        again.extend(self.commit());
        while let Some(attempt) = again.pop() {
            again.extend(self.add(attempt));
            again.extend(self.commit());
        }
    }

    /// Adds a file to the batch. Returns it if it has to be tried again.
    fn add(&mut self, attempt: Attempt) -> Option<Attempt> {
        let fs = self.fs;
        // The progress is counted from here on.
        fs.settling.begin(attempt.ino);
        if fs.settling.is_cancelled(attempt.ino) {
            return self.end(attempt, Outcome::Cancelled);
        }
        if fs.has_writers(attempt.ino) || fs.settling.is_stopped() {
            return self.end(attempt, Outcome::Busy);
        }
        match self.encode(attempt) {
            Ok(Some(file)) => {
                if self.begun.is_empty() {
                    self.since = Instant::now();
                }
                fs.settling.encoded(attempt.ino);
                self.begun.push((attempt, file));
                None
            }
            Ok(None) => self.end(attempt, Outcome::Done),
            Err(e) => {
                let outcome = self.judge(attempt.ino, Err(e));
                self.end(attempt, outcome)
            }
        }
    }

    /// Encodes a file; it is returned if it is in the batch.
    fn encode(&mut self, attempt: Attempt) -> Result<Option<Arc<File>>, Error> {
        let (fs, how) = (self.fs, self.how);
        let Attempt { ino, request, .. } = attempt;
        let file = fs.store.file(ino)?;
        let batch = self.batch.get_or_insert_with(|| fs.store.settle_batch());
        let add = AssertUnwindSafe(|| fs.add_to(batch, &file, how, request));
        let added = catch_unwind(add).unwrap_or_else(|_| {
            tracing::error!(
                inode = ino,
                "{}: settling panicked; please report this",
                fs.namespace().path(ino)
            );
            refused(libc::EIO)
        });
        if matches!(added, Ok(true)) {
            return Ok(Some(file));
        }
        self.give_back(file);
        added.map(|_| None)
    }

    fn give_back(&self, file: Arc<File>) {
        let ino = file.ino();
        self.fs.store.close(file);
        // What the kernel remembers of its chunks and blocks is not true any more.
        self.fs.settling.changed(ino);
    }

    /// Commits the batch; returns what has to be tried again.
    fn commit(&mut self) -> Vec<Attempt> {
        let begun = std::mem::take(&mut self.begun);
        let Some(batch) = self.batch.take() else {
            return Vec::new();
        };
        let commit = AssertUnwindSafe(|| batch.commit());
        let results: Vec<Result<Settled, Error>> = match catch_unwind(commit) {
            Ok(results) => results
                .into_iter()
                .map(|result| result.map_err(Error::from))
                .collect(),
            Err(_) => {
                tracing::error!("settling panicked; please report this");
                begun.iter().map(|_| refused(libc::EIO)).collect()
            }
        };
        let mut again = Vec::new();
        for ((attempt, file), result) in begun.into_iter().zip(results) {
            self.give_back(file);
            let outcome = self.judge(attempt.ino, result);
            again.extend(self.end(attempt, outcome));
        }
        again
    }

    /// Ends an attempt. Returns the next one if there is to be one.
    fn end(&mut self, attempt: Attempt, outcome: Outcome) -> Option<Attempt> {
        let fs = self.fs;
        let Attempt {
            ino,
            request,
            count,
        } = attempt;
        // What is void although nobody writes was moved by the collector, and so was what is
        // looked for in a pack that is gone.
        if matches!(outcome, Outcome::Busy | GONE)
            && request.is_some()
            && count < ATTEMPTS
            && !fs.has_writers(ino)
            && !fs.settling.is_stopped()
        {
            return Some(Attempt {
                count: count + 1,
                ..attempt
            });
        }
        let outcome = match outcome {
            GONE => Outcome::Failed(libc::EIO),
            other => other,
        };
        fs.settling.end(ino, request.map(|_| outcome));
        None
    }

    /// Counts what came of a file, and puts it off where it was not done.
    fn judge(&mut self, ino: u64, result: Result<Settled, Error>) -> Outcome {
        let fs = self.fs;
        let counters = &fs.counters.settle;
        match result {
            Ok(done) => {
                tracing::info!(inode = ino, ?done, "settled");
                counters.raw.add(done.raw);
                counters.before.add(done.before);
                counters.after.add(done.after);
                if done.stopped && fs.settling.is_cancelled(ino) {
                    return Outcome::Cancelled;
                }
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
                let known = matches!(&e, Error::Store(e) if e.is_known());
                if known || e.errno() == libc::ENOENT {
                    tracing::info!(
                        inode = ino,
                        "{}: settling is put off: {e}",
                        fs.namespace().path(ino)
                    );
                } else {
                    tracing::warn!(
                        inode = ino,
                        "{}: settling failed and is put off: {e}",
                        fs.namespace().path(ino)
                    );
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
