//! What went wrong, in one line, and the exit status that goes with it.
//!
//! | command | status |
//! |---|---|
//! | `mount` | as mount(8): 1 wrong usage or no permission, 2 system error, 32 mount failed |
//! | `fsck` | as fsck(8): 0 clean, 1 repaired, 4 left unrepaired, 8 could not check, 16 wrong usage |
//! | others | as sysexits(3): 64 wrong usage, 66 no such input, 69 not supported here, 70 a bug, 73 cannot create, 74 I/O error, 75 busy, 77 no permission, 130 interrupted |

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

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
    /// A failure; whatever the message holds, it stays one line.
    pub(crate) fn new(status: u8, message: impl fmt::Display) -> Self {
        Self {
            status,
            message: one_line(&message.to_string()),
        }
    }

    /// An operation on a path failed and there is nothing more helpful to say than why.
    pub(crate) fn io(what: &str, path: &Path, error: &io::Error) -> Self {
        let status = match error.kind() {
            io::ErrorKind::NotFound => exit::NO_INPUT,
            io::ErrorKind::PermissionDenied => exit::NO_PERMISSION,
            _ => exit::IO,
        };
        Self::new(
            status,
            format_args!("cannot {what} {}: {}", path.display(), reason(error)),
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
        // There is nobody left to tell when stderr is gone.
        let _ = writeln!(io::stderr().lock(), "shale: {}", self.message);
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.status)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// What the operating system says, in small letters and without the error number.
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

fn one_line(text: &str) -> String {
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
}
