//! Where an inode is, for messages to people.

use super::{Namespace, ROOT};

/// Entries of a directory that are read at a time to find a name, and at most.
const PAGE: usize = 4096;
const PAGES: usize = 256;
/// Directories above a file that are named.
const DEPTH: usize = 1024;

impl Namespace {
    /// The path of an inode from the root, as far as it has names that can be found with bounded
    /// effort; a part that has none is shown by its number. It fits into a line: control
    /// characters are escaped.
    #[must_use]
    pub fn path(&self, ino: u64) -> String {
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

    /// The parent and the name of an inode.
    fn name_of(&self, ino: u64) -> Option<(u64, String)> {
        let parent = self.inode(ino).ok()?.parent;
        let mut cookie = 0;
        for _ in 0..PAGES {
            let entries = self.readdir(parent, cookie, PAGE).ok()?;
            cookie = entries.last()?.cookie;
            if let Some(entry) = entries.into_iter().find(|entry| entry.ino == ino) {
                return Some((parent, printable(&entry.name)));
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
