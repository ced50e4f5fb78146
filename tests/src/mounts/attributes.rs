//! Reports of a mount about its files, through attributes.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::{Outcome, ensure};

/// A report of the file system, queried without a separate process.
pub fn report(path: &Path, what: &str) -> Outcome<String> {
    let mut value = vec![0; 64 << 10];
    let len = rustix::fs::getxattr(path, format!("user.shale.stat.{what}"), &mut value[..])?;
    value.truncate(len);
    Ok(String::from_utf8_lossy(&value).into_owned())
}

/// Bytes that a file or a directory takes in the store.
pub fn stored(path: &Path) -> Outcome<u64> {
    Ok(report(path, "stored")?.parse()?)
}

/// Waits until a file is in a state.
pub fn wait_for(path: &Path, wanted: &str) -> Outcome {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let state = report(path, "state")?;
        if state == wanted {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "{} is still {state}, not {wanted}",
            path.display()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}
