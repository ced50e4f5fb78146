//! Judges the facts, and says what to change.

mod machine;
mod mount;
mod store;

use serde::Serialize;

use super::facts::{MachineFacts, StoreFacts, Subject};
use machine::{fuse, fusermount, kernel, memory, open_files};
use mount::{daemon, data, displaced, mount_options};
use store::{
    backing, backing_options, clock, entry, format, inodes, is_only_read, log, privacy, space,
};

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Ok,
    /// It works, but could be improved.
    Advice,
    /// It does not work, or data is at risk.
    Problem,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) verdict: Verdict,
    /// The finding, and what to do unless all is well.
    pub(crate) message: String,
}

impl Check {
    fn new(name: &'static str, verdict: Verdict, finding: impl Into<String>) -> Self {
        Self {
            name,
            verdict,
            message: finding.into(),
        }
    }
}

/// All checks of the machine.
pub(crate) fn of_machine(machine: &MachineFacts) -> Vec<Check> {
    vec![
        kernel(machine),
        fuse(machine),
        fusermount(machine),
        open_files(machine),
        memory(machine),
    ]
}

/// All checks of the store or mount at a path.
pub(crate) fn of_subject(machine: &MachineFacts, subject: &Subject) -> Vec<Check> {
    match subject {
        Subject::Store(store) => of_store(machine, store),
        Subject::Closed(closed) => vec![
            entry(closed),
            daemon(&closed.mount),
            mount_options(machine, &closed.mount),
        ]
        .into_iter()
        .chain(data(&closed.mount))
        .collect(),
        Subject::Displaced(absent) => vec![
            displaced(absent),
            log(&absent.log, &absent.store, false),
            daemon(&absent.mount),
            mount_options(machine, &absent.mount),
        ],
    }
}

fn of_store(machine: &MachineFacts, store: &StoreFacts) -> Vec<Check> {
    let mut checks = vec![
        format(store),
        backing(store),
        backing_options(store),
        space(store),
        inodes(store),
        privacy(store),
        clock(machine, store),
        log(&store.log, &store.path, is_only_read(store)),
    ];
    if let Some(mount) = &store.mount {
        checks.extend(data(mount));
        checks.extend([daemon(mount), mount_options(machine, mount)]);
    }
    checks
}

#[cfg(test)]
mod tests;
