//! Transactions as etcd has them.
//!
//! Reads stand before the changes in the branch that etcd executes, since its operations see what
//! earlier ones of the same transaction did. etcd gives some keys and ends a meaning of their own
//! (no end is one key, a zero byte is no end at all, an empty key is refused); ours have none, so
//! ranges are translated here and nowhere else.

use std::sync::atomic::Ordering;

use etcd_client::{
    Compare, CompareOp, DeleteOptions, GetOptions, GetResponse, KeyValue, PutOptions, Txn, TxnOp,
    TxnOpResponse, TxnResponse,
};
use tokio::time::Instant;

use super::endpoints::{Endpoints, Kind};
use super::identity::{self, Alarm};
use crate::engine::replicated::server::{
    RawAnswer, RawCompare, RawOp, RawPage, RawPair, RawRange, RawTxn, Revision, ServerError, Test,
};

/// What a member may send at once. The limit of gRPC, 4 MiB, is less than a page can be.
const LARGEST_ANSWER: usize = 1 << 30;

/// A transaction in etcd's words.
pub(super) struct Request {
    txn: Txn,
    /// It changes something if its conditions hold.
    has_changes: bool,
    /// It needs room in the database.
    has_puts: bool,
}

impl Request {
    pub(super) fn new(raw: &RawTxn) -> Self {
        let compares: Vec<_> = raw.compares.iter().map(compare).collect();
        let reads = raw.reads.iter().map(read);
        let changes = raw.ops.iter().filter_map(change);
        let success: Vec<_> = reads.chain(changes).collect();
        let failure: Vec<_> = raw.otherwise.iter().map(read).collect();
        let mut txn = Txn::new();
        // The library insists that each part is given once, in this order, and not empty.
        if !compares.is_empty() {
            txn = txn.when(compares);
        }
        if !success.is_empty() {
            txn = txn.and_then(success);
        }
        if !failure.is_empty() {
            txn = txn.or_else(failure);
        }
        Self {
            txn,
            has_changes: !raw.ops.is_empty(),
            has_puts: raw.ops.iter().any(|op| matches!(op, RawOp::Put { .. })),
        }
    }
}

/// Sends a transaction, once if it changes something.
pub(super) async fn execute(
    endpoints: &Endpoints,
    request: Request,
    deadline: Instant,
) -> Result<(TxnResponse, Revision), ServerError> {
    let kind = if request.has_changes {
        Kind::Change
    } else {
        Kind::Read
    };
    let floor = endpoints.newest();
    let was_full = endpoints.is_full.load(Ordering::Acquire);
    let txn = &request.txn;
    let answer = endpoints
        .call(deadline, kind, |attempt| {
            let mut client = attempt
                .client
                .kv_client()
                .max_decoding_message_size(LARGEST_ANSWER);
            let txn = txn.clone();
            async move { client.txn(txn).await }
        })
        .await;
    match answer {
        Ok(answer) => {
            let revision = endpoints.observe(answer.header(), floor)?;
            if was_full && request.has_puts && answer.succeeded() {
                endpoints.is_full.store(false, Ordering::Release);
            }
            Ok((answer, revision))
        }
        // Members refuse what needs room once the alarm is raised, but the transaction that
        // raises it is executed.
        Err(ServerError::Full) if !was_full => {
            note_alarm(endpoints, deadline).await;
            let reason = "the metadata server became full while it executed the request";
            Err(ServerError::Unknown(reason.into()))
        }
        Err(error) => Err(error),
    }
}

/// Notes that the alarm is raised, so that a later answer of that kind is a proof.
async fn note_alarm(endpoints: &Endpoints, deadline: Instant) {
    let is_full = |alarm: &Alarm| matches!(alarm, Alarm::NoSpace { .. });
    if identity::alarms(endpoints, deadline)
        .await
        .is_ok_and(|alarms| alarms.iter().any(is_full))
    {
        endpoints.is_full.store(true, Ordering::Release);
    }
}

/// The answer in our words.
pub(super) fn decode(
    (answer, revision): (TxnResponse, Revision),
    raw: &RawTxn,
) -> Result<RawAnswer, ServerError> {
    let held = answer.succeeded();
    let wanted = if held { &raw.reads } else { &raw.otherwise };
    let mut pages = Vec::with_capacity(wanted.len());
    // The reads come first.
    for response in answer.op_responses().into_iter().take(wanted.len()) {
        let TxnOpResponse::Get(page) = response else {
            break;
        };
        pages.push(decode_page(page));
    }
    if pages.len() != wanted.len() {
        // It has happened, but what it saw is lost.
        return Err(ServerError::Unknown(format!(
            "{} of {} reads were answered",
            pages.len(),
            wanted.len()
        )));
    }
    Ok(RawAnswer {
        held,
        revision,
        pages,
    })
}

fn decode_page(mut page: GetResponse) -> RawPage {
    let more = page.more();
    let pairs = page.take_kvs().into_iter().map(decode_pair);
    RawPage {
        pairs: pairs.collect(),
        more,
    }
}

fn decode_pair(pair: KeyValue) -> RawPair {
    let (written, created) = (pair.mod_revision(), pair.create_revision());
    let lease = pair.lease();
    let (key, value) = pair.into_key_value();
    RawPair {
        key,
        value,
        written: Revision::try_from(written).unwrap_or(0),
        created: Revision::try_from(created).unwrap_or(0),
        lease,
    }
}

/// Keys as etcd wants them: the first, and the end of a range.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Keys {
    One(Vec<u8>),
    Range(Vec<u8>, Vec<u8>),
    /// A range that no key can be in.
    None,
}

impl Keys {
    pub(super) fn new(key: &[u8], end: Option<&[u8]>) -> Self {
        let mut first = key.to_vec();
        let Some(end) = end else {
            return Self::One(first);
        };
        if first.is_empty() {
            // etcd has no empty key, and this is the first one that it can have.
            first.push(0);
        }
        if end <= first.as_slice() {
            return Self::None;
        }
        Self::Range(first, end.to_vec())
    }

    /// For requests that need a range even where none is meant: etcd finds nothing between a key
    /// and itself.
    fn or_nothing(self) -> (Vec<u8>, Option<Vec<u8>>) {
        match self {
            Self::One(key) => (key, None),
            Self::Range(key, end) => (key, Some(end)),
            Self::None => (vec![1], Some(vec![1])),
        }
    }
}

fn compare(raw: &RawCompare) -> Compare {
    let (key, end) = Keys::new(&raw.key, raw.end.as_deref()).or_nothing();
    let compare = match raw.test {
        Test::Absent => Compare::create_revision(key, CompareOp::Equal, 0),
        Test::Exists => Compare::create_revision(key, CompareOp::Greater, 0),
        Test::WrittenBy(revision) => Compare::mod_revision(key, CompareOp::Equal, signed(revision)),
        Test::CreatedBy(revision) => {
            Compare::create_revision(key, CompareOp::Equal, signed(revision))
        }
        Test::NotAfter(revision) => {
            Compare::mod_revision(key, CompareOp::Less, signed(revision).saturating_add(1))
        }
    };
    match end {
        Some(end) => compare.with_range(end),
        None => compare,
    }
}

fn read(raw: &RawRange) -> TxnOp {
    let (key, end) = Keys::new(&raw.key, raw.end.as_deref()).or_nothing();
    let mut options = GetOptions::new()
        .with_limit(i64::try_from(raw.limit).unwrap_or(i64::MAX))
        .with_revision(signed(raw.revision));
    if let Some(end) = end {
        options = options.with_range(end);
    }
    TxnOp::get(key, Some(options))
}

/// `None` for a deletion of nothing, which etcd's check for keys that are changed twice does not
/// expect.
fn change(raw: &RawOp) -> Option<TxnOp> {
    Some(match raw {
        RawOp::Put { key, value, lease } => TxnOp::put(
            key.as_slice(),
            value.as_slice(),
            Some(PutOptions::new().with_lease(*lease)),
        ),
        RawOp::Delete { key, end } => match Keys::new(key, end.as_deref()) {
            Keys::One(key) => TxnOp::delete(key, None),
            Keys::Range(key, end) => TxnOp::delete(key, Some(DeleteOptions::new().with_range(end))),
            Keys::None => return None,
        },
    })
}

fn signed(revision: Revision) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_mean_what_they_say() {
        let range = |key: &[u8], end: &[u8]| Keys::Range(key.to_vec(), end.to_vec());
        assert_eq!(Keys::new(b"a", None), Keys::One(b"a".to_vec()));
        assert_eq!(Keys::new(b"a", Some(b"b")), range(b"a", b"b"));
        // An empty end would mean one key, and a zero byte everything.
        assert_eq!(Keys::new(b"a", Some(b"")), Keys::None);
        assert_eq!(Keys::new(b"a", Some(b"\0")), Keys::None);
        assert_eq!(Keys::new(b"b", Some(b"a")), Keys::None);
        // An empty key is none for etcd.
        assert_eq!(Keys::new(b"", Some(b"b")), range(b"\0", b"b"));
        assert_eq!(Keys::new(b"", Some(b"\0")), Keys::None);
    }
}
