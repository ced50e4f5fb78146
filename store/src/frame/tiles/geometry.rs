//! The place of each byte of an array: which tile, and where in it.

/// Tiles of an array at most.
const MAX_TILES: u64 = 1 << 16;
/// Dimensions of a field at most.
const MAX_DIMS: usize = 32;
/// Fields of a record at most.
const MAX_FIELDS: usize = 1 << 12;

/// One block of every record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// Its first byte in the record.
    pub(crate) at: u64,
    /// Its extents within a record, the slowest first; the last one in bytes.
    pub(crate) dims: Vec<u64>,
    /// Extents of a tile: records, then as `dims`.
    pub(crate) tile: Vec<u64>,
}

/// A range of a file as records of fields. The fields fill the record without a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    records: u64,
    record: u64,
    fields: Vec<Field>,
    /// Number of the first tile of each field.
    first: Vec<u64>,
}

/// Where a byte of an array is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    /// Number of the tile.
    pub(crate) tile: usize,
    /// Offset in it.
    pub(crate) at: usize,
    /// Bytes of the array from here on that are contiguous in the tile as well.
    pub(crate) run: u64,
}

impl Field {
    fn len(&self) -> Option<u64> {
        self.dims
            .iter()
            .try_fold(1u64, |product, &dim| product.checked_mul(dim))
    }

    /// Number of tiles in each dimension.
    fn grid(&self, records: u64) -> Vec<u64> {
        std::iter::once(records)
            .chain(self.dims.iter().copied())
            .zip(&self.tile)
            .map(|(extent, &tile)| extent.div_ceil(tile))
            .collect()
    }
}

impl Geometry {
    /// `None` when the parts do not fit together or a limit is exceeded.
    pub(crate) fn new(records: u64, record: u64, fields: Vec<Field>) -> Option<Self> {
        records.checked_mul(record)?;
        if records == 0 || record == 0 || fields.is_empty() || fields.len() > MAX_FIELDS {
            return None;
        }
        let mut end = 0;
        let mut tiles = 0u64;
        let mut first = Vec::with_capacity(fields.len());
        for field in &fields {
            let sane = !field.dims.is_empty()
                && field.dims.len() <= MAX_DIMS
                && field.tile.len() == field.dims.len() + 1
                && field.dims.iter().chain(&field.tile).all(|&n| n > 0);
            if !sane || field.at != end {
                return None;
            }
            end = end.checked_add(field.len()?)?;
            let bytes = field
                .tile
                .iter()
                .try_fold(1u64, |product, &n| product.checked_mul(n))?;
            if bytes > shale_codec::MAX_RAW_LEN as u64 {
                return None;
            }
            first.push(tiles);
            let count = field
                .grid(records)
                .iter()
                .try_fold(1u64, |product, &n| product.checked_mul(n))?;
            tiles = tiles.checked_add(count)?;
            if tiles > MAX_TILES {
                return None;
            }
        }
        (end == record).then_some(Self {
            records,
            record,
            fields,
            first,
        })
    }

    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    pub(crate) fn record(&self) -> u64 {
        self.record
    }

    pub(crate) fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Bytes of the whole array.
    pub(crate) fn len(&self) -> u64 {
        self.records * self.record
    }

    pub(crate) fn tiles(&self) -> usize {
        match (self.fields.last(), self.first.last()) {
            (Some(field), Some(first)) => {
                (first + field.grid(self.records).iter().product::<u64>()) as usize
            }
            _ => 0,
        }
    }

    /// Numbers of all tiles in the order in which they are stored.
    pub(crate) fn order(&self) -> Vec<u32> {
        let mut all = Vec::with_capacity(self.tiles());
        for (field, &first) in self.fields.iter().zip(&self.first) {
            let cells = super::morton::order(&field.grid(self.records));
            all.extend(cells.into_iter().map(|cell| first as u32 + cell));
        }
        all
    }

    /// The field that a tile belongs to, where the tile begins (record, then as `dims`), and its
    /// extents, smaller at the edges.
    pub(crate) fn tile(&self, number: usize) -> (usize, Vec<u64>, Vec<u64>) {
        let number = number as u64;
        let index = self.first.partition_point(|&first| first <= number) - 1;
        let field = &self.fields[index];
        let mut rest = number - self.first[index];
        let grid = field.grid(self.records);
        let mut origin = vec![0; grid.len()];
        let mut shape = vec![0; grid.len()];
        for i in (0..grid.len()).rev() {
            let cell = rest % grid[i];
            rest /= grid[i];
            let extent = if i == 0 {
                self.records
            } else {
                field.dims[i - 1]
            };
            origin[i] = cell * field.tile[i];
            shape[i] = field.tile[i].min(extent - origin[i]);
        }
        (index, origin, shape)
    }

    /// Decoded length of a tile.
    pub(crate) fn tile_len(&self, number: usize) -> usize {
        self.tile(number).2.iter().product::<u64>() as usize
    }

    /// Where a byte of the array is. `at` must be below its length.
    pub(crate) fn locate(&self, at: u64) -> Spot {
        let (record, within) = (at / self.record, at % self.record);
        let index = self.fields.partition_point(|field| field.at <= within) - 1;
        let field = &self.fields[index];
        let mut rest = within - field.at;
        // From the fastest dimension to the slowest.
        let (mut tile, mut offset, mut run) = (0, 0, 1);
        let (mut tiles, mut bytes) = (1, 1);
        // Whether the tile has all of the faster dimensions, so that a run continues beyond them.
        let mut whole = true;
        let last = field.dims.len();
        for i in (0..=last).rev() {
            let (extent, coordinate) = if i == 0 {
                (self.records, record)
            } else {
                let extent = field.dims[i - 1];
                let coordinate = rest % extent;
                rest /= extent;
                (extent, coordinate)
            };
            let size = field.tile[i];
            let cell = coordinate / size;
            let inside = coordinate % size;
            let shape = size.min(extent - cell * size);
            tile += cell * tiles;
            offset += inside * bytes;
            if whole && (i > 0 || self.fields.len() == 1) {
                run += (shape - inside - 1) * bytes;
            }
            whole &= shape == extent;
            tiles *= extent.div_ceil(size);
            bytes *= shape;
        }
        Spot {
            tile: (self.first[index] + tile) as usize,
            at: offset as usize,
            run,
        }
    }

    /// Copies one tile out of the bytes of the whole array.
    pub(crate) fn extract(&self, array: &[u8], number: usize, out: &mut Vec<u8>) {
        out.clear();
        let (index, origin, shape) = self.tile(number);
        let field = &self.fields[index];
        let rows: u64 = shape[..shape.len() - 1].iter().product();
        let row = shape[shape.len() - 1] as usize;
        for number in 0..rows {
            let mut rest = number;
            let mut at = origin[origin.len() - 1];
            let mut step = field.dims[field.dims.len() - 1];
            for i in (1..shape.len() - 1).rev() {
                at += (origin[i] + rest % shape[i]) * step;
                rest /= shape[i];
                step *= field.dims[i - 1];
            }
            at += (origin[0] + rest) * self.record + field.at;
            out.extend_from_slice(&array[at as usize..at as usize + row]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn field(at: u64) -> impl Strategy<Value = Field> {
        prop::collection::vec((1u64..9, 1u64..9), 1..4).prop_flat_map(move |dims| {
            (1u64..5).prop_map(move |depth| Field {
                at,
                dims: dims.iter().map(|d| d.0).collect(),
                tile: std::iter::once(depth)
                    .chain(dims.iter().map(|d| d.1))
                    .collect(),
            })
        })
    }

    proptest! {
        /// Every byte of an array is found in its tile, and runs stay within the tile.
        #[test]
        fn what_is_cut_is_found_again(
            records in 1u64..6,
            fields in prop::collection::vec(field(0), 1..4),
        ) {
            let mut at = 0;
            let mut fields = fields;
            for field in &mut fields {
                field.at = at;
                at += field.dims.iter().product::<u64>();
            }
            let geometry = Geometry::new(records, at, fields).unwrap();
            let array: Vec<u8> = (0..geometry.len()).map(|i| (i * 7 + i / 256) as u8).collect();
            let tiles: Vec<Vec<u8>> = (0..geometry.tiles())
                .map(|number| {
                    let mut out = Vec::new();
                    geometry.extract(&array, number, &mut out);
                    assert_eq!(out.len(), geometry.tile_len(number));
                    out
                })
                .collect();
            prop_assert_eq!(tiles.iter().map(Vec::len).sum::<usize>(), array.len());
            let mut order = geometry.order();
            order.sort_unstable();
            prop_assert_eq!(order, (0..geometry.tiles() as u32).collect::<Vec<_>>());
            for at in 0..geometry.len() {
                let spot = geometry.locate(at);
                let run = spot.run as usize;
                prop_assert!(run > 0);
                let end = (at as usize + run).min(array.len());
                prop_assert_eq!(
                    &tiles[spot.tile][spot.at..spot.at + run],
                    &array[at as usize..end]
                );
            }
        }
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let field = |at, dims: &[u64], tile: &[u64]| Field {
            at,
            dims: dims.to_vec(),
            tile: tile.to_vec(),
        };
        let one = |field| Geometry::new(2, 8, vec![field]);
        assert!(one(field(0, &[2, 4], &[1, 1, 4])).is_some());
        assert!(
            one(field(0, &[2, 4], &[1, 1])).is_none(),
            "a dimension too few"
        );
        assert!(
            one(field(0, &[2, 3], &[1, 1, 3])).is_none(),
            "a gap at the end"
        );
        assert!(
            one(field(1, &[7], &[1, 7])).is_none(),
            "a gap at the beginning"
        );
        assert!(one(field(0, &[8], &[1, 0])).is_none(), "no extent");
        assert!(one(field(0, &[8], &[1, u64::MAX])).is_none(), "too large");
        assert!(Geometry::new(u64::MAX, 8, vec![field(0, &[8], &[1, 8])]).is_none());
        assert!(Geometry::new(1 << 20, 8, vec![field(0, &[8], &[1, 1])]).is_none());
    }
}
