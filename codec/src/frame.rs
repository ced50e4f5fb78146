//! placeholder: interface only

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// File data.
    Data = 1,
    /// A map segment.
    Map = 2,
    /// Index transactions or a dump of them, kept beside the data for disaster recovery.
    Catalog = 3,
}

/// Who a frame belongs to; recorded in the header so that packs describe themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameMeta {
    /// What it holds.
    pub kind: FrameKind,
    /// The inode (0 for a catalogue).
    pub inode: u64,
    /// Offset of the first raw byte in the file.
    pub offset: u64,
    /// Grows with every frame of a store; orders frames of the same range.
    pub sequence: u64,
}
