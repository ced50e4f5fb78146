//! The reports of `shale settle` and `shale demo`.

use std::fs::{self};
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use shale_tests::{
    Case, Context, Mount, Outcome, Rng, ensure, ensure_eq, note, report, seed, shale, wait,
};

pub(crate) fn demo(case: &Case) -> Outcome {
    let dir = case.work().join("demo");
    let text = shale()
        .args(["demo", "--steps", "2"])
        .arg(&dir)
        .limit(Duration::from_secs(120))
        .ok()?;
    note(&text);
    let line = |what: &str| {
        let mut lines = text.lines();
        let found = lines.find_map(|line| line.strip_prefix(what));
        found.map(str::trim).doing(format!("'{what}' in {text}"))
    };
    let ratio = |line: &str| -> Outcome<f64> {
        let last = line.split(' ').rfind(|word| word.ends_with('x'));
        let last = last.doing(format!("a ratio in '{line}'"))?;
        Ok(last.trim_end_matches('x').parse()?)
    };
    let (written, settled) = (ratio(line("written")?)?, ratio(line("settled")?)?);
    ensure!(
        settled > written * 1.05,
        "{written} as written, {settled} settled"
    );
    ensure_eq!(
        ratio(line("total")?)?,
        settled,
        "the total of the variables"
    );
    ensure!(
        line("a slice")?.starts_with("ta[:, :, 192, :], 64.0 KiB from 32 places"),
        "{text}"
    );
    ensure!(
        line("read back")?.ends_with("every byte as written"),
        "{text}"
    );
    let gzip = line("others")?.strip_prefix("gzip -6 ").doing("gzip")?;
    let gzip = ratio(gzip.split(',').next().unwrap_or_default())?;
    ensure!(
        gzip > 1.0 && gzip < settled,
        "{gzip} with gzip, {settled} settled"
    );
    ensure!(!dir.exists(), "{} is left", dir.display());
    Ok(())
}

/// Forty files that settle at one a second.
struct Slow {
    mount: Mount,
    files: Vec<(PathBuf, Vec<u8>)>,
    output: PathBuf,
}

impl Slow {
    const COUNT: u64 = 40;

    fn new(case: &Case) -> Outcome<Slow> {
        let mount = case.mount("fs", &["-o", "settle=off,settle_rate=1M"])?;
        let mut rng = Rng::new(seed()?);
        let mut files = Vec::new();
        for number in 0..Self::COUNT {
            let (path, bytes) = (mount.path().join(number.to_string()), rng.bytes(1 << 20));
            fs::write(&path, &bytes)?;
            files.push((path, bytes));
        }
        Ok(Slow {
            mount,
            files,
            output: case.work().join("output"),
        })
    }

    fn queued(&self) -> Outcome<u64> {
        Ok(report(self.mount.path(), "queued")?.parse()?)
    }

    /// Files that have been settled in this mount.
    fn settled(&self) -> Outcome<u64> {
        let live = report(self.mount.path(), "live")?;
        let live: serde_json::Value = serde_json::from_str(&live)?;
        Ok(live["settle"]["files"].as_u64().unwrap_or(0))
    }

    /// Begins to rewrite all files. Returns when the last one has been asked for.
    fn rewrite(&self) -> Outcome<Child> {
        let child = shale()
            .args(["settle", "--rewrite"])
            .arg(self.mount.path())
            .output_to(&self.output)?
            .spawn()?;
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.settled()? + self.queued()? < Self::COUNT {
            ensure!(Instant::now() < deadline, "not all files are queued");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(child)
    }

    /// The status of a command that was started, and what it said.
    fn end(&self, mut child: Child) -> Outcome<(Option<i32>, String)> {
        let status = wait(&mut child, Duration::from_secs(60))?.doing("it does not end")?;
        let text = fs::read_to_string(&self.output)?;
        note(&text);
        Ok((status.code(), text))
    }

    fn finish(mut self) -> Outcome {
        self.mount.remount()?;
        for (path, bytes) in &self.files {
            ensure!(fs::read(path)? == *bytes, "{} differs", path.display());
        }
        self.mount.unmount()?;
        self.mount.fsck_is_clean()
    }
}

pub(crate) fn interrupted(case: &Case) -> Outcome {
    let slow = Slow::new(case)?;
    let child = slow.rewrite()?;
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT)?;
    let (status, text) = slow.end(child)?;
    ensure_eq!(status, Some(130), "its status");
    let path = slow.mount.path().display();
    ensure!(
        text.contains("still queued and will settle in the background")
            && text.contains(&format!("'shale settle --cancel {path}'")),
        "{text}"
    );
    let said: u64 = text
        .split(' ')
        .find_map(|word| word.parse().ok())
        .doing("a number")?;
    let queued = slow.queued()?;
    ensure!(
        (1..=said).contains(&queued) && said <= Slow::COUNT,
        "{queued} files are queued, and it says {said}"
    );
    // Nothing but the path is needed, and not even that.
    let text = shale()
        .args(["settle", "--cancel"])
        .cwd(slow.mount.path())
        .ok()?;
    ensure!(text.ends_with(" files cancelled\n"), "{text}");
    ensure_eq!(slow.queued()?, 0, "queued files");
    let text = shale()
        .args(["settle", "--cancel"])
        .arg(slow.mount.path())
        .ok()?;
    ensure_eq!(text, "nothing was queued\n", "the second time");
    slow.finish()
}

pub(crate) fn cancelled(case: &Case) -> Outcome {
    let slow = Slow::new(case)?;
    let child = slow.rewrite()?;
    let summary = shale()
        .args(["settle", "--cancel", "--json"])
        .arg(slow.mount.path())
        .ok()?;
    let summary: serde_json::Value = serde_json::from_str(&summary)?;
    let count = summary["cancelled"].as_u64().unwrap_or(0);
    ensure!(count >= Slow::COUNT / 4, "{summary}");
    // The command that waits for them reports it.
    let (status, text) = slow.end(child)?;
    ensure_eq!(status, Some(75), "its status");
    ensure!(text.contains(" files cancelled\n"), "{text}");
    ensure_eq!(slow.queued()?, 0, "queued files");
    let outcomes: Vec<String> = slow
        .files
        .iter()
        .map(|(path, _)| report(path, "outcome"))
        .collect::<Outcome<_>>()?;
    let cancelled = outcomes.iter().filter(|it| *it == "cancelled").count() as u64;
    // One that had been encoded is done all the same.
    ensure!(
        cancelled > 0 && cancelled <= count && count - cancelled <= 5,
        "{count} cancelled, {outcomes:?}"
    );
    slow.finish()
}

/// Counts also what was written a moment ago and is not in the store yet.
pub(crate) fn gained(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let contents = Rng::new(4).bytes(4 << 20);
    let path = mount.path().join("noise");
    fs::write(&path, &contents)?;
    std::os::unix::fs::symlink("noise", mount.path().join("link"))?;
    let settled = shale()
        .args(["settle", "--wait", "--json"])
        .arg(mount.path().join("link"))
        .ok()?;
    let settled: serde_json::Value = serde_json::from_str(&settled)?;
    ensure_eq!(settled["files"], 1, "what is named is followed");
    let before = settled["stored_before"].as_u64().unwrap_or(0);
    ensure!(before >= 4 << 20, "noise of 4 MiB: {settled:#}");
    fs::hard_link(&path, mount.path().join("second"))?;
    let settled = shale()
        .args(["settle", "--rewrite", "--json"])
        .args([mount.path().join("link"), mount.path().into(), path])
        .ok()?;
    let settled: serde_json::Value = serde_json::from_str(&settled)?;
    ensure_eq!(settled["files"], 1, "a file of several names");
    ensure_eq!(settled["raw"], 4 << 20, "its bytes");
    mount.unmount()
}
