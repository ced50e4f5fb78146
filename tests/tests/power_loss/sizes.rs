//! Sizes of files that are committed while packs are synced, or cannot be.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use shale_backing::faults::{FaultDisk, Left, Step};
use shale_index::ROOT;
use shale_store::{File, Store};
use shale_tests::{Case, Failure, Outcome, Rng, ensure, ensure_eq, small_chunks, store_options};

fn refused(error: shale_store::Error) -> Failure {
    Failure::new(error.to_string())
}

fn is_pack(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "pack")
}

/// A store on a simulated disk, with a file in it.
fn begin(case: &Case, space: u64) -> Outcome<(Arc<FaultDisk>, Arc<Store>, Arc<File>)> {
    let live = case.work().join("live");
    super::fresh(&live)?;
    let disk = FaultDisk::new(&live)?;
    disk.set_space(space);
    let store = Store::open_on(disk.backing(), &store_options(64 << 20)).map_err(refused)?;
    let created = store.committed().create(ROOT, b"file", &small_chunks());
    let ino = created.map_err(|e| Failure::new(e.to_string()))?.ino;
    let file = store.file(ino).map_err(refused)?;
    Ok((disk, Arc::new(store), file))
}

/// A file grows while the size that it had before is on its way to the index.
pub(crate) fn a_truncation_is_not_undone(case: &Case) -> Outcome {
    let (disk, store, file) = begin(case, 1 << 40)?;
    store.write(&file, 0, &[1; 1000]).map_err(refused)?;
    let (begun, go_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let first = AtomicBool::new(true);
    let (inside, outside) = ((Arc::clone(&begun), Arc::clone(&go_on)), (begun, go_on));
    disk.rule(move |step, path, _| {
        if step == Step::Sync && is_pack(path) && first.swap(false, Ordering::SeqCst) {
            inside.0.wait();
            inside.1.wait();
        }
        None
    });
    let (truncated, synced) = std::thread::scope(|scope| {
        let syncing = scope.spawn(|| store.sync(&file));
        outside.0.wait();
        let truncated = store.truncate(&file, 5000);
        outside.1.wait();
        (truncated, syncing.join())
    });
    truncated.map_err(refused)?;
    let synced = synced.map_err(|_| Failure::new("the sync panicked"))?;
    synced.map_err(refused)?;
    let inode = store.committed().inode(file.ino());
    let size = inode.map_err(|e| Failure::new(e.to_string()))?.size;
    ensure_eq!(size, 5000, "the size that the index has");
    store.close(file);
    store.shut_down().map_err(refused)
}

/// Of two packs with data of a file the first cannot be synced, and more is written meanwhile.
pub(crate) fn files_synced_beside_a_lost_pack_survive(case: &Case) -> Outcome {
    // Packs are as small as they get, so that the data takes two.
    let (disk, store, file) = begin(case, 1 << 30)?;
    let mut rng = Rng::new(7);
    let (low, high) = (rng.bytes(15 << 20), rng.bytes(6 << 20));
    let at = 32 << 20;
    store.write(&file, 0, &low).map_err(refused)?;
    store.write(&file, at, &high).map_err(refused)?;
    let first = AtomicBool::new(true);
    let (writer, written) = (Arc::clone(&store), Arc::clone(&file));
    disk.rule(move |step, path, _| {
        let fails = step == Step::Sync && is_pack(path) && first.swap(false, Ordering::SeqCst);
        fails.then(|| {
            // Newer than the sync, which does not wait for it.
            let _ = writer.write(&written, 0, b"newer");
            std::io::Error::from_raw_os_error(libc::EIO)
        })
    });
    store.sync(&file).map_err(refused)?;
    disk.cut_power_at(disk.changes());
    let after = case.work().join("after");
    super::fresh(&after)?;
    disk.after_power_loss(&after, Left::Nothing)?;
    let found = Store::open(&after, &store_options(64 << 20)).map_err(refused)?;
    let again = found.file(file.ino()).map_err(refused)?;
    let mut bytes = Vec::new();
    found
        .read(&again, at, high.len(), &mut bytes)
        .map_err(refused)?;
    ensure!(
        bytes == high,
        "what was synced is gone: {} bytes",
        bytes.len()
    );
    found.close(again);
    found.shut_down().map_err(refused)?;
    // Without power it cannot shut down cleanly.
    store.close(file);
    let _ = store.shut_down();
    Ok(())
}
