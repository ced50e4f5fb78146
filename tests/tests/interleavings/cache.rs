//! The cache of decoded frames.

use std::sync::Arc;

use shale_index::extent::{FrameAt, PackId};
use shale_store::Error;
use shale_store::testing::FrameCache;
use shale_tests::{Case, Outcome};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;

use crate::explore;

/// A frame of a pack.
fn at(at: u64) -> FrameAt {
    let pack = PackId(1);
    FrameAt { pack, at }
}

pub(crate) fn loading(_case: &Case) -> Outcome {
    explore(|| {
        // Room for two of three frames.
        let cache = Arc::new(FrameCache::new(250));
        let loading = Arc::new([const { AtomicU64::new(0) }; 3]);
        let readers: Vec<_> = (0..4_u64)
            .map(|reader| {
                let (cache, loading) = (Arc::clone(&cache), Arc::clone(&loading));
                thread::spawn(move || {
                    for step in 0..2 {
                        let frame = (reader + step) % 3;
                        let fails = reader == 0 && step == 0;
                        let found = cache.get(at(frame), || {
                            let others = loading[frame as usize].fetch_add(1, Ordering::SeqCst);
                            assert_eq!(others, 0, "two decode one frame");
                            thread::yield_now();
                            loading[frame as usize].fetch_sub(1, Ordering::SeqCst);
                            if fails {
                                return Err(Error::Poisoned);
                            }
                            Ok(vec![frame as u8; 100])
                        });
                        match found {
                            Ok(data) => assert_eq!(*data, vec![frame as u8; 100]),
                            Err(e) => assert!(fails && matches!(e, Error::Poisoned), "{e}"),
                        }
                        match reader {
                            1 => cache.forget(at(frame)),
                            2 => cache.put(at(0), Arc::new(vec![0; 100])),
                            _ => drop(cache.memory(100)),
                        }
                        assert!(cache.used() <= 250);
                    }
                })
            })
            .collect();
        for reader in readers {
            reader.join().expect("a reader panicked");
        }
    })
}
