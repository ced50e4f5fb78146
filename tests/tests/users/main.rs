//! Ordinary users: private mounts through fusermount3.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use shale_tests::{
    Case, Cmd, LoopFs, Mount, Need, Outcome, Suite, binary, ensure, ensure_eq, note, script, shale,
};

fn main() -> ExitCode {
    Suite::new("users")
        .need(Need::Shale)
        .need(Need::Command("fusermount3"))
        .limit(Duration::from_secs(180))
        .test("an_ordinary_user_mounts_in_its_own_directory", own_mount)
        .test(
            "an_ordinary_user_gets_an_error_from_a_full_device",
            full_device,
        )
        .test("an_ordinary_user_of_a_shared_mount_gets_no_further", shared)
        .test(
            "files_of_others_do_not_prevent_settling_own_files",
            settle_own,
        )
        .test(
            "deleted_bytes_are_not_found_in_holes_or_new_files",
            leftovers,
        )
        .test(
            "everything_in_a_store_is_for_the_daemon_alone",
            private_store,
        )
        .run()
}

fn own_mount(case: &Case) -> Outcome {
    // The build directory may be closed to others.
    let program = case.work().join("shale");
    fs::copy(binary(), &program)?;
    Cmd::new(script("user_mount.sh"))
        .arg(&program)
        .arg(case.work())
        .ok()?;
    Ok(())
}

/// The daemon of an ordinary user cannot lower the kernel's limit of dirty pages.
fn full_device(case: &Case) -> Outcome {
    let program = case.work().join("shale");
    fs::copy(binary(), &program)?;
    fs::set_permissions(case.work(), fs::Permissions::from_mode(0o755))?;
    let device = case.loop_fs("device", LoopFs::Ext4, 400 << 20)?;
    for piece in ["8k", "40M"] {
        let home = case.dir(piece)?;
        let said = Cmd::new(script("user_full.sh"))
            .arg(&program)
            .arg(&home)
            .arg(device.path())
            .env("PIECE", piece)
            .ok()?;
        note(format!("{piece}: {}", said.trim()));
    }
    Ok(())
}

const NOBODY: u32 = 65_534;

/// A mount of root, with a directory for an ordinary user.
fn shared_mount(case: &Case) -> Outcome<Mount> {
    let mount = case.mount("fs", &["-o", "settle=off"])?;
    fs::set_permissions(case.work(), fs::Permissions::from_mode(0o755))?;
    let home = mount.path().join("home");
    fs::create_dir(&home)?;
    chown(&home, Some(NOBODY), Some(NOBODY))?;
    Ok(mount)
}

fn shared(case: &Case) -> Outcome {
    let mut mount = shared_mount(case)?;
    let (top, home) = (mount.path().to_owned(), mount.path().join("home"));
    fs::write(top.join("secret"), b"secret")?;
    fs::set_permissions(top.join("secret"), fs::Permissions::from_mode(0o600))?;
    for (name, target) in [("out", "/etc/shadow"), ("store", "superblock")] {
        let target = mount.store().join(target);
        symlink(target, home.join(name))?;
    }
    // Made by root: a device that every user may open, a program that every user may run as root.
    let device = top.join("device");
    mknodat(
        CWD,
        &device,
        FileType::CharacterDevice,
        Mode::from_raw_mode(0o666),
        makedev(1, 3),
    )?;
    fs::set_permissions(&device, fs::Permissions::from_mode(0o666))?;
    fs::copy("/usr/bin/id", top.join("id"))?;
    fs::set_permissions(top.join("id"), fs::Permissions::from_mode(0o4755))?;
    let as_nobody = |script: &str| {
        Cmd::shell(script)
            .env("TOP", &top)
            .env("HOME_DIR", &home)
            .env("STORE", mount.store())
            .env("SHALE", binary())
            .user(NOBODY, NOBODY)
            .run()
    };
    let uid = as_nobody("$TOP/id -u")?.success()?.text();
    ensure_eq!(
        uid.trim(),
        NOBODY.to_string(),
        "a set-id program ran as another"
    );
    for (script, what) in [
        ("cat $TOP/secret", "reads a file of root"),
        ("echo x > $TOP/secret", "writes a file of root"),
        ("touch $TOP/new", "creates a file among those of root"),
        ("rm -f $TOP/secret", "removes a file of root"),
        ("chown 0 $HOME_DIR", "gives a directory away"),
        ("ls $STORE", "lists the store"),
        ("cat $STORE/superblock", "reads the store"),
        ("cat $HOME_DIR/out", "reads through a link that leads out"),
        ("cat $HOME_DIR/store", "reads the store through a link"),
        ("mknod $HOME_DIR/null c 1 3", "makes a device"),
        ("cat $TOP/device", "opens a device"),
        (
            "setfattr -n trusted.shale.codec -v none $HOME_DIR",
            "speaks as root",
        ),
        (
            "setfattr -n user.shale.stat.raw -v 1 $HOME_DIR",
            "sets a report",
        ),
        (
            "setfattr -n user.shale.effective -v x $HOME_DIR",
            "sets what holds",
        ),
        (
            "setfattr -n user.shale.gc.now -v 100 $HOME_DIR",
            "collects garbage",
        ),
        (
            "setfattr -n user.shale.settle.now -v 1 $TOP/secret",
            "settles a file of root",
        ),
        (
            "setfattr -n user.shale. -v x $HOME_DIR",
            "sets an attribute without a name",
        ),
        (
            "setfattr -n system.shale.codec -v x $HOME_DIR",
            "sets one of the system",
        ),
        (
            "setfattr -n security.shale -v x $HOME_DIR",
            "sets one of security",
        ),
        (
            "getfattr -n user.shale.stat.live $HOME_DIR",
            "sees the names of others",
        ),
        (
            "getfattr -n user.shale.stat.codecs $TOP/secret",
            "sees how a file of root is stored",
        ),
    ] {
        let finished = as_nobody(script)?;
        ensure!(
            !finished.status.success(),
            "an ordinary user {what}: {}",
            finished.describe()
        );
    }
    // What is allowed works, or the refusals above say nothing.
    as_nobody("echo mine > $HOME_DIR/mine; cat $HOME_DIR/mine; ls $TOP")?.success()?;
    as_nobody("setfattr -n user.shale.settle.now -v 1 $HOME_DIR/mine")?.success()?;
    ensure_eq!(fs::read(top.join("secret"))?, b"secret", "the file of root");
    mount.unmount()?;
    mount.fsck_is_clean()
}

fn settle_own(case: &Case) -> Outcome {
    let mut mount = shared_mount(case)?;
    let (top, own) = (mount.path().to_owned(), mount.path().join("home/own"));
    let words = "words that become smaller\n".repeat(20_000);
    // Beside its own file: one it may only read, one it may not read, a closed directory.
    for (name, mode) in [("home/a", 0o644), ("home/z", 0o600), ("closed/b", 0o644)] {
        if let Some(parent) = top.join(name).parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(top.join(name), &words)?;
        fs::set_permissions(top.join(name), fs::Permissions::from_mode(mode))?;
    }
    fs::set_permissions(top.join("closed"), fs::Permissions::from_mode(0o700))?;
    fs::write(&own, &words)?;
    chown(&own, Some(NOBODY), Some(NOBODY))?;
    // The build directory may be closed to others.
    let program = case.work().join("shale");
    fs::copy(binary(), &program)?;
    let as_nobody = |arguments: &[&str]| {
        let command = Cmd::new(&program).arg("settle").args(arguments).arg(&top);
        command.user(NOBODY, NOBODY).run()?.status_is(74)
    };
    let text = as_nobody(&["--wait"])?.text();
    ensure!(text.starts_with("1 file, "), "{text}");
    ensure!(text.contains("3 files could not be settled"), "{text}");
    for name in ["home/a", "home/z", "closed"] {
        let line = format!("  {}: no permission\n", top.join(name).display());
        ensure!(text.contains(&line), "{name} is not named: {text}");
    }
    let mut state = [0; 64];
    let len = rustix::fs::getxattr(&own, "user.shale.stat.state", &mut state[..])?;
    ensure_eq!(&state[..len], b"settled", "its own file");
    let report: serde_json::Value = serde_json::from_str(&as_nobody(&["--json"])?.text())?;
    ensure_eq!(report["files"], 1, "{report}");
    ensure_eq!(report["failed"], 3, "{report}");
    mount.unmount()?;
    mount.fsck_is_clean()
}

fn leftovers(case: &Case) -> Outcome {
    let mut mount = shared_mount(case)?;
    let secret = b"top secret ".repeat(100_000);
    let home = mount.path().join("home");
    let make = |number: u32| home.join(format!("file{number}"));
    for round in 0..3 {
        let hidden = mount.path().join("hidden");
        fs::write(&hidden, &secret)?;
        File::open(&hidden)?.sync_all()?;
        fs::remove_file(&hidden)?;
        shale()
            .args(["gc", "--wait", "--live", "100"])
            .arg(mount.path())
            .ok()?;
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(make(round))?;
        // Cut, extended, punched and with a hole between its ends.
        file.write_all_at(&[1; 5000], 0)?;
        file.set_len(100)?;
        file.set_len(3_000_000)?;
        file.write_all_at(&[2; 100], 2_000_000)?;
        file.sync_all()?;
        drop(file);
        mount.remount()?;
        let found = fs::read(make(round))?;
        let mut expected = vec![0; 3_000_000];
        expected[..100].fill(1);
        expected[2_000_000..2_000_100].fill(2);
        ensure!(
            found == expected,
            "round {round}: bytes that were never written"
        );
    }
    mount.unmount()?;
    mount.fsck_is_clean()
}

/// With a umask of 0, and also in a directory that the administrator has left
/// open to all.
fn private_store(case: &Case) -> Outcome {
    nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    fs::set_permissions(case.work(), fs::Permissions::from_mode(0o755))?;
    for (name, options) in [("made", &[][..]), ("open", &["--backing", "pmem"])] {
        let (store, top) = (case.work().join(name), case.dir(&format!("{name}.fs"))?);
        if name == "open" {
            fs::create_dir(&store)?;
            fs::set_permissions(&store, fs::Permissions::from_mode(0o755))?;
        }
        let socket = case.work().join(format!("{name}.sock"));
        // Without a log elsewhere, it is in the store.
        let mount = || {
            shale()
                .args(["mount", "--memory", "32M", "-o", "settle=off", "--metrics"])
                .arg(format!("unix:{}", socket.display()))
                .args(options)
                .args([&store, &top])
                .ok()
        };
        mount()?;
        busy(&top)?;
        let mode = fs::metadata(&socket)?.mode() & 0o777;
        ensure_eq!(mode, 0o600, "the socket of the metrics");
        is_private(case, &store, "while mounted")?;
        shale().arg("unmount").arg(&top).ok()?;
        is_private(case, &store, "when unmounted")?;
        mount()?;
        shale()
            .args(["gc", "--wait", "--live", "99"])
            .arg(&top)
            .ok()?;
        is_private(case, &store, "in the next session")?;
        shale().arg("unmount").arg(&top).ok()?;
        // The index is rebuilt from the packs.
        fs::remove_dir_all(store.join("index"))?;
        let rebuilt = shale().args(["fsck", "--rebuild"]).arg(&store).run()?;
        ensure_eq!(rebuilt.status.code(), Some(1), "{}", rebuilt.describe());
        is_private(case, &store, "after a rebuild")?;
        mount()?;
        is_private(case, &store, "in a session after a rebuild")?;
        shale().arg("unmount").arg(&top).ok()?;
    }
    Ok(())
}

/// Makes every kind of file in a store.
fn busy(top: &Path) -> Outcome {
    for number in 0..40 {
        let path = top.join(format!("file{number}"));
        let file = File::create_new(&path)?;
        file.write_all_at(&vec![number; 300_000], 0)?;
        file.sync_all()?;
        ensure_eq!(
            file.metadata()?.mode() & 0o777,
            0o666,
            "a file of the mount"
        );
        if number % 2 == 0 {
            fs::remove_file(&path)?;
        }
    }
    shale().args(["settle", "--wait"]).arg(top).ok()?;
    shale()
        .args(["gc", "--wait", "--live", "99"])
        .arg(top)
        .ok()?;
    // What makes no sense is logged.
    let refused = Cmd::new("setfattr")
        .args(["-n", "user.shale.codec", "-v", "nonsense"])
        .arg(top)
        .run()?;
    ensure!(!refused.status.success(), "{}", refused.describe());
    Ok(())
}

/// `None` for what has gone meanwhile: the daemon deletes packs in the background.
fn there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// Everything at and below a directory.
fn all_below(path: &Path, found: &mut Vec<PathBuf>) -> Outcome {
    found.push(path.to_owned());
    if path.is_dir() {
        for entry in there(fs::read_dir(path))?.into_iter().flatten() {
            all_below(&entry?.path(), found)?;
        }
    }
    Ok(())
}

fn is_private(case: &Case, store: &Path, when: &str) -> Outcome {
    let mut all = Vec::new();
    all_below(store, &mut all)?;
    // What a rebuild leaves to the next mount is a snapshot.
    let index = if when == "after a rebuild" {
        "index/snapshot"
    } else {
        "index/sled/"
    };
    for part in [
        "superblock",
        "lock",
        "shale.log",
        "packs/",
        "/catalog",
        index,
    ] {
        ensure!(
            all.iter().any(|path| path.to_string_lossy().contains(part)),
            "{when}: there is no {part} to look at in {all:?}"
        );
    }
    let mut list = String::new();
    for path in &all {
        let Some(metadata) = there(fs::symlink_metadata(path))? else {
            continue;
        };
        let wanted = match (metadata.is_dir(), path == store) {
            // As it was found.
            (true, true) if store.ends_with("open") => 0o755,
            (true, _) => 0o700,
            (false, _) => 0o600,
        };
        ensure_eq!(
            metadata.mode() & 0o7777,
            wanted,
            "{when}: {}",
            path.display()
        );
        ensure_eq!(metadata.uid(), 0, "{when}: owner of {}", path.display());
        if path != store || wanted == 0o700 {
            list += &format!("{}\n", path.display());
        }
    }
    let listed = case.work().join("list");
    fs::write(&listed, &list)?;
    let reached = |user| {
        Cmd::shell(
            "while read -r path; do
                 if [ -d \"$path\" ]; then ls \"$path\"; else cat \"$path\"; fi > /dev/null 2>&1 &&
                     echo \"$path\" || true
             done < $LIST",
        )
        .env("LIST", &listed)
        .user(user, user)
        .ok()
    };
    ensure_eq!(reached(NOBODY)?, "", "{when}: what another user reads");
    let by_root = reached(0)?;
    for path in list.lines().filter(|path| Path::new(path).exists()) {
        ensure!(
            by_root.lines().any(|line| line == path),
            "{when}: root does not read {path}"
        );
    }
    Ok(())
}
