//! How a file is stored, for reports about it.

use std::collections::BTreeSet;
use std::sync::Arc;

use shale_codec::{FrameSummary, HEADER_LEN, describe_head, parse_header};
use shale_index::Ino;
use shale_index::extent::{Extent, FramePart, Place, TilePart};

use crate::Error;
use crate::file::{File, FileTable};
use crate::frame::while_moved;
use crate::volume::Volume;

/// Bytes of a frame in which its header and directory usually are.
const HEAD: u64 = 4096;
/// Extents of a file, and tiles of an array, that are sampled for its codecs.
const LOOKS: usize = 16;

/// The space of a field of an array of tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldShare {
    /// Its first byte in a record.
    pub at: u64,
    /// Its bytes in each record.
    pub len: u64,
    /// Stored bytes of all its tiles.
    pub stored: u64,
}

/// Inspects how files are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inspector<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) files: &'a FileTable,
}

impl Inspector<'_> {
    /// The transforms and coders of a file's frames, from a sample of them.
    pub(crate) fn codecs(&self, ino: Ino) -> Result<String, Error> {
        while_moved(|| self.codecs_now(ino))
    }

    fn codecs_now(&self, ino: Ino) -> Result<String, Error> {
        let frames = &self.volume.frames;
        let file = self.files.open(ino)?;
        let extents = {
            let mut locked = file.lock(self.volume);
            let size = locked.size;
            locked.extents(0..size)?
        };
        drop(file);
        let extents: Vec<Extent> = extents
            .into_iter()
            .filter(|extent| extent.place != Place::Hole)
            .collect();
        let step = extents.len().div_ceil(LOOKS).max(1);
        let mut parts: Vec<FramePart> = Vec::new();
        for extent in extents.iter().step_by(step) {
            match &extent.place {
                Place::Frame(part) => parts.push(*part),
                Place::Tiles(part) => {
                    let directory = frames.directory(part, ino, extent.offset)?;
                    parts.extend(directory.frames(part).take(LOOKS));
                }
                Place::Hole => {}
            }
        }
        let mut seen = BTreeSet::new();
        let mut frame = Vec::new();
        for part in parts {
            frames.packs.read(&part, &mut frame)?;
            if let Ok(summary) = shale_codec::describe(&frame) {
                let coders: Vec<&str> = summary.coders().collect();
                seen.insert(format!("{}:{}", summary.scheme(), coders.join("+")));
            }
        }
        Ok(seen.into_iter().collect::<Vec<_>>().join(" "))
    }

    /// Stored extents of a file from an offset on ([`crate::Store::extents_from`]).
    pub(crate) fn extents_from(
        &self,
        file: &Arc<File>,
        start: u64,
    ) -> Result<(Vec<Extent>, Option<u64>), Error> {
        self.volume.check()?;
        file.lock(self.volume).extents_from(start)
    }

    /// The fields of the array of tiles behind an extent, and the length of a record of it;
    /// `None` for other extents.
    pub(crate) fn fields(
        &self,
        ino: Ino,
        extent: &Extent,
    ) -> Result<Option<(u64, Vec<FieldShare>)>, Error> {
        let Place::Tiles(part) = &extent.place else {
            return Ok(None);
        };
        let directory = self.volume.frames.directory(part, ino, extent.offset)?;
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

    /// The recipe of the frame that holds byte `offset` of a file, which must be in `extent`.
    pub(crate) fn summary_at(
        &self,
        ino: Ino,
        extent: &Extent,
        offset: u64,
    ) -> Result<FrameSummary, Error> {
        let part = match &extent.place {
            Place::Hole => return Err(Error::NoFrame { ino, offset }),
            Place::Frame(part) => *part,
            Place::Tiles(part) => self.tile_at(ino, extent, part, offset)?,
        };
        let packs = &self.volume.frames.packs;
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
        ino: Ino,
        extent: &Extent,
        part: &TilePart,
        offset: u64,
    ) -> Result<FramePart, Error> {
        let directory = self.volume.frames.directory(part, ino, extent.offset)?;
        let within = offset
            .checked_sub(extent.offset)
            .map(|within| within + part.skip)
            .filter(|&within| within < part.raw_len)
            .ok_or(Error::NoFrame { ino, offset })?;
        let byte = directory.geometry().locate(within);
        Ok(directory.frame(part, byte.tile))
    }
}
