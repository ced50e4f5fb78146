//! Where an inode is, for messages to people.

use super::{Namespace, ROOT};
use crate::schema::Ino;

/// Entries of a directory that are read at a time to find a name, and the maximum.
const PAGE: usize = 4096;
const PAGES: usize = 256;
/// Names that are remembered.
const NAMED: usize = 256;
/// Directories above a file that are named.
const DEPTH: usize = 1024;

impl Namespace {
    /// The path of an inode from the root, as far as its names can be found with bounded effort; a
    /// part without a name is shown by its number. It fits into a line: control characters are
    /// escaped.
    #[must_use]
    pub fn path(&self, ino: Ino) -> String {
        let mut names = Vec::new();
        let mut at = ino;
        while at != ROOT && names.len() < DEPTH {
            match self.name_of(at) {
                Some((parent, name)) => {
                    names.push(name);
                    at = parent;
                }
                None => {
                    names.push(format!("inode {at}"));
                    break;
                }
            }
        }
        names.push(String::new());
        names.reverse();
        match &names[..] {
            [_] => "/".to_owned(),
            _ => names.join("/"),
        }
    }

    /// The parent and the name of an inode. Tries the remembered ones first: a program that gets an
    /// error is likely to get it again, and a directory may be large.
    fn name_of(&self, ino: Ino) -> Option<(u64, String)> {
        let parent = self.inode(ino).ok()?.parent;
        let known = self.named.lock().get(&ino).cloned();
        if let Some(name) = known
            && self
                .lookup(parent, &name)
                .is_ok_and(|found| found.ino == ino)
        {
            return Some((parent, printable(&name)));
        }
        let name = self.search(parent, ino)?;
        let shown = printable(&name);
        let mut named = self.named.lock();
        if named.len() >= NAMED {
            named.clear();
        }
        named.insert(ino, name);
        Some((parent, shown))
    }

    /// The name of an inode in a directory.
    fn search(&self, parent: Ino, ino: Ino) -> Option<Vec<u8>> {
        let mut cookie = 0;
        for _ in 0..PAGES {
            let entries = self.readdir(parent, cookie, PAGE).ok()?;
            cookie = entries.last()?.cookie;
            if let Some(entry) = entries.into_iter().find(|entry| entry.ino == ino) {
                return Some(entry.name);
            }
        }
        None
    }
}

fn printable(name: &[u8]) -> String {
    let mut shown = String::new();
    for c in String::from_utf8_lossy(name).chars() {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}
