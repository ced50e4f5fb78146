//! The thread of the background pass: the next file, and the result.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use shale_backing::failpoint::{Stage, reach_in};
use shale_backing::{Priority, set_priority};
use shale_index::Ino;
use shale_index::schema::{Phase, Time};
use shale_store::{File, SettleBatch, SettleOptions, Settled, codec_tag};

use super::Settling;
use super::governor::Governor;
use crate::layout::{Source, regions};
use crate::reports::is_incompressible;
use crate::settle_control::{SettleOutcome, SettleRequest};
use crate::{Error, Fs};

/// Budget of a parser. No program waits for it, and on a busy machine the lowest priority waits for
/// long.
const PATIENT: shale_layout::ParseOptions = shale_layout::ParseOptions {
    budget: shale_layout::ParseBudget {
        read_bytes: 64 << 20,
        time: Duration::from_secs(120),
        structure_bytes: 14 << 20,
    },
    growing: false,
};
/// Files of a list that are examined in one go.
const BATCH: usize = 64;
/// How long a file is left alone after settling it failed.
const RETRY: Duration = Duration::from_secs(300);
/// Attempts to settle a file on request.
pub(super) const ATTEMPTS: u32 = 8;
/// Smaller files do not wait in their batch until a file of this size has been encoded.
const LARGE: u64 = 16 << 20;
/// A batch is committed after this time, however small it is.
const BATCH_AGE: Duration = Duration::from_millis(500);
/// After looking through all files, the thread rests this many times as long as that took.
const REST: u32 = 20;

/// The thread, between one file and the next.
pub(super) struct Sweeper<'a> {
    fs: &'a Fs,
    how: &'a Settling,
    failed: HashMap<Ino, Instant>,
    /// Where to continue in the list of files to settle; 0 at its end.
    cursor: u64,
    /// The generation of the policies in which the incompressible files were last examined.
    policies: u64,
    /// Time spent on the lists since they were begun.
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
    ino: Ino,
    request: Option<SettleRequest>,
    /// How often it has been tried, with this time.
    count: u32,
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

    /// Works until the mount ends.
    pub(super) fn run(mut self) {
        set_priority(Priority::Idle);
        let mut pause = true;
        while let Some(requested) = self.fs.settling.next(pause) {
            pause = match requested {
                Some((ino, request)) => {
                    self.begin(ino, Some(request));
                    false
                }
                // No more requests at the moment.
                None if !self.begun.is_empty() => {
                    self.finish(None);
                    false
                }
                None if Instant::now() < self.resume => true,
                None => !self.sweep(),
            };
        }
        self.finish(None);
    }

    /// Settles the quiet files among some listed ones. Returns whether there is more to do now.
    fn sweep(&mut self) -> bool {
        let more = self.look_through();
        self.finish(None);
        more
    }

    fn look_through(&mut self) -> bool {
        let fs = self.fs;
        if fs.store.check_writable().is_err() {
            // Nothing can be stored any more. The log has the reason.
            return false;
        }
        let batch = match fs.store.stored_files(self.cursor, BATCH) {
            Ok(batch) => batch,
            Err(e) => {
                tracing::warn!(
                    "cannot list the files to settle, retrying in a second: {e}; if it keeps failing, \
                     run 'shale doctor'"
                );
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
            let quiet = !self.failed.contains_key(&ino) && self.is_quiet(ino);
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
        self.retry_incompressible();
        self.resume = Instant::now() + std::mem::take(&mut self.looked) * REST;
        found
    }

    /// Files that were not worth settling may be so under another policy.
    fn retry_incompressible(&mut self) {
        let generation = self.fs.policies.generation();
        if self.policies == generation {
            return;
        }
        let begun = Instant::now();
        match self.loosen_by_policy() {
            Ok(()) => self.policies = generation,
            Err(e) => tracing::warn!(
                "cannot apply the changed policies to incompressible files, retrying in a second: \
                 {e}; if it keeps failing, run 'shale doctor'"
            ),
        }
        self.looked += begun.elapsed();
    }

    /// Begins with a file. The result is known when the batch is finished.
    pub(super) fn begin(&mut self, ino: Ino, request: Option<SettleRequest>) {
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

    fn is_large(&self, ino: Ino) -> bool {
        let inode = self.fs.inode(ino);
        inode.is_ok_and(|inode| inode.size >= LARGE)
    }

    #[cfg(test)]
    pub(super) fn settle_now(&mut self, ino: Ino, request: SettleRequest) {
        self.begin(ino, Some(request));
        self.finish(None);
    }

    /// Finishes the batch, and retries what has to be retried.
    pub(super) fn finish(&mut self, again: Option<Attempt>) {
        let mut again: Vec<Attempt> = again.into_iter().collect();
        again.extend(self.commit());
        while let Some(attempt) = again.pop() {
            again.extend(self.add(attempt));
            again.extend(self.commit());
        }
    }

    /// Adds a file to the batch. Returns it if it has to be retried.
    fn add(&mut self, attempt: Attempt) -> Option<Attempt> {
        let fs = self.fs;
        // The progress is counted from here on.
        fs.settling.begin(attempt.ino);
        if fs.settling.is_cancelled(attempt.ino) {
            return self.end(attempt, SettleOutcome::Cancelled);
        }
        if fs.has_writers(attempt.ino) || fs.settling.is_stopped() {
            return self.end(attempt, SettleOutcome::Busy);
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
            Ok(None) => self.end(attempt, SettleOutcome::Done),
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
        let add = AssertUnwindSafe(|| add_to(fs, batch, &file, how, request));
        let added = catch_unwind(add).unwrap_or_else(|_| {
            tracing::error!(
                inode = ino,
                "{}: settling panicked, the file stays as it is; please report this with the log",
                fs.path(ino)
            );
            Err(Error::Panicked)
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
        // The kernel remembers chunks and blocks that have changed.
        self.fs.settling.changed(ino);
    }

    /// Commits the batch; returns the files that have to be retried.
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
                tracing::error!(
                    "settling panicked, the files stay as they are; please report this with the log"
                );
                begun.iter().map(|_| Err(Error::Panicked)).collect()
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

    /// Ends an attempt. Returns the next attempt, if any.
    fn end(&mut self, attempt: Attempt, outcome: SettleOutcome) -> Option<Attempt> {
        let fs = self.fs;
        let Attempt {
            ino,
            request,
            count,
        } = attempt;
        // Without writers, gc has moved the data that was settled in vain or is in a missing pack.
        if matches!(outcome, SettleOutcome::Busy | SettleOutcome::Moved)
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
        fs.settling.end(ino, request.map(|_| outcome));
        None
    }

    /// Counts the result for a file, and postpones it if it was not done.
    fn judge(&mut self, ino: Ino, result: Result<Settled, Error>) -> SettleOutcome {
        let fs = self.fs;
        let counters = &fs.counters.settle;
        match result {
            Ok(done) => {
                tracing::info!(inode = ino, ?done, "settled");
                counters.raw.add(done.raw);
                counters.before.add(done.before);
                counters.after.add(done.after);
                if done.stopped && fs.settling.is_cancelled(ino) {
                    return SettleOutcome::Cancelled;
                }
                if done.stopped || done.void > 0 || done.changed {
                    counters.failed.one();
                    self.failed.insert(ino, Instant::now());
                    return if done.stopped && !fs.settling.is_stopped() {
                        SettleOutcome::NoSpace
                    } else {
                        SettleOutcome::Busy
                    };
                }
                if done.incompressible {
                    let inode = fs.inode(ino);
                    if inode.is_ok_and(|inode| is_incompressible(&inode)) {
                        counters.incompressible.one();
                    } else {
                        counters.compact.one();
                    }
                } else if done.raw > 0 {
                    counters.files.one();
                }
                SettleOutcome::Done
            }
            Err(e) if e.is_missing() => SettleOutcome::Done,
            Err(e) if e.is_pack_gone() && self.is_deleted(ino) => SettleOutcome::Done,
            Err(e) => {
                if let Error::Store(e) = &e {
                    fs.store.note_damage(e);
                }
                let retry = RETRY.as_secs() / 60;
                let path = fs.path(ino);
                let known = matches!(&e, Error::Store(e) if e.is_known());
                // gc has deleted a pack meanwhile: no reason to worry.
                if known || e.is_pack_gone() {
                    tracing::info!(
                        inode = ino,
                        "{path}: settling postponed, retrying in {retry} minutes: {e}"
                    );
                } else {
                    tracing::warn!(
                        inode = ino,
                        "{path}: settling failed, retrying in {retry} minutes: {e}; if it keeps \
                         failing, run 'shale doctor'"
                    );
                }
                counters.failed.one();
                self.failed.insert(ino, Instant::now());
                match e {
                    Error::BeingWritten => SettleOutcome::Busy,
                    e if e.is_pack_gone() => SettleOutcome::Moved,
                    e => SettleOutcome::Failed(e.errno()),
                }
            }
        }
    }

    /// Whether a file has lost its last name, and not only a pack.
    fn is_deleted(&self, ino: Ino) -> bool {
        match self.fs.inode(ino) {
            Ok(inode) => inode.nlink == 0,
            Err(e) => e.is_missing(),
        }
    }

    fn is_quiet(&self, ino: Ino) -> bool {
        let fs = self.fs;
        let Ok(inode) = fs.inode(ino) else {
            return false;
        };
        if inode.nlink == 0 || inode.phase != Phase::Stored {
            return false;
        }
        let Ok(Some(quiet)) = fs.policy_of(&inode).map(|policy| policy.quiet) else {
            return false;
        };
        // Programs cannot set this time.
        // single-node: this clock has set it, and all writers are known here.
        let age = Time::now().secs.saturating_sub(inode.ctime.secs);
        age >= quiet.as_secs() as i64 && !fs.has_writers(ino) && !fs.store.is_dirty(ino)
    }

    /// Lists incompressible files to be settled again where the policy asks for another codec than
    /// the one that was tried.
    fn loosen_by_policy(&self) -> Result<(), Error> {
        let fs = self.fs;
        let mut from = 0;
        loop {
            let batch = fs.store.incompressible_files(from, BATCH)?;
            for &ino in &batch {
                if fs.settling.is_stopped() {
                    return Ok(());
                }
                let Ok(inode) = fs.inode(ino) else {
                    continue;
                };
                let settle = fs.policy_of(&inode)?.settle;
                if matches!(inode.phase, Phase::Incompressible(with) if with != codec_tag(settle)) {
                    let file = fs.store.file(ino)?;
                    let loosened = fs.store.loosen(&file);
                    fs.store.close(file);
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

/// Encodes a file for a batch; `false` when there is nothing to do.
fn add_to(
    fs: &Fs,
    batch: &mut SettleBatch<'_>,
    file: &Arc<File>,
    how: &Settling,
    request: Option<SettleRequest>,
) -> Result<bool, Error> {
    let ino = file.ino();
    if request.is_some() && fs.store.is_dirty(ino) {
        fs.store.sync(file)?;
    }
    reach_in(Stage::SettleBegins, &fs.store.path());
    let inode = fs.inode(ino)?;
    let policy = fs.policy_of(&inode)?;
    let rewrite = request == Some(SettleRequest::Rewrite);
    match inode.phase {
        _ if rewrite => {}
        Phase::Settled => return Ok(false),
        Phase::Incompressible(with) if with == codec_tag(policy.settle) => return Ok(false),
        Phase::Incompressible(_) | Phase::New | Phase::Stored => {}
    }
    if rewrite && !fs.store.set_chunk(file, policy.chunk_shift)? {
        return Err(Error::BeingWritten);
    }
    let layout = shale_layout::parse(&Source::new(&fs.store, file), &PATIENT);
    let patient = request.is_none();
    let governor = Governor::new(&fs.settling, &fs.counters, ino, how.rate, patient);
    let options = SettleOptions {
        workers: how.workers,
        effort: policy.settle,
        force: rewrite,
        rewrite,
        pace: &|bytes| governor.pace(bytes),
    };
    batch.add(file, &regions(&layout), &options)?;
    Ok(true)
}
