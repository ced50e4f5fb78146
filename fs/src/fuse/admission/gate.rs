//! Makes the kernel ask before its write-back cache accepts a write, while room is short.
//!
//! Before a cached `write` the kernel needs the mode of the file. If it considers the mode
//! outdated, it asks for the attributes through the handle that is written to, and an error in the
//! answer becomes the result of `write`. An invalidation outdates the mode but leaves the time for
//! which attributes are valid, and `read` and `lseek` check only that. So while room is short,
//! attributes of files that are open for writing have no validity at all, and every write asks.
//! Other calls ask too; [`call`] tells them apart by the call in which the thread waits.
//!
//! If the daemon is not allowed to look at calls, attributes are valid for a long time and are
//! invalidated again after each answer. Writes between an answer and the next invalidation are
//! covered: the store holds as much of the device as the kernel may hold dirty
//! ([`super::dirty_limit`]).

use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use shale_index::Ino;

use shale_store::Asked;

use super::call::{self, Call};
use crate::fuse::coherence::KernelCaches;
use crate::fuse::handles::HandleRef;
use crate::{Error, Fs};

/// How long attributes are valid while room is short.
const LONG: Duration = Duration::from_secs(3600);
/// Between an answer and the next invalidation: a program that writes small pieces need not ask for
/// each.
const PAUSE: Duration = Duration::from_millis(2);
/// Most files remembered as having attributes with a long validity.
const KNOWN_MAX: usize = 1 << 20;

/// Decides how long the kernel may trust attributes, and makes it ask.
pub(in crate::fuse) struct WriteGate {
    fs: Arc<Fs>,
    caches: Arc<KernelCaches>,
    state: Mutex<State>,
    wake: Condvar,
    /// The daemon is not allowed to look at the calls of programs.
    blind: AtomicBool,
}

/// A request for attributes that may precede a write into the kernel's cache.
pub(in crate::fuse) struct Question {
    handle: HandleRef,
    asked: Asked,
    call: Call,
}

#[derive(Default)]
struct State {
    /// Files open for writing whose attributes the kernel has received again.
    shown: HashSet<Ino>,
    /// Files whose attributes have a long validity: if the kernel asks through a handle, it is for
    /// a write.
    known: HashSet<Ino>,
    /// Files that were created or emptied and for which no question has come yet. Their attributes
    /// have no validity, so that even the first write asks.
    fresh: HashSet<Ino>,
    changed: bool,
    stop: bool,
}

impl WriteGate {
    /// Starts the thread that invalidates.
    pub(in crate::fuse) fn start(fs: Arc<Fs>, caches: Arc<KernelCaches>) -> io::Result<Arc<Self>> {
        let gate = Arc::new(Self {
            fs,
            caches,
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
    pub(in crate::fuse) fn stop(&self) {
        self.state.lock().stop = true;
        self.wake.notify_one();
    }

    /// Whether the kernel has to ask.
    pub(in crate::fuse) fn is_closed(&self) -> bool {
        self.fs.store().is_short_of_room()
    }

    /// How long the attributes that the kernel is about to get are valid.
    pub(in crate::fuse) fn ttl(&self, ino: Ino, usual: Duration) -> Duration {
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

    /// The same for a file that was just created or emptied, and is about to be written.
    pub(in crate::fuse) fn ttl_of_new(&self, ino: Ino, usual: Duration) -> Duration {
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
    fn asked(&self, ino: Ino) {
        self.state.lock().fresh.remove(&ino);
    }

    /// A file is being opened for writing: its first write asks.
    pub(in crate::fuse) fn opening(&self, ino: Ino) {
        if self.is_closed() {
            self.caches.forget_attributes(ino);
        }
    }

    /// The question that a request through a handle stands for, if the write that it may precede
    /// is not covered.
    pub(in crate::fuse) fn question(&self, handle: HandleRef, thread: u32) -> Option<Question> {
        if !handle.access.writes {
            return None;
        }
        let call = self.call_of(thread);
        let bytes = match call {
            Call::Read => return None,
            Call::Write(bytes) => bytes,
            Call::Other | Call::Hidden => 0,
        };
        self.asked(handle.ino());
        let asked = Asked { thread, bytes };
        let covered = self.fs.store().covers_cached(&handle.file, asked);
        (!covered).then_some(Question {
            handle,
            asked,
            call,
        })
    }

    /// Waits for the room that a question asks for.
    pub(in crate::fuse) fn admit(&self, question: &Question) -> Result<(), Error> {
        let Question {
            handle,
            asked,
            call,
        } = question;
        match self.fs.store().admit_cached(&handle.file, *asked) {
            Err(e) if self.may_refuse(handle.ino(), *call) => Err(e.into()),
            _ => Ok(()),
        }
    }

    /// What the thread that asks through a handle is about to do.
    fn call_of(&self, thread: u32) -> Call {
        let call = call::of(thread);
        if call == Call::Hidden {
            self.blind.store(true, Ordering::SeqCst);
        }
        call
    }

    /// Whether a question that came through a handle may be refused. For an unknown file it may
    /// come from `read` or `lseek`, and is answered as long as that does no harm.
    fn may_refuse(&self, ino: Ino, call: Call) -> bool {
        matches!(call, Call::Write(_))
            || self.state.lock().known.contains(&ino)
            || !self.fs.store().covers_a_few()
    }

    /// Makes every writer ask, and the kernel send everything it has accepted so far: later data
    /// without a question comes from a mapping.
    fn tell_all(&self, shortage: u64) {
        for ino in self.fs.written_files() {
            // A file that the kernel has forgotten has nothing to send.
            let _ = self.caches.drop_data(ino);
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
                self.caches.forget_attributes(ino);
            }
        }
    }
}
