//! The loop: samples, keys, signals. Whatever ends it, the terminal is as it was before.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use shale_fs::live::Live;

use super::rates::Rates;
use super::sample;
use super::screen::{self, View};
use crate::failure::{Failure, exit, reason};

/// How long a signal may go unnoticed.
const LOOK: Duration = Duration::from_millis(100);
/// How long it may take to end after a signal.
const GRACE: Duration = Duration::from_secs(2);
/// Samples that are kept for the history: as wide as a screen can be.
const HISTORY: usize = 512;

/// What somebody wants who presses a key.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    Quit,
    Interrupt,
}

/// Puts the terminal back, also when something panics on the way.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        // One that has gone need not be put back.
        let _ = ratatui::try_restore();
    }
}

pub(super) fn run(path: &Path, interval: Duration, first: Live) -> Result<ExitCode, Failure> {
    let failed = |e: io::Error| {
        Failure::new(
            exit::IO,
            format_args!("cannot use the terminal: {}", reason(&e)),
        )
    };
    let ended = watch_signals()?;
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let _restore = Restore;
    let mut live = first;
    let mut rates = Rates::default();
    let mut history: VecDeque<(u64, u64)> = VecDeque::new();
    loop {
        let view = View {
            mountpoint: path,
            live: &live,
            rates: &rates,
            history: Some(history.make_contiguous()),
        };
        terminal
            .draw(|frame| screen::draw(&view, frame.area(), frame.buffer_mut()))
            .map_err(failed)?;
        let next = Instant::now() + interval;
        loop {
            if ended.load(Ordering::SeqCst) || has_gone(Duration::ZERO).map_err(failed)? {
                return Ok(ExitCode::from(exit::INTERRUPTED));
            }
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            if !event::poll(Duration::ZERO).map_err(failed)? {
                has_gone(left.min(LOOK)).map_err(failed)?;
                continue;
            }
            match event::read().map_err(failed)? {
                Event::Key(key) => match wish(&key) {
                    Some(Wish::Quit) => return Ok(ExitCode::SUCCESS),
                    Some(Wish::Interrupt) => return Ok(ExitCode::from(exit::INTERRUPTED)),
                    None => {}
                },
                // Drawn again at once, with the same figures.
                Event::Resize(..) => {
                    let view = View {
                        mountpoint: path,
                        live: &live,
                        rates: &rates,
                        history: Some(history.make_contiguous()),
                    };
                    terminal
                        .draw(|frame| screen::draw(&view, frame.area(), frame.buffer_mut()))
                        .map_err(failed)?;
                }
                _ => {}
            }
        }
        let now = sample(path)?;
        rates = Rates::between(&live, &now);
        live = now;
        history.push_front((rates.written as u64, rates.read as u64));
        history.truncate(HISTORY);
    }
}

/// Whether the terminal has gone; waits for a while until there is something to read from it.
/// crossterm must not be asked for keys then: it reads again and again what has ended.
fn has_gone(wait: Duration) -> io::Result<bool> {
    let stdin = io::stdin();
    let mut input = [PollFd::new(&stdin, PollFlags::IN)];
    let wait = Timespec::try_from(wait).unwrap_or_default();
    match poll(&mut input, Some(&wait)) {
        // A signal, perhaps that the size has changed.
        Err(Errno::INTR) => return Ok(false),
        polled => polled?,
    };
    let end = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    Ok(input[0].revents().intersects(end))
}

fn wish(key: &KeyEvent) -> Option<Wish> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
            Some(Wish::Interrupt)
        }
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => Some(Wish::Quit),
        _ => None,
    }
}

/// Set when a signal asks to end, so that the terminal can be put back first.
fn watch_signals() -> Result<Arc<AtomicBool>, Failure> {
    let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]
        .into_iter()
        .collect();
    let failed = |why: &dyn std::fmt::Display| {
        Failure::new(
            exit::SOFTWARE,
            format_args!("cannot wait for signals: {why}"),
        )
    };
    // Threads inherit the mask.
    signals.thread_block().map_err(|e| failed(&e.desc()))?;
    let ended = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&ended);
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let _ = signals.wait();
            flag.store(true, Ordering::SeqCst);
            // The other thread may be stuck: in a mount that hangs, or in crossterm when the
            // terminal has gone in the wrong moment.
            std::thread::sleep(GRACE);
            let _ = ratatui::try_restore();
            std::process::exit(exit::INTERRUPTED.into());
        })
        .map_err(|e| failed(&reason(&e)))?;
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_quit() {
        let key = |code, modifiers| wish(&KeyEvent::new(code, modifiers));
        assert_eq!(
            key(KeyCode::Char('q'), KeyModifiers::NONE),
            Some(Wish::Quit)
        );
        assert_eq!(key(KeyCode::Esc, KeyModifiers::NONE), Some(Wish::Quit));
        assert_eq!(
            key(KeyCode::Char('c'), KeyModifiers::CONTROL),
            Some(Wish::Interrupt)
        );
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(key(KeyCode::Char('x'), KeyModifiers::NONE), None);
    }
}
