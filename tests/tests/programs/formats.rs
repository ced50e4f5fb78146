//! Libraries and tools for NetCDF and HDF5.

use std::path::{Path, PathBuf};
use std::time::Duration;

use shale_tests::{Case, Cmd, Outcome, ensure, note, python, read_tree, same_trees, script};

use crate::two_places;

pub(crate) fn in_python(name: &str, directory: &Path) -> Outcome<String> {
    Cmd::new(python())
        .arg(script(name))
        .arg(directory)
        .limit(Duration::from_secs(180))
        .ok()
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
pub(crate) fn both_in_python(case: &Case, name: &str, bytes: bool) -> Outcome {
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

pub(crate) fn netcdf_tools(case: &Case) -> Outcome {
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

pub(crate) fn hdf5_tools(case: &Case) -> Outcome {
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
