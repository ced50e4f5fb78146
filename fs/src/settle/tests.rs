//! The background pass when a step of it fails.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use shale_backing::failpoint::{Stage, panic_at};
use shale_index::ROOT;
use shale_index::schema::Phase;

use super::worker::{ATTEMPTS, Sweeper};
use super::*;
use crate::settle_control::{SettleOutcome, SettleRequest};
use crate::testing::file_system;
use crate::{Access, Caller, Handle, WriteSource};

const HOW: Settling = Settling {
    quiet: None,
    rate: 1 << 30,
    workers: 1,
};

fn written(fs: &Fs, name: &[u8], bytes: &[u8]) -> Handle {
    let caller = Caller::default();
    let (_, handle) = fs
        .create(&caller, ROOT, name, 0o600, Access::WRITE)
        .unwrap();
    fs.write(&handle, 0, bytes, WriteSource::Program.into())
        .unwrap();
    fs.fsync(&handle).unwrap();
    handle
}

fn contents(fs: &Fs, handle: &Handle) -> Vec<u8> {
    let mut out = Vec::new();
    fs.read(handle, 0, 1 << 20, &mut out).unwrap();
    out
}

#[test]
fn a_panic_while_settling_is_reported_and_the_file_system_lives_on() {
    let dir = tempfile::tempdir().unwrap();
    let fs = file_system(dir.path());
    let (told, heard) = channel();
    let told = Mutex::new(told);
    fs.settling
        .listen(Box::new(move |ino| told.lock().unwrap().send(ino).unwrap()));
    let bytes: Vec<u8> = (0..200_000_u32)
        .flat_map(|n| (n as f32 / 7.0).to_le_bytes())
        .collect();
    let handle = written(&fs, b"file", &bytes);
    let ino = handle.ino();
    let settler = start(&fs, HOW).unwrap();
    let done_with = |request| {
        fs.settling.request(ino, request);
        assert_eq!(heard.recv().unwrap(), ino, "the kernel is told in any case");
        while fs.settling.is_settling(ino) {
            std::thread::yield_now();
        }
    };

    panic_at(Stage::SettleBegins, &fs.store().path());
    done_with(SettleRequest::Rewrite);
    assert_eq!(fs.settling.outcome(ino), SettleOutcome::Failed(libc::EIO));
    assert_eq!(fs.counters.settle.failed.get(), 1);
    assert!(!settler.is_finished(), "the pass goes on");
    assert_eq!(contents(&fs, &handle), bytes);

    fs.write(&handle, 5, b"later", WriteSource::Program.into())
        .unwrap();
    fs.fsync(&handle).unwrap();
    done_with(SettleRequest::Settle);
    assert_eq!(fs.settling.outcome(ino), SettleOutcome::Done);
    assert_eq!(fs.counters.settle.failed.get(), 1);
    assert_eq!(fs.inode(ino).unwrap().phase, Phase::Settled);
    assert_eq!(contents(&fs, &handle)[5..10], *b"later");

    fs.release(handle);
    fs.settling.stop();
    settler.join().unwrap();
    fs.store().shut_down().unwrap();
}

#[test]
fn a_file_with_a_missing_pack_is_not_reported_as_settled() {
    let dir = tempfile::tempdir().unwrap();
    let fs = file_system(dir.path());
    let bytes: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    let handle = written(&fs, b"file", &bytes);
    let ino = handle.ino();
    fs.release(handle);
    fs.store().shut_down().unwrap();
    drop(fs);

    // A session that has not opened the pack yet.
    let fs = file_system(dir.path());
    let hidden = dir.path().join("hidden");
    let session = std::fs::read_dir(dir.path().join("packs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.join("000000.pack").exists());
    let pack = session.unwrap().join("000000.pack");
    std::fs::rename(&pack, &hidden).unwrap();
    let mut sweeper = Sweeper::new(&fs, &HOW);
    sweeper.settle_now(ino, SettleRequest::Rewrite);
    assert_eq!(fs.settling.outcome(ino), SettleOutcome::Moved);
    assert_eq!(fs.counters.settle.failed.get(), u64::from(ATTEMPTS));
    // Each attempt fails at the first chunk; what the others did is not waited for again.
    assert_eq!(fs.settling.done(), 1 << 16);

    std::fs::rename(&hidden, &pack).unwrap();
    sweeper.settle_now(ino, SettleRequest::Rewrite);
    assert_eq!(fs.settling.outcome(ino), SettleOutcome::Done);
    assert_eq!(fs.inode(ino).unwrap().phase, Phase::Settled);
    fs.store.unlink(ROOT, b"file").unwrap();
    sweeper.settle_now(ino, SettleRequest::Rewrite);
    assert_eq!(fs.settling.outcome(ino), SettleOutcome::Done);
    fs.store().shut_down().unwrap();
}

#[test]
fn small_files_do_not_wait_until_a_large_one_is_encoded() {
    let dir = tempfile::tempdir().unwrap();
    let fs = file_system(dir.path());
    let file = |name: &[u8], count: u32| {
        let number = |n| (n as f32 / 7.0).to_le_bytes();
        let bytes: Vec<u8> = (0..count).flat_map(number).collect();
        let handle = written(&fs, name, &bytes);
        let ino = handle.ino();
        fs.release(handle);
        ino
    };
    let (one, two, large) = (
        file(b"one", 30_000),
        file(b"two", 30_000),
        file(b"l", 5 << 20),
    );
    let (told, heard) = channel();
    let (told, known) = (Mutex::new(told), Arc::downgrade(&fs));
    fs.settling.listen(Box::new(move |ino| {
        let fs = known.upgrade().unwrap();
        told.lock()
            .unwrap()
            .send((ino, fs.settling.is_settling(large)))
            .unwrap();
    }));
    let mut sweeper = Sweeper::new(&fs, &HOW);
    for ino in [one, two, large] {
        sweeper.begin(ino, Some(SettleRequest::Settle));
    }
    sweeper.finish(None);
    let done: Vec<(u64, bool)> = heard.try_iter().collect();
    assert_eq!(done, [(one, false), (two, false), (large, true)]);
    for ino in [one, two, large] {
        assert_eq!(fs.inode(ino).unwrap().phase, Phase::Settled);
    }
    fs.store().shut_down().unwrap();
}
