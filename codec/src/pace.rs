//! The densest effort that keeps up.
#![forbid(unsafe_code)]

use std::time::Duration;

use crate::Effort;

/// From dense to quick.
const LADDER: [Effort; 4] = [Effort::Dense, Effort::Balanced, Effort::Fast, Effort::None];

/// What to expect before anything has been measured, in bytes per second.
const EXPECTED: [f64; 4] = [80e6, 180e6, 600e6, 5e9];

/// How fast each effort has been lately.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    speeds: [f64; 4],
}

impl Pace {
    pub(crate) fn new() -> Self {
        Pace { speeds: EXPECTED }
    }

    /// The densest effort that has kept `floor` bytes per second; the quickest if none has.
    pub(crate) fn choose(&self, floor: f64) -> Effort {
        LADDER
            .into_iter()
            .zip(self.speeds)
            .find(|(_, speed)| *speed >= floor)
            .map_or(Effort::None, |(effort, _)| effort)
    }

    /// Notes a measurement. The other efforts drift back to what is expected
    /// of them, so that one bad stretch does not rule them out for good.
    pub(crate) fn note(&mut self, effort: Effort, bytes: usize, spent: Duration) {
        let speed = bytes as f64 / spent.as_secs_f64().max(1e-9);
        for ((rung, known), expected) in LADDER.into_iter().zip(&mut self.speeds).zip(EXPECTED) {
            *known = if rung == effort {
                *known * 0.75 + speed * 0.25
            } else {
                *known * 0.99 + expected * 0.01
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_down_under_pressure_and_comes_back() {
        let mut pace = Pace::new();
        assert_eq!(pace.choose(50e6), Effort::Dense);
        assert_eq!(pace.choose(300e6), Effort::Fast);
        assert_eq!(pace.choose(1e12), Effort::None);
        for _ in 0..20 {
            pace.note(Effort::Fast, 1 << 20, Duration::from_millis(10));
        }
        assert_eq!(pace.choose(300e6), Effort::None);
        for _ in 0..300 {
            pace.note(Effort::None, 1 << 20, Duration::from_micros(200));
        }
        assert_eq!(pace.choose(300e6), Effort::Fast);
    }
}
