//! The background pass: finds quiet files, parses their layout, settles them.
//!
//! ```text
//! worker    the thread: which file is next, and what became of it
//! governor  lets programs go first and keeps to the rate
//! ```

mod governor;
#[cfg(test)]
mod tests;
mod worker;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::Fs;
use crate::options::Settling;

/// Starts the background pass.
pub(crate) fn start(fs: &Arc<Fs>, how: Settling) -> io::Result<JoinHandle<()>> {
    let fs = Arc::clone(fs);
    std::thread::Builder::new()
        .name("shale-settle".to_owned())
        .spawn(move || worker::Sweeper::new(&fs, &how).run())
}
