//! External commands that cannot hang a test.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::{Context, Failure, Outcome};

/// An external command with a time limit, its output captured.
///
/// The output goes through files, not pipes, so that a daemon which keeps its
/// parent's descriptors open cannot keep us waiting.
#[derive(Debug)]
pub struct Cmd {
    command: Command,
    shown: String,
    limit: Duration,
}

/// How a command ended.
#[derive(Debug)]
pub struct Finished {
    /// Its exit status.
    pub status: ExitStatus,
    /// What it wrote to its standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to its standard error.
    pub stderr: String,
    shown: String,
}

impl Finished {
    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Everything about this command that a failure message should show.
    pub fn describe(&self) -> String {
        let end = match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "unknown end".into(),
        };
        format!(
            "`{}` ended with {end}\n--- stdout\n{}--- stderr\n{}---",
            self.shown,
            tail(&self.text(), 6000),
            tail(&self.stderr, 6000)
        )
    }

    /// Fails unless the command succeeded.
    #[track_caller]
    pub fn success(self) -> Outcome<Finished> {
        if self.status.success() {
            Ok(self)
        } else {
            Err(Failure::new(self.describe()))
        }
    }

    /// Fails unless the command ended with exactly this status.
    #[track_caller]
    pub fn status_is(self, code: i32) -> Outcome<Finished> {
        if self.status.code() == Some(code) {
            Ok(self)
        } else {
            Err(Failure::new(format!(
                "expected exit status {code}: {}",
                self.describe()
            )))
        }
    }
}

fn tail(text: &str, limit: usize) -> String {
    let mut start = text.len().saturating_sub(limit);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    let mut shown = String::new();
    if start > 0 {
        shown.push_str("[...]\n");
    }
    shown.push_str(&text[start..]);
    if !shown.is_empty() && !shown.ends_with('\n') {
        shown.push('\n');
    }
    shown
}

impl Cmd {
    /// A command that may take two minutes unless [`Cmd::limit`] says otherwise.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program.as_ref());
        command
            .stdin(Stdio::null())
            .process_group(0)
            .env("LC_ALL", "C.UTF-8");
        Cmd {
            command,
            shown: program.as_ref().to_string_lossy().into_owned(),
            limit: Duration::from_secs(120),
        }
    }

    /// A shell script that stops at the first error.
    pub fn shell(script: &str) -> Self {
        Cmd::new("bash").args(["-euo", "pipefail", "-c", script])
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        let arg: OsString = arg.as_ref().into();
        self.shown.push(' ');
        self.shown.push_str(&arg.to_string_lossy());
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(self, args: impl IntoIterator<Item = S>) -> Self {
        args.into_iter().fold(self, Cmd::arg)
    }

    /// Sets the working directory.
    pub fn cwd(mut self, directory: impl AsRef<Path>) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    /// Runs as another user, with one group.
    pub fn user(mut self, uid: u32, gid: u32) -> Self {
        self.command.uid(uid).gid(gid);
        self
    }

    /// Sets the time limit.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Appends standard output and standard error to a file.
    #[track_caller]
    pub fn output_to(mut self, path: &Path) -> Outcome<Self> {
        let file = File::options().append(true).create(true).open(path)?;
        self.command.stdout(file.try_clone()?).stderr(file);
        Ok(self)
    }

    /// Starts the command and leaves it running; the caller must end it.
    #[track_caller]
    pub fn spawn(mut self) -> Outcome<Child> {
        self.command
            .spawn()
            .doing(format!("starting `{}`", self.shown))
    }

    /// Runs to the end. Passing the time limit is a failure.
    #[track_caller]
    pub fn run(mut self) -> Outcome<Finished> {
        let mut out = tempfile::tempfile()?;
        let mut err = tempfile::tempfile()?;
        self.command
            .stdout(out.try_clone()?)
            .stderr(err.try_clone()?);
        let mut child = self
            .command
            .spawn()
            .doing(format!("starting `{}`", self.shown))?;
        match wait(&mut child, self.limit)? {
            Some(status) => Ok(Finished {
                status,
                stdout: slurp(&mut out)?,
                stderr: String::from_utf8_lossy(&slurp(&mut err)?).into_owned(),
                shown: self.shown,
            }),
            None => Err(Failure::new(format!(
                "`{}` did not end within {} s\n--- stdout\n{}--- stderr\n{}---",
                self.shown,
                self.limit.as_secs(),
                tail(&String::from_utf8_lossy(&slurp(&mut out)?), 4000),
                tail(&String::from_utf8_lossy(&slurp(&mut err)?), 4000),
            ))),
        }
    }

    /// Runs to the end, fails unless it succeeded, returns its standard output.
    #[track_caller]
    pub fn ok(self) -> Outcome<String> {
        match self.run() {
            Ok(finished) => Ok(finished.success()?.text()),
            Err(failure) => Err(failure),
        }
    }
}

fn slurp(file: &mut File) -> Outcome<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Waits for a child that leads a process group; kills the group at the limit.
pub fn wait(child: &mut Child, limit: Duration) -> Outcome<Option<ExitStatus>> {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begun.elapsed() > limit {
            break;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(25));
    }
    let pid = Pid::from_raw(child.id() as i32);
    // The group is gone when only its leader was left; then the leader is enough.
    let _ = killpg(pid, Signal::SIGKILL);
    let _ = kill(pid, Signal::SIGKILL);
    // A process stuck in the kernel is left to the sweep, which ends the mount.
    for _ in 0..200 {
        if child.try_wait()?.is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    Ok(None)
}
