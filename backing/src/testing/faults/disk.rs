//! The disk: which operations fail, and how many there were.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::shadow::{Shadow, adopt};
use super::step::{Step, Tear};
use crate::device::posix::PosixBacking;

/// Decides whether an operation fails, by its kind, its file, and its number among the changes or
/// among those that change nothing.
type Rule = Arc<dyn Fn(Step, &Path, u64) -> Option<io::Error> + Send + Sync>;

/// A disk that fails on command and knows what would survive a loss of power.
pub struct FaultDisk {
    pub(super) inner: PosixBacking,
    pub(super) root: PathBuf,
    changes: AtomicU64,
    reads: AtomicU64,
    rule: Mutex<Option<Rule>>,
    pub(super) tear: Mutex<Tear>,
    pub(super) shadow: Mutex<Shadow>,
    pub(super) space: AtomicU64,
    /// The number of the first change without power.
    pub(super) dark: AtomicU64,
}

impl std::fmt::Debug for FaultDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FaultDisk")
    }
}

impl FaultDisk {
    /// A disk in an existing directory; everything already there is durable.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn new(root: &Path) -> io::Result<Arc<Self>> {
        let mut shadow = Shadow::default();
        adopt(root, Path::new(""), &mut shadow)?;
        shadow.names.clone_from(&shadow.durable_names);
        Ok(Arc::new(Self {
            inner: PosixBacking::new(root),
            root: root.to_path_buf(),
            changes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            rule: Mutex::new(None),
            tear: Mutex::new(Tear::Nothing),
            shadow: Mutex::new(shadow),
            space: AtomicU64::new(1 << 50),
            dark: AtomicU64::new(u64::MAX),
        }))
    }

    /// Sets which operations fail from now on.
    pub fn rule(
        &self,
        rule: impl Fn(Step, &Path, u64) -> Option<io::Error> + Send + Sync + 'static,
    ) {
        *self.rule.lock() = Some(Arc::new(rule));
    }

    /// Every change from this one on fails, as on a machine without power.
    pub fn cut_power_at(&self, number: u64) {
        self.dark.store(number, Ordering::SeqCst);
        self.rule(move |step, _, at| {
            (at >= number && step.is_change()).then(|| io::Error::from_raw_os_error(libc::EIO))
        });
    }

    /// Nothing fails any more.
    pub fn heal(&self) {
        *self.rule.lock() = None;
        self.dark.store(u64::MAX, Ordering::SeqCst);
    }

    /// Sets the remains of a failing write.
    pub fn tear(&self, tear: Tear) {
        *self.tear.lock() = tear;
    }

    /// Sets the space that the disk reports.
    pub fn set_space(&self, bytes: u64) {
        self.space.store(bytes, Ordering::SeqCst);
    }

    /// Changes so far.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Operations so far that change nothing.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    pub(super) fn step(&self, step: Step, path: &Path) -> io::Result<()> {
        let counter = if step.is_change() {
            &self.changes
        } else {
            &self.reads
        };
        let number = counter.fetch_add(1, Ordering::SeqCst);
        // The rule may block; the next operation must not wait for it.
        let rule = self.rule.lock().clone();
        match rule.and_then(|rule| rule(step, path, number)) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}
