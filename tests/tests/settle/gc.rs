//! Garbage is collected, also next to a damaged pack.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use shale_codec::{FrameKind, HEADER_LEN, parse_header};
use shale_tests::{Case, Context, Outcome, Rng, ensure, ensure_eq, shale};

use crate::{packs, write_synced};

pub(crate) fn space_back(case: &Case) -> Outcome {
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

pub(crate) fn undeletable(case: &Case) -> Outcome {
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
        finished.stderr.contains("garbage collection in "),
        "{}",
        finished.describe()
    );
    let name = before[0].file_name().doing("the name of a pack")?;
    let log = mount.log_text();
    ensure!(
        log.contains(&*name.to_string_lossy()) && log.contains("cannot be rewritten"),
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
