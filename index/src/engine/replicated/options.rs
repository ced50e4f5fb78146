//! How a session of a replicated index is opened.

use std::time::Duration;

/// Lanes of a session.
const LANES: u8 = 16;
/// One transaction puts all lanes of a session.
pub(super) const MOST_LANES: u8 = 64;

/// How to open a session of a replicated index.
#[derive(Clone, Debug)]
pub struct Options {
    /// What all keys of the volume begin with. No volume's prefix may begin with that of another.
    pub prefix: Vec<u8>,
    /// The session ends when the servers have not heard of it for this long.
    pub ttl: Duration,
    /// How long one request may take before it counts as lost.
    pub patience: Duration,
    /// How long a call waits for servers that do not answer. Without one it waits until the
    /// session has ended.
    pub deadline: Option<Duration>,
    /// The pause before a request is sent a second time; later ones are longer.
    pub pause: Duration,
    /// Transactions that may be under way at the same time. Further ones wait and are merged.
    pub lanes: u8,
    /// What the engine does wrong, so that tests can see that they notice.
    #[cfg(any(test, feature = "testing"))]
    pub sabotage: Sabotage,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            prefix: Vec::new(),
            ttl: Duration::from_secs(15),
            patience: Duration::from_secs(5),
            deadline: None,
            pause: Duration::from_millis(10),
            lanes: LANES,
            #[cfg(any(test, feature = "testing"))]
            sabotage: Sabotage::None,
        }
    }
}

impl Options {
    /// How long a call waits for servers before there is a session that could end.
    pub(super) fn without_session(&self) -> Duration {
        self.deadline.unwrap_or(4 * self.ttl)
    }
}

/// What an engine does wrong.
#[cfg(any(test, feature = "testing"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// Nothing.
    #[default]
    None,
    /// Transactions do not compare their lane, nor is it under the lease.
    NoFencing,
    /// Counters are read, added to and written back without a compare.
    BlindCounters,
}
