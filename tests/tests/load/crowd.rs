//! Many processes work in one mount while files settle and packs are collected.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::linux::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use shale_tests::{
    Case, Context, Failure, Mount, Outcome, Rng, ensure, ensure_eq, is_long, is_sanitized, note,
    seed, shale, tally,
};

use crate::latency::Latencies;
use crate::worker::{self, RECORD};

/// Nothing may take longer than this.
const SLOWEST: Duration = Duration::from_secs(30);
const MEMORY: u64 = 64 << 20;
/// The memory that a daemon may use, as docs/security.md states it.
const MOST_MEMORY: u64 = MEMORY + (128 << 20);
/// The memory that it keeps after being idle for a while, as docs/admin.md states it.
const KEPT_MEMORY: u64 = 48 << 20;
/// Packs that are kept open, and what a session has begun.
const KEPT_HANDLES: usize = 8;
/// Bytes of packs of a store without files: the pack that is written, with its header.
const KEPT_PACKS: u64 = 1 << 20;
/// How long the background passes may take to bring it there.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn leaves_nothing_behind(case: &Case) -> Outcome {
    let seed = seed()?;
    let mut rng = Rng::new(seed);
    let (processes, time) = if is_long() {
        let seconds = std::env::var("SHALE_TEST_SECONDS")?.parse()?;
        (64, Duration::from_secs(seconds))
    } else {
        (8, Duration::from_secs(10))
    };
    let options = ["--memory", "64M", "--chunk", "64K", "-o", "settle=1"];
    let mut mount = case.mount("fs", &options)?;
    let top = mount.path().to_path_buf();
    // Everything that is made once is made by now.
    fs::write(top.join("first"), rng.bytes(1 << 20))?;
    File::open(top.join("first"))?.sync_all()?;
    fs::remove_file(top.join("first"))?;
    let pid = mount.pid()?;
    let (before, handles_before) = (resident(pid)?, handles(pid)?);

    // The crowd leaves this one alone. It is to be settled while the others are busy.
    let numbers = (0..1u32 << 18).flat_map(|number| (number / 7).to_le_bytes());
    fs::write(top.join("quiet"), numbers.collect::<Vec<u8>>())?;
    fs::create_dir(top.join("common"))?;
    File::create(top.join("log"))?;
    let mut workers = Vec::new();
    for number in 0..processes {
        workers.push(worker::start(&top, number, rng.next_u64())?);
    }
    let end = Instant::now() + time;
    // Settling makes way for the crowd, but not for ever.
    let settled = || Ok::<_, Failure>(number(&live(&mount)?["settle"]["files"]) > 0);
    while Instant::now() < end || (!settled()? && Instant::now() < end + PATIENCE) {
        std::thread::sleep(Duration::from_secs(1).min(time / 4));
        shale().args(["gc", "--live", "90"]).arg(&top).ok()?;
    }
    let most = memory(pid, "VmHWM:")?;
    ensure!(
        most <= MOST_MEMORY || is_sanitized(),
        "the daemon has had {} MiB, not more than {} are allowed",
        most >> 20,
        MOST_MEMORY >> 20
    );
    let mut latencies = Latencies::default();
    for worker in &mut workers {
        drop(worker.stdin.take());
    }
    for (number, mut worker) in workers.into_iter().enumerate() {
        let mut lines = String::new();
        let output = worker.stdout.as_mut().doing("the output of a worker")?;
        output.read_to_string(&mut lines)?;
        let status = worker.wait()?;
        ensure!(status.success(), "worker {number}: {status}, seed {seed}");
        latencies.add(&lines)?;
    }
    note(latencies.table());
    ensure!(
        latencies.count() > processes * 50,
        "only {} operations",
        latencies.count()
    );
    ensure!(
        latencies.most() < SLOWEST,
        "an operation took {:?}",
        latencies.most()
    );
    check_log(&top, processes)?;
    ensure!(settled()?, "nothing has settled meanwhile");
    let live = live(&mount)?;
    for operation in live["operations"].as_array().doing("operations")? {
        let slow = operation["buckets"].as_array().and_then(|b| b.last());
        ensure_eq!(
            slow.map(number),
            Some(0),
            "operations {} of the daemon that took more than 30 s",
            operation["name"]
        );
    }

    for entry in fs::read_dir(&top)? {
        let path = entry?.path();
        if path.is_dir() {
            fs::remove_dir_all(path)?;
        } else {
            fs::remove_file(path)?;
        }
    }
    let left = after_the_crowd(&mount, handles_before)?;
    let kept = gives_memory_back(pid, before)?;
    note(format!(
        "{} operations of {processes} processes; resident {} MiB before, {} at most, {} after; {left}",
        latencies.count(),
        before >> 20,
        most >> 20,
        kept >> 20,
    ));
    tally(
        "a crowd of processes: operations",
        latencies.count(),
        latencies.count(),
        0,
    );
    mount.unmount()?;
    mount.fsck_is_clean()
}

/// Waits until nothing of it is left, or reports what is.
fn after_the_crowd(mount: &Mount, handles_before: usize) -> Outcome<String> {
    let (pid, top) = (mount.pid()?, mount.path());
    let device = fs::metadata(top)?.st_dev();
    let deadline = Instant::now() + PATIENCE;
    loop {
        shale()
            .args(["gc", "--wait", "--live", "99"])
            .arg(top)
            .ok()?;
        let live = live(mount)?;
        let mut left = Vec::new();
        let mut expect = |what: &str, found: u64, most: u64| {
            if found > most {
                left.push(format!("{what}: {found}, not more than {most} expected"));
            }
        };
        expect("files", number(&live["files"]), 0);
        expect("files in use", number(&live["files_in_use"]), 0);
        expect("files to be written", number(&live["dirty_files"]), 0);
        expect("bytes to be written", number(&live["buffer_used"]), 0);
        expect("stored bytes", number(&live["stored"]), 0);
        expect("bytes of packs", packs(mount.store())?, KEPT_PACKS);
        let most = (handles_before + KEPT_HANDLES) as u64;
        expect("open files of the daemon", handles(pid)? as u64, most);
        expect("locks", locks(device)?, 0);
        if left.is_empty() {
            return Ok(format!(
                "{} handles, {} KiB of packs left",
                handles(pid)?,
                packs(mount.store())? >> 10
            ));
        }
        ensure!(
            Instant::now() < deadline,
            "left behind after {} s: {}; collecting says {}",
            PATIENCE.as_secs(),
            left.join("; "),
            live["gc"]
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Waits until the daemon is about as small as it was, without sending it requests.
fn gives_memory_back(pid: i32, before: u64) -> Outcome<u64> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = resident(pid)?;
        if now <= before + KEPT_MEMORY || is_sanitized() {
            return Ok(now);
        }
        ensure!(
            Instant::now() < deadline,
            "the daemon has {} MiB after {} s without work, it had {} MiB before",
            now >> 20,
            PATIENCE.as_secs(),
            before >> 20
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Every record of every worker, once and in order.
fn check_log(top: &Path, processes: u64) -> Outcome {
    let text = fs::read_to_string(top.join("log"))?;
    ensure_eq!(text.len() % RECORD, 0, "the length of the common file");
    let mut next: BTreeMap<u64, u64> = BTreeMap::new();
    for line in text.lines() {
        let (worker, record) = line.trim().split_once(' ').doing("a record")?;
        let expected = next.entry(worker.parse()?).or_default();
        ensure_eq!(record.trim().parse::<u64>()?, *expected, "worker {worker}");
        *expected += 1;
    }
    for worker in 0..processes {
        let appended = fs::read_to_string(top.join(format!("worker-{worker}/appended")))?;
        let found = next.get(&worker).copied().unwrap_or_default();
        ensure_eq!(found.to_string(), appended, "records of worker {worker}");
    }
    Ok(())
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(u64::MAX)
}

fn live(mount: &Mount) -> Outcome<Value> {
    let mut buffer = vec![0; 64 << 10];
    let length = rustix::fs::getxattr(mount.path(), "user.shale.stat.live", &mut buffer[..])?;
    Ok(serde_json::from_slice(&buffer[..length])?)
}

fn resident(pid: i32) -> Outcome<u64> {
    memory(pid, "VmRSS:")
}

/// A line about memory in the kernel's account of a process.
fn memory(pid: i32, name: &str) -> Outcome<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes: u64 = line
        .and_then(|line| line.trim().strip_suffix(" kB"))
        .doing("the memory of the daemon")?
        .parse()?;
    Ok(kilobytes << 10)
}

fn handles(pid: i32) -> Outcome<usize> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// Bytes of all packs of a store.
fn packs(store: &Path) -> Outcome<u64> {
    let mut bytes = 0;
    for session in fs::read_dir(store.join("packs"))? {
        let session = session?;
        if session.file_name() == "catalog" {
            continue;
        }
        for pack in fs::read_dir(session.path())? {
            // It may be deleted at this moment.
            bytes += pack?.metadata().map_or(0, |pack| pack.len());
        }
    }
    Ok(bytes)
}

/// Locks on files of a device.
fn locks(device: u64) -> Outcome<u64> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let mark = format!(" {major:02x}:{minor:02x}:");
    let table = fs::read_to_string("/proc/locks")?;
    Ok(table.lines().filter(|line| line.contains(&mark)).count() as u64)
}
