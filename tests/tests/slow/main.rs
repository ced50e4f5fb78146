//! A device that takes seconds to answer: callers wait, no call fails.

use std::fs::{self, File};
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use shale_tests::{
    Case, Cmd, LoopFs, Mount, Need, Outcome, Rng, Suite, Writer, alive, ensure, install_helpers,
    note, rounds, seed, tally,
};

const MIB: usize = 1 << 20;
/// Bytes per second.
const RATE: u64 = 192 << 10;
/// Takes a device of that rate some seconds.
const NOISE: usize = MIB / 2;
const WRITERS: u64 = 2;

fn main() -> ExitCode {
    Suite::new("slow")
        .need(Need::Shale)
        .need(Need::Throttle)
        .limit(Duration::from_secs(600))
        .test("a_slow_device_is_waited_for", a_slow_device_is_waited_for)
        .test("umount_waits_for_a_slow_device", umount_waits)
        .run()
}

fn a_slow_device_is_waited_for(case: &Case) -> Outcome {
    let seed = seed()?;
    let mut rng = Rng::new(seed);
    let device = case.loop_fs("device", LoopFs::Ext4, 512 * MIB as u64)?;
    let store = device.path().join("store");
    let mut mount = Mount::new(store, case.work().join("fs"), &["--memory", "64M"])?;
    let mut writers = Writer::several(mount.path(), WRITERS, &mut rng)?;
    let known = rng.bytes(MIB);
    let cached = mount.path().join("cached");
    fs::write(&cached, &known)?;
    ensure!(fs::read(&cached)? == known, "just written");
    File::open(mount.path())?.sync_all()?;

    let (mut syncs, mut reads, mut slowest) = (0, 0, Duration::ZERO);
    for round in rounds(1) {
        let noise = rng.bytes(NOISE);
        let path = mount.path().join(format!("slow-{round}"));
        let stop = AtomicBool::new(false);
        let slow = device.slow_down(RATE)?;
        std::thread::scope(|scope| -> Outcome {
            let running: Vec<_> = writers
                .iter_mut()
                .map(|writer| scope.spawn(|| writer.work(&stop)))
                .collect();
            let syncing = scope.spawn(|| -> Outcome<Duration> {
                let mut file = File::create_new(&path)?;
                file.write_all(&noise)?;
                let begun = Instant::now();
                file.sync_all()?;
                Ok(begun.elapsed())
            });
            // What is in memory is not waited for.
            while !syncing.is_finished() {
                ensure!(fs::read(&cached)? == known, "while the device is slow");
                ensure!(
                    fs::read_dir(mount.path())?.count() >= 3,
                    "entries while the device is slow"
                );
                reads += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
            slowest = slowest.max(syncing.join().expect("the thread that syncs panicked")?);
            stop.store(true, Ordering::SeqCst);
            drop(slow);
            for handle in running {
                handle.join().expect("a writer panicked")?;
            }
            Ok(())
        })?;
        syncs += 1;
        ensure!(
            fs::read(&path)? == noise,
            "differs after the device was slow"
        );
        fs::remove_file(&path)?;
    }
    // A rate that was not kept would mean that nothing was tested.
    let least = Duration::from_secs(NOISE as u64 / RATE / 2);
    ensure!(
        slowest > least,
        "the slowest sync took {slowest:?}: the device was not slow"
    );
    ensure!(reads > syncs * 10, "reads waited for the device");
    note(format!(
        "{syncs} rounds, slowest sync {:.1} s, {reads} reads meanwhile",
        slowest.as_secs_f64()
    ));
    for writer in &mut writers {
        writer.everything_is_kept();
        writer.verify()?;
    }
    mount.remount()?;
    for writer in &mut writers {
        writer.verify()?;
    }
    tally("a slow device: rounds", syncs, syncs, 0);
    mount.unmount()?;
    mount.fsck_is_clean()
}

/// After a plain `mount -t fuse.shale`, umount(8) returns when the device has everything.
fn umount_waits(case: &Case) -> Outcome {
    install_helpers(case)?;
    let device = case.loop_fs("device", LoopFs::Ext4, 256 * MIB as u64)?;
    let (store, mountpoint) = (device.path().join("store"), case.dir("fs")?);
    Cmd::new("mount")
        .args(["-t", "fuse.shale"])
        .arg(&store)
        .arg(&mountpoint)
        .ok()?;
    let note_of_daemon = fs::read_to_string(store.join("lock"))?;
    let daemon: i32 = note_of_daemon
        .split(' ')
        .next()
        .unwrap_or_default()
        .parse()?;
    let known = Rng::new(1).bytes(2 * MIB);
    let slow = device.slow_down(MIB as u64 / 2)?;
    fs::write(mountpoint.join("file"), &known)?;
    let begun = Instant::now();
    Cmd::new("umount").arg(&mountpoint).ok()?;
    let took = begun.elapsed();
    let gone = !alive(daemon);
    drop(slow);
    note(format!("umount took {:.1} s", took.as_secs_f64()));
    ensure!(gone, "umount returned while the daemon was writing");
    let mut mount = Mount::new(store, mountpoint, &[])?;
    ensure!(
        fs::read(mount.path().join("file"))? == known,
        "differs after the device was slow"
    );
    mount.unmount()
}
