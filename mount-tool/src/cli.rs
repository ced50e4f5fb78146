//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::commands::doctor::DoctorArgs;
use crate::commands::estimate::EstimateArgs;
use crate::commands::export::ExportArgs;
use crate::commands::generate::GenerateArgs;
use crate::commands::stat::StatArgs;
use crate::commands::top::TopArgs;
use crate::failure::{Failure, exit};
use crate::report;

/// A compressing file system for simulation and observation data.
///
/// A store is a directory that holds compressed, checksummed data. Mount it, and ordinary
/// programs read and write ordinary files.
#[derive(Debug, Parser)]
#[command(name = "shale", version, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  shale mount /lustre/me/store ~/data     mount a store, making it if need be
  shale stat ~/data                       see what it saves
  shale export ~/data/run1 /scratch/run1  get files out again; cp works as well
  shale unmount ~/data                    unmount once everything is durable

Errors are one line on stderr. With --json they are one line of JSON there:
  {\"schema\": 1, \"command\": ..., \"error\": {\"status\": ..., \"meaning\": ..., \"message\": ...}}";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Mount a store
    ///
    /// Mounts STORE on MOUNTPOINT and returns once the mount answers. An empty or missing STORE
    /// is made into a new store, unless nocreate is among the options. Nothing is made when something is wrong.
    Mount(MountArgs),
    /// Unmount, and wait until everything is durable
    ///
    /// Returns when all that was written is durable and the daemon has gone, so that the store
    /// can be checked, copied or mounted elsewhere. Also clears the mount that a dead daemon
    /// leaves behind.
    #[command(visible_alias = "umount")]
    Unmount(UnmountArgs),
    /// Show how much space files and directories take
    ///
    /// A file is one line. A directory is one line for everything directly in it, each
    /// directory with all that is below it, then one line for the whole. With more than one
    /// PATH there is a total at the end, in which nothing counts twice. Totals are kept up to
    /// date by the file system and are there at once, however many files there are.
    Stat(StatArgs),
    /// Press files into their final, dense form now
    ///
    /// Files settle by themselves some time after their last change; this does it at once. A
    /// directory stands for all files below it. Files that are open for writing are left out.
    /// With --rewrite also what has settled already is encoded again, by the policy that holds
    /// now, whether it becomes smaller by that or not.
    Settle(SettleArgs),
    /// Show and change how files and directories are stored
    ///
    /// Which codec, chunk size, settling and durability; by attributes that plain setfattr and
    /// getfattr also know, as user.shale.NAME and trusted.shale.NAME.
    Policy(crate::commands::policy::PolicyArgs),
    /// Give back the space of what has been deleted or written over
    ///
    /// This happens by itself; here packs are rewritten of which more is alive than usual.
    Gc(GcArgs),
    /// Watch what a mount is doing
    ///
    /// Throughput, ratio, buffers, queues, background passes, slowest operations, busiest files.
    Top(TopArgs),
    /// Show what the bytes of a file mean
    ///
    /// Variables, types, shapes and places of a NetCDF, HDF5, NumPy or FITS file, on any file
    /// system.
    Layout(LayoutArgs),
    /// Predict what data that is elsewhere would take in ShaleFS, and how fast it would be
    Estimate(EstimateArgs),
    /// Copy files out of a mount, or out of a store that is not mounted
    ///
    /// Copies a file or a directory with everything below it to an ordinary directory, compares
    /// every byte, and overwrites nothing.
    Export(ExportArgs),
    /// Check a store that is not mounted, or mounted read-only
    ///
    /// Verifies every checksum and every reference. Writes nothing unless it is asked to repair.
    Fsck(FsckArgs),
    /// Say what is wrong with this machine, a mount or a store, and what to change
    ///
    /// Looks at the kernel and FUSE, limits, the file system that the store is on and its
    /// options, free space, permissions, the clock, the daemon and its log, and at files whose data
    /// could not be read. Changes nothing.
    Doctor(DoctorArgs),
    /// Try it: write a NetCDF file through a mount and compare
    ///
    /// Makes a store and a mount point, writes a few hundred MiB of simulated weather as NetCDF
    /// with ordinary file I/O, settles it, mounts again, reads a slice and then everything back,
    /// compares, shows what each variable takes and what gzip and nccopy make of the same data,
    /// and removes it all.
    Demo(DemoArgs),
    /// Write manual pages and shell completions
    #[command(hide = true)]
    Generate(GenerateArgs),
}

const MOUNT_HELP: &str = "\
Mount options (-o):
  memory=SIZE, workers=N, chunk=SIZE, backing=DEVICE,
  metrics=ADDRESS, log=FILE, ro, rw
                   as the options above
  metrics_users=USER+...
                   who may read metrics on a port besides root and who mounts
  stripe_count=N   on Lustre, storage targets of a pack (default 1), or all, or keep
  stripe_size=SIZE on Lustre, bytes before the next target's turn (default 4M)
  settle=SECONDS   settle files that have not changed for this time (default 10), or off
  settle_rate=SIZE settle at most so many bytes per second (default 256M)
  settle_workers=N threads that encode while settling (default 1)
  nocreate         fail when there is no store, instead of making one
  allow_other      other users may use the mount (always so when root mounts)
  direct_io        do not use the page cache: faster for programs that write whole megabytes,
                   much slower for those that write a few KiB at a time
  nodev, nosuid    the default when root mounts
  allow_dev, allow_suid
                   honour device files and set-id programs; so do dev and suid, which mount(8)
                   and fstab do not pass on
  exec, noexec, atime, noatime, relatime, sync, async, dirsync
                   as in mount(8); access times do not follow reading in any case, so
                   nodiratime, strictatime, lazytime and the like change nothing
  Permissions are always checked by the kernel (default_permissions). What only fstab and
  systemd care about (defaults, auto, user, nofail, _netdev, x-...) is ignored.

Exit status:
  0 mounted, 1 wrong usage or no permission, 2 system error, 32 mount failed

Environment:
  SHALE_LOG        what to log: error, warn (default), info, debug, trace

Examples:
  shale mount /lustre/me/store ~/data
  shale mount --memory 8G --workers 16 /pmem/store /data
  shale mount --ro -o allow_other,noatime /archive/store /mnt";

#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(after_help = MOUNT_HELP)]
pub(crate) struct MountArgs {
    /// Stay in the foreground and log to the terminal, or where --log says
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
    /// How the store is used: auto, posix, pmem or lustre [default: auto, by what STORE is on]
    #[arg(long, value_name = "DEVICE", allow_hyphen_values = true)]
    pub(crate) backing: Option<String>,
    /// Append warnings to this file [default: STORE/shale.log, with --ro none; the terminal with
    /// --foreground]
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Mount read-only: nothing in STORE is written, it may be on a read-only medium, and others may
    /// mount it read-only too
    #[arg(long)]
    pub(crate) ro: bool,
    /// Mount options, comma-separated, as mount(8) passes them
    #[arg(short, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub(crate) options: Vec<String>,
    /// Directory that holds the data
    pub(crate) store: PathBuf,
    /// Empty directory where the files appear
    pub(crate) mountpoint: PathBuf,
    /// Set by the command itself for the process that stays.
    #[arg(long, hide = true)]
    pub(crate) daemonized: bool,
    /// `mount -s`: ignore unknown options.
    #[arg(long, hide = true)]
    pub(crate) sloppy: bool,
    /// `mount -f`: check everything, mount nothing.
    #[arg(skip)]
    pub(crate) fake: bool,
}

const UNMOUNT_HELP: &str = "\
Exit status:
  0 unmounted, or with --dead nothing to clear; 64 wrong usage, 66 not a ShaleFS mount,
  69 no fusermount3, 74 I/O error, 75 busy for more than three seconds, 77 no permission

Examples:
  shale unmount ~/data
  shale unmount --dead ~/data     before mounting again in a script";

#[derive(Args, Debug)]
#[command(after_help = UNMOUNT_HELP)]
pub(crate) struct UnmountArgs {
    /// Only clear what a dead daemon has left; leave a mount that works as it is
    #[arg(long)]
    pub(crate) dead: bool,
    /// Where the store is mounted
    pub(crate) mountpoint: PathBuf,
}

const SETTLE_HELP: &str = "\
Exit status:
  0 done, 64 wrong usage, 66 not in a ShaleFS mount, 74 I/O error or some
  files could not be settled, 75 files are being written or were cancelled,
  77 no permission, 130 interrupted; what was asked for goes on

Examples:
  shale settle --wait ~/data/run1
  shale settle ~/data/run1/history.nc
  shale settle --rewrite ~/data/run1     after 'shale policy set codec=zstd:9 ~/data/run1'
  shale settle --cancel ~/data           what was asked for and is not done";

#[derive(Args, Debug)]
#[command(after_help = SETTLE_HELP)]
pub(crate) struct SettleArgs {
    /// Wait until it is done, and say what was gained
    #[arg(short, long)]
    pub(crate) wait: bool,
    /// Encode everything again by the policy that holds now, chunk size included; waits
    #[arg(long)]
    pub(crate) rewrite: bool,
    /// Cancel what was asked for at or below PATH (default: here) and is not done yet
    #[arg(long, conflicts_with_all = ["wait", "rewrite"])]
    pub(crate) cancel: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Files and directories in a ShaleFS mount
    #[arg(required_unless_present = "cancel", value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

const GC_HELP: &str = "\
Exit status:
  0 done, 64 wrong usage, 66 not a ShaleFS mount, 69 the mount has gone, 74 I/O error,
  77 no permission

Examples:
  shale gc --wait ~/data
  shale gc --live 95 ~/data     also rewrite packs of which only a twentieth is dead";

#[derive(Args, Debug)]
#[command(after_help = GC_HELP)]
pub(crate) struct GcArgs {
    /// Wait until it is done, and say how much was given back
    #[arg(short, long)]
    pub(crate) wait: bool,
    /// The same as JSON, sizes in bytes; waits
    #[arg(long)]
    pub(crate) json: bool,
    /// Rewrite packs of which less than so many percent is alive
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) live: u8,
    /// Where the store is mounted
    pub(crate) mountpoint: PathBuf,
}

const LAYOUT_HELP: &str = "\
Exit status:
  0 shown, also when the file is not understood; 64 wrong usage, 66 no such file, 74 I/O error,
  77 no permission

Examples:
  shale layout history.nc
  shale layout --json restart.h5";

#[derive(Args, Debug)]
#[command(after_help = LAYOUT_HELP)]
pub(crate) struct LayoutArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Any file
    pub(crate) file: PathBuf,
}

const FSCK_HELP: &str = "\
Exit status, as fsck(8):
  0 clean, 1 problems repaired, 4 problems left, 8 could not check, 16 wrong usage

Examples:
  shale fsck /lustre/me/store
  shale fsck --repair /lustre/me/store      write anew what can be made from the rest
  shale fsck --rebuild /lustre/me/store     recover names and contents from the packs";

#[derive(Args, Debug)]
#[command(after_help = FSCK_HELP)]
pub(crate) struct FsckArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Write anew what can be made from the rest without loss: the second copy of the index
    /// (catalogue) and the directories of packs
    #[arg(long)]
    pub(crate) repair: bool,
    /// Make the index anew from what the packs say, and repair the rest
    #[arg(long)]
    pub(crate) rebuild: bool,
    /// Directory that holds the data
    pub(crate) store: PathBuf,
}

const DEMO_HELP: &str = "\
Environment:
  KEEP=1     leave the mount up and say how to use and unmount it
  TMPDIR     where to make the directory when none is given

Examples:
  shale demo
  KEEP=1 shale demo /scratch/shale-demo";

#[derive(Args, Debug)]
#[command(after_help = DEMO_HELP)]
pub(crate) struct DemoArgs {
    /// Empty or missing directory to work in [default: a new one in TMPDIR]
    pub(crate) dir: Option<PathBuf>,
    /// Time steps to write, about 37 MiB each
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) steps: u32,
}

/// Reads the command line. `None` when help or the version was asked for and has been printed.
pub(crate) fn parse(arguments: &[OsString]) -> Result<Option<Cli>, Failure> {
    match Cli::try_parse_from(arguments) {
        Ok(cli) => Ok(Some(cli)),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                report::print(&error.render().to_string())?;
                Ok(None)
            }
            _ => Err(usage(&error, arguments)),
        },
    }
}

/// The command that the arguments ask for, whatever else is wrong with them; empty for none.
pub(crate) fn command_name(arguments: &[OsString]) -> String {
    let definition = Cli::command();
    let word = arguments.get(1).and_then(|word| word.to_str());
    word.and_then(|word| definition.find_subcommand(word))
        .map_or_else(String::new, |command| command.get_name().to_owned())
}

/// clap explains in a paragraph; we have one line.
fn usage(error: &clap::Error, arguments: &[OsString]) -> Failure {
    let help = match command_name(arguments).as_str() {
        "" => "shale --help".to_owned(),
        command => format!("shale {command} --help"),
    };
    let status = exit::USAGE;
    if error.kind() == ErrorKind::MissingSubcommand
        || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    {
        return Failure::new(status, format_args!("no command given; try '{help}'"));
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    let words = words.join(" ");
    Failure::new(
        status,
        match meant(error) {
            Some(meant) => format!("{words}; did you mean {meant}? try '{help}'"),
            None => format!("{words}; try '{help}'"),
        },
    )
}

/// What clap thinks was meant; it has the best guess last.
fn meant(error: &clap::Error) -> Option<String> {
    let kinds = [
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedArg,
        ContextKind::SuggestedValue,
    ];
    let found = kinds.into_iter().find_map(|kind| error.get(kind))?;
    match found {
        ContextValue::String(name) => Some(name),
        ContextValue::Strings(names) => names.last(),
        _ => None,
    }
    .map(|name| format!("'{name}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> Failure {
        let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        parse(&arguments).unwrap_err()
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn wrong_usage_is_one_line_that_leads_to_the_help() {
        for (line, words) in [
            ("shale", "no command given"),
            ("shale frob", "frob"),
            ("shale mount", "<STORE> <MOUNTPOINT>"),
            ("shale mount a b c", "'c'"),
            ("shale mount --frob a b", "--frob"),
            ("shale unmount", "<MOUNTPOINT>"),
            ("shale fsck", "<STORE>"),
            ("shale demo --steps 0", "--steps"),
        ] {
            let failure = refused(line);
            assert_eq!(failure.status, exit::USAGE, "{line}");
            assert!(failure.message().contains(words), "{line}: {failure}");
            assert!(failure.message().contains("--help'"), "{line}: {failure}");
            assert!(!failure.message().contains('\n'), "{line}");
        }
    }

    #[test]
    fn what_was_meant_is_said() {
        for (line, words) in [
            ("shale moutn a b", "did you mean 'mount'"),
            ("shale umoutn a", "did you mean 'umount'"),
            (
                "shale stat --jsn a",
                "did you mean '--json'? try 'shale stat --help'",
            ),
            ("shale stat --sort nam a", "did you mean 'name'?"),
            ("shale policy shwo a", "did you mean 'show'?"),
        ] {
            let failure = refused(line);
            assert!(failure.message().contains(words), "{line}: {failure}");
        }
    }

    #[test]
    fn the_command_is_known_whatever_follows() {
        let name = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            command_name(&words)
        };
        assert_eq!(name("shale umount --frob"), "unmount");
        assert_eq!(name("shale frob"), "");
        assert_eq!(name("shale"), "");
    }

    #[test]
    fn umount_is_unmount() {
        let arguments = ["shale", "umount", "/mnt"].map(OsString::from);
        let cli = parse(&arguments).unwrap().unwrap();
        assert!(matches!(cli.command, Command::Unmount(_)));
    }

    #[test]
    fn mount_options_may_be_repeated_and_come_last() {
        let arguments = [
            "shale",
            "mount",
            "s",
            "m",
            "-o",
            "ro,memory=1G",
            "-onoatime",
        ];
        let cli = parse(&arguments.map(OsString::from)).unwrap().unwrap();
        let Command::Mount(args) = cli.command else {
            panic!("{cli:?}")
        };
        assert_eq!(args.options, ["ro,memory=1G", "noatime"]);
    }
}
