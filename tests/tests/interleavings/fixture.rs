//! A small store in memory, with all locks and threads under the scheduler.

use std::sync::Arc;

use shale_index::engine::ReferenceKv;
use shale_index::schema::S_IFREG;
use shale_index::{Kv, NewNode, ROOT};
use shale_store::{
    Effort, Error, File, Region, SettleBatch, SettleOptions, Settled, Store, StoreOptions, testing,
};

use crate::disk::Disk;

/// Length of a chunk.
pub(crate) const CHUNK: usize = 4096;
/// Memory with which no writer waits. Half of it is for unwritten data.
const PLENTY: usize = 64 * CHUNK;

/// Settles files again that are settled.
const AGAIN: SettleOptions<'_> = SettleOptions {
    workers: 2,
    effort: Effort::Lz4,
    force: true,
    rewrite: true,
    pace: &|_| true,
};

pub(crate) struct Fixture {
    pub(crate) disk: Disk,
    kv: Arc<ReferenceKv>,
    pub(crate) store: Store,
}

/// The remains of a loss of power.
pub(crate) struct Survivor {
    disk: Disk,
    kv: ReferenceKv,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with_memory(PLENTY)
    }

    pub(crate) fn with_memory(memory: usize) -> Self {
        Self::on(Disk::new(), ReferenceKv::new(), memory)
    }

    /// One of several stores over one disk and one index.
    pub(crate) fn joined(disk: &Disk, kv: &ReferenceKv) -> Self {
        Self::on(disk.clone(), kv.another(), PLENTY)
    }

    fn on(disk: Disk, kv: ReferenceKv, memory: usize) -> Self {
        let options = StoreOptions {
            memory: memory as u64,
            workers: 1,
            owner: (0, 0),
            effort: Effort::None,
            purpose: String::new(),
            device: Default::default(),
            kernel_cache: true,
        };
        let kv = Arc::new(kv);
        let backing = Arc::new(disk.clone());
        let store = testing::open(backing, Arc::clone(&kv) as Arc<dyn Kv>, &options);
        Self {
            store: store.expect("the disk works"),
            disk,
            kv,
        }
    }

    /// A new file, to be closed with [`Store::close`].
    pub(crate) fn create(&self, name: &str) -> Arc<File> {
        let node = NewNode {
            mode: S_IFREG | 0o600,
            uid: 0,
            gid: 0,
            rdev: 0,
            target: Vec::new(),
            chunk_shift: CHUNK.ilog2() as u8,
            xattrs: Vec::new(),
        };
        let namespace = self.store.committed();
        let inode = namespace
            .create(ROOT, name.as_bytes(), &node)
            .expect("there is none");
        self.store.file(inode.ino).expect("it is there")
    }

    /// The same with some durable data.
    pub(crate) fn written(&self, name: &str, contents: &[u8]) -> Arc<File> {
        let file = self.create(name);
        self.write(&file, 0, contents);
        self.store.sync(&file).expect("the disk works");
        file
    }

    pub(crate) fn write(&self, file: &Arc<File>, offset: usize, bytes: &[u8]) {
        self.store
            .write(file, offset as u64, bytes)
            .expect("there is room");
    }

    /// All of a file.
    pub(crate) fn read(&self, file: &Arc<File>) -> Vec<u8> {
        let mut out = Vec::new();
        self.store
            .read(file, 0, usize::MAX, &mut out)
            .expect("it can be read");
        out
    }

    /// Settles all of a file, again where it has been settled.
    pub(crate) fn settle(&self, file: &Arc<File>, regions: &[Region]) -> Result<Settled, Error> {
        testing::settle(&self.store, file, regions, &AGAIN)
    }

    /// Adds all of a file to a batch.
    pub(crate) fn add(&self, batch: &mut SettleBatch<'_>, file: &Arc<File>) -> Result<(), Error> {
        batch.add(file, &[], &AGAIN)
    }

    /// Asserts that files that another store has written, too, are sound.
    pub(crate) fn assert_shared(&self, inodes: &[u64]) {
        testing::assert_shared(&self.store, inodes);
    }

    /// The remains of a loss of power now.
    pub(crate) fn survivor(&self) -> Survivor {
        Survivor {
            disk: self.disk.survivors(),
            kv: self.kv.reopen(),
        }
    }

    /// Ends the session and asserts that nothing of it is left in memory, and that packs count the
    /// bytes of these files, which must be all. Returns the contents that the next session finds.
    pub(crate) fn end(self, inodes: &[u64]) -> Vec<Vec<u8>> {
        self.store.shut_down().expect("the disk works");
        testing::assert_at_rest(&self.store);
        let next = Arc::new(self.kv.reopen());
        testing::assert_usage(&self.store, &(next as Arc<dyn Kv>), inodes);
        drop(self.store);
        let survivor = Survivor {
            disk: self.disk.survivors(),
            kv: self.kv.reopen(),
        };
        survivor.contents(inodes)
    }
}

impl Survivor {
    /// Contents of files in the next session.
    pub(crate) fn contents(self, inodes: &[u64]) -> Vec<Vec<u8>> {
        let fixture = Fixture::on(self.disk, self.kv, PLENTY);
        let read = |&ino: &u64| {
            let file = fixture.store.file(ino).expect("it is there");
            let contents = fixture.read(&file);
            fixture.store.close(file);
            contents
        };
        let contents = inodes.iter().map(read).collect();
        fixture.store.shut_down().expect("the disk works");
        testing::assert_at_rest(&fixture.store);
        contents
    }
}
