//! How a daemon tells the process that started it whether the mount answers: one line, `ok` or
//! `failed STATUS MESSAGE`.

use std::io::{self, Write};

use crate::output::failure::Failure;

/// Writes the line to stdout, which is the pipe.
pub(super) fn tell(result: Result<(), &Failure>) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{}", status_line(result))?;
    stdout.flush()
}

fn status_line(result: Result<(), &Failure>) -> String {
    match result {
        Ok(()) => "ok".to_owned(),
        Err(failure) => format!("failed {} {}", failure.status, failure.message()),
    }
}

/// Parses the line; none if the daemon died before it.
pub(super) fn parse_status(line: &str) -> Option<Result<(), Failure>> {
    let line = line.strip_suffix('\n')?;
    if line == "ok" {
        return Some(Ok(()));
    }
    let (status, message) = line.strip_prefix("failed ")?.split_once(' ')?;
    Some(Err(Failure::new(status.parse().ok()?, message)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_line_comes_back_as_it_went() {
        let failure = Failure::new(32, "store /x is in use\nby 7");
        for result in [Ok(()), Err(&failure)] {
            let line = status_line(result) + "\n";
            assert_eq!(parse_status(&line).unwrap(), result.map_err(Clone::clone));
        }
    }

    #[test]
    fn a_daemon_that_says_nothing_sensible_has_died() {
        for line in [
            "",
            "ok",
            "o",
            "failed",
            "failed x y\n",
            "failed 32\n",
            "thread panicked\n",
        ] {
            assert!(parse_status(line).is_none(), "{line:?}");
        }
    }
}
