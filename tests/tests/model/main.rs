//! Random operations on ShaleFS and on a model of a file system: the same sequences in process
//! and through a real mount, with remounts in between.

mod tree;

mod subject;

use std::process::ExitCode;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use shale_tests::{Case, Failure, Outcome, Suite, note, on_ext4, seed};

use subject::{InProcess, Mounted, Subject};
use tree::Tree;

/// Names the operations work on: few, so that they collide.
const NAMES: [&str; 3] = ["a", "b", "c"];
const FILE_LIMIT: u64 = 200_000;

fn main() -> ExitCode {
    Suite::new("model")
        .limit(Duration::from_secs(300))
        .test("in_process", |case| {
            if on_ext4() {
                return Ok(());
            }
            explore(150, || InProcess::new(case.work()))
        })
        .test("through_a_mount", |case: &Case| {
            let fs = std::cell::RefCell::new(case.fs_with(&["--chunk", "64K", "--memory", "16M"])?);
            let round = std::cell::Cell::new(0);
            explore(60, || {
                round.set(round.get() + 1);
                Mounted::new(&fs, round.get())
            })?;
            fs.into_inner().finish()
        })
        .run()
}

/// One operation.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Create(Vec<usize>),
    Mkdir(Vec<usize>),
    Symlink(Vec<usize>),
    Link(Vec<usize>, Vec<usize>),
    Unlink(Vec<usize>),
    Rmdir(Vec<usize>),
    Rename(Vec<usize>, Vec<usize>),
    Write {
        path: Vec<usize>,
        offset: u64,
        len: usize,
        seed: u8,
        sync: bool,
    },
    Truncate(Vec<usize>, u64),
    Chmod(Vec<usize>, u32),
    SetXattr(Vec<usize>, u8),
    RemoveXattr(Vec<usize>),
    Look(Vec<usize>),
    Remount,
}

fn path() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0..NAMES.len(), 1..4)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => path().prop_map(Step::Create),
        6 => path().prop_map(Step::Mkdir),
        1 => path().prop_map(Step::Symlink),
        2 => (path(), path()).prop_map(|(a, b)| Step::Link(a, b)),
        2 => path().prop_map(Step::Unlink),
        1 => path().prop_map(Step::Rmdir),
        4 => (path(), path()).prop_map(|(a, b)| Step::Rename(a, b)),
        8 => (path(), 0..FILE_LIMIT, 1usize..90_000, any::<u8>(), any::<bool>()).prop_map(
            |(path, offset, len, seed, sync)| Step::Write { path, offset, len, seed, sync }
        ),
        3 => (path(), 0..FILE_LIMIT).prop_map(|(p, s)| Step::Truncate(p, s)),
        1 => (path(), 0u32..0o1000).prop_map(|(p, m)| Step::Chmod(p, m | 0o700)),
        2 => (path(), any::<u8>()).prop_map(|(p, v)| Step::SetXattr(p, v)),
        1 => path().prop_map(Step::RemoveXattr),
        4 => path().prop_map(Step::Look),
        1 => Just(Step::Remount),
    ]
}

/// Runs `cases` sequences, each on a fresh subject, and shrinks what fails.
fn explore<S: Subject>(cases: u32, fresh: impl Fn() -> Outcome<S>) -> Outcome {
    let seed = seed()?;
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases,
        max_shrink_iters: 200,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let steps = std::cell::Cell::new(0usize);
    let result = runner.run(&prop::collection::vec(step(), 1..60), |sequence| {
        steps.set(steps.get() + sequence.len());
        run(&sequence, &fresh).map_err(|failure| TestCaseError::fail(failure.to_string()))
    });
    note(format!(
        "{} operations in {cases} sequences, seed {seed}",
        steps.get()
    ));
    match result {
        Ok(()) => Ok(()),
        Err(TestError::Fail(reason, sequence)) => Err(Failure::new(format!(
            "seed {seed}: {reason}\nafter {sequence:#?}"
        ))),
        Err(error) => Err(Failure::new(format!("seed {seed}: {error}"))),
    }
}

fn run<S: Subject>(sequence: &[Step], fresh: impl Fn() -> Outcome<S>) -> Outcome {
    let mut subject = fresh()?;
    let mut model = Tree::new();
    for step in sequence {
        let expected = model.apply(step);
        let found = subject.apply(step)?;
        if expected != found {
            return Err(Failure::new(format!(
                "{step:?}: expected {expected:?}, found {found:?}"
            )));
        }
    }
    for _ in 0..2 {
        let (expected, found) = (model.listing(), subject.listing()?);
        for (path, entry) in &expected {
            match found.get(path) {
                Some(other) if other == entry => {}
                other => {
                    return Err(Failure::new(format!(
                        "{path}: expected {entry:?}, found {other:?}"
                    )));
                }
            }
        }
        if let Some(extra) = found.keys().find(|path| !expected.contains_key(*path)) {
            return Err(Failure::new(format!("{extra} should not exist")));
        }
        let _ = subject.apply(&Step::Remount)?;
    }
    Ok(())
}

/// Contents that identify the step that wrote them.
pub(crate) fn contents(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|i| seed.wrapping_mul(31).wrapping_add((i / 7) as u8))
        .collect()
}

/// Names of a path.
pub(crate) fn names(path: &[usize]) -> Vec<&'static str> {
    path.iter().map(|&i| NAMES[i]).collect()
}
