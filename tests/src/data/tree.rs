//! Trees of files: one with everything in it, and a way to compare two.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{
    FileExt, FileTypeExt, MetadataExt, PermissionsExt, chown, lchown, symlink,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, FileType, Mode, XattrFlags, mknodat};
use twox_hash::XxHash3_128;

use crate::{Context, Failure, Outcome, Rng, ensure};

/// All visible properties of one file, without those that differ between file systems anyway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Type and permissions.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Size in bytes; 0 for directories.
    pub size: u64,
    /// Modification time in nanoseconds since 1970.
    pub mtime: i128,
    /// Device number of a device file.
    pub device: u64,
    /// The first name of the same file, when it has several in the tree.
    pub first_link: PathBuf,
    /// Number of links; 0 for directories.
    pub links: u64,
    /// Hash of the contents, or the target of a symbolic link.
    pub contents: Vec<u8>,
    /// Extended attributes, without ShaleFS's own.
    pub xattrs: BTreeMap<OsString, Vec<u8>>,
}

impl Entry {
    /// The same without its time, for programs that do not preserve it.
    pub fn timeless(mut self) -> Self {
        self.mtime = 0;
        self
    }
}

/// Reads a whole tree; the keys are paths relative to `top`, which is included as "".
pub fn read_tree(top: &Path) -> Outcome<BTreeMap<PathBuf, Entry>> {
    let mut found = BTreeMap::new();
    let mut inodes = HashMap::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(relative) = waiting.pop() {
        let path = top.join(&relative);
        let meta = fs::symlink_metadata(&path).doing(format!("lstat {}", path.display()))?;
        let kind = meta.file_type();
        if kind.is_dir() {
            let mut names = Vec::new();
            for entry in fs::read_dir(&path).doing(format!("listing {}", path.display()))? {
                names.push(entry?.file_name());
            }
            names.sort();
            waiting.extend(names.iter().rev().map(|name| relative.join(name)));
        }
        let contents = if kind.is_file() {
            let bytes = fs::read(&path).doing(format!("reading {}", path.display()))?;
            ensure!(
                bytes.len() as u64 == meta.len(),
                "{} has {} bytes, its st_size says {}",
                path.display(),
                bytes.len(),
                meta.len()
            );
            XxHash3_128::oneshot(&bytes).to_le_bytes().to_vec()
        } else if kind.is_symlink() {
            fs::read_link(&path)?.into_os_string().into_vec()
        } else {
            Vec::new()
        };
        let is_device = kind.is_char_device() || kind.is_block_device();
        let first = inodes
            .entry((meta.dev(), meta.ino()))
            .or_insert_with(|| relative.clone());
        let entry = Entry {
            mode: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            size: if kind.is_dir() { 0 } else { meta.len() },
            mtime: i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()),
            device: if is_device { meta.rdev() } else { 0 },
            first_link: first.clone(),
            links: if kind.is_dir() { 0 } else { meta.nlink() },
            contents,
            xattrs: read_xattrs(&path)?,
        };
        found.insert(relative, entry);
    }
    Ok(found)
}

fn read_xattrs(path: &Path) -> Outcome<BTreeMap<OsString, Vec<u8>>> {
    let mut list = vec![0u8; 65536];
    let length = rustix::fs::llistxattr(path, &mut list[..])?;
    let mut found = BTreeMap::new();
    for name in list[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let ours = [&b"user.shale."[..], b"trusted.shale.", b"security.selinux"];
        if ours.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        let mut value = vec![0u8; 65536];
        let length = rustix::fs::lgetxattr(path, name, &mut value[..]).doing(format!(
            "getxattr {} of {}",
            name.escape_ascii(),
            path.display()
        ))?;
        value.truncate(length);
        found.insert(OsString::from_vec(name.to_vec()), value);
    }
    Ok(found)
}

/// A tree with every kind of file in it and contents that follow from a seed.
#[derive(Debug)]
pub struct Sample {
    seed: u64,
}

impl Sample {
    /// The tree for this seed.
    pub fn new(seed: u64) -> Self {
        Sample { seed }
    }

    /// Creates the tree below `top`, an existing directory.
    pub fn create(&self, top: &Path) -> Outcome {
        let mut rng = Rng::new(self.seed);
        for directory in [
            "plain",
            "plain/deep/er",
            "links",
            "special",
            "names",
            "attributes",
        ] {
            fs::create_dir_all(top.join(directory))?;
        }
        let sizes = [
            0,
            1,
            4095,
            4096,
            4097,
            65_536,
            100_000,
            1 << 20,
            (1 << 20) + 1,
            3_000_017,
        ];
        for (index, size) in sizes.into_iter().enumerate() {
            fs::write(top.join(format!("plain/noise-{index}")), rng.bytes(size))?;
            fs::write(
                top.join(format!("plain/deep/er/smooth-{index}")),
                smooth(size, index),
            )?;
        }
        let sparse = File::create(top.join("plain/sparse"))?;
        sparse.write_all_at(&rng.bytes(10_000), 5 << 20)?;
        sparse.write_all_at(&rng.bytes(5_000), 1 << 20)?;
        sparse.set_len(9 << 20)?;
        drop(sparse);

        fs::write(top.join("links/one"), rng.bytes(20_000))?;
        fs::hard_link(top.join("links/one"), top.join("links/two"))?;
        fs::hard_link(top.join("links/one"), top.join("plain/deep/three"))?;
        symlink("one", top.join("links/relative"))?;
        symlink("/nowhere/at/all", top.join("links/dangling"))?;
        symlink("x".repeat(1000), top.join("links/long"))?;

        let mode = Mode::from_raw_mode(0o640);
        mknodat(CWD, top.join("special/fifo"), FileType::Fifo, mode, 0)?;
        mknodat(CWD, top.join("special/socket"), FileType::Socket, mode, 0)?;
        mknodat(
            CWD,
            top.join("special/null"),
            FileType::CharacterDevice,
            mode,
            0x103,
        )?;

        let mut long = vec![b'n'; 255];
        long[254] = 0xff;
        for name in [
            &long[..],
            b" \t\n\r\x01\x7f",
            b"\\040",
            b"-rf",
            "\u{540d}\u{524d}".as_bytes(),
            b"...",
        ] {
            fs::write(top.join("names").join(OsStr::from_bytes(name)), name)?;
        }

        let file = top.join("attributes/file");
        fs::write(&file, b"attributes")?;
        fs::set_permissions(&file, Permissions::from_mode(0o604))?;
        chown(&file, Some(12), Some(34))?;
        fs::set_permissions(&file, Permissions::from_mode(0o6755))?;
        lchown(top.join("links/dangling"), Some(56), Some(78))?;
        for target in [&file, &top.join("attributes")] {
            for (name, length) in [
                ("user.empty", 0),
                ("user.some", 17),
                ("user.more", 2000),
                ("trusted.t", 9),
            ] {
                let value = rng.bytes(length);
                rustix::fs::setxattr(target, name, &value, XattrFlags::empty())?;
            }
        }
        fs::set_permissions(top.join("attributes"), Permissions::from_mode(0o1751))?;

        // Last, from the leaves up: creating entries changes a directory's time.
        let mut paths: Vec<PathBuf> = read_tree(top)?.into_keys().collect();
        paths.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
        for path in paths {
            let path = top.join(path);
            let meta = fs::symlink_metadata(&path)?;
            if meta.is_file() || meta.is_dir() {
                let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(rng.below(1 << 60));
                File::open(&path)?.set_modified(time)?;
            }
        }
        Ok(())
    }
}

/// Values that change slowly, as simulations write them.
fn smooth(size: usize, phase: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..size / 4 + 1)
        .flat_map(|i| (((i + phase * 1000) as f32 * 1e-3).sin() * 300.0).to_le_bytes())
        .collect();
    bytes.truncate(size);
    bytes
}

/// Fails with a list of the differences, if there are any.
#[track_caller]
pub fn same_trees(
    found: &BTreeMap<PathBuf, Entry>,
    expected: &BTreeMap<PathBuf, Entry>,
) -> Outcome {
    let mut differences = Vec::new();
    for (path, entry) in expected {
        match found.get(path) {
            None => differences.push(format!("{} is missing", path.display())),
            Some(other) if other != entry => {
                differences.push(format!(
                    "{}\n    found    {other:?}\n    expected {entry:?}",
                    path.display()
                ));
            }
            Some(_) => {}
        }
    }
    for path in found.keys().filter(|path| !expected.contains_key(*path)) {
        differences.push(format!("{} should not exist", path.display()));
    }
    if differences.is_empty() {
        return Ok(());
    }
    let count = differences.len();
    differences.truncate(10);
    Err(Failure::new(format!(
        "{count} differences between trees:\n{}",
        differences.join("\n")
    )))
}
