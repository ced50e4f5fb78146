//! Files that are settled together and share one sync.

use std::sync::Arc;

use super::encode::Tools;
use super::window::{Pass, Prepared, sync};
use super::{Region, SettleOptions, Settled, Settler, Sizes};
use crate::Error;
use crate::file::File;

/// Files of a batch at most. All of them count as in use until it is committed.
const FILES: usize = 256;
/// Stored bytes of a batch, about: more would make the sync longer but not cheaper.
const BYTES: u64 = 32 << 20;

/// Files that have been encoded and appended, and become durable together.
///
/// Until [`SettleBatch::commit`] they are unchanged; a batch that is dropped before leaves only
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
    /// Encodes a file and appends the frames. `regions` describe it; wrong ones only cost density.
    /// Give the file back after the batch has been committed.
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

    /// Whether it should be committed before more files are added.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.files.len() >= FILES || self.bytes >= BYTES
    }

    /// Makes everything durable, then points each file at its new frames, where it has not changed
    /// meanwhile. Returns the results in the order in which the files were added.
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
