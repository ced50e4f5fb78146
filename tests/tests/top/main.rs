//! `shale top` in a terminal: tmux holds it, the test reads the screen and presses keys.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use shale_tests::{
    Case, Cmd, Context, Failure, Need, Outcome, Rng, Suite, alive, binary, ensure, ensure_eq, shale,
};

fn main() -> ExitCode {
    Suite::new("top")
        .need(Need::Shale)
        .need(Need::Command("tmux"))
        .limit(Duration::from_secs(120))
        .test("the_screen_follows_the_work_and_q_quits", follows)
        .test("resizing_and_interrupting_leave_the_terminal_whole", whole)
        .test("a_mount_that_goes_away_is_one_line", goes_away)
        .test("it_ends_with_its_terminal", hang_up)
        .test("it_ends_with_its_input_without_a_signal", end_of_input)
        .test("one_sample_for_scripts", once)
        .test("a_healthy_copy_has_no_errors", healthy)
        .test("the_busiest_files_add_up_to_the_whole", adds_up)
        .run()
}

/// A terminal of its own; its server ends with it.
struct Terminal {
    socket: PathBuf,
    status: PathBuf,
}

impl Terminal {
    /// Starts `shale top` in a shell that outlives it and prints the exit status.
    fn start(case: &Case, mountpoint: &Path) -> Outcome<Terminal> {
        let terminal = Terminal {
            socket: case.work().join("tmux"),
            status: case.work().join("status"),
        };
        let command = format!(
            "LC_ALL=C.UTF-8 {} top {}; echo $? > {}; stty -a | grep -o ' -*icanon'; exec cat",
            binary().display(),
            mountpoint.display(),
            terminal.status.display()
        );
        terminal
            .tmux()
            .args([
                "-f",
                "/dev/null",
                "new-session",
                "-d",
                "-x",
                "80",
                "-y",
                "24",
                &command,
            ])
            .ok()?;
        Ok(terminal)
    }

    fn tmux(&self) -> Cmd {
        Cmd::new("tmux")
            .arg("-u")
            .arg("-S")
            .arg(&self.socket)
            .env("TERM", "xterm-256color")
    }

    fn screen(&self) -> Outcome<String> {
        self.tmux().args(["capture-pane", "-p"]).ok()
    }

    fn press(&self, key: &str) -> Outcome {
        self.tmux().args(["send-keys", key]).ok()?;
        Ok(())
    }

    /// Waits until the screen is as expected, and returns it.
    fn wait(&self, what: &str, good: impl Fn(&str) -> bool) -> Outcome<String> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let screen = self.screen()?;
            if good(&screen) {
                return Ok(screen);
            }
            ensure!(Instant::now() < deadline, "{what} does not come:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn exit_status(&self) -> Outcome<i32> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let text = std::fs::read_to_string(&self.status).unwrap_or_default();
            if text.ends_with('\n') {
                return Ok(text.trim().parse()?);
            }
            ensure!(
                Instant::now() < deadline,
                "it does not end:\n{}",
                self.screen()?
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Terminal {
    /// The server and what runs in it end a moment after `kill-server` has returned.
    fn drop(&mut self) {
        let list = ["list-panes", "-F", "#{pid} #{pane_pid}"];
        let pids = self.tmux().args(list).ok().unwrap_or_default();
        let _ = self.tmux().arg("kill-server").run();
        let deadline = Instant::now() + Duration::from_secs(30);
        for pid in pids.split_whitespace().filter_map(|pid| pid.parse().ok()) {
            while alive(pid) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// The figure behind a name at the start of a line.
fn figure<'a>(screen: &'a str, name: &str) -> &'a str {
    screen
        .lines()
        .find_map(|line| line.strip_prefix(&format!(" {name} ")))
        .unwrap_or_default()
        .trim()
}

fn follows(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let terminal = Terminal::start(case, mount.path())?;
    let names = [
        "in", "out", "packs", "store", "buffer", "cache", "queues", "settle", "gc", "ops",
    ];
    let screen = terminal.wait("the first screen", |screen| {
        names.iter().all(|name| !figure(screen, name).is_empty()) && screen.contains("BUSIEST")
    })?;
    ensure!(screen.contains("q quits"), "{screen}");
    ensure!(
        figure(&screen, "store").ends_with("% free"),
        "a word is cut off:\n{screen}"
    );
    ensure!(figure(&screen, "in").starts_with("0 B/s"), "{screen}");
    let file = File::create(mount.path().join("busy.nc"))?;
    let bytes = Rng::new(1).bytes(1 << 20);
    let mut offset = 0;
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        file.write_all_at(&bytes, offset)?;
        file.sync_data()?;
        offset += bytes.len() as u64;
        let screen = terminal.screen()?;
        let moving = figure(&screen, "in").contains("MiB/s");
        let named = screen.lines().skip_while(|line| !line.contains("BUSIEST"));
        if moving && named.clone().any(|line| line.ends_with("busy.nc")) {
            break;
        }
        ensure!(
            Instant::now() < deadline,
            "the screen does not follow:\n{screen}"
        );
    }
    drop(file);
    terminal.press("q")?;
    ensure_eq!(terminal.exit_status()?, 0);
    let after = terminal.wait("the shell", |screen| screen.contains("icanon"))?;
    ensure!(
        !after.contains("-icanon"),
        "the terminal stays raw:\n{after}"
    );
    ensure!(
        !after.contains("BUSIEST"),
        "the screen was not put back:\n{after}"
    );
    mount.unmount()
}

fn whole(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    let terminal = Terminal::start(case, mount.path())?;
    terminal.wait("the first screen", |screen| screen.contains("BUSIEST"))?;
    terminal
        .tmux()
        .args(["resize-window", "-x", "40", "-y", "10"])
        .ok()?;
    terminal.wait("the small screen", |screen| {
        screen.contains("needs 60x16; q quits")
    })?;
    terminal
        .tmux()
        .args(["resize-window", "-x", "120", "-y", "40"])
        .ok()?;
    terminal.wait("the large screen", |screen| {
        screen.contains("BUSIEST") && !screen.contains("enlarge")
    })?;
    terminal.press("C-c")?;
    ensure_eq!(terminal.exit_status()?, 130);
    let after = terminal.wait("the shell", |screen| screen.contains("icanon"))?;
    ensure!(
        !after.contains("-icanon"),
        "the terminal stays raw:\n{after}"
    );
    mount.unmount()
}

fn goes_away(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    let terminal = Terminal::start(case, mount.path())?;
    terminal.wait("the first screen", |screen| screen.contains("BUSIEST"))?;
    mount.unmount()?;
    ensure_eq!(terminal.exit_status()?, 69);
    let after = terminal.wait("the reason", |screen| screen.contains("no longer mounted"))?;
    ensure!(!after.contains("BUSIEST"), "{after}");
    Ok(())
}

/// Waits for the end of `shale top`, whose terminal has gone.
fn ends(pid: i32) -> Outcome {
    let deadline = Instant::now() + Duration::from_secs(10);
    while alive(pid) {
        ensure!(Instant::now() < deadline, "{pid} outlives its terminal");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// As when a connection is cut: the terminal goes, and its foreground gets SIGHUP.
fn hang_up(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    let terminal = Terminal::start(case, mount.path())?;
    terminal.wait("the first screen", |screen| screen.contains("BUSIEST"))?;
    let shell = terminal
        .tmux()
        .args(["list-panes", "-F", "#{pane_pid}"])
        .ok()?;
    let shell = shell.trim();
    let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"))?;
    let pid: i32 = children.trim().parse().doing("the number of shale top")?;
    terminal.tmux().arg("kill-server").ok()?;
    ends(pid)?;
    mount.unmount()
}

/// A terminal that is not the controlling one: no signal is sent when it goes.
fn end_of_input(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    let size = nix::pty::Winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pty = nix::pty::openpty(Some(&size), None)?;
    // Only this process holds the other end.
    rustix::io::fcntl_setfd(&pty.master, rustix::io::FdFlags::CLOEXEC)?;
    let mut screen = File::from(pty.master);
    let mut top = Command::new("setsid")
        .arg(binary())
        .arg("top")
        .arg(mount.path())
        .env("TERM", "xterm")
        .stdin(pty.slave.try_clone()?)
        .stdout(pty.slave.try_clone()?)
        .stderr(pty.slave)
        .spawn()?;
    // It is there once it has drawn something.
    let mut seen = String::new();
    while !seen.contains("BUSIEST") {
        let mut bytes = [0; 4096];
        let len = screen.read(&mut bytes)?;
        seen.push_str(&String::from_utf8_lossy(&bytes[..len]));
    }
    drop(screen);
    let pid = i32::try_from(top.id())?;
    let ended = ends(pid);
    if ended.is_err() {
        top.kill()?;
    }
    top.wait()?;
    ended?;
    mount.unmount()
}

fn once(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let file = File::create(mount.path().join("f"))?;
    file.write_all_at(&[7; 100_000], 0)?;
    file.sync_all()?;
    drop(file);
    let text = shale()
        .args(["top", "--once", "--interval", "0.1"])
        .arg(mount.path())
        .ok()?;
    ensure!(
        text.contains("BUSIEST") && !text.contains('\u{1b}'),
        "{text}"
    );
    ensure!(!text.contains("quits"), "there is nothing to quit:\n{text}");
    ensure!(figure(&text, "store").contains(" 1 file,"), "{text}");
    let sample = shale()
        .args(["top", "--json", "--interval", "0.1"])
        .arg(mount.path())
        .ok()?;
    let sample: Value = serde_json::from_str(&sample)?;
    ensure_eq!(sample["live"]["written"].as_u64(), Some(100_000));
    ensure!(
        sample["rates"]["seconds"].as_f64().doing("no rates")? >= 0.1,
        "{sample:#}"
    );
    let refused = shale()
        .args(["top", "--once"])
        .arg(mount.path())
        .user(4242, 4242)
        .run()?;
    ensure_eq!(refused.status_is(77)?.stderr.lines().count(), 1);
    shale().arg("top").arg(mount.path()).run()?.status_is(64)?;
    shale().args(["top", "--once", "/"]).run()?.status_is(66)?;
    shale()
        .args(["top", "--interval", "0", "/"])
        .run()?
        .status_is(64)?;
    mount.unmount()
}

/// Missing names and missing attributes do not count as errors.
fn healthy(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let from = case.dir("from")?;
    for number in 0..50 {
        std::fs::write(from.join(format!("f{number}")), b"some words")?;
    }
    let counted = |what: &str| -> Outcome<u64> {
        let sample = shale()
            .args(["top", "--json", "--interval", "0.1"])
            .arg(mount.path())
            .ok()?;
        let sample: Value = serde_json::from_str(&sample)?;
        let all = sample["live"][what].as_array().doing("no counters")?;
        Ok(all.iter().filter_map(|one| one["count"].as_u64()).sum())
    };
    Cmd::new("cp").arg("-a").arg(&from).arg(mount.path()).ok()?;
    ensure_eq!(counted("errors")?, 0, "errors");
    ensure!(counted("refusals")? >= 50, "ENOENT is counted nowhere");
    mount.unmount()
}

/// Bytes written and read per file add up to those of the mount.
fn adds_up(case: &Case) -> Outcome {
    // Straight to the daemon, so that every writer is heard of at once.
    let mut mount = case.mount("fs", &["-o", "settle=off,direct_io"])?;
    let over = AtomicBool::new(false);
    let root = mount.path().to_owned();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|number| {
                let (over, path) = (&over, root.join(format!("f{number}")));
                scope.spawn(move || -> Outcome {
                    let bytes = Rng::new(number).bytes(256 << 10);
                    let mut offset = 0;
                    while !over.load(Ordering::SeqCst) {
                        // Opened for each piece by one, once by the others.
                        let mut options = File::options();
                        options.create(true).truncate(false).write(true);
                        let file = options.open(&path)?;
                        for _ in 0..if number == 0 { 1 } else { 50 } {
                            file.write_all_at(&bytes, offset)?;
                            offset = (offset + bytes.len() as u64) % (32 << 20);
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        let looked = (|| -> Outcome {
            for round in 0..4 {
                let sample = shale().args(["top", "--json"]).arg(&root).ok()?;
                let sample: Value = serde_json::from_str(&sample)?;
                let rates = &sample["rates"];
                let files = rates["files"].as_array().doing("no files")?;
                let sum: f64 = files.iter().filter_map(|one| one["written"].as_f64()).sum();
                let whole = rates["written"].as_f64().doing("no rate")?;
                ensure!(whole > 0.0, "nothing was written: {sample:#}");
                // A machine that is busy otherwise may let some time pass between the two figures.
                ensure!(
                    (sum - whole).abs() < whole * 0.3,
                    "round {round}: {sum} in files, {whole} in all: {rates:#}"
                );
            }
            Ok(())
        })();
        over.store(true, Ordering::SeqCst);
        for writer in writers {
            writer
                .join()
                .map_err(|_| Failure::new("a writer panicked"))??;
        }
        looked
    })?;
    mount.unmount()
}
