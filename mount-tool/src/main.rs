//! The `shale` command: mounts ShaleFS stores, reports on them, checks them.
//!
//! Every failure is one line on stderr that says what is wrong and what to do, and an exit
//! status that scripts can rely on (see [`failure`]).

#![forbid(unsafe_code)]

mod attributes;
mod backend;
mod cli;
mod commands;
mod daemon;
mod deflated;
mod demo;
mod doctor;
mod export;
mod failure;
mod holder;
mod interrupt;
mod logging;
mod mount_helper;
mod mountinfo;
mod notify;
mod paths;
mod preflight;
mod report;
mod size;
mod utab;
mod wait;

use std::ffi::OsString;
use std::process::ExitCode;

use cli::Command;
use failure::{Caller, Failure};
use mount_helper::Helper;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    match run(&arguments) {
        Ok(status) => status,
        Err(failure) => caller(&arguments).fail(failure),
    }
}

fn caller(arguments: &[OsString]) -> Caller {
    if mount_helper::called_as(arguments).is_some() {
        return Caller::new("mount", &[]);
    }
    Caller::new(&cli::command_name(arguments), arguments)
}

fn run(arguments: &[OsString]) -> Result<ExitCode, Failure> {
    match mount_helper::called_as(arguments) {
        Some(Helper::Mount) => return commands::mount::run(&mount_helper::parse(arguments)?),
        Some(Helper::Unmount) => {
            return commands::unmount::run_helper(&mount_helper::parse_unmount(arguments)?);
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
        Command::Generate(args) => commands::generate::run(&args),
        Command::Demo(args) => commands::demo::run(&args),
    }
}
