//! The loop of samples, keys and signals. It restores the terminal however it ends.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use shale_fs::stats::MountStats;

use super::rates::Rates;
use super::screen::{self, Dashboard};
use crate::control::sample;
use crate::output::failure::{Failure, exit, reason};

/// How long a signal may go unnoticed.
const LOOK: Duration = Duration::from_millis(100);
/// How long the loop may take to end after a signal.
const GRACE: Duration = Duration::from_secs(2);
/// Samples kept for the history: as many as the widest screen shows.
const HISTORY: usize = 512;

/// The request of a key.
#[derive(Debug, PartialEq, Eq)]
enum KeyAction {
    Quit,
    Interrupt,
}

/// Restores the terminal, even after a panic.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        // A terminal that is gone need not be restored.
        let _ = ratatui::try_restore();
    }
}

pub(super) fn run(path: &Path, interval: Duration, first: MountStats) -> Result<ExitCode, Failure> {
    let failed = |e: io::Error| {
        Failure::new(
            exit::IO,
            format_args!("cannot use the terminal: {}; use --once", reason(&e)),
        )
    };
    let ended = watch_signals()?;
    watch_terminal(Arc::clone(&ended)).map_err(failed)?;
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let _restore = Restore;
    let mut stats = first;
    let mut rates = Rates::default();
    let mut history: VecDeque<(u64, u64)> = VecDeque::new();
    loop {
        let dashboard = Dashboard {
            mountpoint: path,
            stats: &stats,
            rates: &rates,
            history: Some(history.make_contiguous()),
        };
        draw(&mut terminal, &dashboard).map_err(failed)?;
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
                Event::Key(key) => match key_action(&key) {
                    Some(KeyAction::Quit) => return Ok(ExitCode::SUCCESS),
                    Some(KeyAction::Interrupt) => return Ok(ExitCode::from(exit::INTERRUPTED)),
                    None => {}
                },
                // Redraw at once, with the same figures.
                Event::Resize(..) => draw(&mut terminal, &dashboard).map_err(failed)?,
                _ => {}
            }
        }
        let now = sample(path)?;
        rates = Rates::between(&stats, &now);
        stats = now;
        history.push_front((rates.written as u64, rates.read as u64));
        history.truncate(HISTORY);
    }
}

fn draw(terminal: &mut DefaultTerminal, dashboard: &Dashboard<'_>) -> io::Result<()> {
    terminal.draw(|frame| screen::draw(dashboard, frame.area(), frame.buffer_mut()))?;
    Ok(())
}

/// Whether the terminal is gone. Waits up to `wait` for input. A terminal that is gone must not be
/// polled with crossterm, which would read its end again and again.
fn has_gone(wait: Duration) -> io::Result<bool> {
    let stdin = io::stdin();
    let mut input = [PollFd::new(&stdin, PollFlags::IN)];
    let wait = Timespec::try_from(wait).unwrap_or_default();
    match poll(&mut input, Some(&wait)) {
        // A signal, perhaps about a new size.
        Err(Errno::INTR) => return Ok(false),
        polled => polled?,
    };
    let end = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    Ok(input[0].revents().intersects(end))
}

fn key_action(key: &KeyEvent) -> Option<KeyAction> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
            Some(KeyAction::Interrupt)
        }
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => Some(KeyAction::Quit),
        _ => None,
    }
}

/// A flag that is set when a signal asks to end, so that the terminal can be restored first.
fn watch_signals() -> Result<Arc<AtomicBool>, Failure> {
    let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]
        .into_iter()
        .collect();
    let failed = |why: &dyn std::fmt::Display| {
        Failure::new(
            exit::SOFTWARE,
            format_args!("cannot wait for signals: {why}; use --once"),
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
            end(&flag)
        })
        .map_err(|e| failed(&reason(&e)))?;
    Ok(ended)
}

/// Sets the flag when the terminal goes without a signal, as one that does not control this process
/// does.
fn watch_terminal(ended: Arc<AtomicBool>) -> io::Result<()> {
    std::thread::Builder::new()
        .name("terminal".to_owned())
        .spawn(move || {
            let stdin = io::stdin();
            // Only the end is reported, no input.
            while poll(&mut [PollFd::new(&stdin, PollFlags::empty())], None) == Err(Errno::INTR) {}
            end(&ended)
        })?;
    Ok(())
}

/// Has the loop end, and ends the process if it does not.
fn end(ended: &AtomicBool) -> ! {
    ended.store(true, Ordering::SeqCst);
    // The loop may be stuck in a mount that hangs, or in crossterm if the terminal was closed at
    // the wrong moment.
    std::thread::sleep(GRACE);
    let _ = ratatui::try_restore();
    std::process::exit(exit::INTERRUPTED.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_quit() {
        let key = |code, modifiers| key_action(&KeyEvent::new(code, modifiers));
        assert_eq!(
            key(KeyCode::Char('q'), KeyModifiers::NONE),
            Some(KeyAction::Quit)
        );
        assert_eq!(key(KeyCode::Esc, KeyModifiers::NONE), Some(KeyAction::Quit));
        assert_eq!(
            key(KeyCode::Char('c'), KeyModifiers::CONTROL),
            Some(KeyAction::Interrupt)
        );
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(key(KeyCode::Char('x'), KeyModifiers::NONE), None);
    }
}
