//! All commands with all that can be wrong with a path or a number. A command that is missing here
//! fails the suite, so a new one cannot forget its errors.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;
use shale_tests::{
    Case, Cmd, Context, Finished, Mount, Outcome, binary, ensure, ensure_eq, read_tree, same_trees,
    shale,
};

/// What is tried: arguments (words in capitals are places, see [`Places::words`]), the status
/// and what the message must say.
enum Try {
    Refused(&'static str, i32, &'static str),
    /// As an ordinary user.
    Denied(&'static str, i32, &'static str),
    /// Does not apply, and why.
    Not(&'static str),
}
use Try::{Denied, Not, Refused};

struct Row {
    command: &'static str,
    missing: Try,
    outside: Try,
    /// A file in a mount.
    inside: Try,
    dead: Try,
    denied: Try,
    /// A pipe, which must not be waited for.
    pipe: Try,
    number: Try,
}

const NO_NUMBER: Try = Not("takes no number");

fn table() -> Vec<Row> {
    let died = "daemon has died; clear it with 'shale unmount";
    vec![
        Row {
            command: "mount",
            missing: Refused("MISSING/store EMPTY", 32, "check the path"),
            outside: Refused("FULL EMPTY", 32, "give an empty directory"),
            inside: Refused("LIVE/file EMPTY", 32, "give a directory"),
            dead: Refused("EMPTY DEAD", 32, died),
            denied: Denied("STORE EMPTY", 1, "ask its owner"),
            pipe: Refused("PIPE EMPTY", 32, "give a directory"),
            number: Refused("--memory lots MISSING EMPTY", 1, "16M to 1T"),
        },
        Row {
            command: "unmount",
            missing: Refused("MISSING", 66, "does not exist"),
            outside: Refused("EMPTY", 66, "findmnt"),
            inside: Refused("LIVE/file", 66, "inside one; use 'shale unmount"),
            dead: Not("clears it: unmount_clears_the_mount_of_a_dead_daemon"),
            denied: Denied("LIVE", 77, "ask root or the user who mounted it"),
            pipe: Refused("PIPE", 66, "findmnt"),
            number: NO_NUMBER,
        },
        Row {
            command: "stat",
            missing: Refused("MISSING", 66, "check the path"),
            outside: Refused("FILE", 66, "findmnt"),
            inside: Not("is shown"),
            dead: Refused("DEAD/file", 74, died),
            denied: Denied("CLOSED/file", 77, "ask its owner"),
            pipe: Not("is shown as what it is: odd_things_are_shown_for_what_they_are"),
            number: NO_NUMBER,
        },
        Row {
            command: "settle",
            missing: Refused("MISSING", 66, "check the path"),
            outside: Refused("FILE", 66, "findmnt"),
            inside: Not("is settled"),
            dead: Refused("DEAD", 74, died),
            denied: Denied("CLOSED/file", 77, "ask its owner"),
            pipe: Refused("LIVE/pipe", 66, "neither a file nor a directory"),
            number: NO_NUMBER,
        },
        Row {
            command: "policy",
            missing: Refused("explain MISSING", 66, "check the path"),
            outside: Refused("set codec=lz4 FILE", 66, "findmnt"),
            inside: Not("has policies as directories have"),
            dead: Refused("show DEAD/file", 74, died),
            denied: Denied("explain CLOSED/file", 77, "ask its owner"),
            pipe: Refused("set codec=lz4 LIVE/pipe", 66, "has no policies"),
            number: Refused("set chunk=3M LIVE", 64, "64K to 16M"),
        },
        Row {
            command: "gc",
            missing: Refused("MISSING", 66, "check the path"),
            outside: Refused("EMPTY", 66, "findmnt"),
            inside: Refused("LIVE/file", 66, "give the mount point"),
            dead: Refused("DEAD", 74, died),
            denied: Denied("LIVE", 77, "only root and the user who mounted"),
            pipe: Refused("PIPE", 66, "findmnt"),
            number: Refused("--live 101 LIVE", 64, "1..=100"),
        },
        Row {
            command: "top",
            missing: Refused("--once MISSING", 66, "check the path"),
            outside: Refused("--once EMPTY", 66, "findmnt"),
            inside: Refused("--once LIVE/file", 66, "give the mount point"),
            dead: Refused("--once DEAD", 74, died),
            denied: Denied("--once LIVE", 77, "only root and the user who mounted"),
            pipe: Refused("--once PIPE", 66, "findmnt"),
            number: Refused("--interval 0 LIVE", 64, "0.1 to 3600"),
        },
        Row {
            command: "estimate",
            missing: Refused("MISSING", 66, "check the path"),
            outside: Not("works on any file system"),
            inside: Not("is estimated"),
            dead: Refused("DEAD", 74, died),
            denied: Denied("CLOSED/file", 77, "ask its owner"),
            pipe: Refused("LIVE/pipe", 66, "neither a directory nor a file"),
            number: Refused("--bandwidth fast FULL", 64, "at least 1M"),
        },
        Row {
            command: "layout",
            missing: Refused("MISSING", 66, "check the path"),
            outside: Not("works on any file system"),
            inside: Not("is looked into"),
            dead: Refused("DEAD/file", 74, died),
            denied: Denied("CLOSED/file", 77, "ask its owner"),
            pipe: Refused("LIVE/pipe", 66, "not a regular file"),
            number: NO_NUMBER,
        },
        Row {
            command: "export",
            missing: Refused("MISSING EMPTY/copy", 66, "check the path"),
            outside: Refused("FULL EMPTY/copy", 66, "findmnt"),
            inside: Not("is copied"),
            dead: Refused("DEAD EMPTY/copy", 74, died),
            denied: Denied("STORE EMPTY/copy", 77, "ask its owner"),
            pipe: Refused("PIPE EMPTY/copy", 66, "findmnt"),
            number: NO_NUMBER,
        },
        Row {
            command: "fsck",
            missing: Refused("MISSING", 8, "check the path"),
            outside: Refused("FULL", 8, "give the store"),
            inside: Refused("LIVE/file", 8, "give the store"),
            dead: Refused("DEAD", 8, died),
            denied: Denied("STORE", 8, "ask its owner"),
            pipe: Refused("PIPE", 8, "give the store"),
            number: NO_NUMBER,
        },
        Row {
            command: "doctor",
            missing: Refused("MISSING", 66, "check the path"),
            outside: Refused("FULL", 66, "findmnt"),
            inside: Not("stands for its mount"),
            dead: Not("says so as a finding: doctor_finds_a_dead_mount"),
            denied: Denied("CLOSED/file", 77, "ask its owner"),
            pipe: Refused("PIPE", 66, "findmnt"),
            number: NO_NUMBER,
        },
        Row {
            command: "demo",
            missing: Refused("MISSING/dir", 73, "check the path"),
            outside: Not("works on any file system"),
            inside: Refused("LIVE/file", 73, "check the path"),
            dead: Refused("DEAD/dir", 73, died),
            denied: Denied("FULL/dir", 73, "ask its owner"),
            pipe: Refused("PIPE", 73, "check the path"),
            number: Refused("--steps none", 64, "shale demo --help"),
        },
    ]
}

/// A live mount and a dead one, and directories beside them.
struct Places {
    plain: PathBuf,
    live: Mount,
    dead: Mount,
    /// The command where an ordinary user may execute it.
    program: PathBuf,
}

impl Places {
    fn new(case: &Case) -> Outcome<Places> {
        let plain = case.dir("plain")?;
        fs::create_dir(plain.join("full"))?;
        fs::write(plain.join("full/precious"), b"x")?;
        fs::create_dir(plain.join("empty"))?;
        fs::set_permissions(plain.join("empty"), Permissions::from_mode(0o777))?;
        fs::write(plain.join("file"), b"x")?;
        mkfifo(&plain.join("pipe"), Mode::S_IRUSR | Mode::S_IWUSR)?;
        let live = case.mount("live", &[])?;
        mkfifo(&live.path().join("pipe"), Mode::S_IRUSR | Mode::S_IWUSR)?;
        fs::write(live.path().join("file"), b"x")?;
        let closed = live.path().join("closed");
        fs::create_dir(&closed)?;
        fs::write(closed.join("file"), b"secret")?;
        fs::set_permissions(&closed, Permissions::from_mode(0o700))?;
        let mut dead = case.mount("dead", &[])?;
        dead.kill9()?;
        // The build directory may be closed to others.
        let program = case.work().join("shale");
        fs::copy(binary(), &program)?;
        Ok(Places {
            plain,
            live,
            dead,
            program,
        })
    }

    fn words(&self, arguments: &str) -> Vec<PathBuf> {
        let word = |word: &str| {
            let (first, rest) = word.split_once('/').unwrap_or((word, ""));
            let place = match first {
                "MISSING" => self.plain.join("missing"),
                "FILE" => self.plain.join("file"),
                "PIPE" => self.plain.join("pipe"),
                "FULL" => self.plain.join("full"),
                "EMPTY" => self.plain.join("empty"),
                "LIVE" => self.live.path().to_owned(),
                "CLOSED" => self.live.path().join("closed"),
                "STORE" => self.live.store().to_owned(),
                "DEAD" => self.dead.path().to_owned(),
                _ => return word.into(),
            };
            if rest.is_empty() {
                place
            } else {
                place.join(rest)
            }
        };
        arguments.split(' ').map(word).collect()
    }

    fn run(&self, command: &str, json: bool, attempt: &Try) -> Outcome<Option<Finished>> {
        let (program, arguments) = match attempt {
            Refused(arguments, ..) => (shale(), arguments),
            Denied(arguments, ..) => (Cmd::new(&self.program).user(65_534, 65_534), arguments),
            Not(why) => {
                ensure!(!why.is_empty(), "{command}: no reason");
                return Ok(None);
            }
        };
        let program = program.arg(command).args(json.then_some("--json"));
        program.args(self.words(arguments)).run().map(Some)
    }
}

/// The commands that the main help lists, and whether they know `--json`.
fn commands() -> Outcome<Vec<(String, bool)>> {
    let help = shale().arg("--help").ok()?;
    let list = help.split("Commands:\n").nth(1).doing("reading the help")?;
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let mut commands = Vec::new();
    for name in names.filter(|name| !name.is_empty() && *name != "help") {
        let help = shale().arg(name).arg("--help").ok()?;
        commands.push((name.to_owned(), help.contains("--json")));
    }
    Ok(commands)
}

/// One line for people; the message without the name of the program.
fn plain_line(finished: &Finished) -> Outcome<String> {
    let shown = finished.describe();
    ensure!(finished.stdout.is_empty(), "wrote to stdout: {shown}");
    ensure_eq!(finished.stderr.lines().count(), 1, "lines of {shown}");
    let message = finished.stderr.trim_end().strip_prefix("shale: ");
    Ok(message.doing(format!("the message in {shown}"))?.to_owned())
}

/// One line of JSON that says the same.
fn same_in_json(finished: &Finished, command: &str, message: &str, status: i32) -> Outcome {
    let shown = finished.describe();
    ensure!(finished.stdout.is_empty(), "wrote to stdout: {shown}");
    ensure_eq!(finished.stderr.lines().count(), 1, "lines of {shown}");
    let value: Value = serde_json::from_str(&finished.stderr).doing(format!("JSON in {shown}"))?;
    let error = &value["error"];
    ensure_eq!(error["message"], message, "message in {shown}");
    ensure_eq!(error["status"], status, "status in {shown}");
    ensure_eq!(value["command"], command, "command in {shown}");
    ensure_eq!(value["schema"], 1, "schema in {shown}");
    ensure!(error["meaning"].is_string(), "no meaning in {shown}");
    ensure_eq!(
        finished.status.code(),
        Some(status),
        "exit status of {shown}"
    );
    Ok(())
}

/// Every command refuses every bad path and number in one line, says what to do, ends with the
/// right status, changes nothing, and says the same in JSON.
pub(crate) fn every_command_refuses_everything(case: &Case) -> Outcome {
    let places = Places::new(case)?;
    let before = read_tree(&places.plain)?;
    let table = table();
    let commands = commands()?;
    for (command, json) in &commands {
        let row = table.iter().find(|row| row.command == command);
        let row = row.doing(format!("looking for {command} in the table of bad input"))?;
        for attempt in [
            &row.missing,
            &row.outside,
            &row.inside,
            &row.dead,
            &row.denied,
            &row.pipe,
            &row.number,
        ] {
            let Some(finished) = places.run(command, false, attempt)? else {
                continue;
            };
            let (Refused(_, status, says) | Denied(_, status, says)) = attempt else {
                continue;
            };
            let finished = finished.status_is(*status)?;
            let message = plain_line(&finished)?;
            ensure!(
                message.contains(says),
                "no '{says}' in {}",
                finished.describe()
            );
            if *json && let Some(finished) = places.run(command, true, attempt)? {
                same_in_json(&finished, command, &message, *status)?;
            }
        }
    }
    same_trees(&read_tree(&places.plain)?, &before)?;
    for row in &table {
        let known = commands.iter().any(|(command, _)| command == row.command);
        ensure!(known, "{} is not a command any more", row.command);
    }
    let Places {
        mut live, mut dead, ..
    } = places;
    dead.detach();
    live.unmount()
}

/// Wrong usage of any command: one line that leads to its help, in JSON where `--json` is among
/// the arguments, whether the command knows it or not.
pub(crate) fn every_command_explains_wrong_usage(_: &Case) -> Outcome {
    for (command, _) in commands()? {
        let status = match command.as_str() {
            "mount" => 1,
            "fsck" => 16,
            _ => 64,
        };
        let wrong = |json: Option<&str>| {
            let line = shale().arg(&command).args(json);
            line.arg("--no-such-option").run()
        };
        let finished = wrong(None)?.status_is(status)?;
        let message = plain_line(&finished)?;
        let help = format!("try 'shale {command} --help'");
        ensure!(message.contains(&help), "{}", finished.describe());
        let finished = wrong(Some("--json"))?;
        let value: Value = serde_json::from_str(&finished.stderr)?;
        let message = value["error"]["message"].as_str().unwrap_or_default();
        ensure!(message.contains(&help), "{}", finished.describe());
        same_in_json(&finished, &command, message, status)?;
    }
    let finished = shale().args(["--json", "no-such-command"]).run()?;
    let value: Value = serde_json::from_str(&finished.stderr)?;
    ensure_eq!(value["error"]["status"], 64, "{}", finished.describe());
    Ok(())
}
