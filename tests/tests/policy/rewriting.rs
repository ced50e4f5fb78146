//! `shale settle --rewrite`

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{Advice, FlockOperation, fadvise, flock};
use shale_tests::{
    Case, Finished, Mount, Outcome, Rng, ensure, ensure_eq, note, report, seed, shale, stored,
};

use crate::{field, made_by, set, write};

fn rewrite(path: &Path) -> Outcome<String> {
    shale()
        .args(["settle", "--rewrite"])
        .arg(path)
        .limit(Duration::from_secs(150))
        .ok()
}

/// Files of some sizes, each with its contents.
fn corpus(mount: &Mount) -> Outcome<Vec<(PathBuf, Vec<u8>)>> {
    let dir = mount.path().join("dir/sub");
    fs::create_dir_all(&dir)?;
    let mut files = Vec::new();
    for (name, bytes) in [
        ("large", field(5 << 20)),
        ("odd", field(777_777)[..3_000_001].to_vec()),
        ("small", field(1000)),
        ("empty", Vec::new()),
        ("noise", Rng::new(9).bytes(1 << 20)),
    ] {
        let path = dir.join(name);
        write(&path, &bytes)?;
        files.push((path, bytes));
    }
    // One with holes.
    let path = dir.join("sparse");
    let file = File::create(&path)?;
    let mut bytes = vec![0; 9_000_000];
    for at in [0, 4_000_000, 8_900_000] {
        file.write_all_at(&field(20_000)[..], at)?;
        bytes[at as usize..at as usize + 80_000].copy_from_slice(&field(20_000));
    }
    file.set_len(9_000_000)?;
    file.sync_all()?;
    files.push((path, bytes));
    Ok(files)
}

fn check(files: &[(PathBuf, Vec<u8>)]) -> Outcome {
    for (path, bytes) in files {
        // The kernel's cache must not answer for us.
        fadvise(File::open(path)?, 0, None, Advice::DontNeed)?;
        ensure!(fs::read(path)? == *bytes, "{} differs", path.display());
    }
    Ok(())
}

pub(crate) fn applies(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let dir = mount.path().join("dir");
    let files = corpus(&mount)?;
    let large = files[0].0.clone();
    shale().args(["settle", "--wait"]).arg(&dir).ok()?;
    let dense = stored(&large)?;
    ensure_eq!(report(&large, "state")?, "settled", "state");
    let times = |path: &Path| -> Outcome<(i64, i64, i64)> {
        let meta = fs::metadata(path)?;
        Ok((meta.mtime_nsec(), meta.mtime(), meta.size() as i64))
    };
    let before = times(&large)?;
    // A reader holds a lock all the while.
    let open = File::open(&large)?;
    flock(&open, FlockOperation::NonBlockingLockExclusive)?;

    for (codec, chunk, coder) in [
        ("none", "64K", "raw"),
        ("zstd:3", "4M", "zstd"),
        ("lz4", "16M", "lz4"),
        ("none", "1M", "raw"),
        ("auto", "256K", ""),
    ] {
        set(&dir, "user.shale.codec", codec)?;
        set(&dir, "user.shale.chunk", chunk)?;
        let said = rewrite(&dir)?;
        let seen = fs::metadata(&large)?;
        let bytes = shale_fs::options::parse_size(chunk);
        ensure_eq!(Some(seen.blksize()), bytes, "chunk size");
        ensure_eq!(
            seen.blocks(),
            stored(&large)?.div_ceil(512),
            "blocks of {}",
            large.display()
        );
        note(format!("{codec} {chunk}: {}", said.trim()));
        ensure!(said.starts_with("6 files, "), "{said}");
        let found = report(&large, "codecs")?;
        ensure!(
            coder.is_empty() || made_by(&found, coder),
            "{codec} made {found}"
        );
        ensure_eq!(report(&large, "state")?, "settled", "state");
        ensure_eq!(times(&large)?, before, "size and times");
        let mut seen = vec![0; files[0].1.len()];
        open.read_exact_at(&mut seen, 0)?;
        ensure!(seen == files[0].1, "an open file changed");
        ensure!(
            flock(
                &File::open(&large)?,
                FlockOperation::NonBlockingLockExclusive
            )
            .is_err(),
            "a lock was lost"
        );
        check(&files)?;
    }
    ensure!(stored(&large)? < dense * 11 / 10, "as dense as before");
    drop(open);
    let json = shale()
        .args(["settle", "--rewrite", "--json"])
        .arg(&dir)
        .ok()?;
    for part in ["\"files\": 6", "\"stored_before\": ", "\"stored_after\": "] {
        ensure!(json.contains(part), "{json}");
    }
    // Files are written on as usual in chunks of the new size.
    let file = File::options().write(true).open(&large)?;
    file.write_all_at(b"patch", 300_000)?;
    file.sync_all()?;
    drop(file);
    mount.remount()?;
    let mut bytes = files[0].1.clone();
    bytes[300_000..300_005].copy_from_slice(b"patch");
    ensure!(fs::read(&large)? == bytes, "after a write");
    mount.unmount()?;
    mount.fsck_is_clean()
}

pub(crate) fn busy(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let dir = mount.path().join("dir");
    let files = corpus(&mount)?;
    set(&dir, "user.shale.codec", "none")?;
    let open = File::options().append(true).open(&files[1].0)?;
    let said = shale()
        .args(["settle", "--rewrite"])
        .arg(&dir)
        .run()?
        .status_is(75)?;
    ensure!(
        said.text().contains("1 file being written, skipped:\n  "),
        "{}",
        said.text()
    );
    ensure!(said.text().contains("/dir/sub/odd\n"), "{}", said.text());
    ensure_eq!(report(&files[0].0, "codecs")?, "verbatim:raw", "the others");
    ensure!(
        report(&files[1].0, "codecs")? != "verbatim:raw",
        "the open one"
    );
    drop(open);
    rewrite(&files[1].0)?;
    ensure_eq!(
        report(&files[1].0, "codecs")?,
        "verbatim:raw",
        "once it is closed"
    );
    check(&files)?;
    mount.unmount()?;
    mount.fsck_is_clean()
}

/// Rewrites a directory and opens a file in it for writing; nothing when its turn had come already.
fn open_before_its_turn(
    dir: &Path,
    slow: &Path,
    opened: &Path,
    json: bool,
) -> Outcome<Option<Finished>> {
    let mut command = shale().args(["settle", "--rewrite"]);
    if json {
        command = command.arg("--json");
    }
    std::thread::scope(|scope| {
        let command = scope.spawn(|| command.arg(dir).limit(Duration::from_secs(100)).run());
        while report(opened, "state")? != "settling" && !command.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let writer = File::options().append(true).open(opened)?;
        let in_time = report(slow, "state")? == "settling";
        let finished = command.join().expect("the command panicked")?;
        drop(writer);
        Ok(in_time.then_some(finished))
    })
}

/// A file that is opened for writing between the request and its turn.
pub(crate) fn opened_meanwhile(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off,settle_rate=1M"])?;
    let dir = mount.path().join("dir");
    fs::create_dir(&dir)?;
    set(&dir, "user.shale.chunk", "64K")?;
    let (slow, opened) = (dir.join("slow"), dir.join("opened"));
    // Some seconds' worth at that rate; files have their turn in the order of their making.
    write(&slow, &field(1 << 20))?;
    write(&opened, &field(100_000))?;
    for (codec, json) in [("none", false), ("lz4", true)] {
        set(&dir, "user.shale.codec", codec)?;
        let before = report(&opened, "codecs")?;
        // Again, should this process have slept so long that the turn was over before.
        let finished = loop {
            if let Some(finished) = open_before_its_turn(&dir, &slow, &opened, json)? {
                break finished;
            }
        };
        let text = finished.status_is(75)?.text();
        let path = opened.display().to_string();
        let wanted = if json {
            [
                "\"files\": 1".to_owned(),
                "\"busy\": 1".to_owned(),
                format!("\"{path}\""),
            ]
        } else {
            [
                "1 file, ".to_owned(),
                "1 file being written, skipped:".to_owned(),
                format!("  {path}\n"),
            ]
        };
        for part in wanted {
            ensure!(text.contains(&part), "{part} is not in {text}");
        }
        ensure_eq!(report(&opened, "codecs")?, before, "the one left out");
        ensure_eq!(report(&opened, "outcome")?, "busy", "what became of it");
        ensure_eq!(
            report(&slow, "outcome")?,
            "done",
            "what became of the other"
        );
    }
    rewrite(&opened)?;
    ensure_eq!(report(&opened, "outcome")?, "done", "once it is closed");
    ensure!(
        made_by(&report(&opened, "codecs")?, "lz4"),
        "once it is closed"
    );
    mount.unmount()?;
    mount.fsck_is_clean()
}

/// The kernel keeps attributes for a second; settling makes it forget them.
pub(crate) fn seen_at_once(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let path = mount.path().join("file");
    let bytes = field(100_000);
    write(&path, &bytes)?;
    for (codec, chunk) in [
        ("none", "64K"),
        ("auto", "256K"),
        ("none", "4M"),
        ("lz4", "1M"),
    ] {
        set(mount.path(), "user.shale.codec", codec)?;
        set(mount.path(), "user.shale.chunk", chunk)?;
        let before = fs::metadata(&path)?;
        rewrite(&path)?;
        let after = fs::metadata(&path)?;
        let expected = shale_fs::options::parse_size(chunk);
        ensure_eq!(Some(after.blksize()), expected, "chunk size");
        ensure!(after.blksize() != before.blksize(), "it was so before");
        ensure_eq!(after.blocks(), stored(&path)?.div_ceil(512), "blocks");
        ensure_eq!(after.modified()?, before.modified()?, "time");
        ensure!(fs::read(&path)? == bytes, "other contents");
    }
    mount.unmount()?;
    mount.fsck_is_clean()
}

pub(crate) fn killed(case: &Case) -> Outcome {
    let mut mount = case.mount(
        "fs",
        &["-o", "settle=off,settle_workers=2", "--memory", "64M"],
    )?;
    let files = corpus(&mount)?;
    let dir = mount.path().join("dir");
    let mut rng = Rng::new(seed()?);
    for round in 0..8 {
        let codec = ["none", "lz4", "auto", "zstd:1"][round % 4];
        let chunk = ["64K", "4M", "1M"][round % 3];
        set(&dir, "user.shale.codec", codec)?;
        set(&dir, "user.shale.chunk", chunk)?;
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| -> Outcome {
                while !over.load(Ordering::SeqCst) {
                    check(&files)?;
                }
                Ok(())
            });
            let mut result = Ok(());
            for (path, _) in &files {
                result = result.and_then(|()| set(path, "user.shale.settle.now", "rewrite"));
            }
            std::thread::sleep(Duration::from_millis(rng.below(300)));
            over.store(true, Ordering::SeqCst);
            reader.join().expect("the reader panicked").and(result)
        })?;
        mount.kill9()?;
        mount.detach();
        mount.fsck_is_clean()?;
        mount.start()?;
        check(&files)?;
    }
    set(&dir, "user.shale.codec", "none")?;
    rewrite(&dir)?;
    check(&files)?;
    for (path, _) in files.iter().filter(|(_, bytes)| !bytes.is_empty()) {
        let found = report(path, "codecs")?;
        ensure!(
            found.starts_with("verbatim:raw"),
            "{} has {found}",
            path.display()
        );
    }
    mount.unmount()?;
    mount.fsck_is_clean()
}
