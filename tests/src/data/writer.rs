//! One writer, its files, and their possible states after a crash.
//!
//! A file counts once both it and its directory have been synced. The possible states of the others
//! after a crash are known as well: older versions of their blocks, and earlier names.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;

use crate::versions::{BLOCK, Content, blocks, owner};
use crate::{Context, Failure, Outcome, Rng, ensure};

const MOST_FILES: usize = 24;
const LARGEST: u64 = 3 << 20;

/// A file that may exist after a crash.
struct Tracked {
    content: Content,
    /// Its name now; none once it has been deleted or replaced.
    name: Option<PathBuf>,
    /// Names it may have after a crash.
    possible: BTreeSet<PathBuf>,
    /// It may also be absent: not yet durable, or already deleted.
    may_be_absent: bool,
    /// fsync of the file has returned at least once.
    synced: bool,
    history: VecDeque<String>,
}

impl Tracked {
    fn log(&mut self, what: String) {
        if self.history.len() == 30 {
            self.history.pop_front();
        }
        self.history.push_back(what);
    }
}

/// Works in its own two directories and knows what may be found there.
pub struct Writer {
    top: PathBuf,
    rng: Rng,
    files: Vec<Tracked>,
    next_file: u64,
    next_version: u64,
    acknowledged: u64,
    /// Files of the last step; if it failed, it may have happened or not.
    doubtful: BTreeSet<u64>,
}

impl Writer {
    /// Several that work side by side below a directory.
    pub fn several(below: &Path, count: u64, rng: &mut Rng) -> Outcome<Vec<Self>> {
        (0..count)
            .map(|number| {
                let top = below.join(format!("writer-{number}"));
                Self::new(top, number, rng.next_u64())
            })
            .collect()
    }

    /// Creates the directories and makes them durable.
    pub fn new(top: PathBuf, number: u64, seed: u64) -> Outcome<Self> {
        for directory in ["a", "b"] {
            fs::create_dir_all(top.join(directory))?;
        }
        for directory in [
            &top,
            &top.join("a"),
            &top.join("b"),
            top.parent().doing("the parent")?,
        ] {
            File::open(directory)?.sync_all()?;
        }
        Ok(Writer {
            top,
            rng: Rng::new(seed),
            files: Vec::new(),
            next_file: (number + 1) << 32,
            next_version: 1,
            acknowledged: 0,
            doubtful: BTreeSet::new(),
        })
    }

    /// The number of fsyncs that have returned since this was asked last.
    pub fn take_acknowledged(&mut self) -> u64 {
        std::mem::take(&mut self.acknowledged)
    }

    /// Works until told to stop. An error before that is a failure, after it the kill.
    pub fn work(&mut self, stop: &AtomicBool) -> Outcome {
        while !stop.load(Ordering::SeqCst) {
            if let Err(error) = self.step() {
                return if stop.load(Ordering::SeqCst) {
                    Ok(())
                } else {
                    Err(Failure::new(format!(
                        "{}: an error before the kill: {error}",
                        self.top.display()
                    )))
                };
            }
        }
        Ok(())
    }

    /// Works until the daemon has died. Any other error is a failure.
    pub fn work_until_death(&mut self) -> Outcome {
        loop {
            let Err(error) = self.step() else { continue };
            return if is_dead(&self.top) {
                Ok(())
            } else {
                Err(Failure::new(format!(
                    "{}: {error}, though the daemon lives",
                    self.top.display()
                )))
            };
        }
    }

    /// Notes that the daemon died: every change of names that had returned has happened.
    pub fn names_are_kept(&mut self) {
        let doubtful = &self.doubtful;
        let sure = |file: &Tracked| !doubtful.contains(&file.content.file());
        self.files.retain(|file| file.name.is_some() || !sure(file));
        for file in self.files.iter_mut().filter(|file| sure(file)) {
            file.possible = file.name.iter().cloned().collect();
            file.may_be_absent = false;
        }
    }

    /// Notes that the daemon shut down cleanly: everything that had returned has happened.
    pub fn everything_is_kept(&mut self) {
        self.names_are_kept();
        for file in &mut self.files {
            if !self.doubtful.contains(&file.content.file()) {
                file.content.acknowledged();
            }
        }
    }

    fn step(&mut self) -> io::Result<()> {
        let done = self.one_step();
        if done.is_ok() {
            self.doubtful.clear();
        }
        done
    }

    fn one_step(&mut self) -> io::Result<()> {
        let living: Vec<usize> = (0..self.files.len())
            .filter(|i| self.files[*i].name.is_some())
            .collect();
        if living.len() < 4 {
            return self.create();
        }
        let chosen = living[self.rng.below(living.len() as u64) as usize];
        match self.rng.below(100) {
            0..12 if living.len() < MOST_FILES => self.create(),
            0..24 => self.append(chosen),
            24..44 => self.overwrite(chosen),
            44..52 => self.truncate(chosen),
            52..70 => self.sync(chosen),
            70..78 => self.sync_directories(),
            78..86 => self.rename(chosen),
            86..93 => self.replace(chosen),
            _ => self.unlink(chosen),
        }
    }

    fn doubt(&mut self, index: usize) {
        self.doubtful.insert(self.files[index].content.file());
    }

    fn version(&mut self) -> u64 {
        self.next_version += 1;
        self.next_version
    }

    fn path(&self, index: usize) -> PathBuf {
        self.top
            .join(self.files[index].name.as_deref().unwrap_or(Path::new("")))
    }

    fn open(&self, index: usize) -> io::Result<File> {
        File::options()
            .read(true)
            .write(true)
            .open(self.path(index))
    }

    fn new_name(&mut self) -> PathBuf {
        let directory = if self.rng.one_in(2) { "a" } else { "b" };
        // Names are reused by other files, on purpose.
        loop {
            let name = PathBuf::from(format!("{directory}/name-{}", self.rng.below(200)));
            if self
                .files
                .iter()
                .all(|file| file.name.as_ref() != Some(&name))
            {
                return name;
            }
        }
    }

    fn create(&mut self) -> io::Result<()> {
        let name = self.new_name();
        let index = self.add(name);
        File::options()
            .write(true)
            .create_new(true)
            .open(self.path(index))?;
        self.append(index)?;
        if self.rng.one_in(3) {
            self.sync(index)
        } else {
            Ok(())
        }
    }

    fn add(&mut self, name: PathBuf) -> usize {
        self.next_file += 1;
        let mut file = Tracked {
            content: Content::new(self.next_file),
            possible: BTreeSet::from([name.clone()]),
            may_be_absent: true,
            synced: false,
            history: VecDeque::new(),
            name: Some(name.clone()),
        };
        file.log(format!("create as {}", name.display()));
        self.files.push(file);
        self.doubt(self.files.len() - 1);
        self.files.len() - 1
    }

    fn length(&mut self) -> usize {
        let blocks = match self.rng.below(10) {
            0..6 => self.rng.between(1, 8),
            6..9 => self.rng.between(8, 64),
            _ => self.rng.between(64, 400),
        };
        blocks as usize * BLOCK
    }

    fn write(&mut self, index: usize, first: u64, length: usize) -> io::Result<()> {
        let version = self.version();
        let file = self.open(index)?;
        self.doubt(index);
        let tracked = &mut self.files[index];
        tracked.log(format!(
            "write version {version}, {length} bytes from block {first}"
        ));
        tracked.content.will_write(version, first, length);
        let bytes = blocks(tracked.content.file(), version, first, length);
        file.write_all_at(&bytes, first * BLOCK as u64)?;
        if self.rng.one_in(6) {
            self.sync_handle(index, &file)
        } else {
            Ok(())
        }
    }

    fn append(&mut self, index: usize) -> io::Result<()> {
        let size = self.files[index].content.size();
        if size > LARGEST {
            return self.truncate(index);
        }
        // From the start of the last block, if that is not full; now and then leave a hole.
        let mut first = size / BLOCK as u64;
        if size.is_multiple_of(BLOCK as u64) && self.rng.one_in(6) {
            first += self.rng.between(1, 300);
        }
        let mut length = self.length();
        if self.rng.one_in(3) {
            length -= self.rng.below(BLOCK as u64 - 1) as usize;
        }
        let length = length.max((size - (first * BLOCK as u64).min(size)) as usize);
        self.write(index, first, length)
    }

    fn overwrite(&mut self, index: usize) -> io::Result<()> {
        let whole = self.files[index].content.size() / BLOCK as u64;
        if whole == 0 {
            return self.append(index);
        }
        let first = self.rng.below(whole);
        let count = (self.length() as u64 / BLOCK as u64).min(whole - first);
        self.write(index, first, count as usize * BLOCK)
    }

    fn truncate(&mut self, index: usize) -> io::Result<()> {
        let size = self.files[index].content.size();
        let new = match self.rng.below(5) {
            0 => 0,
            1 => (size + self.rng.below(1 << 20)).min(LARGEST),
            2 => self.rng.below(size + 1) / BLOCK as u64 * BLOCK as u64,
            _ => self.rng.below(size + 1),
        };
        let file = self.open(index)?;
        self.doubt(index);
        let tracked = &mut self.files[index];
        tracked.log(format!("truncate from {size} to {new}"));
        tracked.content.will_truncate(new);
        file.set_len(new)
    }

    fn sync(&mut self, index: usize) -> io::Result<()> {
        let file = self.open(index)?;
        self.sync_handle(index, &file)
    }

    fn sync_handle(&mut self, index: usize, file: &File) -> io::Result<()> {
        file.sync_all()?;
        let tracked = &mut self.files[index];
        tracked.log("fsync returned".into());
        tracked.content.acknowledged();
        tracked.synced = true;
        self.acknowledged += 1;
        Ok(())
    }

    /// Makes both directories durable: names are the present ones, and nothing else.
    fn sync_directories(&mut self) -> io::Result<()> {
        for directory in ["a", "b"] {
            File::open(self.top.join(directory))?.sync_all()?;
        }
        self.acknowledged += 1;
        self.files.retain(|file| file.name.is_some());
        for file in &mut self.files {
            file.log("fsync of the directories returned".into());
            file.possible = file.name.iter().cloned().collect();
            // A file counts once it has been synced itself.
            file.may_be_absent &= !file.synced;
        }
        Ok(())
    }

    fn rename(&mut self, index: usize) -> io::Result<()> {
        let to = self.new_name();
        let from = self.path(index);
        self.doubt(index);
        let tracked = &mut self.files[index];
        tracked.log(format!("rename to {}", to.display()));
        tracked.possible.insert(to.clone());
        fs::rename(from, self.top.join(&to))?;
        self.files[index].name = Some(to);
        Ok(())
    }

    /// As programs save: write a new file, make it durable, rename it over the old one.
    fn replace(&mut self, index: usize) -> io::Result<()> {
        let name = self.new_name();
        let new = self.add(name);
        File::options()
            .write(true)
            .create_new(true)
            .open(self.path(new))?;
        self.append(new)?;
        if !self.rng.one_in(4) {
            self.sync(new)?;
        }
        let (from, to) = (self.path(new), self.path(index));
        let target = self.files[index].name.clone();
        self.files[new].log(format!("rename over {}", to.display()));
        self.files[new].possible.extend(target.clone());
        self.doubt(index);
        self.files[index].log("being replaced".into());
        self.files[index].may_be_absent = true;
        fs::rename(from, to)?;
        self.files[new].name = target;
        self.files[index].name = None;
        if self.rng.one_in(2) {
            self.sync_directories()
        } else {
            Ok(())
        }
    }

    fn unlink(&mut self, index: usize) -> io::Result<()> {
        let path = self.path(index);
        self.doubt(index);
        self.files[index].log("unlink".into());
        self.files[index].may_be_absent = true;
        fs::remove_file(path)?;
        self.files[index].name = None;
        Ok(())
    }

    /// Checks the state after a crash and takes it as the state of the next round.
    pub fn verify(&mut self) -> Outcome<u64> {
        let found = read_files(&self.top)?;
        let mut taken: BTreeMap<usize, PathBuf> = BTreeMap::new();
        let mut anonymous = Vec::new();
        for (name, bytes) in &found {
            let Some(index) = self.identify(name, bytes)? else {
                anonymous.push((name, bytes));
                continue;
            };
            if let Some(other) = taken.insert(index, name.clone()) {
                return Err(self.explain(
                    index,
                    format!("is at {} and at {}", other.display(), name.display()),
                ));
            }
        }
        if !self.assign(&anonymous, &mut taken) {
            let lost = (0..self.files.len())
                .find(|i| !self.files[*i].may_be_absent && !taken.contains_key(i));
            return Err(match lost {
                Some(index) => self.explain(index, "is gone although it was acknowledged".into()),
                None => Failure::new(format!(
                    "{}: nothing explains the short or blank files {:?}",
                    self.top.display(),
                    anonymous
                        .iter()
                        .map(|(name, bytes)| (name, bytes.len()))
                        .collect::<Vec<_>>()
                )),
            });
        }
        for (index, name) in &taken {
            if let Err(failure) = self.files[*index].content.recovered(&found[name]) {
                return Err(self.explain(*index, format!("at {}: {failure}", name.display())));
            }
        }
        let mut kept = Vec::new();
        for (index, mut file) in std::mem::take(&mut self.files).into_iter().enumerate() {
            if let Some(name) = taken.get(&index) {
                file.log(format!(
                    "recovered as {} with {} bytes",
                    name.display(),
                    file.content.size()
                ));
                file.name = Some(name.clone());
                file.possible = BTreeSet::from([name.clone()]);
                file.may_be_absent = false;
                file.synced = true;
                kept.push(file);
            }
        }
        self.files = kept;
        Ok(found.len() as u64)
    }

    /// The file with these contents; none if it is blank or too short to tell.
    fn identify(&self, name: &Path, bytes: &[u8]) -> Outcome<Option<usize>> {
        let Some(block) = bytes
            .chunks(BLOCK)
            .find(|block| block.iter().any(|byte| *byte != 0))
        else {
            return Ok(None);
        };
        let Some(number) = owner(block) else {
            // The last block of a file may be cut before its file number.
            ensure!(
                block.len() < 16,
                "{}/{} holds garbage: {:02x?}",
                self.top.display(),
                name.display(),
                &block[..16]
            );
            return Ok(None);
        };
        let found = (0..self.files.len()).find(|index| self.files[*index].content.file() == number);
        let index = found.doing(format!(
            "{}/{} holds file {number:#x}, which is not known here or was deleted for good",
            self.top.display(),
            name.display()
        ))?;
        let possible = &self.files[index].possible;
        if !possible.contains(name) {
            return Err(self.explain(
                index,
                format!("is at {}, possible are {possible:?}", name.display()),
            ));
        }
        Ok(Some(index))
    }

    /// Finds a file for every anonymous one, so that none that must exist is left over.
    fn assign(
        &self,
        anonymous: &[(&PathBuf, &Vec<u8>)],
        taken: &mut BTreeMap<usize, PathBuf>,
    ) -> bool {
        let Some(((name, bytes), rest)) = anonymous.split_first() else {
            return (0..self.files.len())
                .all(|i| self.files[i].may_be_absent || taken.contains_key(&i));
        };
        for index in 0..self.files.len() {
            let file = &self.files[index];
            let fits = !taken.contains_key(&index)
                && file.possible.contains(*name)
                && file.content.clone().recovered(bytes).is_ok();
            if fits {
                taken.insert(index, name.to_path_buf());
                if self.assign(rest, taken) {
                    return true;
                }
                taken.remove(&index);
            }
        }
        false
    }

    #[track_caller]
    fn explain(&self, index: usize, what: String) -> Failure {
        let file = &self.files[index];
        let history: Vec<&str> = file.history.iter().map(String::as_str).collect();
        Failure::new(format!(
            "{}: file {:#x} {what}\n  its history:\n    {}",
            self.top.display(),
            file.content.file(),
            history.join("\n    ")
        ))
    }
}

/// Whether the daemon of a mount has died. Never answered from a cache.
pub fn is_dead(path: &Path) -> bool {
    matches!(
        nix::sys::statvfs::statvfs(path),
        Err(Errno::ENOTCONN | Errno::ECONNABORTED)
    )
}

/// All files below the writer's two directories, with their paths and contents.
fn read_files(top: &Path) -> Outcome<BTreeMap<PathBuf, Vec<u8>>> {
    let mut found = BTreeMap::new();
    for directory in ["a", "b"] {
        let path = top.join(directory);
        for entry in fs::read_dir(&path).doing(format!("listing {}", path.display()))? {
            let path = entry?.path();
            let bytes = fs::read(&path).doing(format!("reading {}", path.display()))?;
            found.insert(path.strip_prefix(top)?.to_path_buf(), bytes);
        }
    }
    Ok(found)
}
