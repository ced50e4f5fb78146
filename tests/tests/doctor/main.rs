//! `shale doctor` on real machines, mounts and stores. The judgement of each check is tested beside
//! the checks.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;
use shale_tests::{
    Case, Cmd, Context, Failure, LoopFs, Mount, Need, Outcome, Rng, Suite, ensure, ensure_eq,
    read_tree, same_trees, shale,
};

fn main() -> ExitCode {
    Suite::new("doctor")
        .need(Need::Shale)
        .limit(Duration::from_secs(60))
        .test("doctor_finds_nothing_wrong_with_a_good_mount", good)
        .test("doctor_finds_a_dead_mount", dead)
        .test("doctor_finds_a_full_device", full)
        .test("doctor_finds_a_store_that_is_gone_with_a_reboot", tmpfs)
        .test("doctor_finds_a_damaged_superblock", damaged)
        .test("doctor_names_files_whose_data_is_damaged", damaged_data)
        .test("doctor_does_not_mind_a_refused_attribute", refused)
        .run()
}

/// The verdict of one check, `None` when it was not made; and the exit status.
fn ask(path: &Path, check: &str) -> Outcome<(Option<(String, String)>, i32)> {
    let finished = shale().args(["doctor", "--json"]).arg(path).run()?;
    let value: Value = serde_json::from_slice(&finished.stdout).doing(finished.describe())?;
    let checks = value["checks"].as_array().doing("the list of checks")?;
    let found = checks.iter().find(|entry| entry["name"] == check);
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let found = found.map(|entry| (text(entry, "verdict"), text(entry, "message")));
    let problems = value["counts"]["problem"].as_u64();
    let status = finished.status.code().unwrap_or(-1);
    ensure_eq!(
        problems == Some(0),
        status == 0,
        "problems and status: {value}"
    );
    Ok((found, status))
}

#[track_caller]
fn is(path: &Path, check: &str, verdict: &str, words: &str) -> Outcome {
    let (found, status) = ask(path, check)?;
    let (found, finding) = found.doing(format!("looking for the check {check}"))?;
    ensure_eq!(found, verdict, "{check}: {finding}");
    ensure!(finding.contains(words), "{check}: {finding}");
    if verdict == "problem" {
        ensure_eq!(status, 1, "exit status");
    }
    Ok(())
}

fn good(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    fs::write(mount.path().join("file"), b"x")?;
    for check in [
        "kernel",
        "fuse",
        "store",
        "inodes",
        "clock",
        "daemon",
        "mount options",
    ] {
        is(mount.path(), check, "ok", "")?;
        // By the store and by any file in the mount as well.
        is(mount.store(), check, "ok", "")?;
        is(&mount.path().join("file"), check, "ok", "")?;
    }
    let text = shale().arg("doctor").arg(mount.path()).run()?.text();
    ensure!(text.starts_with("verdict"), "a table for people: {text}");
    mount.unmount()?;
    let before = read_tree(mount.store())?;
    is(mount.store(), "store", "ok", "known format")?;
    is(mount.store(), "privacy", "ok", "")?;
    let (daemon, _) = ask(mount.store(), "daemon")?;
    ensure!(daemon.is_none(), "there is no daemon");
    same_trees(&read_tree(mount.store())?, &before)?;
    fs::set_permissions(mount.store(), Permissions::from_mode(0o755))?;
    is(mount.store(), "privacy", "advice", "chmod 700")?;
    fs::write(mount.store().join("shale.log"), "x  WARN y\n")?;
    is(mount.store(), "log", "advice", "shale.log")
}

fn dead(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    // The kernel may still have them when no daemon is left to ask.
    fs::metadata(mount.path())?;
    mount.kill9()?;
    is(mount.path(), "daemon", "problem", "shale unmount")?;
    is(mount.store(), "daemon", "problem", "shale unmount")?;
    mount.detach();
    Ok(())
}

fn full(case: &Case) -> Outcome {
    let device = case.loop_fs("device", LoopFs::Ext4, 96 << 20)?;
    let mut mount = Mount::new(device.path().join("store"), case.work().join("fs"), &[])?;
    mount.unmount()?;
    is(mount.store(), "backing", "ok", "ext4")?;
    Cmd::new("fallocate")
        .args(["-l", "76M"])
        .arg(device.path().join("ballast"))
        .ok()?;
    is(mount.store(), "space", "problem", "ENOSPC")?;
    device.read_only(true)?;
    is(mount.store(), "backing options", "advice", "--ro")
}

fn tmpfs(case: &Case) -> Outcome {
    let memory = case.dir("memory")?;
    Cmd::new("mount")
        .args(["-t", "tmpfs", "none"])
        .arg(&memory)
        .ok()?;
    let mut mount = Mount::new(memory.join("store"), case.work().join("fs"), &[])?;
    is(mount.path(), "backing", "problem", "reboot")?;
    mount.unmount()?;
    Cmd::new("umount").arg(&memory).ok()?;
    Ok(())
}

fn damaged(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    mount.unmount()?;
    fs::write(mount.store().join("superblock"), [0xff; 64])?;
    is(mount.store(), "store", "problem", "")
}

/// Damages the stored form of a file that is stored raw: its bytes are found in a pack.
fn spoil(store: &Path, contents: &[u8]) -> Outcome {
    let packs = store.join("packs");
    let needle = &contents[contents.len() / 2..][..64];
    for (name, entry) in read_tree(&packs)? {
        if entry.mode & 0o170_000 != 0o100_000 {
            continue;
        }
        let path = packs.join(name);
        let bytes = fs::read(&path)?;
        if let Some(at) = bytes.windows(64).position(|window| window == needle) {
            let pack = File::options().write(true).open(&path)?;
            return Ok(pack.write_all_at(&[!needle[0]], at as u64)?);
        }
    }
    Err(Failure::new("the contents are in no pack"))
}

fn damaged_data(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let directory = mount.path().join("run 1");
    fs::create_dir(&directory)?;
    let mut rng = Rng::new(9);
    let (good, bad) = (rng.bytes(300_000), rng.bytes(300_000));
    fs::write(directory.join("good.nc"), &good)?;
    fs::write(directory.join("bad.nc"), &bad)?;
    mount.unmount()?;
    spoil(mount.store(), &bad)?;
    mount.start()?;
    is(mount.path(), "data", "ok", "")?;
    ensure!(fs::read(directory.join("bad.nc")).is_err(), "it was served");
    ensure_eq!(fs::read(directory.join("good.nc"))?, good);
    let name = directory.join("bad.nc");
    for asked in [mount.path(), mount.store(), &directory] {
        is(asked, "data", "problem", &name.to_string_lossy())?;
    }
    let (found, _) = ask(mount.path(), "data")?;
    ensure!(!format!("{found:?}").contains("good.nc"), "{found:?}");
    // Neither the user who mounted it nor root: learns nothing about other users' files.
    let refused = Cmd::new("getfattr")
        .args(["-n", "user.shale.stat.damaged"])
        .arg(mount.path())
        .user(4242, 4242)
        .run()?;
    ensure!(!refused.status.success(), "{}", refused.describe());
    // A file under another name is the same file; one that was replaced is whole again.
    fs::rename(&name, directory.join("renamed.nc"))?;
    is(mount.path(), "data", "problem", "run 1/renamed.nc")?;
    fs::write(directory.join("renamed.nc"), &good)?;
    is(mount.path(), "data", "ok", "")?;
    mount.unmount()?;
    // Without a daemon the log is what is left.
    fs::write(mount.store().join("shale.log"), mount.log_text())?;
    is(mount.store(), "log", "problem", "damaged")?;
    fs::write(mount.store().join("shale.log"), "")?;
    is(mount.store(), "log", "ok", "")
}

fn refused(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    let refused = Cmd::new("setfattr")
        .args(["-n", "user.shale.codec", "-v", "gzip"])
        .arg(mount.path())
        .run()?;
    ensure!(!refused.status.success(), "{}", refused.describe());
    ensure!(mount.log_text().contains("gzip"), "{}", mount.log_text());
    is(mount.path(), "log", "ok", "")?;
    mount.unmount()
}
