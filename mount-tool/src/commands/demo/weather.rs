//! Simulated weather: plausible large-scale structure, turbulence and a land mask, the same each
//! time.

use super::netcdf::{Attribute, Dataset, Dimension, Kind, Value, Variable};
use super::noise::{Random, cascade};

const LEVELS: [f32; 16] = [
    1000.0, 975.0, 950.0, 925.0, 850.0, 775.0, 700.0, 600.0, 500.0, 400.0, 300.0, 250.0, 200.0,
    150.0, 100.0, 50.0,
];
const ROWS: usize = 256;
const COLUMNS: usize = 512;
const PATTERNS: usize = 5;
const SEED: u64 = 0x5ba1e;
/// The default fill value of netCDF.
const FILL: f32 = 9.969_21e36;
/// Specific humidity is packed into 16 bits.
const HUMIDITY_SCALE: f32 = 8e-7;
const HUMIDITY_OFFSET: f32 = 0.0131;

const TIME: usize = 0;
const LEV: usize = 1;
const LAT: usize = 2;
const LON: usize = 3;

/// What is known of the places on one circle of latitude.
struct Circle<'a> {
    latitude: f32,
    turbulence: &'a [f32],
    land: &'a [bool],
}

/// The source of a variable over time.
#[derive(Clone, Copy)]
enum Field {
    Temperature,
    Zonal,
    Meridional,
    Geopotential,
    Humidity,
    Pressure,
    Sea,
    Rain,
}

const FIELDS: [Field; 8] = [
    Field::Temperature,
    Field::Zonal,
    Field::Meridional,
    Field::Geopotential,
    Field::Humidity,
    Field::Pressure,
    Field::Sea,
    Field::Rain,
];

/// The simulation.
pub(crate) struct Weather {
    dataset: Dataset,
    /// Each row is stored twice, so that it can be read from any longitude.
    patterns: Vec<Vec<f32>>,
    land: Vec<bool>,
    /// In radians, from south to north.
    latitudes: Vec<f32>,
}

impl Weather {
    /// Number of levels, circles of latitude on each, and bytes of floats on each of those.
    pub(crate) const SHAPE: [usize; 3] = [LEVELS.len(), ROWS, COLUMNS * 4];

    pub(crate) fn new() -> Self {
        let mut random = Random::new(SEED);
        let patterns = (0..PATTERNS).map(|_| doubled(&cascade(&mut random, ROWS, COLUMNS)));
        let patterns = patterns.collect();
        let land = cascade(&mut random, ROWS, COLUMNS)
            .iter()
            .map(|&height| height > 0.5)
            .collect();
        let step = 180.0 / ROWS as f32;
        let latitudes = (0..ROWS)
            .map(|i| (step * (i as f32 + 0.5) - 90.0).to_radians())
            .collect();
        Self {
            dataset: dataset(),
            patterns,
            land,
            latitudes,
        }
    }

    pub(crate) fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// The data between header and records: coordinates and land mask.
    pub(crate) fn fixed(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut push = |value: f32| out.extend_from_slice(&value.to_be_bytes());
        LEVELS.into_iter().for_each(&mut push);
        self.latitudes
            .iter()
            .map(|latitude| latitude.to_degrees())
            .for_each(&mut push);
        let step = 360.0 / COLUMNS as f32;
        (0..COLUMNS).map(|i| i as f32 * step).for_each(&mut push);
        out.extend(self.land.iter().map(|&land| u8::from(land)));
        out
    }

    /// One time step, six hours after the one before, piece by piece in file order.
    pub(crate) fn record<E>(
        &self,
        step: u32,
        mut sink: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        sink(&(f64::from(step) * 6.0).to_be_bytes())?;
        let mut piece = Vec::with_capacity(ROWS * COLUMNS * 4);
        for field in FIELDS {
            let levels = match field {
                Field::Pressure | Field::Sea | Field::Rain => &LEVELS[..1],
                _ => &LEVELS[..],
            };
            for &level in levels {
                piece.clear();
                self.slab(field, level, step as f32, &mut piece);
                sink(&piece)?;
            }
        }
        Ok(())
    }

    /// One field on one level.
    fn slab(&self, field: Field, level: f32, step: f32, out: &mut Vec<u8>) {
        // Each pattern drifts at its own speed, and they mix differently at each level and time.
        let height = 7.6 * (1013.25 / level).ln();
        let mut weights = [0.0_f32; PATTERNS];
        let mut shifts = [0_usize; PATTERNS];
        for (m, (weight, shift)) in weights.iter_mut().zip(&mut shifts).enumerate() {
            let m = m as f32;
            let phase = m * 1.9 + field as u8 as f32 * 2.4 + height * (0.11 + 0.03 * m);
            *weight = (phase + step * (0.05 + 0.02 * m)).cos() * (2.0 / PATTERNS as f32).sqrt();
            let drift = step * (1.5 + m + 0.4 * height) + m * 83.0;
            *shift = drift as usize % COLUMNS;
        }
        let mut turbulence = [0.0_f32; COLUMNS];
        for (row, &latitude) in self.latitudes.iter().enumerate() {
            turbulence.fill(0.0);
            for ((pattern, &weight), &shift) in self.patterns.iter().zip(&weights).zip(&shifts) {
                let begin = row * 2 * COLUMNS + shift;
                for (sum, &value) in turbulence.iter_mut().zip(&pattern[begin..]) {
                    *sum += weight * value;
                }
            }
            let land = &self.land[row * COLUMNS..][..COLUMNS];
            let circle = Circle {
                latitude,
                turbulence: &turbulence,
                land,
            };
            self.row(field, height, &circle, out);
        }
    }

    /// One circle of latitude: the climate there plus turbulence. Height in kilometres.
    fn row(
        &self,
        field: Field,
        height: f32,
        &Circle {
            latitude,
            turbulence,
            land,
        }: &Circle<'_>,
        out: &mut Vec<u8>,
    ) {
        let (sin, cos) = latitude.sin_cos();
        let storms = 0.25 + 0.75 * (2.0 * latitude).sin().powi(2);
        let mut affine = |base: f32, amplitude: f32| {
            for &t in turbulence {
                out.extend_from_slice(&(base + amplitude * t).to_be_bytes());
            }
        };
        let surface = 302.0 - 45.0 * sin * sin;
        match field {
            Field::Temperature => {
                let base = (surface - 6.5 * height).max(205.0 + 10.0 * sin * sin);
                affine(base, 4.0 * storms / (1.0 + 0.05 * height));
            }
            Field::Zonal => {
                let distance = (latitude.to_degrees().abs() - 38.0) / 14.0;
                let jet = 32.0 * (-distance * distance).exp();
                let aloft = (-((height - 11.5) / 6.0).powi(2)).exp();
                affine(jet * aloft - 6.0 * cos.powi(8), 3.0 + 7.0 * storms);
            }
            Field::Meridional => affine(0.0, 2.0 + 6.0 * storms),
            Field::Geopotential => {
                let thickness = 0.5 * (surface + (surface - 6.5 * height).max(205.0)) / 260.0;
                affine(9806.65 * height * thickness, 250.0 + 60.0 * height * storms);
            }
            Field::Humidity => {
                let base = 0.018 * (-height / 2.2).exp() * cos * cos + 3e-6;
                for &t in turbulence {
                    let humidity = (base * (1.0 + 0.4 * t)).max(0.0);
                    let packed = ((humidity - HUMIDITY_OFFSET) / HUMIDITY_SCALE).round();
                    out.extend_from_slice(&(packed as i16).to_be_bytes());
                }
            }
            Field::Pressure => affine(101_325.0 - 1500.0 * sin.powi(6), 900.0 * storms),
            Field::Sea => {
                for (&t, &land) in turbulence.iter().zip(land) {
                    let warm = (271.35 + 30.0 * cos * cos + 1.2 * t).max(271.35);
                    out.extend_from_slice(&(if land { FILL } else { warm }).to_be_bytes());
                }
            }
            Field::Rain => {
                for &t in turbulence {
                    let rain = (t - 1.3).max(0.0) * 2.5e-4 * cos;
                    out.extend_from_slice(&rain.to_be_bytes());
                }
            }
        }
    }
}

fn doubled(pattern: &[f32]) -> Vec<f32> {
    pattern
        .chunks_exact(COLUMNS)
        .flat_map(|row| [row, row])
        .flatten()
        .copied()
        .collect()
}

fn dataset() -> Dataset {
    let text = Value::Text;
    let described =
        |name: &'static str, units| vec![("long_name", text(name)), ("units", text(units))];
    let float = |name, dimensions: &[usize], attributes: Vec<Attribute>| Variable {
        name,
        kind: Kind::Float,
        dimensions: dimensions.to_vec(),
        attributes,
    };
    let filled = |mut attributes: Vec<Attribute>| {
        attributes.push(("_FillValue", Value::Floats(vec![FILL])));
        attributes
    };
    let length = |n: usize| u32::try_from(n).ok();
    let (deep, flat) = ([TIME, LEV, LAT, LON], [TIME, LAT, LON]);
    let mut time = described("time", "hours since 2000-01-01 00:00:00");
    time.push(("calendar", text("standard")));
    let mut mask = described("land mask", "1");
    mask.push(("flag_values", Value::Bytes(vec![0, 1])));
    mask.push(("flag_meanings", text("sea land")));
    let mut humidity = described("specific humidity", "kg kg-1");
    humidity.push(("scale_factor", Value::Floats(vec![HUMIDITY_SCALE])));
    humidity.push(("add_offset", Value::Floats(vec![HUMIDITY_OFFSET])));
    humidity.push(("_FillValue", Value::Shorts(vec![i16::MIN])));
    Dataset {
        dimensions: vec![
            Dimension {
                name: "time",
                length: None,
            },
            Dimension {
                name: "lev",
                length: length(LEVELS.len()),
            },
            Dimension {
                name: "lat",
                length: length(ROWS),
            },
            Dimension {
                name: "lon",
                length: length(COLUMNS),
            },
        ],
        attributes: vec![
            ("Conventions", text("CF-1.8")),
            ("title", text("Simulated weather, made by shale demo")),
        ],
        variables: vec![
            Variable {
                name: "time",
                kind: Kind::Double,
                dimensions: vec![TIME],
                attributes: time,
            },
            float("lev", &[LEV], described("pressure level", "hPa")),
            float("lat", &[LAT], described("latitude", "degrees_north")),
            float("lon", &[LON], described("longitude", "degrees_east")),
            Variable {
                name: "lsm",
                kind: Kind::Byte,
                dimensions: vec![LAT, LON],
                attributes: mask,
            },
            float("ta", &deep, filled(described("air temperature", "K"))),
            float("ua", &deep, filled(described("eastward wind", "m s-1"))),
            float("va", &deep, filled(described("northward wind", "m s-1"))),
            float("zg", &deep, filled(described("geopotential", "m2 s-2"))),
            Variable {
                name: "hus",
                kind: Kind::Short,
                dimensions: deep.to_vec(),
                attributes: humidity,
            },
            float("ps", &flat, filled(described("surface pressure", "Pa"))),
            float(
                "tos",
                &flat,
                filled(described("sea surface temperature", "K")),
            ),
            float(
                "pr",
                &flat,
                filled(described("precipitation rate", "kg m-2 s-1")),
            ),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(weather: &Weather, step: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let sink = |piece: &[u8]| -> Result<(), ()> {
            bytes.extend_from_slice(piece);
            Ok(())
        };
        weather.record(step, sink).unwrap();
        bytes
    }

    #[test]
    fn the_data_fills_what_the_header_promises() {
        let weather = Weather::new();
        let dataset = weather.dataset();
        assert_eq!(record(&weather, 0).len() as u64, dataset.record_size());
        let length = dataset.header(1).len() + weather.fixed().len();
        assert_eq!(length as u64 + dataset.record_size(), dataset.file_size(1));
    }

    #[test]
    fn the_temperature_is_where_the_dataset_says() {
        let weather = Weather::new();
        let begin = weather.dataset().file_size(1);
        let at = (weather.dataset().place("ta", 1).unwrap() - begin) as usize;
        let mut expected = Vec::new();
        for level in LEVELS {
            weather.slab(Field::Temperature, level, 1.0, &mut expected);
        }
        assert_eq!(expected.len(), Weather::SHAPE.iter().product::<usize>());
        assert!(record(&weather, 1)[at..at + expected.len()] == expected);
        assert_eq!(weather.dataset().place("lsm", 0), None);
    }

    #[test]
    fn the_same_step_is_always_the_same_and_the_next_differs() {
        let weather = Weather::new();
        assert!(record(&weather, 3) == record(&Weather::new(), 3));
        assert!(record(&weather, 3) != record(&weather, 4));
    }

    #[test]
    fn values_are_physical() {
        let weather = Weather::new();
        let bytes = record(&weather, 1);
        let floats = |at: usize| -> Vec<f32> {
            let slab = bytes[at..at + ROWS * COLUMNS * 4].chunks_exact(4);
            slab.map(|b| f32::from_be_bytes(b.try_into().unwrap()))
                .collect()
        };
        let temperature = floats(8);
        assert!(temperature.iter().all(|t| (180.0..340.0).contains(t)));
        let field = ROWS * COLUMNS * LEVELS.len();
        let sea = floats(8 + field * (4 * 4 + 2) + ROWS * COLUMNS * 4);
        assert!(
            sea.iter()
                .all(|&t| t == FILL || (271.0..310.0).contains(&t))
        );
        let land = sea.iter().filter(|&&t| t == FILL).count() as f32 / sea.len() as f32;
        assert!((0.1..0.6).contains(&land), "{land}");
    }
}
