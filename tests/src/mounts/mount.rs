//! A ShaleFS mount that cleans up after itself.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::sweep::mounts_below;
use crate::{Cmd, Context, Failure, Finished, Outcome, ensure, report, root};

/// The `shale` command under test: `SHALE_BIN`, or the release build.
pub fn shale() -> Cmd {
    Cmd::new(binary())
}

/// Where that command is.
pub fn binary() -> PathBuf {
    match std::env::var_os("SHALE_BIN") {
        Some(path) => path.into(),
        None => root().join("target/release/shale"),
    }
}

/// The `shale` command that aborts where `SHALE_FAILPOINT` says: `SHALE_FAILPOINTS_BIN`, or the one
/// built by `make failpoints`.
pub fn failpoints_binary() -> PathBuf {
    match std::env::var_os("SHALE_FAILPOINTS_BIN") {
        Some(path) => path.into(),
        None => root().join("target/failpoints/shale"),
    }
}

/// A daemon in the foreground, whose end can be observed.
#[derive(Debug)]
pub struct Served {
    child: Child,
}

impl Served {
    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Outcome {
        Ok(kill(Pid::from_raw(self.pid()), signal)?)
    }

    /// True until it has ended.
    pub fn is_running(&mut self) -> Outcome<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// How it ended; none within the time.
    pub fn end(&mut self, limit: Duration) -> Outcome<Option<ExitStatus>> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() > deadline {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A store and where it is mounted. Dropping it unmounts lazily and kills the daemon.
#[derive(Debug)]
pub struct Mount {
    store: PathBuf,
    mountpoint: PathBuf,
    log: PathBuf,
    options: Vec<OsString>,
    daemon: Option<i32>,
}

impl Mount {
    /// Mounts the store `store` (created when missing) on `mountpoint` (created when missing).
    pub fn new(store: PathBuf, mountpoint: PathBuf, options: &[&str]) -> Outcome<Mount> {
        fs::create_dir_all(&mountpoint)?;
        let mut log = mountpoint.clone().into_os_string();
        log.push(".log");
        let options = options.iter().map(OsString::from).collect();
        let mut mount = Mount {
            store,
            mountpoint,
            log: log.into(),
            options,
            daemon: None,
        };
        mount.start()?;
        Ok(mount)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mountpoint
    }

    /// The store's directory.
    pub fn store(&self) -> &Path {
        &self.store
    }

    /// The daemon's process id, while it is mounted.
    pub fn pid(&self) -> Outcome<i32> {
        self.daemon
            .doing("asking for the daemon of a store that is not mounted")
    }

    fn command(&self) -> Cmd {
        shale()
            .arg("mount")
            .arg("--log")
            .arg(&self.log)
            .args(&self.options)
    }

    /// Mounts again after [`Mount::unmount`], or after [`Mount::kill9`] and [`Mount::detach`].
    pub fn start(&mut self) -> Outcome {
        let finished = self
            .command()
            .arg(&self.store)
            .arg(&self.mountpoint)
            .run()?;
        if !finished.status.success() {
            return Err(self.failure(&finished));
        }
        ensure!(
            self.is_mounted(),
            "`shale mount` returned 0 but nothing is mounted on {}",
            self.mountpoint.display()
        );
        self.daemon = Some(self.server()?);
        Ok(())
    }

    /// The process that serves the mount: the holder of the lock, which readers share without a
    /// note.
    fn server(&self) -> Outcome<i32> {
        if !self.options.iter().any(|option| option == "--ro") {
            return self.holder();
        }
        let live: serde_json::Value = serde_json::from_str(&report(&self.mountpoint, "live")?)?;
        let pid = live["pid"].as_i64().doing("the mount names no process")?;
        Ok(pid as i32)
    }

    /// Starts a mount in the foreground and returns at once with the process.
    pub fn start_foreground(&mut self) -> Outcome<Child> {
        self.command()
            .arg("--foreground")
            .arg(&self.store)
            .arg(&self.mountpoint)
            .spawn()
    }

    /// Serves in the foreground with another `command` (`shale`, or one that becomes it), until it
    /// is mounted or has ended.
    pub fn serve(&self, command: Cmd) -> Outcome<Served> {
        let child = command
            .args(["mount", "--foreground"])
            .args(&self.options)
            .arg(&self.store)
            .arg(&self.mountpoint)
            .output_to(&self.log)?
            .spawn()?;
        let mut served = Served { child };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.is_mounted() && served.is_running()? {
            ensure!(Instant::now() < deadline, "not mounted after 60 s");
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(served)
    }

    /// The process id in the store's lock file.
    pub fn holder(&self) -> Outcome<i32> {
        let path = self.store.join("lock");
        let lock = fs::read_to_string(&path).doing(format!("reading {}", path.display()))?;
        let first = lock.split_whitespace().next().unwrap_or_default();
        first
            .parse()
            .doing(format!("the lock file holds {lock:?}, not a process id"))
    }

    /// True while any file system is mounted here.
    pub fn is_mounted(&self) -> bool {
        mounts_below(&self.mountpoint).contains(&self.mountpoint)
    }

    /// Unmounts as a user would and fails if anything stays behind.
    pub fn unmount(&mut self) -> Outcome {
        let pid = self.pid()?;
        let finished = shale().arg("unmount").arg(&self.mountpoint).run()?;
        if !finished.status.success() {
            return Err(self.failure(&finished));
        }
        ensure!(!self.is_mounted(), "still mounted after `shale unmount`");
        ensure!(
            !alive(pid),
            "`shale unmount` returned while the daemon {pid} was running"
        );
        self.daemon = None;
        Ok(())
    }

    /// Unmounts and mounts again, so that nothing comes from a cache.
    pub fn remount(&mut self) -> Outcome {
        self.unmount()?;
        self.start()
    }

    /// Unmounts and mounts again with other options.
    pub fn remount_with(&mut self, options: &[&str]) -> Outcome {
        self.unmount()?;
        self.options = options.iter().map(OsString::from).collect();
        self.start()
    }

    /// Kills the daemon and waits until it has exited; the dead mount stays.
    pub fn kill9(&mut self) -> Outcome {
        let pid = self.pid()?;
        kill(Pid::from_raw(pid), Signal::SIGKILL).doing(format!("killing the daemon {pid}"))?;
        self.daemon = None;
        wait_gone(pid)
    }

    /// Removes a dead mount.
    pub fn detach(&mut self) {
        for mountpoint in mounts_below(&self.mountpoint) {
            let _ = umount2(&mountpoint, MntFlags::MNT_DETACH);
        }
    }

    /// `shale fsck` of the store, which must not be mounted.
    pub fn fsck(&self, arguments: &[&str]) -> Outcome<Finished> {
        shale().arg("fsck").args(arguments).arg(&self.store).run()
    }

    /// Fails unless `shale fsck` finds no problem.
    pub fn fsck_is_clean(&self) -> Outcome {
        self.fsck(&[])?.status_is(0)?;
        Ok(())
    }

    /// The daemon's log.
    pub fn log_text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The last lines of it.
    pub fn log_tail(&self) -> String {
        let text = self.log_text();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    #[track_caller]
    fn failure(&self, finished: &Finished) -> Failure {
        Failure::new(format!(
            "{}\n--- log of the daemon\n{}\n---",
            finished.describe(),
            self.log_tail()
        ))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if std::thread::panicking() || self.daemon.is_some() {
            let log = self.log_tail();
            if !log.is_empty() {
                println!("--- log of the daemon\n{log}\n---");
            }
        }
        self.detach();
        if let Some(pid) = self.daemon {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            let _ = wait_gone(pid);
        }
    }
}

/// True while a thread of the process runs; one that ended but was not reaped is not alive. The
/// first thread may end before those that hold the device open.
pub fn alive(pid: i32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    threads.flatten().any(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let state = stat
            .rsplit(')')
            .next()
            .and_then(|rest| rest.split_whitespace().next());
        matches!(state, Some(state) if state != "Z" && state != "X")
    })
}

fn wait_gone(pid: i32) -> Outcome {
    let deadline = Instant::now() + Duration::from_secs(60);
    while alive(pid) {
        ensure!(
            Instant::now() < deadline,
            "process {pid} outlived SIGKILL by 60 s"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
