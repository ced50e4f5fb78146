//! The `shale` command: mounts ShaleFS stores, reports on them, checks them.
//!
//! A failure prints one line to stderr that says what is wrong and what to do, and ends with an
//! exit status that scripts can rely on (see [`output::failure`]).
//!
//! ```text
//! cli, helper   the command line, and that of mount(8) and umount(8)
//! commands/     one file for each command, with its arguments
//! mount/        the daemon of a mount, and everything before and after it
//! deflated/     what deflated variables would take if they were stored plain
//! control       asks and tells a mount through its virtual attributes
//! interrupt     Ctrl-C that leaves time to clean up
//! output/       reports, failures, progress
//! system/       mounts, paths, directories of stores
//! ```
//! A room imports only from the rooms below it.

#![forbid(unsafe_code)]

mod cli;
mod commands;
mod control;
mod deflated;
mod helper;
mod interrupt;
mod mount;
mod output;
mod system;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::CommandFactory;
use cli::{Cli, Command};
use helper::Helper;
use output::failure::{Caller, Failure};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    match run(&arguments) {
        Ok(status) => status,
        Err(failure) => caller(&arguments).fail(failure),
    }
}

fn caller(arguments: &[OsString]) -> Caller {
    if helper::called_as(arguments).is_some() {
        return Caller::new("mount", &[]);
    }
    Caller::new(&cli::command_name(arguments), arguments)
}

fn run(arguments: &[OsString]) -> Result<ExitCode, Failure> {
    match helper::called_as(arguments) {
        Some(Helper::Mount) => return commands::mount::run(&helper::parse(arguments)?),
        Some(Helper::Unmount) => {
            return commands::unmount::run_helper(&helper::parse_unmount(arguments)?);
        }
        None => {}
    }
    let Some(cli) = cli::parse(arguments)? else {
        return Ok(ExitCode::SUCCESS);
    };
    match cli.command {
        Command::Mount(args) => commands::mount::run(&args),
        Command::Unmount(args) => commands::unmount::run(&args),
        Command::Stat(args) => commands::stat::run(&args),
        Command::Fsck(args) => commands::fsck::run(&args),
        Command::Settle(args) => commands::settle::run(&args),
        Command::Policy(args) => commands::policy::run(&args),
        Command::Gc(args) => commands::gc::run(&args),
        Command::Layout(args) => commands::layout::run(&args),
        Command::Export(args) => commands::export::run(&args),
        Command::Estimate(args) => commands::estimate::run(&args),
        Command::Top(args) => commands::top::run(&args),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Generate(args) => commands::generate::run(&args, Cli::command()),
        Command::Demo(args) => commands::demo::run(&args),
    }
}
