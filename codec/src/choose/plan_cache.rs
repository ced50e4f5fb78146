//! Reuses the plan of the previous chunk.
//!
//! Chunks of one array follow each other, and the best plan for one is mostly
//! the best for the next. A quick estimate of the new chunk's cost tells whether
//! it still looks the same; if not, or after some chunks, it is planned from
//! scratch.
//!
//! Where density counts, the estimate is not enough: tiles of an ocean with land
//! in it became half as large again. There the frame must also compress about as
//! well as the chunk that the plan was made for. If it does not, this chunk and
//! the next ones are planned from scratch.
#![forbid(unsafe_code)]

use crate::choose::effort::Effort;
use crate::choose::hint::Hint;
use crate::choose::plan::{Plan, Plans, plan};
use crate::choose::sample::{Windows, column_cost, numeric_cost};
use crate::frame::{NumberMap, Recipe, Scheme};

/// Chunks that share a plan at most.
const LIFE: u32 = 16;
/// The same where density counts.
const LIFE_DENSE: u32 = 8;
/// Chunks planned from scratch after a cached plan did badly.
const DISTRUST: u32 = 8;
/// Dimensions of a hint that can be remembered.
const MAX_RANK: usize = 6;

#[derive(Default)]
pub(crate) struct PlanCache {
    cached: Option<CachedPlan>,
    /// Chunks left that do not use the cache.
    distrust: u32,
}

struct CachedPlan {
    plans: Plans,
    effort: Effort,
    key: Key,
    /// Estimated cost of the chunk that the plan was made for.
    quick_cost: f32,
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

impl PlanCache {
    /// As [`plan`], but reuses the last plan if it still fits; also returns whether it did.
    pub(crate) fn plan(&mut self, hint: &Hint<'_>, effort: Effort, raw: &[u8]) -> (Plans, bool) {
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
            return (plan(hint, effort, true, raw), false);
        };
        let distrusted = effort != Effort::Fast && self.distrust > 0;
        self.distrust = self.distrust.saturating_sub(1);
        if let Some(cached) = self.cached.as_mut().filter(|_| !distrusted) {
            cached.age += 1;
            if cached.age < life && cached.effort == effort && cached.key == key {
                let now = quick_cost(&cached.plans.first, raw);
                if (now - cached.quick_cost).abs() <= 0.04 * cached.quick_cost + 0.02 {
                    let plans = Plans {
                        first: cached.plans.first.fitted(raw.len(), effort),
                        second: cached
                            .plans
                            .second
                            .map(|second| second.fitted(raw.len(), effort)),
                    };
                    return (plans, true);
                }
            }
        }
        let plans = plan(hint, effort, true, raw);
        let first = &plans.first;
        self.cached =
            (first.recipe.scheme != Scheme::Verbatim && !first.gaps).then(|| CachedPlan {
                plans,
                effort,
                key,
                quick_cost: quick_cost(first, raw),
                age: 0,
                outcome: None,
            });
        (plans, false)
    }

    /// Takes the outcome of the chunk just planned. Returns false if its plan was reused and did
    /// badly; the plan is then dropped.
    pub(crate) fn accept(&mut self, reused: bool, outcome: f32) -> bool {
        let Some(cached) = &mut self.cached else {
            return true;
        };
        match cached.outcome {
            Some(before) if reused => {
                let like = outcome <= before * 1.02 && outcome >= before * 0.9;
                if !like {
                    self.cached = None;
                    self.distrust = DISTRUST;
                }
                like
            }
            // The first outcome is that of the chunk the plan was made for.
            _ => {
                cached.outcome.get_or_insert(outcome);
                true
            }
        }
    }
}

/// Estimates the bits per byte under a plan.
fn quick_cost(plan: &Plan, raw: &[u8]) -> f32 {
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
