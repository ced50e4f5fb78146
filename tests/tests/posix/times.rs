//! Times of files: which operations change them, and what survives.

use std::fs::{self, File, FileTimes, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;
use shale_tests::{Case, Outcome, Rng, ensure, ensure_eq};

use crate::contents::aligned;

/// However a write reaches the file, its time of modification is that of the write.
pub(crate) fn times_of_writes(case: &Case) -> Outcome {
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let direct = OFlags::DIRECT.bits() as i32;
    for (options, flags) in [
        (&[][..], 0),
        (&[][..], direct),
        (&["-o", "direct_io"][..], 0),
        (&["-o", "direct_io"][..], direct),
    ] {
        let fs = case.fs_with(options)?;
        let path = fs.at("file");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(flags)
            .open(&path)?;
        let mut room = Vec::new();
        let data = aligned(&mut room, 1 << 20);
        for round in 0..2 {
            file.set_times(FileTimes::new().set_modified(long_ago))?;
            ensure!(
                fs::metadata(&path)?.modified()? == long_ago,
                "{options:?} {flags:#o}: the time was not set"
            );
            file.write_all_at(data, round << 20)?;
            let seen = fs::metadata(&path)?;
            ensure!(
                seen.modified()? > long_ago && seen.len() == (round + 1) << 20,
                "{options:?} {flags:#o}: after a write: {seen:?}"
            );
        }
    }
    Ok(())
}

/// What happens later is not older, whether the kernel or the daemon takes the time.
pub(crate) fn order_of_times(case: &Case) -> Outcome {
    for options in [&[][..], &["-o", "direct_io"][..]] {
        let fs = case.fs_with(options)?;
        for round in 0..50 {
            let (first, second) = (fs.at(&format!("a{round}")), fs.at(&format!("b{round}")));
            fs::write(&first, b"old")?;
            fs::write(&second, b"")?;
            fs::write(&first, b"newer")?;
            let (first_seen, second_seen) = (fs::metadata(&first)?, fs::metadata(&second)?);
            ensure!(
                first_seen.modified()? >= second_seen.modified()?,
                "{options:?}: written at {:?}, after a file was made at {:?}",
                first_seen.modified(),
                second_seen.modified()
            );
        }
        let (name, other) = (fs.at("name"), fs.at("other"));
        fs::write(&name, b"x")?;
        let written = fs::metadata(&name)?;
        // The clock has ticks.
        while fs::metadata(&name)?.ctime_nsec() == written.ctime_nsec() {
            if other.exists() {
                fs::remove_file(&other)?;
            }
            std::thread::sleep(Duration::from_millis(5));
            fs::hard_link(&name, &other)?;
        }
        ensure_eq!(fs::metadata(&name)?.mtime_nsec(), written.mtime_nsec());
        fs.finish()?;
    }
    Ok(())
}

pub(crate) fn nanosecond_times(case: &Case) -> Outcome {
    let mut fs = case.fs()?;
    let path = fs.at("file");
    let directory = fs.at("directory");
    fs::write(&path, b"x")?;
    fs::create_dir(&directory)?;
    let accessed = SystemTime::UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
    let modified = SystemTime::UNIX_EPOCH + Duration::new(4_000_000_000, 999_999_999);
    for target in [&path, &directory] {
        File::open(target)?.set_times(
            FileTimes::new()
                .set_accessed(accessed)
                .set_modified(modified),
        )?;
    }
    let old = fs.at("old");
    let before_the_epoch = SystemTime::UNIX_EPOCH - Duration::from_millis(1500);
    File::create(&old)?.set_times(
        FileTimes::new()
            .set_accessed(before_the_epoch)
            .set_modified(before_the_epoch),
    )?;
    for round in ["before", "after"] {
        let meta = fs::metadata(&old)?;
        ensure_eq!(
            (meta.accessed()?, meta.modified()?),
            (before_the_epoch, before_the_epoch),
            "times before the epoch, {round} the remount"
        );
        for target in [&path, &directory] {
            let meta = fs::metadata(target)?;
            ensure_eq!(meta.mtime(), 4_000_000_000, "mtime {round} the remount");
            ensure_eq!(meta.mtime_nsec(), 999_999_999, "mtime {round} the remount");
            ensure_eq!(meta.atime(), 1_234_567_890, "atime {round} the remount");
            ensure_eq!(meta.atime_nsec(), 123_456_789, "atime {round} the remount");
        }
        if round == "before" {
            fs.refresh()?;
        }
    }
    // One of the two alone, and the change time follows.
    let before = fs::metadata(&path)?;
    let later = modified + Duration::from_nanos(1);
    File::options()
        .write(true)
        .open(&path)?
        .set_modified(later)?;
    let after = fs::metadata(&path)?;
    ensure_eq!(after.modified()?, later, "mtime set alone");
    ensure_eq!(after.accessed()?, accessed, "atime when only mtime is set");
    let changed = |meta: &fs::Metadata| (meta.ctime(), meta.ctime_nsec());
    ensure!(changed(&after) > changed(&before), "ctime did not advance");
    fs.finish()
}

pub(crate) fn explicit_times_survive_writeback(case: &Case) -> Outcome {
    let mut fs = case.fs()?;
    let then = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 5);
    let mut rng = Rng::new(6);
    // As tar and rsync do: write, set the time, close.
    for index in 0..50 {
        let file = File::create(fs.at(&format!("file-{index}")))?;
        file.write_all_at(&rng.bytes(10_000 * index), 0)?;
        file.set_modified(then)?;
        if index % 2 == 0 {
            file.sync_all()?;
        }
    }
    for round in ["before", "after"] {
        for index in 0..50 {
            let modified = fs::metadata(fs.at(&format!("file-{index}")))?.modified()?;
            ensure_eq!(modified, then, "mtime of file {index} {round} the remount");
        }
        if round == "before" {
            fs.refresh()?;
        }
    }
    // A write moves it on.
    let path = fs.at("file-7");
    File::options()
        .write(true)
        .open(&path)?
        .write_all_at(b"x", 0)?;
    ensure!(
        fs::metadata(&path)?.modified()? > then,
        "a write did not move mtime"
    );
    fs.finish()
}

/// The times that were shown are those that are kept, also where bytes go past the page cache and
/// take longer than a tick of the clock.
pub(crate) fn times_of_mixed_writes(case: &Case) -> Outcome {
    let mut fs = case.fs()?;
    let mut room = Vec::new();
    let data = aligned(&mut room, 4 << 20);
    let open = |path: &Path, flags: OFlags| {
        OpenOptions::new()
            .write(true)
            .create(true)
            .custom_flags(flags.bits() as i32)
            .open(path)
    };
    let times = |path: &Path| -> Outcome<_> {
        let seen = fs::metadata(path)?;
        Ok((seen.modified()?, seen.ctime(), seen.ctime_nsec()))
    };
    let paths: Vec<PathBuf> = (0..40).map(|n| fs.at(&format!("file-{n}"))).collect();
    let mut shown = Vec::new();
    for (index, path) in paths.iter().enumerate() {
        if index % 2 == 1 {
            open(path, OFlags::empty())?.write_all_at(&data[..64 << 10], 0)?;
        }
        let direct = open(path, OFlags::DIRECT)?;
        direct.write_all_at(data, 0)?;
        if index % 4 > 1 {
            direct.sync_all()?;
        }
        drop(direct);
        shown.push(times(path)?);
    }
    fs.refresh()?;
    for (path, shown) in paths.iter().zip(shown) {
        ensure_eq!(times(path)?, shown, "times of {} moved", path.display());
    }
    fs.finish()
}
