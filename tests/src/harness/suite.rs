//! The runner: a process, a time limit and a clean-up for every test.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::settings::asked;
use super::sweep::MARK;
use crate::machine::loop_device::can_slow_down;
use crate::{Case, MemoryGroup, Outcome, binary, cgroup2, etcd_binary, on_ext4, sweep, wait};

const CHILD: &str = "SHALE_TEST_CHILD";

/// A requirement of a suite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// Root and `/dev/fuse`. Without root the suite is skipped.
    Root,
    /// ShaleFS itself: skipped when `SHALE_TEST_ON` names another file system.
    Shale,
    /// A file that the set-up should have created; its absence is a failure.
    File(PathBuf),
    /// A command the set-up should have installed; its absence is a failure.
    Command(&'static str),
    /// A cgroup hierarchy of either version that limits memory. Without one the suite is skipped.
    MemoryCgroup,
    /// Devices can be slowed down. Where they cannot, the suite is skipped.
    Throttle,
    /// A cgroup2 hierarchy in which groups can be created. Without one, as in most containers, the
    /// suite is skipped.
    Cgroup2,
    /// The etcd that the set-up fetches. Where it could not, the suite is skipped.
    Etcd,
}

struct Test {
    name: &'static str,
    body: fn(&Case) -> Outcome,
    limit: Duration,
}

enum Verdict {
    Passed,
    Failed(String),
    Skipped(String),
}

/// A list of tests under one name.
pub struct Suite {
    name: &'static str,
    needs: Vec<Need>,
    tests: Vec<Test>,
    limit: Duration,
    mounts: bool,
}

impl Suite {
    /// A suite that needs root, and ShaleFS unless it may run on another file system.
    pub fn new(name: &'static str) -> Self {
        Suite {
            name,
            needs: vec![Need::Root],
            tests: Vec::new(),
            limit: Duration::from_secs(180),
            mounts: true,
        }
    }

    /// A suite that mounts nothing, and so needs neither root nor the command.
    pub fn in_process(name: &'static str) -> Self {
        Suite {
            needs: Vec::new(),
            mounts: false,
            ..Suite::new(name)
        }
    }

    /// Adds a requirement of the suite.
    pub fn need(mut self, need: Need) -> Self {
        self.needs.push(need);
        self
    }

    /// Sets the time limit of the tests added from here on.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Adds a test.
    pub fn test(mut self, name: &'static str, body: fn(&Case) -> Outcome) -> Self {
        self.tests.push(Test {
            name,
            body,
            limit: self.limit + asked().unwrap_or_default(),
        });
        self
    }

    /// Executes the command line, in the manner of the standard test harness.
    pub fn run(self) -> ExitCode {
        if let Ok(name) = std::env::var(CHILD) {
            return self.child(&name);
        }
        let mut filters = Vec::new();
        let (mut list, mut exact, mut ignored) = (false, false, false);
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--list" => list = true,
                "--exact" => exact = true,
                "--ignored" => ignored = true,
                "--format" | "--test-threads" | "--color" | "--logfile" => {
                    arguments.next();
                }
                flag if flag.starts_with('-') => {}
                filter => filters.push(filter.to_string()),
            }
        }
        let chosen: Vec<&Test> = self
            .tests
            .iter()
            .filter(|_| !ignored)
            .filter(|test| {
                filters.is_empty()
                    || filters.iter().any(|f| {
                        if exact {
                            test.name == f
                        } else {
                            test.name.contains(f)
                        }
                    })
            })
            .collect();
        if list {
            for test in chosen {
                println!("{}: test", test.name);
            }
            return ExitCode::SUCCESS;
        }
        self.parent(&chosen)
    }

    fn child(&self, name: &str) -> ExitCode {
        let Some(test) = self.tests.iter().find(|test| test.name == name) else {
            println!("no test is called {name}");
            return ExitCode::FAILURE;
        };
        let work = std::env::var_os(MARK)
            .map(PathBuf::from)
            .unwrap_or_default();
        sweep_when_orphaned(work.clone());
        match (test.body)(&Case::new(work)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                println!("{failure}");
                ExitCode::FAILURE
            }
        }
    }

    fn parent(&self, chosen: &[&Test]) -> ExitCode {
        println!("\nrunning {} tests of {}", chosen.len(), self.name);
        let obstacle = self.obstacle();
        let jobs = std::env::var("SHALE_TEST_JOBS")
            .ok()
            .and_then(|n| n.parse().ok())
            .unwrap_or(1);
        let queue = Mutex::new(chosen.iter());
        let verdicts = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    while let Some(test) = locked(&queue, Iterator::next) {
                        let begun = Instant::now();
                        let (verdict, output) = match &obstacle {
                            Some(Verdict::Skipped(why)) => {
                                (Verdict::Skipped(why.clone()), String::new())
                            }
                            Some(Verdict::Failed(why)) => {
                                (Verdict::Failed(why.clone()), String::new())
                            }
                            _ => self.one(test),
                        };
                        locked(&verdicts, |verdicts| {
                            report(test.name, &verdict, &output, begun.elapsed());
                            verdicts.push((test.name, verdict, output));
                        });
                    }
                });
            }
        });
        let verdicts = verdicts
            .into_inner()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let count = |wanted: fn(&Verdict) -> bool| verdicts.iter().filter(|v| wanted(&v.1)).count();
        let passed = count(|v| matches!(v, Verdict::Passed));
        let failed = count(|v| matches!(v, Verdict::Failed(_)));
        let skipped = count(|v| matches!(v, Verdict::Skipped(_)));
        if let Err(error) = self.record(&verdicts, [passed, failed, skipped]) {
            println!("cannot write the results: {error}");
            return ExitCode::FAILURE;
        }
        let word = if failed == 0 { "ok" } else { "FAILED" };
        println!("\ntest result: {word}. {passed} passed; {failed} failed; {skipped} skipped\n");
        if failed == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    /// Why no test of this suite can run here.
    fn obstacle(&self) -> Option<Verdict> {
        let mut needs = self.needs.clone();
        if self.mounts && !on_ext4() {
            needs.push(Need::File("/dev/fuse".into()));
            needs.push(Need::File(binary()));
        }
        for need in needs {
            match need {
                Need::Root if !nix::unistd::geteuid().is_root() => {
                    return Some(Verdict::Skipped(
                        "needs root to mount and to make loop devices".into(),
                    ));
                }
                Need::Shale if on_ext4() => {
                    return Some(Verdict::Skipped("tests what only ShaleFS does".into()));
                }
                Need::MemoryCgroup if !MemoryGroup::is_possible() => {
                    return Some(Verdict::Skipped(
                        "needs a cgroup hierarchy that limits memory and can be written".into(),
                    ));
                }
                Need::Throttle if !can_slow_down() => {
                    return Some(Verdict::Skipped(
                        "needs the blkio controller of cgroup version 1".into(),
                    ));
                }
                Need::Cgroup2 if cgroup2().is_none() => {
                    return Some(Verdict::Skipped(
                        "needs a cgroup2 hierarchy that can be written".into(),
                    ));
                }
                Need::Etcd if !etcd_binary().exists() => {
                    return Some(Verdict::Skipped(
                        "needs etcd, which `make setup` fetches where it can".into(),
                    ));
                }
                Need::File(path) if !path.exists() => {
                    return Some(Verdict::Failed(format!(
                        "{} is missing; run `make setup build failpoints`",
                        path.display()
                    )));
                }
                Need::Command(name) if !in_path(name) => {
                    return Some(Verdict::Failed(format!(
                        "the command {name} is missing; run `make setup`"
                    )));
                }
                _ => {}
            }
        }
        None
    }

    fn one(&self, test: &Test) -> (Verdict, String) {
        let (work, output) = match prepare() {
            Ok(prepared) => prepared,
            Err(failure) => return (Verdict::Failed(failure.to_string()), String::new()),
        };
        let mut verdict = match self.spawn_and_wait(test, &work, &output) {
            Ok(verdict) => verdict,
            Err(failure) => Verdict::Failed(failure.to_string()),
        };
        let left = sweep(&work);
        if !left.is_empty() && matches!(verdict, Verdict::Passed) {
            verdict = Verdict::Failed(format!("left behind: {}", left.join(", ")));
        }
        let text = fs::read(&output).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let keep =
            std::env::var_os("SHALE_TEST_KEEP").is_some() && matches!(verdict, Verdict::Failed(_));
        if keep {
            println!("kept: {}", work.display());
        } else {
            let _ = fs::remove_file(&output);
            if let Err(error) = fs::remove_dir_all(&work) {
                println!("cannot remove {}: {error}", work.display());
            }
        }
        (verdict, text)
    }

    fn spawn_and_wait(&self, test: &Test, work: &Path, output: &Path) -> Outcome<Verdict> {
        let file = File::create(output)?;
        let mut child = Command::new(std::env::current_exe()?)
            .env(CHILD, test.name)
            .env(MARK, work)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0)
            .spawn()?;
        Ok(match wait(&mut child, test.limit)? {
            Some(status) if status.success() => Verdict::Passed,
            Some(status) => Verdict::Failed(status.to_string()),
            None => Verdict::Failed(format!("did not end within {} s", test.limit.as_secs())),
        })
    }

    fn record(
        &self,
        verdicts: &[(&str, Verdict, String)],
        counts: [usize; 3],
    ) -> std::io::Result<()> {
        let Some(directory) = std::env::var_os("SHALE_TEST_RESULTS") else {
            return Ok(());
        };
        let mut file = File::create(Path::new(&directory).join(format!("{}.tsv", self.name)))?;
        let [passed, failed, skipped] = counts;
        writeln!(
            file,
            "suite\t{}\t{}\t{passed}\t{skipped}",
            self.name,
            passed + failed
        )?;
        for (name, verdict, output) in verdicts {
            for line in output
                .lines()
                .filter_map(|line| line.strip_prefix("tally: "))
            {
                writeln!(file, "tally\t{line}")?;
            }
            match verdict {
                Verdict::Failed(_) => writeln!(file, "failed\t{}::{name}", self.name)?,
                Verdict::Skipped(why) => writeln!(file, "skipped\t{}::{name}\t{why}", self.name)?,
                Verdict::Passed => {}
            }
        }
        Ok(())
    }
}

/// An interrupted run ends its tests and leaves nothing behind either.
fn sweep_when_orphaned(work: PathBuf) {
    let parent = nix::unistd::getppid();
    std::thread::spawn(move || {
        while nix::unistd::getppid() == parent {
            std::thread::sleep(Duration::from_millis(200));
        }
        sweep(&work);
        let _ = fs::remove_dir_all(&work);
        std::process::exit(1);
    });
}

fn locked<T, R>(mutex: &Mutex<T>, f: impl FnOnce(&mut T) -> R) -> R {
    f(&mut mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner()))
}

fn prepare() -> Outcome<(PathBuf, PathBuf)> {
    let parent = std::env::var_os("SHALE_TEST_TMP").unwrap_or_else(|| "/var/tmp".into());
    // Short, because the path of a socket may have no more than 107 bytes.
    let work = tempfile::Builder::new()
        .prefix("shale-")
        .tempdir_in(parent)?
        .keep()
        .canonicalize()?;
    // Other users take part in some tests.
    fs::set_permissions(&work, fs::Permissions::from_mode(0o755))?;
    let output = work.join("output");
    Ok((work, output))
}

fn report(name: &str, verdict: &Verdict, output: &str, took: Duration) {
    let took = took.as_secs_f64();
    match verdict {
        Verdict::Passed => {
            println!("test {name} ... ok ({took:.1} s)");
            for line in output
                .lines()
                .filter_map(|line| line.strip_prefix("note: "))
            {
                println!("     {line}");
            }
        }
        Verdict::Failed(why) => {
            println!("test {name} ... FAILED ({took:.1} s): {why}");
            for line in output.lines() {
                println!("  |  {line}");
            }
        }
        Verdict::Skipped(why) => println!("test {name} ... skipped: {why}"),
    }
}

fn in_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
}
