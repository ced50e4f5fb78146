//! Mistakes that the tests must notice.

use std::collections::BTreeMap;

use super::keys::{KeySpace, SlotOwner};
use super::link::Link;
use super::server::{RawOp, RawRange, RawTxn, Server};
use super::slots::{self, Gather};
use crate::kv::Counter;

/// Takes lane and lease out of a transaction.
pub(super) fn no_fencing(raw: &mut RawTxn, lane: &[u8]) {
    raw.compares.retain(|compare| compare.key != lane);
    for op in &mut raw.ops {
        if let RawOp::Put { key, lease, .. } = op
            && key == lane
        {
            *lease = 0;
        }
    }
}

/// All sessions read, add to and write one slot, and compare nothing.
pub(super) fn blind_counters<S: Server>(
    raw: &mut RawTxn,
    adds: &BTreeMap<Vec<u8>, Counter>,
    link: &Link<S>,
) {
    let shared = SlotOwner {
        session: 1,
        lane: 0,
    };
    let of_counter = |key: &[u8]| adds.keys().any(|counter| key.starts_with(counter));
    raw.compares.retain(|compare| !of_counter(&compare.key));
    raw.otherwise.clear();
    raw.ops
        .retain(|op| !matches!(op, RawOp::Put { key, .. } if of_counter(key)));
    for (counter, delta) in adds {
        let key = KeySpace::slot(counter, shared);
        let look = RawTxn {
            reads: vec![RawRange {
                key: key.clone(),
                end: None,
                limit: 0,
                revision: 0,
            }],
            ..RawTxn::default()
        };
        let mut sum = Counter::default();
        if let Ok(answer) = link.look(&look) {
            let mut gather = Gather::new(&link.space, &[], None);
            let mut note = |_: Vec<u8>, value: crate::kv::Versioned| {
                sum = Counter::decode(&value.value).unwrap_or_default();
                Ok(())
            };
            for pair in answer.pages.iter().flat_map(|page| &page.pairs) {
                let _ = gather.push(pair, &mut note);
            }
            let _ = gather.finish(&mut note);
        }
        crate::primitives::thread::sleep(std::time::Duration::from_micros(1));
        raw.ops.push(RawOp::Put {
            key,
            value: slots::encode(&sum.plus(delta)),
            lease: 0,
        });
    }
}
