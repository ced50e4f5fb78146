//! Syncing the journal.

use shale_backing::failpoint::{Stage, reach};

use super::commit::Shared;
use crate::Error;
use crate::kv::Version;

impl Shared {
    /// Returns once every commit up to `version` is durable.
    pub(crate) fn sync(&self, version: Version) -> Result<(), Error> {
        self.syncer.sync(version, || self.sync_round())
    }

    /// Makes everything committed so far durable. Commits continue meanwhile.
    fn sync_round(&self) -> Result<Version, Error> {
        let job = self.committer.lock().writer.begin_sync()?;
        let result = job.run(&*self.backing);
        let mut committer = self.committer.lock();
        match result {
            Ok(()) => {
                reach(Stage::JournalSynced);
                committer.writer.synced(&job);
            }
            Err(error) => committer.writer.sync_failed(error)?,
        }
        Ok(committer.writer.durable())
    }

    /// The version that was durable when the engine was opened.
    pub(crate) fn known_durable(&self, version: Version) {
        self.syncer.known_durable(version);
    }
}
