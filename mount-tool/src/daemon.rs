//! The process that stays: started without fork(), stopped by signals.
//!
//! `shale mount` starts itself again with a hidden flag and waits for one line on a pipe:
//! `ok`, or `failed STATUS MESSAGE`. The new process is in `/`, its stdin is `/dev/null`, its
//! stderr the log, and once it has mounted it is a session of its own. Not before: the kernel
//! lets nobody but the process group of who mounts on demand past an autofs mount point. If
//! whoever asked for the mount has gone before it is there, it is taken down again.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{Mode, umask};
use nix::unistd::geteuid;

use crate::backend::{self, MountOptions, Unmounter, store_files};
use crate::cli::MountArgs;
use crate::failure::{Failure, mount_exit, reason};
use crate::logging;
use crate::notify::Notifier;
use crate::preflight::Places;
use crate::utab;
use crate::wait::Waiting;

/// glibc gives every thread a heap of its own and keeps what was freed in each; with two heaps a
/// daemon of many threads stays near its budget.
const ARENAS: (&str, &str) = ("MALLOC_ARENA_MAX", "2");

/// Starts the daemon and waits until its mount answers. Unless a log was chosen it is in the store,
/// and a daemon that only reads has none.
pub(crate) fn start(
    args: &MountArgs,
    places: &Places,
    log: Option<&Path>,
    read_only: bool,
) -> Result<(), Failure> {
    let mut made = Made::default();
    made.store(places)?;
    let chosen = log.is_some();
    let log = match log {
        Some(log) => Some(log.to_owned()),
        None if read_only => None,
        None => Some(places.store.join(store_files::LOG)),
    };
    let opened = log.as_ref().map(|log| made.log(log));
    let stderr = match opened.transpose() {
        // The device of the store may have no room for one.
        Err(_) if !chosen => Stdio::null(),
        opened => opened?.map_or_else(Stdio::null, Into::into),
    };
    let mut child = Command::new(own_program())
        .arg0("shale")
        .args(daemon_arguments(args, places))
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
                format_args!("cannot start the daemon: {why}"),
            )
        })?;
    let mut line = String::new();
    if let Some(pipe) = child.stdout.take() {
        let _waiting = Waiting::for_(format!("mounting {}", places.store.display()));
        // A daemon that dies says nothing, which is an answer too.
        let _ = BufReader::new(pipe).read_line(&mut line);
    }
    match parse_status(&line) {
        Some(Ok(())) => {
            made.keep();
            Ok(())
        }
        Some(Err(failure)) => {
            let _ = child.wait();
            Err(failure)
        }
        None => {
            let _ = child.wait();
            let message = "the daemon died before the mount was there";
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
    places: &Places,
    log: Option<&Path>,
) -> Result<(), Failure> {
    let mut made = Made::default();
    made.store(places)?;
    let diverted = match log {
        Some(log) => Some(Diverted::to(&made.log(log)?)?),
        None => None,
    };
    logging::start("info,fuser=error");
    let result = serve(options, Manner::Foreground, || {
        made.keep();
        tracing::info!(
            "{} is mounted on {}; Ctrl-C unmounts",
            options.store.display(),
            options.mountpoint.display()
        );
        Ok(())
    });
    if let (Some(_), Err(failure)) = (&diverted, &result) {
        tracing::error!("{failure}");
    }
    result
}

/// Standard error while it leads to a log, so that everything gets there, a panic too. Who
/// started the mount is told on the former one why it ended.
struct Diverted(OwnedFd);

impl Diverted {
    fn to(log: &File) -> Result<Self, Failure> {
        let former = io::stderr().as_fd().try_clone_to_owned();
        let diverted = former.and_then(|former| {
            nix::unistd::dup2_stderr(log)?;
            Ok(Self(former))
        });
        diverted.map_err(|e| {
            Failure::new(
                mount_exit::SYSTEM,
                format_args!("cannot log to the file: {}", reason(&e)),
            )
        })
    }
}

impl Drop for Diverted {
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
    // When started through /proc/self/exe the kernel would list us as "exe".
    let _ = std::fs::write("/proc/self/comm", "shale");
    logging::start("warn,fuser=error");
    let mut told = false;
    let result = prepare().and_then(|options| {
        serve(&options, Manner::Daemon, || {
            told = true;
            // Fails only for a process group leader, which a freshly started process is not.
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

/// Whoever asked for the mount may have locks, or files on other mounts, in descriptors that it
/// did not mean for a process that stays.
fn close_inherited() {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    let open: Vec<i32> = open.flatten().filter_map(number).collect();
    for descriptor in open.into_iter().filter(|&number| number > 2) {
        // That of the listing has gone already.
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
    // Who starts a daemon is told through its pipe.
    let notifier = Arc::new(match manner {
        Manner::Foreground => Notifier::from_environment(),
        Manner::Daemon => Notifier::default(),
    });
    let mounted = backend::mount(options)?;
    let unmounter = mounted.unmounter();
    mark(&options.mountpoint);
    if let Err(e) = ready() {
        tracing::warn!("whoever asked for the mount has gone ({e}); unmounting");
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
                format_args!("cannot start a thread: {}", reason(&e)),
            )
        })?;
    let mut patience = None;
    mounted.wait(|| {
        unmark(options);
        let status = "unmounted; making everything durable";
        patience = Some(notifier.stopping_as_long_as_it_takes(status));
    })
}

/// Lets umount(8) wait for this mount. For mounts of ordinary users fusermount3 is responsible.
fn mark(mountpoint: &Path) {
    if !geteuid().is_root() {
        return;
    }
    if let Err(e) = utab::mark(mountpoint) {
        tracing::warn!(
            "cannot note the mount below /run/mount: {}; umount(8) may return before everything \
             is durable, so use 'shale unmount'",
            reason(&e)
        );
    }
}

/// An entry that stays is about nothing and does no harm.
fn unmark(options: &MountOptions) {
    if geteuid().is_root()
        && let Err(e) = utab::unmark(&options.store, &options.mountpoint)
    {
        tracing::debug!("the entry in /run/mount stays: {e}");
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
                    // The machine is going down, or an administrator insists.
                    Err(e) if signal == Signal::SIGTERM => {
                        tracing::warn!(
                            "unmount {place}: {}; waiting until nobody uses it any more",
                            reason(&e)
                        );
                        notifier.stopping("waiting for programs that still use files");
                        if let Err(e) = unmounter.detach() {
                            tracing::warn!("unmount {place}: {}", reason(&e));
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

/// Packs are kept open; the usual soft limit of 1024 is for programs that use select(2).
fn raise_open_files() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

fn tell(result: Result<(), &Failure>) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{}", status_line(result))?;
    stdout.flush()
}

fn status_line(result: Result<(), &Failure>) -> String {
    match result {
        Ok(()) => "ok".to_owned(),
        Err(failure) => format!("failed {} {}", failure.status, failure.message()),
    }
}

fn parse_status(line: &str) -> Option<Result<(), Failure>> {
    let line = line.strip_suffix('\n')?;
    if line == "ok" {
        return Some(Ok(()));
    }
    let (status, message) = line.strip_prefix("failed ")?.split_once(' ')?;
    Some(Err(Failure::new(status.parse().ok()?, message)))
}

/// The program that runs, by its name where that still leads to it, so that it is listed as
/// `shale`.
fn own_program() -> PathBuf {
    match std::env::current_exe() {
        Ok(path) if path.is_file() => path,
        _ => PathBuf::from("/proc/self/exe"),
    }
}

/// The same command again, with absolute paths.
fn daemon_arguments(args: &MountArgs, places: &Places) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["mount".into(), "--daemonized".into()];
    let values = [
        ("--memory", &args.memory),
        ("--backing", &args.backing),
        ("--workers", &args.workers),
        ("--chunk", &args.chunk),
        ("--metrics", &args.metrics),
    ];
    for (name, value) in values {
        if let Some(value) = value {
            arguments.extend([name.into(), value.into()]);
        }
    }
    for (name, wanted) in [("--ro", args.ro), ("--sloppy", args.sloppy)] {
        if wanted {
            arguments.push(name.into());
        }
    }
    for options in &args.options {
        arguments.extend(["-o".into(), options.into()]);
    }
    arguments.push("--".into());
    arguments.extend([
        places.store.clone().into(),
        places.mountpoint.clone().into(),
    ]);
    arguments
}

/// What was made for this mount. Taken away again when the mount fails, as far as nothing else
/// has been put into it: never anything that could hold data.
#[derive(Debug, Default)]
struct Made {
    directory: Option<PathBuf>,
    log: Option<PathBuf>,
}

impl Made {
    fn store(&mut self, places: &Places) -> Result<(), Failure> {
        if !places.store_missing {
            return Ok(());
        }
        match std::fs::DirBuilder::new().mode(0o700).create(&places.store) {
            Ok(()) => self.directory = Some(places.store.clone()),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => {
                let failure = Failure::io("make store", &places.store, &e);
                return Err(failure.with_status(mount_exit::FAILED));
            }
        }
        Ok(())
    }

    /// Opens the log for appending.
    fn log(&mut self, path: &Path) -> Result<File, Failure> {
        let mut options = OpenOptions::new();
        options.append(true).mode(0o600);
        let opened = match options.open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let created = options.create_new(true).open(path);
                if created.is_ok() {
                    self.log = Some(path.to_owned());
                }
                created
            }
            other => other,
        };
        opened.map_err(|e| {
            Failure::new(
                mount_exit::USAGE,
                format_args!(
                    "cannot write the log {}: {}; give another file with --log",
                    path.display(),
                    reason(&e)
                ),
            )
        })
    }

    fn keep(&mut self) {
        (self.directory, self.log) = (None, None);
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if let Some(log) = &self.log
            && std::fs::metadata(log).is_ok_and(|metadata| metadata.len() == 0)
        {
            let _ = std::fs::remove_file(log);
        }
        if let Some(directory) = &self.directory {
            let _ = std::fs::remove_dir(directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_line_comes_back_as_it_went() {
        let failure = Failure::new(32, "store /x is in use\nby 7");
        for result in [Ok(()), Err(&failure)] {
            let line = status_line(result) + "\n";
            assert_eq!(parse_status(&line).unwrap(), result.map_err(Clone::clone));
        }
    }

    #[test]
    fn a_daemon_that_says_nothing_sensible_has_died() {
        for line in [
            "",
            "ok",
            "o",
            "failed",
            "failed x y\n",
            "failed 32\n",
            "thread panicked\n",
        ] {
            assert!(parse_status(line).is_none(), "{line:?}");
        }
    }

    #[test]
    fn the_daemon_is_asked_for_the_same_mount() {
        let args = MountArgs {
            memory: Some("1G".to_owned()),
            ro: true,
            options: vec!["noatime".to_owned(), "nodev".to_owned()],
            store: "s".into(),
            mountpoint: "m".into(),
            ..MountArgs::default()
        };
        let places = Places {
            store: "/a b/s".into(),
            mountpoint: "/m".into(),
            store_missing: false,
        };
        let words: Vec<_> = daemon_arguments(&args, &places);
        let line = words.join(OsString::from("|").as_os_str());
        assert_eq!(
            line,
            "mount|--daemonized|--memory|1G|--ro|-o|noatime|-o|nodev|--|/a b/s|/m"
        );
    }

    #[test]
    fn what_was_made_in_vain_is_removed_but_never_data() {
        let dir = tempfile::tempdir().unwrap();
        let places = |name: &str| Places {
            store: dir.path().join(name),
            mountpoint: "/m".into(),
            store_missing: true,
        };
        let mut made = Made::default();
        made.store(&places("empty")).unwrap();
        made.log(&dir.path().join("empty/shale.log")).unwrap();
        drop(made);
        assert!(!dir.path().join("empty").exists());

        let mut made = Made::default();
        made.store(&places("used")).unwrap();
        std::fs::write(dir.path().join("used/superblock"), "x").unwrap();
        drop(made);
        assert!(dir.path().join("used/superblock").exists());

        let mut made = Made::default();
        made.store(&places("kept")).unwrap();
        made.keep();
        drop(made);
        assert!(dir.path().join("kept").exists());
    }
}
