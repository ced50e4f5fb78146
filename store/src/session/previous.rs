//! How the previous session ended.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use shale_index::Namespace;
use shale_index::engine::{Recent, Recovery};
use shale_index::schema::{Time, keys};

/// Files to name, and inodes to examine for them.
const NAMED: usize = 12;
const LOOKED_AT: usize = 4096;
/// How long to search for names; in very large directories that takes a while.
const PATIENCE: Duration = Duration::from_secs(1);
/// Files changed within these seconds before the last change count as being written too: the daemon
/// keeps nothing longer in memory.
const LAST_SECONDS: i64 = 10;

/// Logs that the last session did not shut down cleanly, if so: what is left of it, and which files
/// it wrote to at its end. `note` is the note that its daemon left in the lock.
pub(crate) fn report(namespace: &Namespace, recovery: &Recovery, note: Option<&str>) {
    if note.is_none() && (recovery.closed || recovery.version == 0) {
        return;
    }
    let mut lines = note.unwrap_or_default().lines();
    let who = match lines.next().and_then(|line| line.split_once(' ')) {
        Some((pid, purpose)) => format!(", process {pid} ({purpose}),"),
        None => String::new(),
    };
    // What the daemon itself knew when it ended.
    let mut lost = lines.take(NAMED).collect::<Vec<_>>().join("; ");
    if !lost.is_empty() {
        lost.insert_str(0, ". It could not store: ");
    }
    let changed = Changed::before_the_end(namespace, &recovery.recent);
    tracing::warn!(
        "the last daemon of this store{who} did not shut down cleanly. Everything that was synced \
         is recovered, {} of it from the journal{lost}{changed}",
        counted(recovery.records as usize, "commit"),
    );
}

/// The files that changed last.
#[derive(Debug, Default)]
struct Changed {
    /// As many of their paths as are named.
    paths: Vec<String>,
    count: usize,
    /// Not all inodes were examined.
    more: bool,
    /// Seconds since the last change.
    age: i64,
}

impl Changed {
    fn before_the_end(namespace: &Namespace, recent: &Recent) -> Self {
        let inos = inodes_of_last_session(recent);
        let mut files = Vec::new();
        let mut last = 0;
        for &ino in inos.iter().take(LOOKED_AT) {
            // Files that have been deleted since lost nothing.
            let Ok(inode) = namespace.inode(ino) else {
                continue;
            };
            last = last.max(inode.ctime.secs);
            if inode.is_file() && inode.nlink > 0 {
                files.push((ino, inode.ctime.secs));
            }
        }
        files.retain(|(_, changed)| *changed >= last - LAST_SECONDS);
        let begun = Instant::now();
        let paths = files
            .iter()
            .take(NAMED)
            .take_while(|_| begun.elapsed() < PATIENCE)
            .map(|(ino, _)| namespace.path(*ino))
            .collect();
        Self {
            paths,
            count: files.len(),
            more: inos.len() > LOOKED_AT,
            age: Time::now().secs.saturating_sub(last).max(0),
        }
    }
}

impl std::fmt::Display for Changed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.count == 0 {
            return Ok(());
        }
        let age = age(self.age);
        write!(
            f,
            ". Unsynced data may be missing in the files that changed last, {age} ago: "
        )?;
        for (number, path) in self.paths.iter().enumerate() {
            write!(f, "{}{path}", if number > 0 { ", " } else { "" })?;
        }
        let rest = self.count - self.paths.len();
        match (rest, self.paths.len()) {
            (0, _) if self.more => f.write_str(" and more"),
            (0, _) => Ok(()),
            (rest, 0) => f.write_str(&counted(rest, "file")),
            (rest, _) if self.more => write!(f, " and more than {rest} more"),
            (rest, _) => write!(f, " and {rest} more"),
        }
    }
}

/// Inodes that the last session has changed, the newest first.
fn inodes_of_last_session(recent: &Recent) -> Vec<u64> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    // A session begins with a commit about itself.
    let of_session = |commit: &&Vec<Vec<u8>>| !commit.iter().any(|key| keys::is_session(key));
    for commit in recent.0.iter().rev().take_while(of_session) {
        let inodes = commit.iter().filter_map(|key| keys::inode_of(key));
        found.extend(inodes.filter(|ino| seen.insert(*ino)));
    }
    found
}

fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// A time in the largest unit that it fills.
fn age(seconds: i64) -> String {
    let units = [(86_400, "day"), (3600, "hour"), (60, "minute")];
    let unit = units.iter().find(|(length, _)| seconds >= *length);
    match unit {
        Some((length, name)) => counted((seconds / length) as usize, name),
        None => counted(seconds.max(0) as usize, "second"),
    }
}

#[cfg(test)]
mod tests {
    use shale_index::extent::PackId;

    use super::*;

    #[test]
    fn only_what_the_last_session_changed_counts_the_newest_first() {
        let commit = |numbers: &[u64]| numbers.iter().map(|ino| keys::inode(*ino)).collect();
        let recent = Recent(
            [
                commit(&[7, 8]),
                vec![b"s\0\0\0\0\0\0\0\x03".to_vec()],
                commit(&[20]),
                vec![keys::inode(21), keys::pack(PackId(4))],
                commit(&[20, 1]),
                vec![keys::totals(1)],
            ]
            .into(),
        );
        assert_eq!(inodes_of_last_session(&recent), [20, 1, 21]);
        assert_eq!(inodes_of_last_session(&Recent::default()), []);
    }

    #[test]
    fn a_list_says_how_much_it_leaves_out() {
        let changed = |paths: &[&str], count, more| {
            let paths = paths.iter().map(|&path| path.to_owned()).collect();
            let age = 61;
            Changed {
                paths,
                count,
                more,
                age,
            }
            .to_string()
        };
        let head = ". Unsynced data may be missing in the files that changed last, 1 minute ago: ";
        assert_eq!(changed(&[], 0, false), "");
        assert_eq!(changed(&["/a", "/b"], 2, false), format!("{head}/a, /b"));
        assert_eq!(changed(&["/a"], 4, false), format!("{head}/a and 3 more"));
        assert_eq!(changed(&[], 4, false), format!("{head}4 files"));
        assert_eq!(
            changed(&["/a"], 4, true),
            format!("{head}/a and more than 3 more")
        );
        assert_eq!(
            [age(0), age(1), age(7200)],
            ["0 seconds", "1 second", "2 hours"]
        );
    }
}
