//! What a mount says of itself: `shale stat`, its attributes, and metrics.

#[path = "reports/json.rs"]
mod documented;
#[path = "reports/odd.rs"]
mod odd;
#[path = "reports/places.rs"]
mod places;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::Value;
use shale_tests::{
    Case, Cmd, Context, Mount, Need, Outcome, Rng, Suite, ensure, ensure_eq, python, script, seed,
    shale,
};

fn main() -> ExitCode {
    Suite::new("reports")
        .need(Need::Shale)
        .need(Need::File(python()))
        .limit(Duration::from_secs(180))
        .test("variables_add_up_to_their_file", variables)
        .test("thousands_of_variables_come_in_pages", pages)
        .test("files_without_variables_say_so", no_variables)
        .test("a_listing_is_sorted_and_drawn", listing)
        .test("odd_things_are_shown_for_what_they_are", odd::odd_things)
        .test("directories_say_what_is_on_its_way", odd::on_its_way)
        .test("what_was_just_copied_is_counted", odd::just_copied)
        .test("ratios_are_of_what_is_stored", odd::while_writing)
        .test("a_total_is_not_less_than_its_parts", odd::growing)
        .test("a_listing_asks_once_for_each_name", odd::cheap)
        .test(
            "without_a_path_it_is_the_directory_where_one_is",
            places::here,
        )
        .test("overlapping_paths_count_once", places::overlapping)
        .test("a_store_is_told_from_a_mount", places::stores)
        .test("lines_fit_into_a_terminal", places::width)
        .test("json_is_as_documented", documented::fields)
        .test("what_is_dense_is_not_called_incompressible", dense)
        .test("totals_of_directories_are_exact_after_a_kill", totals)
        .test("metrics_move_with_the_work", metrics)
        .test("metrics_stay_on_this_machine", loopback)
        .test("metrics_on_a_port_are_for_those_who_may", authorised)
        .test("a_socket_is_private_and_leaves_with_the_mount", socket)
        .test("hostile_scrapers_disturb_nobody", hostile)
        .test("live_figures_are_for_the_operator", operator)
        .run()
}

fn report(path: &Path, what: &str) -> Outcome<String> {
    let mut value = vec![0; 64 << 10];
    let len = rustix::fs::getxattr(path, format!("user.shale.stat.{what}"), &mut value[..])?;
    Ok(String::from_utf8(value[..len].to_vec())?)
}

fn json(command: Cmd) -> Outcome<Value> {
    Ok(serde_json::from_str(&command.ok()?)?)
}

fn number(value: &Value) -> Outcome<u64> {
    value.as_u64().doing(format!("{value} is not a number"))
}

fn sum(list: &Value, field: &str) -> Outcome<u64> {
    let list = list.as_array().doing("no list in the report")?;
    list.iter().map(|entry| number(&entry[field])).sum()
}

fn corpus(case: &Case, mount: &Mount) -> Outcome<Vec<String>> {
    let host = case.dir("host")?;
    Cmd::new(python())
        .arg(script("settle_corpus.py"))
        .arg(&host)
        .ok()?;
    let mut names = Vec::new();
    for entry in fs::read_dir(&host)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        fs::copy(host.join(&name), mount.path().join(&name))?;
        File::open(mount.path().join(&name))?.sync_all()?;
        names.push(name);
    }
    names.sort();
    Ok(names)
}

fn variables(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let names = corpus(case, &mount)?;
    for settled in [false, true] {
        if settled {
            shale()
                .args(["settle", "--wait"])
                .arg(mount.path())
                .run()?
                .success()?;
        }
        for name in &names {
            let path = mount.path().join(name);
            let files = json(shale().args(["stat", "--vars", "--json"]).arg(&path))?;
            let file = &files["entries"][0];
            let raw = sum(&file["variables"], "raw")? + number(&file["rest"]["raw"])?;
            let stored = sum(&file["variables"], "stored")? + number(&file["rest"]["stored"])?;
            ensure_eq!(raw, fs::metadata(&path)?.len(), "raw bytes of {name}");
            ensure_eq!(
                stored,
                report(&path, "stored")?.parse::<u64>()?,
                "stored bytes of {name}"
            );
        }
        let path = mount.path().join("classic.nc");
        let files = json(shale().args(["stat", "--vars", "--json"]).arg(&path))?;
        let file = &files["entries"][0];
        ensure_eq!(file["format"], "NetCDF classic (CDF-1)");
        let find = |name: &str| {
            let all = file["variables"].as_array().into_iter().flatten();
            all.clone()
                .find(|variable| variable["name"] == name)
                .doing(format!("no variable {name}"))
        };
        let (wind, count) = (find("wind")?, find("count")?);
        ensure_eq!(number(&wind["raw"])?, 41 * 90 * 180 * 4);
        ensure_eq!(wind["type"], "float32 big");
        ensure_eq!(wind["shape"], serde_json::json!([41, 90, 180]));
        ensure!(
            !wind["transforms"]
                .as_array()
                .doing("no transforms")?
                .is_empty(),
            "it is not known how the frames of wind are made"
        );
        if settled {
            // Interleaved with wind in the file, stored in tiles of its own: integers of a
            // smooth field take much less than its floats.
            let per_byte = |variable: &Value| -> Outcome<f64> {
                Ok(number(&variable["stored"])? as f64 / number(&variable["raw"])? as f64)
            };
            ensure!(
                per_byte(count)? < per_byte(wind)? * 0.8,
                "the tiles of wind and count are not told apart: {file:#}"
            );
        }
    }
    mount.unmount()
}

fn pages(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    let path = mount.path().join("many.nc");
    let make = "import sys, netCDF4\n\
        with netCDF4.Dataset(sys.argv[1], 'w', format='NETCDF3_CLASSIC') as data:\n\
        \x20   data.createDimension('x', 10)\n\
        \x20   for i in range(4000):\n\
        \x20       data.createVariable('a_rather_long_name_of_variable_%d' % i, 'f4', ('x',))\n";
    let host = case.work().join("many.nc");
    Cmd::new(python()).arg("-c").arg(make).arg(&host).ok()?;
    fs::copy(&host, &path)?;
    ensure!(
        report(&path, "vars")?.contains("\tnext=") && !report(&path, "vars")?.contains("next=-"),
        "everything is on one page"
    );
    let files = json(shale().args(["stat", "--vars", "--json"]).arg(&path))?;
    let all = files["entries"][0]["variables"]
        .as_array()
        .doing("no variables")?;
    ensure_eq!(all.len(), 4000);
    ensure_eq!(all[3999]["name"], "a_rather_long_name_of_variable_3999");
    for wrong in ["vars.4001", "vars.x", "vars.-1", "varsx"] {
        ensure!(report(&path, wrong).is_err(), "{wrong} has a value");
    }
    mount.unmount()
}

fn no_variables(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    let path = mount.path().join("plain.txt");
    fs::write(&path, "a few words\n")?;
    File::create(mount.path().join("empty"))?;
    let text = shale().args(["stat", "--vars"]).arg(&path).ok()?;
    ensure!(
        text.contains("not understood") && text.contains("(other)"),
        "{text}"
    );
    let empty = mount.path().join("empty");
    shale().args(["stat", "--vars"]).arg(&empty).ok()?;
    let failed = shale()
        .args(["stat", "--vars"])
        .arg(mount.path())
        .run()?
        .status_is(64)?;
    ensure_eq!(failed.stderr.lines().count(), 1, "{}", failed.stderr);
    let failed = shale()
        .args(["stat", "--vars", "/etc/passwd"])
        .run()?
        .status_is(66)?;
    ensure_eq!(failed.stderr.lines().count(), 1, "{}", failed.stderr);
    mount.unmount()
}

fn listing(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let mut rng = Rng::new(3);
    for (name, len) in [("a", 300_000), ("b", 100_000), ("c", 200_000)] {
        let file = File::create(mount.path().join(name))?;
        file.write_all_at(&rng.bytes(len), 0)?;
        file.sync_all()?;
    }
    let order = |arguments: &[&str]| -> Outcome<String> {
        let text = shale()
            .arg("stat")
            .args(arguments)
            .arg(mount.path())
            .run()?
            .success()?
            .text();
        Ok(text
            .lines()
            .skip(1)
            .filter_map(|line| line.chars().next())
            .take(3)
            .collect())
    };
    ensure_eq!(order(&[])?, "abc");
    ensure_eq!(order(&["--reverse"])?, "cba");
    ensure_eq!(order(&["--sort", "stored"])?, "bca");
    ensure_eq!(order(&["--sort", "raw", "--reverse"])?, "acb");
    let drawn = |flag: &[&str]| -> Outcome<bool> {
        let text = shale().arg("stat").args(flag).arg(mount.path()).ok()?;
        // A sixth, a third and a half of the whole.
        Ok(["█▋", "███▎", "█████", "██████████"]
            .iter()
            .all(|bar| text.contains(bar)))
    };
    ensure!(drawn(&["--bars"])?, "no bars");
    ensure!(!drawn(&[])?, "bars though the output is no terminal");
    shale()
        .args(["stat", "--sort", "color"])
        .arg(mount.path())
        .run()?
        .status_is(64)?;
    mount.unmount()
}

/// Two files that settling leaves as they are: one does not compress at all.
fn dense(case: &Case) -> Outcome {
    let path = case.work().join("metrics.sock");
    let address = format!("unix:{}", path.display());
    let mut mount = case.mount("fs", &["--metrics", &address, "-o", "settle=off"])?;
    fs::write(mount.path().join("noise"), Rng::new(5).bytes(1 << 20))?;
    let mut half = Rng::new(6).bytes(1 << 20);
    half[..1 << 19].fill(b' ');
    fs::write(mount.path().join("half"), &half)?;
    Cmd::new("setfattr")
        .args(["-n", "user.shale.settle.codec", "-v", "lz4"])
        .arg(mount.path())
        .ok()?;
    shale().args(["settle", "--wait"]).arg(mount.path()).ok()?;
    for (name, state) in [("half", "compact"), ("noise", "incompressible")] {
        let path = mount.path().join(name);
        ensure_eq!(report(&path, "state")?, state, "{name}");
        let text = shale().arg("stat").arg(&path).ok()?;
        ensure!(text.contains(state), "{text}");
    }
    let counted = scrape(&path)?;
    for (result, count) in [("settled", 0.0), ("compact", 1.0), ("incompressible", 1.0)] {
        let name = format!("shale_settled_files_total{{result=\"{result}\"}}");
        ensure_eq!(counted.get(&name), Some(&count), "{name}");
    }
    let live: Value = serde_json::from_str(&report(mount.path(), "live")?)?;
    ensure_eq!(number(&live["settle"]["compact"])?, 1);
    ensure_eq!(number(&live["settle"]["incompressible"])?, 1);
    mount.unmount()
}

/// Sums below a directory as its files have them.
fn below(dir: &Path) -> Outcome<[u64; 4]> {
    let mut all = [0; 4];
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let more = if path.is_dir() {
            let inner = below(&path)?;
            [inner[0], inner[1], inner[2], inner[3] + 1]
        } else {
            let stored = report(&path, "stored")?.parse()?;
            [fs::metadata(&path)?.size(), stored, 1, 0]
        };
        for (sum, more) in all.iter_mut().zip(more) {
            *sum += more;
        }
    }
    Ok(all)
}

fn check_totals(dir: &Path) -> Outcome {
    let mut found = [0; 4];
    for (value, what) in found.iter_mut().zip(["raw", "stored", "files", "dirs"]) {
        *value = report(dir, what)?.parse()?;
    }
    ensure_eq!(found, below(dir)?, "totals of {}", dir.display());
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            check_totals(&path)?;
        }
    }
    Ok(())
}

fn totals(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=1"])?;
    let mut rng = Rng::new(seed()?);
    for round in 0..6 {
        for number in 0..12 {
            let dir = mount
                .path()
                .join(format!("d{}/e{}", number % 3, number % 2));
            fs::create_dir_all(&dir)?;
            let path = dir.join(format!("f{number}"));
            match rng.below(5) {
                0 if path.exists() => fs::remove_file(&path)?,
                1 if path.exists() => {
                    let to = mount
                        .path()
                        .join(format!("d{}/moved{number}", rng.below(3)));
                    fs::rename(&path, to)?;
                }
                2 if path.exists() => {
                    File::options()
                        .write(true)
                        .open(&path)?
                        .set_len(rng.below(50_000))?;
                }
                _ => {
                    let len = 1 + rng.below(400_000) as usize;
                    let mut bytes = rng.bytes(len);
                    bytes[..len / 2].fill(7);
                    let file = File::create(&path)?;
                    file.write_all_at(&bytes, rng.below(100_000))?;
                    if rng.below(2) == 0 {
                        file.sync_all()?;
                    }
                }
            }
        }
        std::thread::sleep(Duration::from_millis(rng.below(900)));
        mount.kill9()?;
        mount.detach();
        mount
            .fsck_is_clean()
            .doing(format!("checking after kill {round}"))?;
        mount.start()?;
        // Orphans of the kill are freed a moment later; they are in no directory.
        check_totals(mount.path()).doing(format!("after kill {round}"))?;
    }
    mount.unmount()
}

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

fn scrape(path: &Path) -> Outcome<BTreeMap<String, f64>> {
    let stream = UnixStream::connect(path).doing("connecting to the socket")?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    samples(&get(stream)?)
}

fn metrics(case: &Case) -> Outcome {
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
    // The counters began anew with the mount; reading went through the cache of the kernel.
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

fn loopback(case: &Case) -> Outcome {
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
        "somebody still listens"
    );
    Ok(())
}

/// What users get who ask for the metrics on a port, by either protocol.
fn authorised(case: &Case) -> Outcome {
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

fn socket(case: &Case) -> Outcome {
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
    fs::write(&path, "somebody's file")?;
    ensure!(mount.start().is_err(), "a file was replaced by a socket");
    ensure_eq!(fs::read(&path)?, b"somebody's file");
    Ok(())
}

fn hostile(case: &Case) -> Outcome {
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
    // Whoever dawdled is gone by now or cut off after some seconds.
    let deadline = Instant::now() + Duration::from_secs(30);
    while scrape(&path).is_err() {
        ensure!(Instant::now() < deadline, "metrics are not served any more");
        std::thread::sleep(Duration::from_millis(100));
    }
    mount.unmount()
}

fn operator(case: &Case) -> Outcome {
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
