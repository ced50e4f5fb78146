//! `shale doctor`: checks whether this machine can run ShaleFS and a store is healthy.
//!
//! ```text
//! facts    asks the system, and judges nothing
//! checks   judges the facts and says what to change, and asks nothing
//! ```

mod checks;
mod facts;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::output::failure::Failure;
use crate::output::report::{self, printable};
use crate::output::table::{Align, Table};
use checks::{Check, Verdict};
use facts::{MachineFacts, Subject};

const HELP: &str = "\
One line for each check:
  ok        nothing to do
  advice    it works; the line says how to improve it
  problem   it does not work, or data is at risk; the line says what to change

Exit status:
  0 no problem, 1 a problem was found, 64 wrong usage, 66 neither in a mount nor a store,
  74 I/O error, 77 no permission

Examples:
  shale doctor                      only the machine
  shale doctor ~/data               the machine, the mount and its store
  shale doctor --json /lustre/me/store";

/// Exit status when a check found a problem.
const PROBLEM: u8 = 1;

/// The arguments.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// A mount point or a store
    path: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Findings {
    /// The path that was checked, besides the machine.
    path: Option<String>,
    counts: Counts,
    checks: Vec<Check>,
}

/// The number of checks with each verdict.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Counts {
    ok: usize,
    advice: usize,
    problem: usize,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let machine = MachineFacts::look();
    let mut checks = checks::of_machine(&machine);
    if let Some(path) = &args.path {
        checks.extend(checks::of_subject(&machine, &Subject::look(path)?));
    }
    let findings = Findings::new(args.path.as_deref(), checks);
    if args.json {
        report::print_json("doctor", &findings)?;
    } else {
        report::print(&findings.render())?;
    }
    Ok(match findings.counts.problem {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(PROBLEM),
    })
}

impl Findings {
    fn new(path: Option<&Path>, checks: Vec<Check>) -> Self {
        let count = |verdict| checks.iter().filter(|c| c.verdict == verdict).count();
        Self {
            path: path.map(report::name),
            counts: Counts {
                ok: count(Verdict::Ok),
                advice: count(Verdict::Advice),
                problem: count(Verdict::Problem),
            },
            checks,
        }
    }

    fn render(&self) -> String {
        let mut table = Table::new(&[
            ("verdict", Align::Left),
            ("check", Align::Left),
            ("finding", Align::Left),
        ]);
        for check in &self.checks {
            let verdict = match check.verdict {
                Verdict::Ok => "ok",
                Verdict::Advice => "advice",
                Verdict::Problem => "problem",
            };
            table.row([
                verdict.to_owned(),
                check.name.to_owned(),
                printable(&check.message),
            ]);
        }
        table.render()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_counted_and_lined_up() {
        let check = |name, verdict, finding: &str| Check {
            name,
            verdict,
            message: finding.to_owned(),
        };
        let findings = Findings::new(
            None,
            vec![
                check("kernel", Verdict::Ok, "Linux 6"),
                check("space", Verdict::Problem, "full; delete"),
                check("log", Verdict::Advice, "read it"),
            ],
        );
        let counts = Counts {
            ok: 1,
            advice: 1,
            problem: 1,
        };
        assert_eq!(findings.counts, counts);
        assert_eq!(
            findings.render(),
            "verdict  check   finding\n\
             ok       kernel  Linux 6\n\
             problem  space   full; delete\n\
             advice   log     read it\n"
        );
        let json = serde_json::to_value(&findings).unwrap();
        assert_eq!(json["checks"][1]["verdict"], "problem");
    }
}
