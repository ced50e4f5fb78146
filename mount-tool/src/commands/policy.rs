//! `shale policy`

use std::fs::FileType;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use serde::Serialize;
use shale_fs::policy::{Authority, Key, Value};

use crate::control::{check_place, read, unreadable};
use crate::output::failure::{Failure, exit};
use crate::output::report::{self, printable};
use crate::output::table::{Align, Table};

const HELP: &str = "\
Policies:
  codec         auto (default), none, lz4, zstd:1 to zstd:19
  effort        how hard codec auto tries while programs write: fast (default), balanced, dense
  chunk         chunk size of new files: a power of two, 64K to 16M
  settle        when files settle by themselves: off, on, or seconds without a change
  settle.codec  like codec, for settling; auto always tries hardest [default: that of codec]
  region        reserved: the variable that holds the mask of regions; not used yet
  durability    normal (default), or sync: durable when close returns

A value applies to the file or directory where it is set and to everything below, unless a nearer
one is set. Values that root sets with --fixed override all others. A change applies to data written
later; 'shale settle --rewrite' applies it to existing data.

Exit status:
  0 done, 64 wrong usage, 66 not in a ShaleFS mount, 69 the daemon is too old for policies,
  74 I/O error, 77 no permission

Examples:
  shale policy set settle=off chunk=4M ~/data/scratch
  shale policy set --fixed codec=zstd:3 /project
  shale policy explain ~/data/run1/history.nc
  shale policy show --json ~/data/*
  shale policy unset settle ~/data/scratch";

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct PolicyArgs {
    /// Print JSON; after set and unset, the values that are set
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show the values that are set on files and directories themselves
    Show(ListArgs),
    /// Set values
    Set(SetArgs),
    /// Remove values, so that inherited ones apply again
    Unset(UnsetArgs),
    /// Explain which values apply, and where they come from
    Explain(ListArgs),
}

#[derive(Args, Debug)]
struct ListArgs {
    /// Files and directories in a ShaleFS mount
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

#[derive(Args, Debug)]
struct SetArgs {
    /// Override: users cannot set another value below; root only
    #[arg(long)]
    fixed: bool,
    /// Values to set, then files and directories in a ShaleFS mount
    #[arg(required = true, num_args = 2.., value_names = ["NAME=VALUE", "PATH"])]
    words: Vec<PathBuf>,
}

#[derive(Args, Debug)]
struct UnsetArgs {
    /// Remove values that were set with --fixed; root only
    #[arg(long)]
    fixed: bool,
    /// Names of values to remove, or 'all', then files and directories in a ShaleFS mount
    #[arg(required = true, num_args = 2.., value_names = ["NAME", "PATH"])]
    words: Vec<PathBuf>,
}

pub(crate) fn run(args: &PolicyArgs) -> Result<ExitCode, Failure> {
    let changed = match &args.action {
        Action::Show(list) => return show(&list.paths, args.json),
        Action::Explain(list) => return explain(&list.paths, args.json),
        Action::Set(what) => set(what)?,
        Action::Unset(what) => unset(what)?,
    };
    if args.json {
        return show(changed, true);
    }
    Ok(ExitCode::SUCCESS)
}

fn authority(fixed: bool) -> Authority {
    if fixed {
        Authority::Root
    } else {
        Authority::User
    }
}

/// All paths, as JSON.
#[derive(Debug, Serialize)]
struct Report<'a, T> {
    entries: &'a [PathPolicies<T>],
}

/// One path and its policies.
#[derive(Debug, Serialize)]
struct PathPolicies<T> {
    path: String,
    policies: Vec<T>,
}

#[derive(Debug, Serialize)]
struct SetPolicy {
    name: &'static str,
    value: String,
    /// Set by root with `--fixed`.
    fixed: bool,
}

fn show(paths: &[PathBuf], json: bool) -> Result<ExitCode, Failure> {
    let mut all = Vec::new();
    for path in paths {
        check(path)?;
        let mut policies = Vec::new();
        for key in Key::ALL {
            for authority in Authority::ALL {
                let Some(value) = read(path, &authority.attribute(key))? else {
                    continue;
                };
                policies.push(SetPolicy {
                    name: key.name(),
                    value,
                    fixed: authority == Authority::Root,
                });
            }
        }
        all.push(listed(path, policies));
    }
    if json {
        report::print_json("policy", &Report { entries: &all })?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&[
        ("path", Align::Left),
        ("policy", Align::Left),
        ("value", Align::Left),
        ("", Align::Left),
    ]);
    for one in &all {
        for shown in &one.policies {
            let fixed = if shown.fixed { "fixed" } else { "" };
            let name = shown.name.to_owned();
            table.row([
                printable(&one.path),
                name,
                printable(&shown.value),
                fixed.to_owned(),
            ]);
        }
        if one.policies.is_empty() {
            table.row([printable(&one.path), "none set".to_owned()]);
        }
    }
    report::print(&table.render())?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct EffectivePolicy {
    name: String,
    value: String,
    source: String,
}

fn explain(paths: &[PathBuf], json: bool) -> Result<ExitCode, Failure> {
    let mut all = Vec::new();
    for path in paths {
        check(path)?;
        let Some(text) = read(path, "user.shale.effective")? else {
            return Err(Failure::new(
                exit::UNAVAILABLE,
                format_args!(
                    "the daemon of {} is too old for policies; unmount and mount again with this version",
                    path.display()
                ),
            ));
        };
        all.push(listed(path, text.lines().filter_map(parse_line).collect()));
    }
    if json {
        report::print_json("policy", &Report { entries: &all })?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    for one in &all {
        if all.len() > 1 {
            text.push_str(&format!("{}:\n", printable(&one.path)));
        }
        let mut table = Table::new(&[
            ("policy", Align::Left),
            ("value", Align::Left),
            ("source", Align::Left),
        ]);
        for line in &one.policies {
            let value = if line.value.is_empty() {
                "-"
            } else {
                &line.value
            };
            table.row([line.name.clone(), value.to_owned(), line.source.clone()]);
        }
        text.push_str(&table.render());
    }
    report::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// `chunk=4M  from ...`, a line of `user.shale.effective`.
fn parse_line(line: &str) -> Option<EffectivePolicy> {
    let (assignment, source) = line.split_once("  ")?;
    let (name, value) = assignment.split_once('=')?;
    Some(EffectivePolicy {
        name: name.to_owned(),
        value: value.to_owned(),
        source: source.to_owned(),
    })
}

fn listed<T>(path: &Path, policies: Vec<T>) -> PathPolicies<T> {
    PathPolicies {
        path: report::name(path),
        policies,
    }
}

/// Returns the paths among the arguments.
fn set(args: &SetArgs) -> Result<&[PathBuf], Failure> {
    let (settings, paths) = split_settings(&args.words)?;
    for path in paths {
        check(path)?;
    }
    let authority = authority(args.fixed);
    for path in paths {
        for (key, value) in &settings {
            let name = authority.attribute(*key);
            rustix::fs::setxattr(path, name.as_str(), value.as_bytes(), XattrFlags::empty())
                .map_err(|e| refused(path, *key, args.fixed, e))?;
        }
    }
    Ok(paths)
}

fn unset(args: &UnsetArgs) -> Result<&[PathBuf], Failure> {
    let (keys, paths) = split_names(&args.words)?;
    for path in paths {
        check(path)?;
    }
    let authority = authority(args.fixed);
    for path in paths {
        for key in &keys {
            match rustix::fs::removexattr(path, authority.attribute(*key).as_str()) {
                // It was not set.
                Ok(()) | Err(Errno::NODATA) => {}
                Err(e) => return Err(refused(path, *key, args.fixed, e)),
            }
        }
    }
    Ok(paths)
}

/// A policy and the value to set.
type Assignment = (Key, String);

/// Settings come first. They are checked here because setxattr(2) cannot return a reason.
fn split_settings(words: &[PathBuf]) -> Result<(Vec<Assignment>, &[PathBuf]), Failure> {
    let mut settings = Vec::new();
    for (number, word) in words.iter().enumerate() {
        let text = word.as_os_str().as_bytes();
        let assignment = std::str::from_utf8(text)
            .ok()
            .and_then(|text| text.split_once('='));
        let Some((name, value)) = assignment.filter(|(name, _)| !name.contains('/')) else {
            return with_paths(settings, &words[number..], "NAME=VALUE");
        };
        let Some(key) = Key::from_name(name) else {
            // A path may look like an assignment.
            if number > 0 && word.symlink_metadata().is_ok() {
                return with_paths(settings, &words[number..], "NAME=VALUE");
            }
            return Err(unknown(name));
        };
        let value = Value::parse(key, value.as_bytes())
            .map_err(|reason| Failure::new(exit::USAGE, reason))?;
        settings.push((key, value.to_string()));
    }
    with_paths(settings, &[], "NAME=VALUE")
}

fn split_names(words: &[PathBuf]) -> Result<(Vec<Key>, &[PathBuf]), Failure> {
    let mut keys = Vec::new();
    for (number, word) in words.iter().enumerate() {
        match word.to_str().map(|name| (name, Key::from_name(name))) {
            Some(("all", _)) => keys.extend(Key::ALL),
            Some((_, Some(key))) => keys.push(key),
            Some((name, None)) if number == 0 => return Err(unknown(name)),
            _ => return with_paths(keys, &words[number..], "NAME"),
        }
    }
    with_paths(keys, &[], "NAME")
}

fn with_paths<'a, T>(
    what: Vec<T>,
    paths: &'a [PathBuf],
    wanted: &str,
) -> Result<(Vec<T>, &'a [PathBuf]), Failure> {
    let missing = match (what.is_empty(), paths.is_empty()) {
        (true, _) => wanted,
        (_, true) => "PATH",
        _ => return Ok((what, paths)),
    };
    Err(Failure::new(
        exit::USAGE,
        format_args!("no {missing} given; try 'shale policy --help'"),
    ))
}

fn unknown(name: &str) -> Failure {
    let names: Vec<&str> = Key::ALL.into_iter().map(Key::name).collect();
    Failure::new(
        exit::USAGE,
        format_args!(
            "there is no policy '{name}'; use one of {}",
            names.join(", ")
        ),
    )
}

fn refused(path: &Path, key: Key, fixed: bool, error: Errno) -> Failure {
    let what = format!("change {} of", key.name());
    match error {
        Errno::PERM if fixed => Failure::new(
            exit::NO_PERMISSION,
            format_args!(
                "only root may change fixed values on {}; run this as root",
                path.display()
            ),
        ),
        Errno::PERM | Errno::ACCESS => Failure::io(&what, path, &error.into()),
        _ => unreadable(path, &error.into()),
    }
}

/// A file or directory in a ShaleFS mount.
fn check(path: &Path) -> Result<(), Failure> {
    check_place(path)?;
    let kind: FileType = std::fs::metadata(path)
        .map_err(|e| unreadable(path, &e))?
        .file_type();
    if kind.is_dir() || kind.is_file() {
        return Ok(());
    }
    Err(Failure::new(
        exit::NO_INPUT,
        format_args!(
            "{} is neither a directory nor a regular file and has no policies; give one of these",
            path.display()
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &str) -> Vec<PathBuf> {
        list.split(' ').map(PathBuf::from).collect()
    }

    #[test]
    fn settings_stand_before_paths() {
        let words = words("settle=off chunk=4096K ./a=b d");
        let (settings, paths) = split_settings(&words).unwrap();
        assert_eq!(
            settings,
            [
                (Key::Settle, "off".to_owned()),
                (Key::Chunk, "4M".to_owned())
            ]
        );
        assert_eq!(paths, &words[2..]);
    }

    #[test]
    fn bad_settings_are_refused_before_anything_is_set() {
        for (list, said) in [
            ("frob=1 /x", "no policy 'frob'"),
            ("chunk=3M /x", "power of two"),
            ("codec=zstd:20 /x", "zstd:19"),
            ("/x /y", "NAME=VALUE"),
            ("codec=lz4 settle=off", "PATH"),
        ] {
            let failure = split_settings(&words(list)).unwrap_err();
            assert_eq!(failure.status, exit::USAGE);
            assert!(failure.message().contains(said), "{list}: {failure}");
        }
        for (list, said) in [("frob /x", "no policy 'frob'"), ("codec all", "PATH")] {
            let failure = split_names(&words(list)).unwrap_err();
            assert!(failure.message().contains(said), "{list}: {failure}");
        }
        assert_eq!(split_names(&words("all /x")).unwrap().0, Key::ALL);
    }

    #[test]
    fn lines_of_the_explanation_are_taken_apart() {
        assert_eq!(
            parse_line(
                "region=basin mask  from user.shale.region on the directory 1 level up, /a  b"
            ),
            Some(EffectivePolicy {
                name: "region".to_owned(),
                value: "basin mask".to_owned(),
                source: "from user.shale.region on the directory 1 level up, /a  b".to_owned(),
            })
        );
        let empty = parse_line("region=  not set").unwrap();
        assert_eq!(
            (empty.value.as_str(), empty.source.as_str()),
            ("", "not set")
        );
    }
}
