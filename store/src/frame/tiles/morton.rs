//! The order of tiles: neighbours in any dimension are close to each other.

/// Numbers of the cells of a grid (row-major) in Morton order.
pub(super) fn order(grid: &[u64]) -> Vec<u32> {
    let count: u64 = grid.iter().product();
    let mut cells: Vec<(u128, u32)> = (0..count)
        .map(|cell| (code(grid, cell), cell as u32))
        .collect();
    cells.sort_unstable();
    cells.into_iter().map(|(_, cell)| cell).collect()
}

/// The bits of a cell's coordinates, interleaved; of the fastest dimension lowest.
fn code(grid: &[u64], cell: u64) -> u128 {
    let mut coordinates = Vec::with_capacity(grid.len());
    let mut rest = cell;
    for &extent in grid.iter().rev() {
        coordinates.push(rest % extent);
        rest /= extent;
    }
    let mut code = 0;
    let mut place = 0;
    for bit in 0..32 {
        for (&coordinate, &extent) in coordinates.iter().zip(grid.iter().rev()) {
            // Only bits that this dimension can have take part.
            if extent > 1 && (extent - 1) >> bit > 0 {
                if place < 128 {
                    code |= u128::from(coordinate >> bit & 1) << place;
                }
                place += 1;
            }
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_square_is_walked_in_the_shape_of_a_z() {
        assert_eq!(order(&[2, 2]), [0, 1, 2, 3]);
        assert_eq!(
            order(&[4, 4]),
            [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15]
        );
    }

    #[test]
    fn every_cell_comes_once_in_grids_of_any_shape() {
        for grid in [&[1][..], &[7], &[3, 5], &[1, 6, 1], &[2, 3, 4, 5]] {
            let mut seen = order(grid);
            seen.sort_unstable();
            let count: u64 = grid.iter().product();
            assert_eq!(seen, (0..count as u32).collect::<Vec<_>>());
        }
    }
}
