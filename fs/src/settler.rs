//! The background pass: finds quiet files, understands them, settles them.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use shale_backing::{Priority, set_priority};
use shale_layout::ReadAt;
use shale_store::index::schema::{Phase, Time};
use shale_store::{File, SettleOptions, Settled, Store};

use crate::error::refused;
use crate::{Error, Fs, regions};

/// Nobody waits for it, and on a busy machine the lowest priority waits for long.
const PATIENT: shale_layout::Options = shale_layout::Options {
    budget: shale_layout::Budget {
        read_bytes: 64 << 20,
        time: Duration::from_secs(120),
        structure_bytes: 14 << 20,
    },
    growing: false,
};

/// How often it looks for quiet files.
const TICK: Duration = Duration::from_secs(1);
/// Loose files looked at in one go.
const BATCH: usize = 64;
/// How long a file is left alone after settling it failed.
const RETRY: Duration = Duration::from_secs(300);
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

/// What the thread is to do and does.
#[derive(Debug, Default)]
pub(crate) struct Control {
    state: Mutex<State>,
    wake: Condvar,
    /// Bytes that programs have read and written.
    traffic: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    stop: bool,
    requested: BTreeSet<u64>,
    current: Option<u64>,
}

impl Control {
    pub(crate) fn note_traffic(&self, bytes: usize) {
        self.traffic.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// What to do next, after a pause if there was nothing; `None` to end. A request is preferred
    /// to the list.
    fn next(&self, pause: bool) -> Option<Option<u64>> {
        let mut state = self.state.lock();
        if pause && !state.stop && state.requested.is_empty() {
            self.wake.wait_for(&mut state, TICK);
        }
        if state.stop {
            return None;
        }
        let ino = state.requested.pop_first();
        state.current = ino;
        Some(ino)
    }

    fn is_stopped(&self) -> bool {
        self.state.lock().stop
    }
}

impl Fs {
    /// Asks for a file to be settled soon.
    pub(crate) fn request_settle(&self, ino: u64) {
        self.settling.state.lock().requested.insert(ino);
        self.settling.wake.notify_all();
    }

    /// The file that is being settled, and how many were asked for.
    pub(crate) fn settling_now(&self) -> (Option<u64>, u64) {
        let state = self.settling.state.lock();
        (state.current, state.requested.len() as u64)
    }

    /// Whether a file is being settled or going to be because somebody asked for it.
    pub(crate) fn is_settling(&self, ino: u64) -> bool {
        let state = self.settling.state.lock();
        state.current == Some(ino) || state.requested.contains(&ino)
    }

    /// Starts the background pass.
    pub(crate) fn start_settling(self: &Arc<Self>, how: Settling) -> io::Result<JoinHandle<()>> {
        let fs = Arc::clone(self);
        std::thread::Builder::new()
            .name("shale-settle".to_owned())
            .spawn(move || work(&fs, &how))
    }

    pub(crate) fn stop_settling(&self) {
        self.settling.state.lock().stop = true;
        self.settling.wake.notify_all();
    }

    fn settle(&self, ino: u64, how: &Settling, requested: bool) -> Result<Settled, Error> {
        let file = self.store.file(ino)?;
        let result = self.settle_file(&file, how, requested);
        self.store.close(file);
        result
    }

    fn settle_file(
        &self,
        file: &Arc<File>,
        how: &Settling,
        requested: bool,
    ) -> Result<Settled, Error> {
        if requested {
            self.store.sync(file)?;
        }
        match self.namespace().inode(file.ino())?.phase {
            Phase::Settled | Phase::Hard => return Ok(Settled::default()),
            Phase::Fresh | Phase::Loose => {}
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
            done: AtomicU64::new(0),
            patient: !requested,
            seen: Mutex::new((
                Instant::now(),
                self.settling.traffic.load(Ordering::Relaxed),
            )),
        };
        let options = SettleOptions {
            workers: how.workers,
            force: false,
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
    done: AtomicU64,
    /// Wait for programs to be quiet.
    patient: bool,
    /// When it looked at the traffic last, and what that was.
    seen: Mutex<(Instant, u64)>,
}

impl Governor<'_> {
    /// Waits; `false` to end.
    fn pace(&self, bytes: u64) -> bool {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed);
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
        let now = (Instant::now(), self.control.traffic.load(Ordering::Relaxed));
        let then = std::mem::replace(&mut *self.seen.lock(), now);
        let seconds = (now.0 - then.0).as_secs_f64().max(1e-6);
        (now.1 - then.1) as f64 / seconds > BUSY_RATE
    }
}

fn work(fs: &Fs, how: &Settling) {
    set_priority(Priority::Idle);
    let mut failed: HashMap<u64, Instant> = HashMap::new();
    let mut cursor = 0;
    let mut pause = true;
    while let Some(requested) = fs.settling.next(pause) {
        if let Some(ino) = requested {
            attempt(fs, ino, how, true, &mut failed);
        } else if let Some(quiet) = how.quiet {
            let found = sweep(fs, how, quiet, &mut cursor, &mut failed);
            pause = !found && cursor == 0;
        }
        fs.settling.state.lock().current = None;
    }
}

/// Settles what is quiet among some loose files from `cursor` on, which is moved to where to go
/// on, or to 0 at the end of the list. Returns whether there was anything to settle.
fn sweep(
    fs: &Fs,
    how: &Settling,
    quiet: Duration,
    cursor: &mut u64,
    failed: &mut HashMap<u64, Instant>,
) -> bool {
    let batch = match fs.namespace().loose(*cursor, BATCH) {
        Ok(batch) => batch,
        Err(e) => {
            tracing::warn!("the list of files to settle cannot be read: {e}");
            *cursor = 0;
            return false;
        }
    };
    let mut found = false;
    failed.retain(|_, since| since.elapsed() < RETRY);
    for &ino in &batch {
        let waiting = !fs.settling.state.lock().requested.is_empty();
        if fs.settling.is_stopped() || waiting {
            *cursor = ino;
            return true;
        }
        if !failed.contains_key(&ino) && is_quiet(fs, ino, quiet) {
            fs.settling.state.lock().current = Some(ino);
            attempt(fs, ino, how, false, failed);
            found = true;
        }
    }
    *cursor = match batch.last() {
        Some(last) if batch.len() == BATCH => last + 1,
        _ => 0,
    };
    found
}

fn is_quiet(fs: &Fs, ino: u64, quiet: Duration) -> bool {
    let Ok(inode) = fs.namespace().inode(ino) else {
        return false;
    };
    // Programs cannot set this time.
    let age = Time::now().secs.saturating_sub(inode.ctime.secs);
    inode.nlink > 0
        && inode.phase == Phase::Loose
        && age >= quiet.as_secs() as i64
        && !fs.has_writers(ino)
        && !fs.store.is_dirty(ino)
}

fn attempt(fs: &Fs, ino: u64, how: &Settling, requested: bool, failed: &mut HashMap<u64, Instant>) {
    if fs.has_writers(ino) {
        return;
    }
    let settled = catch_unwind(AssertUnwindSafe(|| fs.settle(ino, how, requested)));
    let settled = settled.unwrap_or_else(|_| {
        tracing::error!(inode = ino, "settling panicked; please report this");
        refused(libc::EIO)
    });
    match settled {
        Ok(done) => {
            tracing::info!(inode = ino, ?done, "settled");
            let counters = &fs.counters.settle;
            counters.raw.add(done.raw);
            counters.before.add(done.before);
            counters.after.add(done.after);
            if done.stopped || done.void > 0 {
                counters.failed.one();
                failed.insert(ino, Instant::now());
            } else if done.hard {
                counters.hard.one();
            } else if done.raw > 0 {
                counters.files.one();
            }
        }
        Err(e) if e.errno() == libc::ENOENT => {}
        Err(e) => {
            tracing::warn!(inode = ino, "settling failed and is put off: {e}");
            fs.counters.settle.failed.one();
            failed.insert(ino, Instant::now());
        }
    }
}
