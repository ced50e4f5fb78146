//! Evaluates the segments of a journal.
//!
//! The bytes after the last good record, and their meaning:
//!
//! | found | meaning |
//! |---|---|
//! | nothing, or zeros | the end |
//! | a bad record, no good one after it | a torn tail: dropped |
//! | a bad record, good ones after it, none says it was durable | sectors that reached the disk out of order before a crash: all dropped |
//! | a bad record, a later one says it was durable | damage: an error, never a silent loss |
//! | a bad record that the base or snapshot already covers | damage without harm: reported, to be cured by a new snapshot |

use std::collections::VecDeque;
use std::path::PathBuf;

use shale_backing::{Access, Backing};

use super::record::{Piece, RecordKind, pieces};
use super::segment::{self, SegmentHeader, path_of};
use crate::Error;
use crate::engine::embedded::options::Recent;
use crate::engine::embedded::paths::{self, io_error};
use crate::kv::Commit;
use crate::kv::Version;

/// A segment of the chain.
#[derive(Clone, Debug)]
pub(crate) struct ChainLink {
    pub(crate) first: Version,
    pub(crate) header: SegmentHeader,
    /// Records from this version on are overruled by a later segment.
    pub(crate) limit: Version,
    pub(crate) bytes: u64,
}

impl ChainLink {
    pub(crate) fn path(&self) -> PathBuf {
        path_of(self.first)
    }
}

/// The segments of a journal, in order of versions.
#[derive(Clone, Debug, Default)]
pub(crate) struct SegmentChain {
    pub(crate) links: Vec<ChainLink>,
    /// Files that are no longer needed.
    pub(crate) dead: Vec<PathBuf>,
    pub(crate) last_epoch: u64,
}

impl SegmentChain {
    /// Reads the headers of all segments.
    pub(crate) fn load(backing: &dyn Backing) -> Result<Self, Error> {
        let mut chain = Self::default();
        for first in paths::list_numbered(backing, segment::PREFIX)? {
            let path = path_of(first);
            if first == 0 {
                return Err(Error::Corrupt {
                    what: path.display().to_string(),
                    detail: "commits are counted from 1".into(),
                });
            }
            let file = backing
                .open(&path, Access::Read)
                .map_err(io_error("open", &path))?;
            let mut bytes = [0; segment::HEADER];
            let got = file
                .read_at(&mut bytes, 0)
                .map_err(io_error("read", &path))?;
            let header = SegmentHeader::decode(&path, &bytes[..got])?;
            let bytes = file.len().map_err(io_error("measure", &path))?;
            chain.links.push(ChainLink {
                first,
                header,
                limit: Version::MAX,
                bytes,
            });
        }
        chain.last_epoch = chain
            .links
            .iter()
            .map(|link| link.header.epoch)
            .max()
            .unwrap_or(0);
        let all = chain.links.clone();
        for link in &mut chain.links {
            let later = all
                .iter()
                .filter(|other| other.header.epoch > link.header.epoch);
            link.limit = later.map(|other| other.first).min().unwrap_or(Version::MAX);
        }
        let (live, dead) = chain
            .links
            .into_iter()
            .partition(|link| link.first < link.limit);
        chain.links = live;
        chain.dead = dead.iter().map(ChainLink::path).collect();
        Ok(chain)
    }

    /// How many segments at the beginning hold nothing above `version`.
    pub(crate) fn obsolete(&self, version: Version) -> usize {
        self.links
            .windows(2)
            .take_while(|pair| pair[1].first <= version + 1)
            .count()
    }
}

/// The result of a replay.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replay {
    /// The last commit.
    pub(crate) last: Version,
    /// Commits handed out.
    pub(crate) records: u64,
    /// Bytes after the last good record that were dropped.
    pub(crate) torn: u64,
    /// Damage below the requested version: harmless now, fatal for a rebuild.
    pub(crate) damaged_history: Option<String>,
    /// Where the last segment ends, when it ends cleanly.
    pub(crate) clean_end: Option<u64>,
    /// Nothing follows the mark of a clean close.
    pub(crate) closed: bool,
    /// The changes of the last commits, also of those below the requested version.
    pub(crate) recent: Recent,
}

/// Number of commits whose changes are remembered.
const RECENT: usize = 8192;

impl Replay {
    /// Remembers the changes of the last commits of a segment.
    fn remember<'a>(&mut self, commits: impl Iterator<Item = (Version, &'a [u8])>) {
        for (version, body) in commits {
            let Some(commit) = Commit::decode_body(version, body) else {
                continue;
            };
            if self.recent.0.len() == RECENT {
                self.recent.0.pop_front();
            }
            let keys = commit.changes.into_iter().map(|change| change.key);
            self.recent.0.push_back(keys.collect());
        }
    }
}

/// Hands out every commit above `after`, in order.
///
/// `durable` is a version known from elsewhere to have been durable: a journal that ends before it
/// has lost commits.
pub(crate) fn replay(
    backing: &dyn Backing,
    chain: &SegmentChain,
    after: Version,
    durable: Version,
    visit: &mut dyn FnMut(Commit) -> Result<(), Error>,
) -> Result<Replay, Error> {
    let mut state = State {
        replay: Replay::default(),
        next: after + 1,
        after,
        gap: None,
    };
    let links = &chain.links[chain.obsolete(after)..];
    if let Some(link) = links.first() {
        state.next = link.first.min(after + 1);
        if link.first > after + 1 {
            state.gap(link.path(), 0);
            // The segments before it were complete and durable when it began.
            return Err(state.lost(link.first - 1));
        }
    }
    // One buffer for all segments: they are large and the allocator would keep several.
    let mut bytes = Vec::new();
    for (index, link) in links.iter().enumerate() {
        let path = link.path();
        paths::read_into(backing, &path, &mut bytes)?;
        if state.gap.is_none() && link.first != state.next {
            state.skip_to(link.first, &path, 0);
        }
        let mut end = segment::HEADER;
        let mut clean = true;
        let mut tail = VecDeque::new();
        for piece in pieces(link.header.salt, &bytes, segment::HEADER) {
            let record = match piece {
                Piece::Record(record) if record.version < link.limit => record,
                // A later segment decides about the records it overrules.
                Piece::Record(_) => break,
                Piece::Bad { range, blank } => {
                    if !blank {
                        clean = false;
                        state.replay.torn += range.len() as u64;
                    }
                    continue;
                }
            };
            // A mark stands after the commit it names.
            let found = record.version + u64::from(record.kind == RecordKind::Mark);
            if state.gap.is_none() {
                state.skip_to(found, &path, end);
            }
            if let Some(gap) = &state.gap {
                if record.durable >= gap.version {
                    return Err(state.lost(record.durable));
                }
                state.replay.torn += super::record::stored_len(record.body.len()) as u64;
                clean = false;
                continue;
            }
            end = record.offset + super::record::stored_len(record.body.len());
            state.replay.closed = record.kind == RecordKind::Mark;
            if state.replay.closed {
                continue;
            }
            state.next = record.version + 1;
            if tail.len() == RECENT {
                tail.pop_front();
            }
            tail.push_back((record.version, record.body.clone()));
            if record.version > after {
                let commit = Commit::decode_body(record.version, &bytes[record.body.clone()]);
                let commit = commit.ok_or_else(|| Error::Corrupt {
                    what: format!("{} at offset {}", path.display(), record.offset),
                    detail: format!("commit {} does not decode", record.version),
                })?;
                visit(commit)?;
                state.replay.records += 1;
            }
        }
        let last = index + 1 == links.len();
        if !state.replay.closed {
            let tail = tail.into_iter();
            let commits = tail.map(|(version, body)| (version, &bytes[body]));
            state.replay.remember(commits);
        }
        if last && clean && state.gap.is_none() {
            state.replay.clean_end = Some(end as u64);
        }
        if !last && state.gap.is_none() {
            // Bytes after the end of an older segment were overruled or never counted; a missing
            // commit shows in the number of the next one.
            state.replay.torn = 0;
        }
    }
    state.replay.last = state.next - 1;
    if state.replay.last < durable.max(after) {
        if state.gap.is_none() {
            let path = links
                .last()
                .map_or_else(|| paths::path("journal-*"), ChainLink::path);
            state.gap(path, 0);
        }
        return Err(state.lost(durable.max(after)));
    }
    Ok(state.replay)
}

struct Gap {
    version: Version,
    path: PathBuf,
    offset: usize,
}

struct State {
    replay: Replay,
    /// The version the next commit must have.
    next: Version,
    after: Version,
    gap: Option<Gap>,
}

impl State {
    fn gap(&mut self, path: PathBuf, offset: usize) {
        self.gap = Some(Gap {
            version: self.next,
            path,
            offset,
        });
    }

    /// Accepts that the next commit is `found`, or notes that some are missing.
    fn skip_to(&mut self, found: Version, path: &std::path::Path, offset: usize) {
        if found == self.next {
            return;
        }
        if found > self.next && found <= self.after + 1 {
            let lost = format!(
                "commits {} to {} in {} at offset {offset}",
                self.next,
                found - 1,
                path.display()
            );
            self.replay.damaged_history.get_or_insert(lost);
            self.next = found;
            return;
        }
        self.next = self.next.max(self.after + 1);
        self.gap(path.to_path_buf(), offset);
    }

    fn lost(&self, durable: Version) -> Error {
        let (what, version) = match &self.gap {
            Some(gap) => (
                format!("{} at offset {}", gap.path.display(), gap.offset),
                gap.version,
            ),
            None => ("the journal".into(), self.next),
        };
        Error::Corrupt {
            what,
            detail: format!(
                "commit {version} is unreadable although commit {durable} was acknowledged"
            ),
        }
    }
}
