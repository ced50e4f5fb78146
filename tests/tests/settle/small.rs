//! Many small files settle together.

use std::fs::{self};
use std::path::PathBuf;

use shale_tests::{
    Case, Context, Mount, Outcome, Rng, ensure, ensure_eq, note, report, seed, shale, stored,
};

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

pub(crate) fn together(case: &Case) -> Outcome {
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
