//! Ctrl-C that leaves time to clean up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigSet, Signal};

use crate::output::failure::{Failure, exit};

/// Set once the user wants to stop.
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on Ctrl-C, hang-up and SIGTERM only set the flag. A second signal ends the process.
    pub(crate) fn install() -> Result<Self, Failure> {
        let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
            .into_iter()
            .collect();
        signals.thread_block().map_err(|e| {
            Failure::new(
                exit::SOFTWARE,
                format_args!("cannot block signals: {}; please report this", e.desc()),
            )
        })?;
        let flag = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&flag);
        std::thread::spawn(move || {
            while signals.wait().is_ok() {
                if seen.swap(true, Ordering::Relaxed) {
                    std::process::exit(exit::INTERRUPTED.into());
                }
            }
        });
        Ok(Self(flag))
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.is_set() {
            return Err(Failure::new(exit::INTERRUPTED, "interrupted"));
        }
        Ok(())
    }
}
