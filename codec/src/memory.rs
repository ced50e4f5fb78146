//! What was decided for the chunk before.
//!
//! Chunks of one array follow each other, and what was best for one is mostly
//! best for the next. A glance at the new chunk tells whether it still looks
//! the same; only if not, or after a while, everything is tried again.
//!
//! Where density counts, the glance is not enough: tiles of an ocean with land
//! in it took half as much again. There the outcome must be like that of the
//! chunk that the plan was made for; if not, the chunk is planned anew, and so
//! are the next ones.
#![forbid(unsafe_code)]

use crate::frame::{NumberMap, Recipe, Scheme};
use crate::plan::{Plan, plan};
use crate::sample::{Windows, column_cost, numeric_cost};
use crate::{Effort, Hint};

/// Chunks after which a plan is made anew in any case.
const LIFE: u32 = 16;
/// The same where density counts.
const LIFE_DENSE: u32 = 8;
/// Chunks that are planned anew after an outcome was not as expected.
const DOUBT: u32 = 8;
/// Dimensions of a hint that can be remembered.
const MAX_RANK: usize = 6;

#[derive(Default)]
pub(crate) struct Memory {
    held: Option<Held>,
    /// Chunks for which nothing is remembered.
    doubt: u32,
}

struct Held {
    plan: Plan,
    second: Option<Plan>,
    effort: Effort,
    key: Key,
    /// What the glance said of the chunk that the plan was made for.
    glance: f32,
    age: u32,
    /// Stored bytes per raw byte of that chunk, once it is known.
    outcome: Option<f32>,
}

/// A hint, owned.
#[derive(PartialEq)]
struct Key {
    hint: Hint<'static>,
    rank: usize,
    shape: [usize; MAX_RANK],
}

impl Key {
    fn new(hint: &Hint<'_>) -> Option<Self> {
        let (hint, shape) = match *hint {
            Hint::Unknown => (Hint::Unknown, &[][..]),
            Hint::Elements { width, kind, order } => {
                (Hint::Elements { width, kind, order }, &[][..])
            }
            Hint::Array {
                width,
                kind,
                order,
                shape,
            } => (
                Hint::Array {
                    width,
                    kind,
                    order,
                    shape: &[],
                },
                shape,
            ),
        };
        let mut key = Key {
            hint,
            rank: shape.len(),
            shape: [0; MAX_RANK],
        };
        key.shape.get_mut(..shape.len())?.copy_from_slice(shape);
        Some(key)
    }
}

impl Memory {
    /// As [`plan`], but what was planned last is taken if it still fits. The last part of the
    /// answer tells whether it was.
    pub(crate) fn plan(
        &mut self,
        hint: &Hint<'_>,
        effort: Effort,
        raw: &[u8],
    ) -> (Plan, Option<Plan>, bool) {
        let life = if effort == Effort::Fast {
            LIFE
        } else {
            LIFE_DENSE
        };
        // Planning a short chunk is quick, but not beside a dense encoding of it.
        let key = match effort {
            Effort::Fast | Effort::Balanced if raw.len() >= 32 << 10 => Key::new(hint),
            Effort::Dense if raw.len() >= 8 << 10 => Key::new(hint),
            _ => None,
        };
        let Some(key) = key else {
            let (plan, second) = plan(hint, effort, true, raw);
            return (plan, second, false);
        };
        let doubtful = effort != Effort::Fast && self.doubt > 0;
        self.doubt = self.doubt.saturating_sub(1);
        if let Some(held) = self.held.as_mut().filter(|_| !doubtful) {
            held.age += 1;
            if held.age < life && held.effort == effort && held.key == key {
                let now = glance(&held.plan, raw);
                if (now - held.glance).abs() <= 0.04 * held.glance + 0.02 {
                    let fitted = held.plan.fitted(raw.len(), effort);
                    let second = held.second.map(|second| second.fitted(raw.len(), effort));
                    return (fitted, second, true);
                }
            }
        }
        let (plan, second) = plan(hint, effort, true, raw);
        self.held = (plan.recipe.scheme != Scheme::Verbatim && !plan.gaps).then(|| Held {
            plan,
            second,
            effort,
            key,
            glance: glance(&plan, raw),
            age: 0,
            outcome: None,
        });
        (plan, second, false)
    }

    /// Notes what came of the chunk that was just planned; of one whose plan was reused, says
    /// whether that was as expected. If not, everything is forgotten.
    pub(crate) fn is_as_expected(&mut self, reused: bool, outcome: f32) -> bool {
        let Some(held) = &mut self.held else {
            return true;
        };
        match held.outcome {
            Some(before) if reused => {
                let like = outcome <= before * 1.02 && outcome >= before * 0.9;
                if !like {
                    self.held = None;
                    self.doubt = DOUBT;
                }
                like
            }
            // Only of the chunk that was planned; others may be encoded in between.
            _ => {
                held.outcome.get_or_insert(outcome);
                true
            }
        }
    }
}

/// Bits per byte under a plan, roughly.
fn glance(plan: &Plan, raw: &[u8]) -> f32 {
    let windows = Windows::new(raw.len(), 5, 768);
    let recipe = &plan.recipe;
    let cost = |recipe: &Recipe| match recipe.width {
        1 => numeric_cost::<u8>(raw, &windows, recipe, plan.fill),
        2 => numeric_cost::<u16>(raw, &windows, recipe, plan.fill),
        4 => numeric_cost::<u32>(raw, &windows, recipe, plan.fill),
        _ => numeric_cost::<u64>(raw, &windows, recipe, plan.fill),
    };
    let width = recipe.width as usize;
    match recipe.map {
        NumberMap::Bytes => column_cost(raw, &windows, width).0,
        _ => cost(recipe) / width as f32,
    }
}
