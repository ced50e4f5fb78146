//! Real programs, unmodified: they do the same on the host's file system and on the mount, and the
//! results must agree, byte for byte or value for value.

mod copies;
mod formats;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use shale_tests::{
    Case, Cmd, Context, Fs, Need, Outcome, Suite, binary, ensure, ensure_eq, on_ext4, python, root,
    script,
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
            formats::both_in_python(case, "netcdf_files.py", true)
        })
        .test("h5py", |case| {
            formats::both_in_python(case, "hdf5_files.py", false)
        })
        .test("xarray", |case| {
            formats::both_in_python(case, "xarray_files.py", false)
        })
        .test("ncdump_and_nccopy", formats::netcdf_tools)
        .test("h5dump_and_h5repack", formats::hdf5_tools)
        .test("cp_archive", copies::cp_archive)
        .test("cp_sparse", copies::cp_sparse)
        .test("rsync_archive", copies::rsync_archive)
        .test("tar_with_attributes", copies::tar_with_attributes)
        .test("git_clone_and_fsck", git)
        .test("sqlite_wal", sqlite)
        .test("mpi_shared_file", mpi)
        .test("the_readme_can_be_pasted", readme)
        .run()
}

/// A directory on the host and one on the file system under test.
fn two_places(case: &Case) -> Outcome<(PathBuf, Fs, PathBuf)> {
    let host = case.dir("host")?;
    let fs = case.fs()?;
    let here = fs.at("work");
    fs::create_dir(&here)?;
    Ok((host, fs, here))
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
            formats::in_python("sqlite_wal.py", place)?.trim(),
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

/// What it says under "Use it", for a user who has a directory of files and nothing else.
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
