//! cp, rsync and tar.

use std::fs;
use std::path::{Path, PathBuf};

use shale_tests::{Case, Cmd, Outcome, Sample, ensure, ensure_eq, read_tree, same_trees};

use crate::two_places;

/// The sample tree with ACLs, on the host.
fn sample(case: &Case) -> Outcome<PathBuf> {
    let tree = case.dir("tree")?;
    Sample::new(5).create(&tree)?;
    Cmd::shell("cd \"$T\"; setfacl -m u:1234:rw,g:99:r attributes/file; setfacl -m u:1234:rwx,d:u:1234:rwx,d:o::- plain/deep")
        .env("T", &tree)
        .ok()?;
    let found = read_tree(&tree)?;
    let acls = found.values().filter(|entry| {
        entry
            .xattrs
            .contains_key("system.posix_acl_access".as_ref() as &std::ffi::OsStr)
    });
    ensure_eq!(
        acls.count(),
        2,
        "files with an ACL; does the host's file system support them?"
    );
    Ok(tree)
}

pub(crate) fn cp_archive(case: &Case) -> Outcome {
    let tree = sample(case)?;
    let expected = read_tree(&tree)?;
    let mut fs = case.fs()?;
    Cmd::new("cp").arg("-a").arg(&tree).arg(fs.path()).ok()?;
    same_trees(&read_tree(&fs.at("tree"))?, &expected)?;
    Cmd::new("cp")
        .arg("-a")
        .arg(fs.at("tree"))
        .arg(fs.at("again"))
        .ok()?;
    same_trees(&read_tree(&fs.at("again"))?, &expected)?;
    fs.refresh()?;
    same_trees(&read_tree(&fs.at("tree"))?, &expected)?;
    let back = case.work().join("back");
    Cmd::new("cp")
        .arg("-a")
        .arg(fs.at("again"))
        .arg(&back)
        .ok()?;
    same_trees(&read_tree(&back)?, &expected)?;
    Cmd::new("rm")
        .arg("-rf")
        .arg(fs.at("tree"))
        .arg(fs.at("again"))
        .ok()?;
    fs.finish()
}

pub(crate) fn cp_sparse(case: &Case) -> Outcome {
    use std::os::unix::fs::{FileExt, MetadataExt};
    let (host, fs, here) = two_places(case)?;
    let file = fs::File::create(host.join("sparse"))?;
    for place in [3u64, 40, 77] {
        file.write_all_at(format!("island {place}").as_bytes(), place << 20)?;
    }
    file.set_len(100 << 20)?;
    drop(file);
    for (option, name) in [("--sparse=always", "always"), ("--sparse=auto", "auto")] {
        Cmd::new("cp")
            .arg(option)
            .arg(host.join("sparse"))
            .arg(here.join(name))
            .ok()?;
        Cmd::new("cp")
            .arg(option)
            .arg(here.join(name))
            .arg(here.join(format!("{name}-again")))
            .ok()?;
        for copy in [name.to_string(), format!("{name}-again")] {
            Cmd::new("cmp")
                .arg(host.join("sparse"))
                .arg(here.join(&copy))
                .ok()?;
            let used = fs::metadata(here.join(&copy))?.blocks() * 512;
            ensure!(
                used < 8 << 20,
                "{copy} of 100 MiB of zeros occupies {used} bytes"
            );
        }
    }
    fs.finish()
}

pub(crate) fn rsync_archive(case: &Case) -> Outcome {
    let tree = sample(case)?;
    let expected = read_tree(&tree)?;
    let mut fs = case.fs()?;
    let copy = fs.at("copy");
    let rsync = |from: &Path, to: &Path, extra: &[&str]| {
        let from = format!("{}/", from.display());
        Cmd::new("rsync")
            .args([
                "-aHAX",
                "--delete",
                "--modify-window=-1",
                "--itemize-changes",
            ])
            .args(extra)
            .arg(from)
            .arg(to)
            .ok()
    };
    rsync(&tree, &copy, &[])?;
    same_trees(&read_tree(&copy)?, &expected)?;
    fs.refresh()?;
    let changes = rsync(&tree, &copy, &["--checksum"])?;
    ensure!(
        changes.trim().is_empty(),
        "a second rsync finds changes: {changes}"
    );
    // A change in the middle, sent as a delta into the existing file.
    let mut bytes = fs::read(tree.join("plain/noise-9"))?;
    bytes[1_500_000] ^= 0xff;
    fs::write(tree.join("plain/noise-9"), bytes)?;
    fs::remove_file(tree.join("plain/noise-3"))?;
    rsync(
        &tree,
        &copy,
        &["--no-whole-file", "--inplace", "--checksum"],
    )?;
    same_trees(&read_tree(&copy)?, &read_tree(&tree)?)?;
    let back = case.work().join("back");
    rsync(&copy, &back, &["--sparse"])?;
    same_trees(&read_tree(&back)?, &read_tree(&tree)?)?;
    fs.finish()
}

pub(crate) fn tar_with_attributes(case: &Case) -> Outcome {
    let tree = sample(case)?;
    // tar has no way to store a socket.
    fs::remove_file(tree.join("special/socket"))?;
    let mut fs = case.fs()?;
    let options = [
        "--xattrs",
        "--xattrs-include=*",
        "--acls",
        "--sparse",
        "--format=posix",
        "--numeric-owner",
    ];
    let archive = fs.at("tree.tar");
    Cmd::new("tar")
        .args(options)
        .arg("-cf")
        .arg(&archive)
        .arg("-C")
        .arg(&tree)
        .arg(".")
        .ok()?;
    fs::create_dir(fs.at("copy"))?;
    Cmd::new("tar")
        .args(options)
        .args(["-p", "--same-owner", "-xf"])
        .arg(&archive)
        .arg("-C")
        .arg(fs.at("copy"))
        .ok()?;
    fs.refresh()?;
    let expected = read_tree(&tree)?;
    same_trees(&read_tree(&fs.at("copy"))?, &expected)?;
    // Made on the mount, unpacked on the host.
    let second = case.work().join("second.tar");
    let back = case.dir("back")?;
    Cmd::new("tar")
        .args(options)
        .arg("-cf")
        .arg(&second)
        .arg("-C")
        .arg(fs.at("copy"))
        .arg(".")
        .ok()?;
    Cmd::new("tar")
        .args(options)
        .args(["-p", "--same-owner", "-xf"])
        .arg(&second)
        .arg("-C")
        .arg(&back)
        .ok()?;
    same_trees(&read_tree(&back)?, &expected)?;
    fs.finish()
}
