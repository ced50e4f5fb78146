//! Access to the group sync for tests under a scheduler. Only with the feature `shuttle`.

use crate::Error;
use crate::engine::embedded::group_sync;
use crate::kv::Version;

/// One sync for all callers that wait for one.
#[derive(Debug, Default)]
pub struct GroupSync(group_sync::GroupSync);

impl GroupSync {
    /// Returns once everything up to `version` is durable. `sync` makes everything durable that was
    /// committed before it was called, and returns up to which version.
    ///
    /// # Errors
    /// What `sync` returned to the caller that ran it.
    pub fn sync(
        &self,
        version: Version,
        sync: impl FnOnce() -> Result<Version, Error>,
    ) -> Result<(), Error> {
        self.0.sync(version, sync)
    }

    /// Syncs begun so far.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.0.rounds()
    }
}
