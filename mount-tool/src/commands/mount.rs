//! `shale mount`

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::mount::daemon;
use crate::mount::preflight::{self, Intent, MountPaths};
use crate::output::failure::{Failure, mount_exit};
use clap::Args;
use shale_fs::options::{Machine, MountOptions, Requested, Unknown};

const HELP: &str = "\
Mount options (-o):
  memory=SIZE, workers=N, chunk=SIZE, backing=DEVICE,
  metrics=ADDRESS, log=FILE, ro, rw
                   like the options above
  metrics_users=USER+...
                   users who may read the metrics on a port, besides root and the user who mounts
  stripe_count=N   on Lustre, stripes of a pack (default 1), or all, or keep
  stripe_size=SIZE on Lustre, bytes of a stripe (default 4M)
  settle=SECONDS   settle files that have not changed for this time (default 10), or off
  settle_rate=SIZE settle at most this many bytes per second (default 256M)
  settle_workers=N threads that encode while settling (default 1)
  nocreate         fail when there is no store, instead of creating one
  allow_other      other users may use the mount (always set when root mounts)
  direct_io        bypass the page cache: faster for programs that write whole megabytes,
                   much slower for programs that write a few KiB at a time
  nodev, nosuid    the default when root mounts
  allow_dev, allow_suid
                   honour device files and set-id programs; dev and suid do the same, but mount(8)
                   and fstab do not pass them on
  exec, noexec, atime, noatime, relatime, sync, async, dirsync
                   as in mount(8); reads never update access times, so nodiratime, strictatime,
                   lazytime and the like have no effect
  The kernel always checks permissions (default_permissions). Options that only fstab and systemd
  use (defaults, auto, user, nofail, _netdev, x-...) are ignored.

Exit status:
  0 mounted, 1 wrong usage or no permission, 2 system error, 32 mount failed

Environment:
  SHALE_LOG        what to log: error, warn (default), info, debug, trace

Examples:
  shale mount /lustre/me/store ~/data
  shale mount --memory 8G --workers 16 /pmem/store /data
  shale mount --ro -o allow_other,noatime /archive/store /mnt";

#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(after_help = HELP)]
pub(crate) struct MountArgs {
    /// Stay in the foreground and log to the terminal, or to the file of --log
    #[arg(short, long)]
    pub(crate) foreground: bool,
    /// Memory for buffers and caches, 16M to 1T [default: a quarter of the RAM, at most 4G]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) memory: Option<String>,
    /// Threads that compress and write, 1 to 256 [default: one per core]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) workers: Option<String>,
    /// Chunk size of files written from now on, a power of two, 64K to 16M [default: 1M]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) chunk: Option<String>,
    /// Serve metrics for Prometheus: unix:/PATH, or 127.0.0.1:PORT
    #[arg(long, value_name = "ADDRESS", allow_hyphen_values = true)]
    pub(crate) metrics: Option<String>,
    /// How to access the store: auto, posix, pmem or lustre [default: auto, by the file system of
    /// STORE]
    #[arg(long, value_name = "DEVICE", allow_hyphen_values = true)]
    pub(crate) backing: Option<String>,
    /// Append warnings to this file [default: STORE/shale.log; with --ro none; with --foreground
    /// the terminal]
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Mount read-only: write nothing to STORE. It may be on a read-only medium, and other machines
    /// may mount it read-only at the same time
    #[arg(long)]
    pub(crate) ro: bool,
    /// Mount options, comma-separated, as mount(8) passes them
    #[arg(short, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub(crate) options: Vec<String>,
    /// Directory that holds the data
    pub(crate) store: PathBuf,
    /// Empty directory where the files appear
    pub(crate) mountpoint: PathBuf,
    /// Set by the command itself when it starts the daemon.
    #[arg(long, hide = true)]
    pub(crate) daemonized: bool,
    /// `mount -s`: ignore unknown options.
    #[arg(long, hide = true)]
    pub(crate) sloppy: bool,
    /// `mount -f`: check everything, mount nothing.
    #[arg(skip)]
    pub(crate) fake: bool,
}

pub(crate) fn run(args: &MountArgs) -> Result<ExitCode, Failure> {
    if args.daemonized {
        // The process that started us prints the failure. The log has nothing to add.
        return Ok(match daemon::daemonized(|| Ok(prepare(args)?.options)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => failure.exit_code(),
        });
    }
    let prepared = prepare(args)?;
    if args.fake {
        return Ok(ExitCode::SUCCESS);
    }
    let log = args.log.as_deref().or(prepared.requested.log.as_deref());
    if args.foreground {
        daemon::foreground(&prepared.options, &prepared.paths, log)?;
    } else {
        let arguments = daemon_arguments(args, &prepared.paths);
        let read_only = prepared.options.read_only;
        daemon::start(&arguments, &prepared.paths, log, read_only)?;
    }
    Ok(ExitCode::SUCCESS)
}

impl MountArgs {
    /// The flags that are also mount options, with their values.
    fn values(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [
            ("memory", &self.memory),
            ("backing", &self.backing),
            ("workers", &self.workers),
            ("chunk", &self.chunk),
            ("metrics", &self.metrics),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.as_deref()?)))
    }
}

struct Prepared {
    requested: Requested,
    options: MountOptions,
    paths: MountPaths,
}

/// Checks the request; creates nothing.
fn prepare(args: &MountArgs) -> Result<Prepared, Failure> {
    let requested = requested(args)?;
    let defaults = Machine::detect();
    let wanted = requested.resolve(&args.store, &args.mountpoint, &defaults);
    let paths = preflight::check(
        &args.store,
        &args.mountpoint,
        Intent {
            root: defaults.root,
            read_only: wanted.read_only,
            allow_other: wanted.allow_other,
            nocreate: requested.nocreate,
        },
    )?;
    let options = requested.resolve(&paths.store, &paths.mountpoint, &defaults);
    Ok(Prepared {
        requested,
        options,
        paths,
    })
}

/// Flags override `-o` options.
fn requested(args: &MountArgs) -> Result<Requested, Failure> {
    let refused = |e| Failure::new(mount_exit::USAGE, e);
    let mut requested = Requested::default();
    let unknown = if args.sloppy {
        Unknown::Ignore
    } else {
        Unknown::Refuse
    };
    for list in &args.options {
        requested.add(list, unknown).map_err(refused)?;
    }
    for (name, value) in args.values() {
        requested.set(name, value).map_err(refused)?;
    }
    if args.ro {
        requested.read_only = Some(true);
    }
    requested.check().map_err(refused)?;
    Ok(requested)
}

/// The command line of the daemon: the same mount, with absolute paths.
fn daemon_arguments(args: &MountArgs, paths: &MountPaths) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["mount".into(), "--daemonized".into()];
    for (name, value) in args.values() {
        arguments.extend([format!("--{name}").into(), value.into()]);
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
    arguments.extend([paths.store.clone().into(), paths.mountpoint.clone().into()]);
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let paths = MountPaths {
            store: "/a b/s".into(),
            mountpoint: "/m".into(),
            store_missing: false,
        };
        let words: Vec<_> = daemon_arguments(&args, &paths);
        let line = words.join(OsString::from("|").as_os_str());
        assert_eq!(
            line,
            "mount|--daemonized|--memory|1G|--ro|-o|noatime|-o|nodev|--|/a b/s|/m"
        );
    }

    #[test]
    fn nocreate_makes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let args = MountArgs {
            options: vec!["noatime,nocreate".to_owned()],
            store: dir.path().join("store"),
            mountpoint: dir.path().to_owned(),
            ..MountArgs::default()
        };
        let failure = run(&args).unwrap_err();
        assert_eq!(failure.status, mount_exit::FAILED);
        assert!(failure.message().contains("nocreate"), "{failure}");
        assert!(!args.store.exists());
    }

    #[test]
    fn flags_win_over_options() {
        let args = MountArgs {
            memory: Some("32M".to_owned()),
            ro: true,
            options: vec!["rw,memory=1G,workers=3".to_owned(), "chunk=64K".to_owned()],
            ..MountArgs::default()
        };
        let requested = requested(&args).unwrap();
        assert_eq!(requested.memory, Some(32 << 20));
        assert_eq!(requested.workers, Some(3));
        assert_eq!(requested.chunk, Some(64 << 10));
        assert_eq!(requested.read_only, Some(true));
    }
}
