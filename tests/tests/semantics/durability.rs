//! Visibility, and the state after a power cut.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::XattrFlags;
use shale_tests::{Case, Cmd, Loop, LoopFs, Mount, Outcome, Rng, ensure, ensure_eq, note};

/// A mount whose device can lose power.
struct Machine {
    mount: Mount,
    device: Loop,
    // Holds the image of the device, and clones it.
    _host: Loop,
    cuts: usize,
}

impl Machine {
    fn new(case: &Case) -> Outcome<Machine> {
        Machine::with(case, "settle=off")
    }

    fn with(case: &Case, options: &str) -> Outcome<Machine> {
        let host = case.loop_fs("host", LoopFs::Btrfs, 2 << 30)?;
        let device = Loop::new(host.path(), "device", LoopFs::Ext4, 192 << 20)?;
        let mount = Mount::new(
            device.path().join("store"),
            case.work().join("fs"),
            &["-o", options],
        )?;
        Ok(Machine {
            mount,
            device,
            _host: host,
            cuts: 0,
        })
    }

    fn path(&self) -> &Path {
        self.mount.path()
    }

    /// The state that the next mount would show if the power failed now.
    fn after_power_cut<T>(
        &mut self,
        case: &Case,
        look: impl FnOnce(&Path) -> Outcome<T>,
    ) -> Outcome<T> {
        self.cuts += 1;
        let name = format!("cut-{}", self.cuts);
        let device = self.device.after_power_cut(case.work(), &name)?;
        let mountpoint = case.work().join(format!("after-{}", self.cuts));
        let mut mount = Mount::new(device.path().join("store"), mountpoint, &[])?;
        let seen = look(mount.path())?;
        mount.unmount()?;
        mount.fsck_is_clean()?;
        Ok(seen)
    }

    /// Cuts the power repeatedly until `there` holds; returns how long that took.
    fn soon(&mut self, case: &Case, there: impl Fn(&Path) -> bool) -> Outcome {
        let begun = Instant::now();
        loop {
            let cut_at = begun.elapsed();
            if self.after_power_cut(case, |top| Ok(there(top)))? {
                note(format!("durable within {:.1} s", cut_at.as_secs_f64()));
                return Ok(());
            }
            ensure!(cut_at < Duration::from_secs(30), "not durable after 30 s");
        }
    }

    fn end(mut self) -> Outcome {
        self.mount.unmount()
    }
}

fn sample() -> Vec<u8> {
    Rng::new(1).bytes(3_000_000)
}

fn holds_sample(path: &Path) -> bool {
    fs::read(path).is_ok_and(|bytes| bytes == sample())
}

pub(crate) fn write(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    let path = mount.path().join("file");
    let mut writer = File::create(&path)?;
    let reader = File::open(&path)?;
    let script = "import mmap, os, sys\n\
        f = os.open(sys.argv[1], os.O_RDONLY)\n\
        print(os.fstat(f).st_size, mmap.mmap(f, 0, prot=mmap.PROT_READ)[:].decode())";
    let mut expected = String::new();
    for round in 0..3 {
        let piece = format!("{round} rounds; ");
        writer.write_all(piece.as_bytes())?;
        expected.push_str(&piece);
        let mut bytes = vec![0; expected.len()];
        reader.read_exact_at(&mut bytes, 0)?;
        ensure_eq!(bytes, expected.as_bytes(), "another handle");
        ensure_eq!(fs::metadata(&path)?.len(), expected.len() as u64, "st_size");
        let seen = Cmd::new("cat").arg(&path).ok()?;
        ensure_eq!(seen, expected, "another process");
        let mapped = Cmd::new("python3").args(["-c", script]).arg(&path).ok()?;
        ensure_eq!(
            mapped,
            format!("{} {expected}\n", expected.len()),
            "a mapping"
        );
    }
    drop((writer, reader));
    mount.unmount()
}

pub(crate) fn close(case: &Case) -> Outcome {
    let mut machine = Machine::new(case)?;
    fs::write(machine.path().join("file"), sample())?;
    machine.soon(case, |top| holds_sample(&top.join("file")))?;
    machine.end()
}

/// A directory with the policy `durability=sync`.
fn synchronous(machine: &Machine) -> Outcome<std::path::PathBuf> {
    let dir = machine.path().join("dir");
    fs::create_dir(&dir)?;
    let value = b"sync";
    rustix::fs::setxattr(&dir, "user.shale.durability", value, XattrFlags::empty())?;
    Ok(dir)
}

pub(crate) fn close_under_sync(case: &Case) -> Outcome {
    let mut machine = Machine::new(case)?;
    let dir = synchronous(&machine)?;
    fs::write(dir.join("file"), sample())?;
    let there = machine.after_power_cut(case, |top| Ok(holds_sample(&top.join("dir/file"))))?;
    ensure!(there, "a closed file is not there");
    machine.end()
}

pub(crate) fn direct_write_under_sync(case: &Case) -> Outcome {
    let mut machine = Machine::new(case)?;
    let dir = synchronous(&machine)?;
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let file = File::options()
        .write(true)
        .create_new(true)
        .custom_flags(direct)
        .open(dir.join("file"))?;
    file.write_all_at(&sample(), 0)?;
    let there = machine.after_power_cut(case, |top| Ok(holds_sample(&top.join("dir/file"))))?;
    ensure!(there, "what was written is not there");
    file.set_len(5000)?;
    let size =
        machine.after_power_cut(case, |top| Ok(fs::metadata(top.join("dir/file"))?.len()))?;
    ensure_eq!(size, 5000, "size after a truncation");
    drop(file);
    machine.end()
}

pub(crate) fn synchronous_write(case: &Case) -> Outcome {
    use rustix::fs::OFlags;
    let mut machine = Machine::new(case)?;
    for (round, options) in ["settle=off", "direct_io", "direct_io,sync"]
        .iter()
        .enumerate()
    {
        machine.mount.remount_with(&["-o", options])?;
        for (name, flags) in [
            ("sync", OFlags::SYNC),
            ("dsync", OFlags::DSYNC),
            ("direct", OFlags::DSYNC | OFlags::DIRECT),
            ("flag", OFlags::empty()),
            ("plain", OFlags::empty()),
        ] {
            // Without either it need not be there, unless the mount says so.
            if name == "plain" && !options.contains("sync") {
                continue;
            }
            let path = format!("{name}{round}");
            let file = File::options()
                .write(true)
                .create_new(true)
                .custom_flags(flags.bits() as i32)
                .open(machine.path().join(&path))?;
            if name == "flag" {
                let (bytes, flag) = (sample(), rustix::io::ReadWriteFlags::DSYNC);
                let mut done = 0;
                while done < bytes.len() {
                    let piece = [std::io::IoSlice::new(&bytes[done..])];
                    done += rustix::io::pwritev2(&file, &piece, done as u64, flag)?;
                }
            } else {
                file.write_all_at(&sample(), 0)?;
            }
            let there = machine.after_power_cut(case, |top| Ok(holds_sample(&top.join(&path))))?;
            ensure!(
                there,
                "{options}: what was written with {name} is not there"
            );
            drop(file);
        }
    }
    machine.end()
}

pub(crate) fn sync_mount(case: &Case) -> Outcome {
    let mut machine = Machine::with(case, "sync")?;
    let path = machine.path().join("file");
    let file = File::create(&path)?;
    file.write_all_at(&sample(), 0)?;
    let there = machine.after_power_cut(case, |top| Ok(holds_sample(&top.join("file"))))?;
    ensure!(there, "what was written is not there");
    file.set_len(5000)?;
    let size = machine.after_power_cut(case, |top| Ok(fs::metadata(top.join("file"))?.len()))?;
    ensure_eq!(size, 5000, "size after a truncation");
    fs::set_permissions(&path, Permissions::from_mode(0o604))?;
    let mode = machine.after_power_cut(case, |top| Ok(fs::metadata(top.join("file"))?.mode()))?;
    ensure_eq!(mode & 0o777, 0o604, "permissions");
    rustix::fs::setxattr(&path, "user.note", b"x", XattrFlags::empty())?;
    let noted = machine.after_power_cut(case, |top| {
        let mut value = [0; 8];
        Ok(rustix::fs::getxattr(top.join("file"), "user.note", &mut value).is_ok())
    })?;
    ensure!(noted, "an attribute is not there");
    drop(file);
    machine.end()
}

pub(crate) fn dirsync_mount(case: &Case) -> Outcome {
    let mut machine = Machine::with(case, "dirsync")?;
    for options in ["dirsync", "sync"] {
        machine.mount.remount_with(&["-o", options])?;
        for name in ["a", "b", "c", "renamed", "linked"] {
            let _ = fs::remove_file(machine.path().join(name));
        }
        let _ = fs::remove_dir(machine.path().join("made"));
        let top = machine.path().to_owned();
        let exists = |machine: &mut Machine, name: &str| {
            machine.after_power_cut(case, |top| Ok(top.join(name).exists()))
        };
        File::create(top.join("a"))?;
        ensure!(exists(&mut machine, "a")?, "{options}: a new file");
        fs::rename(top.join("a"), top.join("renamed"))?;
        ensure!(exists(&mut machine, "renamed")?, "{options}: a new name");
        fs::hard_link(top.join("renamed"), top.join("linked"))?;
        ensure!(exists(&mut machine, "linked")?, "{options}: a second name");
        fs::create_dir(top.join("made"))?;
        ensure!(exists(&mut machine, "made")?, "{options}: a directory");
        fs::remove_file(top.join("linked"))?;
        ensure!(
            !exists(&mut machine, "linked")?,
            "{options}: a name is back"
        );
        fs::remove_dir(top.join("made"))?;
        ensure!(
            !exists(&mut machine, "made")?,
            "{options}: a directory is back"
        );
    }
    machine.end()
}

pub(crate) fn syncfs(case: &Case) -> Outcome {
    let mut machine = Machine::new(case)?;
    let mut file = File::create(machine.path().join("file"))?;
    file.write_all(&sample())?;
    // Still open: without syncfs the pages could stay in the kernel.
    Cmd::new("sync").arg("-f").arg(machine.path()).ok()?;
    machine.soon(case, |top| holds_sample(&top.join("file")))?;
    drop(file);
    machine.end()
}

pub(crate) fn fsync(case: &Case) -> Outcome {
    let mut machine = Machine::new(case)?;
    let top = machine.path().to_owned();
    fs::create_dir_all(top.join("deep/er"))?;
    let mut file = File::create(top.join("deep/er/old"))?;
    file.write_all(&sample())?;
    let time = std::time::UNIX_EPOCH + Duration::from_secs(1_234_567_890);
    file.set_modified(time)?;
    fs::hard_link(top.join("deep/er/old"), top.join("second"))?;
    fs::rename(top.join("deep/er/old"), top.join("deep/er/new"))?;
    file.sync_all()?;
    machine.after_power_cut(case, |top| {
        for name in ["deep/er/new", "second"] {
            ensure!(
                holds_sample(&top.join(name)),
                "{name} is not as it was synced"
            );
        }
        ensure!(!top.join("deep/er/old").exists(), "the old name is back");
        ensure_eq!(
            fs::metadata(top.join("second"))?.mtime(),
            1_234_567_890,
            "time"
        );
        Ok(())
    })?;
    file.write_all(b"and more")?;
    file.sync_data()?;
    machine.after_power_cut(case, |top| {
        let bytes = fs::read(top.join("second"))?;
        ensure!(bytes == [&sample()[..], b"and more"].concat(), "fdatasync");
        Ok(())
    })?;
    drop(file);
    machine.end()
}

pub(crate) fn fsync_directory(case: &Case) -> Outcome {
    let mut machine = Machine::new(case)?;
    let top = machine.path().to_owned();
    fs::create_dir_all(top.join("here"))?;
    fs::create_dir_all(top.join("elsewhere/deep"))?;
    File::create(top.join("elsewhere/deep/file"))?;
    fs::set_permissions(top.join("elsewhere"), Permissions::from_mode(0o711))?;
    rustix::fs::setxattr(
        top.join("elsewhere"),
        "user.note",
        b"x",
        XattrFlags::empty(),
    )?;
    File::open(top.join("here"))?.sync_all()?;
    machine.after_power_cut(case, |top| {
        ensure!(top.join("here").is_dir(), "the directory itself");
        ensure!(
            top.join("elsewhere/deep/file").is_file(),
            "a name elsewhere"
        );
        let mode = fs::metadata(top.join("elsewhere"))?.permissions().mode();
        ensure_eq!(mode & 0o777, 0o711, "permissions elsewhere");
        let mut value = [0; 8];
        let length = rustix::fs::getxattr(top.join("elsewhere"), "user.note", &mut value)?;
        ensure_eq!(&value[..length], b"x", "an attribute elsewhere");
        Ok(())
    })?;
    machine.end()
}

/// Changes of every kind; all of them are visible when they have returned.
fn change(top: &Path) -> Outcome {
    for name in ["a", "b", "c"] {
        File::create(top.join(name))?;
    }
    fs::rename(top.join("a"), top.join("renamed"))?;
    fs::hard_link(top.join("b"), top.join("linked"))?;
    fs::remove_file(top.join("c"))?;
    fs::create_dir(top.join("made"))?;
    fs::set_permissions(top.join("made"), Permissions::from_mode(0o710))?;
    rustix::fs::setxattr(top.join("made"), "user.note", b"x", XattrFlags::empty())?;
    changed(top)
}

fn changed(top: &Path) -> Outcome {
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(top)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| name != "other");
    names.sort();
    ensure_eq!(names, ["b", "linked", "made", "renamed"], "names");
    ensure_eq!(fs::metadata(top.join("b"))?.nlink(), 2, "links");
    let mode = fs::metadata(top.join("made"))?.permissions().mode();
    ensure_eq!(mode & 0o777, 0o710, "permissions");
    let mut value = [0; 8];
    let length = rustix::fs::getxattr(top.join("made"), "user.note", &mut value)?;
    ensure_eq!(&value[..length], b"x", "attribute");
    Ok(())
}

pub(crate) fn names(case: &Case) -> Outcome {
    let mut machine = Machine::new(case)?;
    change(machine.path())?;
    let other = File::create(machine.path().join("other"))?;
    other.sync_all()?;
    machine.after_power_cut(case, changed)?;
    drop(other);
    // Without any sync they follow by themselves.
    fs::create_dir(machine.path().join("later"))?;
    machine.soon(case, |top| top.join("later").is_dir())?;
    machine.end()
}

pub(crate) fn unmount(case: &Case) -> Outcome {
    let mut machine = Machine::new(case)?;
    fs::write(machine.path().join("other"), sample())?;
    change(machine.path())?;
    machine.mount.unmount()?;
    machine.after_power_cut(case, |top| {
        changed(top)?;
        ensure!(holds_sample(&top.join("other")), "contents");
        Ok(())
    })
}

pub(crate) fn killed(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    let other = mount.path().join("other");
    fs::write(&other, sample())?;
    File::open(&other)?.sync_all()?;
    change(mount.path())?;
    mount.kill9()?;
    mount.detach();
    mount.start()?;
    changed(mount.path())?;
    ensure!(holds_sample(&other), "what was durable");
    mount.unmount()?;
    mount.fsck_is_clean()?;
    // Killed while it still recovers, it has nothing else to warn of.
    for _ in 0..5 {
        mount.start()?;
        mount.kill9()?;
        mount.detach();
        mount.start()?;
        mount.unmount()?;
    }
    let log = mount.log_text();
    let deaths = log.matches("did not shut down cleanly").count();
    ensure_eq!(deaths, 6, "deaths that were told of: {log}");
    let warnings = log.matches("WARN").count();
    ensure_eq!(warnings, deaths, "there is nothing else to warn of: {log}");
    mount.fsck_is_clean()
}
