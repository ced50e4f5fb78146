//! Names, directories, links.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};

use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};
use rustix::io::Errno;
use shale_tests::{Case, Context, Outcome, Sample, ensure, ensure_eq, read_tree, same_trees};

pub(crate) fn any_bytes(case: &Case) -> Outcome {
    let mut fs = case.fs()?;
    let top = fs.at("names");
    fs::create_dir(&top)?;
    let mut names: Vec<Vec<u8>> = Vec::new();
    for byte in (1..=255u8).filter(|byte| *byte != b'/') {
        names.push(vec![b'a', byte, b'z']);
        if byte != b'.' {
            names.push(vec![byte]);
        }
    }
    for length in [2, 100, 254, 255] {
        names.push(vec![0xfe; length]);
        names.push("\u{e9}".repeat(length).into_bytes()[..length].to_vec());
    }
    for name in &names {
        fs::write(top.join(OsStr::from_bytes(name)), name)
            .doing(format!("creating {}", name.escape_ascii()))?;
    }
    for round in ["before", "after"] {
        let mut expected: HashSet<Vec<u8>> = names.iter().cloned().collect();
        for entry in fs::read_dir(&top)? {
            let name = entry?.file_name();
            let known = expected.remove(name.as_bytes());
            ensure!(
                known,
                "readdir invents {} {round} the remount",
                name.as_bytes().escape_ascii()
            );
            ensure_eq!(
                fs::read(top.join(&name))?,
                name.as_bytes(),
                "contents by name"
            );
        }
        ensure!(
            expected.is_empty(),
            "{} names are missing {round} the remount",
            expected.len()
        );
        if round == "before" {
            fs.refresh()?;
        }
    }
    let long = top.join(OsStr::from_bytes(&[b'n'; 256]));
    for (what, result) in [
        ("create", File::create(&long).map(drop)),
        ("mkdir", fs::create_dir(&long)),
        ("stat", fs::metadata(&long).map(drop)),
        ("symlink", symlink("x", &long)),
        ("rename", fs::rename(top.join("b"), &long)),
    ] {
        let error = result.err().and_then(|error| error.raw_os_error());
        ensure_eq!(
            error,
            Some(Errno::NAMETOOLONG.raw_os_error()),
            "{what} with a name of 256 bytes"
        );
    }
    fs.finish()
}

pub(crate) fn rename_flags(case: &Case) -> Outcome {
    let mut fs = case.fs()?;
    let rename =
        |from: &str, to: &str, flags| renameat_with(CWD, fs.at(from), CWD, fs.at(to), flags);
    fs::write(fs.at("a"), b"a")?;
    fs::write(fs.at("b"), b"b")?;
    ensure_eq!(
        rename("a", "b", RenameFlags::NOREPLACE),
        Err(Errno::EXIST),
        "NOREPLACE onto a file"
    );
    ensure_eq!(
        fs::read(fs.at("b"))?,
        b"b",
        "the target of a refused rename"
    );
    rename("a", "c", RenameFlags::NOREPLACE)?;
    ensure_eq!(fs::read(fs.at("c"))?, b"a", "after NOREPLACE");

    rename("b", "c", RenameFlags::EXCHANGE)?;
    ensure_eq!(fs::read(fs.at("b"))?, b"a", "b after EXCHANGE");
    ensure_eq!(fs::read(fs.at("c"))?, b"b", "c after EXCHANGE");
    ensure_eq!(
        rename("b", "none", RenameFlags::EXCHANGE),
        Err(Errno::NOENT),
        "EXCHANGE with nothing"
    );
    ensure_eq!(
        rename("b", "c", RenameFlags::EXCHANGE | RenameFlags::NOREPLACE),
        Err(Errno::INVAL),
        "flags that exclude each other"
    );

    fs::create_dir_all(fs.at("d/sub/leaf"))?;
    fs::create_dir(fs.at("e"))?;
    fs::write(fs.at("e/file"), b"file")?;
    rename("d/sub", "e/file", RenameFlags::EXCHANGE)?;
    ensure_eq!(
        fs::read(fs.at("d/sub"))?,
        b"file",
        "a file where a directory was"
    );
    ensure!(
        fs.at("e/file/leaf").is_dir(),
        "a directory where a file was"
    );
    ensure_eq!(
        fs::metadata(fs.at("e/file/.."))?.ino(),
        fs::metadata(fs.at("e"))?.ino(),
        ".. of an exchanged directory"
    );
    ensure_eq!(
        rename("e", "e/file/leaf/inside", RenameFlags::empty()),
        Err(Errno::INVAL),
        "into itself"
    );
    ensure_eq!(
        rename("e", "e/file", RenameFlags::EXCHANGE),
        Err(Errno::INVAL),
        "exchanged with its own child"
    );
    fs::create_dir(fs.at("empty"))?;
    ensure_eq!(
        rename("empty", "e", RenameFlags::empty()),
        Err(Errno::NOTEMPTY),
        "onto a full directory"
    );
    ensure_eq!(
        rename("c", "empty", RenameFlags::empty()),
        Err(Errno::ISDIR),
        "a file onto a directory"
    );
    ensure_eq!(
        rename("empty", "c", RenameFlags::empty()),
        Err(Errno::NOTDIR),
        "a directory onto a file"
    );
    // Two names of one file: nothing happens, by POSIX.
    fs::hard_link(fs.at("c"), fs.at("c2"))?;
    rename("c", "c2", RenameFlags::empty())?;
    ensure!(
        fs.at("c").exists() && fs.at("c2").exists(),
        "renaming a file onto itself removed a name"
    );

    let before = read_tree(fs.path())?;
    fs.refresh()?;
    same_trees(&read_tree(fs.path())?, &before)?;
    fs.finish()
}

pub(crate) fn directories_move(case: &Case) -> Outcome {
    let fs = case.fs()?;
    fs::create_dir_all(fs.at("a/b/c"))?;
    fs::create_dir(fs.at("x"))?;
    let links = |name: &str| -> Outcome<u64> { Ok(fs::metadata(fs.at(name))?.nlink()) };
    // Some file systems count subdirectories in st_nlink, some always say 1.
    let counts = links("a")? == 3;
    let inside = File::create(fs.at("a/b/c/file"))?;
    fs::rename(fs.at("a/b"), fs.at("x/moved"))?;
    if counts {
        ensure_eq!(
            (links("a")?, links("x")?),
            (2, 3),
            "links after a directory moved"
        );
    } else {
        ensure_eq!(
            (links("a")?, links("x")?),
            (1, 1),
            "links of directories that do not count"
        );
    }
    ensure_eq!(
        fs::metadata(fs.at("x/moved/.."))?.ino(),
        fs::metadata(fs.at("x"))?.ino(),
        "the new parent"
    );
    ensure_eq!(
        inside.metadata()?.ino(),
        fs::metadata(fs.at("x/moved/c/file"))?.ino(),
        "an open file moved along"
    );
    ensure!(!fs.at("a/b").exists(), "the old name is still there");
    let error = fs::remove_dir(fs.at("x/moved"))
        .err()
        .and_then(|error| error.raw_os_error());
    ensure_eq!(
        error,
        Some(Errno::NOTEMPTY.raw_os_error()),
        "rmdir of a full directory"
    );
    drop(inside);
    fs::remove_dir_all(fs.at("x"))?;
    ensure_eq!(
        fs::read_dir(fs.path())?.count(),
        fs::read_dir(fs.path())?.count(),
        "two listings agree"
    );
    fs.finish()
}

pub(crate) fn special_files(case: &Case) -> Outcome {
    let mut fs = case.fs()?;
    let mode = Mode::from_raw_mode(0o600);
    mknodat(CWD, fs.at("fifo"), FileType::Fifo, mode, 0)?;
    mknodat(CWD, fs.at("socket"), FileType::Socket, mode, 0)?;
    mknodat(
        CWD,
        fs.at("char"),
        FileType::CharacterDevice,
        mode,
        rustix::fs::makedev(1, 3),
    )?;
    mknodat(
        CWD,
        fs.at("block"),
        FileType::BlockDevice,
        mode,
        rustix::fs::makedev(7, 250),
    )?;
    let target = "t".repeat(4095);
    symlink(&target, fs.at("long-link"))?;
    fs::write(fs.at("file"), b"x")?;
    for index in 0..1000 {
        fs::hard_link(fs.at("file"), fs.at(&format!("link-{index}")))?;
    }
    let error = fs::hard_link(fs.path(), fs.at("directory-link"))
        .err()
        .and_then(|error| error.raw_os_error());
    ensure_eq!(
        error,
        Some(Errno::PERM.raw_os_error()),
        "a hard link to a directory"
    );
    for round in ["before", "after"] {
        let kind = |name: &str| {
            fs::symlink_metadata(fs.at(name)).map(|meta| (meta.file_type(), meta.rdev()))
        };
        ensure!(kind("fifo")?.0.is_fifo(), "fifo {round} the remount");
        ensure!(kind("socket")?.0.is_socket(), "socket {round} the remount");
        ensure!(kind("char")?.0.is_char_device(), "char {round} the remount");
        ensure_eq!(
            kind("char")?.1,
            rustix::fs::makedev(1, 3),
            "number of char {round} the remount"
        );
        ensure!(
            kind("block")?.0.is_block_device(),
            "block {round} the remount"
        );
        ensure_eq!(
            kind("block")?.1,
            rustix::fs::makedev(7, 250),
            "number of block {round} the remount"
        );
        ensure_eq!(
            fs::read_link(fs.at("long-link"))?.to_string_lossy(),
            target,
            "link {round} the remount"
        );
        ensure_eq!(
            fs::symlink_metadata(fs.at("long-link"))?.len(),
            4095,
            "size of a link {round} the remount"
        );
        ensure_eq!(
            fs::metadata(fs.at("link-999"))?.nlink(),
            1001,
            "links {round} the remount"
        );
        for entry in fs::read_dir(fs.path())? {
            let entry = entry?;
            let listed = entry.file_type()?;
            ensure_eq!(
                listed,
                fs::symlink_metadata(entry.path())?.file_type(),
                "d_type of {:?}",
                entry.file_name()
            );
        }
        if round == "before" {
            fs.refresh()?;
        }
    }
    for index in 0..1000 {
        fs::remove_file(fs.at(&format!("link-{index}")))?;
    }
    ensure_eq!(
        fs::metadata(fs.at("file"))?.nlink(),
        1,
        "links after removing them"
    );
    fs.finish()
}

pub(crate) fn readdir_under_change(case: &Case) -> Outcome {
    let fs = case.fs()?;
    let top = fs.at("busy");
    fs::create_dir(&top)?;
    for index in 0..10_000 {
        File::create(top.join(format!("entry-{index:05}-with-a-name-of-ordinary-length")))?;
    }
    let mut seen: HashMap<Vec<u8>, u32> = HashMap::new();
    let mut added = 0;
    for (step, entry) in fs::read_dir(&top)?.enumerate() {
        let name = entry?.file_name();
        *seen.entry(name.as_bytes().to_vec()).or_default() += 1;
        // Every third original goes (seen or not yet), and others come; a rename in place of both.
        if step % 3 == 0 && step < 10_000 {
            let index = (step * 7) % 10_000;
            let victim = top.join(format!("entry-{index:05}-with-a-name-of-ordinary-length"));
            if index % 3 == 0 && victim.exists() {
                fs::remove_file(&victim)?;
            }
        }
        if step % 5 == 0 && added < 3000 {
            File::create(top.join(format!("added-{added:05}")))?;
            if added % 2 == 0 {
                fs::rename(
                    top.join(format!("added-{added:05}")),
                    top.join(format!("moved-{added:05}")),
                )?;
            }
            added += 1;
        }
        ensure!(step < 30_000, "readdir does not come to an end");
    }
    for (name, times) in &seen {
        ensure_eq!(*times, 1, "times that {} was listed", name.escape_ascii());
    }
    for index in (0..10_000).filter(|index| index % 3 != 0) {
        let name = format!("entry-{index:05}-with-a-name-of-ordinary-length");
        ensure!(
            seen.contains_key(name.as_bytes()),
            "{name} was there all the time and not listed"
        );
    }
    let left: HashSet<_> = fs::read_dir(&top)?
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    for index in 0..added {
        let prefix = if index % 2 == 0 { "moved" } else { "added" };
        ensure!(
            left.contains(OsStr::new(&format!("{prefix}-{index:05}"))),
            "{prefix}-{index} is missing"
        );
    }
    fs.finish()
}

pub(crate) fn delete_while_listing(case: &Case) -> Outcome {
    let fs = case.fs()?;
    let top = fs.at("busy");
    fs::create_dir(&top)?;
    for index in 0..5000 {
        File::create(top.join(format!("{index}")))?;
    }
    let mut listed = 0;
    for entry in fs::read_dir(&top)? {
        fs::remove_file(entry?.path())?;
        listed += 1;
    }
    ensure_eq!(listed, 5000, "entries listed while each was deleted");
    fs::remove_dir(&top)?;
    fs.finish()
}

pub(crate) fn everything_survives_a_remount(case: &Case) -> Outcome {
    let mut fs = case.fs()?;
    let reference = case.dir("reference")?;
    Sample::new(99).create(&reference)?;
    fs::create_dir(fs.at("tree"))?;
    fs::set_permissions(fs.at("tree"), fs::metadata(&reference)?.permissions())?;
    Sample::new(99).create(&fs.at("tree"))?;
    let timeless = |tree: std::collections::BTreeMap<_, shale_tests::Entry>| {
        tree.into_iter()
            .map(|(path, entry)| (path, entry.timeless()))
            .collect()
    };
    let before = read_tree(&fs.at("tree"))?;
    same_trees(&timeless(before.clone()), &timeless(read_tree(&reference)?))?;
    fs.refresh()?;
    same_trees(&read_tree(&fs.at("tree"))?, &before)?;
    fs.finish()
}
