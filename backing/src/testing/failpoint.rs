//! Stages of the daemon's work at which a test can kill it, or make a thread panic.
//!
//! Code calls [`reach`] where a stage has been reached. With the feature `failpoints` the process
//! aborts when the stage named by the environment is reached for the N-th time:
//! `SHALE_FAILPOINT=frame-appended:3`. Stages of one store among several in the process are
//! reached by [`reach_in`], where a unit test can ask for a panic (`panic_at`). Without the feature,
//! as in every binary that is shipped, both are empty and nothing looks at the environment.

#[cfg(not(feature = "failpoints"))]
use std::path::Path;

macro_rules! stages {
    ($($stage:ident = $name:literal, $doc:literal;)+) => {
        /// A moment between two steps that must not depend on each other's survival.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Stage {
            $(#[doc = $doc] $stage,)+
        }

        impl Stage {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$stage),+];

            /// Its name in the environment and in the message.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$stage => $name,)+
                }
            }
        }
    };
}

stages! {
    FrameAppended = "frame-appended", "A frame has been written to a pack.";
    PackSynced = "pack-synced", "The frames appended to a pack are durable.";
    PackSealed = "pack-sealed", "A full pack has its directory and is durable.";
    DataCommitBegins = "data-commit-begins", "Frames are durable, the index does not know them.";
    DataCommitted = "data-committed", "The index knows frames, its journal is not synced.";
    JournalAppended = "journal-appended", "A transaction is in the journal, but not visible yet.";
    JournalSynced = "journal-synced", "The journal is durable, but not acknowledged yet.";
    FoldWritten = "fold-written", "The new map of a file is in packs.";
    FoldCommitted = "fold-committed", "The index uses the new map.";
    SettleBegins = "settle-begins", "A file is about to be settled.";
    SettleWritten = "settle-written", "A window of a settled file is in packs.";
    SettleDurable = "settle-durable", "It is durable, the file does not use it.";
    SettleSwitched = "settle-switched", "The file uses it, its map has not been folded.";
    GcBegins = "gc-begins", "A requested gc pass begins.";
    GcCopied = "gc-copied", "The live frames of a pack have been copied out of it.";
    GcMoved = "gc-moved", "A file uses the copies.";
    GcDeleted = "gc-deleted", "A dead pack is gone, the index still counts it.";
    OrphanPurged = "orphan-purged", "A deleted file is gone from the index.";
    CheckpointMerged = "checkpoint-merged", "Changes are in the base, the checkpoint is older.";
    CheckpointStored = "checkpoint-stored", "The checkpoint says so.";
    SnapshotWritten = "snapshot-written", "A snapshot is written and has no name.";
    SnapshotNamed = "snapshot-named", "It has its name, the journal before it is still there.";
    ShutDownBegins = "shut-down-begins", "Unmounted; nothing has been made durable for that.";
    ShutDownSynced = "shut-down-synced", "Everything is durable, packs are not sealed.";
    ShutDownSealed = "shut-down-sealed", "Packs are sealed, the index is open.";
    ShutDownClosed = "shut-down-closed", "The index is closed, the store is locked.";
}

/// Reports that a stage has been reached.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub fn reach(_: Stage) {}

/// Reports that the store in a directory has reached a stage.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub fn reach_in(_: Stage, _: &Path) {}

#[cfg(feature = "failpoints")]
pub use armed::{panic_at, reach, reach_in};

#[cfg(feature = "failpoints")]
mod armed {
    use std::path::{Path, PathBuf};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use parking_lot::Mutex;

    use super::Stage;

    const VARIABLE: &str = "SHALE_FAILPOINT";

    struct Armed {
        stage: Stage,
        left: AtomicU64,
    }

    static ARMED: OnceLock<Option<Armed>> = OnceLock::new();

    /// Where the next thread panics: a stage of the store in a directory.
    static PANICS: Mutex<Vec<(Stage, PathBuf)>> = Mutex::new(Vec::new());

    fn parse(text: &str) -> Option<Armed> {
        let (name, count) = text.split_once(':')?;
        let stage = *Stage::ALL.iter().find(|stage| stage.name() == name)?;
        let count: u64 = count.parse().ok().filter(|&count| count > 0)?;
        Some(Armed {
            stage,
            left: AtomicU64::new(count),
        })
    }

    fn from_environment() -> Option<Armed> {
        let text = std::env::var(VARIABLE).ok()?;
        let armed = parse(&text);
        if armed.is_none() {
            // Continuing would look like a stage that is never reached.
            eprintln!(
                "{VARIABLE}={text} does not name a stage and a count, as in frame-appended:3"
            );
            std::process::exit(64);
        }
        armed
    }

    /// Reports that a stage has been reached.
    pub fn reach(stage: Stage) {
        if let Some(armed) = ARMED.get_or_init(from_environment)
            && armed.stage == stage
            && armed.left.fetch_sub(1, Ordering::SeqCst) == 1
        {
            eprintln!("failpoint {} reached: aborting", stage.name());
            std::process::abort();
        }
    }

    /// Reports that the store in a directory has reached a stage.
    ///
    /// # Panics
    /// A test has asked for it by [`panic_at`].
    pub fn reach_in(stage: Stage, store: &Path) {
        reach(stage);
        let mut panics = PANICS.lock();
        let armed = panics
            .iter()
            .position(|(at, in_store)| *at == stage && in_store == store);
        if let Some(armed) = armed {
            panics.swap_remove(armed);
            drop(panics);
            panic!("failpoint {} reached", stage.name());
        }
    }

    /// Makes the next thread panic that reaches a stage of the store in a directory.
    pub fn panic_at(stage: Stage, store: &Path) {
        PANICS.lock().push((stage, store.to_owned()));
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_panic_happens_once_and_in_its_own_store() {
            let (here, there) = (Path::new("/here"), Path::new("/there"));
            panic_at(Stage::GcBegins, here);
            reach_in(Stage::GcBegins, there);
            reach_in(Stage::SettleBegins, here);
            let reached = std::panic::catch_unwind(|| reach_in(Stage::GcBegins, here));
            assert!(reached.is_err());
            reach_in(Stage::GcBegins, here);
        }

        #[test]
        fn only_stages_with_a_count_are_understood() {
            for stage in Stage::ALL {
                let armed = parse(&format!("{}:7", stage.name())).unwrap();
                assert_eq!(armed.stage, *stage);
            }
            for text in [
                "",
                "frame-appended",
                "frame-appended:0",
                "nothing:1",
                "frame-appended:x",
            ] {
                assert!(parse(text).is_none(), "{text}");
            }
        }
    }
}
