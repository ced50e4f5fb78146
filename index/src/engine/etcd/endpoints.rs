//! Which member is asked, for how long, and which one next.
//!
//! Each process asks its members in an order of its own, so that the load spreads, and stays with
//! one that answers. Where several are known, one of them gets a part of the patience only: a
//! member that hangs must not use up what the others would need to answer.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::{Client, ConnectOptions, ResponseHeader};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::errors::{Judgement, judge};
use super::tls::Address;
use super::{EtcdOptions, identity};
use crate::Error;
use crate::engine::replicated::server::{Revision, ServerError};

/// One member gets a third of what is left of the patience, where there are others.
const SHARE: u32 = 3;
/// But not less than this, which an answer may take on a busy machine.
const LEAST: Duration = Duration::from_millis(300);
/// Pause after all members have failed: the first one, and the longest.
const PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// Pings on connections with requests under way. etcd ends connections that ping more often than
/// every 5 seconds, or while they are idle.
const PING: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(3);

/// What a request does, and so what may be done when it is not known whether it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It changes nothing: ask again.
    Read,
    /// It changes something: never ask again.
    Change,
    /// It is about a lease, and twice is as good as once: ask again, but it may have happened.
    Lease,
}

/// One try of a request.
pub(super) struct Attempt {
    /// The member to ask.
    pub(super) client: Client,
    /// Whether an earlier try may have happened.
    pub(super) is_doubtful: bool,
}

/// A member.
pub(super) struct Endpoint {
    address: Address,
    /// It belongs to the cluster.
    is_known: AtomicBool,
    transactions: Line,
    /// Leases and watches, which must not wait for large answers nor end with a connection that
    /// those have broken.
    control: Line,
}

/// A connection to a member.
struct Line {
    client: Client,
    /// It has answered since it last failed.
    is_good: AtomicBool,
}

/// All members that are known, in this process's order, and what was learnt from their answers.
pub(super) struct Endpoints {
    all: Vec<Endpoint>,
    preferred: AtomicUsize,
    cluster: OnceLock<u64>,
    newest: AtomicU64,
    rules: identity::Rules,
    /// How long a member may take to say who it is.
    probe_time: Duration,
    /// The database was found full, and nothing was stored since.
    pub(super) is_full: AtomicBool,
    /// Why this cluster must not be used any more.
    fault: OnceLock<String>,
}

impl Endpoints {
    /// Prepares connections; nothing is sent yet.
    pub(super) async fn open(
        addresses: Vec<Address>,
        options: &EtcdOptions,
    ) -> Result<Self, Error> {
        let mut all = Vec::with_capacity(addresses.len());
        for address in addresses {
            all.push(Endpoint {
                transactions: Line::open(&address, options).await?,
                control: Line::open(&address, options).await?,
                is_known: AtomicBool::new(false),
                address,
            });
        }
        all.sort_by_cached_key(|_| random());
        Ok(Self {
            all,
            preferred: AtomicUsize::new(0),
            cluster: OnceLock::new(),
            newest: AtomicU64::new(options.last_revision),
            rules: identity::Rules::new(options),
            probe_time: 2 * options.connect_timeout,
            is_full: AtomicBool::new(false),
            fault: OnceLock::new(),
        })
    }

    pub(super) fn all(&self) -> &[Endpoint] {
        &self.all
    }

    pub(super) fn addresses(&self) -> Vec<&str> {
        self.all.iter().map(Endpoint::url).collect()
    }

    /// The cluster; 0 before the first answer.
    pub(super) fn cluster(&self) -> u64 {
        self.cluster.get().copied().unwrap_or(0)
    }

    pub(super) fn newest(&self) -> Revision {
        self.newest.load(Ordering::Acquire)
    }

    /// Asks one member after the other until one answers, the answer is final, or the deadline
    /// has passed.
    pub(super) async fn call<T, F>(
        &self,
        deadline: Instant,
        kind: Kind,
        mut ask: impl FnMut(Attempt) -> F,
    ) -> Result<T, ServerError>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let first = self.preferred.load(Ordering::Relaxed);
        let mut reason = self.begin()?;
        let mut is_doubtful = false;
        for try_number in 0.. {
            let Some(at) = self.next(first, try_number, deadline).await else {
                break;
            };
            let endpoint = &self.all[at];
            let limit = self.limit(deadline);
            let line = endpoint.line(kind);
            if let Err(failed) = self.ensure_fit(endpoint, kind, limit).await {
                reason = format!("{}: {failed}", endpoint.url());
                continue;
            }
            let client = line.client.clone();
            let asked = ask(Attempt {
                client,
                is_doubtful,
            });
            let judgement = match timeout_at(limit, asked).await {
                Ok(Ok(answer)) => {
                    line.is_good.store(true, Ordering::Relaxed);
                    self.preferred.store(at, Ordering::Relaxed);
                    return Ok(answer);
                }
                Ok(Err(error)) => judge(&error),
                Err(_) => Judgement::Doubtful("no answer in time".into()),
            };
            let text = match judgement {
                Judgement::Final(error) => return Err(error),
                Judgement::Full => return Err(ServerError::Full),
                Judgement::NotDone(text) => text,
                Judgement::Doubtful(text) => {
                    is_doubtful = kind != Kind::Read;
                    text
                }
            };
            line.is_good.store(false, Ordering::Relaxed);
            reason = format!("{}: {text}", endpoint.url());
            if is_doubtful && kind == Kind::Change {
                self.avoid(at);
                break;
            }
        }
        Err(if is_doubtful {
            ServerError::Unknown(reason)
        } else {
            ServerError::Unavailable(reason)
        })
    }

    /// A member that can be used now, for a connection that stays.
    pub(super) async fn find_good(&self, deadline: Instant) -> Result<usize, ServerError> {
        let first = self.preferred.load(Ordering::Relaxed);
        let mut reason = self.begin()?;
        for try_number in 0.. {
            let Some(at) = self.next(first, try_number, deadline).await else {
                break;
            };
            let endpoint = &self.all[at];
            let fit = self.ensure_fit(endpoint, Kind::Lease, self.limit(deadline));
            match fit.await {
                Ok(()) => {
                    self.preferred.store(at, Ordering::Relaxed);
                    return Ok(at);
                }
                Err(failed) => reason = format!("{}: {failed}", endpoint.url()),
            }
        }
        Err(ServerError::Unavailable(reason))
    }

    /// Refuses to ask a cluster that must not be used; otherwise the reason for a failure until
    /// there is a better one.
    fn begin(&self) -> Result<String, ServerError> {
        match self.fault.get() {
            Some(fault) => Err(ServerError::Refused(fault.clone())),
            None => Ok("there was no time to ask".into()),
        }
    }

    /// The member to try next, after a pause when all have been tried; `None` at the deadline.
    async fn next(&self, first: usize, try_number: usize, deadline: Instant) -> Option<usize> {
        let round = try_number / self.all.len();
        if round > 0 && try_number.is_multiple_of(self.all.len()) {
            let doublings = u32::try_from(round - 1).map_or(8, |round| round.min(8));
            let pause = (PAUSE * (1 << doublings)).min(LONGEST_PAUSE);
            sleep_until(deadline.min(Instant::now() + jittered(pause))).await;
        }
        (Instant::now() < deadline).then_some((first + try_number) % self.all.len())
    }

    /// Asks a member that is new who it is, and one that has failed also before it gets a change:
    /// that question can be repeated without harm. Other requests ask for themselves.
    async fn ensure_fit(
        &self,
        endpoint: &Endpoint,
        kind: Kind,
        limit: Instant,
    ) -> Result<(), ServerError> {
        let line = endpoint.line(kind);
        let is_known = endpoint.is_known.load(Ordering::Relaxed);
        if is_known && (kind != Kind::Change || line.is_good.load(Ordering::Relaxed)) {
            return Ok(());
        }
        // Who it is does not take long to say.
        let limit = limit.min(Instant::now() + self.probe_time);
        let member = self.rules.identify(line.client.clone(), limit).await?;
        self.rules.check(&member, self.cluster.get().copied())?;
        endpoint.is_known.store(true, Ordering::Relaxed);
        line.is_good.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Until when one member is waited for.
    pub(super) fn limit(&self, deadline: Instant) -> Instant {
        if self.all.len() == 1 {
            return deadline;
        }
        let now = Instant::now();
        let share = deadline.saturating_duration_since(now) / SHARE;
        deadline.min(now + share.max(LEAST))
    }

    /// Asks a member who it is.
    pub(super) async fn identify(
        &self,
        at: usize,
        limit: Instant,
    ) -> Result<identity::Member, ServerError> {
        let client = self.all[at].transactions.client.clone();
        self.rules.identify(client, limit).await
    }

    /// Begins with this member, which is good.
    pub(super) fn prefer(&self, at: usize) {
        self.all[at].is_known.store(true, Ordering::Relaxed);
        self.all[at]
            .transactions
            .is_good
            .store(true, Ordering::Relaxed);
        self.preferred.store(at, Ordering::Relaxed);
    }

    /// Begins with another member next time, unless that was decided already.
    pub(super) fn avoid(&self, at: usize) {
        let next = (at + 1) % self.all.len();
        let _ = self
            .preferred
            .compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Settles which cluster this is.
    pub(super) fn adopt(&self, cluster: u64) {
        let _ = self.cluster.set(cluster);
    }

    /// Takes note of what a linearizable answer says about the cluster. `floor` is
    /// [`Endpoints::newest`] from before the request was sent.
    ///
    /// # Errors
    /// [`ServerError::Unknown`] when the answer is from another cluster or from an older copy of
    /// it. Nothing is asked of it any more.
    pub(super) fn observe(
        &self,
        header: Option<&ResponseHeader>,
        floor: Revision,
    ) -> Result<Revision, ServerError> {
        let Some(header) = header else {
            return Err(ServerError::Unknown("an answer without a header".into()));
        };
        let revision = Revision::try_from(header.revision()).unwrap_or(0);
        let fault = if header.cluster_id() != self.cluster() {
            identity::other_cluster(self.cluster(), header.cluster_id())
        } else if revision < floor {
            identity::older_copy(floor, revision)
        } else {
            self.newest.fetch_max(revision, Ordering::AcqRel);
            return Ok(revision);
        };
        tracing::error!("{fault}");
        let _ = self.fault.set(fault.clone());
        Err(ServerError::Unknown(fault))
    }
}

impl Endpoint {
    pub(super) fn url(&self) -> &str {
        &self.address.url
    }

    /// The connection for what stays.
    pub(super) fn control(&self) -> Client {
        self.control.client.clone()
    }

    fn line(&self, kind: Kind) -> &Line {
        match kind {
            Kind::Read | Kind::Change => &self.transactions,
            Kind::Lease => &self.control,
        }
    }

    /// Asks the member who it is before it gets the next request.
    pub(super) fn distrust(&self) {
        self.is_known.store(false, Ordering::Relaxed);
    }
}

impl Line {
    async fn open(address: &Address, options: &EtcdOptions) -> Result<Self, Error> {
        let connect = ConnectOptions::new()
            .with_connect_timeout(options.connect_timeout)
            .with_keep_alive(PING, PING_TIMEOUT)
            .with_keep_alive_while_idle(false)
            // A member that has lost its cluster says so instead of waiting for it.
            .with_require_leader(true);
        let connect = match &address.tls {
            Some(tls) => connect.with_tls(tls.clone()),
            None => connect,
        };
        let client = Client::connect([&address.url], Some(connect))
            .await
            .map_err(|e| Error::Refused(format!("'{}' cannot be used: {e}", address.url)))?;
        Ok(Self {
            client,
            is_good: AtomicBool::new(false),
        })
    }
}

/// A number that differs between processes and calls.
pub(super) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Between half and all of a pause, so that many clients do not come back at once.
pub(super) fn jittered(pause: Duration) -> Duration {
    let parts = u32::try_from(random() % 512).unwrap_or(0);
    pause / 2 + pause / 1024 * parts
}
