//! The command line.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

use crate::commands::demo::DemoArgs;
use crate::commands::doctor::DoctorArgs;
use crate::commands::estimate::EstimateArgs;
use crate::commands::export::ExportArgs;
use crate::commands::fsck::FsckArgs;
use crate::commands::gc::GcArgs;
use crate::commands::generate::GenerateArgs;
use crate::commands::layout::LayoutArgs;
use crate::commands::mount::MountArgs;
use crate::commands::policy::PolicyArgs;
use crate::commands::settle::SettleArgs;
use crate::commands::stat::StatArgs;
use crate::commands::top::TopArgs;
use crate::commands::unmount::UnmountArgs;
use crate::output::failure::{Failure, exit};
use crate::output::report;

/// A compressing file system for simulation and observation data.
///
/// A store is a directory of compressed, checksummed data. Mount it, and ordinary programs read and
/// write ordinary files.
#[derive(Debug, Parser)]
#[command(name = "shale", version, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  shale mount /lustre/me/store ~/data     mount a store, creating it if needed
  shale stat ~/data                       show what it saves
  shale export ~/data/run1 /scratch/run1  copy files out; cp works as well
  shale unmount ~/data                    unmount once everything is durable

Errors are one line on stderr. With --json they are one line of JSON there:
  {\"schema\": 1, \"command\": ..., \"error\": {\"status\": ..., \"meaning\": ..., \"message\": ...}}";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Mount a store
    ///
    /// Mounts STORE on MOUNTPOINT and returns once the mount answers. A missing or empty STORE
    /// becomes a new store, unless the options include nocreate. When a check fails, nothing is
    /// created.
    Mount(MountArgs),
    /// Unmount, and wait until everything is durable
    ///
    /// Returns when everything written is durable and the daemon has exited, so that the store can
    /// be checked, copied or mounted elsewhere. Also clears a mount whose daemon has died.
    #[command(visible_alias = "umount")]
    Unmount(UnmountArgs),
    /// Show how much space files and directories take
    ///
    /// A file is one line. A directory is one line for each of its entries, where a subdirectory
    /// includes everything below it, then one line for the whole. With more than one PATH, the last
    /// line is a total that counts nothing twice. The file system keeps the totals up to date, so
    /// the answer is immediate however many files there are.
    Stat(StatArgs),
    /// Store files in their final, dense form now
    ///
    /// Files settle by themselves some time after their last change; this command settles them at
    /// once. A directory stands for all files below it. Files that are open for writing are
    /// skipped. With --rewrite, settled files are encoded again too, by the policy now in effect,
    /// even when that does not make them smaller.
    Settle(SettleArgs),
    /// Show and change how files and directories are stored
    ///
    /// Policies choose the codec, the chunk size, settling and durability. They are the extended
    /// attributes user.shale.NAME and trusted.shale.NAME, so setfattr and getfattr work too.
    Policy(PolicyArgs),
    /// Free the space of deleted and overwritten data
    ///
    /// The daemon does this in the background. This command also rewrites packs that are mostly
    /// live.
    Gc(GcArgs),
    /// Watch what a mount is doing
    ///
    /// Shows throughput, ratio, buffers, queues, background passes, the slowest operations and the
    /// busiest files.
    Top(TopArgs),
    /// Show what the bytes of a file mean
    ///
    /// Shows the variables, types, shapes and extents of a NetCDF, HDF5, NumPy or FITS file on any
    /// file system.
    Layout(LayoutArgs),
    /// Predict how much space data would take in ShaleFS, and how fast it would be
    Estimate(EstimateArgs),
    /// Copy files out of a mount, or out of a store that is not mounted
    ///
    /// Copies a file, or a directory with everything below it, to an ordinary directory. Compares
    /// every byte, and overwrites nothing.
    Export(ExportArgs),
    /// Check a store that is not mounted, or mounted read-only
    ///
    /// Verifies every checksum and every reference. Writes nothing unless asked to repair.
    Fsck(FsckArgs),
    /// Find what is wrong with this machine, a mount or a store, and what to change
    ///
    /// Checks the kernel and FUSE, limits, the file system of the store and its options, free
    /// space, permissions, the clock, the daemon and its log, and files whose data could not be
    /// read. Changes nothing.
    Doctor(DoctorArgs),
    /// Try it: write a NetCDF file through a mount and compare
    ///
    /// Creates a store and a mount point, writes a few hundred MiB of simulated weather as NetCDF
    /// with ordinary file I/O, settles it, and mounts again. Reads a slice and then everything back
    /// and compares. Shows what each variable takes and what gzip and nccopy make of the same data.
    /// Then removes everything.
    Demo(DemoArgs),
    /// Write manual pages and shell completions
    #[command(hide = true)]
    Generate(GenerateArgs),
}

/// Parses the command line. `None` after printing the help or the version.
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

/// The command that the arguments name, even when the rest of them is wrong; empty for none.
pub(crate) fn command_name(arguments: &[OsString]) -> String {
    let definition = Cli::command();
    let word = arguments.get(1).and_then(|word| word.to_str());
    word.and_then(|word| definition.find_subcommand(word))
        .map_or_else(String::new, |command| command.get_name().to_owned())
}

/// One line made from clap's paragraph.
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

/// What clap suggests. The best guess is the last one.
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
    use std::path::Path;

    use super::*;
    use crate::commands::generate;

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

    #[test]
    fn every_command_has_a_page_and_every_page_its_parts() {
        let dir = tempfile::tempdir().unwrap();
        let args = GenerateArgs {
            date: "2026-01-31".to_owned(),
            directory: dir.path().to_owned(),
        };
        generate::run(&args, Cli::command()).unwrap();
        // Again, over what is there.
        generate::run(&args, Cli::command()).unwrap();
        let names: Vec<String> = Cli::command()
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(|command| format!("shale-{}", command.get_name()))
            .chain(["shale".to_owned()])
            .collect();
        assert!(names.contains(&"shale-mount".to_owned()), "{names:?}");
        for name in &names {
            let page = dir.path().join(format!("man1/{name}.1"));
            let text = std::fs::read_to_string(page).unwrap();
            for part in [
                ".TH",
                ".SH NAME",
                ".SH SYNOPSIS",
                ".SH EXAMPLES",
                ".SH SEE ALSO",
            ] {
                assert!(text.contains(part), "{name} has no {part}");
            }
        }
        let main = std::fs::read_to_string(dir.path().join("man1/shale.1")).unwrap();
        assert!(main.contains("shale\\-mount\\fR(1)"));
        assert!(!main.contains("generate"));
        let heading = ".TH \"SHALE\" \"1\" \"2026-01-31\" \"shale ";
        assert!(main.contains(heading) && main.contains("\" \"ShaleFS Manual\"\n"));
        let synopsis = |name: &str| {
            let page = dir.path().join(format!("man1/{name}.1"));
            let text = std::fs::read_to_string(page).unwrap();
            let (_, rest) = text.split_once(".SH SYNOPSIS\n").unwrap();
            let synopsis = rest.split("\n.").next().unwrap();
            synopsis
                .replace("\\fB", "")
                .replace("\\fI", "")
                .replace("\\fR", "")
        };
        assert_eq!(
            synopsis("shale-gc"),
            "shale gc\n[\\-w|\\-\\-wait]\n[\\-\\-json]\n[\\-\\-live PERCENT]\nMOUNTPOINT"
        );
        let mount = synopsis("shale-mount");
        for words in ["[\\-\\-memory SIZE]\n", "[\\-o OPTIONS]...\nSTORE\n"] {
            assert!(mount.contains(words), "{mount}");
        }
        assert!(synopsis("shale").contains("COMMAND [ARGUMENT...]"));
        let policy = std::fs::read_to_string(dir.path().join("man1/shale-policy.1")).unwrap();
        let (_, parts) = policy.split_once(".SH SUBCOMMANDS\n").unwrap();
        for words in ["show", "set", "unset", "explain"] {
            assert!(
                parts.contains(&format!("\n\\fBshale policy {words} ")),
                "{parts}"
            );
        }
        for words in [
            "\\fB\\-\\-fixed\\fR\n",
            "\\fINAME=VALUE\\fR \\fIPATH\\fR...\n",
        ] {
            assert!(parts.contains(words), "no {words} in {parts}");
        }
        assert!(!parts.contains("shale policy help"), "{parts}");
        let alias = std::fs::read_link(dir.path().join("man1/shale-umount.1")).unwrap();
        assert_eq!(alias, Path::new("shale-unmount.1"));
        for file in ["bash/shale.bash", "zsh/_shale", "fish/shale.fish"] {
            let text = std::fs::read_to_string(dir.path().join(file)).unwrap();
            assert!(text.contains("unmount"), "{file}");
        }
    }
}
