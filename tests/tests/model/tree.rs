//! The model: a file system as a few maps.

use std::collections::BTreeMap;

use crate::{Step, contents, names};

/// The result of a step: an errno, or the result of a look-up.
pub(crate) type Answer = Result<Option<Entry>, i32>;

/// The visible properties of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Permissions, links.
    Dir {
        mode: u32,
        nlink: u64,
        xattr: Option<Vec<u8>>,
    },
    /// Permissions, links, size and a hash of the contents.
    File {
        mode: u32,
        nlink: u64,
        size: u64,
        hash: u64,
        xattr: Option<Vec<u8>>,
    },
    /// Target.
    Symlink(String),
}

/// A hash that is enough to tell contents apart.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    twox_hash::XxHash3_64::oneshot(bytes)
}

#[derive(Clone, Debug)]
enum Kind {
    Dir(BTreeMap<&'static str, usize>),
    File(Vec<u8>),
    Symlink(String),
}

#[derive(Clone, Debug)]
struct Node {
    kind: Kind,
    mode: u32,
    nlink: u64,
    xattr: Option<Vec<u8>>,
}

/// The model of a file system.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
}

const ROOT: usize = 0;

impl Tree {
    pub(crate) fn new() -> Self {
        let root = Node {
            kind: Kind::Dir(BTreeMap::new()),
            mode: 0o755,
            nlink: 2,
            xattr: None,
        };
        Self { nodes: vec![root] }
    }

    fn children(&self, node: usize) -> Result<&BTreeMap<&'static str, usize>, i32> {
        match &self.nodes[node].kind {
            Kind::Dir(children) => Ok(children),
            _ => Err(errno::ENOTDIR),
        }
    }

    fn children_mut(&mut self, node: usize) -> &mut BTreeMap<&'static str, usize> {
        match &mut self.nodes[node].kind {
            Kind::Dir(children) => children,
            _ => unreachable!("checked before"),
        }
    }

    fn resolve(&self, path: &[&'static str]) -> Result<usize, i32> {
        let mut node = ROOT;
        for (depth, name) in path.iter().enumerate() {
            node = *self.children(node)?.get(name).ok_or(errno::ENOENT)?;
            // A link that leads nowhere ends every path through it.
            if depth + 1 < path.len() && matches!(self.nodes[node].kind, Kind::Symlink(_)) {
                return Err(errno::ENOENT);
            }
        }
        Ok(node)
    }

    fn parent(&self, path: &[&'static str]) -> Result<(usize, &'static str), i32> {
        let (name, dirs) = path.split_last().expect("paths have a name");
        let dir = self.resolve(dirs)?;
        if matches!(self.nodes[dir].kind, Kind::Symlink(_)) {
            return Err(errno::ENOENT);
        }
        self.children(dir)?;
        Ok((dir, name))
    }

    fn make(&mut self, path: &[usize], kind: Kind, mode: u32) -> Answer {
        let (dir, name) = self.parent(&names(path))?;
        if self.children(dir)?.contains_key(name) {
            return Err(errno::EEXIST);
        }
        let is_dir = matches!(kind, Kind::Dir(_));
        let nlink = if is_dir { 2 } else { 1 };
        self.nodes.push(Node {
            kind,
            mode,
            nlink,
            xattr: None,
        });
        let node = self.nodes.len() - 1;
        self.children_mut(dir).insert(name, node);
        if is_dir {
            self.nodes[dir].nlink += 1;
        }
        Ok(None)
    }

    fn file(&mut self, path: &[usize]) -> Result<usize, i32> {
        let node = self.resolve(&names(path))?;
        match self.nodes[node].kind {
            Kind::File(_) => Ok(node),
            Kind::Dir(_) => Err(errno::EISDIR),
            Kind::Symlink(_) => Err(errno::ENOENT),
        }
    }

    fn followed(&self, path: &[usize]) -> Result<usize, i32> {
        let node = self.resolve(&names(path))?;
        if matches!(self.nodes[node].kind, Kind::Symlink(_)) {
            return Err(errno::ENOENT);
        }
        Ok(node)
    }

    pub(crate) fn apply(&mut self, step: &Step) -> Answer {
        match step {
            Step::Create(path) => self.make(path, Kind::File(Vec::new()), 0o644),
            Step::Mkdir(path) => self.make(path, Kind::Dir(BTreeMap::new()), 0o755),
            Step::Symlink(path) => self.make(path, Kind::Symlink("nowhere".to_owned()), 0o777),
            Step::Link(from, to) => self.link(from, to),
            Step::Unlink(path) => {
                let (dir, name) = self.parent(&names(path))?;
                let node = *self.children(dir)?.get(name).ok_or(errno::ENOENT)?;
                if matches!(self.nodes[node].kind, Kind::Dir(_)) {
                    return Err(errno::EISDIR);
                }
                self.children_mut(dir).remove(name);
                self.nodes[node].nlink -= 1;
                Ok(None)
            }
            Step::Rmdir(path) => {
                let (dir, name) = self.parent(&names(path))?;
                let node = *self.children(dir)?.get(name).ok_or(errno::ENOENT)?;
                if !self.children(node)?.is_empty() {
                    return Err(errno::ENOTEMPTY);
                }
                self.children_mut(dir).remove(name);
                self.nodes[dir].nlink -= 1;
                Ok(None)
            }
            Step::Rename(from, to) => self.rename(from, to),
            Step::Write {
                path,
                offset,
                len,
                seed,
                ..
            } => {
                let node = self.file(path)?;
                let Kind::File(bytes) = &mut self.nodes[node].kind else {
                    unreachable!()
                };
                let (start, end) = (*offset as usize, *offset as usize + len);
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[start..end].copy_from_slice(&contents(*len, *seed));
                Ok(None)
            }
            Step::Truncate(path, size) => {
                let node = self.file(path)?;
                let Kind::File(bytes) = &mut self.nodes[node].kind else {
                    unreachable!()
                };
                bytes.resize(*size as usize, 0);
                Ok(None)
            }
            Step::Chmod(path, mode) => {
                let node = self.followed(path)?;
                self.nodes[node].mode = *mode;
                Ok(None)
            }
            Step::SetXattr(path, value) => {
                let node = self.followed(path)?;
                self.nodes[node].xattr = Some(vec![*value; 1 + *value as usize]);
                Ok(None)
            }
            Step::RemoveXattr(path) => {
                let node = self.followed(path)?;
                self.nodes[node]
                    .xattr
                    .take()
                    .map(|_| None)
                    .ok_or(errno::ENODATA)
            }
            Step::Look(path) => Ok(Some(self.entry(self.resolve(&names(path))?))),
            Step::Remount => Ok(None),
        }
    }

    fn link(&mut self, from: &[usize], to: &[usize]) -> Answer {
        let node = self.resolve(&names(from))?;
        let (dir, name) = self.parent(&names(to))?;
        if self.children(dir)?.contains_key(name) {
            return Err(errno::EEXIST);
        }
        if matches!(self.nodes[node].kind, Kind::Dir(_)) {
            return Err(errno::EPERM);
        }
        self.children_mut(dir).insert(name, node);
        self.nodes[node].nlink += 1;
        Ok(None)
    }

    fn is_below(&self, node: usize, top: usize) -> bool {
        node == top
            || match &self.nodes[top].kind {
                Kind::Dir(children) => children.values().any(|&child| self.is_below(node, child)),
                _ => false,
            }
    }

    fn rename(&mut self, from: &[usize], to: &[usize]) -> Answer {
        let (from_dir, from_name) = self.parent(&names(from))?;
        let (to_dir, to_name) = self.parent(&names(to))?;
        let node = *self
            .children(from_dir)?
            .get(from_name)
            .ok_or(errno::ENOENT)?;
        let is_dir = matches!(self.nodes[node].kind, Kind::Dir(_));
        if is_dir && self.is_below(to_dir, node) {
            return Err(errno::EINVAL);
        }
        if let Some(&target) = self.children(to_dir)?.get(to_name) {
            if target == node {
                return Ok(None);
            }
            let target_is_dir = matches!(self.nodes[target].kind, Kind::Dir(_));
            // The kernel refuses to replace a directory above the source before anything else.
            if target_is_dir && self.is_below(from_dir, target) {
                return Err(errno::ENOTEMPTY);
            }
            match (is_dir, target_is_dir) {
                (true, false) => return Err(errno::ENOTDIR),
                (false, true) => return Err(errno::EISDIR),
                (true, true) if !self.children(target)?.is_empty() => {
                    return Err(errno::ENOTEMPTY);
                }
                (true, true) => self.nodes[to_dir].nlink -= 1,
                (false, false) => self.nodes[target].nlink -= 1,
            }
        }
        self.children_mut(from_dir).remove(from_name);
        self.children_mut(to_dir).insert(to_name, node);
        if is_dir {
            self.nodes[from_dir].nlink -= 1;
            self.nodes[to_dir].nlink += 1;
        }
        Ok(None)
    }

    fn entry(&self, node: usize) -> Entry {
        let Node {
            kind,
            mode,
            nlink,
            xattr,
        } = &self.nodes[node];
        let (mode, nlink, xattr) = (*mode, *nlink, xattr.clone());
        match kind {
            Kind::Dir(_) => Entry::Dir { mode, nlink, xattr },
            Kind::File(bytes) => Entry::File {
                mode,
                nlink,
                size: bytes.len() as u64,
                hash: hash(bytes),
                xattr,
            },
            Kind::Symlink(target) => Entry::Symlink(target.clone()),
        }
    }

    /// Everything below the root.
    pub(crate) fn listing(&self) -> BTreeMap<String, Entry> {
        let mut listing = BTreeMap::new();
        let mut todo = vec![(String::new(), ROOT)];
        while let Some((path, node)) = todo.pop() {
            if let Kind::Dir(children) = &self.nodes[node].kind {
                for (name, &child) in children {
                    todo.push((format!("{path}/{name}"), child));
                }
            }
            if node != ROOT {
                listing.insert(path, self.entry(node));
            }
        }
        listing
    }
}

/// The errno values that the model answers.
mod errno {
    use nix::errno::Errno;
    pub(super) const ENOENT: i32 = Errno::ENOENT as i32;
    pub(super) const ENOTDIR: i32 = Errno::ENOTDIR as i32;
    pub(super) const EISDIR: i32 = Errno::EISDIR as i32;
    pub(super) const EEXIST: i32 = Errno::EEXIST as i32;
    pub(super) const ENOTEMPTY: i32 = Errno::ENOTEMPTY as i32;
    pub(super) const EINVAL: i32 = Errno::EINVAL as i32;
    pub(super) const EPERM: i32 = Errno::EPERM as i32;
    pub(super) const ENODATA: i32 = Errno::ENODATA as i32;
}
