//! Measures the embedded engine: `measure_engine <directory> <files> [fill|kill|open|read]`.
//!
//! `fill` loads three keys a file and closes, `kill` does and dies without closing, `open` opens
//! and reads, `read` is `open` with a longer look at memory, `lose` removes the base first.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shale_backing::PosixBacking;
use shale_index::Kv;
use shale_index::engine::{Embedded, Options};
use shale_index::kv::Txn;

type Failure = Box<dyn std::error::Error>;

fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        line.map(|line| line[name.len()..].trim().to_owned())
            .unwrap_or_default()
    };
    format!("memory {} (peak {})", line("VmRSS:"), line("VmHWM:"))
}

/// Three keys a file: a name in a directory of a thousand, an inode, a commit record.
fn keys(file: u64) -> [Vec<u8>; 3] {
    let key = |kind: u8, number: u64, tail: &str| {
        let mut key = vec![kind];
        key.extend(number.to_be_bytes());
        key.extend(tail.bytes());
        key
    };
    let name = format!("rank_{:05}_step_{file:08}.nc", file % 97);
    [
        key(b'd', file / 1000, &name),
        key(b'i', file, ""),
        key(b'c', file, "0123456789abcdef"),
    ]
}

fn value(seed: u64) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let random = |_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    // Half noise, half the part that all records share.
    let mut value: Vec<u8> = (0..60).map(random).collect();
    value.resize(120, 7);
    value
}

fn percentile(times: &mut [Duration], share: f64) -> Duration {
    times.sort_unstable();
    times[((times.len() - 1) as f64 * share) as usize]
}

fn open(path: &Path) -> Result<Embedded, Failure> {
    let since = Instant::now();
    let backing = Arc::new(PosixBacking::new(path));
    let (kv, recovery) = Embedded::open(backing, Options::default())?;
    println!("open                 {:?}, {}", since.elapsed(), memory());
    println!("                     {recovery:?}");
    Ok(kv)
}

fn fill(kv: &Embedded, files: u64) -> Result<(), Failure> {
    let since = Instant::now();
    for file in 0..files {
        let mut txn = Txn::new();
        for (number, key) in keys(file).into_iter().enumerate() {
            txn.put(key, value(file * 3 + number as u64));
        }
        kv.commit(&txn)?;
        if file % (files / 5).max(1) == 0 {
            println!("                     {file} files, {}", memory());
        }
    }
    let rate = files as f64 / since.elapsed().as_secs_f64();
    println!(
        "fill                 {:?}, {rate:.0} commits/s, {}",
        since.elapsed(),
        memory()
    );
    let since = Instant::now();
    kv.sync(kv.version())?;
    println!("last sync            {:?}", since.elapsed());
    Ok(())
}

fn read(kv: &Embedded, files: u64, rounds: u64) -> Result<(), Failure> {
    let mut x = 1u64;
    let mut any = |below: u64| {
        x = x
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) % below
    };
    for (name, below) in [("cold", files), ("warm", files.min(500))] {
        let since = Instant::now();
        for _ in 0..rounds {
            let [_, key, _] = keys(any(below));
            if kv.get(&key)?.is_none() {
                return Err("a key is missing".into());
            }
        }
        println!(
            "get, {name}            {:?} each, {}",
            since.elapsed() / rounds as u32,
            memory()
        );
    }
    let since = Instant::now();
    let start = keys(1000)[0][..9].to_vec();
    let found = kv.range(&start, &keys(2000)[0][..9], usize::MAX)?.len();
    println!("list of {found} names   {:?}", since.elapsed());
    let mut times = Vec::new();
    for number in 0..300 {
        let mut txn = Txn::new();
        txn.put(keys(any(files))[1].clone(), value(number));
        kv.commit(&txn)?;
        let since = Instant::now();
        kv.sync(kv.version())?;
        times.push(since.elapsed());
    }
    println!(
        "sync of one commit   {:?} median, {:?} p99",
        percentile(&mut times, 0.5),
        percentile(&mut times, 0.99)
    );
    let mut times = Vec::new();
    for number in 0..20_000 {
        let mut txn = Txn::new();
        txn.put(keys(any(files))[1].clone(), value(number));
        let since = Instant::now();
        kv.commit(&txn)?;
        times.push(since.elapsed());
    }
    println!(
        "update of any key    {:?} median, {:?} p99, {:?} worst, {}",
        percentile(&mut times, 0.5),
        percentile(&mut times, 0.99),
        percentile(&mut times, 1.0),
        memory()
    );
    let hot = keys(any(files))[1].clone();
    kv.get(&hot)?;
    let since = Instant::now();
    for _ in 0..rounds {
        kv.get(&hot)?;
    }
    println!(
        "get, same key        {:?} each",
        since.elapsed() / rounds as u32
    );
    Ok(())
}

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let usage = "measure_engine <directory> <files> fill|kill|open|read|lose";
    let (Some(path), Some(files), Some(what)) = (args.next(), args.next(), args.next()) else {
        return Err(usage.into());
    };
    let (path, files) = (Path::new(&path), files.parse::<u64>()?);
    std::fs::create_dir_all(path)?;
    if what == "lose" {
        std::fs::remove_dir_all(path.join("index/sled"))?;
    }
    let kv = open(path)?;
    match what.as_str() {
        "fill" | "kill" => fill(&kv, files)?,
        "open" | "lose" => read(&kv, files, 20_000)?,
        "read" => read(&kv, files, 1_000_000)?,
        _ => return Err(usage.into()),
    }
    if what == "kill" {
        // No destructor runs: the files stay as a killed process leaves them.
        std::process::exit(0);
    }
    let since = Instant::now();
    kv.close()?;
    println!("close                {:?}, {}", since.elapsed(), memory());
    Ok(())
}
