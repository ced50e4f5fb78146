//! The daemon: started without fork(), stopped by signals.
//!
//! `shale mount` starts itself again with a hidden flag and waits for one line on a pipe: `ok`, or
//! `failed STATUS MESSAGE`. The new process runs in `/`, its stdin is `/dev/null`, its stderr is
//! the log. It starts a session of its own only after mounting: the kernel lets only the process
//! group that automount started past an autofs mount point. If the starting process is gone before
//! the mount answers, the daemon unmounts again.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{Mode, umask};
use nix::unistd::geteuid;
use shale_fs::Unmounter;
use shale_fs::options::MountOptions;

use crate::mount::handshake::{parse_status, tell};
use crate::mount::logging;
use crate::mount::new_files::NewFiles;
use crate::mount::notify::Notifier;
use crate::mount::preflight::MountPaths;
use crate::mount::utab;
use crate::output::failure::{Failure, mount_exit, reason};
use crate::output::progress::Spinner;
use crate::system::store_dir;

/// glibc gives every thread its own heap and keeps freed memory in each. With two heaps, a daemon
/// with many threads stays near its budget.
const ARENAS: (&str, &str) = ("MALLOC_ARENA_MAX", "2");

/// Starts the daemon and waits until its mount answers. The default log is in the store; a
/// read-only daemon has none.
pub(crate) fn start(
    arguments: &[OsString],
    paths: &MountPaths,
    log: Option<&Path>,
    read_only: bool,
) -> Result<(), Failure> {
    let mut created = NewFiles::default();
    created.store(paths)?;
    let chosen = log.is_some();
    let log = match log {
        Some(log) => Some(log.to_owned()),
        None if read_only => None,
        None => Some(paths.store.join(store_dir::LOG)),
    };
    let opened = log.as_ref().map(|log| created.log(log));
    let stderr = match opened.transpose() {
        // The device of the store may be full.
        Err(_) if !chosen => Stdio::null(),
        opened => opened?.map_or_else(Stdio::null, Into::into),
    };
    let mut child = Command::new(own_program())
        .arg0("shale")
        .args(arguments)
        .env(
            ARENAS.0,
            std::env::var_os(ARENAS.0).unwrap_or(ARENAS.1.into()),
        )
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .map_err(|e| {
            let why = reason(&e);
            Failure::new(
                mount_exit::SYSTEM,
                format_args!("cannot start the daemon: {why}; try again, or with --foreground"),
            )
        })?;
    let mut line = String::new();
    if let Some(pipe) = child.stdout.take() {
        let _spinner = Spinner::new(format!("mounting {}", paths.store.display()));
        // No line means that the daemon died.
        let _ = BufReader::new(pipe).read_line(&mut line);
    }
    match parse_status(&line) {
        Some(Ok(())) => {
            created.keep();
            Ok(())
        }
        Some(Err(failure)) => {
            let _ = child.wait();
            Err(failure)
        }
        None => {
            let _ = child.wait();
            let message = "the daemon died before the mount answered";
            let written = |log: &PathBuf| std::fs::metadata(log).is_ok_and(|found| found.len() > 0);
            Err(match log.filter(written) {
                Some(log) => Failure::new(
                    mount_exit::FAILED,
                    format_args!("{message}; see {}", log.display()),
                ),
                None => Failure::new(
                    mount_exit::FAILED,
                    format_args!("{message}; try again with --foreground to see why"),
                ),
            })
        }
    }
}

/// Serves in the foreground until unmounted.
pub(crate) fn foreground(
    options: &MountOptions,
    paths: &MountPaths,
    log: Option<&Path>,
) -> Result<(), Failure> {
    let mut created = NewFiles::default();
    created.store(paths)?;
    let redirect = match log {
        Some(log) => Some(LogRedirect::to(&created.log(log)?)?),
        None => None,
    };
    logging::start("info,fuser=error");
    let result = serve(options, Manner::Foreground, || {
        created.keep();
        tracing::info!(
            "{} is mounted on {}; Ctrl-C unmounts",
            options.store.display(),
            options.mountpoint.display()
        );
        Ok(())
    });
    if let (Some(_), Err(failure)) = (&redirect, &result) {
        tracing::error!("{failure}");
    }
    result
}

/// Standard error redirected to a log, panics included. Dropping it restores the former one, which
/// gets the reason why the mount ended.
struct LogRedirect(OwnedFd);

impl LogRedirect {
    fn to(log: &File) -> Result<Self, Failure> {
        let former = io::stderr().as_fd().try_clone_to_owned();
        let redirect = former.and_then(|former| {
            nix::unistd::dup2_stderr(log)?;
            Ok(Self(former))
        });
        redirect.map_err(|e| {
            Failure::new(
                mount_exit::SYSTEM,
                format_args!(
                    "cannot log to the file: {}; try again without --log",
                    reason(&e)
                ),
            )
        })
    }
}

impl Drop for LogRedirect {
    fn drop(&mut self) {
        let _ = nix::unistd::dup2_stderr(&self.0);
    }
}

/// Serves as the daemon that [`start`] has started.
pub(crate) fn daemonized(
    prepare: impl FnOnce() -> Result<MountOptions, Failure>,
) -> Result<(), Failure> {
    close_inherited();
    let _ = std::env::set_current_dir("/");
    // Started through /proc/self/exe, the process would be listed as "exe".
    let _ = std::fs::write("/proc/self/comm", "shale");
    logging::start("warn,fuser=error");
    let mut told = false;
    let result = prepare().and_then(|options| {
        serve(&options, Manner::Daemon, || {
            told = true;
            // Fails only for a process group leader, which a new process is not.
            let _ = nix::unistd::setsid();
            tell(Ok(()))?;
            let null = OpenOptions::new().write(true).open("/dev/null")?;
            nix::unistd::dup2_stdout(null)?;
            Ok(())
        })
    });
    if let Err(failure) = &result {
        if told {
            tracing::error!("{failure}");
        } else {
            let _ = tell(Err(failure));
        }
    }
    result
}

/// The starting process may hold locks, or files on other mounts, in descriptors that a daemon must
/// not keep.
fn close_inherited() {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    let open: Vec<i32> = open.flatten().filter_map(number).collect();
    for descriptor in open.into_iter().filter(|&number| number > 2) {
        // The descriptor of the listing is already closed.
        let _ = nix::unistd::close(descriptor);
    }
}

/// How a mount is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// For a person at a terminal or a service manager.
    Foreground,
    Daemon,
}

/// Mounts, says so, and serves until unmounted and durable.
fn serve(
    options: &MountOptions,
    manner: Manner,
    ready: impl FnOnce() -> io::Result<()>,
) -> Result<(), Failure> {
    // Threads inherit the mask, so this comes before the first of them.
    let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]
        .into_iter()
        .collect();
    signals.thread_block().map_err(|e| {
        Failure::new(
            mount_exit::SYSTEM,
            format_args!("cannot block signals: {}", e.desc()),
        )
    })?;
    umask(Mode::from_bits_truncate(0o077));
    raise_open_files();
    // A daemon reports through its pipe.
    let notifier = Arc::new(match manner {
        Manner::Foreground => Notifier::from_environment(),
        Manner::Daemon => Notifier::default(),
    });
    let failed = |e: shale_fs::Error| Failure::new(mount_exit::FAILED, e);
    let mounted = shale_fs::mount(options).map_err(failed)?;
    let unmounter = mounted.unmounter();
    mark(&options.mountpoint);
    if let Err(e) = ready() {
        tracing::warn!(
            "the process that requested the mount is gone ({e}), unmounting; mount again"
        );
        let _ = unmounter.unmount();
    }
    notifier.ready(&format!(
        "{} is mounted on {}",
        options.store.display(),
        options.mountpoint.display()
    ));
    let told = Arc::clone(&notifier);
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn({
            let mountpoint = options.mountpoint.clone();
            move || obey(&signals, &mountpoint, &unmounter, manner, &told)
        })
        .map_err(|e| {
            Failure::new(
                mount_exit::SYSTEM,
                format_args!(
                    "cannot start a thread: {}; raise the limit of processes (ulimit -u)",
                    reason(&e)
                ),
            )
        })?;
    let mut extension = None;
    let ended = mounted.wait(|| {
        unmark(options);
        let status = "unmounted; making everything durable";
        extension = Some(notifier.stopping_without_timeout(status));
    });
    ended.map_err(failed)
}

/// Lets umount(8) wait for this mount. fusermount3 does it for mounts of ordinary users.
fn mark(mountpoint: &Path) {
    if !geteuid().is_root() {
        return;
    }
    if let Err(e) = utab::mark(mountpoint) {
        tracing::warn!(
            "cannot record the mount in /run/mount/utab: {}; umount(8) may return before everything \
             is durable, so use 'shale unmount'",
            reason(&e)
        );
    }
}

/// An entry that stays does no harm.
fn unmark(options: &MountOptions) {
    if geteuid().is_root()
        && let Err(e) = utab::unmark(&options.store, &options.mountpoint)
    {
        tracing::debug!("the entry in /run/mount/utab stays: {e}");
    }
}

fn obey(
    signals: &SigSet,
    mountpoint: &Path,
    unmounter: &Unmounter,
    manner: Manner,
    notifier: &Notifier,
) {
    let place = mountpoint.display();
    loop {
        match signals.wait() {
            Ok(Signal::SIGHUP) if manner == Manner::Daemon => {}
            Ok(signal) => {
                tracing::info!("{signal}: unmounting");
                notifier.stopping("unmounting");
                match unmounter.unmount() {
                    Ok(()) => {}
                    // The machine is shutting down, or an administrator insists.
                    Err(e) if signal == Signal::SIGTERM => {
                        tracing::warn!(
                            "unmount {place}: {}; waiting until the programs that use it end; end them",
                            reason(&e)
                        );
                        notifier.stopping("waiting for programs that still use files");
                        if let Err(e) = unmounter.detach() {
                            tracing::warn!(
                                "unmount {place}: {}; end the programs that use it and run 'shale \
                                 unmount {place}'",
                                reason(&e)
                            );
                        }
                    }
                    Err(e) => tracing::warn!(
                        "unmount {place}: {}; end the programs that use it and try again, or send \
                         SIGTERM, which waits for them",
                        reason(&e)
                    ),
                }
            }
            Err(e) => {
                tracing::warn!("cannot wait for signals ({e}); use 'shale unmount' to stop");
                return;
            }
        }
    }
}

/// The daemon keeps packs open. The usual soft limit of 1024 is for programs that use select(2).
fn raise_open_files() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// The running program: by its path if that still exists, so that it is listed as `shale`.
fn own_program() -> PathBuf {
    match std::env::current_exe() {
        Ok(path) if path.is_file() => path,
        _ => PathBuf::from("/proc/self/exe"),
    }
}
