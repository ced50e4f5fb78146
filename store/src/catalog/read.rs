//! Reading a catalog.

use std::collections::BTreeMap;

use shale_backing::{Access, Backing, BackingFile};
use shale_codec::{Decoder, FrameHeader};
use shale_index::encoding::decode_commit;
use shale_index::kv::{Version, Versioned};

use super::{DUMP, DUMP_END, IDENTITY, LACKING, LogFile, UNSYNCED, list, path};
use crate::Error;
use crate::pack::{Scanned, scan_from};

const IDENTITY_LEN: usize = 24;

pub(super) fn encode_identity(store_id: [u8; 16], number: u64) -> [u8; IDENTITY_LEN] {
    let mut raw = [0; IDENTITY_LEN];
    raw[..16].copy_from_slice(&store_id);
    raw[16..].copy_from_slice(&number.to_le_bytes());
    raw
}

/// Whose file it is, by its beginning.
enum Owner {
    Own,
    /// Another file of the same store.
    Misplaced(u64),
    Foreign,
    Unknown,
}

fn owner(raw: &[u8], store_id: [u8; 16], number: u64) -> Owner {
    match raw.split_first_chunk::<16>() {
        Some((id, rest)) => match rest.try_into().map(u64::from_le_bytes) {
            _ if *id != store_id => Owner::Foreign,
            Ok(says) if says == number => Owner::Own,
            Ok(says) => Owner::Misplaced(says),
            Err(_) => Owner::Unknown,
        },
        None => Owner::Unknown,
    }
}

/// The contents of a frame, if it is sound.
fn read_frame(file: &dyn BackingFile, at: u64, len: u32) -> Option<Vec<u8>> {
    let mut frame = vec![0; len as usize];
    let mut raw = Vec::new();
    file.read_exact_at(&mut frame, at).ok()?;
    Decoder::new().decode(&frame, &mut raw).ok()?;
    Some(raw)
}

/// The state of a catalog, as far as the headers of its frames and its end show.
#[derive(Debug)]
pub(super) struct Survey {
    /// It has to be replaced: a part of it is damaged, missing or foreign.
    pub(super) lacking: bool,
    /// The newest version in it.
    pub(super) newest: Version,
    /// Where the last good frame of the last file ends, if the file can be continued.
    pub(super) end: Option<u64>,
}

/// Inspects a catalog.
pub(super) fn survey(
    backing: &dyn Backing,
    store_id: [u8; 16],
    files: &[LogFile],
) -> Result<Survey, Error> {
    let last = files.last().map(|file| file.number);
    let mut survey = Survey {
        lacking: true,
        newest: 0,
        end: None,
    };
    for &LogFile { number, len } in files {
        let path = path(number);
        let file = backing
            .open(&path, Access::Read)
            .map_err(Error::io("open", &path))?;
        let mut frames = Vec::new();
        let mut gap = false;
        scan_from(&*file, 0, |found| match found {
            Scanned::Frame { at, header } => frames.push((at, header)),
            Scanned::Gap { .. } => gap = true,
        })
        .map_err(Error::io("read", &path))?;
        let mut own = frames
            .first()
            .is_some_and(|(_, header)| header.meta.offset == IDENTITY);
        let mut whole = true;
        let mut end = 0;
        for (at, header) in frames {
            let sequence = header.meta.sequence;
            let holds = header.meta.offset;
            let fresh = last == Some(number) && at + UNSYNCED >= len;
            if holds == IDENTITY {
                let raw = read_frame(&*file, at, header.frame_len).unwrap_or_default();
                own &= matches!(owner(&raw, store_id, number), Owner::Own);
                survey.lacking |= survey.newest < sequence;
            } else if fresh && read_frame(&*file, at, header.frame_len).is_none() {
                whole = false;
                continue;
            } else {
                survey.newest = survey.newest.max(sequence);
                match holds {
                    DUMP_END => survey.lacking = false,
                    LACKING => survey.lacking = true,
                    _ => {}
                }
            }
            end = at + u64::from(header.frame_len);
        }
        survey.lacking |= gap || !own || !whole;
        survey.end = own.then_some(end);
    }
    Ok(survey)
}

/// Facts about a catalog that are known before it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// The store it belongs to.
    pub(crate) store_id: [u8; 16],
    /// The newest version of the index, if that was closed cleanly.
    pub(crate) version: Option<Version>,
}

/// The contents of a catalog.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    /// Live keys.
    pub(crate) pairs: BTreeMap<Vec<u8>, Versioned>,
    /// The version after the newest one seen.
    pub(crate) next: Version,
    /// Whether a complete dump was found below the log.
    pub(crate) complete: bool,
    /// Parts that are damaged, missing or foreign.
    pub(crate) damaged: Vec<String>,
    /// The same where a crash explains it, and where the log records it.
    pub(crate) torn: Vec<String>,
}

/// The last section that a key was found in, with its version and value there.
#[derive(Debug)]
struct Slot {
    section: u64,
    version: Version,
    value: Option<Versioned>,
}

type Slots = BTreeMap<Vec<u8>, Slot>;

/// An unreadable part, and its readable surroundings.
struct Hole {
    what: String,
    /// The number of its file.
    inside: u64,
    /// The newest version before it.
    before: Version,
    /// The version of the next frame in the file.
    after: Option<Version>,
    /// It lies where a session that crashed may not have synced.
    late: bool,
}

impl Hole {
    /// Whether it was written before everything up to a version was durable.
    fn precedes(&self, durable: Version) -> bool {
        self.after
            .map_or(self.before < durable, |after| after <= durable)
    }
}

/// The section that is being read.
#[derive(Clone, Copy, Debug, Default)]
struct Section {
    number: u64,
    /// There is a dump in it.
    dump: bool,
    /// A part of it could not be read.
    hole: bool,
}

struct Reading {
    expected: Expected,
    recovered: Recovered,
    slots: Slots,
    newest: Version,
    /// The number of the file that is being read.
    inside: u64,
    section: Section,
    /// How much was damaged and torn in the sections before this one.
    older: (usize, usize),
    /// Holes that a crash may or may not explain.
    holes: Vec<Hole>,
    /// Files that do not belong to this catalog, or are not in their place; no crash does that.
    misplaced: Vec<String>,
    /// The log records that commits are missing.
    admitted: bool,
}

/// Reads the catalog of a store.
pub(crate) fn recover(backing: &dyn Backing, expected: Expected) -> Result<Recovered, Error> {
    let mut reading = Reading {
        expected,
        recovered: Recovered {
            next: 1,
            ..Recovered::default()
        },
        slots: BTreeMap::new(),
        newest: 0,
        inside: 0,
        section: Section::default(),
        older: (0, 0),
        holes: Vec::new(),
        misplaced: Vec::new(),
        admitted: false,
    };
    for LogFile { number, .. } in list(backing)? {
        reading.read(backing, number)?;
    }
    Ok(reading.finish())
}

impl Reading {
    fn read(&mut self, backing: &dyn Backing, number: u64) -> Result<(), Error> {
        let path = path(number);
        let file = backing
            .open(&path, Access::Read)
            .map_err(Error::io("open", &path))?;
        let whole = file.len().map_err(Error::io("measure", &path))?;
        let mut pieces = Vec::new();
        scan_from(&*file, 0, |found| pieces.push(found)).map_err(Error::io("read", &path))?;
        let name = path.display();
        self.inside = number;
        self.begin();
        for (index, piece) in pieces.into_iter().enumerate() {
            let (at, header) = match piece {
                Scanned::Gap { at, len } => {
                    let late = at + len == whole || at + UNSYNCED >= whole;
                    self.hole(format!("{name}: {len} bytes at {at}"), late);
                    continue;
                }
                Scanned::Frame { at, header } => (at, header),
            };
            let sequence = header.meta.sequence;
            // The identity carries a version of the files before.
            if header.meta.offset != IDENTITY {
                for hole in self.holes.iter_mut().filter(|hole| hole.inside == number) {
                    hole.after.get_or_insert(sequence);
                }
            }
            let raw = read_frame(&*file, at, header.frame_len);
            if header.meta.offset == IDENTITY {
                let name = name.to_string();
                match raw.map(|raw| owner(&raw, self.expected.store_id, number)) {
                    Some(Owner::Own) => self.continues(&name, sequence),
                    Some(Owner::Foreign) => {
                        let what = format!("{name} belongs to another store");
                        self.misplaced.push(what);
                        if index == 0 {
                            return Ok(());
                        }
                    }
                    Some(Owner::Misplaced(says)) => {
                        self.continues(&name, sequence);
                        let says = super::path(says);
                        let what = format!("{name} says it is {}", says.display());
                        self.misplaced.push(what);
                    }
                    Some(Owner::Unknown) | None => {
                        self.hole(format!("{name}: frame at {at}"), whole <= UNSYNCED);
                    }
                }
                continue;
            }
            if index == 0 {
                let what = format!("{name} does not say which store it belongs to");
                self.misplaced.push(what);
            }
            let section = self.section.number;
            if raw.is_some_and(|raw| replay(&raw, section, &mut self.slots)) {
                self.take(&header);
            } else {
                let late = at + UNSYNCED >= whole;
                self.hole(format!("{name}: frame at {at}"), late);
            }
        }
        Ok(())
    }

    fn hole(&mut self, what: String, late: bool) {
        self.section.hole = true;
        self.holes.push(Hole {
            what,
            inside: self.inside,
            before: self.newest,
            after: None,
            late,
        });
    }

    /// Begins a section, which says up to which version everything before it is durable.
    fn continues(&mut self, name: &str, durable: Version) {
        self.judge(durable);
        if self.newest < durable {
            self.recovered.damaged.push(format!(
                "before {name} the versions from {} to {durable} are missing",
                self.newest + 1
            ));
        }
        self.begin();
    }

    fn begin(&mut self) {
        self.section = Section {
            number: self.section.number + 1,
            ..Section::default()
        };
        self.set_apart();
    }

    /// Everything found so far is wrong before the part that is read next.
    fn set_apart(&mut self) {
        self.older = (self.recovered.damaged.len(), self.recovered.torn.len());
    }

    /// Everything up to a version was durable once: no crash explains what is missing there.
    fn judge(&mut self, durable: Version) {
        for hole in std::mem::take(&mut self.holes) {
            if hole.precedes(durable) {
                self.recovered.damaged.push(hole.what);
            } else {
                self.recovered.torn.push(hole.what);
            }
        }
    }

    fn take(&mut self, header: &FrameHeader) {
        self.newest = self.newest.max(header.meta.sequence);
        match header.meta.offset {
            DUMP => self.section.dump = true,
            DUMP_END => {
                // This section is complete, whatever was before.
                let Section { number, dump, hole } = self.section;
                if dump && !hole {
                    self.slots.retain(|_, slot| slot.section == number);
                }
                let (damaged, torn) = self.older;
                self.recovered.damaged.drain(..damaged);
                self.recovered.torn.drain(..torn);
                self.recovered.complete = true;
                self.admitted = false;
                self.older = (0, 0);
            }
            LACKING => {
                let recovered = &mut self.recovered;
                recovered.complete = false;
                recovered.torn.append(&mut recovered.damaged);
                let holes = self.holes.drain(..);
                recovered.torn.extend(holes.map(|hole| hole.what));
                self.admitted = true;
                self.set_apart();
            }
            _ => {}
        }
    }

    fn finish(mut self) -> Recovered {
        if let Some(version) = self.expected.version {
            self.judge(version);
            if self.newest < version {
                self.recovered.damaged.push(format!(
                    "it ends with version {}, the index with {version}",
                    self.newest
                ));
            } else if !self.recovered.complete && !self.admitted && version > 0 {
                let what = "it holds no complete dump".to_owned();
                self.recovered.damaged.push(what);
            }
        }
        let mut recovered = self.recovered;
        recovered.damaged.append(&mut self.misplaced);
        for hole in self.holes {
            if hole.late {
                recovered.torn.push(hole.what);
            } else {
                recovered.damaged.push(hole.what);
            }
        }
        recovered.next = self.newest.saturating_add(1);
        recovered.pairs = self
            .slots
            .into_iter()
            .filter_map(|(key, slot)| Some((key, slot.value?)))
            .collect();
        recovered
    }
}

fn replay(mut raw: &[u8], section: u64, slots: &mut Slots) -> bool {
    while let Some((len, rest)) = raw.split_first_chunk::<4>() {
        let Some((bytes, rest)) = rest.split_at_checked(u32::from_le_bytes(*len) as usize) else {
            return false;
        };
        let Ok(commit) = decode_commit(bytes) else {
            return false;
        };
        for change in commit.changes {
            // Keys under a lease end with the process that held it.
            let value = change.value.filter(|_| !change.leased);
            let found = Slot {
                section,
                version: commit.version,
                value,
            };
            match slots.get_mut(&change.key) {
                Some(slot) if (slot.section, slot.version) > (section, commit.version) => {}
                Some(slot) => *slot = found,
                None => drop(slots.insert(change.key, found)),
            }
        }
        raw = rest;
    }
    raw.is_empty()
}
