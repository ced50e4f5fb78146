//! Refusals, and the output of `shale policy`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{XattrFlags, lsetxattr, removexattr, setxattr};
use rustix::io::Errno;
use shale_tests::{Case, Outcome, ensure, ensure_eq, shale};

use crate::{get, listed, set};

pub(crate) fn attributes(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let dir = mount.path().join("dir");
    fs::create_dir(&dir)?;
    set(&dir, "user.shale.codec", "zstd:3")?;
    set(&dir, "user.other", "kept")?;
    let (before, held) = (listed(&dir)?, get(&dir, "user.shale.effective")?);
    let long = "x".repeat(300);
    for (name, value, reason) in [
        (
            "user.shale.codec",
            "zstd:20",
            "'zstd:20' is not a valid codec; give auto, none",
        ),
        ("user.shale.codec", "", "'' is not a valid codec"),
        ("user.shale.codec", "lz4\n", "'lz4\\n' is not a valid codec"),
        ("user.shale.effort", "hard", "give fast, balanced or dense"),
        (
            "user.shale.chunk",
            "3M",
            "give a power of two from 64K to 16M",
        ),
        ("user.shale.chunk", "32K", "'32K' is not a valid chunk"),
        ("user.shale.settle", "-1", "give off, on, or seconds"),
        (
            "user.shale.settle.codec",
            "dense",
            "'dense' is not a valid settle.codec",
        ),
        ("user.shale.region", &long, "give the name of a variable"),
        ("user.shale.durability", "fsync", "give normal or sync"),
        ("trusted.shale.codec", "best", "'best' is not a valid codec"),
        ("user.shale.compression", "lz4", "there is no such policy"),
        ("user.shale.", "x", "there is no such policy"),
        ("trusted.shale.quota", "1G", "there is no such policy"),
        ("user.shale.effective", "x", "or it is read-only"),
        ("user.shale.stat.raw", "1", "or it is read-only"),
    ] {
        let log = mount.log_tail();
        ensure_eq!(
            setxattr(&dir, name, value.as_bytes(), XattrFlags::empty()),
            Err(Errno::INVAL),
            "{name}={value}"
        );
        let now = mount.log_tail();
        ensure!(
            now != log && now.contains(reason),
            "{name}={value}: no {reason:?} in {now}"
        );
        ensure_eq!(listed(&dir)?, before, "after {name}={value}");
        ensure_eq!(
            get(&dir, "user.shale.effective")?,
            held,
            "after {name}={value}"
        );
    }
    ensure_eq!(
        setxattr(
            &dir,
            "user.shale.codec",
            b"\xff\x00\xfe",
            XattrFlags::empty()
        ),
        Err(Errno::INVAL),
        "bytes that are no text"
    );
    ensure_eq!(
        removexattr(&dir, "user.shale.effective"),
        Err(Errno::INVAL),
        "removing what is virtual"
    );
    ensure_eq!(
        removexattr(&dir, "user.shale.chunk"),
        Err(Errno::NODATA),
        "removing what is not set"
    );
    // The flags of setxattr(2) hold here too.
    ensure_eq!(
        setxattr(&dir, "user.shale.codec", b"lz4", XattrFlags::CREATE),
        Err(Errno::EXIST),
        "CREATE"
    );
    ensure_eq!(
        setxattr(&dir, "user.shale.chunk", b"1M", XattrFlags::REPLACE),
        Err(Errno::NODATA),
        "REPLACE"
    );
    symlink("dir", mount.path().join("link"))?;
    ensure_eq!(
        lsetxattr(
            mount.path().join("link"),
            "trusted.shale.codec",
            b"lz4",
            XattrFlags::empty()
        ),
        Err(Errno::INVAL),
        "a symbolic link"
    );
    ensure_eq!(listed(&dir)?, before, "at the end");
    mount.unmount()?;
    mount.fsck_is_clean()
}

pub(crate) fn command(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let dir = mount.path().join("dir");
    fs::create_dir(&dir)?;
    let fifo = mount.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU)?;
    let refused = |words: &[&str], path: &Path, status: i32, said: &str| -> Outcome {
        let refused = shale()
            .arg("policy")
            .args(words)
            .arg(path)
            .run()?
            .status_is(status)?;
        ensure!(
            refused.stderr.contains(said),
            "{words:?}: {}",
            refused.stderr
        );
        ensure_eq!(
            refused.stderr.lines().count(),
            1,
            "lines of {:?}",
            refused.stderr
        );
        Ok(())
    };
    refused(&["set", "codec=zstd:20"], &dir, 64, "zstd:19")?;
    refused(&["set", "chunk=1M", "codec=zstd:20"], &dir, 64, "zstd:19")?;
    refused(&["set", "compression=lz4"], &dir, 64, "settle.codec")?;
    refused(&["set", "--frob", "codec=lz4"], &dir, 64, "--frob")?;
    refused(&["unset", "compression"], &dir, 64, "settle.codec")?;
    refused(
        &["set", "codec=lz4"],
        &fifo,
        66,
        "neither a directory nor a regular file",
    )?;
    refused(
        &["set", "codec=lz4"],
        &mount.path().join("missing"),
        66,
        "missing",
    )?;
    refused(
        &["set", "codec=lz4"],
        case.work(),
        66,
        "not in a ShaleFS mount",
    )?;
    refused(&["explain"], case.work(), 66, "not in a ShaleFS mount")?;
    // One bad path, and no path is changed.
    let both = shale()
        .args(["policy", "set", "codec=lz4"])
        .arg(&dir)
        .arg(case.work());
    both.run()?.status_is(66)?;
    ensure_eq!(listed(&dir)?, [""; 0], "nothing has been set");
    mount.unmount()
}

pub(crate) fn command_works(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let (dir, file) = (mount.path().join("dir"), mount.path().join("dir/file"));
    fs::create_dir(&dir)?;
    fs::write(&file, b"x")?;
    let policy = || shale().arg("policy");
    ensure_eq!(
        policy()
            .args(["set", "settle=off", "chunk=4096K"])
            .arg(&dir)
            .arg(&file)
            .ok()?,
        "",
        "what it says"
    );
    policy()
        .args(["set", "--fixed", "codec=zstd:3"])
        .arg(&dir)
        .ok()?;
    for path in [&dir, &file] {
        ensure_eq!(get(path, "user.shale.chunk")?, "4M", "chunk");
        ensure_eq!(get(path, "user.shale.settle")?, "off", "settle");
    }
    ensure_eq!(get(&dir, "trusted.shale.codec")?, "zstd:3", "codec");
    let shown = policy().arg("show").arg(&dir).ok()?;
    let lines: Vec<Vec<&str>> = shown
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    let path = dir.display().to_string();
    ensure_eq!(
        lines,
        [
            vec!["path", "policy", "value"],
            vec![&path, "codec", "zstd:3", "fixed"],
            vec![&path, "chunk", "4M"],
            vec![&path, "settle", "off"],
        ],
        "shown"
    );
    let json = policy().args(["show", "--json"]).arg(&file).ok()?;
    for part in [
        "\"name\": \"chunk\"",
        "\"value\": \"4M\"",
        "\"fixed\": false",
    ] {
        ensure!(json.contains(part), "{json}");
    }
    let explained = policy().arg("explain").arg(&file).ok()?;
    let codec = explained.lines().find(|line| line.starts_with("codec"));
    ensure_eq!(
        codec
            .unwrap_or_default()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" "),
        "codec zstd:3 from trusted.shale.codec on the directory 1 level up, /dir",
        "explained"
    );
    let json = policy()
        .args(["explain", "--json"])
        .arg(&file)
        .arg(&dir)
        .ok()?;
    for part in [
        "\"source\": \"set here as user.shale.settle\"",
        "\"value\": \"zstd:3\"",
        "\"source\": \"from the mount\"",
    ] {
        ensure_eq!(
            json.contains(part),
            part != "\"source\": \"from the mount\"",
            "{part} in {json}"
        );
    }
    policy()
        .args(["unset", "settle", "region"])
        .arg(&dir)
        .ok()?;
    ensure!(
        get(&dir, "user.shale.settle").is_err(),
        "settle is still set"
    );
    policy().args(["unset", "all"]).arg(&dir).arg(&file).ok()?;
    ensure_eq!(listed(&file)?, [""; 0], "all of it is gone");
    ensure_eq!(
        listed(&dir)?,
        ["trusted.shale.codec=\"zstd:3\""],
        "but what is fixed"
    );
    let json = policy()
        .args(["unset", "--json", "--fixed", "all"])
        .arg(&dir)
        .ok()?;
    ensure!(json.contains("\"policies\": []"), "{json}");
    ensure_eq!(listed(&dir)?, [""; 0], "that too");
    mount.unmount()?;
    mount.fsck_is_clean()
}
