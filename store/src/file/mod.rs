//! Files in use: their unwritten bytes, their maps, and the table of them.
//!
//! Only this room locks the state of a file. The others do so through [`LockedFile`].

mod chunk;
mod cursor;
mod damage;
mod dirty;
mod hints;
mod locked;
mod lost;
mod shared;
mod state;
mod table;
mod traffic;
mod usage;

pub(crate) use chunk::{Flushed, Frozen};
pub use damage::Damage;
pub(crate) use dirty::is_stream;
pub(crate) use hints::spans;
pub use hints::{Element, HintSpan, LayoutHints};
pub(crate) use locked::{LockedFile, Replacement};
pub(crate) use shared::hole;
pub use state::{Failure, File};
pub use table::CurrentInode;
pub(crate) use table::{FileRef, FileTable};
pub(crate) use traffic::FileTraffic;
pub use usage::Usage;
