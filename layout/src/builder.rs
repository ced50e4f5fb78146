//! Collects the results of a parser as sorted, disjoint extents.

use crate::error::Error;
use crate::extent::{Content, LayoutExtent};
use crate::format::Format;
use crate::reader::{BudgetedReader, GROWTH};
use crate::variable::Variable;

/// Memory charged for an extent.
const EXTENT_COST: usize = GROWTH * size_of::<LayoutExtent>();

/// The results of a parser besides variables and extents.
pub(crate) struct ParseOutcome {
    pub(crate) format: Option<Format>,
    /// What it left out, if anything.
    pub(crate) problem: Option<Error>,
    /// Whether the result depends on the length of the file.
    pub(crate) follows_len: bool,
    /// Whether the file says that a writer has it open.
    pub(crate) marked_open: bool,
}

/// Collects variables and extents, in any order, trusting none of them.
pub(crate) struct LayoutBuilder {
    pub(crate) variables: Vec<Variable>,
    pub(crate) extents: Vec<LayoutExtent>,
    /// Extents end here at the latest.
    end: u64,
    /// Whether one was truncated.
    pub(crate) truncated: bool,
    /// Number of extents after the last [`LayoutBuilder::normalise`].
    normalised: usize,
}

impl LayoutBuilder {
    pub(crate) fn new(end: u64) -> Self {
        Self {
            variables: Vec::new(),
            extents: Vec::new(),
            end: end.min(i64::MAX as u64),
            truncated: false,
            normalised: 0,
        }
    }

    /// Where extents end at the latest.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Adds a variable; returns its place in the list.
    pub(crate) fn variable(
        &mut self,
        reader: &mut BudgetedReader<'_>,
        variable: Variable,
    ) -> Result<u32, Error> {
        reader.charge(variable.cost())?;
        let number = u32::try_from(self.variables.len()).map_err(|_| Error::Malformed {
            what: "number of variables",
            found: self.variables.len() as u64,
        })?;
        self.variables.push(variable);
        Ok(number)
    }

    /// Adds an extent, truncated to the file.
    pub(crate) fn place(
        &mut self,
        reader: &mut BudgetedReader<'_>,
        mut extent: LayoutExtent,
    ) -> Result<(), Error> {
        let room = self.end.saturating_sub(extent.offset);
        if extent.len > room {
            extent.len = room;
            self.truncated = true;
        }
        if extent.len == 0 {
            return Ok(());
        }
        if let Some(last) = self.extents.last_mut()
            && follows(last, &extent)
        {
            last.len += extent.len;
            return Ok(());
        }
        let cost = cost(&extent);
        if reader.charge(cost).is_err() {
            // Chunks that are not listed in file order may still merge.
            reader.release(cost);
            let before = self.extents.len();
            if before >= self.normalised.saturating_mul(2) {
                self.normalise();
                reader.release((before - self.extents.len()) * EXTENT_COST);
                self.normalised = self.extents.len();
            }
            reader.charge(cost)?;
        }
        self.extents.push(extent);
        Ok(())
    }

    /// Sorts the extents, drops those that overlap an earlier one, and merges neighbours.
    pub(crate) fn normalise(&mut self) {
        self.extents.sort_unstable_by_key(key);
        let mut kept: usize = 0;
        for at in 0..self.extents.len() {
            let previous = kept.checked_sub(1).and_then(|last| self.extents.get(last));
            let Some(extent) = self.extents.get(at) else {
                break;
            };
            match previous {
                Some(previous) if extent.offset < previous.end() => continue,
                Some(previous) if follows(previous, extent) => {
                    let len = extent.len;
                    if let Some(previous) = self.extents.get_mut(kept - 1) {
                        previous.len += len;
                    }
                }
                _ => {
                    self.extents.swap(kept, at);
                    kept += 1;
                }
            }
        }
        self.extents.truncate(kept);
    }

    /// Normalises the extents and releases spare memory.
    pub(crate) fn finish(&mut self) {
        self.normalise();
        self.extents.shrink_to_fit();
        self.variables.shrink_to_fit();
    }
}

fn cost(extent: &LayoutExtent) -> usize {
    EXTENT_COST + extent.fields_memory()
}

/// Order of extents: by place, then by variable, so that which extents are dropped does not
/// depend on the order in which they were found.
fn key(extent: &LayoutExtent) -> (u64, u32, u64, u64) {
    let (variable, number) = match &extent.content {
        Content::Array { variable } => (*variable, 0),
        Content::Chunks {
            variable, first, ..
        } => (*variable, *first),
        Content::Filtered { variable, .. } => (*variable, u64::MAX),
        Content::Records { .. } => (u32::MAX, 0),
    };
    (extent.offset, variable, number, extent.len)
}

/// Whether `next` continues `extent` in the file and in meaning.
fn follows(extent: &LayoutExtent, next: &LayoutExtent) -> bool {
    if extent.end() != next.offset {
        return false;
    }
    match (&extent.content, &next.content) {
        (
            Content::Chunks {
                variable,
                first,
                chunk_len,
            },
            Content::Chunks {
                variable: other,
                first: next_first,
                ..
            },
        ) => {
            variable == other
                && extent.len.is_multiple_of(*chunk_len)
                && first.checked_add(extent.len / chunk_len) == Some(*next_first)
        }
        (
            Content::Filtered { variable, coding },
            Content::Filtered {
                variable: other,
                coding: next_coding,
            },
        ) => variable == other && coding == next_coding,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParseBudget;
    use crate::extent::Coding;

    fn array(offset: u64, len: u64, variable: u32) -> LayoutExtent {
        LayoutExtent {
            offset,
            len,
            content: Content::Array { variable },
        }
    }

    fn chunk(offset: u64, first: u64) -> LayoutExtent {
        LayoutExtent {
            offset,
            len: 10,
            content: Content::Chunks {
                variable: 0,
                first,
                chunk_len: 10,
            },
        }
    }

    fn filtered(offset: u64, len: u64) -> LayoutExtent {
        LayoutExtent {
            offset,
            len,
            content: Content::Filtered {
                variable: 0,
                coding: Coding::Compressed,
            },
        }
    }

    fn built(end: u64, extents: impl Iterator<Item = LayoutExtent>) -> Vec<LayoutExtent> {
        let nothing: &[u8] = &[];
        let mut reader = BudgetedReader::new(&nothing, ParseBudget::default());
        let mut builder = LayoutBuilder::new(end);
        for extent in extents {
            builder.place(&mut reader, extent).unwrap();
        }
        builder.finish();
        builder.extents
    }

    #[test]
    fn what_overlaps_is_dropped_in_whatever_order_it_comes() {
        let extents = [
            array(0, 10, 3),
            array(5, 10, 1),
            array(12, 3, 2),
            array(0, 4, 4),
        ];
        let kept = [array(0, 10, 3), array(12, 3, 2)];
        assert_eq!(built(100, extents.iter().cloned()), kept);
        assert_eq!(built(100, extents.iter().rev().cloned()), kept);
    }

    #[test]
    fn what_is_outside_the_file_is_cut_off() {
        let extents = [array(90, 20, 0), array(100, 5, 1), array(u64::MAX, 5, 2)];
        assert_eq!(built(100, extents.into_iter()), [array(90, 10, 0)]);
    }

    #[test]
    fn chunks_that_follow_each_other_melt() {
        let run = |offset, len, first| LayoutExtent {
            len,
            ..chunk(offset, first)
        };
        let extents = [chunk(30, 7), chunk(0, 4), chunk(10, 5), chunk(20, 9)];
        let kept = [run(0, 20, 4), run(20, 10, 9), run(30, 10, 7)];
        assert_eq!(built(100, extents.into_iter()), kept);
        // Numbers of compressed chunks do not matter.
        let extents = [filtered(50, 7), filtered(0, 50), filtered(60, 1)];
        assert_eq!(
            built(100, extents.into_iter()),
            [filtered(0, 57), filtered(60, 1)]
        );
    }
}
