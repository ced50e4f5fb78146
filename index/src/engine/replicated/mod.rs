//! An index that several sessions share, kept by servers that replicate it.
//!
//! ```text
//! commit -> batch   waits for a lane, merged with others that wait
//!            lanes  fences it and makes it happen exactly once
//!            slots  additions to counters
//! read, scan        looks at one revision, slots summed
//! watch             events as hints
//! session           a lease, and the thread that keeps it alive
//!    |
//! link              sends and sends again       keys   raw keys of a volume
//!    |
//! server            transactions, leases, watches of etcd or of a server in memory
//! ```
//!
//! What keeps the promises of the contract ([`kv`](crate::kv)):
//! 1. Snapshots: all looks of one are at one revision, and the first is linearizable.
//! 2. Exactly once: the nonce in a lane (lanes.rs). Not even the end of the session hides what
//!    became of a transaction, as long as the server keeps the revisions since it was sent.
//! 3. Fencing: each transaction compares a key that goes with the lease. No clock takes part.
//! 4. Counters: a slot has one writer, which compares what it remembers (slots.rs).
//! 5. Watches: each event becomes a hint, and gaps are passed on.
//!
//! A version is a revision of the server, and the number of a session that of the commit which
//! created it. Both must never come back: a server restored from a backup needs a higher revision
//! than the one it had.
//!
//! A server that is full takes deletions, but every transaction puts its lane: a full server
//! must be given room by its operator.

mod batch;
mod import;
mod keys;
mod lanes;
mod link;
#[cfg(any(test, feature = "testing"))]
pub mod memory;
mod merge;
mod open;
mod options;
mod read;
#[cfg(any(test, feature = "testing"))]
mod sabotage;
mod scan;
pub mod server;
mod session;
mod slots;
#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
mod watch;
mod work;

use std::sync::Arc;

pub use import::import;
pub use options::Options;
#[cfg(any(test, feature = "testing"))]
pub use options::Sabotage;

use crate::Error;
use crate::kv::{
    EndListener, KeyRange, Kv, Lease, Limits, Outcome, SessionState, Snapshot, Txn, Version,
    Visitor, Want, WatchGuard, Watcher,
};
use crate::primitives::{Mutex, thread};
use batch::Queue;
use link::{Failure, Link};
use server::{Server, ServerError};
use session::Session;
use work::Work;

/// A session of a replicated index.
#[derive(Debug)]
pub struct Replicated<S: Server> {
    link: Arc<Link<S>>,
    session: Arc<Session>,
    queue: Arc<Queue>,
    limits: Limits,
    keeper: Mutex<Option<thread::JoinHandle<()>>>,
}

impl<S: Server> Replicated<S> {
    /// Begins a session.
    ///
    /// # Errors
    /// [`Error::Refused`] for a volume with an incomplete import, [`Error::Unavailable`] when no
    /// server answers.
    pub fn open(server: S, options: Options) -> Result<Self, Error> {
        open::open(server, options)
    }

    /// The number of the session. No other session of the volume has it, ever.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.session.number
    }

    /// Merges slots that ended sessions have left of a counter into one of this session, and
    /// returns how many there were.
    ///
    /// # Errors
    /// As [`Kv::commit`].
    pub fn merge_slots(&self, key: &[u8]) -> Result<usize, Error> {
        self.session.check()?;
        merge::merge_slots(self, key)
    }

    fn execute(&self, work: Work) -> Result<Outcome, Failure> {
        let limits = self.link.server.limits();
        self.queue.commit(&self.link, &limits, work)
    }

    fn stop_keeper(&self) {
        self.session.close();
        let keeper = self.keeper.lock().take();
        if let Some(keeper) = keeper {
            // It does not panic unless the server does, and then there is nothing left to do.
            let _ = keeper.join();
        }
    }

    /// Ends the lease. If no server answers, it runs out by itself.
    fn revoke(&self) {
        let until = std::time::Instant::now() + self.session.remaining();
        let mut pause = self.link.options.pause;
        loop {
            let patience = self.link.options.patience;
            match self.link.server.revoke(self.session.lease, patience) {
                Ok(()) | Err(ServerError::LeaseGone) => return,
                Err(error) if std::time::Instant::now() + pause >= until => {
                    tracing::warn!(
                        %error,
                        "no metadata server was told of the end of the session; its leases run \
                         out by themselves"
                    );
                    return;
                }
                Err(_) => thread::sleep(pause),
            }
            pause *= 2;
        }
    }
}

impl<S: Server> Kv for Replicated<S> {
    fn get_many(&self, wants: &[Want]) -> Result<Snapshot, Error> {
        self.session.check_open()?;
        self.link.get_many(wants, self.link.server.limits().ops)
    }

    fn commit(&self, txn: &Txn) -> Result<Outcome, Error> {
        txn.check(&self.limits)?;
        let work = Work::new(txn, &self.link.space, self.session.lease)?;
        self.session.check()?;
        Ok(self.execute(work)?)
    }

    /// A commit is durable when it is answered.
    fn sync(&self, _version: Version) -> Result<(), Error> {
        Ok(self.session.check_open()?)
    }

    fn version(&self) -> Version {
        self.link.seen()
    }

    fn syncs(&self) -> u64 {
        0
    }

    fn lease(&self) -> Lease {
        Lease(self.session.lease.cast_unsigned())
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn session(&self) -> SessionState {
        self.session.state()
    }

    fn on_end(&self, listener: EndListener) {
        self.session.on_end(listener);
    }

    /// Waits for what is under way; transactions that wait for a lane are refused.
    fn close(&self) -> Result<(), Error> {
        self.session.check_open()?;
        self.queue.refuse(&Failure::Closed);
        self.queue.wait_until_quiet();
        self.stop_keeper();
        self.revoke();
        Ok(())
    }

    fn dump(&self, visit: &mut Visitor<'_>) -> Result<(), Error> {
        self.session.check_open()?;
        self.link.dump(visit)
    }

    fn scan(
        &self,
        range: &KeyRange,
        visit: &mut Visitor<'_>,
        restart: &mut dyn FnMut(),
    ) -> Result<Version, Error> {
        self.session.check_open()?;
        self.link.scan(range, visit, restart)
    }

    fn watch(&self, ranges: Vec<KeyRange>, watcher: Watcher) -> Result<WatchGuard, Error> {
        self.session.check_open()?;
        self.link.watch(ranges, watcher)
    }
}

impl<S: Server> Drop for Replicated<S> {
    /// As the death of the process: the lease runs out by itself.
    fn drop(&mut self) {
        self.stop_keeper();
    }
}
