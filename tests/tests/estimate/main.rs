//! `shale estimate` against the truth: a corpus is predicted, then copied into a mount.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;
use shale_tests::{
    Case, Cmd, Context, Need, Outcome, Rng, Suite, binary, ensure, ensure_eq, note, python, script,
    shale,
};

fn main() -> ExitCode {
    Suite::new("estimate")
        .need(Need::Shale)
        .need(Need::File(python()))
        .limit(Duration::from_secs(300))
        .test("a_whole_corpus_is_predicted_within_a_tenth", whole)
        .test("a_sample_predicts_within_a_tenth", sampled)
        .test(
            "many_small_files_are_predicted_with_what_they_need_besides",
            small,
        )
        .test("holes_are_neither_sampled_nor_stored", holes)
        .test("unreadable_files_are_skipped_and_reported", left_out)
        .test(
            "files_of_others_are_neither_raw_nor_stored",
            files_of_others,
        )
        .test("data_that_is_deflated_already_is_reported", deflated)
        .test("throughputs_are_drawn", drawn)
        .run()
}

fn corpus(case: &Case) -> Outcome<PathBuf> {
    let host = case.dir("host")?;
    Cmd::new(python())
        .arg(script("settle_corpus.py"))
        .arg(&host)
        .ok()?;
    let words = "the quick brown fox jumps over the lazy dog, and the dog does not care\n";
    fs::write(host.join("words.txt"), words.repeat(40_000))?;
    fs::create_dir(host.join("small"))?;
    write_small(&host.join("small"), 500)?;
    Ok(host)
}

/// Files of a few hundred bytes to some KiB, half of them text, half noise.
fn write_small(dir: &Path, count: u64) -> Outcome {
    let mut rng = Rng::new(11);
    for number in 0..count {
        let len = 100 + rng.below(6000) as usize;
        let (name, bytes) = if number % 2 == 0 {
            let line = format!("station {number} temperature {}\n", rng.below(40));
            (
                format!("s{number}.txt"),
                line.repeat(len / line.len() + 1).into_bytes(),
            )
        } else {
            (format!("s{number}.bin"), rng.bytes(len))
        };
        fs::write(dir.join(name), bytes)?;
    }
    Ok(())
}

fn estimate(dir: &Path, arguments: &[&str]) -> Outcome<Value> {
    let text = shale()
        .args(["estimate", "--json"])
        .args(arguments)
        .arg(dir)
        .ok()?;
    Ok(serde_json::from_str(&text)?)
}

fn deflated(case: &Case) -> Outcome {
    const DEFLATED: [&str; 3] = ["ta", "hus", "ps"];
    let host = case.dir("host")?;
    let make = Cmd::new(python()).arg(script("deflated_files.py"));
    make.arg(&host).ok()?;
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    for form in ["deflated", "plain"] {
        fs::copy(
            host.join(form).join("fields.nc"),
            mount.path().join(format!("{form}.nc")),
        )?;
    }
    shale().args(["settle", "--wait"]).arg(mount.path()).ok()?;
    let look = |form: &str, arguments: &[&str]| {
        let look = shale().args(["stat", "--vars"]).args(arguments);
        look.arg(mount.path().join(format!("{form}.nc"))).ok()
    };
    let looked = |form: &str| -> Outcome<Value> {
        let report: Value = serde_json::from_str(&look(form, &["--json"])?)?;
        Ok(report["entries"][0].clone())
    };
    let sum = |file: &Value, what: &str| -> f64 {
        let all = file["variables"].as_array().into_iter().flatten();
        let some = all.filter(|one| DEFLATED.iter().any(|&name| one["name"] == name));
        some.filter_map(|one| one[what].as_f64()).sum()
    };
    let near = |what: &str, said: &Value, found: f64, percent: f64| -> Outcome {
        let said = said.as_f64().doing(format!("no {what}"))?;
        let off = 100.0 * (said / found - 1.0);
        note(format!(
            "{what}: said {said:.0}, found {found:.0}, {off:+.1} %"
        ));
        ensure!(off.abs() < percent, "{what}: {off:.1} % off");
        Ok(())
    };
    let (file, plain) = (looked("deflated")?, looked("plain")?);
    let estimated = estimate(&host.join("deflated"), &[])?;
    for (who, said) in [
        ("stat", &file["deflated"]),
        ("estimate", &estimated["deflated"]),
    ] {
        near(
            &format!("deflated, {who}"),
            &said["raw"],
            sum(&file, "raw"),
            0.1,
        )?;
        near(
            &format!("plain, {who}"),
            &said["plain"],
            sum(&plain, "raw"),
            10.0,
        )?;
        let stored = sum(&plain, "stored");
        near(
            &format!("stored plain, {who}"),
            &said["stored_plain"],
            stored,
            15.0,
        )?;
    }
    ensure!(
        estimate(&host.join("plain"), &[])?["deflated"].is_null() && plain["deflated"].is_null(),
        "what is plain is called deflated"
    );
    let text = look("deflated", &[])?;
    let words = "are already deflated by NetCDF-4 or HDF5 and gain nothing; stored plain \
                 ('nccopy -d0') they would take about ";
    ensure!(text.contains(words), "{text}");
    let text = shale().arg("estimate").arg(host.join("deflated")).ok()?;
    ensure!(text.contains(words), "{text}");
    let text = look("plain", &[])?;
    ensure!(!text.contains("deflated"), "{text}");
    mount.unmount()
}

/// What to compare. Small files do not settle by themselves, but they do when asked to.
#[derive(PartialEq)]
enum Forms {
    Written,
    Both,
}

/// Copies and compares, as written and settled.
fn compare(case: &Case, host: &Path, estimate: &Value, forms: Forms) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    Cmd::new("cp")
        .arg("-r")
        .arg(host)
        .arg(mount.path().join("copy"))
        .ok()?;
    let copy = mount.path().join("copy");
    sync(&copy)?;
    let stored = || -> Outcome<f64> {
        let mut value = [0; 64];
        let len = rustix::fs::getxattr(&copy, "user.shale.stat.stored", &mut value[..])?;
        Ok(std::str::from_utf8(&value[..len])?.parse()?)
    };
    let check = |form: &str, found: f64| -> Outcome {
        let expected = estimate[form]["stored"].as_f64().doing("no prediction")?;
        let off = 100.0 * (expected / found - 1.0);
        note(format!(
            "{form}: predicted {expected:.0}, found {found:.0}, {off:+.1} %"
        ));
        ensure!(off.abs() < 10.0, "{form}: {off:.1} % off: {estimate:#}");
        Ok(())
    };
    check("written", stored()?)?;
    if forms == Forms::Both {
        shale()
            .args(["settle", "--wait"])
            .arg(&copy)
            .limit(Duration::from_secs(200))
            .ok()?;
        check("settled", stored()?)?;
    }
    mount.unmount()
}

fn sync(dir: &Path) -> Outcome {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            sync(&path)?;
        } else {
            File::open(&path)?.sync_all()?;
        }
    }
    Ok(())
}

fn whole(case: &Case) -> Outcome {
    let host = corpus(case)?;
    let estimate = estimate(&host, &[])?;
    let bytes = |name: &str| estimate[name].as_u64().unwrap_or(0);
    ensure_eq!(
        bytes("sampled"),
        bytes("raw") - bytes("holes"),
        "it is small enough for all of it"
    );
    compare(case, &host, &estimate, Forms::Both)
}

fn sampled(case: &Case) -> Outcome {
    let host = corpus(case)?;
    let first = estimate(&host, &["--sample", "16M", "--seed", "3"])?;
    let (sampled, raw) = (first["sampled"].as_u64(), first["raw"].as_u64());
    ensure!(sampled < raw, "nothing was left to predict: {first:#}");
    let again = estimate(&host, &["--sample", "16M", "--seed", "3"])?;
    ensure_eq!(
        first["written"]["stored"],
        again["written"]["stored"],
        "the same seed"
    );
    compare(case, &host, &first, Forms::Both)
}

fn small(case: &Case) -> Outcome {
    let host = case.dir("host")?;
    write_small(&host, 3000)?;
    let estimate = estimate(&host, &["--sample", "1M"])?;
    compare(case, &host, &estimate, Forms::Written)
}

/// A large file with little in it: a sample would see mostly zeros.
fn holes(case: &Case) -> Outcome {
    let host = case.dir("host")?;
    let file = File::create(host.join("sparse"))?;
    file.set_len(8 << 30)?;
    let mut rng = Rng::new(8);
    for number in 0..24 {
        file.write_all_at(&rng.bytes(300_000), number * (317 << 20))?;
    }
    drop(file);
    let estimate = estimate(&host, &["--sample", "4M"])?;
    let holes = estimate["holes"].as_u64().unwrap_or(0);
    ensure!(holes > 7 << 30, "{estimate:#}");
    compare(case, &host, &estimate, Forms::Both)
}

fn left_out(case: &Case) -> Outcome {
    let host = case.dir("host")?;
    fs::write(host.join("a"), vec![7; 100_000])?;
    std::os::unix::fs::symlink("/etc", host.join("link"))?;
    std::os::unix::fs::symlink(&host, host.join("loop"))?;
    let found = estimate(&host, &["-x"])?;
    ensure_eq!(found["files"], 1, "files");
    ensure_eq!(found["skipped"]["links"], 2, "links");
    let text = shale().arg("estimate").arg(&host).ok()?;
    ensure!(text.contains("skipped: 2 symbolic links"), "{text}");
    let empty = case.dir("empty")?;
    let refused = shale().arg("estimate").arg(&empty).run()?.status_is(66)?;
    ensure_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    shale()
        .arg("estimate")
        .arg(host.join("none"))
        .run()?
        .status_is(66)?;
    shale()
        .args(["estimate", "--bandwidth", "fast"])
        .arg(&host)
        .run()?
        .status_is(64)?;
    Ok(())
}

/// Noise, of which only a part may be read.
fn files_of_others(case: &Case) -> Outcome {
    let host = case.dir("host")?;
    fs::set_permissions(case.work(), fs::Permissions::from_mode(0o755))?;
    fs::set_permissions(&host, fs::Permissions::from_mode(0o755))?;
    let mut rng = Rng::new(4);
    for (name, mode) in [("a", 0o644), ("b", 0o000), ("c", 0o644), ("d", 0o000)] {
        let path = host.join(name);
        fs::write(&path, rng.bytes(2_000_000))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    }
    // The build directory may be closed to others.
    let program = case.work().join("shale");
    fs::copy(binary(), &program)?;
    let as_nobody = |arguments: &[&str]| {
        let command = Cmd::new(&program).arg("estimate").args(arguments);
        command.arg(&host).user(65_534, 65_534)
    };
    for sample in ["1M", "256M"] {
        let text = as_nobody(&["--json", "--sample", sample]).ok()?;
        let found: Value = serde_json::from_str(&text)?;
        ensure_eq!(found["files"], 2, "{found:#}");
        ensure_eq!(found["raw"], 4_000_000, "{found:#}");
        ensure_eq!(found["skipped"]["unreadable"], 2, "{found:#}");
        for form in ["written", "settled"] {
            let ratio = found[form]["ratio"].as_f64().doing("no ratio")?;
            ensure!((0.9..1.01).contains(&ratio), "{form}: {found:#}");
        }
    }
    let text = as_nobody(&[]).ok()?;
    ensure!(text.contains("skipped: 2 that cannot be read"), "{text}");
    for name in ["a", "c"] {
        fs::set_permissions(host.join(name), fs::Permissions::from_mode(0o000))?;
    }
    as_nobody(&[]).run()?.status_is(77)?;
    Ok(())
}

/// Decodes the picture by the standard, and looks for all colours in it.
const DECODE_PNG: &str = r#"
import struct, sys, zlib
data = open(sys.argv[1], "rb").read()
assert data[:8] == b"\x89PNG\r\n\x1a\n"
chunks, at = [], 8
while at < len(data):
    size, name = struct.unpack(">I4s", data[at:at + 8])
    body = data[at + 8:at + 8 + size]
    assert struct.unpack(">I", data[at + 8 + size:at + 12 + size])[0] == zlib.crc32(name + body)
    chunks.append((name, body))
    at += 12 + size
assert [name for name, _ in chunks] == [b"IHDR", b"PLTE", b"IDAT", b"IEND"], chunks
width, height, *kind = struct.unpack(">IIBBBBB", chunks[0][1])
assert (width, height, *kind) == (1280, 720, 4, 3, 0, 0, 0), chunks[0]
lines = zlib.decompress(chunks[2][1])
stride = 1 + width // 2
assert len(lines) == stride * height
above, seen = bytes(stride - 1), set()
for y in range(height):
    line = lines[y * stride:(y + 1) * stride]
    assert line[0] == 2
    above = bytes((a + b) & 255 for a, b in zip(line[1:], above))
    seen.update(dot for byte in above for dot in (byte >> 4, byte & 15))
assert seen == set(range(5)) and len(chunks[1][1]) == 15, seen
"#;

fn drawn(case: &Case) -> Outcome {
    let host = case.dir("host")?;
    fs::write(host.join("a"), Rng::new(2).bytes(3_000_000))?;
    let plot = case.work().join("plot.svg");
    let plot_text = plot.to_string_lossy().into_owned();
    let found = estimate(&host, &["--bandwidth", "100M", "--plot", &plot_text])?;
    let base = found["written"]["write"]["base"]
        .as_f64()
        .doing("no model")?;
    ensure!((base / 1e8 - 1.0).abs() < 0.01, "{found:#}");
    let check = "import sys, xml.etree.ElementTree as e; e.parse(sys.argv[1])";
    Cmd::new(python()).args(["-c", check]).arg(&plot).ok()?;
    let picture = case.work().join("plot.png");
    estimate(&host, &["--plot", &picture.to_string_lossy()])?;
    Cmd::new(python())
        .args(["-c", DECODE_PNG])
        .arg(&picture)
        .ok()?;
    let other = case.work().join("plot.pdf");
    let line = shale().args(["estimate", "--plot"]).arg(&other).arg(&host);
    let refused = line.run()?.status_is(64)?;
    ensure!(
        refused.stderr.contains(".svg or .png"),
        "{}",
        refused.stderr
    );
    ensure!(!other.exists(), "a picture of another format");
    let nowhere = case
        .work()
        .join("none/plot.svg")
        .to_string_lossy()
        .into_owned();
    shale()
        .args(["estimate", "--plot", &nowhere])
        .arg(&host)
        .run()?
        .status_is(73)?;
    Ok(())
}
