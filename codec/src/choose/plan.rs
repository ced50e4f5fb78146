//! Plans a chunk's encoding from a sample.
#![forbid(unsafe_code)]

use std::ops::Range;

use crate::choose::effort::Effort;
use crate::choose::hint::{ByteOrder, ElementKind, Hint};
use crate::choose::sample::{Windows, column_cost, decimal_scales, fill_value, numeric_cost};
use crate::frame::{NumberMap, Predictor, Recipe, Scheme, stream_count};
use crate::transform::decimal::FloatWord;
use crate::transform::kernels;

/// Raw bytes of a verbatim block: a small read checks this much.
pub(crate) const VERBATIM_BLOCK: usize = 128 << 10;

/// Bits per byte above which a chunk is stored verbatim.
const INCOMPRESSIBLE: f32 = 7.93;

/// How one chunk is to be encoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) recipe: Recipe,
    /// Bits of the value that marks gaps.
    pub(crate) fill: Option<u64>,
    /// Bits per byte to be expected.
    pub(crate) cost: f32,
    /// Long repeats have been seen.
    pub(crate) repeats: bool,
    /// Noise with gaps: only the gaps can be compressed.
    pub(crate) gaps: bool,
}

impl Plan {
    /// Whether it can be applied to a chunk.
    pub(crate) fn suits(&self, raw: &[u8]) -> bool {
        let big = self.recipe.big_endian;
        match (self.recipe.map, self.recipe.width) {
            (NumberMap::Real, 4) => is_tame::<u32>(raw, big),
            (NumberMap::Real, _) => is_tame::<u64>(raw, big),
            _ => true,
        }
    }

    /// The same plan for a chunk of another length.
    pub(crate) fn fitted(mut self, raw_len: usize, effort: Effort) -> Self {
        let width = self.recipe.width as usize;
        self.recipe.tail = (raw_len % width) as u8;
        self.recipe.block_len = block_len(raw_len, width, effort) as u32;
        self
    }
}

/// The recommendation of a sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plans {
    pub(crate) first: Plan,
    /// May turn out better: worth a full trial if there is time.
    pub(crate) second: Option<Plan>,
}

impl Plans {
    fn only(first: Plan) -> Self {
        Plans {
            first,
            second: None,
        }
    }
}

/// Decides what to do with a chunk. With `floats`, elements may be predicted in
/// floating point; the caller must then check [`Plan::suits`].
pub(crate) fn plan(hint: &Hint<'_>, effort: Effort, floats: bool, raw: &[u8]) -> Plans {
    let verbatim = Plan {
        recipe: Recipe::verbatim(VERBATIM_BLOCK as u32),
        fill: None,
        cost: 8.0,
        repeats: false,
        gaps: false,
    };
    match effort {
        Effort::None => return Plans::only(verbatim),
        Effort::Lz4 | Effort::Zstd(_) => return Plans::only(bytes_plan(raw, 1, effort, 0.0)),
        _ => {}
    }
    if raw.len() < 64 {
        return Plans::only(bytes_plan(raw, 1, effort, 0.0));
    }
    let windows = match effort {
        Effort::Fast if raw.len() < 512 << 10 => Windows::new(raw.len(), 6, 768),
        Effort::Fast => Windows::new(raw.len(), 6, 1024),
        Effort::Balanced => Windows::new(raw.len(), 6, 2048),
        _ => Windows::new(raw.len(), 12, 2048),
    };
    if let Some(between) = Windows::between_gaps(raw)
        && Elements::guess(raw, &between).is_none()
    {
        let plan = Plan {
            gaps: true,
            ..bytes_plan(raw, 1, effort, 0.0)
        };
        return Plans::only(plan);
    }
    let elements = match Elements::find(hint, raw, &windows) {
        Some(elements) => elements,
        None => return Plans::only(verbatim),
    };
    let bytes = bytes_plan(raw, elements.width, effort, elements.cost);
    if !elements.numeric {
        return Plans::only(bytes);
    }
    let mut search = Search {
        raw,
        windows: &windows,
        effort,
        elements: &elements,
        floats: floats && effort != Effort::Fast,
        best: None,
    };
    match elements.width {
        1 => search.run::<u8>(),
        2 => search.run::<u16>(),
        4 => search.run::<u32>(),
        _ => search.run::<u64>(),
    }
    match search.best {
        Some(numeric) if numeric.cost < bytes.cost => Plans {
            first: numeric,
            second: Some(bytes),
        },
        numeric => Plans {
            first: bytes,
            second: numeric,
        },
    }
}

/// Whether no sum of a few elements overflows, so that floats can be predicted as floats.
fn is_tame<W: FloatWord>(raw: &[u8], big: bool) -> bool {
    const PIECE: usize = 1024;
    let mut words = [W::default(); PIECE];
    let mut tame = true;
    for piece in raw.chunks(PIECE * W::BYTES) {
        let words = &mut words[..piece.len() / W::BYTES];
        kernels::load_all(piece, big, words);
        kernels::all_tame(words, &mut tame);
    }
    tame
}

/// The assumed elements of the chunk.
struct Elements<'a> {
    width: usize,
    /// Kinds to try; none known means all.
    kind: Option<ElementKind>,
    big: bool,
    numeric: bool,
    shape: &'a [usize],
    /// Bits per byte as plain columns.
    cost: f32,
}

impl<'a> Elements<'a> {
    fn find(hint: &Hint<'a>, raw: &[u8], windows: &[Range<usize>]) -> Option<Self> {
        let (width, kind, order, shape) = match *hint {
            Hint::Unknown => return Self::guess(raw, windows),
            Hint::Elements { width, kind, order } => (width, kind, order, &[][..]),
            Hint::Array {
                width,
                kind,
                order,
                shape,
            } => (width, kind, order, shape),
        };
        if !(1..=64).contains(&width) || raw.len() < width {
            return Self::guess(raw, windows);
        }
        let (cost, ..) = column_cost(raw, windows, width);
        if cost > INCOMPRESSIBLE {
            return None;
        }
        Some(Elements {
            width,
            kind: Some(kind),
            big: order == ByteOrder::Big,
            numeric: matches!(width, 1 | 2 | 4 | 8) && kind != ElementKind::Opaque,
            shape,
            cost,
        })
    }

    /// The width with the least entropy; wider ones have to earn it.
    fn guess(raw: &[u8], windows: &[Range<usize>]) -> Option<Self> {
        let mut best = (f32::INFINITY, 1, 0.0, 0.0);
        for width in [1, 4, 8, 2] {
            let (cost, first, last) = column_cost(raw, windows, width);
            if cost < best.0 * 0.98 {
                best = (cost, width, first, last);
            }
        }
        if (5.0..7.9).contains(&best.0) {
            // Records have many columns, so each gets little of a small sample.
            let windows = Windows::new(raw.len(), 6, 4096);
            let (base, ..) = column_cost(raw, &windows, best.1);
            let mut least = base * 0.95;
            for width in [12, 24, 16] {
                let (cost, first, last) = column_cost(raw, &windows, width);
                if cost < least {
                    least = cost * 0.98;
                    best = (cost, width, first, last);
                }
            }
        }
        let (cost, width, first, last) = best;
        if cost > INCOMPRESSIBLE {
            return None;
        }
        Some(Elements {
            width,
            kind: None,
            // The most significant byte varies least.
            big: first < last,
            numeric: matches!(width, 2 | 4 | 8),
            shape: &[],
            cost,
        })
    }
}

/// How bytes are seen as numbers.
#[derive(Clone, Copy)]
struct Numbers {
    map: NumberMap,
    /// Of decimal numbers.
    scale: u8,
}

impl Numbers {
    fn plain(map: NumberMap) -> Self {
        Self { map, scale: 0 }
    }
}

/// How a number is predicted from its neighbours.
#[derive(Clone, Copy)]
struct Prediction {
    predictor: Predictor,
    /// Distances to the neighbours, if the predictor uses them.
    row: usize,
    plane: usize,
}

impl From<Predictor> for Prediction {
    fn from(predictor: Predictor) -> Self {
        Self {
            predictor,
            row: 0,
            plane: 0,
        }
    }
}

/// The best numeric recipe.
struct Search<'a> {
    raw: &'a [u8],
    windows: &'a [Range<usize>],
    effort: Effort,
    elements: &'a Elements<'a>,
    floats: bool,
    best: Option<Plan>,
}

impl Search<'_> {
    fn run<W: FloatWord>(&mut self) {
        let elements = self.elements;
        let fill = fill_value::<W>(self.raw, self.windows, elements.big);
        let float = W::BYTES >= 4 && matches!(elements.kind, None | Some(ElementKind::Float));
        let integer = !matches!(elements.kind, Some(ElementKind::Float));
        let mut maps = [None; 4];
        if float {
            maps[0] = Some(Numbers::plain(NumberMap::Ordered));
            let scales = decimal_scales::<W>(self.raw, self.windows, elements.big, fill);
            for (map, scale) in maps[1..3].iter_mut().zip(scales) {
                *map = scale.map(|scale| Numbers {
                    map: NumberMap::Decimal,
                    scale,
                });
            }
        }
        if integer {
            maps[3] = Some(Numbers::plain(NumberMap::Integer));
        }
        // The map first, by the simplest predictor; then the predictor. A rival
        // close behind is kept in the race: prediction may favour it.
        let mut costs = [f32::INFINITY; 4];
        for (cost, map) in costs.iter_mut().zip(maps) {
            if let Some(numbers) = map {
                *cost = self.consider::<W>(numbers, Predictor::Delta.into(), fill);
            }
        }
        let least = costs.iter().copied().fold(f32::INFINITY, f32::min);
        let margin = if self.effort == Effort::Dense {
            1.15
        } else {
            1.0
        };
        for (cost, map) in costs.into_iter().zip(maps) {
            if let Some(numbers) = map.filter(|_| cost <= least * margin) {
                self.each_prediction(|search, prediction| {
                    search.consider::<W>(numbers, prediction, fill);
                });
            }
        }
        if self.floats && float && fill.is_none() {
            self.search_floats::<W>();
        }
    }

    /// Floats predicted as floats, if it is worth the slower decoding.
    fn search_floats<W: FloatWord>(&mut self) {
        let before = self.best;
        self.each_prediction(|search, prediction| {
            if prediction.predictor.applies_to_floats() {
                search.consider::<W>(Numbers::plain(NumberMap::Real), prediction, None);
            }
        });
        if let (Some(before), Some(now)) = (before, self.best)
            && now.cost > before.cost * 0.995
        {
            self.best = Some(before);
        }
    }

    fn each_prediction(&mut self, mut consider: impl FnMut(&mut Self, Prediction)) {
        if self.effort != Effort::Fast {
            consider(self, Predictor::None.into());
        }
        // Neighbours in another block cannot be used.
        let width = self.elements.width;
        let block = block_len(self.raw.len(), width, self.effort);
        let elements = self.raw.len().min(block) / width;
        // Distances between neighbours along each dimension but the fastest.
        let mut strides = [0; 3];
        let mut found = 0;
        let mut stride = 1usize;
        for &extent in self.elements.shape.iter().rev() {
            stride = stride.saturating_mul(extent);
            if stride > 1 && stride < elements / 2 && found < strides.len() {
                strides[found] = stride;
                found += 1;
            }
        }
        let strides = &strides[..found];
        for (i, &row) in strides.iter().enumerate() {
            let along = |predictor, plane| Prediction {
                predictor,
                row,
                plane,
            };
            consider(self, along(Predictor::Plane, 0));
            consider(self, along(Predictor::Row, 0));
            for &plane in &strides[i + 1..] {
                consider(self, along(Predictor::Cube, plane));
            }
        }
        if self.effort == Effort::Dense {
            consider(self, Predictor::Line.into());
            consider(self, Predictor::Xor.into());
        }
    }

    fn consider<W: FloatWord>(
        &mut self,
        numbers: Numbers,
        prediction: Prediction,
        fill: Option<u64>,
    ) -> f32 {
        let mut recipe = Recipe::verbatim(0);
        recipe.width = W::BYTES as u8;
        recipe.map = numbers.map;
        recipe.scale = numbers.scale;
        recipe.predictor = prediction.predictor;
        recipe.big_endian = self.elements.big;
        recipe.row = prediction.row as u32;
        recipe.plane = prediction.plane as u32;
        recipe.tail = (self.raw.len() % W::BYTES) as u8;
        recipe.scheme = match self.effort {
            Effort::Fast => Scheme::Columns,
            _ => Scheme::Residuals,
        };
        let cost = numeric_cost::<W>(self.raw, self.windows, &recipe, fill) / W::BYTES as f32;
        if self.best.is_some_and(|best| best.cost <= cost) || !cost.is_finite() {
            return cost;
        }
        recipe.streams = stream_count(&recipe) as u8;
        recipe.block_len = block_len(self.raw.len(), W::BYTES, self.effort) as u32;
        self.best = Some(Plan {
            recipe,
            fill,
            cost,
            repeats: false,
            gaps: false,
        });
        cost
    }
}

/// The chunk as plain byte-columns.
fn bytes_plan(raw: &[u8], width: usize, effort: Effort, cost: f32) -> Plan {
    let mut recipe = Recipe::verbatim(VERBATIM_BLOCK as u32);
    if raw.len() >= width {
        recipe.scheme = Scheme::Columns;
        recipe.width = width as u8;
        recipe.streams = width as u8;
        recipe.tail = (raw.len() % width) as u8;
        recipe.block_len = block_len(raw.len(), width, effort) as u32;
    }
    Plan {
        recipe,
        fill: None,
        cost,
        repeats: false,
        gaps: false,
    }
}

/// Columns of a block are 64 to 128 KiB long, so that small reads stay
/// cheap; the background pass prefers density.
fn block_len(raw_len: usize, width: usize, effort: Effort) -> usize {
    let elements = match effort {
        Effort::Dense if raw_len <= 2 << 20 => (2 << 20) / width,
        Effort::Dense => (1 << 20) / width,
        Effort::Zstd(10..) => 1 << 20,
        _ => match width {
            1 => 128 << 10,
            2..=4 => 64 << 10,
            5..=8 => 32 << 10,
            _ => 16 << 10,
        },
    };
    elements * width
}
