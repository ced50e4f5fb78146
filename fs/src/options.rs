//! What a mount can be asked for: `-o` options as mount(8) passes them, sizes and their ranges.
//!
//! Pure but for [`Defaults::of_this_machine`] and the names of users. Options arrive in steps:
//! text becomes [`Requested`] (everything optional, the last word wins), command-line flags are
//! laid over it with [`Requested::set`], [`Requested::check`] says whether it goes together, and
//! [`Requested::resolve`] fills in the [`Defaults`].

mod device;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use shale_store::Choice;

use crate::Settling;
use crate::metrics::Address;

pub use device::RequestedDevice;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// Smallest memory budget.
pub const MEMORY_MIN: u64 = 16 * MIB;
/// Largest memory budget.
pub const MEMORY_MAX: u64 = TIB;
/// The default budget is a quarter of the RAM, but not more than this.
pub const MEMORY_DEFAULT_MAX: u64 = 4 * GIB;
/// Smallest chunk.
pub const CHUNK_MIN: u64 = 64 * KIB;
/// Largest chunk.
pub const CHUNK_MAX: u64 = 16 * MIB;
/// Chunk size unless asked otherwise.
pub const CHUNK_DEFAULT: u32 = 1 << 20;
/// A file is settled when it has not been changed for this time, unless asked otherwise.
pub const SETTLE_DEFAULT: Duration = Duration::from_secs(10);
/// Bytes per second that are settled at most, unless asked otherwise.
pub const SETTLE_RATE_DEFAULT: u64 = 256 * MIB;
/// Largest number of workers.
pub const WORKERS_MAX: usize = 256;

/// Everything a mount needs to know, complete and within range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// The backing directory, absolute.
    pub store: PathBuf,
    /// Where the file system appears, absolute.
    pub mountpoint: PathBuf,
    /// Budget for buffers and caches in bytes.
    pub memory: u64,
    /// Threads that compress and write.
    pub workers: usize,
    /// Chunk size in bytes, a power of two.
    pub chunk: u32,
    /// How files are settled.
    pub settling: Settling,
    /// Where metrics are served.
    pub metrics: Option<Address>,
    /// Who may see them on a port besides root and the user of the daemon.
    pub metrics_users: Vec<u32>,
    /// No changes through this mount.
    pub read_only: bool,
    /// Users other than the one who mounts may use it.
    pub allow_other: bool,
    /// Nothing is kept in the kernel's page cache.
    pub direct_io: bool,
    /// What is durable when it returns.
    pub synchronous: Synchronous,
    /// The device that the store is on.
    pub device: Choice,
    /// The kernel checks permissions by mode, owner and ACL.
    pub default_permissions: bool,
    /// Passed to the kernel as they are: `nodev`, `nosuid`, `noexec`, `noatime`, `sync` ...
    pub fuse_options: Vec<String>,
}

/// What is durable already when it returns, without being asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Synchronous {
    /// Nothing.
    #[default]
    Nothing,
    /// Changes of names: `dirsync`.
    Names,
    /// Everything: `sync`.
    Everything,
}

/// What depends on the machine and on who mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Whether root mounts.
    pub root: bool,
    /// RAM in bytes, or the limit of the control group where that is lower.
    pub ram: u64,
    /// Cores this process may use.
    pub cores: usize,
}

impl Defaults {
    /// Asks the operating system.
    #[must_use]
    pub fn of_this_machine() -> Self {
        Self {
            root: nix::unistd::geteuid().is_root(),
            ram: ram().min(control_group_limit().unwrap_or(u64::MAX)),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// The memory budget unless asked otherwise.
    #[must_use]
    pub fn memory(&self) -> u64 {
        (self.ram / 4).clamp(MEMORY_MIN, MEMORY_DEFAULT_MAX)
    }

    /// The number of workers unless asked otherwise.
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

/// A request that cannot be met, as one line that says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionError(pub(crate) String);

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OptionError {}

/// What was asked for; `None` leaves the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requested {
    /// `memory=SIZE`
    pub memory: Option<u64>,
    /// `workers=N`
    pub workers: Option<usize>,
    /// `chunk=SIZE`
    pub chunk: Option<u32>,
    /// `settle=SECONDS` or `settle=off`
    pub settle: Option<Option<Duration>>,
    /// `settle_rate=SIZE`, per second
    pub settle_rate: Option<u64>,
    /// `settle_workers=N`
    pub settle_workers: Option<usize>,
    /// `metrics=unix:/PATH`, `metrics=127.0.0.1:PORT`
    pub metrics: Option<Address>,
    /// `metrics_users=NAME+NUMBER+...`
    pub metrics_users: Option<Vec<u32>>,
    /// `log=FILE`
    pub log: Option<PathBuf>,
    /// `ro` or `rw`
    pub read_only: Option<bool>,
    /// `allow_other`
    pub allow_other: bool,
    /// `nocreate`: fail where there is no store
    pub nocreate: bool,
    /// `direct_io`
    pub direct_io: bool,
    /// `backing=` and what goes with it
    pub device: RequestedDevice,
    /// `dev`, `allow_dev` or `nodev`
    pub dev: Option<bool>,
    /// `suid`, `allow_suid` or `nosuid`
    pub suid: Option<bool>,
    /// `exec` or `noexec`
    pub exec: Option<bool>,
    /// `atime` or `noatime`; `relatime` is what the kernel does anyway
    pub atime: Option<bool>,
    /// `sync` or `async`
    pub sync: Option<bool>,
    /// `dirsync`
    pub dirsync: bool,
}

/// What to do with an option that nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// An error that names it.
    Refuse,
    /// Nothing, as `mount -s` asks for.
    Ignore,
}

impl Requested {
    /// Parses a comma-separated list.
    ///
    /// # Errors
    /// The first option that is unknown or has a bad value.
    pub fn parse(list: &str) -> Result<Self, OptionError> {
        let mut requested = Self::default();
        requested.add(list, Unknown::Refuse)?;
        Ok(requested)
    }

    /// Lays a further comma-separated list over what was asked for so far.
    ///
    /// # Errors
    /// The first option that has a bad value, or is unknown and is not to be ignored.
    pub fn add(&mut self, list: &str, unknown: Unknown) -> Result<(), OptionError> {
        for option in list
            .split(',')
            .map(str::trim)
            .filter(|option| !option.is_empty())
        {
            let known = match option.split_once('=') {
                Some((name, value)) => self.set(name, value)?,
                None => self.flag(option)?,
            };
            if !known && unknown == Unknown::Refuse {
                return Err(OptionError(format!(
                    "unknown mount option '{option}'; see 'shale mount --help' for those there are"
                )));
            }
        }
        Ok(())
    }

    /// Sets an option that has a value. `Ok(false)` when there is no such option.
    ///
    /// # Errors
    /// A value that is malformed or out of range.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, OptionError> {
        match name {
            "memory" => self.memory = Some(parse_memory(value)?),
            "workers" => self.workers = Some(parse_workers(name, value)?),
            "chunk" => self.chunk = Some(parse_chunk(value)?),
            "settle" => self.settle = Some(parse_settle(value)?),
            "settle_rate" => self.settle_rate = Some(parse_settle_rate(value)?),
            "settle_workers" => self.settle_workers = Some(parse_workers(name, value)?),
            "metrics" => self.metrics = Some(value.parse().map_err(OptionError)?),
            "metrics_users" => self.metrics_users = Some(parse_users(value)?),
            "log" if value.is_empty() => {
                return Err(OptionError(
                    "log needs the name of a file: log=FILE".to_owned(),
                ));
            }
            "log" => self.log = Some(PathBuf::from(value)),
            _ => return Ok(self.device.set(name, value)? || handed_down(name)),
        }
        Ok(true)
    }

    fn flag(&mut self, name: &str) -> Result<bool, OptionError> {
        match name {
            "ro" => self.read_only = Some(true),
            "rw" => self.read_only = Some(false),
            "allow_other" => self.allow_other = true,
            "nocreate" => self.nocreate = true,
            "direct_io" => self.direct_io = true,
            // Always on: without it anybody could read everything.
            "default_permissions" => {}
            // mount(8) keeps dev and suid to itself, because they are its own defaults.
            "dev" | "allow_dev" => self.dev = Some(true),
            "nodev" => self.dev = Some(false),
            "suid" | "allow_suid" => self.suid = Some(true),
            "nosuid" => self.suid = Some(false),
            "exec" => self.exec = Some(true),
            "noexec" => self.exec = Some(false),
            "atime" => self.atime = Some(true),
            "noatime" => self.atime = Some(false),
            "relatime" => self.atime = None,
            // Access times are not kept, so there is nothing to choose.
            "norelatime" | "strictatime" | "nostrictatime" | "diratime" | "nodiratime"
            | "lazytime" | "nolazytime" => {}
            "sync" => self.sync = Some(true),
            "async" => self.sync = Some(false),
            "dirsync" => self.dirsync = true,
            "memory" | "workers" | "chunk" | "log" | "settle" | "settle_rate"
            | "settle_workers" | "metrics" | "metrics_users" => return needs_value(name),
            _ if device::NAMES.contains(&name) => return needs_value(name),
            "remount" => {
                return Err(OptionError(
                    "remount is not supported; unmount and mount again with the new options"
                        .to_owned(),
                ));
            }
            _ => return Ok(handed_down(name)),
        }
        Ok(true)
    }

    /// Whether what was asked for goes together.
    ///
    /// # Errors
    /// An option that would have no effect.
    pub fn check(&self) -> Result<(), OptionError> {
        match (&self.metrics_users, &self.metrics) {
            (None, _) | (Some(_), Some(Address::Loopback(_))) => Ok(()),
            (Some(_), None) => Err(OptionError(
                "metrics_users needs a port: metrics=127.0.0.1:PORT".to_owned(),
            )),
            (Some(_), Some(Address::Unix(path))) => Err(OptionError(format!(
                "metrics_users is for a port; permissions say who may open {}",
                path.display()
            ))),
        }
    }

    /// Fills in the defaults.
    #[must_use]
    pub fn resolve(&self, store: &Path, mountpoint: &Path, defaults: &Defaults) -> MountOptions {
        let mut fuse_options = Vec::new();
        let mut word = |asked: Option<bool>, yes: &str, no: &str| match asked {
            Some(true) => fuse_options.push(yes.to_owned()),
            Some(false) => fuse_options.push(no.to_owned()),
            None => {}
        };
        // fusermount3 adds nodev and nosuid to what an ordinary user mounts.
        let safe = defaults.root.then_some(false);
        word(self.dev.or(safe), "dev", "nodev");
        word(self.suid.or(safe), "suid", "nosuid");
        word(self.exec, "exec", "noexec");
        word(self.atime, "atime", "noatime");
        word(self.sync, "sync", "async");
        word(self.dirsync.then_some(true), "dirsync", "");
        MountOptions {
            store: store.to_owned(),
            mountpoint: mountpoint.to_owned(),
            memory: self.memory.unwrap_or_else(|| defaults.memory()),
            workers: self.workers.unwrap_or_else(|| defaults.workers()),
            chunk: self.chunk.unwrap_or(CHUNK_DEFAULT),
            settling: Settling {
                quiet: self.settle.unwrap_or(Some(SETTLE_DEFAULT)),
                rate: self.settle_rate.unwrap_or(SETTLE_RATE_DEFAULT),
                workers: self.settle_workers.unwrap_or(1),
            },
            metrics: self.metrics.clone(),
            metrics_users: self.metrics_users.clone().unwrap_or_default(),
            read_only: self.read_only.unwrap_or(false),
            allow_other: self.allow_other || defaults.root,
            direct_io: self.direct_io,
            synchronous: match self.sync {
                Some(true) => Synchronous::Everything,
                _ if self.dirsync => Synchronous::Names,
                _ => Synchronous::Nothing,
            },
            device: self.device.resolve(),
            default_permissions: true,
            fuse_options,
        }
    }
}

fn needs_value(name: &str) -> Result<bool, OptionError> {
    Err(OptionError(format!(
        "mount option '{name}' needs a value: {name}=..."
    )))
}

/// Options that mean something to fstab, mount(8) or systemd but nothing to a file system.
fn handed_down(name: &str) -> bool {
    const NAMES: [&str; 18] = [
        "defaults", "auto", "noauto", "user", "nouser", "users", "nousers", "owner", "noowner",
        "group", "nogroup", "nofail", "_netdev", "comment", "helper", "uhelper", "silent", "loud",
    ];
    NAMES.contains(&name) || name.starts_with("x-") || name.starts_with("X-")
}

/// Parses a memory budget.
///
/// # Errors
/// Not a size, or out of range.
pub fn parse_memory(text: &str) -> Result<u64, OptionError> {
    const WANTED: &str = "give a size from 16M to 1T, for example memory=4G";
    match parse_size(text) {
        Some(bytes) if (MEMORY_MIN..=MEMORY_MAX).contains(&bytes) => Ok(bytes),
        Some(_) => Err(OptionError(format!(
            "memory '{text}' is out of range; {WANTED}"
        ))),
        None => Err(OptionError(format!(
            "memory '{text}' is not a size; {WANTED}"
        ))),
    }
}

/// Parses how long a file must be quiet before it is settled; `None` is never.
///
/// # Errors
/// Neither `off` nor a number of seconds up to a year.
pub fn parse_settle(text: &str) -> Result<Option<Duration>, OptionError> {
    const YEAR: u64 = 366 * 24 * 3600;
    match (text, text.parse()) {
        ("off", _) => Ok(None),
        (_, Ok(seconds)) if seconds <= YEAR => Ok(Some(Duration::from_secs(seconds))),
        _ => Err(OptionError(format!(
            "settle '{text}' is not a time; give 'off' or seconds up to a year, \
             for example settle=60"
        ))),
    }
}

/// Parses how many bytes are settled per second.
///
/// # Errors
/// Not a size, or out of range.
pub fn parse_settle_rate(text: &str) -> Result<u64, OptionError> {
    match parse_size(text) {
        Some(bytes) if (MIB..=TIB).contains(&bytes) => Ok(bytes),
        _ => Err(OptionError(format!(
            "settle_rate '{text}' is not a size from 1M to 1T; \
             give bytes per second, for example settle_rate=100M"
        ))),
    }
}

/// Parses a chunk size.
///
/// # Errors
/// Not a size, out of range or not a power of two.
pub fn parse_chunk(text: &str) -> Result<u32, OptionError> {
    const WANTED: &str = "give a power of two from 64K to 16M, for example chunk=1M";
    let Some(bytes) = parse_size(text) else {
        return Err(OptionError(format!(
            "chunk '{text}' is not a size; {WANTED}"
        )));
    };
    if !(CHUNK_MIN..=CHUNK_MAX).contains(&bytes) {
        return Err(OptionError(format!(
            "chunk '{text}' is out of range; {WANTED}"
        )));
    }
    match u32::try_from(bytes) {
        Ok(chunk) if chunk.is_power_of_two() => Ok(chunk),
        _ => Err(OptionError(format!(
            "chunk '{text}' is not a power of two; {WANTED}"
        ))),
    }
}

/// Parses users, by name or number.
///
/// # Errors
/// A name that nobody has.
pub fn parse_users(text: &str) -> Result<Vec<u32>, OptionError> {
    text.split('+')
        .map(|user| {
            if let Ok(number) = user.parse() {
                return Ok(number);
            }
            match nix::unistd::User::from_name(user) {
                Ok(Some(found)) => Ok(found.uid.as_raw()),
                _ => Err(OptionError(format!(
                    "metrics_users: there is no user '{user}'; give names or numbers, for \
                     example metrics_users=prometheus+1001"
                ))),
            }
        })
        .collect()
}

/// Parses the number of workers that an option of this name asks for.
///
/// # Errors
/// Not a number, or out of range.
pub fn parse_workers(name: &str, text: &str) -> Result<usize, OptionError> {
    let refused = |what: &str| {
        OptionError(format!(
            "{name} '{text}' is {what}; give a number from 1 to {WORKERS_MAX}, for example {name}=8"
        ))
    };
    let workers: u64 = text.parse().map_err(|_| refused("not a number"))?;
    match usize::try_from(workers) {
        Ok(workers) if (1..=WORKERS_MAX).contains(&workers) => Ok(workers),
        _ => Err(refused("out of range")),
    }
}

/// Parses `4096`, `64K`, `16M`, `4G`, `1T`, `64KiB`, `1.5g`; units are powers of 1024. `None`
/// when it is not a size or does not fit.
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => KIB,
        "m" | "mb" | "mib" => MIB,
        "g" | "gb" | "gib" => GIB,
        "t" | "tb" | "tib" => TIB,
        _ => return None,
    };
    let Some((whole, fraction)) = number.split_once('.') else {
        return number.parse::<u64>().ok()?.checked_mul(unit);
    };
    // Three decimals are plenty and keep this exact.
    if fraction.is_empty() || fraction.len() > 3 || unit == 1 {
        return None;
    }
    let digits = u32::try_from(fraction.len()).ok()?;
    let part = fraction.parse::<u64>().ok()?.checked_mul(unit)? / 10_u64.pow(digits);
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(unit)?
        .checked_add(part)
}

#[cfg(test)]
mod tests;
