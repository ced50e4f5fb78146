//! Files that are settled together: one sync serves all of them.

use std::sync::Arc;

use shale_backing::failpoint::{Stage, reach};
use shale_codec::Effort;
use shale_index::extent::Extent;

use super::encode::Tools;
use super::window::{Pass, Window};
use super::{Region, SettleOptions, Settled, Settler, Sizes};
use crate::Error;
use crate::file::File;
use crate::pack::SyncRound;
use crate::volume::Volume;

/// Files of a batch at most. All of them count as in use until it is committed.
const FILES: usize = 256;
/// Stored bytes of a batch, about: more would make the sync long and not cheaper.
const BYTES: u64 = 32 << 20;

/// Files that have been encoded and appended, and become durable together.
///
/// Until [`SettleBatch::commit`] they are as they were; a batch that is dropped before leaves only
/// garbage in packs.
pub struct SettleBatch<'a> {
    settler: &'a Settler,
    tools: Tools,
    files: Vec<Prepared>,
    bytes: u64,
}

impl std::fmt::Debug for SettleBatch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SettleBatch")
            .field("files", &self.files.len())
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// A file that is settled up to its last window.
pub(super) struct Prepared {
    pub(super) file: Arc<File>,
    /// Number of its last write at the beginning, if all writes were stored then.
    pub(super) generation: Option<u64>,
    pub(super) effort: Effort,
    /// Without the last window.
    pub(super) outcome: Settled,
    pub(super) last: Option<Window>,
}

impl Prepared {
    fn stored(&self) -> u64 {
        let units = self.last.iter().flat_map(|window| &window.written);
        units.flat_map(|(unit, _)| unit).map(Extent::stored).sum()
    }
}

impl<'a> SettleBatch<'a> {
    pub(super) fn new(settler: &'a Settler) -> Self {
        Self {
            settler,
            tools: Tools::new(),
            files: Vec::new(),
            bytes: 0,
        }
    }
}

impl SettleBatch<'_> {
    /// Encodes a file and appends that. `regions` tell what is known of it; wrong ones only cost
    /// density. Give the file back after the batch has been committed.
    ///
    /// # Errors
    /// When the file cannot be read or the device fails. The file is not in the batch then; it is
    /// as it was, or partly settled.
    pub fn add(
        &mut self,
        file: &Arc<File>,
        regions: &[Region],
        options: &SettleOptions<'_>,
    ) -> Result<(), Error> {
        let (settler, tools) = (self.settler, &mut self.tools);
        settler.volume.check_writable()?;
        let sizes = Sizes::for_chunks(file.chunk_len());
        let prepared = Pass::new(settler, file, regions, options, &sizes, tools).run()?;
        self.bytes += prepared.stored();
        self.files.push(prepared);
        Ok(())
    }

    /// Whether it should be committed before more is added.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.files.len() >= FILES || self.bytes >= BYTES
    }

    /// Makes everything durable, then makes each file use what was appended for it, where it has
    /// not changed meanwhile. Returns what came of each, in the order in which they were added.
    #[must_use]
    pub fn commit(self) -> Vec<Result<Settled, Error>> {
        let settler = self.settler;
        let round = sync(
            &settler.volume,
            self.files.iter().flat_map(|file| &file.last),
        );
        let end = |prepared| {
            settler.volume.check_writable()?;
            settler.end(prepared, &round)
        };
        self.files.into_iter().map(end).collect()
    }
}

/// Makes durable what was appended, if anything was.
pub(super) fn sync<'a>(
    volume: &Volume,
    windows: impl IntoIterator<Item = &'a Window>,
) -> SyncRound {
    if windows.into_iter().all(|window| window.written.is_empty()) {
        return SyncRound::default();
    }
    reach(Stage::SettleWritten);
    let round = volume.frames.packs.sync_round();
    reach(Stage::SettleDurable);
    round
}
