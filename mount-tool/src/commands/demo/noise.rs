//! Turbulence-like noise on a latitude-longitude grid.
//!
//! A cascade: start from a few random values, double the resolution by cubic interpolation, add
//! random values that are weaker by the cube root of two, and so on down to the grid. Structure
//! functions then grow as r^(2/3), which is the k^(-5/3) spectrum of turbulence. Structures shorter
//! than eight grid points are damped, as models do with what they cannot resolve (Skamarock 2004
//! found seven). It costs a few operations per point and needs no Fourier transform.

/// SplitMix64: small, and the same everywhere.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From a distribution with mean 0 and variance 1 that looks normal: the sum of four
    /// uniform ones.
    fn normal(&mut self) -> f32 {
        let bits = self.next();
        let sum: u64 = (0..4).map(|i| (bits >> (16 * i)) & 0xffff).sum();
        (sum as f32 / 65535.0 - 2.0) * 1.732
    }
}

/// Grid points of the finest structure that is not damped.
const RESOLVED: usize = 4;

/// A pattern of mean 0 and variance 1, periodic along a row.
pub(crate) fn cascade(random: &mut Random, rows: usize, columns: usize) -> Vec<f32> {
    let mut factor = 1;
    while rows / (factor * 2) >= 4 && columns / (factor * 2) >= 4 {
        factor *= 2;
    }
    let (mut height, mut width) = (rows / factor, columns / factor);
    let mut amplitude = 1.0_f32;
    let mut field: Vec<f32> = (0..height * width).map(|_| random.normal()).collect();
    while factor > 1 {
        field = double_rows(&double_columns(&field, width), width * 2);
        (height, width, factor) = (height * 2, width * 2, factor / 2);
        amplitude /= if factor >= RESOLVED {
            2.0_f32.cbrt()
        } else {
            4.0
        };
        for value in &mut field {
            *value += amplitude * random.normal();
        }
    }
    debug_assert_eq!(field.len(), height * width);
    normalize(&mut field);
    field
}

/// The value half-way between `b` and `c`.
fn between(a: f32, b: f32, c: f32, d: f32) -> f32 {
    (9.0 * (b + c) - a - d) / 16.0
}

fn double_columns(field: &[f32], width: usize) -> Vec<f32> {
    let mut out = Vec::with_capacity(field.len() * 2);
    for row in field.chunks_exact(width) {
        for i in 0..width {
            let at = |offset: usize| row[(i + width + offset - 1) % width];
            out.push(at(1));
            out.push(between(at(0), at(1), at(2), at(3)));
        }
    }
    out
}

fn double_rows(field: &[f32], width: usize) -> Vec<f32> {
    let height = field.len() / width;
    let row = |i: usize| {
        let i = i.saturating_sub(1).min(height - 1);
        &field[i * width..(i + 1) * width]
    };
    let mut out = Vec::with_capacity(field.len() * 2);
    for i in 0..height {
        let (a, b, c, d) = (row(i), row(i + 1), row(i + 2), row(i + 3));
        out.extend_from_slice(b);
        out.extend((0..width).map(|j| between(a[j], b[j], c[j], d[j])));
    }
    out
}

fn normalize(field: &mut [f32]) {
    let count = field.len().max(1) as f64;
    let mean = field.iter().map(|&v| f64::from(v)).sum::<f64>() / count;
    let variance = field
        .iter()
        .map(|&v| (f64::from(v) - mean).powi(2))
        .sum::<f64>()
        / count;
    let scale = if variance > 0.0 {
        variance.sqrt().recip()
    } else {
        1.0
    };
    for value in field {
        *value = ((f64::from(*value) - mean) * scale) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: usize = 256;
    const COLUMNS: usize = 512;

    fn structure(field: &[f32], distance: usize) -> f64 {
        let rows = field.chunks_exact(COLUMNS);
        let square =
            |row: &[f32], i: usize| f64::from(row[(i + distance) % COLUMNS] - row[i]).powi(2);
        rows.map(|row| (0..COLUMNS).map(|i| square(row, i)).sum::<f64>())
            .sum::<f64>()
            / field.len() as f64
    }

    #[test]
    fn the_same_seed_gives_the_same_pattern() {
        let make = |seed| cascade(&mut Random::new(seed), ROWS, COLUMNS);
        assert_eq!(make(1), make(1));
        assert_ne!(make(1), make(2));
        assert_eq!(make(1).len(), ROWS * COLUMNS);
    }

    #[test]
    fn increments_grow_like_those_of_turbulence() {
        let mut slope = 0.0;
        for seed in 0..8 {
            let field = cascade(&mut Random::new(seed), ROWS, COLUMNS);
            slope += (structure(&field, 32) / structure(&field, 8)).log(4.0) / 8.0;
        }
        assert!(
            (0.4..0.9).contains(&slope),
            "exponent {slope}, Kolmogorov has 2/3"
        );
    }

    #[test]
    fn the_finest_structure_is_damped_as_by_a_model() {
        let field = cascade(&mut Random::new(3), ROWS, COLUMNS);
        let slope = (structure(&field, 2) / structure(&field, 1)).log2();
        assert!(slope > 1.2, "exponent {slope}, a smooth field has 2");
    }

    #[test]
    fn mean_and_variance_are_normal() {
        let field = cascade(&mut Random::new(7), ROWS, COLUMNS);
        let mean = field.iter().sum::<f32>() / field.len() as f32;
        let variance = field.iter().map(|v| v * v).sum::<f32>() / field.len() as f32;
        assert!(
            mean.abs() < 1e-3 && (variance - 1.0).abs() < 1e-2,
            "{mean} {variance}"
        );
    }
}
