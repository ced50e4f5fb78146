//! Getting data out: a tree of any [source](source::Source) is copied to an ordinary directory.
//!
//! ```text
//! source     what is copied          mounted   files below a mount
//!                                    stored    a store that is not mounted
//! tree       walks, and decides for each name: copy, link, leave, refuse
//! copy       the contents of one file: temporary name, compare, rename
//! attributes owner, permissions, extended attributes, times
//! ```

pub(crate) mod attributes;
pub(crate) mod copy;
pub(crate) mod mounted;
pub(crate) mod source;
pub(crate) mod stored;
pub(crate) mod tree;
