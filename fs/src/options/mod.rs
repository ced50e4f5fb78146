//! Options of a mount: `-o` options as mount(8) passes them, and their ranges.
//!
//! Options arrive in steps. Text becomes [`Requested`] (everything optional, the last one wins).
//! Command-line flags override it with [`Requested::set`]. [`Requested::check`] refuses options
//! that exclude each other, and [`Requested::resolve`] fills in the defaults of the [`Machine`].
//!
//! ```text
//! parse    values: sizes, times, numbers
//! address  where metrics are served; refuses addresses that other machines could reach
//! device   options about the device that a store is on
//! machine  what the defaults depend on
//! ```

mod address;
mod device;
mod machine;
mod parse;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use shale_store::DeviceOptions;

pub use address::Address;
pub use device::RequestedDevice;
pub use machine::Machine;
pub use parse::parse_size;
pub(crate) use parse::{parse_chunk, parse_settle};

use parse::{GIB, KIB, MIB, TIB, parse_memory, parse_settle_rate, parse_users, parse_workers};

/// Smallest memory budget.
pub(crate) const MEMORY_MIN: u64 = 16 * MIB;
/// Largest memory budget.
pub(crate) const MEMORY_MAX: u64 = TIB;
/// The default budget is a quarter of the RAM, up to this.
pub(crate) const MEMORY_DEFAULT_MAX: u64 = 4 * GIB;
/// Smallest chunk.
pub(crate) const CHUNK_MIN: u64 = 64 * KIB;
/// Largest chunk.
pub const CHUNK_MAX: u64 = 16 * MIB;
/// Default chunk size.
pub(crate) const CHUNK_DEFAULT: u32 = 1 << 20;
/// By default a file is settled when it has not been changed for this time.
pub(crate) const SETTLE_DEFAULT: Duration = Duration::from_secs(10);
/// Bytes per second that are settled at most by default.
pub(crate) const SETTLE_RATE_DEFAULT: u64 = 256 * MIB;
/// Largest number of workers.
pub(crate) const WORKERS_MAX: usize = 256;

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
    /// Users who may see them on a port besides root and the user of the daemon.
    pub metrics_users: Vec<u32>,
    /// No changes through this mount.
    pub read_only: bool,
    /// Users other than the one who mounts may use it.
    pub allow_other: bool,
    /// Nothing is kept in the kernel's page cache.
    pub direct_io: bool,
    /// Which changes are durable when they return.
    pub synchronous: Synchronous,
    /// The device that the store is on.
    pub device: DeviceOptions,
    /// The kernel checks permissions by mode, owner and ACL.
    pub default_permissions: bool,
    /// Passed on to the kernel: `nodev`, `nosuid`, `noexec`, `noatime`, `sync` ...
    pub fuse_options: Vec<String>,
}

/// How files are settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settling {
    /// Age of the last change from which a file is quiet; `None` to settle only on request.
    pub quiet: Option<Duration>,
    /// Raw bytes per second at most.
    pub rate: u64,
    /// Workers that encode.
    pub workers: usize,
}

/// Which changes are durable when they return, without `fsync`.
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

/// A request that cannot be met, as one line that says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionError(pub(crate) String);

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OptionError {}

/// The options given; `None` leaves the default.
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
    /// `backing=` and the options that belong to it
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

/// What to do with an unknown option.
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

    /// Adds a comma-separated list. It overrides earlier options.
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
                    "unknown mount option '{option}'; 'shale mount --help' lists the options"
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
            // Always on: without it every user could read everything.
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
            // Access times are not kept, so the choice has no effect.
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

    /// Checks that the options are compatible.
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
    pub fn resolve(&self, store: &Path, mountpoint: &Path, defaults: &Machine) -> MountOptions {
        let mut fuse_options = Vec::new();
        let mut word = |asked: Option<bool>, yes: &str, no: &str| match asked {
            Some(true) => fuse_options.push(yes.to_owned()),
            Some(false) => fuse_options.push(no.to_owned()),
            None => {}
        };
        // fusermount3 adds nodev and nosuid to the mounts of ordinary users.
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

/// Options for fstab, mount(8) or systemd that mean nothing to a file system.
fn handed_down(name: &str) -> bool {
    const NAMES: [&str; 18] = [
        "defaults", "auto", "noauto", "user", "nouser", "users", "nousers", "owner", "noowner",
        "group", "nogroup", "nofail", "_netdev", "comment", "helper", "uhelper", "silent", "loud",
    ];
    NAMES.contains(&name) || name.starts_with("x-") || name.starts_with("X-")
}

#[cfg(test)]
mod tests;
