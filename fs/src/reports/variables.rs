//! The space of each variable of a file in the store.
//!
//! The report is an attribute, whose value can be 64 KiB, so it comes in pages. A page is text:
//!
//! ```text
//! vars=1 <tab> id=ID <tab> variables=N <tab> from=F <tab> next=G or next=- <tab>
//!     rest_raw=BYTES <tab> rest_stored=BYTES <tab> complete=yes or no <tab> format=NAME
//! name <tab> type <tab> shape <tab> raw <tab> stored <tab> transforms, separated by ';'
//! ...
//! ```
//! The header is one line. Names are escaped as in C (`\t`, `\n`, `\\`, `\xNN`). Pages of one id
//! belong together. The rest is what belongs to no variable.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use parking_lot::Mutex;
use shale_index::Ino;
use shale_index::extent::{Extent, Place};
use shale_layout::{Layout, dimensions};
use shale_store::{FieldShare, File, Store};

use crate::Error;
use crate::layout::Source;

/// Largest page. An attribute can have 64 KiB.
const PAGE: usize = 60 << 10;
/// Longest name in the report, in bytes.
const NAME_MAX: usize = 1024;
/// Frames whose encoding is looked up, in all and for one variable.
const LOOKS: usize = 256;
const LOOKS_EACH: usize = 4;
/// Most extents and fields that are counted; enough for some terabytes.
const STEPS: u64 = 20_000_000;
/// Cost of loading the directory of an array, in steps.
const DIRECTORY_STEPS: u64 = 1000;

/// The last report. Its pages are asked for one after the other.
#[derive(Debug, Default)]
pub(crate) struct VariableReports {
    last: Mutex<Option<Arc<VariableReport>>>,
    /// Locked during a report. Only one runs at a time: it reads as much of a file as a program
    /// would.
    making: Mutex<()>,
}

#[derive(Debug)]
struct VariableReport {
    ino: Ino,
    id: u64,
    format: &'static str,
    rows: Vec<Row>,
    rest: Row,
    complete: bool,
}

#[derive(Clone, Debug, Default)]
struct Row {
    /// Name, type and shape as they are sent.
    head: String,
    raw: u64,
    stored: u64,
    transforms: Vec<String>,
    /// Extents that hold bytes of it, and for some of them the offset of such a byte.
    seen: u64,
    looks: Vec<(Extent, u64)>,
}

impl Row {
    /// Remembers some of the extents that hold the variable, spread over the file.
    fn notice(&mut self, extent: &Extent, at: impl FnOnce() -> u64) {
        self.seen += 1;
        if self.looks.len() < LOOKS_EACH {
            self.looks.push((*extent, at()));
        } else if self.seen.is_power_of_two() {
            let slot = self.seen.trailing_zeros() as usize % LOOKS_EACH;
            self.looks[slot] = (*extent, at());
        }
    }
}

impl VariableReports {
    /// A page of the report about the variables of a file, from a variable on.
    ///
    /// # Errors
    /// `EAGAIN` while another such report is being made, or when the store fails.
    pub(crate) fn page(&self, store: &Store, ino: Ino, from: usize) -> Result<Vec<u8>, Error> {
        let inode = store.stat(ino)?.inode;
        if !inode.is_file() {
            return Err(Error::NoAttribute);
        }
        let mut hasher = DefaultHasher::new();
        let times = (
            inode.mtime.secs,
            inode.mtime.nanos,
            inode.ctime.secs,
            inode.ctime.nanos,
        );
        (ino, inode.size, inode.stored, times, inode.phase).hash(&mut hasher);
        let id = hasher.finish();
        let known = |report: &Arc<VariableReport>| report.ino == ino && report.id == id;
        let last = self.last.lock().clone().filter(known);
        let report = match last {
            Some(report) => report,
            None => {
                let Some(_making) = self.making.try_lock() else {
                    return Err(Error::ReportBusy);
                };
                let file = store.file(ino)?;
                let report = make_report(store, &file, id);
                store.close(file);
                let report = Arc::new(report?);
                *self.last.lock() = Some(Arc::clone(&report));
                report
            }
        };
        if from > report.rows.len() {
            return Err(Error::NoAttribute);
        }
        Ok(report.page(from).into_bytes())
    }
}

fn make_report(store: &Store, file: &Arc<File>, id: u64) -> Result<VariableReport, Error> {
    let source = Source::new(store, file);
    let layout = shale_layout::parse(&source, &shale_layout::ParseOptions::default());
    let mut report = VariableReport {
        ino: file.ino(),
        id,
        format: layout.format().map_or("unknown", |format| format.name()),
        rows: layout
            .variables()
            .iter()
            .map(|variable| Row {
                head: format!(
                    "{}\t{}\t{}",
                    escape(&variable.path),
                    variable.element.name(),
                    dimensions(&variable.shape)
                ),
                ..Row::default()
            })
            .collect(),
        rest: Row::default(),
        complete: layout.problem().is_none(),
    };
    layout.shares(0..file.size(), |variable, bytes| {
        report.row(variable).raw += bytes;
    });
    count_stored(store, file, &layout, &mut report)?;
    look(store, &mut report)?;
    Ok(report)
}

fn count_stored(
    store: &Store,
    file: &Arc<File>,
    layout: &Layout,
    report: &mut VariableReport,
) -> Result<(), Error> {
    let mut steps = 0;
    let mut next = Some(0);
    while let Some(start) = next {
        let (extents, behind) = store.extents_from(file, start)?;
        for extent in &extents {
            if steps > STEPS {
                report.complete = false;
                return Ok(());
            }
            let mut shares: Vec<(Option<u32>, u64)> = Vec::new();
            steps += layout.shares(extent.offset..extent.end(), |variable, bytes| {
                shares.push((variable, bytes));
            });
            let tiles = matches!(extent.place, Place::Tiles(_)) && shares.len() > 1;
            match tiles
                .then(|| store.fields(file.ino(), extent))
                .transpose()?
            {
                Some(Some((record, fields))) => {
                    steps += DIRECTORY_STEPS;
                    report.share_fields(layout, extent, record, &fields);
                }
                _ => report.share(layout, extent, &shares),
            }
        }
        next = behind;
    }
    Ok(())
}

/// Looks up how some frames of each variable are encoded.
fn look(store: &Store, report: &mut VariableReport) -> Result<(), Error> {
    let each = (LOOKS / report.rows.len().max(1)).clamp(1, LOOKS_EACH);
    let mut left = LOOKS;
    for row in &mut report.rows {
        for (extent, at) in row.looks.drain(..).take(each) {
            if left == 0 {
                return Ok(());
            }
            left -= 1;
            let summary = store.summary_at(report.ino, &extent, at);
            match summary.map_err(Error::from) {
                Ok(summary) => {
                    let text = summary.to_string();
                    if !row.transforms.contains(&text) {
                        row.transforms.push(text);
                    }
                }
                // Collected meanwhile, or damaged, which a reader reports.
                Err(e) if e.is_unreadable() => {}
                Err(e) => return Err(e),
            }
        }
    }
    Ok(())
}

impl VariableReport {
    fn row(&mut self, variable: Option<u32>) -> &mut Row {
        match variable.and_then(|number| self.rows.get_mut(number as usize)) {
            Some(row) => row,
            None => &mut self.rest,
        }
    }

    /// Distributes the stored bytes of an extent by raw bytes.
    fn share(&mut self, layout: &Layout, extent: &Extent, shares: &[(Option<u32>, u64)]) {
        let weights = shares.iter().map(|&(variable, raw)| (variable, raw as f64));
        self.divide(extent.stored(), weights);
        let most = shares.iter().max_by_key(|(_, raw)| *raw);
        if let Some(&(Some(variable), _)) = most {
            let at = || first_byte(layout, extent, variable);
            self.row(Some(variable)).notice(extent, at);
        }
    }

    /// Distributes the stored bytes of an array of tiles by the stored bytes of each field's tiles.
    fn share_fields(
        &mut self,
        layout: &Layout,
        extent: &Extent,
        record: u64,
        fields: &[FieldShare],
    ) {
        let Place::Tiles(part) = &extent.place else {
            return;
        };
        let begin = extent.offset - part.skip;
        let mut weights = Vec::with_capacity(fields.len());
        for field in fields {
            // The cut into fields follows the variables: a field lies in one, or in none.
            let mut owner = None;
            let from = begin + field.at;
            layout.shares(from..from + 1, |variable, _| owner = variable);
            weights.push((owner, field.stored as f64));
            // The extent may begin inside the first record.
            let at = if from >= extent.offset {
                from
            } else {
                from + record
            };
            if owner.is_some() && at < extent.end() {
                self.row(owner).notice(extent, || at);
            }
        }
        self.divide(extent.stored(), weights.into_iter());
    }

    /// Divides `stored` by weight, so that the parts add up to it.
    fn divide(&mut self, stored: u64, weights: impl Iterator<Item = (Option<u32>, f64)> + Clone) {
        let all: f64 = weights.clone().map(|(_, weight)| weight).sum();
        let (mut done, mut sum) = (0, 0.0);
        for (variable, weight) in weights {
            sum += weight;
            let upto = if all > 0.0 {
                ((sum / all * stored as f64).round() as u64).min(stored)
            } else {
                0
            };
            self.row(variable).stored += upto.saturating_sub(done);
            done = done.max(upto);
        }
        self.rest.stored += stored - done;
    }

    fn page(&self, from: usize) -> String {
        let mut lines = String::new();
        let mut next = from;
        for row in self.rows.get(from..).unwrap_or_default() {
            let line = format!(
                "{}\t{}\t{}\t{}\n",
                row.head,
                row.raw,
                row.stored,
                row.transforms.join(";")
            );
            if lines.len() + line.len() > PAGE {
                break;
            }
            lines.push_str(&line);
            next += 1;
        }
        let next = if next < self.rows.len() {
            next.to_string()
        } else {
            "-".to_owned()
        };
        let complete = if self.complete { "yes" } else { "no" };
        format!(
            "vars=1\tid={:016x}\tvariables={}\tfrom={from}\tnext={next}\trest_raw={}\t\
             rest_stored={}\tcomplete={complete}\tformat={}\n{lines}",
            self.id,
            self.rows.len(),
            self.rest.raw,
            self.rest.stored,
            self.format
        )
    }
}

/// A byte of a variable within an extent.
fn first_byte(layout: &Layout, extent: &Extent, variable: u32) -> u64 {
    /// The variable has the most bytes there, so it comes up soon.
    const PIECES: usize = 1024;
    layout
        .pieces(extent.offset..extent.end())
        .take(PIECES)
        .find(|piece| {
            let mut owner = None;
            layout.shares(piece.offset..piece.offset + 1, |found, _| owner = found);
            owner == Some(variable)
        })
        .map_or(extent.offset, |piece| piece.offset)
}

/// Names come from the file. They must not break lines, and have a bounded length.
fn escape(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        match letter {
            '\t' => text.push_str("\\t"),
            '\n' => text.push_str("\\n"),
            '\\' => text.push_str("\\\\"),
            letter if letter.is_control() => {
                let _ = write!(text, "\\x{:02x}", u32::from(letter));
            }
            letter => text.push(letter),
        }
        if text.len() > NAME_MAX {
            text.push('…');
            break;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rows: usize) -> VariableReport {
        VariableReport {
            ino: 1,
            id: 7,
            format: "HDF5",
            rows: (0..rows)
                .map(|number| Row {
                    head: format!("name{number}\tfloat32\t10x10"),
                    raw: 400,
                    ..Row::default()
                })
                .collect(),
            rest: Row::default(),
            complete: true,
        }
    }

    #[test]
    fn parts_add_up_however_they_are_weighed() {
        let mut report = report(3);
        report.divide(
            1001,
            [(Some(0), 1.0), (Some(1), 1.0), (None, 1.0)].into_iter(),
        );
        report.divide(10, [(Some(2), 0.0)].into_iter());
        report.divide(5, std::iter::empty());
        let stored: Vec<u64> = report.rows.iter().map(|row| row.stored).collect();
        assert_eq!(stored, [334, 333, 0]);
        assert_eq!(report.rest.stored, 334 + 10 + 5);
    }

    #[test]
    fn pages_hold_every_variable_once_and_fit_into_an_attribute() {
        let report = report(10_000);
        let (mut from, mut names) = (0, Vec::new());
        loop {
            let page = report.page(from);
            assert!(page.len() < 64 << 10, "{}", page.len());
            let (head, lines) = page.split_once('\n').unwrap();
            names.extend(
                lines
                    .lines()
                    .map(|line| line.split('\t').next().unwrap().to_owned()),
            );
            let next = head.split('\t').find_map(|word| word.strip_prefix("next="));
            match next.unwrap() {
                "-" => break,
                next => from = next.parse().unwrap(),
            }
        }
        let expected: Vec<String> = (0..10_000).map(|number| format!("name{number}")).collect();
        assert_eq!(names, expected);
    }

    #[test]
    fn names_cannot_break_a_line() {
        assert_eq!(escape("a\tb\nc\\d\u{1b}e"), "a\\tb\\nc\\\\d\\x1be");
        assert!(escape(&"x".repeat(1 << 20)).len() < NAME_MAX + 8);
    }
}
