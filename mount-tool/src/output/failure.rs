//! A failure: one line that says what went wrong and what to do, and the exit status.
//!
//! | command | status |
//! |---|---|
//! | `mount` | as mount(8): 1 wrong usage or no permission, 2 system error, 32 mount failed |
//! | `fsck` | as fsck(8): 0 clean, 1 repaired, 4 left unrepaired, 8 could not check, 16 wrong usage |
//! | others | as sysexits(3): 64 wrong usage, 66 no such input, 69 not supported here, 70 a bug, 73 cannot create, 74 I/O error, 75 busy, 77 no permission, 130 interrupted |
//!
//! Shared code fails with a status of sysexits(3), and [`Caller`] turns that into the status of the
//! command. With `--json` among the arguments, the line is a JSON object.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use super::SCHEMA;
use crate::system::mountinfo::{self, Mounts};
use crate::system::paths;

/// Exit statuses of every command but `mount` and `fsck`.
pub(crate) mod exit {
    pub(crate) const USAGE: u8 = 64;
    pub(crate) const NO_INPUT: u8 = 66;
    pub(crate) const UNAVAILABLE: u8 = 69;
    pub(crate) const SOFTWARE: u8 = 70;
    pub(crate) const CANNOT_CREATE: u8 = 73;
    pub(crate) const IO: u8 = 74;
    pub(crate) const BUSY: u8 = 75;
    pub(crate) const NO_PERMISSION: u8 = 77;
    pub(crate) const INTERRUPTED: u8 = 130;
}

/// Exit statuses of `shale mount`.
pub(crate) mod mount_exit {
    pub(crate) const USAGE: u8 = 1;
    pub(crate) const SYSTEM: u8 = 2;
    pub(crate) const FAILED: u8 = 32;
}

/// Exit statuses of `shale fsck`.
pub(crate) mod fsck_exit {
    pub(crate) const REPAIRED: u8 = 1;
    pub(crate) const UNREPAIRED: u8 = 4;
    pub(crate) const OPERATIONAL: u8 = 8;
    pub(crate) const USAGE: u8 = 16;
}

/// A failure as the user sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Exit status of the process.
    pub(crate) status: u8,
    message: String,
}

impl Failure {
    /// A failure. Newlines and other control characters in the message become blanks.
    pub(crate) fn new(status: u8, message: impl fmt::Display) -> Self {
        Self {
            status,
            message: one_line(&message.to_string()),
        }
    }

    /// An operation on a path failed, and only the error says why.
    pub(crate) fn io(what: &str, path: &Path, error: &io::Error) -> Self {
        if paths::is_dead(error) {
            return Self::dead(path);
        }
        let status = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => exit::NO_INPUT,
            io::ErrorKind::PermissionDenied => exit::NO_PERMISSION,
            _ => exit::IO,
        };
        let (path, why) = (path.display(), reason(error));
        Self::new(
            status,
            match advice(error) {
                Some(advice) => format!("cannot {what} {path}: {why}; {advice}"),
                None => format!("cannot {what} {path}: {why}"),
            },
        )
    }

    /// A store that is not mounted cannot be opened.
    pub(crate) fn opening(store: &Path, error: shale_store::Error) -> Self {
        match error {
            shale_store::Error::Io { source, .. } => Self::io("open store", store, &source),
            shale_store::Error::Locked { .. } => Self::new(exit::BUSY, error),
            other => Self::new(exit::NO_INPUT, other),
        }
    }

    /// A path in a mount whose daemon has died.
    fn dead(path: &Path) -> Self {
        // Nothing in a dead mount can be examined, so links in the path are not resolved.
        let mountpoint = std::path::absolute(path)
            .ok()
            .and_then(|path| Some(Mounts::read().ok()?.holding(&path)?.mountpoint.clone()));
        let mountpoint = mountpoint.as_deref().unwrap_or(path).display();
        Self::new(
            exit::IO,
            format_args!(
                "{} is in a mount whose daemon has died; clear it with 'shale unmount \
                 {mountpoint}' and mount again",
                path.display()
            ),
        )
    }

    /// The same message with another status.
    pub(crate) fn with_status(self, status: u8) -> Self {
        Self { status, ..self }
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn print(&self) {
        // Nothing can be done when stderr is gone.
        let _ = writeln!(io::stderr().lock(), "shale: {}", self.message);
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.status)
    }
}

/// Whose exit statuses a command has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Statuses {
    Mount,
    Fsck,
    Sysexits,
}

/// The command that failed, and the form of its failures.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    command: String,
    statuses: Statuses,
    json: bool,
}

impl Caller {
    /// From the arguments, which may be wrong. `command` is the name of the command, empty for
    /// none.
    pub(crate) fn new(command: &str, arguments: &[OsString]) -> Self {
        let statuses = match command {
            "mount" => Statuses::Mount,
            "fsck" => Statuses::Fsck,
            _ => Statuses::Sysexits,
        };
        let mut options = arguments.iter().take_while(|&word| word != "--");
        Self {
            command: command.to_owned(),
            statuses,
            json: options.any(|word| word == "--json"),
        }
    }

    /// Prints the failure in the form of this command, and returns the exit status.
    pub(crate) fn fail(&self, failure: Failure) -> ExitCode {
        let failure = self.in_own_terms(failure);
        if self.json {
            let _ = writeln!(io::stderr().lock(), "{}", self.json(&failure));
        } else {
            failure.print();
        }
        failure.exit_code()
    }

    fn in_own_terms(&self, failure: Failure) -> Failure {
        let status = match (self.statuses, failure.status) {
            (Statuses::Mount, exit::USAGE | exit::NO_PERMISSION) => mount_exit::USAGE,
            (Statuses::Mount, exit::UNAVAILABLE | exit::SOFTWARE) => mount_exit::SYSTEM,
            (Statuses::Mount, exit::USAGE..) => mount_exit::FAILED,
            (Statuses::Fsck, exit::USAGE) => fsck_exit::USAGE,
            (Statuses::Fsck, exit::USAGE..) => fsck_exit::OPERATIONAL,
            (_, status) => status,
        };
        failure.with_status(status)
    }

    fn json(&self, failure: &Failure) -> serde_json::Value {
        serde_json::json!({
            "schema": SCHEMA,
            "command": self.command,
            "error": {
                "status": failure.status,
                "meaning": self.meaning(failure.status),
                "message": failure.message,
            }
        })
    }

    fn meaning(&self, status: u8) -> &'static str {
        match (self.statuses, status) {
            (Statuses::Mount, mount_exit::USAGE) => "wrong usage or no permission",
            (Statuses::Mount, mount_exit::SYSTEM) => "system error",
            (Statuses::Mount, _) => "mount failed",
            (Statuses::Fsck, fsck_exit::USAGE) => "wrong usage",
            (Statuses::Fsck, _) => "could not check",
            (Statuses::Sysexits, exit::USAGE) => "wrong usage",
            (Statuses::Sysexits, exit::NO_INPUT) => "no such input",
            (Statuses::Sysexits, exit::UNAVAILABLE) => "not supported here",
            (Statuses::Sysexits, exit::CANNOT_CREATE) => "cannot create",
            (Statuses::Sysexits, exit::IO) => "I/O error",
            (Statuses::Sysexits, exit::BUSY) => "busy",
            (Statuses::Sysexits, exit::NO_PERMISSION) => "no permission",
            (Statuses::Sysexits, exit::INTERRUPTED) => "interrupted",
            (Statuses::Sysexits, _) => "internal error",
        }
    }
}

impl From<mountinfo::Unreadable> for Failure {
    fn from(error: mountinfo::Unreadable) -> Self {
        Self::io("read", Path::new(mountinfo::MOUNTINFO), &error.0).with_status(exit::IO)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The error text of the operating system, in lower case and without the number.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => {
            let text = nix::errno::Errno::from_raw(number).desc();
            let mut letters = text.chars();
            letters.next().map_or_else(String::new, |first| {
                if letters
                    .as_str()
                    .starts_with(|c: char| c.is_ascii_lowercase())
                {
                    first.to_ascii_lowercase().to_string() + letters.as_str()
                } else {
                    text.to_owned()
                }
            })
        }
        None => error.to_string(),
    }
}

/// What to do about common errors.
fn advice(error: &io::Error) -> Option<&'static str> {
    Some(match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => "check the path",
        io::ErrorKind::PermissionDenied => "ask its owner for access, or run this as root",
        io::ErrorKind::ReadOnlyFilesystem => "remount it writable, or choose another directory",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space, or choose another directory"
        }
        _ => return None,
    })
}

pub(crate) fn one_line(text: &str) -> String {
    let words: Vec<&str> = text
        .split(char::is_control)
        .filter(|part| !part.is_empty())
        .collect();
    words.join(" ").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_always_one_line() {
        let failure = Failure::new(1, "first\nsecond\r\n\x1b[31mthird\n");
        assert_eq!(failure.message(), "first second [31mthird");
    }

    #[test]
    fn the_operating_system_is_quoted_without_its_number() {
        let error = io::Error::from_raw_os_error(nix::libc::ENOENT);
        assert_eq!(reason(&error), "no such file or directory");
        let error = io::Error::from_raw_os_error(nix::libc::EIO);
        assert_eq!(reason(&error), "I/O error");
    }

    #[test]
    fn the_status_follows_the_cause() {
        let of = |number| {
            Failure::io(
                "open",
                Path::new("x"),
                &io::Error::from_raw_os_error(number),
            )
            .status
        };
        assert_eq!(of(nix::libc::ENOENT), exit::NO_INPUT);
        assert_eq!(of(nix::libc::EACCES), exit::NO_PERMISSION);
        assert_eq!(of(nix::libc::EIO), exit::IO);
    }

    #[test]
    fn a_dead_mount_is_told_from_an_ordinary_error() {
        let error = io::Error::from_raw_os_error(nix::libc::ENOTCONN);
        let failure = Failure::io("open", Path::new("/mnt/x"), &error);
        assert_eq!(failure.status, exit::IO);
        assert!(failure.message().contains("daemon has died"), "{failure}");
        assert!(failure.message().contains("'shale unmount "), "{failure}");
    }

    fn caller(command: &str, arguments: &str) -> Caller {
        let words: Vec<OsString> = arguments.split(' ').map(OsString::from).collect();
        Caller::new(command, &words)
    }

    #[test]
    fn every_command_ends_with_its_own_statuses() {
        let status = |command: &str, status| {
            let failure = Failure::new(status, "x");
            caller(command, "").in_own_terms(failure).status
        };
        for (common, mount, fsck) in [
            (exit::USAGE, 1, 16),
            (exit::NO_PERMISSION, 1, 8),
            (exit::NO_INPUT, 32, 8),
            (exit::IO, 32, 8),
            (exit::UNAVAILABLE, 2, 8),
            (exit::SOFTWARE, 2, 8),
        ] {
            assert_eq!(status("mount", common), mount, "{common}");
            assert_eq!(status("fsck", common), fsck, "{common}");
            assert_eq!(status("any-other", common), common);
        }
        assert_eq!(status("mount", 32), 32);
        assert_eq!(status("fsck", 8), 8);
    }

    #[test]
    fn json_is_one_line_with_all_there_is_to_know() {
        let caller = caller("stat", "stat --json x");
        assert!(caller.json);
        let failure = Failure::new(66, "no \"x\"\nhere");
        let text = caller.json(&failure).to_string();
        assert_eq!(text.lines().count(), 1);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let error = &value["error"];
        assert_eq!(error["message"], "no \"x\" here");
        assert_eq!(error["status"], 66);
        assert_eq!(error["meaning"], "no such input");
        assert_eq!(value["command"], "stat");
        assert_eq!(value["schema"], SCHEMA);
    }

    #[test]
    fn a_file_called_json_asks_for_nothing() {
        assert!(!caller("stat", "stat -- --json").json);
        assert!(!caller("stat", "stat json").json);
    }
}
