//! Whether a denser frame is worth reading it more slowly.
//!
//! The densest frames take three times as long to decode as those that keep up with writing. For
//! an array whose shape is known both are often within a few percent of each other, and then
//! whoever reads it would pay for nothing.

use shale_codec::{Effort, FrameMeta, Hint};

use crate::Error;
use crate::frames::FrameEncoder;

/// A denser frame must be at least one part in so many smaller.
const GAIN: usize = 10;
/// However often it has not been worth it, one tile in so many is tried.
const RARELY: u32 = 8;

/// How it went with the tiles before, which are much like the next one.
#[derive(Debug, Default)]
pub(crate) struct Worth {
    /// Tiles from one trial to the next, less one.
    pause: u32,
    /// Tiles until the next trial.
    wait: u32,
}

impl Worth {
    /// Makes a frame of a tile: with `effort`, or a faster one when `effort` gains little.
    pub(crate) fn encode(
        &mut self,
        encoder: &mut FrameEncoder,
        meta: &FrameMeta,
        hint: &Hint<'_>,
        effort: Effort,
        raw: &[u8],
    ) -> Result<(), Error> {
        if effort != Effort::Dense {
            return encoder.encode(meta, hint, effort, raw);
        }
        encoder.encode(meta, hint, Effort::Fast, raw)?;
        if !self.is_time() {
            return Ok(());
        }
        let fast = encoder.keep();
        encoder.encode(meta, hint, Effort::Dense, raw)?;
        let worth = encoder.len() <= fast - fast / GAIN;
        if !worth {
            encoder.bring_back();
        }
        self.tried(worth);
        Ok(())
    }

    fn is_time(&mut self) -> bool {
        match self.wait.checked_sub(1) {
            Some(wait) => {
                self.wait = wait;
                false
            }
            None => true,
        }
    }

    fn tried(&mut self, worth: bool) {
        self.pause = if worth {
            0
        } else {
            (self.pause * 2 + 1).min(RARELY - 1)
        };
        self.wait = self.pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_worth_it_is_tried_less_and_less_but_never_given_up() {
        let mut worth = Worth::default();
        let mut trials = Vec::new();
        for tile in 0..40 {
            if worth.is_time() {
                trials.push(tile);
                worth.tried(tile == 30);
            }
        }
        assert_eq!(trials, [0, 2, 6, 14, 22, 30, 31, 33, 37]);
    }
}
