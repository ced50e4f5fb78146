//! Which worker writes what: packs balanced by bytes, not by count.

/// Cuts a sequence of units with these sizes into runs, one for each of `workers`. Each run gets
/// the average of what remains for the workers that remain, so that a mistake made on one run is
/// spread over all that follow.
pub(super) fn balance(sizes: &[u64], workers: usize) -> Vec<std::ops::Range<usize>> {
    let mut remains: u64 = sizes.iter().sum();
    let mut begin = 0;
    let mut runs = Vec::with_capacity(workers);
    for worker in 0..workers {
        let share = remains / (workers - worker) as u64;
        let mut end = begin;
        let mut taken = 0;
        while end < sizes.len() && (taken < share || worker + 1 == workers) {
            let more = taken + sizes[end];
            // Stop where the run is nearer to its share.
            if worker + 1 < workers && more > share && more - share > share - taken {
                break;
            }
            taken = more;
            end += 1;
        }
        runs.push(begin..end);
        remains -= taken;
        begin = end;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(sizes: &[u64], runs: &[std::ops::Range<usize>]) -> f64 {
        let sums: Vec<u64> = runs
            .iter()
            .map(|run| sizes[run.clone()].iter().sum())
            .collect();
        let (least, most) = (sums.iter().min(), sums.iter().max());
        *most.unwrap() as f64 / *least.unwrap() as f64
    }

    #[test]
    fn skewed_units_give_even_runs_where_counting_does_not() {
        // Density falls along the array: the front compresses badly, the rest well.
        let sizes: Vec<u64> = (0..1000u64).map(|i| 1000 + 200_000 / (i + 1)).collect();
        let runs = balance(&sizes, 4);
        assert!(spread(&sizes, &runs) < 1.05);
        let by_count: Vec<_> = (0..4).map(|i| i * 250..(i + 1) * 250).collect();
        assert!(spread(&sizes, &by_count) > 1.5);
    }

    #[test]
    fn every_unit_is_in_one_run() {
        for (sizes, workers) in [
            (vec![], 3),
            (vec![5], 3),
            (vec![1, 1, 1000, 1], 2),
            (vec![0, 0, 0], 2),
            ((0..100).collect(), 7),
        ] {
            let runs = balance(&sizes, workers);
            assert_eq!(runs.len(), workers);
            let all: Vec<usize> = runs.into_iter().flatten().collect();
            assert_eq!(all, (0..sizes.len()).collect::<Vec<_>>());
        }
    }
}
