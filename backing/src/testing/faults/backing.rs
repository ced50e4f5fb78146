//! The disk as a backing, with every operation a step that may fail.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::disk::FaultDisk;
use super::shadow::{NameChange, NameTarget};
use super::step::{Step, Tear};
use crate::backing::{Access, Backing, BackingEntry, BackingFile, Space};

impl FaultDisk {
    /// The disk as a backing.
    #[must_use]
    pub fn backing(self: &Arc<Self>) -> Arc<dyn Backing> {
        Arc::new(FaultBacking(Arc::clone(self)))
    }
}

#[derive(Debug)]
struct FaultFile {
    disk: Arc<FaultDisk>,
    inner: Arc<dyn BackingFile>,
    id: u64,
}

impl FaultFile {
    fn step(&self, step: Step) -> io::Result<()> {
        let path = self.disk.shadow.lock().path_of(self.id).cloned();
        self.disk.step(step, &path.unwrap_or_default())
    }

    fn write(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_all_at(buf, offset)?;
        let mut shadow = self.disk.shadow.lock();
        shadow.written(self.id, offset, buf.len());
        Ok(())
    }

    fn contents(&self) -> io::Result<Vec<u8>> {
        let len = usize::try_from(self.inner.len()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let mut bytes = vec![0; len];
        let read = self.inner.read_at(&mut bytes, 0)?;
        bytes.truncate(read);
        Ok(bytes)
    }
}

/// The disk as a backing; separate because files need the disk itself.
#[derive(Debug)]
struct FaultBacking(Arc<FaultDisk>);

impl Backing for FaultBacking {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn BackingFile>> {
        let creates = matches!(access, Access::CreateNew | Access::CreatePack);
        self.0
            .step(if creates { Step::Create } else { Step::Open }, path)?;
        let inner = self.0.inner.open(path, access)?;
        let mut shadow = self.0.shadow.lock();
        let id = match shadow.names.get(path) {
            Some(NameTarget::File(id)) if !creates => *id,
            _ => {
                shadow.next += 1;
                let id = shadow.next;
                shadow.change(NameChange::Add(path.to_path_buf(), NameTarget::File(id)));
                id
            }
        };
        Ok(Arc::new(FaultFile {
            disk: Arc::clone(&self.0),
            inner,
            id,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.step(Step::Rename, to)?;
        self.0.inner.rename(from, to)?;
        let change = NameChange::Rename(from.to_path_buf(), to.to_path_buf());
        self.0.shadow.lock().change(change);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.step(Step::Remove, path)?;
        let mut shadow = self.0.shadow.lock();
        self.0.inner.remove_file(path)?;
        shadow.change(NameChange::Remove(path.to_path_buf()));
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.0.step(Step::Remove, path)?;
        let mut shadow = self.0.shadow.lock();
        self.0.inner.remove_dir(path)?;
        shadow.change(NameChange::Remove(path.to_path_buf()));
        Ok(())
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.step(Step::Remove, path)?;
        let mut shadow = self.0.shadow.lock();
        self.0.inner.remove_dir_all(path)?;
        shadow.change(NameChange::Remove(path.to_path_buf()));
        Ok(())
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.step(Step::CreateDir, path)?;
        self.0.inner.create_dir_all(path)?;
        let mut shadow = self.0.shadow.lock();
        let mut dirs: Vec<&Path> = path.ancestors().collect();
        dirs.retain(|dir| *dir != Path::new("") && !shadow.names.contains_key(*dir));
        for dir in dirs.into_iter().rev() {
            shadow.change(NameChange::Add(dir.to_path_buf(), NameTarget::Dir));
        }
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<BackingEntry>> {
        self.0.step(Step::Read, path)?;
        self.0.inner.list(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.0.step(Step::SyncDir, path)?;
        let path = path.strip_prefix(".").unwrap_or(path);
        let mut shadow = self.0.shadow.lock();
        let pending = std::mem::take(&mut shadow.pending);
        for change in pending {
            if change.touches(path) {
                change.apply(&mut shadow.durable_names);
            } else {
                shadow.pending.push(change);
            }
        }
        Ok(())
    }

    fn space(&self) -> io::Result<Space> {
        self.0.step(Step::Space, Path::new(""))?;
        let space = self.0.space.load(Ordering::SeqCst);
        Ok(Space {
            total: space,
            free: space,
            available: space,
            inodes: 1,
            inodes_free: 1,
        })
    }

    fn root(&self) -> &Path {
        &self.0.root
    }
}

impl BackingFile for FaultFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.step(Step::Read)?;
        self.inner.read_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        if let Err(e) = self.step(Step::Write) {
            let mut tear = self.disk.tear.lock();
            match *tear {
                Tear::Nothing => {}
                Tear::Half => self.write(&buf[..buf.len() / 2], offset)?,
                Tear::AllOnce => {
                    *tear = Tear::Nothing;
                    self.write(buf, offset)?;
                }
            }
            return Err(e);
        }
        self.write(buf, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        let synced = self.step(Step::Sync);
        if synced.is_err() && self.disk.changes() > self.disk.dark.load(Ordering::SeqCst) {
            return synced;
        }
        let bytes = self.contents()?;
        let mut shadow = self.disk.shadow.lock();
        if synced.is_err() {
            shadow.drop_new(self.id, &bytes);
        } else {
            let bytes = shadow.reaching(self.id, bytes);
            shadow.durable.insert(self.id, bytes);
        }
        synced
    }

    fn len(&self) -> io::Result<u64> {
        self.step(Step::Len)?;
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.step(Step::SetLen)?;
        self.inner.set_len(len)
    }

    fn reserve(&self, _len: u64) -> io::Result<bool> {
        self.step(Step::Reserve)?;
        Ok(false)
    }
}
