//! Mounts a store, serves it, ends.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use shale_store::{Effort, Store, StoreOptions};

use super::adapter::Adapter;
use super::admission::dirty_bound;
use super::coherence::KernelCaches;
use super::unmount::Unmounter;
use crate::fs::MountLocation;
use crate::policy::MountDefaults;
use crate::stats::{BoundMetrics, MetricsServer};
use crate::{Error, Fs, MountOptions, settle};

/// Threads that serve requests, per core and at least.
const THREADS_PER_CORE: usize = 2;
const THREADS_MIN: usize = 8;
/// Threads that never wait for the device with a change of names.
const THREADS_TO_READ: usize = 2;

fn threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores * THREADS_PER_CORE).max(THREADS_MIN)
}

/// A mount that answers.
#[derive(Debug)]
pub struct Mounted {
    fs: Arc<Fs>,
    mountpoint: PathBuf,
    session: JoinHandle<std::io::Result<()>>,
    settler: Option<JoinHandle<()>>,
    metrics: Option<MetricsServer>,
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Mount {
        action,
        path,
        source,
    }
}

/// Mounts a store; returns once the mount answers.
///
/// # Errors
/// What is wrong with the store or the mount point.
pub fn mount(options: &MountOptions) -> Result<Mounted, Error> {
    if !options.read_only && !options.store.exists() {
        std::fs::create_dir_all(&options.store).map_err(failed("create", &options.store))?;
    }
    let listening = match &options.metrics {
        Some(address) => {
            let shown = PathBuf::from(address.to_string());
            Some(MetricsServer::bind(address).map_err(failed("serve metrics on", &shown))?)
        }
        None => None,
    };
    let wanted = StoreOptions {
        memory: options.memory,
        workers: options.workers,
        owner: (
            nix::unistd::geteuid().as_raw(),
            nix::unistd::getegid().as_raw(),
        ),
        effort: Effort::Fast,
        purpose: format!("mounted on {}", options.mountpoint.display()),
        device: options.device,
        kernel_cache: !options.direct_io,
    };
    let store = if options.read_only {
        Store::open_read_only(&options.store, &wanted)?
    } else {
        Store::open(&options.store, &wanted)?
    };
    let defaults = MountDefaults {
        chunk: options.chunk,
        quiet: options.settling.quiet,
    };
    let location = MountLocation {
        store: options.store.display().to_string(),
        mountpoint: options.mountpoint.display().to_string(),
    };
    let fs = Fs::new(store, defaults)
        .with_durable(options.synchronous)
        .with_location(location);
    let fs = Arc::new(fs);
    let started = start(Arc::clone(&fs), options);
    match started {
        Ok((session, settler)) => Ok(Mounted {
            metrics: listening.and_then(|bound| serve_metrics(bound, &options.metrics_users, &fs)),
            fs,
            mountpoint: options.mountpoint.clone(),
            session,
            settler,
        }),
        Err(error) => {
            fs.store().shut_down()?;
            Err(error)
        }
    }
}

/// A mount works without its metrics.
fn serve_metrics(bound: BoundMetrics, users: &[u32], fs: &Arc<Fs>) -> Option<MetricsServer> {
    MetricsServer::start(bound, users, Arc::clone(fs))
        .inspect_err(|e| {
            tracing::warn!(
                "metrics are not served: {e}; check the address and mount again to get them"
            )
        })
        .ok()
}

/// The thread of the session and the one that settles.
type Threads = (JoinHandle<std::io::Result<()>>, Option<JoinHandle<()>>);

fn start(fs: Arc<Fs>, options: &MountOptions) -> Result<Threads, Error> {
    let mountpoint = &options.mountpoint;
    let caches = Arc::new(KernelCaches::default());
    let adapter = Adapter::new(
        Arc::clone(&fs),
        Arc::clone(&caches),
        options.direct_io,
        threads() - THREADS_TO_READ,
    )
    .map_err(failed("start threads for", mountpoint))?;
    let session = Session::new(adapter, mountpoint, &config(options))
        .map_err(failed("mount on", mountpoint))?;
    caches.connect(session.notifier());
    fs.settling
        .listen(Box::new(move |ino| caches.forget_attributes(ino)));
    let session = session
        .spawn()
        .and_then(thread_of)
        .map_err(failed("start threads for", mountpoint))?;
    if !options.read_only {
        let device = fs.store().space()?.total;
        fs.store().set_cached_above(dirty_bound(mountpoint, device));
    }
    // A mount works without settling.
    let settler = (!options.read_only)
        .then(|| settle::start(&fs, options.settling))
        .transpose()
        .unwrap_or_else(|e| {
            tracing::warn!("files are not settled: {e}; free memory or raise the limit on threads, and mount again");
            None
        });
    Ok((session, settler))
}

/// The thread of a session, without fuser's guard that unmounts at the end. fuser 0.18 does not
/// notice that a mount has ended, and would unmount whatever is mounted in its place.
fn thread_of(mut session: BackgroundSession) -> std::io::Result<JoinHandle<std::io::Result<()>>> {
    let other = std::thread::Builder::new().spawn(|| Ok(()))?;
    let thread = std::mem::replace(&mut session.guard, other);
    std::mem::forget(session);
    Ok(thread)
}

/// The store as the system lists it. fusermount3 splits its options at commas, so they are
/// escaped on the way through it.
fn source(options: &MountOptions) -> String {
    let store = options.store.display().to_string();
    if nix::unistd::geteuid().is_root() {
        return store;
    }
    store.replace('\\', "\\\\").replace(',', "\\,")
}

fn config(options: &MountOptions) -> Config {
    let mut config = Config::default();
    // As a custom option, because fuser drops its own when root mounts directly.
    config
        .mount_options
        .push(MountOption::CUSTOM("subtype=shale".to_owned()));
    config
        .mount_options
        .push(MountOption::FSName(source(options)));
    if options.default_permissions {
        config.mount_options.push(MountOption::DefaultPermissions);
    }
    if options.read_only {
        config.mount_options.push(MountOption::RO);
    }
    config.mount_options.extend(
        options
            .fuse_options
            .iter()
            .map(|option| match option.as_str() {
                "dev" => MountOption::Dev,
                "nodev" => MountOption::NoDev,
                "suid" => MountOption::Suid,
                "nosuid" => MountOption::NoSuid,
                "exec" => MountOption::Exec,
                "noexec" => MountOption::NoExec,
                "atime" => MountOption::Atime,
                "noatime" => MountOption::NoAtime,
                "sync" => MountOption::Sync,
                "async" => MountOption::Async,
                "dirsync" => MountOption::DirSync,
                other => MountOption::CUSTOM(other.to_owned()),
            }),
    );
    config.acl = if options.allow_other {
        SessionACL::All
    } else {
        SessionACL::Owner
    };
    config.n_threads = Some(threads());
    config.clone_fd = true;
    config
}

/// A thread that has just taken a request when the mount ends gets `ECONNABORTED`. fuser expects
/// only the `ENODEV` of threads that wait for a request.
fn unless_unmounted(error: std::io::Error) -> std::io::Result<()> {
    match error.raw_os_error() {
        Some(libc::ECONNABORTED) => Ok(()),
        _ => Err(error),
    }
}

impl Mounted {
    /// Waits until the mount has been ended, calls `unmounted`, and waits until everything is
    /// durable.
    ///
    /// # Errors
    /// What could not be made durable, or how the session failed.
    pub fn wait(self, unmounted: impl FnOnce()) -> Result<(), Error> {
        let unmounter = self.unmounter();
        let ended = self
            .session
            .join()
            .unwrap_or_else(|_| Err(std::io::Error::other("the session panicked")))
            .or_else(unless_unmounted);
        if ended.is_err() {
            // It is still mounted, but no thread answers.
            let _ = unmounter.unmount();
        }
        unmounted();
        drop(self.metrics);
        self.fs.settling.stop();
        if let Some(settler) = self.settler {
            let _ = settler.join();
        }
        let stored = self.fs.store().shut_down();
        ended.map_err(failed("serve", &self.mountpoint))?;
        Ok(stored?)
    }

    /// A handle to end the mount with.
    #[must_use]
    pub fn unmounter(&self) -> Unmounter {
        Unmounter::at(self.mountpoint.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_an_unmount_takes_away_is_no_failure() {
        let told = |errno| unless_unmounted(std::io::Error::from_raw_os_error(errno));
        assert!(told(libc::ECONNABORTED).is_ok());
        assert!(told(libc::EIO).is_err());
    }
}
