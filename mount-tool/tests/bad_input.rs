//! Wrong arguments, stores and mount points: one line that says what to do, an exit status,
//! and nothing created.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// Runs in a new directory; the status and the one line on stderr.
fn shale(dir: &Path, arguments: &str) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_shale"))
        .args(arguments.split(' '))
        .current_dir(dir)
        .output()
        .unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.stdout.is_empty(),
        "{arguments}: {}",
        String::from_utf8_lossy(&output.stdout)
    );
    assert!(
        line.starts_with("shale: ") && line.ends_with('\n'),
        "{arguments}: {line:?}"
    );
    assert_eq!(line.lines().count(), 1, "{arguments}: {line:?}");
    (output.status.code().unwrap(), line)
}

fn tree(dir: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        names.push(path.display().to_string());
        if path.is_dir() {
            names.extend(tree(&path));
        }
    }
    names.sort();
    names
}

/// Must fail with this status and contain all of these words, and change nothing.
fn refused(dir: &Path, arguments: &str, status: i32, words: &[&str]) {
    let before = tree(dir);
    let (found, line) = shale(dir, arguments);
    assert_eq!(found, status, "{arguments}: {line}");
    for word in words {
        assert!(line.contains(word), "{arguments}: no '{word}' in {line}");
    }
    assert_eq!(tree(dir), before, "{arguments} changed something");
}

/// `mnt` is an empty directory, `full` has a file in it, `file` is a file.
fn place() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("mnt")).unwrap();
    fs::create_dir(dir.path().join("full")).unwrap();
    fs::write(dir.path().join("full/precious"), "x").unwrap();
    fs::write(dir.path().join("file"), "x").unwrap();
    dir
}

#[test]
fn a_store_that_cannot_be_one() {
    let dir = place();
    let dir = dir.path();
    refused(
        dir,
        "mount file mnt",
        32,
        &["file is a file", "give a directory"],
    );
    refused(
        dir,
        "mount full mnt",
        32,
        &["not a ShaleFS store", "'precious'", "empty directory"],
    );
    refused(
        dir,
        "mount no/such/store mnt",
        32,
        &["no/such/store", "check the path"],
    );
    refused(dir, "mount file/store mnt", 32, &["file"]);
    refused(
        dir,
        "mount --ro new mnt",
        32,
        &["does not exist", "read-only"],
    );
    refused(dir, "mount -o ro mnt mnt", 32, &["empty", "without ro"]);
    std::os::unix::fs::symlink("nowhere", dir.join("link")).unwrap();
    refused(dir, "mount link mnt", 32, &["symbolic link to nowhere"]);
}

#[test]
fn a_mount_point_that_cannot_be_one() {
    let dir = place();
    let dir = dir.path();
    refused(
        dir,
        "mount store none",
        32,
        &["none does not exist", "mkdir none"],
    );
    refused(
        dir,
        "mount store file",
        32,
        &["file is a file", "empty directory"],
    );
    refused(dir, "mount store full", 32, &["not empty", "hide"]);
    refused(
        dir,
        "mount store /proc",
        32,
        &["/proc is busy", "unmount it first"],
    );
}

#[test]
fn a_store_and_a_mount_point_inside_each_other() {
    let dir = place();
    let dir = dir.path();
    refused(dir, "mount mnt mnt", 32, &["inside the store"]);
    refused(dir, "mount mnt/store mnt", 32, &["inside the mount point"]);
    fs::create_dir_all(dir.join("store/mnt")).unwrap();
    let superblock = shale_store::Superblock {
        id: [1; 16],
        created: 0,
        format: shale_store::Format::Current,
    };
    let backing = shale_backing::PosixBacking::new(dir.join("store"));
    superblock.write(&backing).unwrap();
    refused(
        dir,
        "mount store store/mnt",
        32,
        &["inside the store", "elsewhere"],
    );
}

#[test]
fn options_out_of_range() {
    let dir = place();
    let dir = dir.path();
    for (options, words) in [
        ("--memory 1M", ["out of range", "16M to 1T"]),
        ("--memory 2T", ["out of range", "16M to 1T"]),
        ("--memory -5", ["not a size", "16M to 1T"]),
        ("--workers 0", ["out of range", "1 to 256"]),
        ("--workers 1000", ["out of range", "1 to 256"]),
        ("--chunk 3M", ["power of two", "64K to 16M"]),
        ("-o memory=lots", ["not a size", "16M to 1T"]),
        ("-o ro,frob", ["unknown mount option 'frob'", "--help"]),
        ("--frob", ["--frob", "--help"]),
    ] {
        refused(dir, &format!("mount {options} store mnt"), 1, &words);
    }
}

#[test]
fn a_log_that_cannot_be_written() {
    let dir = place();
    let words = ["cannot write the log", "--log"];
    // The status differs where /dev/fuse is missing, which is checked first.
    if Path::new("/dev/fuse").exists() && nix::unistd::geteuid().is_root() {
        refused(dir.path(), "mount --log no/such/log store mnt", 1, &words);
        refused(dir.path(), "mount -o log=mnt store mnt", 1, &words);
    }
}

#[test]
fn a_store_without_permission() {
    if nix::unistd::geteuid().is_root() {
        return; // nothing is forbidden to root
    }
    let dir = place();
    fs::create_dir(dir.path().join("closed")).unwrap();
    fs::set_permissions(dir.path().join("closed"), fs::Permissions::from_mode(0o500)).unwrap();
    refused(dir.path(), "mount closed mnt", 1, &["you may not write to"]);
    refused(
        dir.path(),
        "mount closed/store mnt",
        1,
        &["you may not write to"],
    );
    refused(
        dir.path(),
        "mount store closed",
        1,
        &["you may not write to"],
    );
}

#[test]
fn other_commands_refuse_strangers() {
    let dir = place();
    let dir = dir.path();
    refused(dir, "unmount mnt", 66, &["not a mount point", "findmnt"]);
    refused(
        dir,
        "umount none",
        66,
        &["not a mount point", "does not exist"],
    );
    refused(dir, "unmount none/none", 66, &["no such file"]);
    refused(dir, "unmount /proc", 66, &["type proc", "umount /proc"]);
    refused(dir, "stat none", 66, &["none", "no such file"]);
    refused(dir, "stat mnt", 66, &["not in a ShaleFS mount", "findmnt"]);
    refused(dir, "stat file", 66, &["not in a ShaleFS mount"]);
    refused(dir, "stat", 66, &["not in a ShaleFS mount", "findmnt"]);
    refused(dir, "fsck none", 8, &["none", "no such file"]);
    refused(dir, "fsck file", 8, &["not a directory"]);
    refused(dir, "fsck full", 8, &["no superblock"]);
    refused(dir, "fsck", 16, &["<STORE>", "--help"]);
    refused(dir, "demo full", 73, &["not empty"]);
    refused(dir, "demo no/such/dir", 73, &["no/such/dir"]);
    refused(dir, "demo --steps 0", 64, &["--steps"]);
    refused(dir, "frob", 64, &["frob", "--help"]);
}

#[test]
fn the_mount_helper_refuses_in_the_same_way() {
    let dir = place();
    let helper = dir.path().join("mount.fuse.shale");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_shale"), &helper).unwrap();
    let run = |arguments: &str| {
        let mut command = Command::new(&helper);
        let output = command
            .args(arguments.split(' '))
            .current_dir(dir.path())
            .output()
            .unwrap();
        (
            output.status.code().unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (status, line) = run("full mnt -o rw,nofail");
    assert_eq!(status, 32);
    assert!(line.contains("not a ShaleFS store"), "{line}");
    let (status, line) = run("store mnt -o frob");
    assert_eq!(status, 1);
    assert!(line.contains("'frob'"), "{line}");
    // Fake mounts check everything and create nothing.
    if Path::new("/dev/fuse").exists() && nix::unistd::geteuid().is_root() {
        assert_eq!(run("store mnt -s -f -o frob"), (0, String::new()));
    }
    assert!(!dir.path().join("store").exists());
}
