//! The life of a store before the power fails, and the state required afterwards.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use shale_backing::faults::FaultDisk;
use shale_index::{ROOT, RenameMode};
use shale_store::{Effort, Error, File, GcState, SettleOptions, Store};
use shale_tests::versions::{BLOCK, Content, blocks};
use shale_tests::{Failure, Outcome, Rng, ensure, small_chunks, store_options};

#[derive(Clone, Copy, Debug)]
enum Op {
    Create,
    Write {
        file: usize,
        first: u64,
        length: usize,
    },
    Truncate {
        file: usize,
        size: u64,
    },
    Sync(usize),
    SyncNames,
    Rename(usize),
    Unlink(usize),
    Settle(usize),
    Collect,
    Remount,
}

/// A sequence of operations.
pub(crate) struct Life(Vec<Op>);

impl Life {
    /// Short enough to be repeated for every step, with each operation in it once.
    pub(crate) fn short() -> Self {
        use Op::{
            Collect, Create, Remount, Rename, Settle, Sync, SyncNames, Truncate, Unlink, Write,
        };
        let write = |file, first, length| Write {
            file,
            first,
            length,
        };
        Self(vec![
            Create,
            write(0, 0, 5 * BLOCK),
            Sync(0),
            Create,
            write(1, 0, 2 * BLOCK + 100),
            write(0, 2, BLOCK),
            Sync(1),
            Rename(0),
            Sync(0),
            Truncate {
                file: 0,
                size: 3 * BLOCK as u64 + 7,
            },
            Sync(0),
            Settle(0),
            write(0, 1, 3 * BLOCK),
            Collect,
            Sync(0),
            Remount,
            Create,
            write(2, 1, 4 * BLOCK),
            Unlink(1),
            SyncNames,
            Sync(2),
            write(2, 0, 2 * BLOCK),
            Settle(2),
            Rename(2),
            Collect,
            SyncNames,
            write(0, 0, BLOCK),
        ])
    }

    /// Enough commits to one file that its map is folded, then what works on a folded map.
    pub(crate) fn folding() -> Self {
        let mut ops = vec![Op::Create];
        for commit in 0..66 {
            let first = commit * 7 % 40;
            ops.push(Op::Write {
                file: 0,
                first,
                length: BLOCK,
            });
            ops.push(Op::Sync(0));
        }
        ops.extend([Op::Settle(0), Op::Collect, Op::Remount, Op::Unlink(0)]);
        ops.extend([Op::SyncNames, Op::Collect]);
        Self(ops)
    }

    /// A long one that follows from a number.
    pub(crate) fn random(seed: u64, operations: usize) -> Self {
        let mut rng = Rng::new(seed);
        let mut files = 0;
        let mut ops = Vec::new();
        for _ in 0..operations {
            let file = rng.below(files.max(1)) as usize;
            let op = match rng.below(20) {
                _ if files == 0 => Op::Create,
                0 if files < 5 => Op::Create,
                1..=9 => Op::Write {
                    file,
                    first: rng.below(24),
                    length: rng.between(1, 8 * BLOCK as u64) as usize,
                },
                10 => Op::Truncate {
                    file,
                    size: rng.below(24 * BLOCK as u64),
                },
                11..=14 => Op::Sync(file),
                15 => Op::SyncNames,
                16 => Op::Rename(file),
                17 if rng.one_in(3) => Op::Unlink(file),
                18 => Op::Settle(file),
                19 if rng.one_in(3) => Op::Remount,
                _ => Op::Collect,
            };
            if matches!(op, Op::Create) {
                files += 1;
            }
            ops.push(op);
        }
        Self(ops)
    }

    /// Runs on a disk until the disk fails.
    pub(crate) fn live(&self, disk: &Arc<FaultDisk>) -> Witness {
        let mut witness = Witness::default();
        let Ok(mut store) = Store::open_on(disk.backing(), &store_options(1 << 20)) else {
            return witness;
        };
        witness.opened = true;
        for (version, op) in self.0.iter().enumerate() {
            if matches!(op, Op::Remount) {
                if store.shut_down().is_ok() {
                    witness.acknowledge_everything();
                }
                drop(store);
                store = match Store::open_on(disk.backing(), &store_options(1 << 20)) {
                    Ok(store) => store,
                    Err(_) => return witness,
                };
            } else {
                witness.run(&store, *op, version as u64 + 1);
            }
        }
        witness.drain(&store);
        witness.end = (disk.changes(), disk.reads());
        witness.ended = witness.finish(&store);
        witness
    }
}

#[derive(Clone, Debug)]
struct Known {
    ino: u64,
    content: Content,
    /// What it is called; `None` when it has been unlinked.
    name: Option<String>,
    /// What it may be called after a crash.
    possible: BTreeSet<Option<String>>,
}

/// The operations done, and those that have been acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct Witness {
    opened: bool,
    files: Vec<Known>,
    renames: u64,
    /// The first failure.
    failure: Option<String>,
    /// Changes of the disk before the life came to its end, and steps that change nothing.
    pub(crate) end: (u64, u64),
    /// The result of the end: everything is synced once more, and the store is closed.
    pub(crate) ended: Result<(), String>,
}

impl Default for Witness {
    fn default() -> Self {
        Self {
            opened: false,
            files: Vec::new(),
            renames: 0,
            failure: None,
            end: (0, 0),
            ended: Ok(()),
        }
    }
}

impl Witness {
    /// Waits until the workers have nothing in flight. A step that fails meanwhile is reported by
    /// one of these syncs, and must not be by a later one.
    fn drain(&mut self, store: &Store) {
        for file in 0..self.files.len() {
            let _ = self.at(file, |known| known.work(store, Op::Sync(file), 0));
        }
    }

    /// Makes everything durable and closes the store.
    fn finish(&mut self, store: &Store) -> Result<(), String> {
        for file in 0..self.files.len() {
            self.at(file, |known| known.work(store, Op::Sync(file), 0))
                .map_err(|e| format!("sync of file {file}: {e}"))?;
        }
        store
            .sync_metadata()
            .map_err(|e| format!("sync of names: {e}"))?;
        self.acknowledge_names();
        store
            .shut_down()
            .map_err(|e| format!("shutting down: {e}"))?;
        self.acknowledge_everything();
        Ok(())
    }

    /// The first failure.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    pub(crate) fn was_opened(&self) -> bool {
        self.opened
    }

    fn acknowledge_names(&mut self) {
        for file in &mut self.files {
            file.possible = BTreeSet::from([file.name.clone()]);
        }
    }

    fn acknowledge_everything(&mut self) {
        self.acknowledge_names();
        for file in &mut self.files {
            file.content.acknowledged();
        }
    }

    fn run(&mut self, store: &Store, op: Op, version: u64) {
        let done = match op {
            Op::Create => self.create(store),
            Op::SyncNames => store.sync_metadata().map(|()| self.acknowledge_names()),
            Op::Collect => {
                store.request_gc(90);
                while store.gc_state() == GcState::Running {
                    std::thread::yield_now();
                }
                Ok(())
            }
            Op::Rename(file) => {
                self.renames += 1;
                let name = format!("renamed{}", self.renames);
                self.at(file, |known| known.rename(store, Some(name)))
            }
            Op::Unlink(file) => self.at(file, |known| known.rename(store, None)),
            Op::Write { file, .. }
            | Op::Truncate { file, .. }
            | Op::Sync(file)
            | Op::Settle(file) => self.at(file, |known| known.work(store, op, version)),
            // The life does that.
            Op::Remount => Ok(()),
        };
        if let Err(e) = done {
            self.failure.get_or_insert_with(|| format!("{op:?}: {e}"));
        }
    }

    /// Works on the file with this number, if there is one.
    fn at(
        &mut self,
        file: usize,
        work: impl FnOnce(&mut Known) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match self.files.get_mut(file) {
            Some(known) if known.name.is_some() => work(known),
            _ => Ok(()),
        }
    }

    fn create(&mut self, store: &Store) -> Result<(), Error> {
        let number = self.files.len() as u64;
        let name = format!("file{number}");
        let created = store
            .committed()
            .create(ROOT, name.as_bytes(), &small_chunks());
        self.files.push(Known {
            ino: created.as_ref().map_or(0, |inode| inode.ino),
            content: Content::new(number),
            possible: BTreeSet::from([None, Some(name.clone())]),
            name: created.is_ok().then_some(name),
        });
        Ok(created.map(|_| ())?)
    }

    /// Mounts what was found and looks for everything that was acknowledged.
    pub(crate) fn check(&self, path: &Path) -> Outcome {
        let store = Store::open(path, &store_options(1 << 20))
            .map_err(|e| Failure::new(format!("open: {e}")))?;
        for known in &self.files {
            known.check(&store)?;
        }
        store
            .shut_down()
            .map_err(|e| Failure::new(format!("shut down: {e}")))
    }
}

impl Known {
    /// Renames it, or unlinks it.
    fn rename(&mut self, store: &Store, new: Option<String>) -> Result<(), Error> {
        let names = store.committed();
        let old = self.name.clone().unwrap_or_default();
        self.possible.insert(new.clone());
        match &new {
            Some(new) => {
                let (old, new) = (old.as_bytes(), new.as_bytes());
                names.rename(ROOT, old, ROOT, new, RenameMode::Replace)?;
            }
            None => {
                names.unlink(ROOT, old.as_bytes())?;
                store.release_orphan(self.ino);
            }
        }
        self.name = new;
        Ok(())
    }

    fn work(&mut self, store: &Store, op: Op, version: u64) -> Result<(), Error> {
        let handle = store.file(self.ino)?;
        let before = self.content.clone();
        let done = self.work_on(store, &handle, op, version);
        if done.is_err() {
            // What is refused has not happened, and does not happen later.
            self.content = before;
        }
        store.close(handle);
        done
    }

    fn work_on(
        &mut self,
        store: &Store,
        handle: &Arc<File>,
        op: Op,
        version: u64,
    ) -> Result<(), Error> {
        match op {
            Op::Write { first, length, .. } => {
                // A write ends at a block or at the end of the file.
                let inside = first * BLOCK as u64 + (length as u64) < self.content.size();
                let length = if inside {
                    length.next_multiple_of(BLOCK)
                } else {
                    length
                };
                self.content.will_write(version, first, length);
                let data = blocks(self.content.file(), version, first, length);
                store.write(handle, first * BLOCK as u64, &data)
            }
            Op::Truncate { size, .. } => {
                self.content.will_truncate(size);
                store.truncate(handle, size)
            }
            Op::Sync(_) => {
                store.sync(handle)?;
                self.content.acknowledged();
                self.possible = BTreeSet::from([self.name.clone()]);
                Ok(())
            }
            Op::Settle(_) => {
                let options = SettleOptions {
                    workers: 1,
                    effort: Effort::Dense,
                    force: true,
                    rewrite: false,
                    pace: &|_| true,
                };
                store.settle(handle, &[], &options).map(|_| ())
            }
            _ => Ok(()),
        }
    }

    fn check(&self, store: &Store) -> Outcome {
        let file = self.content.file();
        let found: Vec<(String, u64)> = self
            .possible
            .iter()
            .flatten()
            .filter_map(|name| {
                let inode = store.committed().lookup(ROOT, name.as_bytes()).ok()?;
                Some((name.clone(), inode.ino))
            })
            .collect();
        let [(name, ino)] = &found[..] else {
            ensure!(
                found.is_empty() && self.possible.contains(&None),
                "file {file} is called {found:?}; possible is {:?}",
                self.possible
            );
            return Ok(());
        };
        let handle = store
            .file(*ino)
            .map_err(|e| Failure::new(format!("{name}: {e}")))?;
        let mut bytes = Vec::new();
        let size = handle.size() as usize;
        store
            .read(&handle, 0, size, &mut bytes)
            .map_err(|e| Failure::new(format!("read {name}: {e}")))?;
        ensure!(
            bytes.len() == size,
            "{name}: {} of {size} bytes",
            bytes.len()
        );
        self.content.clone().recovered(&bytes)?;
        // It is alive: a write is taken and becomes durable.
        store
            .write(&handle, 0, b"alive")
            .and_then(|()| store.sync(&handle))
            .map_err(|e| Failure::new(format!("write {name}: {e}")))?;
        store.close(handle);
        Ok(())
    }
}
