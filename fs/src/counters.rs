//! Counts the requests of programs, and how long they take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shale_index::Ino;
use shale_store::Counter;

/// Upper bounds of the histogram of operation times, in microseconds. One more bucket holds longer
/// ones.
pub(crate) const BUCKETS: [u64; 14] = [
    10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000,
    10_000_000, 30_000_000,
];

macro_rules! operations {
    ($($variant:ident $name:literal),* $(,)?) => {
        /// An operation of the file system.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Op {
            $(#[doc = $name] $variant),*
        }

        impl Op {
            pub(crate) const ALL: &[Op] = &[$(Op::$variant),*];

            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Op::$variant => $name),*
                }
            }
        }
    };
}

operations! {
    Lookup "lookup",
    Getattr "getattr",
    Setattr "setattr",
    Readlink "readlink",
    Mknod "mknod",
    Mkdir "mkdir",
    Unlink "unlink",
    Rmdir "rmdir",
    Symlink "symlink",
    Rename "rename",
    Link "link",
    Open "open",
    Create "create",
    Read "read",
    Write "write",
    Flush "flush",
    Release "release",
    Fsync "fsync",
    Fsyncdir "fsyncdir",
    Readdir "readdir",
    Readdirplus "readdirplus",
    Statfs "statfs",
    Setxattr "setxattr",
    Getxattr "getxattr",
    Listxattr "listxattr",
    Removexattr "removexattr",
    Fallocate "fallocate",
    Lseek "lseek",
    CopyFileRange "copy_file_range",
}

/// Errors that mean that something does not work, counted by name.
pub(crate) const ERRORS: [(i32, &str); 5] = [
    (libc::EIO, "EIO"),
    (libc::ENOMEM, "ENOMEM"),
    (libc::ENOSPC, "ENOSPC"),
    (libc::EDQUOT, "EDQUOT"),
    // Every errno in neither list.
    (0, "other"),
];

/// Errors that programs expect: a missing name, a missing permission, an invalid request.
pub(crate) const REFUSALS: [(i32, &str); 20] = [
    (libc::EPERM, "EPERM"),
    (libc::ENOENT, "ENOENT"),
    (libc::ENXIO, "ENXIO"),
    (libc::E2BIG, "E2BIG"),
    (libc::EAGAIN, "EAGAIN"),
    (libc::EACCES, "EACCES"),
    (libc::EBUSY, "EBUSY"),
    (libc::EEXIST, "EEXIST"),
    (libc::ENOTDIR, "ENOTDIR"),
    (libc::EISDIR, "EISDIR"),
    (libc::EINVAL, "EINVAL"),
    (libc::EFBIG, "EFBIG"),
    (libc::EROFS, "EROFS"),
    (libc::EMLINK, "EMLINK"),
    (libc::ERANGE, "ERANGE"),
    (libc::ENAMETOOLONG, "ENAMETOOLONG"),
    (libc::ENOTEMPTY, "ENOTEMPTY"),
    (libc::ELOOP, "ELOOP"),
    (libc::ENODATA, "ENODATA"),
    (libc::EOPNOTSUPP, "EOPNOTSUPP"),
];

/// Times of one operation.
#[derive(Debug, Default)]
pub(crate) struct Times {
    pub(crate) buckets: [Counter; BUCKETS.len() + 1],
    pub(crate) nanos: Counter,
}

/// All counters between the kernel and the store.
#[derive(Debug)]
pub(crate) struct Counters {
    begun: Instant,
    operations: Vec<Times>,
    errors: [Counter; ERRORS.len()],
    refusals: [Counter; REFUSALS.len()],
    /// Bytes that programs read.
    pub(crate) read: Counter,
    /// Bytes that programs wrote.
    pub(crate) written: Counter,
    pub(crate) settle: Settles,
    pub(crate) slowest: Slowest,
}

/// Results of settling.
#[derive(Debug, Default)]
pub(crate) struct Settles {
    /// Files that were settled.
    pub(crate) files: Counter,
    /// Files that are already as small as settling would make them.
    pub(crate) compact: Counter,
    /// Files that do not compress.
    pub(crate) incompressible: Counter,
    /// Attempts that failed, were interrupted or were overtaken by a write.
    pub(crate) failed: Counter,
    pub(crate) raw: Counter,
    pub(crate) before: Counter,
    pub(crate) after: Counter,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            operations: Op::ALL.iter().map(|_| Times::default()).collect(),
            errors: Default::default(),
            refusals: Default::default(),
            read: Counter::default(),
            written: Counter::default(),
            settle: Settles::default(),
            slowest: Slowest::default(),
        }
    }
}

impl Counters {
    /// Time since the mount began.
    pub(crate) fn uptime(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Bytes that programs have read and written.
    pub(crate) fn traffic(&self) -> u64 {
        self.read.get() + self.written.get()
    }

    pub(crate) fn times(&self, op: Op) -> &Times {
        &self.operations[op as usize]
    }

    /// How often an operation failed, by errno.
    pub(crate) fn errors(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.errors.iter().map(Counter::get);
        ERRORS.iter().map(|&(_, name)| name).zip(counts)
    }

    /// How often an operation was refused, by errno.
    pub(crate) fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.refusals.iter().map(Counter::get);
        REFUSALS.iter().map(|&(_, name)| name).zip(counts)
    }

    fn count(&self, errno: i32) {
        let place = |list: &[(i32, &str)]| list.iter().position(|&(known, _)| known == errno);
        match place(&REFUSALS) {
            Some(place) => self.refusals[place].one(),
            None => self.errors[place(&ERRORS).unwrap_or(ERRORS.len() - 1)].one(),
        }
    }

    /// Records the end of an operation.
    pub(crate) fn done(&self, op: Op, ino: Ino, begun: Instant, errno: Option<i32>) {
        let time = begun.elapsed();
        let times = self.times(op);
        let micros = time.as_micros() as u64;
        times.buckets[BUCKETS.partition_point(|&end| end < micros)].one();
        times.nanos.time(time);
        if let Some(errno) = errno {
            self.count(errno);
        }
        self.slowest.note(Slow {
            op,
            ino,
            time,
            begun,
        });
    }
}

/// An operation that took a long time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slow {
    pub(crate) op: Op,
    pub(crate) ino: Ino,
    pub(crate) time: Duration,
    pub(crate) begun: Instant,
}

/// Most operations in the table.
const SLOWEST: usize = 16;
/// How long an operation stays in the table.
const MEMORY: Duration = Duration::from_secs(60);
/// Faster operations never enter the table.
const SLOW: Duration = Duration::from_millis(1);

/// The slowest operations of the last minute.
#[derive(Debug, Default)]
pub(crate) struct Slowest {
    /// Nanoseconds that an operation must take to enter the full table.
    threshold: AtomicU64,
    table: Mutex<Vec<Slow>>,
}

impl Slowest {
    fn note(&self, slow: Slow) {
        let nanos = slow.time.as_nanos() as u64;
        if slow.time < SLOW || nanos <= self.threshold.load(Ordering::Relaxed) {
            return;
        }
        // Counting must never wait. Among many slow operations, one may be missed.
        let Some(mut table) = self.table.try_lock() else {
            return;
        };
        table.push(slow);
        self.tidy(&mut table);
    }

    /// The slowest first.
    pub(crate) fn list(&self) -> Vec<Slow> {
        let mut table = self.table.lock();
        self.tidy(&mut table);
        table.clone()
    }

    fn tidy(&self, table: &mut Vec<Slow>) {
        table.retain(|slow| slow.begun.elapsed() < MEMORY);
        table.sort_by_key(|slow| std::cmp::Reverse(slow.time));
        table.truncate(SLOWEST);
        let threshold = match table.last() {
            Some(last) if table.len() == SLOWEST => last.time.as_nanos() as u64,
            _ => 0,
        };
        self.threshold.store(threshold, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_the_bucket_that_holds_them() {
        let counters = Counters::default();
        let before = Instant::now()
            .checked_sub(Duration::from_millis(50))
            .unwrap();
        counters.done(Op::Read, 7, before, None);
        counters.done(Op::Read, 7, Instant::now(), Some(libc::EIO));
        counters.done(Op::Read, 7, Instant::now(), Some(libc::EBADF));
        counters.done(Op::Read, 7, Instant::now(), Some(libc::ENOENT));
        let times = counters.times(Op::Read);
        let counts: Vec<u64> = times.buckets.iter().map(Counter::get).collect();
        assert_eq!(counts.iter().sum::<u64>(), 4);
        let slow = BUCKETS.iter().position(|&end| end == 100_000).unwrap();
        assert!(counts[slow..].iter().sum::<u64>() >= 1, "{counts:?}");
        let errors: Vec<_> = counters.errors().filter(|(_, count)| *count > 0).collect();
        assert_eq!(errors, [("EIO", 1), ("other", 1)]);
        let refusals: Vec<_> = counters
            .refusals()
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(refusals, [("ENOENT", 1)]);
        let slowest = counters.slowest.list();
        assert_eq!((slowest.len(), slowest[0].ino), (1, 7));
    }

    #[test]
    fn the_table_keeps_the_slowest_of_the_last_minute() {
        let slowest = Slowest::default();
        let slow = |millis, ago| Slow {
            op: Op::Write,
            ino: millis,
            time: Duration::from_millis(millis),
            begun: Instant::now()
                .checked_sub(Duration::from_secs(ago))
                .unwrap(),
        };
        for millis in 1..100 {
            slowest.note(slow(millis, 0));
        }
        let inodes: Vec<Ino> = slowest.list().iter().map(|slow| slow.ino).collect();
        assert_eq!(inodes, (84..100).rev().collect::<Vec<_>>());
        slowest.note(slow(50, 0));
        assert_eq!(slowest.list().len(), SLOWEST);
        slowest.table.lock().iter_mut().for_each(|old| {
            old.begun = old.begun.checked_sub(Duration::from_secs(90)).unwrap();
        });
        assert!(slowest.list().is_empty());
        slowest.note(slow(2, 0));
        assert_eq!(slowest.list().len(), 1);
    }
}
