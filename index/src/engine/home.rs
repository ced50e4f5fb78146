//! Where an index is kept.

use std::path::Path;
use std::sync::Arc;

use shale_backing::Backing;

use super::embedded::{Embedded, Options, Recovery};
use crate::kv::{Import, Version};
use crate::{Error, Kv};

/// Opens the index of a store, and makes it again from a list of pairs. What uses an index gets it
/// from here, and knows no engine by name.
pub trait IndexHome: Send + Sync + std::fmt::Debug {
    /// Whether there is nothing to open.
    fn is_missing(&self) -> bool;

    /// Opens the index for a session, and creates it if there is none. `memory` is for caches.
    ///
    /// # Errors
    /// When it cannot be opened, or acknowledged commits are missing.
    fn open(&self, memory: usize) -> Result<(Arc<dyn Kv>, Recovery), Error>;

    /// Opens the index to read from it. Nothing is written.
    ///
    /// # Errors
    /// When it cannot be read.
    fn open_to_read(&self) -> Result<(Arc<dyn Kv>, Recovery), Error>;

    /// Makes an index from a list of pairs, in place of the one that is there. Pairs with different
    /// versions keep their order, and the first commit is numbered `next` at least.
    ///
    /// # Errors
    /// When it cannot be written. Then there is the old index, the new one, or none, and it can be
    /// done again.
    fn import(&self, pairs: &mut dyn Iterator<Item = Import>, next: Version) -> Result<(), Error>;
}

/// The embedded engine in the directory of a store.
#[derive(Debug)]
pub struct EmbeddedHome(Arc<dyn Backing>);

impl EmbeddedHome {
    /// The index of the store on a device.
    #[must_use]
    pub fn new(backing: Arc<dyn Backing>) -> Self {
        Self(backing)
    }

    fn open_with(&self, options: Options) -> Result<(Arc<dyn Kv>, Recovery), Error> {
        let (engine, recovery) = Embedded::open(Arc::clone(&self.0), options)?;
        Ok((Arc::new(engine), recovery))
    }
}

impl IndexHome for EmbeddedHome {
    fn is_missing(&self) -> bool {
        self.0.list(Path::new(super::embedded::paths::DIR)).is_err()
    }

    fn open(&self, memory: usize) -> Result<(Arc<dyn Kv>, Recovery), Error> {
        self.open_with(Options {
            memory,
            ..Options::default()
        })
    }

    fn open_to_read(&self) -> Result<(Arc<dyn Kv>, Recovery), Error> {
        self.open_with(Options {
            read_only: true,
            ..Options::default()
        })
    }

    fn import(&self, pairs: &mut dyn Iterator<Item = Import>, next: Version) -> Result<(), Error> {
        let pairs = pairs.map(|Import { key, value, .. }| (key, value));
        Embedded::import(&*self.0, pairs, next)
    }
}
