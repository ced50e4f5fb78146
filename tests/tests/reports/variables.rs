//! `shale stat --vars`: the space of each variable of a file.

use std::fs::{self, File};

use serde_json::Value;
use shale_tests::{Case, Cmd, Context, Outcome, ensure, ensure_eq, python, shale};

use crate::{corpus, json, number, report, sum};

pub(crate) fn variables(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let names = corpus(case, &mount)?;
    for settled in [false, true] {
        if settled {
            shale()
                .args(["settle", "--wait"])
                .arg(mount.path())
                .run()?
                .success()?;
        }
        for name in &names {
            let path = mount.path().join(name);
            let files = json(shale().args(["stat", "--vars", "--json"]).arg(&path))?;
            let file = &files["entries"][0];
            let raw = sum(&file["variables"], "raw")? + number(&file["rest"]["raw"])?;
            let stored = sum(&file["variables"], "stored")? + number(&file["rest"]["stored"])?;
            ensure_eq!(raw, fs::metadata(&path)?.len(), "raw bytes of {name}");
            ensure_eq!(
                stored,
                report(&path, "stored")?.parse::<u64>()?,
                "stored bytes of {name}"
            );
        }
        let path = mount.path().join("classic.nc");
        let files = json(shale().args(["stat", "--vars", "--json"]).arg(&path))?;
        let file = &files["entries"][0];
        ensure_eq!(file["format"], "NetCDF classic (CDF-1)");
        let find = |name: &str| {
            let all = file["variables"].as_array().into_iter().flatten();
            all.clone()
                .find(|variable| variable["name"] == name)
                .doing(format!("no variable {name}"))
        };
        let (wind, count) = (find("wind")?, find("count")?);
        ensure_eq!(number(&wind["raw"])?, 41 * 90 * 180 * 4);
        ensure_eq!(wind["type"], "float32 big");
        ensure_eq!(wind["shape"], serde_json::json!([41, 90, 180]));
        ensure!(
            !wind["transforms"]
                .as_array()
                .doing("no transforms")?
                .is_empty(),
            "it is not known how the frames of wind are made"
        );
        if settled {
            // Interleaved with wind in the file, stored in tiles of its own: integers of a
            // smooth field take much less than its floats.
            let per_byte = |variable: &Value| -> Outcome<f64> {
                Ok(number(&variable["stored"])? as f64 / number(&variable["raw"])? as f64)
            };
            ensure!(
                per_byte(count)? < per_byte(wind)? * 0.8,
                "the tiles of wind and count are not told apart: {file:#}"
            );
        }
    }
    mount.unmount()
}

pub(crate) fn pages(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    let path = mount.path().join("many.nc");
    let make = "import sys, netCDF4\n\
        with netCDF4.Dataset(sys.argv[1], 'w', format='NETCDF3_CLASSIC') as data:\n\
        \x20   data.createDimension('x', 10)\n\
        \x20   for i in range(4000):\n\
        \x20       data.createVariable('a_rather_long_name_of_variable_%d' % i, 'f4', ('x',))\n";
    let host = case.work().join("many.nc");
    Cmd::new(python()).arg("-c").arg(make).arg(&host).ok()?;
    fs::copy(&host, &path)?;
    ensure!(
        report(&path, "vars")?.contains("\tnext=") && !report(&path, "vars")?.contains("next=-"),
        "everything is on one page"
    );
    let files = json(shale().args(["stat", "--vars", "--json"]).arg(&path))?;
    let all = files["entries"][0]["variables"]
        .as_array()
        .doing("no variables")?;
    ensure_eq!(all.len(), 4000);
    ensure_eq!(all[3999]["name"], "a_rather_long_name_of_variable_3999");
    for wrong in ["vars.4001", "vars.x", "vars.-1", "varsx"] {
        ensure!(report(&path, wrong).is_err(), "{wrong} has a value");
    }
    mount.unmount()
}

pub(crate) fn no_variables(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    let path = mount.path().join("plain.txt");
    fs::write(&path, "a few words\n")?;
    File::create(mount.path().join("empty"))?;
    let text = shale().args(["stat", "--vars"]).arg(&path).ok()?;
    ensure!(
        text.contains("not understood") && text.contains("(other)"),
        "{text}"
    );
    let empty = mount.path().join("empty");
    shale().args(["stat", "--vars"]).arg(&empty).ok()?;
    let failed = shale()
        .args(["stat", "--vars"])
        .arg(mount.path())
        .run()?
        .status_is(64)?;
    ensure_eq!(failed.stderr.lines().count(), 1, "{}", failed.stderr);
    let failed = shale()
        .args(["stat", "--vars", "/etc/passwd"])
        .run()?
        .status_is(66)?;
    ensure_eq!(failed.stderr.lines().count(), 1, "{}", failed.stderr);
    mount.unmount()
}
