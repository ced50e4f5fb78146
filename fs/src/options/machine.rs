//! The machine, on which the defaults of a mount depend.

use std::path::Path;

use super::{MEMORY_DEFAULT_MAX, MEMORY_MIN, WORKERS_MAX};

/// The machine, and whether root mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Whether root mounts.
    pub root: bool,
    /// RAM in bytes, or the limit of the control group where that is lower.
    pub ram: u64,
    /// Cores this process may use.
    pub cores: usize,
}

impl Machine {
    /// Asks the operating system.
    #[must_use]
    pub fn detect() -> Self {
        Self {
            root: nix::unistd::geteuid().is_root(),
            ram: ram().min(control_group_limit().unwrap_or(u64::MAX)),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// The default memory budget.
    #[must_use]
    pub fn memory(&self) -> u64 {
        (self.ram / 4).clamp(MEMORY_MIN, MEMORY_DEFAULT_MAX)
    }

    /// The default number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.cores.clamp(1, WORKERS_MAX)
    }
}

fn ram() -> u64 {
    use nix::unistd::{SysconfVar, sysconf};
    let ask = |variable| {
        sysconf(variable)
            .ok()
            .flatten()
            .and_then(|n| u64::try_from(n).ok())
    };
    match (ask(SysconfVar::_PHYS_PAGES), ask(SysconfVar::PAGE_SIZE)) {
        (Some(pages), Some(size)) => pages.saturating_mul(size),
        _ => 0,
    }
}

/// A batch job often owns a slice of a node: a quarter of the node's RAM could be all of it.
fn control_group_limit() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Path::new("/sys/fs/cgroup")
        .join(own)
        .ancestors()
        .take_while(|path| path.starts_with("/sys/fs/cgroup"))
        .filter_map(|path| std::fs::read_to_string(path.join("memory.max")).ok())
        .filter_map(|limit| limit.trim().parse().ok())
        .min()
}
