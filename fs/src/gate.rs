//! Makes the kernel ask before its write-back cache accepts a write, while room is short.
//!
//! Before a cached `write` the kernel needs the mode of the file. Where it takes the mode for
//! outdated, it asks for the attributes through the handle that is written to, and an error in
//! the answer becomes the result of `write`. An invalidation outdates the mode but leaves the
//! time for which attributes are good, and `read` and `lseek` look only at that. So while room is
//! short, attributes of files that are open for writing are not good at all, and every write asks;
//! what else asks is told apart by the call in which it waits ([`call`]).
//!
//! Where the daemon must not look at calls, attributes are good for a long time and are
//! invalidated again after each answer. What slips through between an answer and the next invalidation is covered: as much of the
//! device as the kernel may hold dirty is held for it ([`crate::dirty_limit`]).

mod call;

pub(crate) use call::Call;

use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use fuser::{INodeNo, Notifier};
use parking_lot::{Condvar, Mutex};

use crate::Fs;
use crate::fuse::forget_attr;

/// How long attributes are good while room is short.
const LONG: Duration = Duration::from_secs(3600);
/// Between an answer and the next invalidation: a program that writes small pieces need not ask
/// for each.
const PAUSE: Duration = Duration::from_millis(2);
/// Files of which it is remembered that their attributes are good for long.
const KNOWN_MAX: usize = 1 << 20;

/// Decides how long the kernel may trust attributes, and makes it ask.
pub(crate) struct WriteGate {
    fs: Arc<Fs>,
    notifier: Arc<OnceLock<Notifier>>,
    state: Mutex<State>,
    wake: Condvar,
    /// Calls of programs cannot be looked at.
    blind: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Files open for writing whose attributes the kernel has been told again.
    shown: HashSet<u64>,
    /// Files whose attributes are good for long: if the kernel asks through a handle, it is for
    /// a write.
    known: HashSet<u64>,
    /// Files that were made or emptied and for which nobody has asked yet. Their attributes are
    /// not good at all, so that already the first write asks.
    fresh: HashSet<u64>,
    changed: bool,
    stop: bool,
}

impl WriteGate {
    /// Starts the thread that invalidates.
    pub(crate) fn start(fs: Arc<Fs>, notifier: Arc<OnceLock<Notifier>>) -> io::Result<Arc<Self>> {
        let gate = Arc::new(Self {
            fs,
            notifier,
            state: Mutex::default(),
            wake: Condvar::new(),
            blind: AtomicBool::new(false),
        });
        let listener: Weak<Self> = Arc::downgrade(&gate);
        gate.fs.store().on_shortage(Box::new(move || {
            if let Some(gate) = listener.upgrade() {
                gate.state.lock().changed = true;
                gate.wake.notify_one();
            }
        }));
        let runner = Arc::clone(&gate);
        std::thread::Builder::new()
            .name("shale-gate".to_owned())
            .spawn(move || runner.run())?;
        Ok(gate)
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.wake.notify_one();
    }

    /// Whether the kernel has to ask.
    pub(crate) fn is_closed(&self) -> bool {
        self.fs.store().is_short_of_room()
    }

    /// How long attributes are good that the kernel is about to be told.
    pub(crate) fn ttl(&self, ino: u64, usual: Duration) -> Duration {
        if !self.is_closed() {
            return usual;
        }
        let writes = self.fs.has_writers(ino);
        if !self.blind.load(Ordering::SeqCst) {
            return if writes { Duration::ZERO } else { usual };
        }
        let mut state = self.state.lock();
        if state.known.len() >= KNOWN_MAX {
            state.known.clear();
        }
        state.known.insert(ino);
        if state.fresh.contains(&ino) {
            return Duration::ZERO;
        }
        if writes && state.shown.insert(ino) {
            self.wake.notify_one();
        }
        LONG
    }

    /// The same for a file that was just made or emptied, and is about to be written.
    pub(crate) fn ttl_of_new(&self, ino: u64, usual: Duration) -> Duration {
        if self.is_closed() {
            let mut state = self.state.lock();
            if state.fresh.len() >= KNOWN_MAX {
                state.fresh.clear();
            }
            state.fresh.insert(ino);
        }
        self.ttl(ino, usual)
    }

    /// A question has come through a handle that may write.
    pub(crate) fn asked(&self, ino: u64) {
        self.state.lock().fresh.remove(&ino);
    }

    /// A file is being opened for writing: its first write asks.
    pub(crate) fn opening(&self, ino: u64) {
        if self.is_closed() {
            forget_attr(&self.notifier, INodeNo(ino));
        }
    }

    /// What a thread is about to do that asks through a handle.
    pub(crate) fn call_of(&self, thread: u32) -> Call {
        let call = call::of(thread);
        if call == Call::Hidden {
            self.blind.store(true, Ordering::SeqCst);
        }
        call
    }

    /// Whether a question that came through a handle may be refused. Of a file that is not known
    /// it may come from `read` or `lseek`, and is answered as long as that does no harm.
    pub(crate) fn may_refuse(&self, ino: u64, call: Call) -> bool {
        matches!(call, Call::Write(_))
            || self.state.lock().known.contains(&ino)
            || !self.fs.store().covers_a_few()
    }

    /// Makes every writer ask, and the kernel send what it has accepted so far: whatever comes
    /// later without having been asked for comes from a mapping.
    fn tell_all(&self, shortage: u64) {
        for ino in self.fs.written_files() {
            if let Some(notifier) = self.notifier.get() {
                // Writes back and drops all of its cache. One that is gone has nothing to send.
                let _ = notifier.inval_inode(INodeNo(ino), 0, 0);
            }
        }
        self.fs.store().set_writers_told(shortage);
    }

    fn run(&self) {
        let mut was_closed = false;
        loop {
            let mut state = self.state.lock();
            while !state.stop && !state.changed && state.shown.is_empty() {
                self.wake.wait(&mut state);
            }
            if state.stop {
                return;
            }
            let changed = std::mem::take(&mut state.changed);
            let shortage = self.fs.store().shortage();
            let closed = self.is_closed();
            let stale: Vec<u64> = match (was_closed && !changed, closed) {
                (false, true) => {
                    drop(state);
                    self.tell_all(shortage);
                    Vec::new()
                }
                (true, true) => {
                    drop(state);
                    std::thread::sleep(PAUSE);
                    self.state.lock().shown.drain().collect()
                }
                (_, false) => {
                    state.shown.clear();
                    state.fresh.clear();
                    let known = state.known.drain().collect();
                    drop(state);
                    known
                }
            };
            was_closed = closed;
            for ino in stale {
                forget_attr(&self.notifier, INodeNo(ino));
            }
        }
    }
}
