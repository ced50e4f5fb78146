//! Settling and collecting: files change their form on disk, never their contents.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use shale_codec::{FrameKind, HEADER_LEN, parse_header};
use shale_tests::{
    Case, Cmd, Context, Mount, Need, Outcome, Rng, Suite, ensure, ensure_eq, note, python, report,
    script, seed, shale, stored, wait, wait_for,
};

fn main() -> ExitCode {
    Suite::new("settle")
        .need(Need::Shale)
        .need(Need::File(python()))
        .limit(Duration::from_secs(300))
        .test(
            "contents_survive_settling_under_readers_and_writers",
            under_load,
        )
        .test("a_settled_file_can_be_written_and_settles_again", again)
        .test("quiet_files_settle_by_themselves", by_themselves)
        .test("what_was_gained_is_counted_from_what_was_stored", gained)
        .test("the_demo_shows_what_settling_gains", demo)
        .test("small_files_are_settled_together", together)
        .test("an_interrupted_settle_says_what_goes_on", interrupted)
        .test("what_was_asked_for_can_be_cancelled", cancelled)
        .test("killed_while_settling_it_is_old_or_new", killed)
        .test("settled_files_are_rebuilt_from_packs_alone", rebuilt)
        .test("flipped_bytes_in_settled_packs_are_never_served", flipped)
        .test("deleting_half_gives_the_space_back", space_back)
        .test("what_cannot_be_read_cannot_be_settled", unreadable)
        .test("a_damaged_pack_is_not_emptied_but_others_are", undeletable)
        .run()
}

/// A corpus on the host and in a mount.
struct Corpus {
    host: PathBuf,
    mount: Mount,
    names: Vec<String>,
}

impl Corpus {
    fn new(case: &Case, options: &[&str]) -> Outcome<Corpus> {
        let host = case.dir("host")?;
        Cmd::new(python())
            .arg(script("settle_corpus.py"))
            .arg(&host)
            .limit(Duration::from_secs(120))
            .ok()?;
        let mount = case.mount("fs", options)?;
        let mut names = Vec::new();
        for entry in fs::read_dir(&host)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            fs::copy(host.join(&name), mount.path().join(&name))?;
            names.push(name);
        }
        names.sort();
        ensure!(names.len() >= 12, "the corpus is incomplete: {names:?}");
        Ok(Corpus { host, mount, names })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.mount.path().join(name)
    }

    fn check(&self, name: &str) -> Outcome {
        let expected = fs::read(self.host.join(name))?;
        let found = fs::read(self.at(name)).doing(format!("reading {name}"))?;
        ensure!(found == expected, "{name} differs from its original");
        Ok(())
    }

    fn check_all(&self) -> Outcome {
        self.names.iter().try_for_each(|name| self.check(name))
    }

    /// Changes some bytes of a file, on the host and in the mount.
    fn patch(&self, name: &str, rng: &mut Rng) -> Outcome {
        let host = File::options().write(true).open(self.host.join(name))?;
        let here = File::options().write(true).open(self.at(name))?;
        let len = host.metadata()?.len();
        for _ in 0..3 {
            let count = 1 + rng.below(9000) as usize;
            let bytes = rng.bytes(count);
            let offset = rng.below(len);
            host.write_all_at(&bytes, offset)?;
            here.write_all_at(&bytes, offset)?;
        }
        here.sync_all()?;
        Ok(())
    }

    fn settle(&self) -> Outcome {
        shale()
            .args(["settle", "--wait"])
            .arg(self.mount.path())
            .limit(Duration::from_secs(200))
            .ok()?;
        Ok(())
    }

    fn finish(mut self) -> Outcome {
        self.mount.remount()?;
        self.check_all()?;
        self.mount.unmount()?;
        self.mount.fsck_is_clean()
    }
}

fn under_load(case: &Case) -> Outcome {
    let corpus = Corpus::new(case, &["-o", "settle=off", "--memory", "64M"])?;
    File::open(corpus.mount.path())?.sync_all()?;
    for name in &corpus.names {
        File::open(corpus.at(name))?.sync_all()?;
    }
    let before: Vec<u64> = corpus
        .names
        .iter()
        .map(|name| stored(&corpus.at(name)))
        .collect::<Outcome<_>>()?;
    let mut rng = Rng::new(seed()?);
    let busy = "offset64.nc";
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|reader| {
                let (corpus, over) = (&corpus, &over);
                scope.spawn(move || -> Outcome<usize> {
                    let mut rounds = 0;
                    while !over.load(Ordering::SeqCst) || rounds == 0 {
                        let names = corpus.names.iter().filter(|name| *name != busy);
                        for name in names.skip(reader).step_by(2) {
                            corpus.check(name)?;
                        }
                        rounds += 1;
                    }
                    Ok(rounds)
                })
            })
            .collect();
        let mut result = Ok(());
        for _ in 0..4 {
            result = result.and_then(|()| {
                shale().arg("settle").arg(corpus.mount.path()).ok()?;
                for _ in 0..5 {
                    corpus.patch(busy, &mut rng)?;
                }
                corpus.check(busy)
            });
        }
        result = result.and_then(|()| corpus.settle());
        over.store(true, Ordering::SeqCst);
        let mut rounds = 0;
        for reader in readers {
            rounds += reader.join().expect("a reader panicked")?;
        }
        note(format!("{rounds} rounds of readers"));
        result
    })?;
    corpus.check_all()?;
    for (name, before) in corpus.names.iter().zip(before) {
        let (state, after) = (
            report(&corpus.at(name), "state")?,
            stored(&corpus.at(name))?,
        );
        note(format!(
            "{name}: {before} stored bytes, then {after} ({state})"
        ));
        match name.as_str() {
            "noise.bin" | "deflated.nc" => ensure_eq!(state, "incompressible", "state of {name}"),
            "small.txt" => {}
            "classic.nc" | "data64.nc" | "plain.h5" | "array.npy" => {
                ensure_eq!(state, "settled", "state of {name}");
                ensure!(after < before, "{name} did not become smaller");
            }
            _ => {}
        }
    }
    corpus.finish()
}

fn again(case: &Case) -> Outcome {
    let corpus = Corpus::new(case, &["-o", "settle=off"])?;
    let mut rng = Rng::new(seed()?);
    corpus.settle()?;
    for _ in 0..3 {
        for name in ["classic.nc", "plain.h5", "array.npy", "raw.bin"] {
            corpus.patch(name, &mut rng)?;
            ensure_eq!(
                report(&corpus.at(name), "state")?,
                "stored",
                "state of {name}"
            );
            corpus.check(name)?;
        }
        corpus.settle()?;
        corpus.check_all()?;
        ensure_eq!(
            report(&corpus.at("classic.nc"), "state")?,
            "settled",
            "state of classic.nc"
        );
    }
    // Cut and extended, appended to, replaced.
    for name in ["classic.nc", "raw.bin"] {
        for place in [corpus.host.join(name), corpus.at(name)] {
            let file = File::options().write(true).open(place)?;
            file.set_len(1_234_567)?;
            file.set_len(2_000_000)?;
            file.write_all_at(b"appended", 2_000_000)?;
        }
        corpus.check(name)?;
    }
    corpus.settle()?;
    corpus.check_all()?;
    corpus.finish()
}

fn by_themselves(case: &Case) -> Outcome {
    let corpus = Corpus::new(case, &["-o", "settle=1"])?;
    let open = File::options().write(true).open(corpus.at("classic.nc"))?;
    fs::copy(
        corpus.host.join("array.npy"),
        corpus.mount.path().join("later.npy"),
    )?;
    wait_for(&corpus.at("later.npy"), "settled")?;
    wait_for(&corpus.at("noise.bin"), "incompressible")?;
    ensure!(
        report(&corpus.at("classic.nc"), "state")? != "settled",
        "a file that is open for writing was settled"
    );
    drop(open);
    wait_for(&corpus.at("classic.nc"), "settled")?;
    fs::remove_file(corpus.mount.path().join("later.npy"))?;
    corpus.finish()
}

fn demo(case: &Case) -> Outcome {
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
    let gzip = line("beside it")?.strip_prefix("gzip -6 ").doing("gzip")?;
    let gzip = ratio(gzip.split(',').next().unwrap_or_default())?;
    ensure!(
        gzip > 1.0 && gzip < settled,
        "{gzip} with gzip, {settled} settled"
    );
    ensure!(!dir.exists(), "{} is left", dir.display());
    Ok(())
}

/// Chunks of an array, as Zarr stores them: many small files.
fn small_files(mount: &Mount, count: usize) -> Outcome<Vec<(PathBuf, Vec<u8>)>> {
    let mut rng = Rng::new(seed()?);
    let mut files = Vec::new();
    for number in 0..count {
        let noise = rng.bytes(5000);
        let element = |(n, noise): (usize, &u8)| {
            let value = 280.0 + 20.0 * ((n + number) as f32 / 90.0).sin();
            let value = value + f32::from(*noise) / 2000.0;
            ((value * 100.0).round() / 100.0).to_le_bytes()
        };
        let bytes: Vec<u8> = noise.iter().enumerate().flat_map(element).collect();
        let path = mount.path().join(format!("{number}.0.0"));
        fs::write(&path, &bytes)?;
        files.push((path, bytes));
    }
    Ok(files)
}

fn together(case: &Case) -> Outcome {
    const FILES: usize = 600;
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let files = small_files(&mount, FILES)?;
    let syncs = || -> Outcome<u64> {
        let live: serde_json::Value = serde_json::from_str(&report(mount.path(), "live")?)?;
        let count = |name: &str| live[name].as_u64().doing(format!("{name} of {live}"));
        Ok(count("pack_syncs")? + count("journal_syncs")?)
    };
    let before = syncs()?;
    let text = shale().args(["settle", "--wait"]).arg(mount.path()).ok()?;
    let needed = syncs()? - before;
    note(format!("{needed} syncs for {FILES} files; {text}"));
    ensure!(
        text.starts_with(&format!("{FILES} files,")),
        "not all files were settled: {text}"
    );
    // One by one they need five each.
    ensure!(
        needed < FILES as u64,
        "{needed} syncs for {FILES} small files"
    );
    let check = |files: &[(PathBuf, Vec<u8>)]| -> Outcome {
        for (path, bytes) in files {
            ensure!(fs::read(path)? == *bytes, "{} differs", path.display());
        }
        Ok(())
    };
    check(&files)?;
    for (path, bytes) in &files {
        ensure_eq!(report(path, "state")?, "settled", "state of a small file");
        ensure!(
            stored(path)? * 4 < bytes.len() as u64,
            "{} takes {} bytes",
            path.display(),
            stored(path)?
        );
    }
    mount.remount()?;
    check(&files)?;
    mount.unmount()?;
    mount.fsck_is_clean()
}

/// Forty files of which one settles in a second.
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

fn interrupted(case: &Case) -> Outcome {
    let slow = Slow::new(case)?;
    let child = slow.rewrite()?;
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT)?;
    let (status, text) = slow.end(child)?;
    ensure_eq!(status, Some(130), "its status");
    let path = slow.mount.path().display();
    ensure!(
        text.contains("still queued, and settled in the background")
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

fn cancelled(case: &Case) -> Outcome {
    let slow = Slow::new(case)?;
    let child = slow.rewrite()?;
    let summary = shale()
        .args(["settle", "--cancel", "--json"])
        .arg(slow.mount.path())
        .ok()?;
    let summary: serde_json::Value = serde_json::from_str(&summary)?;
    let count = summary["cancelled"].as_u64().unwrap_or(0);
    ensure!(count >= Slow::COUNT / 4, "{summary}");
    // Who waits for them learns of it.
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

fn killed(case: &Case) -> Outcome {
    let mut corpus = Corpus::new(case, &["-o", "settle=off,settle_workers=2"])?;
    for name in &corpus.names {
        File::open(corpus.at(name))?.sync_all()?;
    }
    File::open(corpus.mount.path())?.sync_all()?;
    let mut rng = Rng::new(seed()?);
    for round in 0..10 {
        for name in ["classic.nc", "data64.nc", "plain.h5", "raw.bin"] {
            corpus.patch(name, &mut rng)?;
        }
        shale().arg("settle").arg(corpus.mount.path()).ok()?;
        std::thread::sleep(Duration::from_millis(rng.below(400)));
        corpus.mount.kill9()?;
        corpus.mount.detach();
        corpus
            .mount
            .fsck_is_clean()
            .doing(format!("checking after kill {round}"))?;
        corpus.mount.start()?;
        corpus
            .check_all()
            .doing(format!("comparing after kill {round}"))?;
    }
    corpus.settle()?;
    // What the kills left behind is collected.
    shale()
        .args(["gc", "--wait", "--live", "95"])
        .arg(corpus.mount.path())
        .ok()?;
    corpus.check_all()?;
    let garbage: u64 = report(corpus.mount.path(), "garbage")?.parse()?;
    let alive = stored(corpus.mount.path())?;
    ensure!(
        garbage * 10 < alive,
        "{garbage} bytes of garbage stay beside {alive} that are alive"
    );
    corpus.finish()
}

fn rebuilt(case: &Case) -> Outcome {
    let mut corpus = Corpus::new(case, &["-o", "settle=off"])?;
    corpus.settle()?;
    corpus.mount.unmount()?;
    fs::remove_dir_all(corpus.mount.store().join("index"))?;
    corpus.mount.fsck(&["--rebuild"])?.status_is(1)?;
    corpus.mount.fsck_is_clean()?;
    corpus.mount.start()?;
    corpus.check_all()?;
    // Without the catalogue the frames themselves must tell.
    corpus.mount.unmount()?;
    fs::remove_dir_all(corpus.mount.store().join("index"))?;
    fs::remove_dir_all(corpus.mount.store().join("packs/catalog"))?;
    corpus.mount.fsck(&["--rebuild"])?.status_is(1)?;
    corpus.mount.start()?;
    let mut found: Vec<Vec<u8>> = Vec::new();
    for entry in fs::read_dir(corpus.at("lost+found"))? {
        found.push(fs::read(entry?.path())?);
    }
    for name in &corpus.names {
        let expected = fs::read(corpus.host.join(name))?;
        ensure!(
            found.contains(&expected),
            "{name} is not among the {} files in lost+found",
            found.len()
        );
    }
    corpus.mount.unmount()
}

fn flipped(case: &Case) -> Outcome {
    let mut corpus = Corpus::new(case, &["-o", "settle=off"])?;
    corpus.settle()?;
    shale()
        .args(["gc", "--wait", "--live", "100"])
        .arg(corpus.mount.path())
        .ok()?;
    corpus.mount.unmount()?;
    let packs = packs(corpus.mount.store())?;
    let mut rng = Rng::new(seed()?);
    let (mut refused, mut served) = (0, 0);
    for _ in 0..20 {
        let pack = &packs[rng.below(packs.len() as u64) as usize];
        let file = File::options().read(true).write(true).open(pack)?;
        let at = rng.below(file.metadata()?.len());
        let mut byte = [0];
        file.read_exact_at(&mut byte, at)?;
        file.write_all_at(&[byte[0] ^ (1 << rng.below(8))], at)?;
        corpus.mount.start()?;
        for name in &corpus.names {
            let expected = fs::read(corpus.host.join(name))?;
            match fs::read(corpus.at(name)) {
                Ok(found) => {
                    ensure!(found == expected, "{name}: wrong bytes were served");
                    served += 1;
                }
                Err(e) => {
                    ensure_eq!(e.raw_os_error(), Some(nix::libc::EIO), "reading {name}");
                    refused += 1;
                }
            }
        }
        corpus.mount.unmount()?;
        file.write_all_at(&byte, at)?;
    }
    note(format!("{served} files read, {refused} refused"));
    ensure!(refused >= 5, "the damage did not reach the data");
    corpus.mount.fsck_is_clean()
}

/// Also of what was written a moment ago and is still on its way to the store.
fn gained(case: &Case) -> Outcome {
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

fn space_back(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let mut rng = Rng::new(5);
    let contents: Vec<Vec<u8>> = (0..16).map(|_| rng.bytes(4 << 20)).collect();
    for (number, bytes) in contents.iter().enumerate() {
        let file = File::create(mount.path().join(format!("f{number}")))?;
        file.write_all_at(bytes, 0)?;
        file.sync_all()?;
    }
    let full = occupied(&mount.store().join("packs"))?;
    for number in (0..16).step_by(2) {
        fs::remove_file(mount.path().join(format!("f{number}")))?;
    }
    let still_open = File::open(mount.path().join("f1"))?;
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut given_back = 0;
    // The space of a deleted file is known to be free a moment after the kernel forgets it.
    loop {
        let said = shale().args(["gc", "--json"]).arg(mount.path()).ok()?;
        let said: serde_json::Value = serde_json::from_str(&said)?;
        given_back += said["given_back"].as_u64().unwrap_or(0);
        let left = occupied(&mount.store().join("packs"))?;
        if left < full * 6 / 10 {
            let gone = full - left;
            ensure!(
                given_back.abs_diff(gone) < gone / 10,
                "{given_back} bytes are said to be given back, {gone} are gone"
            );
            break;
        }
        ensure!(
            Instant::now() < deadline,
            "{left} of {full} bytes are still occupied"
        );
    }
    let mut seen = vec![0; 4 << 20];
    still_open.read_exact_at(&mut seen, 0)?;
    ensure!(seen == contents[1], "an open file lost its contents");
    drop(still_open);
    mount.remount()?;
    for number in (1..16).step_by(2) {
        ensure!(
            fs::read(mount.path().join(format!("f{number}")))? == contents[number],
            "f{number} differs"
        );
    }
    mount.unmount()?;
    mount.fsck_is_clean()
}

/// The packs of a store, in the order in which they were made.
fn packs(store: &Path) -> Outcome<Vec<PathBuf>> {
    let mut packs = Vec::new();
    for session in fs::read_dir(store.join("packs"))? {
        let session = session?.path();
        if !session.ends_with("catalog") {
            for pack in fs::read_dir(session)? {
                packs.push(pack?.path());
            }
        }
    }
    packs.sort();
    Ok(packs)
}

fn write_synced(path: &Path, bytes: &[u8]) -> Outcome {
    let file = File::create(path)?;
    file.write_all_at(bytes, 0)?;
    Ok(file.sync_all()?)
}

/// Flips a bit at so many percent of a file.
fn spoil(path: &Path, percent: u64) -> Outcome {
    let file = File::options().read(true).write(true).open(path)?;
    let at = file.metadata()?.len() * percent / 100;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at)?;
    Ok(file.write_all_at(&[byte[0] ^ 1], at)?)
}

/// Flips a bit in the header of the last frame of data, which cannot even be copied then.
fn spoil_last_header(pack: &Path) -> Outcome {
    let mut bytes = fs::read(pack)?;
    let (mut at, mut last) = (64, None);
    while let Ok(header) = parse_header(&bytes[at..]) {
        if header.meta.kind == FrameKind::Data {
            last = Some(at);
        }
        at += header.frame_len as usize;
    }
    bytes[last.doing("a frame of data")? + HEADER_LEN / 2] ^= 1;
    Ok(fs::write(pack, bytes)?)
}

fn unreadable(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let smooth: Vec<u8> = (0..1_u32 << 20)
        .flat_map(|n| ((n as f32 / 90.0).sin() * 50.0).to_le_bytes())
        .collect();
    // Each in a pack of its own.
    for name in ["damaged", "whole"] {
        write_synced(&mount.path().join(name), &smooth)?;
        mount.remount()?;
    }
    mount.unmount()?;
    let packs = packs(mount.store())?;
    ensure_eq!(packs.len(), 2, "packs");
    spoil(&packs[0], 50)?;
    mount.start()?;
    let settle = |json: &[&str]| {
        shale()
            .args(["settle", "--wait"])
            .args(json)
            .arg(mount.path())
            .run()?
            .status_is(74)
    };
    let text = settle(&[])?.text();
    ensure!(
        text.contains("1 file could not be settled") && text.contains("damaged: "),
        "{text}"
    );
    let summary: serde_json::Value = serde_json::from_str(&settle(&["--json"])?.text())?;
    ensure_eq!(summary["failed"], 1, "failed files in {summary}");
    ensure_eq!(summary["files"], 1, "settled files in {summary}");
    let failed = &summary["problems"][0];
    let path = mount.path().join("damaged").display().to_string();
    ensure_eq!(failed["path"], path, "the file in {summary}");
    ensure!(
        failed["message"]
            .as_str()
            .is_some_and(|why| !why.is_empty()),
        "no reason in {summary}"
    );
    ensure!(
        fs::read(mount.path().join("whole"))? == smooth,
        "the other file differs"
    );
    mount.unmount()
}

fn undeletable(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let mut rng = Rng::new(6);
    let kept: Vec<Vec<u8>> = (0..2).map(|_| rng.bytes(3 << 20)).collect();
    // More garbage in the pack that is going to be damaged, so that it has its turn first.
    for (session, garbage) in [6, 4].into_iter().enumerate() {
        let (goes, stays) = (format!("goes-{session}"), format!("stays-{session}"));
        write_synced(&mount.path().join(&goes), &rng.bytes(garbage << 20))?;
        write_synced(&mount.path().join(&stays), &kept[session])?;
        mount.remount()?;
    }
    let before = packs(mount.store())?;
    ensure_eq!(before.len(), 2, "packs");
    mount.unmount()?;
    spoil_last_header(&before[0])?;
    mount.start()?;
    for session in 0..2 {
        fs::remove_file(mount.path().join(format!("goes-{session}")))?;
    }
    // The space of a deleted file is known to be free a moment after the kernel forgets it.
    let collect = || {
        shale()
            .args(["gc", "--wait", "--live", "90"])
            .arg(mount.path())
            .run()
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while before[1].exists() {
        collect()?;
        ensure!(
            Instant::now() < deadline,
            "{} is still there",
            before[1].display()
        );
    }
    let finished = collect()?.status_is(74)?;
    ensure!(
        finished.stderr.contains("broke off"),
        "{}",
        finished.describe()
    );
    let name = before[0].file_name().doing("the name of a pack")?;
    let log = mount.log_text();
    ensure!(
        log.contains(&*name.to_string_lossy()) && log.contains("is not emptied"),
        "{}",
        mount.log_tail()
    );
    ensure!(before[0].exists(), "the damaged pack has gone");
    let lost = fs::read(mount.path().join("stays-0")).map_err(|e| e.raw_os_error());
    ensure_eq!(lost.err(), Some(Some(nix::libc::EIO)), "reading stays-0");
    ensure!(
        fs::read(mount.path().join("stays-1"))? == kept[1],
        "stays-1 differs"
    );
    mount.unmount()
}

/// Bytes of all files below a directory.
fn occupied(dir: &Path) -> Outcome<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        sum += if metadata.is_dir() {
            occupied(&entry.path())?
        } else {
            metadata.len()
        };
    }
    Ok(sum)
}
