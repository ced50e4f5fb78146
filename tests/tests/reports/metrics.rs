//! Metrics: their contents, and who may read them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use shale_tests::{Case, Cmd, Context, Outcome, Rng, ensure, ensure_eq, seed, shale};

use crate::{number, report};

/// Samples by name with labels, from a body that must be well formed.
fn samples(body: &str) -> Outcome<BTreeMap<String, f64>> {
    let mut all = BTreeMap::new();
    for line in body.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').doing(format!("no sample: {line}"))?;
        let value: f64 = value.parse()?;
        ensure!(
            all.insert(name.to_owned(), value).is_none(),
            "{name} comes twice"
        );
    }
    Ok(all)
}

fn get(stream: impl Read + Write) -> Outcome<String> {
    let mut stream = stream;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: shale\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .doing("no head in the answer")?;
    ensure!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    ensure!(
        head.contains(&format!("Content-Length: {}\r\n", body.len())),
        "{head}\nfor {} bytes",
        body.len()
    );
    Ok(body.to_owned())
}

pub(crate) fn scrape(path: &Path) -> Outcome<BTreeMap<String, f64>> {
    let stream = UnixStream::connect(path).doing("connecting to the socket")?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    samples(&get(stream)?)
}

/// A daemon that is killed while it waits for itself can neither end nor let its mount end.
pub(crate) fn nothing_asked(case: &Case) -> Outcome {
    let path = case.work().join("metrics.sock");
    let address = format!("unix:{}", path.display());
    let mut mount = case.mount("fs", &["--metrics", &address])?;
    for (name, count) in scrape(&path)? {
        if name.starts_with("shale_operation_duration_seconds_count") {
            ensure_eq!(count, 0.0, "{name} of a mount that nobody has used");
        }
    }
    fs::metadata(mount.path())?;
    let asked = scrape(&path)?;
    let getattr = "shale_operation_duration_seconds_count{operation=\"getattr\"}";
    ensure_eq!(
        asked.get(getattr),
        Some(&1.0),
        "what a user asks is counted"
    );
    mount.unmount()
}

pub(crate) fn metrics(case: &Case) -> Outcome {
    let path = case.work().join("metrics.sock");
    let address = format!("unix:{}", path.display());
    let mut mount = case.mount("fs", &["--metrics", &address, "-o", "settle=off"])?;
    let before = scrape(&path)?;
    let value = |all: &BTreeMap<String, f64>, name: &str| -> Outcome<f64> {
        all.get(name).copied().doing(format!("there is no {name}"))
    };
    let version = shale().arg("--version").ok()?;
    let info = format!(
        "shale_mount_info{{store=\"{}\",mountpoint=\"{}\",version=\"{}\"}}",
        mount.store().display(),
        mount.path().display(),
        version.trim().trim_start_matches("shale ")
    );
    ensure_eq!(value(&before, &info)?, 1.0, "the mount in a label");
    ensure_eq!(value(&before, "shale_written_bytes_total")?, 0.0);
    let file = File::create(mount.path().join("f"))?;
    let mut raw = Rng::new(1).bytes(4 << 20);
    raw[..2 << 20].fill(1);
    file.write_all_at(&raw, 0)?;
    file.sync_all()?;
    drop(file);
    ensure!(
        !mount.path().join("none").exists(),
        "where does it come from?"
    );
    shale().args(["settle", "--wait"]).arg(mount.path()).ok()?;
    mount.remount()?;
    ensure!(fs::read(mount.path().join("f"))? == raw, "other bytes");
    let after = scrape(&path)?;
    // The mount reset the counters; reading went through the cache of the kernel.
    ensure!(
        value(&after, "shale_read_bytes_total")? >= raw.len() as f64,
        "{after:?}"
    );
    ensure!(
        value(&after, "shale_pack_read_bytes_total")? > 2e6,
        "{after:?}"
    );
    ensure_eq!(value(&after, "shale_store_raw_bytes")?, raw.len() as f64);
    let stored = value(&after, "shale_store_stored_bytes")?;
    ensure_eq!(stored, report(mount.path(), "stored")?.parse::<f64>()?);
    ensure_eq!(value(&after, "shale_store_files")?, 1.0);

    File::create(mount.path().join("g"))?.write_all_at(&raw, 0)?;
    File::open(mount.path().join("g"))?.sync_all()?;
    ensure!(
        !mount.path().join("none").exists(),
        "where does it come from?"
    );
    let later = scrape(&path)?;
    let grown = |name: &str| -> Outcome<f64> {
        Ok(value(&later, name)? - after.get(name).copied().unwrap_or(0.0))
    };
    ensure_eq!(grown("shale_written_bytes_total")?, raw.len() as f64);
    for (name, least) in [
        ("shale_encoded_raw_bytes_total{pass=\"write\"}", 4e6),
        ("shale_encoded_stored_bytes_total{pass=\"write\"}", 2e6),
        ("shale_encoded_frames_total{pass=\"write\"}", 4.0),
        ("shale_pack_appended_bytes_total", 2e6),
        ("shale_pack_syncs_total", 1.0),
        ("shale_journal_syncs_total", 1.0),
        ("shale_index_commits_total", 1.0),
        ("shale_operation_refusals_total{errno=\"ENOENT\"}", 1.0),
        (
            "shale_operation_duration_seconds_count{operation=\"fsync\"}",
            1.0,
        ),
        (
            "shale_operation_duration_seconds_sum{operation=\"fsync\"}",
            1e-6,
        ),
        (
            "shale_operation_duration_seconds_bucket{operation=\"create\",le=\"+Inf\"}",
            1.0,
        ),
    ] {
        ensure!(
            grown(name)? >= least,
            "{name} has grown by {}",
            grown(name)?
        );
    }
    for (name, value) in &after {
        if name.contains("_total") || name.contains("_bucket") {
            ensure!(
                later.get(name).is_some_and(|later| later >= value),
                "{name} fell"
            );
        }
    }
    mount.unmount()
}

pub(crate) fn loopback(case: &Case) -> Outcome {
    // A port that is free now.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port();
    let mut mount = case.mount("fs", &["-o", &format!("metrics=127.0.0.1:{port}")])?;
    let body = get(TcpStream::connect(("127.0.0.1", port))?)?;
    ensure!(samples(&body)?.contains_key("shale_store_files"), "{body}");
    // A second one finds the port taken and does not mount.
    let (store, at) = (case.work().join("second.store"), case.dir("second")?);
    let taken = shale()
        .args(["mount", "--metrics", &format!("127.0.0.1:{port}")])
        .args([&store, &at])
        .run()?
        .status_is(32)?;
    ensure_eq!(taken.stderr.lines().count(), 1, "{}", taken.stderr);
    for address in [
        "0.0.0.0:9460",
        "[::]:9460",
        "192.0.2.1:9460",
        "localhost:9460",
        "unix:x",
        "",
    ] {
        let refused = shale()
            .args(["mount", "--metrics", address])
            .args([&store, &at])
            .run()?
            .status_is(1)?;
        ensure_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    }
    mount.unmount()?;
    ensure!(
        TcpStream::connect(("127.0.0.1", port)).is_err(),
        "the port is still open"
    );
    Ok(())
}

/// What users get from the port of the metrics, by either protocol.
pub(crate) fn authorised(case: &Case) -> Outcome {
    const LISTED: u32 = 4242;
    const OTHER: u32 = 4243;
    let ask = "import socket, sys\n\
        with socket.socket(getattr(socket, sys.argv[1])) as s:\n\
        \x20   s.connect((sys.argv[2], int(sys.argv[3])))\n\
        \x20   s.sendall(b'GET /metrics HTTP/1.1\\r\\n\\r\\n')\n\
        \x20   print(b''.join(iter(lambda: s.recv(65536), b'')).decode())\n";
    let six = std::net::TcpListener::bind("[::1]:0").is_ok();
    for (host, clients) in [
        (
            "127.0.0.1",
            &[("AF_INET", "127.0.0.1"), ("AF_INET6", "::ffff:127.0.0.1")][..],
        ),
        ("[::1]", &[("AF_INET6", "::1")]),
    ] {
        if !six && host == "[::1]" {
            continue;
        }
        let port = std::net::TcpListener::bind(format!("{host}:0"))?
            .local_addr()?
            .port();
        let options = format!("metrics={host}:{port},metrics_users=nobody+{LISTED}");
        let name = if host == "[::1]" { "six" } else { "four" };
        let mut mount = case.mount(name, &["-o", &options])?;
        for (family, address) in clients {
            if !six && *family == "AF_INET6" {
                continue;
            }
            for (user, status) in [(0, "200 OK"), (LISTED, "200 OK"), (OTHER, "403 Forbidden")] {
                let answer = Cmd::new("python3")
                    .args(["-c", ask, family, address, &port.to_string()])
                    .user(user, user)
                    .ok()?;
                ensure!(
                    answer.starts_with(&format!("HTTP/1.1 {status}\r\n")),
                    "user {user}, {family}: {answer}"
                );
                ensure_eq!(answer.contains("shale_"), status == "200 OK", "{answer}");
            }
        }
        mount.unmount()?;
    }
    let (store, at) = (case.work().join("store"), case.dir("at")?);
    for options in [
        "metrics=127.0.0.1:9460,metrics_users=nosuchuser",
        "metrics=unix:/run/shale.sock,metrics_users=0",
        "metrics_users=0",
    ] {
        let refused = shale()
            .args(["mount", "-o", options])
            .args([&store, &at])
            .run()?
            .status_is(1)?;
        ensure_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
        ensure!(
            refused.stderr.contains("metrics_users"),
            "{}",
            refused.stderr
        );
    }
    Ok(())
}

pub(crate) fn socket(case: &Case) -> Outcome {
    let path = case.work().join("metrics.sock");
    let address = format!("unix:{}", path.display());
    let mut mount = case.mount("fs", &["--metrics", &address])?;
    let metadata = fs::metadata(&path)?;
    ensure_eq!(metadata.permissions().mode() & 0o777, 0o600);
    ensure_eq!(metadata.uid(), 0);
    mount.kill9()?;
    mount.detach();
    ensure!(path.exists(), "a killed daemon cannot clean up");
    mount.start()?;
    scrape(&path)?;
    mount.unmount()?;
    ensure!(!path.exists(), "the socket stayed behind");
    fs::write(&path, "a user's file")?;
    ensure!(mount.start().is_err(), "a file was replaced by a socket");
    ensure_eq!(fs::read(&path)?, b"a user's file");
    Ok(())
}

pub(crate) fn hostile(case: &Case) -> Outcome {
    let path = case.work().join("metrics.sock");
    let address = format!("unix:{}", path.display());
    let mut mount = case.mount("fs", &["--metrics", &address])?;
    let mut rng = Rng::new(seed()?);
    // Some say nothing and stay.
    let silent: Vec<UnixStream> = (0..6)
        .map(|_| UnixStream::connect(&path))
        .collect::<Result<_, _>>()?;
    for _ in 0..60 {
        let mut stream = UnixStream::connect(&path)?;
        let length = rng.below(20_000) as usize;
        // It may hang up before everything is sent.
        let _ = stream.write_all(&rng.bytes(length));
        if rng.below(2) == 0 {
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
    }
    let many: Vec<UnixStream> = (0..40)
        .filter_map(|_| UnixStream::connect(&path).ok())
        .collect();
    let begun = Instant::now();
    fs::write(mount.path().join("f"), vec![1; 1 << 20])?;
    ensure_eq!(fs::read(mount.path().join("f"))?.len(), 1 << 20);
    ensure!(
        begun.elapsed() < Duration::from_secs(5),
        "the file system waited for scrapers"
    );
    drop((silent, many));
    // Slow clients are gone by now or cut off after some seconds.
    let deadline = Instant::now() + Duration::from_secs(30);
    while scrape(&path).is_err() {
        ensure!(Instant::now() < deadline, "metrics are not served any more");
        std::thread::sleep(Duration::from_millis(100));
    }
    mount.unmount()
}

pub(crate) fn operator(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let dir = mount.path().join("some/where");
    fs::create_dir_all(&dir)?;
    let file = File::create(dir.join("busy.dat"))?;
    file.write_all_at(&[1; 300_000], 0)?;
    file.sync_all()?;
    let live: Value = serde_json::from_str(&report(mount.path(), "live")?)?;
    ensure_eq!(number(&live["written"])?, 300_000);
    ensure_eq!(live["busiest"][0]["path"], "some/where/busy.dat");
    ensure!(number(&live["busiest"][0]["written"])? > 0, "{live:#}");
    ensure!(
        report(&dir.join("busy.dat"), "live").is_err(),
        "files have it too"
    );
    for what in [
        "live",
        "damaged",
        "gc",
        "garbage",
        "frames_read",
        "bytes_read",
    ] {
        let getfattr = || {
            Cmd::new("getfattr")
                .args(["-n", &format!("user.shale.stat.{what}")])
                .arg(mount.path())
        };
        getfattr().ok()?;
        let refused = getfattr().user(4242, 4242).run()?;
        ensure!(
            !refused.status.success() && refused.stderr.contains("not permitted"),
            "{}",
            refused.describe()
        );
    }
    drop(file);
    mount.unmount()
}
