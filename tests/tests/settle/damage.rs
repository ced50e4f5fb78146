//! Settled files in damaged packs, and without an index.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use shale_tests::{Case, Outcome, Rng, ensure, ensure_eq, note, seed, shale};

use crate::corpus::Corpus;
use crate::{packs, write_synced};

pub(crate) fn rebuilt(case: &Case) -> Outcome {
    let mut corpus = Corpus::new(case, &["-o", "settle=off"])?;
    corpus.settle()?;
    corpus.mount.unmount()?;
    fs::remove_dir_all(corpus.mount.store().join("index"))?;
    corpus.mount.fsck(&["--rebuild"])?.status_is(1)?;
    corpus.mount.fsck_is_clean()?;
    corpus.mount.start()?;
    corpus.check_all()?;
    // Without the catalog the frames themselves must do.
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

pub(crate) fn flipped(case: &Case) -> Outcome {
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

/// Flips a bit at `percent` of the length of a file.
fn spoil(path: &Path, percent: u64) -> Outcome {
    let file = File::options().read(true).write(true).open(path)?;
    let at = file.metadata()?.len() * percent / 100;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at)?;
    Ok(file.write_all_at(&[byte[0] ^ 1], at)?)
}

pub(crate) fn unreadable(case: &Case) -> Outcome {
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
