//! etcd as the servers of a replicated index: real members on this machine, killed, frozen, full,
//! restored, and behind a proxy that loses their answers.

mod conformance;
mod failures;
mod identity;
mod leases;
mod speed;
mod transactions;
mod watches;

use std::process::ExitCode;
use std::time::Duration;

use shale_index::engine::etcd::{EtcdOptions, EtcdServer};
use shale_index::engine::replicated::server::{
    RawAnswer, RawOp, RawRange, RawTxn, Server, ServerError,
};
use shale_tests::{Case, EtcdCluster, Need, Outcome, Suite};

/// Enough for an election on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    Suite::in_process("etcd")
        .need(Need::Etcd)
        .need(Need::Command("openssl"))
        .limit(Duration::from_secs(90))
        .test(
            "every_condition_is_tested_as_described",
            transactions::conditions,
        )
        .test(
            "reads_show_the_state_before_the_changes",
            transactions::reads,
        )
        .test(
            "ranges_of_etcd_with_a_meaning_of_their_own_have_none",
            transactions::ranges,
        )
        .test(
            "what_the_server_never_takes_is_refused",
            transactions::refusals,
        )
        .test(
            "a_compacted_revision_is_told_as_such",
            transactions::compacted,
        )
        .test("leases_end_and_their_keys_go", leases::end)
        .test("a_lease_that_is_kept_alive_stays", leases::stays)
        .test("a_revoked_lease_cannot_be_used", leases::revoked)
        .test("a_watch_reports_changes_of_its_ranges", watches::changes)
        .test(
            "a_watch_reports_a_gap_after_a_compaction_it_missed",
            watches::gap,
        )
        .test("a_watch_survives_a_frozen_member", watches::frozen)
        .test("another_cluster_is_refused", identity::other_cluster)
        .test(
            "an_older_copy_of_the_cluster_is_refused",
            identity::older_copy,
        )
        .test("an_outdated_version_is_refused", identity::old_version)
        .test("clients_show_their_certificates", identity::certificates)
        .test("facts_tell_what_an_administrator_asks", identity::facts)
        .test("dead_addresses_cost_no_request", failures::dead_addresses)
        .test(
            "a_frozen_member_costs_a_part_of_the_patience",
            failures::frozen_member,
        )
        .test(
            "a_dead_leader_is_a_pause_and_no_failure",
            failures::dead_leader,
        )
        .test(
            "without_a_majority_nothing_is_promised",
            failures::no_majority,
        )
        .test("a_lost_answer_is_unknown", failures::lost_answer)
        .test(
            "ten_thousand_transactions_with_lost_answers_happen_once",
            failures::many_lost,
        )
        .test("a_full_database_takes_deletions_only", failures::full)
        .test(
            "the_engine_conforms_over_one_member",
            conformance::one_member,
        )
        .test(
            "the_engine_conforms_over_three_members",
            conformance::three_members,
        )
        .test("speed", speed::measure)
        .run()
}

/// A client of all members.
fn connect(cluster: &EtcdCluster) -> Outcome<EtcdServer> {
    connect_to(cluster.endpoints())
}

fn connect_to(endpoints: Vec<String>) -> Outcome<EtcdServer> {
    Ok(EtcdServer::connect(&EtcdOptions {
        endpoints,
        connect_patience: PATIENCE,
        ..EtcdOptions::default()
    })?)
}

/// One member and a client of it.
fn single(case: &Case) -> Outcome<(EtcdCluster, EtcdServer)> {
    let cluster = EtcdCluster::start(&case.work().join("cluster"), 1)?;
    let server = connect(&cluster)?;
    Ok((cluster, server))
}

fn put(key: &str, value: &str) -> RawOp {
    put_leased(key, value, 0)
}

fn put_leased(key: &str, value: &str, lease: i64) -> RawOp {
    RawOp::Put {
        key: key.into(),
        value: value.into(),
        lease,
    }
}

fn delete(key: &str) -> RawOp {
    RawOp::Delete {
        key: key.into(),
        end: None,
    }
}

fn key(key: &str) -> RawRange {
    RawRange {
        key: key.into(),
        end: None,
        limit: 0,
        revision: 0,
    }
}

fn range(key: &str, end: &str) -> RawRange {
    RawRange {
        end: Some(end.into()),
        ..self::key(key)
    }
}

fn change(ops: Vec<RawOp>) -> RawTxn {
    RawTxn {
        ops,
        ..RawTxn::default()
    }
}

fn look(reads: Vec<RawRange>) -> RawTxn {
    RawTxn {
        reads,
        ..RawTxn::default()
    }
}

/// The values of one page, as text.
fn values(answer: &RawAnswer, page: usize) -> Vec<String> {
    let pairs = answer.pages.get(page).map_or(&[][..], |page| &page.pairs);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    pairs.iter().map(|pair| text(&pair.value)).collect()
}

/// The value of a key.
fn get(server: &impl Server, name: &str) -> Result<Option<String>, ServerError> {
    let answer = server.txn(&look(vec![key(name)]), PATIENCE)?;
    Ok(values(&answer, 0).pop())
}
