//! One of many processes. It works on its own files and knows what must be in them.
//!
//! It is the same program with another environment. It runs until its standard input ends,
//! and then prints how long everything took.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{FallocateFlags, Flock, FlockArg, fallocate};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use shale_tests::{Context, Outcome, Rng, ensure, ensure_eq};

use crate::latency::Latencies;
use crate::mapping;

const VARIABLE: &str = "SHALE_LOAD_WORKER";
const FILES: usize = 24;
const LARGEST: usize = 384 << 10;
/// Bytes of a record in the file that all append to.
pub(crate) const RECORD: usize = 32;

/// Starts a worker that works below `top`.
pub(crate) fn start(top: &Path, number: u64, seed: u64) -> Outcome<Child> {
    Ok(Command::new(std::env::current_exe()?)
        .env(VARIABLE, format!("{number} {seed}"))
        .arg(top)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?)
}

/// Does the work of a worker, if this process is one.
pub(crate) fn main() -> Option<ExitCode> {
    let task = std::env::var(VARIABLE).ok()?;
    let top = PathBuf::from(std::env::args_os().nth(1)?);
    Some(match work(&top, &task) {
        Ok(lines) => {
            print!("{lines}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("worker {task}: {failure}");
            ExitCode::FAILURE
        }
    })
}

fn work(top: &Path, task: &str) -> Outcome<String> {
    let (number, seed) = task.split_once(' ').doing("the task")?;
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        told.store(true, Ordering::SeqCst);
    });
    let mut worker = Worker::new(top, number.parse()?, seed.parse()?)?;
    while !stop.load(Ordering::SeqCst) {
        worker.step()?;
    }
    worker.finish()?;
    Ok(worker.latencies.lines())
}

#[derive(Default)]
struct Model {
    bytes: Vec<u8>,
    attribute: Option<Vec<u8>>,
}

struct Worker {
    number: u64,
    home: PathBuf,
    common: PathBuf,
    log: File,
    appended: u64,
    rng: Rng,
    next: u64,
    files: BTreeMap<OsString, Model>,
    latencies: Latencies,
}

impl Worker {
    fn new(top: &Path, number: u64, seed: u64) -> Outcome<Self> {
        let home = top.join(format!("worker-{number}"));
        fs::create_dir(&home)?;
        Ok(Worker {
            number,
            home,
            common: top.join("common"),
            log: File::options().append(true).open(top.join("log"))?,
            appended: 0,
            rng: Rng::new(seed),
            next: 0,
            files: BTreeMap::new(),
            latencies: Latencies::default(),
        })
    }

    fn step(&mut self) -> Outcome {
        if self.files.len() < 4 {
            return self.create();
        }
        let chosen = self.rng.below(self.files.len() as u64) as usize;
        let name = self.files.keys().nth(chosen).cloned().doing("choosing")?;
        match self.rng.below(100) {
            0..8 if self.files.len() < FILES => self.create(),
            0..26 => self.overwrite(&name),
            26..44 => self.verify(&name),
            44..51 => self.truncate(&name),
            51..57 => self.punch(&name),
            57..64 => self.rename(&name),
            64..69 => self.unlink(&name),
            69..75 => self.sync(&name),
            75..81 => self.map(&name),
            81..87 => self.attribute(&name),
            87..92 => self.list(),
            92..96 => self.append(),
            _ => self.meet(),
        }
    }

    fn path(&self, name: &OsString) -> PathBuf {
        self.home.join(name)
    }

    fn open(&self, name: &OsString) -> std::io::Result<File> {
        File::options().read(true).write(true).open(self.path(name))
    }

    fn fresh(&mut self) -> OsString {
        self.next += 1;
        format!("file-{}", self.next).into()
    }

    /// Half of the written data compresses.
    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let length = self.rng.between(1, most as u64) as usize;
        if self.rng.one_in(2) {
            return self.rng.bytes(length);
        }
        let start = self.rng.below(1 << 20) as u32;
        let numbers = (start..).flat_map(|number| (number / 7).to_le_bytes());
        numbers.take(length).collect()
    }

    fn create(&mut self) -> Outcome {
        let (name, bytes) = (self.fresh(), self.bytes(LARGEST));
        let path = self.path(&name);
        self.latencies
            .time("create", || File::create_new(&path))
            .and_then(|mut file| self.latencies.time("write", || file.write_all(&bytes)))?;
        let model = Model {
            bytes,
            attribute: None,
        };
        self.files.insert(name, model);
        Ok(())
    }

    fn overwrite(&mut self, name: &OsString) -> Outcome {
        let bytes = self.bytes(64 << 10);
        let size = self.files[name].bytes.len();
        let at = self.rng.below(size as u64 + 1) as usize;
        let at = at.min(LARGEST - bytes.len());
        let file = self.open(name)?;
        self.latencies
            .time("write", || file.write_all_at(&bytes, at as u64))?;
        let model = &mut self.files.get_mut(name).doing("the model")?.bytes;
        model.resize(size.max(at + bytes.len()), 0);
        model[at..at + bytes.len()].copy_from_slice(&bytes);
        Ok(())
    }

    fn verify(&mut self, name: &OsString) -> Outcome {
        let path = self.path(name);
        let found = self.latencies.time("read", || fs::read(&path))?;
        ensure!(
            found == self.files[name].bytes,
            "{} differs at byte {:?} of {}, expected were {}",
            path.display(),
            found
                .iter()
                .zip(&self.files[name].bytes)
                .position(|(a, b)| a != b),
            found.len(),
            self.files[name].bytes.len()
        );
        Ok(())
    }

    fn truncate(&mut self, name: &OsString) -> Outcome {
        let size = self.rng.below(LARGEST as u64);
        let file = self.open(name)?;
        self.latencies.time("truncate", || file.set_len(size))?;
        let model = self.files.get_mut(name).doing("the model")?;
        model.bytes.resize(size as usize, 0);
        Ok(())
    }

    fn punch(&mut self, name: &OsString) -> Outcome {
        let size = self.files[name].bytes.len();
        let at = self.rng.below(size as u64 + 1);
        let length = self.rng.between(1, 64 << 10);
        let file = self.open(name)?;
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        self.latencies.time("punch", || {
            fallocate(&file, flags, at as i64, length as i64)
        })?;
        let model = self.files.get_mut(name).doing("the model")?;
        let end = size.min((at + length) as usize);
        model.bytes[at as usize..end].fill(0);
        Ok(())
    }

    /// To a new name, or over another file.
    fn rename(&mut self, name: &OsString) -> Outcome {
        let to = if self.rng.one_in(2) {
            self.fresh()
        } else {
            let chosen = self.rng.below(self.files.len() as u64) as usize;
            self.files.keys().nth(chosen).cloned().doing("choosing")?
        };
        let (from, over) = (self.path(name), self.path(&to));
        self.latencies.time("rename", || fs::rename(from, over))?;
        let model = self.files.remove(name).doing("the model")?;
        self.files.insert(to, model);
        Ok(())
    }

    fn unlink(&mut self, name: &OsString) -> Outcome {
        // Now and then it is open, and stays readable.
        let open = self.rng.one_in(3).then(|| self.open(name)).transpose()?;
        let path = self.path(name);
        self.latencies.time("unlink", || fs::remove_file(path))?;
        let model = self.files.remove(name).doing("the model")?;
        if let Some(mut file) = open {
            let mut found = Vec::new();
            file.read_to_end(&mut found)?;
            ensure!(found == model.bytes, "an unlinked file has changed");
        }
        Ok(())
    }

    fn sync(&mut self, name: &OsString) -> Outcome {
        let file = self.open(name)?;
        self.latencies.time("fsync", || file.sync_all())?;
        Ok(())
    }

    fn map(&mut self, name: &OsString) -> Outcome {
        let size = self.files[name].bytes.len();
        if size == 0 {
            return Ok(());
        }
        let mut bytes = self.bytes(8 << 10);
        bytes.truncate(size);
        let at = self.rng.below((size - bytes.len()) as u64 + 1) as usize;
        let file = self.open(name)?;
        let shown = self
            .latencies
            .time("mmap", || mapping::write(&file, size, at, &bytes))?;
        let model = &mut self.files.get_mut(name).doing("the model")?.bytes;
        model[at..at + bytes.len()].copy_from_slice(&bytes);
        ensure!(shown == *model, "a mapping shows something else");
        Ok(())
    }

    fn attribute(&mut self, name: &OsString) -> Outcome {
        let path = self.path(name);
        let mut value = vec![0; 8 << 10];
        let found = match getxattr(&path, "user.load", &mut value[..]) {
            Ok(length) => Some(value[..length].to_vec()),
            Err(rustix::io::Errno::NODATA) => None,
            Err(error) => return Err(error.into()),
        };
        ensure!(
            found == self.files[name].attribute,
            "an attribute has changed"
        );
        let value = self.bytes(4 << 10);
        self.latencies.time("setxattr", || {
            setxattr(&path, "user.load", &value, XattrFlags::empty())
        })?;
        self.files.get_mut(name).doing("the model")?.attribute = Some(value);
        Ok(())
    }

    fn list(&mut self) -> Outcome {
        let home = &self.home;
        let found: BTreeSet<OsString> = self.latencies.time("readdir", || {
            fs::read_dir(home)?
                .map(|entry| Ok(entry?.file_name()))
                .collect::<std::io::Result<_>>()
        })?;
        ensure_eq!(
            found,
            self.files.keys().cloned().collect(),
            "names in {}",
            home.display()
        );
        Ok(())
    }

    /// A record at the end of a file that all write to.
    fn append(&mut self) -> Outcome {
        let text = format!("{:>15} {:>15}\n", self.number, self.appended);
        ensure_eq!(text.len(), RECORD);
        self.latencies
            .time("append", || self.log.write_all(text.as_bytes()))?;
        self.appended += 1;
        Ok(())
    }

    /// Where all make and remove the same names, under a lock each.
    fn meet(&mut self) -> Outcome {
        let number = self.rng.below(8);
        let guard = self.common.join(format!("lock-{number}"));
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(guard)?;
        let lock = self
            .latencies
            .time("flock", || Flock::lock(file, FlockArg::LockExclusive))
            .map_err(|(_, errno)| errno)?;
        let path = self.common.join(format!("met-{number}"));
        // The holder of the lock finds what the last one left, and is alone.
        let before = match fs::read_to_string(&path) {
            Ok(text) => text.parse::<u64>()?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error.into()),
        };
        let new = self.common.join(format!("new-{number}"));
        let mut file = File::create_new(&new)?;
        write!(file, "{}", before + 1)?;
        drop(file);
        fs::rename(&new, &path)?;
        ensure_eq!(fs::read_to_string(&path)?, (before + 1).to_string());
        drop(lock);
        Ok(())
    }

    fn finish(&mut self) -> Outcome {
        self.list()?;
        for name in self.files.keys().cloned().collect::<Vec<_>>() {
            self.verify(&name)?;
            self.attribute(&name)?;
        }
        fs::write(self.home.join("appended"), self.appended.to_string())?;
        Ok(())
    }
}
