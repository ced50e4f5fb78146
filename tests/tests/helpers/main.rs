//! mount(8), umount(8) and fstab, with the helpers where they look for them.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use shale_tests::{
    Case, Cmd, Context, Finished, Need, Outcome, Rng, Suite, alive, ensure, ensure_eq,
    install_helpers, report, shale,
};

/// Where libmount keeps what the kernel does not record about mounts.
const TABLE: &str = "/run/mount/utab";

fn main() -> ExitCode {
    Suite::new("helpers")
        .need(Need::Shale)
        .limit(Duration::from_secs(120))
        .test("umount_waits_for_every_kind_of_mount", waits)
        .test("umount_clears_what_a_dead_daemon_left", dead)
        .test(
            "names_with_blanks_and_backslashes_are_waited_for",
            odd_names,
        )
        .test("entries_of_others_in_utab_stay", entries_of_others)
        .test("a_mount_that_is_looked_at_can_be_unmounted", looked_at)
        .test("a_file_that_is_closed_soon_is_waited_for", closed_soon)
        .test("a_file_that_stays_open_keeps_the_mount", stays_open)
        .test("devices_and_set_id_programs_can_be_allowed", allowed)
        .test("umount_of_a_bind_mount_succeeds", bind_mounts)
        .test("umount_waits_for_mounts_of_ordinary_users", users)
        .test("a_table_that_cannot_be_written_is_no_obstacle", no_table)
        .run()
}

/// A store and its mount point, for any mount command.
struct Place {
    store: PathBuf,
    mountpoint: PathBuf,
}

impl Place {
    fn new(case: &Case, name: impl AsRef<OsStr>) -> Outcome<Self> {
        let mountpoint = case.work().join(name.as_ref());
        fs::create_dir(&mountpoint)?;
        let mut store = mountpoint.clone().into_os_string();
        store.push(".store");
        let store = store.into();
        Ok(Place { store, mountpoint })
    }

    fn mount(&self, options: &str) -> Outcome {
        let line = Cmd::new("mount").args(["-t", "fuse.shale", "-o", options]);
        line.arg(&self.store).arg(&self.mountpoint).ok()?;
        Ok(())
    }

    /// The process that serves it, asked as root.
    fn daemon(&self) -> Outcome<i32> {
        let live: serde_json::Value = serde_json::from_str(&report(&self.mountpoint, "live")?)?;
        let pid = live["pid"].as_i64().doing("the number of the daemon")?;
        Ok(i32::try_from(pid)?)
    }

    fn umount(&self) -> Outcome<Finished> {
        Cmd::new("umount").arg(&self.mountpoint).run()
    }

    fn is_mounted(&self) -> Outcome<bool> {
        let line = Cmd::new("mountpoint").arg("-q").arg(&self.mountpoint);
        Ok(line.run()?.status.success())
    }

    /// Writes without a sync, unmounts, and fails unless umount(8) has waited for all of it.
    fn umount_waits(&self, how: &str) -> Outcome {
        let daemon = self.daemon()?;
        let bytes = Rng::new(1).bytes(24 << 20);
        fs::write(self.mountpoint.join("file"), &bytes)?;
        self.umount()?.success()?;
        ensure!(!alive(daemon), "{how}: umount has not waited");
        ensure!(!self.is_mounted()?, "{how}: still mounted");
        ensure_eq!(entries(&self.mountpoint)?, [""; 0], "{how}: in the table");
        Ok(())
    }
}

/// Lines of the table that are about a mount point.
fn entries(mountpoint: &Path) -> Outcome<Vec<String>> {
    let target = format!("TARGET={}", mountpoint.display());
    Ok(fs::read_to_string(TABLE)?
        .lines()
        .filter(|line| line.split(' ').any(|field| field == target))
        .map(str::to_owned)
        .collect())
}

fn waits(case: &Case) -> Outcome {
    install_helpers(case)?;
    let place = Place::new(case, "mnt")?;
    for options in ["memory=64M", "memory=64M,_netdev,x-test=1", "memory=64M,ro"] {
        place.mount(options)?;
        let read_only = options.ends_with("ro");
        let has = entries(&place.mountpoint)?.concat();
        // What mount(8) itself keeps of a mount is still kept.
        ensure_eq!(
            has.contains("_netdev,x-test=1"),
            options.contains("_netdev"),
            "{options}: {has}"
        );
        if read_only {
            let daemon = place.daemon()?;
            place.umount()?.success()?;
            ensure!(!alive(daemon), "ro: umount has not waited");
        } else {
            place.umount_waits(options)?;
        }
    }

    let mount = || shale().args(["mount", "--memory", "64M"]);
    mount().arg(&place.store).arg(&place.mountpoint).ok()?;
    place.umount_waits("shale mount")?;

    let fstab = case.work().join("fstab");
    for options in ["memory=64M", "memory=64M,_netdev"] {
        let (store, mountpoint) = (place.store.display(), place.mountpoint.display());
        fs::write(
            &fstab,
            format!("{store} {mountpoint} fuse.shale {options} 0 0\n"),
        )?;
        let line = Cmd::new("mount").arg("-T").arg(&fstab);
        line.arg(&place.mountpoint).ok()?;
        place.umount_waits("fstab")?;
    }

    // Other ways to unmount leave nothing behind either.
    place.mount("memory=64M,_netdev")?;
    shale().arg("unmount").arg(&place.mountpoint).ok()?;
    ensure_eq!(entries(&place.mountpoint)?, [""; 0], "after shale unmount");
    place.mount("memory=64M")?;
    let daemon = place.daemon()?;
    Cmd::new("kill").arg(daemon.to_string()).ok()?;
    wait_for_end(daemon)?;
    ensure_eq!(entries(&place.mountpoint)?, [""; 0], "after SIGTERM");
    Ok(())
}

fn dead(case: &Case) -> Outcome {
    install_helpers(case)?;
    let place = Place::new(case, "mnt")?;
    for command in ["umount", "shale unmount", "umount -l"] {
        place.mount("memory=64M")?;
        let daemon = place.daemon()?;
        Cmd::new("kill").args(["-9", &daemon.to_string()]).ok()?;
        wait_for_end(daemon)?;
        match command {
            "umount" => place.umount()?.success()?,
            "umount -l" => Cmd::new("umount")
                .arg("-l")
                .arg(&place.mountpoint)
                .run()?
                .success()?,
            _ => shale()
                .arg("unmount")
                .arg(&place.mountpoint)
                .run()?
                .success()?,
        };
        ensure!(!place.is_mounted()?, "{command}: still mounted");
        ensure_eq!(entries(&place.mountpoint)?, [""; 0], "{command}");
    }
    Ok(())
}

fn odd_names(case: &Case) -> Outcome {
    install_helpers(case)?;
    for name in ["a b", "a\\b", "a\tb", "a\\040b", "ä"] {
        let place = Place::new(case, name)?;
        place.mount("memory=64M")?;
        place.umount_waits(name)?;
        ensure_eq!(fs::read_to_string(TABLE)?, "", "{name}: in the table");
    }
    Ok(())
}

fn entries_of_others(case: &Case) -> Outcome {
    const OTHERS: &str = "\
SRC=server:/export TARGET=/mnt/else\\040where ROOT=/ OPTS=_netdev
ID=7 SRC=/dev/sdx1 TARGET=/mnt/shale ROOT=/ BINDSRC=/a ATTRS=x OPTS=user=alice,helper=udisks2
";
    install_helpers(case)?;
    fs::create_dir_all("/run/mount")?;
    fs::write(TABLE, OTHERS)?;
    let names = ["a", "b", "c", "d", "e", "f"];
    let places = names
        .iter()
        .map(|name| Place::new(case, name))
        .collect::<Outcome<Vec<_>>>()?;
    for _ in 0..3 {
        std::thread::scope(|scope| -> Outcome {
            // By different ways, so that libmount changes the table meanwhile.
            let running: Vec<_> = places
                .iter()
                .enumerate()
                .map(|(n, place)| {
                    scope.spawn(move || {
                        place.mount(["memory=32M", "memory=32M,_netdev"][n % 2])?;
                        place.umount_waits("beside others")
                    })
                })
                .collect();
            for one in running {
                one.join().expect("a thread panicked")?;
            }
            Ok(())
        })?;
    }
    let table = fs::read_to_string(TABLE)?;
    // libmount leaves out what it does not know, and so may have written them again itself.
    let (first, rest) = OTHERS.split_once('\n').doing("the first line")?;
    ensure!(table.starts_with(first), "{table}");
    ensure_eq!(table.lines().count(), 2, "lines: {table}");
    ensure!(table.contains("OPTS=user=alice,helper=udisks2"), "{table}");

    // Alone, they are kept to the byte.
    fs::write(TABLE, OTHERS)?;
    let place = &places[0];
    shale()
        .args(["mount", "--memory", "32M"])
        .arg(&place.store)
        .arg(&place.mountpoint)
        .ok()?;
    let table = fs::read_to_string(TABLE)?;
    ensure!(table.starts_with(OTHERS), "{table}");
    ensure_eq!(table.lines().count(), 3, "{table}");
    let mode = fs::metadata(TABLE)?.permissions().mode();
    ensure_eq!(mode & 0o777, 0o644, "mode of the table");
    shale().arg("unmount").arg(&place.mountpoint).ok()?;
    ensure_eq!(fs::read_to_string(TABLE)?, OTHERS, "{rest}");
    Ok(())
}

/// The ways to end a mount, by name.
fn end(place: &Place, way: &str) -> Outcome<Cmd> {
    Ok(match way {
        "umount" => Cmd::new("umount").arg(&place.mountpoint),
        "shale unmount" => shale().arg("unmount").arg(&place.mountpoint),
        _ => Cmd::new("kill").arg(place.daemon()?.to_string()),
    })
}

const WAYS: [&str; 3] = ["umount", "shale unmount", "kill"];

fn wait_for_end(daemon: i32) -> Outcome {
    let deadline = Instant::now() + Duration::from_secs(60);
    while alive(daemon) {
        ensure!(Instant::now() < deadline, "the daemon {daemon} stays");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn looked_at(case: &Case) -> Outcome {
    install_helpers(case)?;
    let place = Place::new(case, "mnt")?;
    let log = case.work().join("log");
    let options = format!("memory=64M,log={}", log.display());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| -> Outcome {
        // What df does, again and again.
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let _ = nix::sys::statvfs::statvfs(&place.mountpoint);
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let ended = (0..5).try_for_each(|_| -> Outcome {
            WAYS.into_iter().try_for_each(|way| -> Outcome {
                place.mount(&options)?;
                let daemon = place.daemon()?;
                end(&place, way)?.ok()?;
                wait_for_end(daemon)
            })
        });
        over.store(true, Ordering::Relaxed);
        ended
    })?;
    ensure_eq!(fs::read_to_string(&log)?, "", "in the log");
    Ok(())
}

fn closed_soon(case: &Case) -> Outcome {
    install_helpers(case)?;
    let place = Place::new(case, "mnt")?;
    let log = case.work().join("log");
    for way in WAYS {
        place.mount(&format!("memory=64M,log={}", log.display()))?;
        let daemon = place.daemon()?;
        let open = File::create(place.mountpoint.join("file"))?;
        let mut ending = end(&place, way)?.spawn()?;
        std::thread::sleep(Duration::from_millis(300));
        ensure!(place.is_mounted()?, "{way}: took it away in use");
        drop(open);
        ensure!(ending.wait()?.success(), "{way} gave up");
        wait_for_end(daemon)?;
    }
    ensure_eq!(fs::read_to_string(&log)?, "", "in the log");
    Ok(())
}

fn stays_open(case: &Case) -> Outcome {
    install_helpers(case)?;
    let place = Place::new(case, "mnt")?;
    place.mount("memory=64M")?;
    let open = File::create(place.mountpoint.join("file"))?;
    for (way, status) in [("umount", 32), ("shale unmount", 75)] {
        let begun = Instant::now();
        let refused = end(&place, way)?.run()?.status_is(status)?;
        ensure!(
            refused.stderr.contains("a program has a file open"),
            "{way}: {}",
            refused.stderr
        );
        let took = begun.elapsed().as_secs_f64();
        ensure!(took > 2.0, "{way} gave up after {took:.1} s");
        ensure!(place.is_mounted()?, "{way}: not mounted any more");
    }
    drop(open);
    place.umount()?.success()?;
    Ok(())
}

fn allowed(case: &Case) -> Outcome {
    install_helpers(case)?;
    let place = Place::new(case, "mnt")?;
    let shown = || -> Outcome<[bool; 2]> {
        let line = Cmd::new("findmnt").args(["-n", "-o", "OPTIONS"]);
        let options = line.arg(&place.mountpoint).ok()?;
        let has = |name| options.trim().split(',').any(|option| option == name);
        Ok([!has("nodev"), !has("nosuid")])
    };
    for (options, expected) in [
        ("rw", [false, false]),
        // mount(8) keeps these to itself.
        ("dev,suid", [false, false]),
        ("allow_dev,allow_suid", [true, true]),
        ("nodev,allow_suid", [false, true]),
    ] {
        place.mount(&format!("memory=64M,{options}"))?;
        ensure_eq!(shown()?, expected, "{options}");
        place.umount()?.success()?;
    }
    let fstab = case.work().join("fstab");
    let (store, mountpoint) = (place.store.display(), place.mountpoint.display());
    let line = format!("{store} {mountpoint} fuse.shale allow_dev,allow_suid,memory=64M 0 0\n");
    fs::write(&fstab, line)?;
    let mount = Cmd::new("mount").arg("-T").arg(&fstab);
    mount.arg(&place.mountpoint).ok()?;
    ensure_eq!(shown()?, [true, true], "fstab");
    place.umount()?.success()?;
    Ok(())
}

fn bind_mounts(case: &Case) -> Outcome {
    install_helpers(case)?;
    let place = Place::new(case, "mnt")?;
    let (file, dir) = (case.work().join("file"), case.dir("dir")?);
    fs::write(&file, b"below")?;
    let bind = |from: &Path, to: &Path| {
        let line = Cmd::new("mount").arg("--bind");
        line.arg(from).arg(to).ok()
    };
    let umount = |path: &Path| -> Outcome<String> {
        Ok(Cmd::new("umount").arg(path).run()?.success()?.stderr)
    };
    place.mount("memory=64M")?;
    let daemon = place.daemon()?;
    fs::write(place.mountpoint.join("one"), b"contents")?;
    fs::create_dir(place.mountpoint.join("sub"))?;
    for (name, target) in [("one", &file), ("sub", &dir)] {
        bind(&place.mountpoint.join(name), target)?;
        ensure_eq!(umount(target)?, "", "what umount of {name} says");
    }
    ensure_eq!(fs::read(&file)?, b"below", "what was below");
    bind(&place.mountpoint, &dir)?;
    ensure!(
        umount(&place.mountpoint)?.contains("still mounted on"),
        "no word that nothing was waited for"
    );
    ensure!(alive(daemon), "gone though it is mounted elsewhere");
    ensure_eq!(fs::read(dir.join("one"))?, b"contents", "elsewhere");
    bind(&dir.join("one"), &file)?;
    Cmd::new("umount").arg(&dir).ok()?;
    // The last one is waited for, whatever it shows.
    ensure_eq!(umount(&file)?, "", "what the last umount says");
    ensure!(!alive(daemon), "the last umount has not waited");
    Ok(())
}

fn users(case: &Case) -> Outcome {
    const NOBODY: u32 = 65_534;
    let command = install_helpers(case)?;
    // As udev leaves it on every machine.
    let device = case.work().join("helpers/fuse");
    Cmd::shell("mknod -m 666 $0 c 10 229; mount -n --bind $0 /dev/fuse")
        .arg(&device)
        .ok()?;
    let place = Place::new(case, "mnt")?;
    fs::create_dir(&place.store)?;
    for path in [&place.store, &place.mountpoint] {
        chown(path, Some(NOBODY), Some(NOBODY))?;
    }
    for caller in [NOBODY, 0] {
        let mount = Cmd::new(&command).args(["mount", "--memory", "64M"]);
        let mount = mount.arg(&place.store).arg(&place.mountpoint);
        mount.user(NOBODY, NOBODY).ok()?;
        let note = fs::read_to_string(place.store.join("lock"))?;
        let daemon: i32 = note.split(' ').next().unwrap_or_default().parse()?;
        let write = Cmd::shell("head -c 24M /dev/urandom > $0/file");
        let write = write.arg(&place.mountpoint);
        write.user(NOBODY, NOBODY).ok()?;
        let umount = Cmd::new("umount").arg(&place.mountpoint);
        umount.user(caller, caller).ok()?;
        ensure!(!alive(daemon), "umount by {caller} has not waited");
    }
    Ok(())
}

fn no_table(case: &Case) -> Outcome {
    install_helpers(case)?;
    let place = Place::new(case, "mnt")?;
    let log = case.work().join("log");
    fs::create_dir_all("/run/mount")?;
    Cmd::new("mount")
        .args(["-n", "-t", "tmpfs", "-o", "ro", "tmpfs", "/run/mount"])
        .ok()?;
    place.mount(&format!("memory=64M,log={}", log.display()))?;
    fs::write(place.mountpoint.join("file"), b"contents")?;
    shale().arg("unmount").arg(&place.mountpoint).ok()?;
    let text = fs::read_to_string(&log)?;
    ensure!(
        text.contains("WARN") && text.contains("/run/mount") && text.contains("shale unmount"),
        "the log says: {text}"
    );
    ensure_eq!(text.lines().count(), 1, "lines in the log: {text}");
    Ok(())
}
