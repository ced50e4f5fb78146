//! The unit: systemd accepts it, and its commands, executed as written, mount, recover and
//! unmount.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, ExitCode};
use std::time::Duration;

use shale_tests::{
    Case, Cmd, Context, Finished, Mount, Need, Outcome, Suite, binary, ensure, ensure_eq, root,
};

fn main() -> ExitCode {
    Suite::new("systemd")
        .need(Need::Shale)
        .need(Need::Command("systemd-analyze"))
        .limit(Duration::from_secs(60))
        .test("systemd_accepts_the_unit", accepted)
        .test("the_unit_has_no_mount_namespace_of_its_own", no_namespace)
        .test("the_documented_fstab_line_waits_for_the_device", fstab)
        .test("commands_of_the_unit_mount_recover_and_unmount", commands)
        .test("a_failed_start_leaves_the_mount_of_another_alone", another)
        .run()
}

/// The unit with the command under test in the place of the installed one.
fn unit() -> Outcome<String> {
    let text = fs::read_to_string(root().join("systemd/shale@.service"))?;
    Ok(text.replace("/usr/bin/shale", &binary().display().to_string()))
}

fn accepted(case: &Case) -> Outcome {
    let path = case.work().join("shale@test.service");
    fs::write(&path, unit()?)?;
    let finished = Cmd::new("systemd-analyze")
        .args(["--man=no", "verify"])
        .arg(&path)
        .run()?;
    ensure!(finished.status.success(), "{}", finished.describe());
    Ok(())
}

/// The unit that systemd generates from the line that the documents recommend.
fn fstab(case: &Case) -> Outcome {
    for document in ["docs/admin.md", "packaging/mount.fuse.shale.8"] {
        let text = fs::read_to_string(root().join(document))?.replace("\\-", "-");
        let line = text.lines().find(|line| line.ends_with(" 0 0"));
        let directory = case.dir(document.rsplit('/').next().unwrap_or_default())?;
        let file = directory.join("fstab");
        fs::write(&file, format!("{}\n", line.doing("looking for the line")?))?;
        Cmd::new("/lib/systemd/system-generators/systemd-fstab-generator")
            .args([&directory, &directory, &directory])
            .env("SYSTEMD_FSTAB", &file)
            .ok()?;
        let made = fs::read_to_string(directory.join("project.mount"))?;
        for words in [
            "RequiresMountsFor=/lustre",
            "TimeoutSec=infinity",
            "Options=nocreate,",
        ] {
            ensure!(
                made.lines().any(|line| line.starts_with(words)),
                "no {words} in what {document} leads to: {made}"
            );
        }
    }
    Ok(())
}

/// Each of these would hide the mount from all other processes; see systemd.exec(5).
fn no_namespace(_: &Case) -> Outcome {
    let namespaces = [
        "PrivateTmp",
        "PrivateDevices",
        "PrivateMounts",
        "PrivateUsers",
        "ProtectSystem",
        "ProtectHome",
        "ProtectProc",
        "ProcSubset",
        "ProtectKernelTunables",
        "ProtectKernelModules",
        "ProtectKernelLogs",
        "ProtectControlGroups",
        "ProtectHostname",
        "RootDirectory",
        "RootImage",
        "DynamicUser",
        "ReadOnlyPaths",
        "ReadWritePaths",
        "InaccessiblePaths",
        "ExecPaths",
        "NoExecPaths",
        "BindPaths",
        "BindReadOnlyPaths",
        "TemporaryFileSystem",
        "MountFlags",
        "MountAPIVFS",
        "StateDirectory",
        "LogNamespace",
    ];
    for line in unit()?.lines().filter(|line| !line.starts_with('#')) {
        let key = line.split('=').next().unwrap_or_default();
        ensure!(!namespaces.contains(&key), "{line}");
    }
    Ok(())
}

/// Executes the line `key` of the unit; a command after `-` may fail.
fn execute(key: &str, variables: &[(&str, String)]) -> Outcome<Finished> {
    command(key, variables)?.run()
}

fn command(key: &str, variables: &[(&str, String)]) -> Outcome<Cmd> {
    let unit = unit()?;
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
        .doing(format!("looking for {key}"))?;
    let mut words = Vec::new();
    for word in line.trim_start_matches('-').split(' ') {
        let found = variables.iter().find_map(|(name, value)| {
            if word == format!("${{{name}}}") {
                Some(vec![value.clone()])
            } else if word == format!("${name}") {
                Some(value.split_whitespace().map(str::to_owned).collect())
            } else {
                None
            }
        });
        words.extend(found.unwrap_or_else(|| vec![word.to_owned()]));
    }
    ensure!(
        words.iter().all(|word| !word.contains('$')),
        "a variable is not set: {words:?}"
    );
    Ok(Cmd::new(&words[0]).args(&words[1..]))
}

fn commands(case: &Case) -> Outcome {
    // Made and unmounted by the harness, so that it sweeps up whatever happens.
    let mut mount: Mount = case.mount("fs", &[])?;
    mount.unmount()?;
    let text = |path: &std::path::Path| path.display().to_string();
    let log = case.work().join("log");
    let variables = [
        ("STORE", text(mount.store())),
        ("MOUNTPOINT", text(mount.path())),
        (
            "OPTIONS",
            format!("-o memory=64M,noatime,log={}", text(&log)),
        ),
    ];
    let socket = Listener::new(case)?;
    let mut daemon = start(&variables, &socket)?;
    ensure!(mount.is_mounted(), "nothing is mounted");
    let logged = fs::read_to_string(&log)?;
    ensure!(logged.contains("is mounted on"), "in the log: {logged:?}");
    let file = mount.path().join("file");
    fs::write(&file, b"contents")?;
    fs::File::open(&file)?.sync_all()?;

    daemon.kill()?;
    daemon.wait()?;
    execute("ExecStopPost", &variables)?.status_is(0)?;
    ensure!(!mount.is_mounted(), "the dead mount was not cleared");

    let mut daemon = start(&variables, &socket)?;
    ensure_eq!(fs::read(&file)?, b"contents", "after the restart");
    execute("ExecStop", &variables)?.status_is(0)?;
    ensure!(!mount.is_mounted(), "still mounted");
    let told = socket.hear("STOPPING=1")?;
    ensure!(told.contains("STATUS="), "no status in {told:?}");
    ensure!(daemon.wait()?.success(), "the daemon failed");
    execute("ExecStopPost", &variables)?;
    mount.fsck_is_clean()
}

fn another(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    let file = mount.path().join("file");
    fs::write(&file, b"contents")?;
    let variables = [
        ("STORE", case.work().join("other").display().to_string()),
        ("MOUNTPOINT", mount.path().display().to_string()),
        ("OPTIONS", String::new()),
    ];
    execute("ExecStart", &variables)?.status_is(32)?;
    execute("ExecStopPost", &variables)?.status_is(0)?;
    ensure!(mount.is_mounted(), "a mount that worked was taken away");
    ensure_eq!(fs::read(&file)?, b"contents", "in the other mount");
    mount.unmount()?;
    // Nothing to clear is nothing wrong.
    execute("ExecStopPost", &variables)?.status_is(0)?;
    Ok(())
}

/// The socket that is notified when the service is ready.
struct Listener {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Listener {
    fn new(case: &Case) -> Outcome<Listener> {
        let path = case.work().join("notify");
        let socket = UnixDatagram::bind(&path)?;
        socket.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Listener { socket, path })
    }

    /// The next message that begins with these words.
    fn hear(&self, words: &str) -> Outcome<String> {
        loop {
            let mut buffer = [0; 1024];
            let length = self
                .socket
                .recv(&mut buffer)
                .doing(format!("hearing {words}"))?;
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if text.starts_with(words) {
                return Ok(text);
            }
        }
    }
}

/// Starts the service as systemd does, until it says that it is ready.
fn start(variables: &[(&str, String)], listener: &Listener) -> Outcome<Child> {
    let daemon = command("ExecStart", variables)?
        .env("NOTIFY_SOCKET", &listener.path)
        .spawn()?;
    listener.hear("READY=1")?;
    Ok(daemon)
}
