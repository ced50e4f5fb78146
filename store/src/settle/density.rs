//! Whether a denser frame is worth slower reading.
//!
//! The densest frames take three times as long to decode as those that keep up with writing. For an
//! array of known shape both are often within a few percent of each other, and then readers would
//! pay for nothing.

use shale_codec::Effort;

use crate::Error;
use crate::frame::{FrameEncoder, FrameSpec};

/// A denser frame must be smaller by at least one part in this many.
const GAIN: usize = 10;
/// Even if it was never worth it, one tile in this many is tried.
const RARELY: u32 = 8;

/// The results of previous tiles, which are much like the next one.
#[derive(Debug, Default)]
pub(crate) struct DensityChoice {
    /// Tiles from one trial to the next, less one.
    pause: u32,
    /// Tiles until the next trial.
    wait: u32,
}

impl DensityChoice {
    /// Encodes a frame of a tile: with the effort of `spec`, or a faster one when that gains
    /// little.
    pub(crate) fn encode(
        &mut self,
        encoder: &mut FrameEncoder,
        spec: &FrameSpec<'_>,
        sequence: u64,
        raw: &[u8],
    ) -> Result<(), Error> {
        if spec.effort != Effort::Dense {
            return encoder.encode(spec, sequence, raw);
        }
        let with = |effort| FrameSpec { effort, ..*spec };
        encoder.encode(&with(Effort::Fast), sequence, raw)?;
        if !self.is_time() {
            return Ok(());
        }
        let fast = encoder.keep();
        encoder.encode(&with(Effort::Dense), sequence, raw)?;
        let worth = encoder.frame().len() <= fast - fast / GAIN;
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
        let mut choice = DensityChoice::default();
        let mut trials = Vec::new();
        for tile in 0..40 {
            if choice.is_time() {
                trials.push(tile);
                choice.tried(tile == 30);
            }
        }
        assert_eq!(trials, [0, 2, 6, 14, 22, 30, 31, 33, 37]);
    }
}
