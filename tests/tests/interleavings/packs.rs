//! Appending to packs while others sync and seal them, on a disk that keeps what was synced.

#[allow(dead_code, unused_imports, unreachable_pub)]
#[path = "../../../store/src/pack/format.rs"]
mod format;
#[allow(dead_code)]
#[path = "../../../store/src/pack/writer.rs"]
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use shale_backing::{Access, Backing, BackingFile, Entry, Space};
use shale_codec::{Effort, Encoder, FrameKind, FrameMeta, Hint, parse_header};
use shale_tests::{Case, Outcome};
use shuttle::thread;

use crate::explore_part;
use crate::pins::Pins;
use crate::sync::Mutex;
use format::{DirectoryEntry, HEADER_LEN, PackId, read_directory};
use writer::{Lane, Writer};

const DIR: &str = "packs";
const SESSION: u64 = 1;
const WRITERS: u64 = 2;
const FRAMES: u64 = 2;

/// Files in memory, and what of them is durable.
#[derive(Debug, Default)]
struct Disk {
    files: Mutex<BTreeMap<PathBuf, Arc<Contents>>>,
    names: Mutex<BTreeSet<PathBuf>>,
    /// Syncs of packs so far, and which of them fails.
    syncs: Mutex<u64>,
    failing: Option<u64>,
}

#[derive(Debug, Default)]
struct Contents {
    now: Mutex<Vec<u8>>,
    durable: Mutex<Vec<u8>>,
    sealed: Mutex<bool>,
}

#[derive(Debug)]
struct Pack {
    disk: Arc<Disk>,
    contents: Arc<Contents>,
}

#[derive(Debug)]
struct Device(Arc<Disk>);

impl Backing for Device {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn BackingFile>> {
        assert_eq!(access, Access::CreatePack);
        let contents = Arc::new(Contents::default());
        let older = self
            .0
            .files
            .lock()
            .insert(path.to_owned(), Arc::clone(&contents));
        assert!(older.is_none(), "{} exists", path.display());
        Ok(Arc::new(Pack {
            disk: Arc::clone(&self.0),
            contents,
        }))
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        unreachable!("packs keep their names")
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.files.lock().remove(path);
        Ok(())
    }

    fn remove_dir_all(&self, _path: &Path) -> io::Result<()> {
        unreachable!("directories stay")
    }

    fn create_dir_all(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, _path: &Path) -> io::Result<Vec<Entry>> {
        unreachable!("nobody asks")
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let files = self.0.files.lock();
        let inside = files.keys().filter(|file| file.parent() == Some(path));
        let inside: Vec<PathBuf> = inside.cloned().collect();
        drop(files);
        self.0.names.lock().extend(inside);
        Ok(())
    }

    fn space(&self) -> io::Result<Space> {
        unreachable!("nobody asks")
    }

    fn root(&self) -> &Path {
        Path::new("")
    }
}

impl BackingFile for Pack {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let now = self.contents.now.lock();
        let rest = now.get(offset as usize..).unwrap_or_default();
        let len = buf.len().min(rest.len());
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    /// In two halves, between which others have their turn.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let middle = buf.len() / 2;
        for (at, part) in [(0, &buf[..middle]), (middle, &buf[middle..])] {
            assert!(!*self.contents.sealed.lock(), "written behind the seal");
            let mut now = self.contents.now.lock();
            let (begin, end) = (offset as usize + at, offset as usize + at + part.len());
            if now.len() < end {
                now.resize(end, 0);
            }
            now[begin..end].copy_from_slice(part);
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let taken = self.contents.now.lock().clone();
        let mut syncs = self.disk.syncs.lock();
        *syncs += 1;
        let fails = self.disk.failing == Some(*syncs);
        drop(syncs);
        if fails {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        *self.contents.durable.lock() = taken;
        Ok(())
    }

    fn seal(&self) -> io::Result<()> {
        *self.contents.sealed.lock() = true;
        self.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.contents.now.lock().len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.contents.now.lock().truncate(len as usize);
        Ok(())
    }

    fn reserve(&self, _len: u64) -> io::Result<()> {
        Ok(())
    }
}

/// A frame for each that is appended, all of one length.
static APPENDED: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let encode = |inode| {
        let meta = FrameMeta {
            kind: FrameKind::Data,
            inode,
            offset: 0,
            sequence: 1,
        };
        let (mut frame, raw) = (Vec::new(), [inode as u8; 32]);
        Encoder::new()
            .encode(&meta, &Hint::Unknown, Effort::None, &raw, &mut frame)
            .expect("it is small");
        frame
    };
    (0..WRITERS * FRAMES).map(encode).collect()
});

/// Two write and sync into packs with room for so many frames each; one of the syncs may fail.
fn lives(frames: usize, failing: Option<u64>) {
    let disk = Arc::new(Disk {
        failing,
        ..Disk::default()
    });
    let room = HEADER_LEN + frames * APPENDED[0].len();
    let backing = Arc::new(Device(Arc::clone(&disk)));
    let writer = Arc::new(Writer::new(backing, [7; 16], SESSION, room as u64));
    let pins = Arc::new(Pins::default());
    let threads: Vec<_> = (0..WRITERS)
        .map(|mine| {
            let (disk, writer, pins) = (Arc::clone(&disk), Arc::clone(&writer), Arc::clone(&pins));
            thread::spawn(move || -> Vec<(u64, u64, u64)> {
                let append = |number: u64| {
                    let frame = &APPENDED[number as usize];
                    let placed = writer
                        .append(Lane::FOREGROUND, frame, &pins)
                        .expect("appending does not fail");
                    let (pack, at) = (placed.appended.pack, placed.appended.at);
                    assert!(pins.is_pinned(pack));
                    writer.sync();
                    if !writer.abandoned().contains(&pack) {
                        assert_durable(&disk, pack, at, frame);
                    }
                    (pack, at, number)
                };
                (mine * FRAMES..(mine + 1) * FRAMES).map(append).collect()
            })
        })
        .collect();
    let mut placed: BTreeMap<u64, Vec<DirectoryEntry>> = BTreeMap::new();
    for thread in threads {
        for (pack, at, number) in thread.join().expect("a writer panicked") {
            let header = parse_header(&APPENDED[number as usize]).expect("it is whole");
            placed
                .entry(pack)
                .or_default()
                .push(DirectoryEntry::new(at, &header));
        }
    }
    writer.roll();
    writer.sync();
    for (pack, mut entries) in placed {
        assert!(!writer.is_active(pack), "not sealed");
        if writer.abandoned().contains(&pack) {
            continue;
        }
        let contents = Arc::clone(&disk.files.lock()[&PackId(pack).path()]);
        assert_eq!(*contents.now.lock(), *contents.durable.lock());
        let file = Pack {
            disk: Arc::clone(&disk),
            contents,
        };
        let directory = read_directory(&file, pack).expect("it can be read");
        entries.sort_unstable_by_key(|entry| entry.at);
        assert_eq!(directory.expect("it is sealed").entries, entries);
    }
}

fn assert_durable(disk: &Disk, pack: u64, at: u64, frame: &[u8]) {
    let path = PackId(pack).path();
    assert!(disk.names.lock().contains(&path), "a name is not durable");
    let contents = Arc::clone(&disk.files.lock()[&path]);
    let durable = contents.durable.lock();
    let found = durable.get(at as usize..at as usize + frame.len());
    assert_eq!(found, Some(frame), "a frame is not durable");
}

pub(crate) fn appended(_case: &Case) -> Outcome {
    LazyLock::force(&APPENDED);
    explore_part(4, || lives(1, None))?;
    explore_part(4, || lives(2, None))
}

pub(crate) fn lost(_case: &Case) -> Outcome {
    LazyLock::force(&APPENDED);
    explore_part(4, || lives(2, Some(3)))
}
