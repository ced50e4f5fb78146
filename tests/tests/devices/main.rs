//! Stores on persistent memory and on Lustre, as far as any machine can simulate them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;

use shale_tests::{Case, Cmd, Mount, Need, Outcome, Rng, Suite, ensure, shale};

fn main() -> ExitCode {
    Suite::new("devices")
        .need(Need::Shale)
        .test("mapped_packs_keep_everything", mapped_packs_keep_everything)
        .test("a_store_moves_between_kinds", a_store_moves_between_kinds)
        .test("packs_are_striped_on_lustre", packs_are_striped_on_lustre)
        .test(
            "lustre_without_its_tools_works",
            lustre_without_its_tools_works,
        )
        .test(
            "an_ordinary_device_is_left_alone",
            an_ordinary_device_is_left_alone,
        )
        .run()
}

fn sample(megabytes: usize) -> Vec<u8> {
    let mut bytes = Rng::new(7).bytes(megabytes << 20);
    for piece in bytes.chunks_mut(4) {
        piece[3] = 0x3f;
    }
    bytes
}

/// Names and lengths of the packs of a store.
fn packs(store: &Path) -> Outcome<Vec<(String, u64)>> {
    let mut packs = Vec::new();
    for session in fs::read_dir(store.join("packs"))? {
        let session = session?;
        if session.file_name() == "catalog" {
            continue;
        }
        for pack in fs::read_dir(session.path())? {
            let pack = pack?;
            packs.push((pack.path().display().to_string(), pack.metadata()?.len()));
        }
    }
    Ok(packs)
}

fn mapped_packs_keep_everything(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["--backing", "pmem"])?;
    let data = sample(24);
    let path = mount.path().join("data");
    fs::write(&path, &data)?;
    fs::File::open(&path)?.sync_all()?;
    let mapped = packs(mount.store())?
        .iter()
        .map(|(_, len)| len)
        .sum::<u64>();
    ensure!(
        mapped % (16 << 20) == 0,
        "{mapped} bytes: packs do not grow by windows, so they are not mapped"
    );
    // What a killed daemon leaves of its windows is not damage.
    mount.kill9()?;
    mount.detach();
    mount.fsck_is_clean()?;
    mount.start()?;
    ensure!(fs::read(&path)? == data, "differs after kill -9");
    shale().args(["settle", "--wait"]).arg(&path).ok()?;
    ensure!(fs::read(&path)? == data, "differs after settling");
    shale()
        .args(["gc", "--wait", "--live", "99"])
        .arg(mount.path())
        .ok()?;
    mount.remount()?;
    ensure!(fs::read(&path)? == data, "differs after a remount");
    mount.unmount()?;
    mount.fsck_is_clean()?;
    let stored: u64 = packs(mount.store())?.iter().map(|(_, len)| len).sum();
    ensure!(
        stored < data.len() as u64 * 3 / 2,
        "{stored} bytes are kept for {}: windows are not given back",
        data.len()
    );
    Ok(())
}

fn a_store_moves_between_kinds(case: &Case) -> Outcome {
    let data = sample(3);
    for (round, backing) in ["pmem", "posix", "lustre", "auto"].iter().enumerate() {
        let mut mount = case.mount("fs", &["--backing", backing, "-o", "stripe_count=keep"])?;
        for earlier in 0..round {
            let path = mount.path().join(earlier.to_string());
            ensure!(
                fs::read(path)? == data,
                "{backing} cannot read round {earlier}"
            );
        }
        fs::write(mount.path().join(round.to_string()), &data)?;
        mount.unmount()?;
        mount.fsck_is_clean()?;
    }
    Ok(())
}

/// A mount whose daemon finds the given `lfs`.
fn on_lustre(case: &Case, path: &Path) -> Outcome<String> {
    let (store, mountpoint) = (case.work().join("store"), case.dir("mnt")?);
    Cmd::new(shale_tests::binary())
        .args([
            "mount",
            "--backing",
            "lustre",
            "-o",
            "stripe_count=4,stripe_size=1M",
        ])
        .arg(&store)
        .arg(&mountpoint)
        .env("PATH", path)
        .ok()?;
    let data = sample(2);
    let written = fs::write(mountpoint.join("data"), &data);
    let read = fs::read(mountpoint.join("data"));
    shale().arg("unmount").arg(&mountpoint).ok()?;
    written?;
    ensure!(read? == data, "what was written differs");
    shale().arg("fsck").arg(&store).ok()?;
    Ok(fs::read_to_string(store.join("shale.log")).unwrap_or_default())
}

fn packs_are_striped_on_lustre(case: &Case) -> Outcome {
    let bin = case.dir("bin")?;
    let calls = case.work().join("calls");
    let lfs = bin.join("lfs");
    fs::write(
        &lfs,
        format!("#!/bin/sh\necho \"$@\" >> {}\n", calls.display()),
    )?;
    fs::set_permissions(&lfs, fs::Permissions::from_mode(0o755))?;
    let log = on_lustre(case, &bin)?;
    let calls = fs::read_to_string(&calls)?;
    let packs = case.work().join("store/packs");
    let expected = format!("setstripe -c 4 -S 1048576 {}", packs.display());
    ensure!(
        calls.lines().any(|line| line == expected),
        "lfs was not called as {expected:?}: {calls}"
    );
    ensure!(
        calls.lines().any(|line| line.contains("/packs/s0")),
        "the directory of the session is not striped: {calls}"
    );
    ensure!(!log.contains("lfs"), "a warning though lfs worked: {log}");
    Ok(())
}

fn lustre_without_its_tools_works(case: &Case) -> Outcome {
    let empty = case.dir("bin")?;
    let log = on_lustre(case, &empty)?;
    ensure!(
        log.contains("install the Lustre client tools"),
        "the log does not say what to do: {log}"
    );
    Ok(())
}

fn an_ordinary_device_is_left_alone(case: &Case) -> Outcome {
    let mut mount: Mount = case.mount("fs", &[])?;
    let data = sample(3);
    let path = mount.path().join("data");
    fs::write(&path, &data)?;
    fs::File::open(&path)?.sync_all()?;
    let lengths = packs(mount.store())?;
    ensure!(
        lengths.iter().all(|(_, len)| *len < 16 << 20),
        "packs are mapped: {lengths:?}"
    );
    ensure!(
        !mount.store().join("shale.probe").exists(),
        "the probe was left behind"
    );
    mount.unmount()
}
