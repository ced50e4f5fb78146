//! Real programs, unmodified: the same is done on the host's file system and on
//! the mount, and what comes out must be the same, byte for byte or value for value.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use shale_tests::{
    Case, Cmd, Context, Fs, Need, Outcome, Sample, Suite, binary, ensure, ensure_eq, note, on_ext4,
    python, read_tree, root, same_trees, script,
};

fn main() -> ExitCode {
    let mut suite = Suite::new("programs")
        .need(Need::File(python()))
        .limit(Duration::from_secs(240));
    for command in [
        "ncdump",
        "nccopy",
        "h5dump",
        "h5repack",
        "h5diff",
        "cp",
        "rsync",
        "tar",
        "git",
        "sqlite3",
        "setfacl",
        "mpicc.mpich",
        "mpiexec.mpich",
    ] {
        suite = suite.need(Need::Command(command));
    }
    suite
        .test("netcdf4_python", |case| {
            both_in_python(case, "netcdf_files.py", true)
        })
        .test("h5py", |case| both_in_python(case, "hdf5_files.py", false))
        .test("xarray", |case| {
            both_in_python(case, "xarray_files.py", false)
        })
        .test("ncdump_and_nccopy", netcdf_tools)
        .test("h5dump_and_h5repack", hdf5_tools)
        .test("cp_archive", cp_archive)
        .test("cp_sparse", cp_sparse)
        .test("rsync_archive", rsync_archive)
        .test("tar_with_attributes", tar_with_attributes)
        .test("git_clone_and_fsck", git)
        .test("sqlite_wal", sqlite)
        .test("mpi_shared_file", mpi)
        .test("the_readme_can_be_pasted", readme)
        .run()
}

fn in_python(name: &str, directory: &Path) -> Outcome<String> {
    Cmd::new(python())
        .arg(script(name))
        .arg(directory)
        .limit(Duration::from_secs(180))
        .ok()
}

/// A directory on the host and one on the file system under test.
fn two_places(case: &Case) -> Outcome<(PathBuf, Fs, PathBuf)> {
    let host = case.dir("host")?;
    let fs = case.fs()?;
    let here = fs.at("work");
    fs::create_dir(&here)?;
    Ok((host, fs, here))
}

/// Fails unless both directories hold the same files with the same bytes.
fn same_files(here: &Path, host: &Path) -> Outcome<usize> {
    let strip = |tree: std::collections::BTreeMap<PathBuf, shale_tests::Entry>| {
        tree.into_iter()
            .map(|(path, entry)| (path, entry.timeless()))
            .collect()
    };
    let expected = strip(read_tree(host)?);
    same_trees(&strip(read_tree(here)?), &expected)?;
    Ok(expected.len())
}

/// Runs a script in both places. What it prints must agree, and so must the bytes
/// of its files where the program writes the same bytes twice.
fn both_in_python(case: &Case, name: &str, bytes: bool) -> Outcome {
    let (host, mut fs, here) = two_places(case)?;
    let (expected, found) = std::thread::scope(|scope| {
        let expected = scope.spawn(|| in_python(name, &host));
        let found = in_python(name, &here);
        (
            expected.join().expect("the run on the host panicked"),
            found,
        )
    });
    let (expected, found) = (expected?, found?);
    ensure!(
        expected.len() > 100,
        "the script printed too little: {expected}"
    );
    ensure!(
        found == expected,
        "values differ:\n--- here\n{found}\n--- on the host\n{expected}"
    );
    if bytes {
        same_files(&here, &host)?;
    }
    let before = read_tree(&here)?;
    fs.refresh()?;
    same_trees(&read_tree(&here)?, &before)?;
    note(format!(
        "{} values compared",
        expected.matches('"').count() / 2
    ));
    fs.finish()
}

fn netcdf_tools(case: &Case) -> Outcome {
    let (host, fs, here) = two_places(case)?;
    in_python("netcdf_files.py", &host)?;
    Cmd::shell("cp \"$HOST\"/*.nc \"$HERE\"/")
        .env("HOST", &host)
        .env("HERE", &here)
        .ok()?;
    let mut dumps = 0;
    for name in [
        "classic.nc",
        "cdf2.nc",
        "cdf5.nc",
        "nc4-contiguous.nc",
        "nc4-deflated.nc",
    ] {
        for place in [&host, &here] {
            Cmd::new("nccopy")
                .args([
                    "-k",
                    "nc4",
                    "-d",
                    "5",
                    "-s",
                    name,
                    &format!("packed-{name}"),
                ])
                .cwd(place)
                .ok()?;
            Cmd::new("nccopy")
                .args(["-k", "cdf5", "-u", name, &format!("plain-{name}")])
                .cwd(place)
                .ok()?;
        }
        for file in [
            name.to_string(),
            format!("packed-{name}"),
            format!("plain-{name}"),
        ] {
            let dump = |place: &Path| {
                Cmd::new("ncdump")
                    .args(["-p", "9,17", &file])
                    .cwd(place)
                    .ok()
            };
            let (expected, found) = (dump(&host)?, dump(&here)?);
            ensure!(
                expected.len() > 100_000,
                "{file}: a dump of {} bytes",
                expected.len()
            );
            ensure!(found == expected, "ncdump of {file} differs");
            dumps += 1;
        }
    }
    note(format!("{dumps} dumps compared"));
    fs.finish()
}

fn hdf5_tools(case: &Case) -> Outcome {
    let (host, fs, here) = two_places(case)?;
    in_python("hdf5_files.py", &host)?;
    Cmd::shell("cp \"$HOST\"/grown.h5 \"$HERE\"/")
        .env("HOST", &host)
        .env("HERE", &here)
        .ok()?;
    for place in [&host, &here] {
        Cmd::new("h5repack")
            .args(["-f", "SHUF", "-f", "GZIP=6", "grown.h5", "packed.h5"])
            .cwd(place)
            .ok()?;
        Cmd::new("h5repack")
            .args(["-l", "CONTI", "-f", "NONE", "packed.h5", "plain.h5"])
            .cwd(place)
            .ok()?;
        Cmd::new("h5diff")
            .args(["grown.h5", "packed.h5"])
            .cwd(place)
            .ok()?;
        Cmd::new("h5diff")
            .args(["grown.h5", "plain.h5"])
            .cwd(place)
            .ok()?;
    }
    for file in ["grown.h5", "packed.h5", "plain.h5"] {
        let dump = |place: &Path| Cmd::new("h5dump").arg(file).cwd(place).ok();
        let (expected, found) = (dump(&host)?, dump(&here)?);
        ensure!(
            expected.len() > 100_000,
            "{file}: a dump of {} bytes",
            expected.len()
        );
        ensure!(found == expected, "h5dump of {file} differs");
        Cmd::new("h5diff")
            .arg(host.join(file))
            .arg(here.join(file))
            .ok()?;
    }
    fs.finish()
}

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

fn cp_archive(case: &Case) -> Outcome {
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

fn cp_sparse(case: &Case) -> Outcome {
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

fn rsync_archive(case: &Case) -> Outcome {
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

fn tar_with_attributes(case: &Case) -> Outcome {
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

fn git(case: &Case) -> Outcome {
    let (host, mut fs, here) = two_places(case)?;
    let work = |place: &Path| Cmd::new(script("git_work.sh")).arg(place).ok();
    let (expected, found) = (work(&host)?, work(&here)?);
    ensure!(
        expected.lines().count() >= 6,
        "the script printed too little: {expected}"
    );
    ensure_eq!(found, expected, "object ids and checksums");
    fs.refresh()?;
    let again = Cmd::new("git")
        .args(["-c", "safe.directory=*", "fsck", "--full", "--strict"])
        .cwd(here.join("clone"));
    again.ok()?;
    fs.finish()
}

fn sqlite(case: &Case) -> Outcome {
    let (host, mut fs, here) = two_places(case)?;
    for place in [&host, &here] {
        ensure_eq!(
            in_python("sqlite_wal.py", place)?.trim(),
            "ok",
            "integrity_check in {}",
            place.display()
        );
    }
    fs.refresh()?;
    let dump = |place: &Path| {
        Cmd::new("sqlite3")
            .arg(place.join("bank.db"))
            .arg("PRAGMA integrity_check; SELECT * FROM transfers; SELECT * FROM accounts;")
            .ok()
    };
    let (expected, found) = (dump(&host)?, dump(&here)?);
    ensure!(
        expected.starts_with("ok\n") && expected.lines().count() > 400,
        "the dump is too short"
    );
    ensure!(found == expected, "the databases differ");
    fs.finish()
}

fn mpi(case: &Case) -> Outcome {
    let (host, mut fs, here) = two_places(case)?;
    let program = case.work().join("shared_file");
    Cmd::new("mpicc.mpich")
        .args(["-O1", "-Wall", "-o"])
        .arg(&program)
        .arg(script("shared_file.c"))
        .ok()?;
    for place in [&host, &here] {
        let output = Cmd::new("mpiexec.mpich")
            .args(["-n", "4"])
            .arg(&program)
            .arg(place.join("shared.dat"))
            .ok()?;
        ensure!(
            output.contains("4 ranks") && output.contains("all right"),
            "mpiexec said: {output}"
        );
    }
    Cmd::new("cmp")
        .arg(host.join("shared.dat"))
        .arg(here.join("shared.dat"))
        .ok()?;
    fs.refresh()?;
    Cmd::new("cmp")
        .arg(host.join("shared.dat"))
        .arg(here.join("shared.dat"))
        .ok()?;
    fs.finish()
}

/// What it says under "Use it", by somebody who has a directory of files and nothing else.
fn readme(case: &Case) -> Outcome {
    if on_ext4() {
        return Ok(());
    }
    let text = fs::read_to_string(root().join("README.md"))?;
    let block = text
        .split("## Use it\n")
        .nth(1)
        .and_then(|rest| rest.split("```").nth(1))
        .and_then(|block| block.strip_prefix("sh\n"))
        .doing("looking for the commands")?;
    let (home, path) = (case.dir("home")?, case.dir("bin")?);
    std::os::unix::fs::symlink(binary(), path.join("shale"))?;
    fs::create_dir(home.join("run1"))?;
    fs::write(home.join("run1/history.nc"), "words\n".repeat(50_000))?;
    let store = case.work().join("store");
    let commands = block.replace("/lustre/me/store", &store.to_string_lossy());
    ensure!(
        commands.lines().count() > 5 && commands != block,
        "{commands}"
    );
    Cmd::shell(&format!("PATH={}:$PATH\n{commands}", path.display()))
        .env("HOME", &home)
        .cwd(&home)
        .ok()?;
    let copy = case.work().join("copy");
    Cmd::new(binary())
        .arg("export")
        .arg(&store)
        .arg(&copy)
        .ok()?;
    ensure!(copy.join("tmp").is_dir(), "the directory with a policy");
    Cmd::new("diff")
        .arg("-r")
        .args([home.join("run1"), copy.join("run1")])
        .ok()?;
    Ok(())
}
