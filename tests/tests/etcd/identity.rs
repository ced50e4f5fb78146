//! Which clusters are refused, and why.

use serde_json::json;
use shale_index::Error;
use shale_index::engine::etcd::{EtcdOptions, EtcdServer, EtcdVersion, TlsFiles};
use shale_index::engine::replicated::server::{Server, ServerError};
use shale_tests::{Case, EtcdCluster, Failure, Outcome, ensure, ensure_eq};

use crate::{PATIENCE, change, connect, get, put, single};

fn options(endpoints: Vec<String>) -> EtcdOptions {
    EtcdOptions {
        endpoints,
        ..EtcdOptions::default()
    }
}

/// The sentence with which a connection is refused.
fn refusal(options: &EtcdOptions) -> Outcome<String> {
    match EtcdServer::connect(options) {
        Err(Error::Refused(reason)) => Ok(reason),
        other => Err(Failure::new(format!("not refused: {other:?}"))),
    }
}

pub(crate) fn other_cluster(case: &Case) -> Outcome {
    let (one, server) = single(case)?;
    let two = EtcdCluster::start(&case.work().join("other"), 1)?;
    let mut options = options(two.endpoints());
    options.expected_cluster = Some(server.cluster());
    let reason = refusal(&options)?;
    let belongs = format!("belongs to {:x}", server.cluster());
    ensure!(reason.contains(&belongs), "{reason}");
    // Members of two clusters are not one.
    options.expected_cluster = None;
    options.endpoints.extend(one.endpoints());
    refusal(&options)?;
    options.endpoints = one.endpoints();
    options.expected_cluster = Some(server.cluster());
    EtcdServer::connect(&options)?;
    Ok(())
}

pub(crate) fn older_copy(case: &Case) -> Outcome {
    let (cluster, server) = single(case)?;
    server.txn(&change(vec![put("a", "1")]), PATIENCE)?;
    let mut options = options(cluster.endpoints());
    options.last_revision = server.newest();
    EtcdServer::connect(&options)?;
    options.last_revision += 1;
    let reason = refusal(&options)?;
    ensure!(reason.contains("restored from a backup"), "{reason}");
    Ok(())
}

pub(crate) fn old_version(case: &Case) -> Outcome {
    let (cluster, _server) = single(case)?;
    let mut options = options(cluster.endpoints());
    options.oldest = EtcdVersion(99, 0, 0);
    let reason = refusal(&options)?;
    ensure!(reason.contains("upgrade it to 99.0.0"), "{reason}");
    options.allow_old = true;
    EtcdServer::connect(&options)?;
    Ok(())
}

pub(crate) fn certificates(case: &Case) -> Outcome {
    let cluster = EtcdCluster::start_tls(&case.work().join("cluster"), 3)?;
    let certificates = cluster.certificates()?;
    let client = certificates.sign("node1")?;
    let mut options = options(cluster.endpoints());
    let files = |client| TlsFiles {
        ca: certificates.ca(),
        client,
    };
    options.tls = Some(files(Some(client)));
    options.probe = b"vol1/".to_vec();
    let server = EtcdServer::connect(&options)?;
    server.txn(&change(vec![put("vol1/a", "1")]), PATIENCE)?;
    ensure_eq!(get(&server, "vol1/a")?.as_deref(), Some("1"));
    let lease = server.grant(PATIENCE, PATIENCE)?;
    server.keep_alive(lease, PATIENCE)?;

    // The name in the certificate is the user, and may do what its role allows.
    let ask = |path: &str, body| cluster.ask(0, path, &body).map(drop);
    for user in ["root", "node1"] {
        ask(
            "/v3/auth/user/add",
            json!({ "name": user, "options": { "no_password": true } }),
        )?;
    }
    ask("/v3/auth/role/add", json!({ "name": "vol1" }))?;
    // "vol1/" to "vol10", in base64.
    let permission = json!({ "permType": 2, "key": "dm9sMS8=", "range_end": "dm9sMTA=" });
    ask(
        "/v3/auth/role/grant",
        json!({ "name": "vol1", "perm": permission }),
    )?;
    ask(
        "/v3/auth/user/grant",
        json!({ "user": "node1", "role": "vol1" }),
    )?;
    ask(
        "/v3/auth/user/grant",
        json!({ "user": "root", "role": "root" }),
    )?;
    ask("/v3/auth/enable", json!({}))?;
    server.txn(&change(vec![put("vol1/a", "2")]), PATIENCE)?;
    let again = EtcdServer::connect(&options)?;
    ensure_eq!(get(&again, "vol1/a")?.as_deref(), Some("2"));
    let facts = again.facts(PATIENCE)?;
    ensure_eq!(facts.members, Some(3));
    let lease = again.grant(PATIENCE, PATIENCE)?;
    again.revoke(lease, PATIENCE)?;
    options.probe = b"vol2/".to_vec();
    let reason = refusal(&options)?;
    ensure!(reason.contains("permission denied"), "{reason}");

    // Without a certificate of the client there is no connection; without TLS neither.
    options.connect_patience = std::time::Duration::from_secs(2);
    options.tls = Some(files(None));
    // A member may end the connection before the client has read the reason.
    let refused = EtcdServer::connect(&options);
    ensure!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    options.tls = None;
    let reason = refusal(&options)?;
    ensure!(reason.contains("wants TLS"), "{reason}");
    Ok(())
}

pub(crate) fn facts(case: &Case) -> Outcome {
    let cluster = EtcdCluster::start(&case.work().join("cluster"), 3)?;
    let server = connect(&cluster)?;
    let answer = server.txn(&change(vec![put("a", "1")]), PATIENCE)?;
    ensure_eq!(server.newest(), answer.revision);
    let facts = server.facts(PATIENCE)?;
    ensure_eq!(facts.members, Some(3));
    ensure_eq!(facts.cluster, server.cluster());
    ensure!(facts.leader.is_some(), "{facts:?}");
    ensure!(facts.database_bytes >= facts.used_bytes, "{facts:?}");
    ensure!(facts.used_bytes.is_some_and(|bytes| bytes > 0), "{facts:?}");
    ensure_eq!(facts.alarms, Some(Vec::new()));
    // A request that no member can answer in time did not happen.
    let late = server.txn(&change(vec![put("a", "2")]), std::time::Duration::ZERO);
    ensure!(matches!(late, Err(ServerError::Unavailable(_))), "{late:?}");
    Ok(())
}
