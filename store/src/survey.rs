//! How a file is stored, for those who report about it.

use std::sync::Arc;

use shale_codec::{FrameSummary, HEADER_LEN, describe_head, parse_header};
use shale_index::extent::{Extent, FramePart, Place, TilePart};

use crate::file::File;
use crate::store::Inner;
use crate::{Error, Store};

/// Bytes of a frame in which its header and directory usually are.
const HEAD: u64 = 4096;

/// What a field of an array of tiles takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldShare {
    /// Its first byte in a record.
    pub at: u64,
    /// Its bytes in each record.
    pub len: u64,
    /// Stored bytes of all its tiles.
    pub stored: u64,
}

impl Store {
    /// Stored extents of a file from an offset on, in order and without holes: some, and where
    /// to go on; `None` at the end. However large the file, one call reads little.
    ///
    /// # Errors
    /// When the map of the file cannot be read.
    pub fn extents_from(
        &self,
        file: &Arc<File>,
        start: u64,
    ) -> Result<(Vec<Extent>, Option<u64>), Error> {
        self.inner.check()?;
        self.inner.extents_from(file, start)
    }

    /// The fields of the array of tiles behind an extent, and the length of a record of it;
    /// `None` for other extents.
    ///
    /// # Errors
    /// When the directory of the array cannot be read.
    pub fn fields(
        &self,
        ino: u64,
        extent: &Extent,
    ) -> Result<Option<(u64, Vec<FieldShare>)>, Error> {
        let Place::Tiles(part) = &extent.place else {
            return Ok(None);
        };
        let directory = self.inner.frames.directory(part, ino, extent.offset)?;
        let geometry = directory.geometry();
        let mut fields: Vec<FieldShare> = geometry
            .fields()
            .iter()
            .map(|field| FieldShare {
                at: field.at,
                len: field.dims.iter().product(),
                stored: 0,
            })
            .collect();
        for number in 0..geometry.tiles() {
            let (field, _, _) = geometry.tile(number);
            if let Some(field) = fields.get_mut(field) {
                field.stored += u64::from(directory.frame(part, number).frame_len);
            }
        }
        Ok(Some((geometry.record(), fields)))
    }

    /// How the frame is made that holds byte `offset` of a file, which must be in `extent`.
    ///
    /// # Errors
    /// When the frame cannot be read.
    pub fn summary_at(
        &self,
        ino: u64,
        extent: &Extent,
        offset: u64,
    ) -> Result<FrameSummary, Error> {
        let part = match &extent.place {
            Place::Hole => return Err(Error::Refused(libc::EINVAL)),
            Place::Frame(part) => *part,
            Place::Tiles(part) => self.tile_at(ino, extent, part, offset)?,
        };
        let packs = &self.inner.frames.packs;
        let mut head = Vec::new();
        let mut len = HEAD.min(u64::from(part.frame_len));
        packs.read_at(part.pack, part.at, len, &mut head)?;
        let damaged = |e: shale_codec::Error| Error::Damaged {
            ino,
            offset,
            pack: part.pack,
            at: part.at,
            detail: e.to_string(),
        };
        let header = parse_header(&head).map_err(damaged)?;
        let needed = HEADER_LEN as u64 + u64::from(header.directory_len);
        if needed > len {
            len = needed.min(u64::from(part.frame_len));
            packs.read_at(part.pack, part.at, len, &mut head)?;
        }
        describe_head(&head).map_err(damaged)
    }

    fn tile_at(
        &self,
        ino: u64,
        extent: &Extent,
        part: &TilePart,
        offset: u64,
    ) -> Result<FramePart, Error> {
        let directory = self.inner.frames.directory(part, ino, extent.offset)?;
        let within = offset
            .checked_sub(extent.offset)
            .map(|within| within + part.skip)
            .filter(|&within| within < part.raw_len)
            .ok_or(Error::Refused(libc::EINVAL))?;
        let spot = directory.geometry().locate(within);
        Ok(directory.frame(part, spot.tile))
    }
}

impl Inner {
    /// As [`Store::extents_from`].
    pub(crate) fn extents_from(
        &self,
        file: &File,
        start: u64,
    ) -> Result<(Vec<Extent>, Option<u64>), Error> {
        let mut state = file.state.lock();
        let size = state.size;
        if start >= size {
            return Ok((Vec::new(), None));
        }
        self.load_map(file, &mut state)?;
        let Some(map) = state.map.as_mut() else {
            return Err(Error::Poisoned);
        };
        let end = map.leaf_after(start).unwrap_or(size).min(size);
        let mut extents = map.range(&self.frames, start, end)?;
        extents.retain(|extent| extent.place != Place::Hole);
        Ok((extents, (end < size).then_some(end)))
    }
}
