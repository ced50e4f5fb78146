//! Shows what a command is waiting for: after the first second, and only if stderr is a terminal.

use std::io::IsTerminal;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::report::printable;

const PATIENCE: Duration = Duration::from_secs(1);

/// A spinner that appears when something takes longer than a second.
pub(crate) struct Spinner {
    done: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Spinner {
    pub(crate) fn new(what: String) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self {
                done: None,
                thread: None,
            };
        }
        let (done, over) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            if over.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let spinner = spinner(&what);
                spinner.enable_steady_tick(Duration::from_millis(120));
                let _ = over.recv();
                spinner.finish_and_clear();
            }
        });
        Self {
            done: Some(done),
            thread: Some(thread),
        }
    }
}

/// Escapes the text, which may contain names of files.
fn spinner(what: &str) -> ProgressBar {
    ProgressBar::new_spinner().with_message(printable(what))
}

impl Drop for Spinner {
    fn drop(&mut self) {
        drop(self.done.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A bar of bytes that appears when something takes longer than a second.
pub(crate) struct Progress {
    what: &'static str,
    begun: Instant,
    wanted: bool,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(crate) fn of(what: &'static str) -> Self {
        Self {
            what,
            begun: Instant::now(),
            wanted: std::io::stderr().is_terminal(),
            bar: None,
        }
    }

    pub(crate) fn update(&mut self, done: u64, total: u64) {
        if !self.wanted || (self.bar.is_none() && self.begun.elapsed() < PATIENCE) {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::new(total).with_message(self.what);
            let template =
                "{msg} [{wide_bar}] {bytes}/{total_bytes} ({binary_bytes_per_sec}, {eta} left)";
            match ProgressStyle::with_template(template) {
                Ok(style) => bar.with_style(style.progress_chars("=> ")),
                Err(_) => bar,
            }
        });
        bar.set_length(total);
        bar.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_steer_the_terminal() {
        let spinner = spinner("looking into a\x1b[2J\nb");
        assert_eq!(spinner.message(), "looking into a\\u{1b}[2J\\nb");
    }
}
