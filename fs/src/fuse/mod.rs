//! The FUSE wire: requests become operations, results become replies.
//!
//! Only this room names `fuser`. It decides nothing about contents or durability.
//!
//! ```text
//! adapter    one method for each request: decode, call, reply
//! convert    types of the wire to those of the file system and back
//! reply      runs an operation, counts it, replies
//! coherence  what the kernel may cache, and how a cache is invalidated
//! admission  makes the kernel ask before its cache accepts a write, while room is short
//! handles    open files by the number that the kernel knows
//! threads    threads for requests that wait for the device
//! session    mounts, serves, ends
//! unmount    unmounts, as root or through fusermount3
//! ```

mod adapter;
mod admission;
mod coherence;
mod convert;
mod handles;
mod reply;
mod session;
mod threads;
mod unmount;

pub use session::{Mounted, mount};
pub use unmount::Unmounter;
