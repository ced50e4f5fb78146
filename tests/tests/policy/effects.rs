//! The effects of policies.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use shale_tests::{Case, Outcome, Rng, ensure, ensure_eq, note, report, shale, stored, wait_for};

use crate::{effective, field, made_by, set, unset, write};

pub(crate) fn codecs(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let data = field(1 << 20);
    for (codec, frames) in [
        ("none", "verbatim:raw"),
        ("lz4", "columns:lz4"),
        ("zstd:1", "columns:zstd"),
        ("zstd:19", "columns:zstd"),
        ("auto", "columns:"),
    ] {
        let dir = mount.path().join(codec);
        fs::create_dir(&dir)?;
        set(&dir, "user.shale.codec", codec)?;
        let path = dir.join("file");
        write(&path, &data)?;
        let found = report(&path, "codecs")?;
        note(format!("{codec}: {found}, {} stored", stored(&path)?));
        ensure!(found.starts_with(frames), "{codec} made {found}");
        let json = shale().args(["stat", "--json"]).arg(&path).ok()?;
        ensure!(json.contains(&format!("\"codecs\": \"{found}\"")), "{json}");
    }
    let at = |codec: &str| stored(&mount.path().join(codec).join("file"));
    ensure!(at("none")? >= data.len() as u64, "none has compressed");
    ensure!(at("lz4")? < at("none")?, "lz4 has not compressed");
    // As it is, also where one pattern fills it.
    let pattern = mount.path().join("none/pattern");
    write(&pattern, &[7, 0, 1, 2].repeat(1 << 18))?;
    ensure!(stored(&pattern)? >= 1 << 20, "{} bytes", stored(&pattern)?);
    ensure_eq!(report(&pattern, "codecs")?, "verbatim:raw");
    ensure!(at("zstd:19")? < at("zstd:1")?, "the level is ignored");
    // A value on the file itself, for what is written to it later.
    let path = mount.path().join("none/file");
    set(&path, "user.shale.codec", "lz4")?;
    ensure_eq!(report(&path, "codecs")?, "verbatim:raw", "what is there");
    let file = File::options().write(true).open(&path)?;
    file.write_all_at(&data[..1 << 20], 0)?;
    file.sync_all()?;
    drop(file);
    ensure_eq!(
        report(&path, "codecs")?,
        "columns:lz4 verbatim:raw",
        "after a part was written again"
    );
    // While a file is open, what it writes later follows the directory too.
    let path = mount.path().join("auto/open");
    let mut file = File::create(&path)?;
    file.write_all(&data[..1 << 20])?;
    file.sync_all()?;
    set(&mount.path().join("auto"), "user.shale.codec", "none")?;
    file.write_all(&data[1 << 20..2 << 20])?;
    file.sync_all()?;
    let found = report(&path, "codecs")?;
    ensure!(
        found.starts_with("columns:") && found.ends_with(" verbatim:raw"),
        "an open file wrote {found}"
    );
    drop(file);
    mount.remount()?;
    for codec in ["none", "lz4", "zstd:1", "zstd:19", "auto"] {
        let path = mount.path().join(codec).join("file");
        ensure!(fs::read(path)? == data, "{codec} changed the contents");
    }
    mount.unmount()?;
    mount.fsck_is_clean()
}

pub(crate) fn effort(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let data = field(1 << 20);
    let mut sizes = Vec::new();
    for effort in ["fast", "balanced", "dense"] {
        let dir = mount.path().join(effort);
        fs::create_dir(&dir)?;
        set(&dir, "user.shale.effort", effort)?;
        let path = dir.join("file");
        write(&path, &data)?;
        note(format!(
            "{effort}: {} {}",
            report(&path, "codecs")?,
            stored(&path)?
        ));
        sizes.push(stored(&path)?);
    }
    ensure!(
        sizes[0] > sizes[1] && sizes[1] >= sizes[2],
        "more effort made no difference: {sizes:?}"
    );
    mount.remount()?;
    ensure!(fs::read(mount.path().join("dense/file"))? == data, "dense");
    mount.unmount()?;
    mount.fsck_is_clean()
}

pub(crate) fn chunk(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off,chunk=512K"])?;
    let size = |path: &Path| -> Outcome<u64> { Ok(fs::metadata(path)?.blksize()) };
    let dir = mount.path().join("dir");
    fs::create_dir_all(dir.join("below"))?;
    let old = dir.join("old");
    write(&old, &[7; 100_000])?;
    ensure_eq!(size(&old)?, 512 << 10, "from the mount");
    set(&dir, "user.shale.chunk", "64K")?;
    for (name, chunk) in [("new", 64), ("below/new", 64), ("old", 512)] {
        let path = dir.join(name);
        write(&path, &field(100_000))?;
        ensure_eq!(size(&path)?, chunk << 10, "chunk of {name}");
    }
    let (value, source) = effective(&old, "chunk")?;
    ensure_eq!(value, "64K", "what holds for the old file");
    ensure!(
        source.ends_with("; the file has 512K until it is rewritten"),
        "{source}"
    );
    // Frames are as large as chunks, so there are more of smaller ones. The kernel has what was
    // just written; after another mount it has not.
    mount.remount()?;
    let frames = |name: &str| -> Outcome<u64> {
        let before: u64 = report(mount.path(), "frames_read")?.parse()?;
        ensure!(
            fs::read(dir.join(name))? == field(100_000),
            "{name} differs"
        );
        Ok(report(mount.path(), "frames_read")?.parse::<u64>()? - before)
    };
    ensure_eq!(
        frames("new")?,
        7,
        "frames of 400 000 bytes in chunks of 64K"
    );
    ensure_eq!(
        frames("old")?,
        1,
        "frames of 400 000 bytes in chunks of 512K"
    );
    // A file without contents can still choose.
    let empty = mount.path().join("empty");
    File::create(&empty)?;
    set(&empty, "user.shale.chunk", "16M")?;
    ensure_eq!(size(&empty)?, 16 << 20, "an empty file");
    write(&empty, &field(5 << 20))?;
    let full = mount.path().join("full");
    write(&full, b"contents")?;
    set(&full, "user.shale.chunk", "16M")?;
    ensure_eq!(size(&full)?, 512 << 10, "a file with contents");
    mount.remount()?;
    ensure_eq!(
        fs::metadata(mount.path().join("empty"))?.blksize(),
        16 << 20,
        "kept"
    );
    ensure!(
        fs::read(mount.path().join("empty"))? == field(5 << 20),
        "20 MiB in chunks of 16M"
    );
    mount.unmount()?;
    mount.fsck_is_clean()
}

pub(crate) fn settle(case: &Case) -> Outcome {
    let data = field(200_000);
    let mut mount = case.mount("fs", &["-o", "settle=1"])?;
    let dir = |name: &str, settle: &str| -> Outcome {
        let path = mount.path().join(name);
        fs::create_dir(&path)?;
        set(&path, "user.shale.settle", settle)
    };
    dir("off", "off")?;
    dir("off/on", "on")?;
    dir("year", "31622400")?;
    write(&mount.path().join("off/a"), &data)?;
    write(&mount.path().join("year/b"), &data)?;
    write(&mount.path().join("off/on/c"), &data)?;
    write(&mount.path().join("d"), &data)?;
    wait_for(&mount.path().join("off/on/c"), "settled")?;
    wait_for(&mount.path().join("d"), "settled")?;
    // Older files come first, so these have been passed over.
    for name in ["off/a", "year/b"] {
        ensure_eq!(
            report(&mount.path().join(name), "state")?,
            "stored",
            "state of {name}"
        );
    }
    shale()
        .args(["settle", "--wait"])
        .arg(mount.path().join("off"))
        .ok()?;
    ensure_eq!(
        report(&mount.path().join("off/a"), "state")?,
        "settled",
        "asked for"
    );
    unset(&mount.path().join("year"), "user.shale.settle")?;
    wait_for(&mount.path().join("year/b"), "settled")?;
    mount.unmount()?;
    mount.fsck_is_clean()?;

    let mut mount = case.mount("quiet", &["-o", "settle=off"])?;
    let soon = mount.path().join("soon");
    fs::create_dir(&soon)?;
    set(&soon, "user.shale.settle", "0")?;
    write(&mount.path().join("never"), &data)?;
    write(&soon.join("file"), &data)?;
    wait_for(&soon.join("file"), "settled")?;
    ensure_eq!(
        report(&mount.path().join("never"), "state")?,
        "stored",
        "no policy"
    );
    mount.unmount()?;
    mount.fsck_is_clean()
}

pub(crate) fn settle_codec(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let data = field(1 << 19);
    let file = |name: &str, policies: &[(&str, &str)]| -> Outcome<(u64, u64, String)> {
        let dir = mount.path().join(name);
        fs::create_dir(&dir)?;
        for (policy, value) in policies {
            set(&dir, &format!("user.shale.{policy}"), value)?;
        }
        let path = dir.join("file");
        write(&path, &data)?;
        let before = stored(&path)?;
        shale().args(["settle", "--wait"]).arg(&dir).ok()?;
        let state = report(&path, "state")?;
        Ok((
            before,
            stored(&path)?,
            format!("{state} {}", report(&path, "codecs")?),
        ))
    };
    let (before, after, how) = file("lz4", &[("codec", "none"), ("settle.codec", "lz4")])?;
    ensure!(made_by(&how, "lz4"), "raw, then lz4: {how}");
    ensure!(after < before, "lz4 has not compressed");
    let (before, after, how) = file("same", &[("codec", "none")])?;
    ensure_eq!(
        how,
        "settled verbatim:raw",
        "codec=none holds for settling too"
    );
    ensure_eq!(after, before, "it has been left alone");
    let (before, after, how) = file("auto", &[("codec", "none"), ("settle.codec", "auto")])?;
    ensure!(how.starts_with("settled "), "{how}");
    ensure!(after < before * 2 / 3, "{before} bytes became {after}");
    let (_, _, how) = file("zstd", &[("codec", "none"), ("settle.codec", "zstd:9")])?;
    ensure!(made_by(&how, "zstd"), "raw, then zstd: {how}");
    mount.remount()?;
    for name in ["lz4", "same", "auto", "zstd"] {
        let path = mount.path().join(name).join("file");
        ensure!(fs::read(path)? == data, "{name} changed the contents");
    }
    mount.unmount()?;
    mount.fsck_is_clean()
}

pub(crate) fn hard_again(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=0"])?;
    let dir = mount.path().join("dir");
    fs::create_dir(&dir)?;
    // Larger than what the codec by columns has made of it.
    set(&dir, "user.shale.settle.codec", "lz4")?;
    write(&dir.join("field"), &field(1 << 19))?;
    write(&dir.join("noise"), &Rng::new(3).bytes(1 << 20))?;
    wait_for(&dir.join("field"), "compact")?;
    wait_for(&dir.join("noise"), "incompressible")?;
    mount.remount()?;
    ensure_eq!(
        report(&mount.path().join("dir/field"), "state")?,
        "compact",
        "as it was tried before"
    );
    set(&dir, "user.shale.settle.codec", "auto")?;
    wait_for(&dir.join("field"), "settled")?;
    wait_for(&dir.join("noise"), "incompressible")?;
    mount.kill9()?;
    mount.detach();
    mount.fsck_is_clean()?;
    mount.start()?;
    ensure!(fs::read(dir.join("field"))? == field(1 << 19), "contents");
    mount.unmount()?;
    mount.fsck_is_clean()
}

pub(crate) fn durability(case: &Case) -> Outcome {
    for options in ["settle=off", "settle=off,direct_io"] {
        let mut mount = case.mount(&format!("fs-{}", options.len()), &["-o", options])?;
        let dir = mount.path().join("dir");
        fs::create_dir(&dir)?;
        set(&dir, "user.shale.durability", "sync")?;
        let data = field(100_000);
        for round in 0..5 {
            let closed = dir.join(format!("closed{round}"));
            fs::write(&closed, &data)?;
            let cut = dir.join("closed0");
            nix::unistd::truncate(&cut, 1000 + round)?;
            // Every write of its own where the page cache is out of the way.
            let direct = dir.join(format!("direct{round}"));
            let file = File::options()
                .create(true)
                .write(true)
                .custom_flags(nix::libc::O_DIRECT)
                .open(&direct)?;
            let (buffer, from) = aligned(&data[..65_536]);
            file.write_all_at(&buffer[from..from + 65_536], 0)?;
            mount.kill9()?;
            drop(file);
            mount.detach();
            mount.fsck_is_clean()?;
            mount.start()?;
            ensure_eq!(
                fs::metadata(&cut)?.len(),
                1000 + round as u64,
                "what was cut"
            );
            if round > 0 {
                ensure!(fs::read(&closed)? == data, "what was closed is gone");
            }
            ensure!(
                fs::read(&direct)? == data[..65_536],
                "what was written directly is gone"
            );
        }
        mount.unmount()?;
        mount.fsck_is_clean()?;
    }
    Ok(())
}

/// A copy that begins at a page somewhere in the buffer.
fn aligned(bytes: &[u8]) -> (Vec<u8>, usize) {
    let mut buffer = vec![0; bytes.len() + 4096];
    let from = buffer.as_ptr().align_offset(4096);
    buffer[from..from + bytes.len()].copy_from_slice(bytes);
    (buffer, from)
}
