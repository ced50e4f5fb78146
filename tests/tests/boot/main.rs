//! A real systemd, booted in separate namespaces: it starts the installed unit, recovers from a
//! dead daemon, stops when everything is durable, and mounts the lines of /etc/fstab.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode};
use std::time::{Duration, Instant};

use shale_tests::{
    Case, Cmd, Context, Need, Outcome, Rng, Suite, binary, cgroup2, ensure, ensure_eq, root,
    script, shale,
};

fn main() -> ExitCode {
    Suite::new("boot")
        .need(Need::Shale)
        .need(Need::Command("systemctl"))
        .need(Need::Cgroup2)
        .limit(Duration::from_secs(120))
        .test("the_service_is_ready_when_the_mount_answers", ready)
        .test("the_service_recovers_from_a_killed_daemon", recovers)
        .test("stopping_waits_until_everything_is_durable", durable)
        .test("stopping_waits_for_programs_that_use_files", busy)
        .test("a_service_that_cannot_mount_fails_and_says_why", fails)
        .test("fstab_mounts_at_boot_and_unmounts_durably", fstab)
        .test("fstab_mounts_on_demand", automount)
        .run()
}

/// What units depend on by default; there are no others than these and those under test.
const EMPTY: &[&str] = &[
    "basic.target",
    "local-fs.target",
    "local-fs-pre.target",
    "network.target",
    "network-online.target",
    "remote-fs.target",
    "remote-fs-pre.target",
    "shutdown.target",
    "sysinit.target",
    "umount.target",
];

/// A machine whose process 1 is systemd. Ends when dropped.
struct Machine {
    outer: Child,
    cgroup: PathBuf,
    init: String,
    work: PathBuf,
}

impl Machine {
    /// Boots with one instance of the unit, which is not started, and a line for /etc/fstab.
    fn boot(case: &Case, fstab: &str) -> Outcome<Machine> {
        let work = case.work().to_owned();
        let over = case.dir("over")?;
        let units = over.join("etc/systemd/system");
        fs::create_dir_all(&units)?;
        fs::create_dir_all(over.join("etc/shale"))?;
        for name in EMPTY {
            fs::write(units.join(name), "[Unit]\nDefaultDependencies=no\n")?;
        }
        let target = "[Unit]\nDefaultDependencies=no\nWants=remote-fs.target\n";
        fs::write(units.join("test.target"), target)?;
        fs::write(over.join("etc/fstab"), format!("{fstab}\n"))?;
        let configuration = format!(
            "STORE={0}/store\nMOUNTPOINT={0}/mnt\nOPTIONS=-o memory=64M\n",
            work.display()
        );
        fs::write(over.join("etc/shale/test.conf"), configuration)?;
        fs::create_dir(work.join("mnt"))?;
        // Installed as `make install` does it.
        for directory in ["usr/bin", "usr/sbin"] {
            fs::create_dir_all(over.join(directory))?;
        }
        let unit = root().join("systemd/shale@.service");
        fs::copy(unit, units.join("shale@.service"))?;
        fs::copy(binary(), over.join("usr/bin/shale"))?;
        for helper in ["mount.fuse.shale", "umount.fuse.shale"] {
            symlink("../bin/shale", over.join("usr/sbin").join(helper))?;
        }

        let name = work.file_name().doing("the name of the directory")?;
        let cgroup = cgroup2()
            .doing("looking for a cgroup2 hierarchy")?
            .join(name);
        fs::create_dir(&cgroup)?;
        let outer = Cmd::new(script("boot.sh"))
            .arg(&over)
            .arg(&cgroup)
            .spawn()?;
        let mut machine = Machine {
            outer,
            cgroup,
            init: String::new(),
            work,
        };
        let pid = machine.outer.id();
        machine.until("systemd runs", |machine| {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
            machine.init = children.trim().to_owned();
            let name = fs::read_to_string(format!("/proc/{}/comm", machine.init));
            Ok(name.is_ok_and(|name| name.trim() == "systemd")
                && machine.state("test.target")? == "active")
        })?;
        Ok(machine)
    }

    fn mountpoint(&self) -> PathBuf {
        self.work.join("mnt")
    }

    fn store(&self) -> PathBuf {
        self.work.join("store")
    }

    /// A command on that machine, beside the services.
    fn command(&self, program: &str) -> Cmd {
        Cmd::new("nsenter").args([
            "-t", &self.init, "-m", "-p", "-u", "-i", "-C", "--", program,
        ])
    }

    fn systemctl(&self, words: &[&str]) -> Outcome {
        self.command("systemctl").args(words).ok()?;
        Ok(())
    }

    fn property(&self, unit: &str, property: &str) -> Outcome<String> {
        let line = self.command("systemctl");
        let text = line
            .args(["show", "--value", "-p", property, unit])
            .run()?
            .text();
        Ok(text.trim().to_owned())
    }

    fn state(&self, unit: &str) -> Outcome<String> {
        self.property(unit, "ActiveState")
    }

    fn until(
        &mut self,
        what: &str,
        mut done: impl FnMut(&mut Machine) -> Outcome<bool>,
    ) -> Outcome {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !done(self)? {
            ensure!(
                Instant::now() < deadline,
                "waited in vain until {what}: {}",
                self.describe()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The reports of systemd and the daemon, to find the reason of a failure.
    fn describe(&self) -> String {
        let asked = self.command("systemctl").args(["status", "--full"]);
        let service = asked.arg("shale@test").run().map(|asked| asked.text());
        let mounts = fs::read_to_string(format!("/proc/{}/mountinfo", self.init));
        let ours = |text: String| {
            let lines = text.lines().filter(|line| line.contains("fuse"));
            lines.map(|line| format!("{line}\n")).collect::<String>()
        };
        let log = fs::read_to_string(self.store().join("shale.log"));
        format!(
            "{}\n{}\n{}",
            service.unwrap_or_default(),
            mounts.map(ours).unwrap_or_default(),
            log.unwrap_or_default()
        )
    }

    /// A file in the mount, seen from outside the service.
    fn read(&self, name: &str) -> Outcome<Option<Vec<u8>>> {
        let finished = self
            .command("cat")
            .arg(self.mountpoint().join(name))
            .run()?;
        Ok(finished.status.success().then_some(finished.stdout))
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Outcome {
        let source = self.work.join("source");
        File::create(&source)?.write_all(bytes)?;
        let line = self.command("cp").arg(&source);
        line.arg(self.mountpoint().join(name)).ok()?;
        Ok(())
    }

    fn is_mounted(&self) -> Outcome<bool> {
        let line = self.command("findmnt").args(["-t", "fuse.shale"]);
        Ok(line.arg(self.mountpoint()).run()?.status.success())
    }

    /// The contents of the store when nothing is mounted.
    fn stored(&self, name: &str) -> Outcome<Vec<u8>> {
        shale().arg("fsck").arg(self.store()).run()?.status_is(0)?;
        let copy = self.work.join("copy");
        let line = shale().args(["export", "--only", name]);
        line.arg(self.store()).arg(&copy).ok()?;
        Ok(fs::read(&copy)?)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Its process 1 dies with it, and everything there with that.
        let _ = self.outer.kill();
        let _ = self.outer.wait();
        let deadline = Instant::now() + Duration::from_secs(10);
        while remove_cgroup(&self.cgroup).is_err() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn remove_cgroup(directory: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_cgroup(&entry.path())?;
        }
    }
    fs::remove_dir(directory)
}

fn ready(case: &Case) -> Outcome {
    let machine = Machine::boot(case, "")?;
    machine.systemctl(&["start", "shale@test"])?;
    // Visible outside the service, so no mount namespace hides it.
    ensure!(
        machine.is_mounted()?,
        "not mounted when the start has returned"
    );
    let status = machine.property("shale@test", "StatusText")?;
    ensure!(status.contains("is mounted on"), "the status is '{status}'");
    machine.write("file", b"contents")?;
    ensure_eq!(
        machine.read("file")?,
        Some(b"contents".to_vec()),
        "contents"
    );
    // So that umount(8) calls the helper, which waits.
    let table = machine.command("cat").arg("/run/mount/utab").ok()?;
    let target = format!("TARGET={} ", machine.mountpoint().display());
    ensure!(table.contains(&target), "the table of libmount: {table}");
    machine.systemctl(&["stop", "shale@test"])?;
    ensure!(!machine.is_mounted()?, "still mounted");
    ensure_eq!(
        machine.property("shale@test", "Result")?,
        "success",
        "result"
    );
    ensure_eq!(machine.stored("file")?, b"contents", "in the store");
    Ok(())
}

fn recovers(case: &Case) -> Outcome {
    let mut machine = Machine::boot(case, "")?;
    machine.systemctl(&["start", "shale@test"])?;
    machine.write("file", b"contents")?;
    machine
        .command("sync")
        .arg(machine.mountpoint().join("file"))
        .ok()?;
    machine.systemctl(&["kill", "-s", "KILL", "shale@test"])?;
    machine.until("the mount is there again", |machine| {
        Ok(machine.property("shale@test", "NRestarts")? == "1"
            && machine.read("file")? == Some(b"contents".to_vec()))
    })?;
    ensure_eq!(machine.state("shale@test")?, "active", "state");
    machine.systemctl(&["stop", "shale@test"])?;
    ensure_eq!(machine.stored("file")?, b"contents", "in the store");
    Ok(())
}

fn durable(case: &Case) -> Outcome {
    let machine = Machine::boot(case, "")?;
    machine.systemctl(&["start", "shale@test"])?;
    let bytes = Rng::new(1).bytes(40 << 20);
    machine.write("file", &bytes)?;
    machine.systemctl(&["stop", "shale@test"])?;
    ensure!(
        machine.stored("file")? == bytes,
        "what was not synced is not all there"
    );
    Ok(())
}

fn busy(case: &Case) -> Outcome {
    let mut machine = Machine::boot(case, "")?;
    machine.systemctl(&["start", "shale@test"])?;
    let file = machine.mountpoint().join("file");
    let script = "exec > \"$0\"; until [ -e \"$1\" ]; do sleep 0.02; done; echo done";
    let release = machine.work.join("release");
    let line = machine.command("sh").args(["-c", script]);
    let mut user = line.arg(&file).arg(&release).spawn()?;
    machine.until("the file is open", |machine| {
        Ok(machine.read("file")?.is_some())
    })?;
    machine.systemctl(&["stop", "--no-block", "shale@test"])?;
    machine.until("the service waits for the program", |machine| {
        let status = machine.property("shale@test", "StatusText")?;
        Ok(status.contains("waiting for programs"))
    })?;
    ensure_eq!(machine.state("shale@test")?, "deactivating", "state");
    File::create(&release)?;
    ensure!(user.wait()?.success(), "the program failed");
    machine.until("the service has ended", |machine| {
        Ok(machine.state("shale@test")? == "inactive")
    })?;
    ensure_eq!(
        machine.property("shale@test", "Result")?,
        "success",
        "result"
    );
    ensure_eq!(machine.stored("file")?, b"done\n", "what was written last");
    Ok(())
}

fn fails(case: &Case) -> Outcome {
    let machine = Machine::boot(case, "")?;
    fs::create_dir(machine.store())?;
    fs::write(machine.store().join("thesis.tex"), b"x")?;
    let finished = machine.command("systemctl").args(["start", "shale@test"]);
    finished.run()?.status_is(1)?;
    let status = machine.property("shale@test", "ExecMainStatus")?;
    ensure_eq!(status, "32", "exit status of the service");
    Ok(())
}

/// What systemd calls the unit of a path.
fn unit_of(path: &Path, kind: &str) -> Outcome<String> {
    let line = Cmd::new("systemd-escape").arg("--path");
    let name = line.arg(format!("--suffix={kind}")).arg(path).ok()?;
    Ok(name.trim().to_owned())
}

fn fstab(case: &Case) -> Outcome {
    let (store, mountpoint) = (case.work().join("store"), case.work().join("mnt"));
    let line = format!(
        "{} {} fuse.shale allow_other,_netdev,memory=64M 0 0",
        store.display(),
        mountpoint.display()
    );
    let mut machine = Machine::boot(case, &line)?;
    machine.until("fstab has been obeyed", |machine| machine.is_mounted())?;
    let bytes = Rng::new(2).bytes(20 << 20);
    machine.write("file", &bytes)?;
    let text = mountpoint.display().to_string();
    let unit = unit_of(&mountpoint, "mount")?;
    // The helper waits, so the stop of the generated unit does.
    machine.systemctl(&["stop", &unit])?;
    ensure!(!machine.is_mounted()?, "still mounted");
    ensure!(
        machine.stored("file")? == bytes,
        "what was not synced is not all there"
    );

    machine.command("mount").arg(&text).ok()?;
    ensure!(machine.is_mounted()?, "`mount MOUNTPOINT` did not mount");
    machine.write("other", b"x")?;
    machine.command("umount").arg(&text).ok()?;
    ensure!(
        !machine.is_mounted()?,
        "`umount MOUNTPOINT` did not unmount"
    );
    let mut line = machine
        .command("mount")
        .args(["-t", "fuse.shale", "-o", "ro"]);
    line = line.arg(&store).arg(&text);
    line.ok()?;
    let refused = machine.command("touch").arg(mountpoint.join("new")).run()?;
    ensure!(
        refused.stderr.contains("Read-only"),
        "{}",
        refused.describe()
    );
    machine.command("umount").args(["-l", &text]).ok()?;
    machine.until("the daemon has gone", |machine| {
        Ok(!machine
            .command("pgrep")
            .args(["-x", "shale"])
            .run()?
            .status
            .success())
    })?;
    let finished = machine
        .command("mount")
        .args(["-t", "fuse.shale", "-o", "memory=lots"]);
    let finished = finished.arg(&store).arg(&text).run()?;
    ensure!(
        finished.stderr.contains("16M to 1T"),
        "{}",
        finished.describe()
    );
    ensure_eq!(finished.status.code(), Some(1), "{}", finished.describe());
    Ok(())
}

/// The first access makes systemd mount it, every time.
fn automount(case: &Case) -> Outcome {
    let (store, mountpoint) = (case.work().join("store"), case.work().join("mnt"));
    let line = format!(
        "{} {} fuse.shale noauto,x-systemd.automount,memory=64M 0 0",
        store.display(),
        mountpoint.display()
    );
    let mut machine = Machine::boot(case, &line)?;
    let (unit, door) = (
        unit_of(&mountpoint, "mount")?,
        unit_of(&mountpoint, "automount")?,
    );
    machine.systemctl(&["start", &door])?;
    ensure!(!machine.is_mounted()?, "mounted before the first access");
    machine.write("file", b"contents")?;
    ensure!(machine.is_mounted()?, "not mounted when it was used");
    machine.systemctl(&["stop", &unit])?;
    ensure!(!machine.is_mounted()?, "still mounted");
    machine.until("systemd waits for the next one", |machine| {
        Ok(machine.property(&door, "SubState")? == "waiting")
    })?;
    ensure_eq!(
        machine.read("file")?,
        Some(b"contents".to_vec()),
        "contents when it is mounted again"
    );
    machine.systemctl(&["stop", &door])?;
    ensure_eq!(machine.stored("file")?, b"contents", "in the store");
    Ok(())
}
