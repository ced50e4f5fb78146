//! Support for the end-to-end tests of ShaleFS.
//!
//! ```text
//! Suite     a list of tests; runs each in a process of its own, with a time limit
//!   Case    what one test gets: its directory, the file system under test
//!     Mount   a ShaleFS mount (store, mountpoint, daemon)
//!     Loop    an ext4 or btrfs image on a loop device
//!     Cmd     an external command with a time limit and captured output
//!     EtcdCluster, Proxy   metadata servers, and a bad way to them
//! ```
//!
//! Everything a test makes lives below one directory with a unique name, and
//! everything it starts inherits that name in its environment. [`sweep()`] finds
//! both again, so nothing is left behind even when a test is killed.
//!
//! Environment:
//!
//! | variable | meaning |
//! |---|---|
//! | `SHALE_BIN` | the `shale` binary under test (default `target/release/shale`) |
//! | `SHALE_FAILPOINTS_BIN` | the one that aborts on command (default `target/failpoints/shale`) |
//! | `SHALE_TEST_ON` | `ext4` runs a suite on ext4 instead, to prove the test right |
//! | `SHALE_TEST_TMP` | where test directories are made (default `/var/tmp`) |
//! | `SHALE_TEST_JOBS` | tests at a time within a suite |
//! | `SHALE_TEST_SEED` | seed of the randomised suites (printed by every run) |
//! | `SHALE_TEST_SECONDS` | how long each randomised test goes on (default: its short form) |
//! | `SHALE_TEST_SANITIZED` | the binary has a sanitizer in it: its memory is not judged |
//! | `SHALE_TEST_RESULTS` | directory that receives one result file per suite |
//! | `SHALE_TEST_KEEP` | keep the directories of failed tests (nothing stays mounted) |
#![forbid(unsafe_code)]

mod cluster;
mod data;
mod harness;
mod machine;
mod mounts;

pub use cluster::certificates::Certificates;
pub use cluster::etcd::{EtcdCluster, etcd_binary};
pub use cluster::proxy::Proxy;
pub use data::rng::Rng;
pub use data::tree::{Entry, Sample, read_tree, same_trees};
pub use data::versions;
pub use data::writer::{Writer, is_dead};
pub use harness::case::{Case, Fs, note, tally};
pub use harness::failure::{Context, Failure, Outcome};
pub use harness::settings::{is_long, is_sanitized, on_ext4, rounds, seed};
pub use harness::suite::{Need, Suite};
pub use harness::sweep::sweep;
pub use machine::cgroup::{MemoryGroup, cgroup2};
pub use machine::cmd::{Cmd, Finished, wait};
pub use machine::loop_device::{Frozen, Loop, LoopFs, Slow};
pub use mounts::attributes::{report, stored, wait_for};
pub use mounts::helpers::install_helpers;
pub use mounts::in_process::{small_chunks, store_options};
pub use mounts::mount::{Mount, Served, alive, binary, failpoints_binary, shale};

use std::path::{Path, PathBuf};

/// The top of the source tree.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// A script below `tests/scripts`.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("scripts")
        .join(name)
}

/// A tool that the set-up installed from crates.io.
pub fn tool(name: &str) -> PathBuf {
    root().join(".cache/tools/bin").join(name)
}

/// The Python interpreter of the tests' virtual environment.
pub fn python() -> PathBuf {
    root().join(".cache/venv/bin/python")
}
