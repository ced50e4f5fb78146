//! A pack that is written through a mapping.
//!
//! Space is allocated and mapped in windows ahead of the writes, so that a store to the mapping
//! never hits a hole: on a full device that would kill the process. Reads go through the kernel,
//! which returns an error where the memory is bad; a load from the mapping would kill the process
//! there too.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::backing::BackingFile;
use crate::device::persist::Flush;
use crate::retry::{read_full_at, retry_eintr};

/// Bytes that are mapped at a time, and at most left unused at the end of a pack by a crash.
const WINDOW: u64 = 16 << 20;
/// Allocated instead if less space is left. A multiple of every page size.
const SMALL_WINDOW: u64 = 64 << 10;

/// How writes to a mapping become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durable {
    /// The mapping is persistent memory (`MAP_SYNC`): by writing back cache lines.
    ByFlush(Flush),
    /// By asking the kernel (`msync`).
    ByKernel {
        /// The mapping is persistent memory, but this processor has no way to flush it.
        sync: bool,
    },
}

impl Durable {
    fn flags(self) -> libc::c_int {
        match self {
            Self::ByFlush(_) | Self::ByKernel { sync: true } => {
                libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC
            }
            Self::ByKernel { sync: false } => libc::MAP_SHARED,
        }
    }
}

/// Tests with one file how files of its directory can be mapped.
pub(crate) fn probe(file: &File) -> io::Result<Durable> {
    allocate(file, 0, SMALL_WINDOW)?;
    let direct = match Flush::of_this_processor() {
        Some(flush) => Durable::ByFlush(flush),
        None => Durable::ByKernel { sync: true },
    };
    if Window::map(file, 0, SMALL_WINDOW, direct).is_ok() {
        return Ok(direct);
    }
    let durable = Durable::ByKernel { sync: false };
    Window::map(file, 0, SMALL_WINDOW, durable).map(|_| durable)
}

/// A pack being written.
#[derive(Debug)]
pub(crate) struct MappedFile {
    file: File,
    durable: Durable,
    windows: RwLock<Vec<Window>>,
    /// End of the bytes written; the file is longer until it is sealed.
    end: AtomicU64,
    sealed: AtomicBool,
    /// A sync has failed. The kernel reports that only once, so it is kept here.
    lost: AtomicBool,
}

impl MappedFile {
    pub(crate) fn new(file: File, durable: Durable) -> Self {
        Self {
            file,
            durable,
            windows: RwLock::default(),
            end: AtomicU64::new(0),
            sealed: AtomicBool::new(false),
            lost: AtomicBool::new(false),
        }
    }

    /// Returns the result of a sync; after a failure, every later sync fails too.
    fn note_failure(&self, synced: io::Result<()>) -> io::Result<()> {
        if self.lost.load(Ordering::Acquire) {
            return Err(Errno::IO.into());
        }
        self.lost.fetch_or(synced.is_err(), Ordering::AcqRel);
        synced
    }

    /// Maps the file up to `end`.
    fn grow(&self, end: u64) -> io::Result<()> {
        let mapped = |windows: &[Window]| windows.last().map_or(0, Window::end);
        if mapped(&self.windows.read()) >= end {
            return Ok(());
        }
        let mut windows = self.windows.write();
        while mapped(&windows) < end {
            let start = mapped(&windows);
            let least = (end - start).next_multiple_of(SMALL_WINDOW);
            let len = match allocate(&self.file, start, WINDOW.max(least)) {
                Err(e) if e.raw_os_error() == Some(libc::ENOSPC) => {
                    allocate(&self.file, start, least)?
                }
                other => other?,
            };
            // The length and the blocks are made durable first, so that later syncs only have to
            // write the bytes.
            self.note_failure(self.file.sync_data())?;
            windows.push(Window::map(&self.file, start, len, self.durable)?);
        }
        Ok(())
    }
}

/// Extends a file by allocated blocks; returns their length.
fn allocate(file: &File, start: u64, len: u64) -> io::Result<u64> {
    for number in [start, len] {
        libc::off_t::try_from(number).map_err(|_| Errno::FBIG)?;
    }
    retry_eintr(|| Ok(fallocate(file, FallocateFlags::empty(), start, len)?))?;
    Ok(len)
}

impl BackingFile for MappedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = self.end.load(Ordering::Acquire).saturating_sub(offset);
        let len = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        read_full_at(&self.file, &mut buf[..len], offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        if self.sealed.load(Ordering::Acquire) {
            return Err(Errno::BADF.into());
        }
        let end = offset + buf.len() as u64;
        self.grow(end)?;
        let windows = self.windows.read();
        let first = windows.partition_point(|window| window.end() <= offset);
        let mut rest = buf;
        let mut at = offset;
        for window in &windows[first..] {
            let (piece, behind) = rest.split_at(rest.len().min((window.end() - at) as usize));
            window.write(piece, at, self.durable);
            at += piece.len() as u64;
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        self.end.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        match self.durable {
            // Each write has flushed what it wrote.
            Durable::ByFlush(_) => Ok(()),
            Durable::ByKernel { .. } => {
                self.note_failure(self.windows.read().iter().try_for_each(Window::sync))
            }
        }
    }

    fn seal(&self) -> io::Result<()> {
        self.sync_data()?;
        self.sealed.store(true, Ordering::Release);
        let mut windows = self.windows.write();
        windows.clear();
        self.file.set_len(self.end.load(Ordering::Acquire))?;
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.end.load(Ordering::Acquire))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        // Packs are only truncated to where a frame began; the space stays mapped.
        self.end.fetch_min(len, Ordering::AcqRel);
        Ok(())
    }

    fn reserve(&self, len: u64) -> io::Result<bool> {
        self.grow(len)?;
        Ok(true)
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        if !*self.sealed.get_mut() {
            self.windows.get_mut().clear();
            // Releases the space allocated ahead; if this fails, gc reclaims it with the pack.
            let _ = self.file.set_len(*self.end.get_mut());
        }
    }
}

/// A mapped piece of a file.
#[derive(Debug)]
struct Window {
    address: NonNull<u8>,
    start: u64,
    len: u64,
    /// Written since the last `msync`.
    dirty: AtomicBool,
}

// SAFETY: the memory belongs to the window alone and is written through raw pointers only;
// concurrent writers write to different places, as with `pwrite`.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    fn map(file: &File, start: u64, len: u64, durable: Durable) -> io::Result<Self> {
        let size = usize::try_from(len).map_err(|_| Errno::FBIG)?;
        let offset = libc::off_t::try_from(start).map_err(|_| Errno::FBIG)?;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                durable.flags(),
                file.as_raw_fd(),
                offset,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            address: NonNull::new(address.cast()).ok_or(Errno::NOMEM)?,
            start,
            len,
            dirty: AtomicBool::new(false),
        })
    }

    fn end(&self) -> u64 {
        self.start + self.len
    }

    /// Writes at an offset of the file; the piece must lie inside.
    fn write(&self, piece: &[u8], at: u64, durable: Durable) {
        assert!(at >= self.start && at + piece.len() as u64 <= self.end());
        let inside = (at - self.start) as usize;
        // SAFETY: inside the mapping, by the assertion; all of it has blocks.
        unsafe {
            let target = self.address.as_ptr().add(inside);
            std::ptr::copy_nonoverlapping(piece.as_ptr(), target, piece.len());
            if let Durable::ByFlush(flush) = durable {
                flush.persist(std::slice::from_raw_parts(target, piece.len()));
            }
        }
        self.dirty.store(true, Ordering::Release);
    }

    fn sync(&self) -> io::Result<()> {
        if !self.dirty.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        retry_eintr(|| {
            // SAFETY: the whole mapping.
            let done = unsafe {
                libc::msync(
                    self.address.as_ptr().cast(),
                    self.len as usize,
                    libc::MS_SYNC,
                )
            };
            if done == 0 {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            }
        })
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the mapping ends with its owner; no pointer into it outlives it.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.len as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(dir: &tempfile::TempDir, name: &str) -> File {
        File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(dir.path().join(name))
            .unwrap()
    }

    fn mapped(dir: &tempfile::TempDir) -> MappedFile {
        let durable = probe(&create(dir, "probe")).unwrap();
        MappedFile::new(create(dir, "pack"), durable)
    }

    fn on_disk(dir: &tempfile::TempDir) -> Vec<u8> {
        std::fs::read(dir.path().join("pack")).unwrap()
    }

    #[test]
    fn what_was_written_is_read_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let file = mapped(&dir);
        let piece: Vec<u8> = (0..=250).cycle().take(5 << 20).collect();
        for n in 0..9 {
            let at = n * piece.len() as u64;
            file.write_all_at(&piece, at).unwrap();
            file.sync_data().unwrap();
            assert_eq!(file.len().unwrap(), at + piece.len() as u64);
        }
        let mut buf = vec![0; piece.len() + 10];
        let read = file.read_at(&mut buf, 8 * piece.len() as u64).unwrap();
        assert_eq!(&buf[..read], piece);
        assert!(on_disk(&dir).len() > 9 * piece.len());
        file.seal().unwrap();
        assert_eq!(on_disk(&dir), piece.repeat(9));
        assert!(file.write_all_at(b"late", 0).is_err());
        drop(file);
        assert_eq!(on_disk(&dir).len(), 9 * piece.len());
    }

    #[test]
    fn a_pack_that_is_given_up_gives_its_reserve_back() {
        let dir = tempfile::tempdir().unwrap();
        let file = mapped(&dir);
        file.write_all_at(b"abc", 0).unwrap();
        file.write_all_at(b"failed", 3).unwrap();
        file.set_len(3).unwrap();
        drop(file);
        assert_eq!(on_disk(&dir), b"abc");
    }

    #[test]
    fn a_pack_that_could_not_be_synced_once_is_never_durable() {
        let dir = tempfile::tempdir().unwrap();
        let file = MappedFile::new(create(&dir, "pack"), Durable::ByKernel { sync: false });
        file.write_all_at(b"abc", 0).unwrap();
        assert!(file.note_failure(Err(Errno::NOSPC.into())).is_err());
        assert!(file.sync_data().is_err(), "the kernel has forgotten it");
        assert!(file.seal().is_err());
    }

    #[test]
    fn writers_at_different_places_do_not_disturb_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let file = mapped(&dir);
        let piece = |n: u64| vec![n as u8 + 1; 300_001];
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let file = &file;
                scope.spawn(move || {
                    for n in (worker..100).step_by(4) {
                        file.write_all_at(&piece(n), n * 300_001).unwrap();
                    }
                });
            }
        });
        file.seal().unwrap();
        let expected: Vec<u8> = (0..100).flat_map(piece).collect();
        assert!(on_disk(&dir) == expected);
    }
}
