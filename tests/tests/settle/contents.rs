//! Files keep their contents while they settle, whatever happens meanwhile.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use shale_tests::{
    Case, Context, Outcome, Rng, ensure, ensure_eq, note, report, seed, shale, stored, wait_for,
};

use crate::corpus::Corpus;

pub(crate) fn under_load(case: &Case) -> Outcome {
    let corpus = Corpus::new(case, &["-o", "settle=off", "--memory", "64M"])?;
    File::open(corpus.mount.path())?.sync_all()?;
    for name in &corpus.names {
        File::open(corpus.at(name))?.sync_all()?;
    }
    let before: Vec<u64> = corpus
        .names
        .iter()
        .map(|name| stored(&corpus.at(name)))
        .collect::<Outcome<_>>()?;
    let mut rng = Rng::new(seed()?);
    let busy = "offset64.nc";
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|reader| {
                let (corpus, over) = (&corpus, &over);
                scope.spawn(move || -> Outcome<usize> {
                    let mut rounds = 0;
                    while !over.load(Ordering::SeqCst) || rounds == 0 {
                        let names = corpus.names.iter().filter(|name| *name != busy);
                        for name in names.skip(reader).step_by(2) {
                            corpus.check(name)?;
                        }
                        rounds += 1;
                    }
                    Ok(rounds)
                })
            })
            .collect();
        let mut result = Ok(());
        for _ in 0..4 {
            result = result.and_then(|()| {
                shale().arg("settle").arg(corpus.mount.path()).ok()?;
                for _ in 0..5 {
                    corpus.patch(busy, &mut rng)?;
                }
                corpus.check(busy)
            });
        }
        result = result.and_then(|()| corpus.settle());
        over.store(true, Ordering::SeqCst);
        let mut rounds = 0;
        for reader in readers {
            rounds += reader.join().expect("a reader panicked")?;
        }
        note(format!("{rounds} rounds of readers"));
        result
    })?;
    corpus.check_all()?;
    for (name, before) in corpus.names.iter().zip(before) {
        let (state, after) = (
            report(&corpus.at(name), "state")?,
            stored(&corpus.at(name))?,
        );
        note(format!(
            "{name}: {before} stored bytes, then {after} ({state})"
        ));
        match name.as_str() {
            "noise.bin" | "deflated.nc" => ensure_eq!(state, "incompressible", "state of {name}"),
            "small.txt" => {}
            "classic.nc" | "data64.nc" | "plain.h5" | "array.npy" => {
                ensure_eq!(state, "settled", "state of {name}");
                ensure!(after < before, "{name} did not become smaller");
            }
            _ => {}
        }
    }
    corpus.finish()
}

pub(crate) fn again(case: &Case) -> Outcome {
    let corpus = Corpus::new(case, &["-o", "settle=off"])?;
    let mut rng = Rng::new(seed()?);
    corpus.settle()?;
    for _ in 0..3 {
        for name in ["classic.nc", "plain.h5", "array.npy", "raw.bin"] {
            corpus.patch(name, &mut rng)?;
            ensure_eq!(
                report(&corpus.at(name), "state")?,
                "stored",
                "state of {name}"
            );
            corpus.check(name)?;
        }
        corpus.settle()?;
        corpus.check_all()?;
        ensure_eq!(
            report(&corpus.at("classic.nc"), "state")?,
            "settled",
            "state of classic.nc"
        );
    }
    // Cut and extended, appended to, replaced.
    for name in ["classic.nc", "raw.bin"] {
        for place in [corpus.host.join(name), corpus.at(name)] {
            let file = File::options().write(true).open(place)?;
            file.set_len(1_234_567)?;
            file.set_len(2_000_000)?;
            file.write_all_at(b"appended", 2_000_000)?;
        }
        corpus.check(name)?;
    }
    corpus.settle()?;
    corpus.check_all()?;
    corpus.finish()
}

pub(crate) fn by_themselves(case: &Case) -> Outcome {
    let corpus = Corpus::new(case, &["-o", "settle=1"])?;
    let open = File::options().write(true).open(corpus.at("classic.nc"))?;
    fs::copy(
        corpus.host.join("array.npy"),
        corpus.mount.path().join("later.npy"),
    )?;
    wait_for(&corpus.at("later.npy"), "settled")?;
    wait_for(&corpus.at("noise.bin"), "incompressible")?;
    ensure!(
        report(&corpus.at("classic.nc"), "state")? != "settled",
        "a file that is open for writing was settled"
    );
    drop(open);
    wait_for(&corpus.at("classic.nc"), "settled")?;
    fs::remove_file(corpus.mount.path().join("later.npy"))?;
    corpus.finish()
}

pub(crate) fn killed(case: &Case) -> Outcome {
    let mut corpus = Corpus::new(case, &["-o", "settle=off,settle_workers=2"])?;
    for name in &corpus.names {
        File::open(corpus.at(name))?.sync_all()?;
    }
    File::open(corpus.mount.path())?.sync_all()?;
    let mut rng = Rng::new(seed()?);
    for round in 0..10 {
        for name in ["classic.nc", "data64.nc", "plain.h5", "raw.bin"] {
            corpus.patch(name, &mut rng)?;
        }
        shale().arg("settle").arg(corpus.mount.path()).ok()?;
        std::thread::sleep(Duration::from_millis(rng.below(400)));
        corpus.mount.kill9()?;
        corpus.mount.detach();
        corpus
            .mount
            .fsck_is_clean()
            .doing(format!("checking after kill {round}"))?;
        corpus.mount.start()?;
        corpus
            .check_all()
            .doing(format!("comparing after kill {round}"))?;
    }
    corpus.settle()?;
    // What the kills left behind is collected.
    shale()
        .args(["gc", "--wait", "--live", "95"])
        .arg(corpus.mount.path())
        .ok()?;
    corpus.check_all()?;
    let garbage: u64 = report(corpus.mount.path(), "garbage")?.parse()?;
    let alive = stored(corpus.mount.path())?;
    ensure!(
        garbage * 10 < alive,
        "{garbage} bytes of garbage stay beside {alive} that are alive"
    );
    corpus.finish()
}
