//! A limit on the memory of a daemon.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{Cmd, Context, Outcome};

const VERSION_1: &str = "/sys/fs/cgroup/memory";

/// A cgroup with a memory limit, whose processes are killed when they exceed it.
#[derive(Debug)]
pub struct MemoryGroup {
    path: PathBuf,
    events: &'static str,
}

/// Where groups are created, and the names of the limit and the list of events there.
fn hierarchy() -> Option<(PathBuf, &'static str, &'static str)> {
    let writable = |path: &Path| nix::unistd::access(path, nix::unistd::AccessFlags::W_OK).is_ok();
    let first = Path::new(VERSION_1);
    if first.join("memory.limit_in_bytes").exists() && writable(first) {
        return Some((first.into(), "memory.limit_in_bytes", "memory.oom_control"));
    }
    let second = cgroup2()?;
    let controllers = fs::read_to_string(second.join("cgroup.subtree_control")).ok()?;
    controllers
        .split_whitespace()
        .any(|name| name == "memory")
        .then_some((second, "memory.max", "memory.events"))
}

impl MemoryGroup {
    /// Whether such groups can be created here.
    pub fn is_possible() -> bool {
        hierarchy().is_some()
    }

    /// A group with a unique name.
    pub fn new(limit: u64) -> Outcome<Self> {
        let (top, file, events) = hierarchy().doing("looking for a cgroup that limits memory")?;
        let path = top.join(format!("shale-test-{}", std::process::id()));
        fs::create_dir(&path)?;
        let group = MemoryGroup { path, events };
        fs::write(group.path.join(file), limit.to_string())?;
        Ok(group)
    }

    /// A command that becomes `program` inside the group.
    pub fn command(&self, program: &Path) -> Cmd {
        Cmd::new("sh")
            .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(self.path.join("cgroup.procs"))
            .arg(program)
    }

    /// Processes killed for lack of memory.
    pub fn kills(&self) -> Outcome<u64> {
        let text = fs::read_to_string(self.path.join(self.events))?;
        text.lines()
            .find_map(|line| line.strip_prefix("oom_kill "))
            .doing("reading how many processes were killed")?
            .parse()
            .doing("reading how many processes were killed")
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // The last process may need a moment to leave it.
        for _ in 0..100 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Where a cgroup2 hierarchy is mounted in which groups can be created.
pub fn cgroup2() -> Option<PathBuf> {
    let table = fs::read_to_string("/proc/self/mounts").ok()?;
    let line = table
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .find(|fields| fields.get(2) == Some(&"cgroup2"))?;
    let place = PathBuf::from(line[1]);
    let writable = nix::unistd::access(&place, nix::unistd::AccessFlags::W_OK).is_ok();
    (writable && !line[3].split(',').any(|option| option == "ro")).then_some(place)
}
