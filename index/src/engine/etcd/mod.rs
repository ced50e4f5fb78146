//! etcd as the servers of a replicated engine.
//!
//! ```text
//! mod        EtcdServer: what callers see, and its options
//! runtime    one thread that does all the waiting, behind blocking calls
//! endpoints  which member is asked, for how long, and which one next
//! errors     what an error of etcd says about the request: done, not done, not known
//! identity   is this the right cluster, new enough, and not an older copy of itself
//! txn        transactions as etcd has them
//! lease      leases
//! watch      watches that survive the member they began with
//! tls        certificates, and where plain connections are allowed
//! ```
//!
//! Safety rests on one rule: a transaction that changes something is sent again only when the
//! first one certainly did not happen. In all other cases the caller gets
//! [`ServerError::Unknown`] and finds out.

use std::sync::Arc;
use std::time::Duration;

use crate::Error;
use crate::engine::replicated::server::{
    EventSink, LeaseId, RawAnswer, RawTxn, Revision, Server, ServerError,
};
use crate::kv::Limits;

mod endpoints;
mod errors;
mod identity;
mod lease;
mod runtime;
mod tls;
mod txn;
mod watch;

pub use identity::{Alarm, EtcdFacts, EtcdVersion};
pub use tls::TlsFiles;

use endpoints::Endpoints;
use runtime::Runtime;

/// etcd takes 1.5 MiB a request; the rest is for the encoding of 128 operations and compares.
const MAX_BYTES: usize = (3 << 19) - (64 << 10);

/// Compares, and operations with reads, of one transaction (`--max-txn-ops`).
const MAX_OPS: usize = 128;

/// How an [`EtcdServer`] reaches its cluster, and which cluster it accepts.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// Where members listen for clients: `https://host:2379`, `host:2379` or `host`. All of them
    /// are used.
    pub endpoints: Vec<String>,
    /// Certificates. etcd takes the user from the common name of the client's certificate.
    pub tls: Option<TlsFiles>,
    /// Connections without TLS are allowed to other machines too, not only to this one.
    pub allow_plain: bool,
    /// A key that this user may read, whether it exists or not: [`EtcdServer::connect`] asks for
    /// it to see how far the cluster has come.
    pub probe: Vec<u8>,
    /// The cluster that must answer; `None` accepts any.
    pub expected_cluster: Option<u64>,
    /// The newest commit that was ever seen of this cluster. One that has not reached it is an
    /// older copy.
    pub last_revision: Revision,
    /// Members with known defects are accepted. For tests.
    pub allow_old: bool,
    /// The oldest version without the defects that endanger a store.
    #[doc(hidden)]
    pub oldest: EtcdVersion,
    /// How long [`EtcdServer::connect`] tries.
    pub connect_patience: Duration,
    /// How long one connection may take to be established.
    pub connect_timeout: Duration,
    /// Operations and reads, or compares, that the members take in one transaction
    /// (`--max-txn-ops`).
    pub max_ops: usize,
    /// Bytes of keys and values that the members take in one transaction (a bit less than
    /// `--max-request-bytes`).
    pub max_bytes: usize,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            tls: None,
            allow_plain: false,
            probe: vec![0],
            expected_cluster: None,
            last_revision: 0,
            allow_old: false,
            oldest: identity::OLDEST,
            connect_patience: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(1),
            max_ops: MAX_OPS,
            max_bytes: MAX_BYTES,
        }
    }
}

/// An etcd cluster, as one process uses it.
pub struct EtcdServer {
    endpoints: Arc<Endpoints>,
    limits: Limits,
    // Last: it ends the connections, which live on its thread.
    runtime: Runtime,
}

impl EtcdServer {
    /// Connects, and verifies that every member that answers belongs to one cluster which can be
    /// used.
    ///
    /// # Errors
    /// [`Error::Refused`] says what is wrong with the options or with the cluster, and what to do;
    /// [`Error::Unavailable`] when no member answers in time.
    pub fn connect(options: &EtcdOptions) -> Result<Self, Error> {
        let runtime = Runtime::start()
            .map_err(|e| Error::Unavailable(format!("no thread for etcd can be started: {e}")))?;
        let addresses = tls::addresses(options)?;
        let patience = options.connect_patience;
        let opened: Option<Result<_, Error>> = {
            let options = options.clone();
            runtime.wait(patience, async move {
                let endpoints = Arc::new(Endpoints::open(addresses, &options).await?);
                identity::verify(&endpoints, &options).await?;
                Ok(endpoints)
            })
        };
        let endpoints = match opened {
            Some(opened) => opened?,
            None => return Err(Error::Unavailable(format!("no answer within {patience:?}"))),
        };
        Ok(Self {
            endpoints,
            limits: Limits {
                compares: options.max_ops,
                ops: options.max_ops,
                bytes: options.max_bytes,
            },
            runtime,
        })
    }

    /// The id of the cluster, for [`EtcdOptions::expected_cluster`].
    #[must_use]
    pub fn cluster(&self) -> u64 {
        self.endpoints.cluster()
    }

    /// The newest commit that this client has seen, for [`EtcdOptions::last_revision`].
    #[must_use]
    pub fn newest(&self) -> Revision {
        self.endpoints.newest()
    }

    /// What the cluster says about itself.
    ///
    /// # Errors
    /// As [`Server::txn`].
    pub fn facts(&self, patience: Duration) -> Result<EtcdFacts, ServerError> {
        let endpoints = Arc::clone(&self.endpoints);
        let deadline = runtime::deadline(patience);
        self.wait(patience, async move {
            identity::facts(&endpoints, deadline).await
        })
    }

    /// Runs a request on the thread of the client; no answer at all is an unknown one.
    fn wait<T: Send + 'static>(
        &self,
        patience: Duration,
        request: impl Future<Output = Result<T, ServerError>> + Send + 'static,
    ) -> Result<T, ServerError> {
        self.runtime
            .wait(patience, request)
            .unwrap_or_else(|| Err(ServerError::Unknown(format!("nothing within {patience:?}"))))
    }
}

impl Server for EtcdServer {
    fn txn(&self, txn: &RawTxn, patience: Duration) -> Result<RawAnswer, ServerError> {
        let deadline = runtime::deadline(patience);
        let request = txn::Request::new(txn);
        let endpoints = Arc::clone(&self.endpoints);
        let answer = self.wait(patience, async move {
            txn::execute(&endpoints, request, deadline).await
        })?;
        txn::decode(answer, txn)
    }

    fn grant(&self, ttl: Duration, patience: Duration) -> Result<LeaseId, ServerError> {
        let deadline = runtime::deadline(patience);
        let endpoints = Arc::clone(&self.endpoints);
        self.wait(patience, async move {
            lease::grant(&endpoints, ttl, deadline).await
        })
    }

    fn keep_alive(&self, lease: LeaseId, patience: Duration) -> Result<Duration, ServerError> {
        let deadline = runtime::deadline(patience);
        let endpoints = Arc::clone(&self.endpoints);
        self.wait(patience, async move {
            lease::keep_alive(&endpoints, lease, deadline).await
        })
    }

    fn revoke(&self, lease: LeaseId, patience: Duration) -> Result<(), ServerError> {
        let deadline = runtime::deadline(patience);
        let endpoints = Arc::clone(&self.endpoints);
        self.wait(patience, async move {
            lease::revoke(&endpoints, lease, deadline).await
        })
    }

    fn watch(
        &self,
        ranges: &[(Vec<u8>, Vec<u8>)],
        sink: EventSink,
    ) -> Result<Box<dyn std::any::Any + Send + Sync>, ServerError> {
        let endpoints = Arc::clone(&self.endpoints);
        let watch = watch::Watch::new(endpoints, ranges, sink);
        let patience = watch::PATIENCE;
        let deadline = runtime::deadline(patience);
        let guard = self.wait(patience, async move { watch.begin(deadline).await })?;
        Ok(Box::new(guard))
    }

    fn limits(&self) -> Limits {
        self.limits
    }
}

impl std::fmt::Debug for EtcdServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdServer")
            .field("endpoints", &self.endpoints.addresses())
            .field("cluster", &format_args!("{:x}", self.cluster()))
            .finish_non_exhaustive()
    }
}
