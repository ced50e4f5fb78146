//! Walks a source and copies each entry.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde::Serialize;

use super::attributes;
use super::copy::{self, TemporaryFile, cannot_write};
use super::source::{Kind, Node, Source};
use crate::output::failure::{Failure, exit};
use crate::output::report::{self, Problem, counted};

/// How to copy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExportOptions {
    /// Replace existing files that differ.
    pub(crate) force: bool,
    /// Copy damaged files, with zeros for what cannot be read.
    pub(crate) salvage: bool,
}

/// The result.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    /// Source and target.
    pub(crate) path: String,
    pub(crate) target: String,
    /// Regular files copied, and bytes in them.
    pub(crate) files: u64,
    pub(crate) raw: u64,
    pub(crate) directories: u64,
    /// Symbolic links, further names of files, pipes, sockets, devices.
    pub(crate) others: u64,
    /// Files that already existed with the same size and time.
    pub(crate) present: u64,
    /// Extended attributes that could not be kept.
    pub(crate) missed_attributes: BTreeSet<String>,
    /// Entries that were not copied, or only in part.
    pub(crate) problems: Vec<Problem>,
}

/// Bytes in a tree, for the progress bar.
pub(crate) fn measure<S: Source>(source: &S) -> Result<u64, Failure> {
    let mut bytes = 0;
    let mut seen = BTreeSet::new();
    let mut waiting = vec![source.top()];
    while let Some(id) = waiting.pop() {
        // The copy reports unreadable entries.
        let Ok(node) = source.node(&id) else { continue };
        match node.kind {
            Kind::File if node.links < 2 || seen.insert(node.id) => bytes += node.size,
            Kind::Directory => {
                let entries = source.entries(&id).unwrap_or_default();
                waiting.extend(entries.into_iter().map(|(_, id)| id));
            }
            _ => {}
        }
    }
    Ok(bytes)
}

/// Copies everything to `target`.
pub(crate) fn export<S: Source>(
    source: &S,
    target: &Path,
    options: ExportOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<Report, Failure> {
    let mut export = Export {
        source,
        options,
        progress,
        report: Report::default(),
        names: HashMap::new(),
    };
    export.one(&source.top(), target);
    Ok(export.report)
}

struct Export<'a, S: Source> {
    source: &'a S,
    options: ExportOptions,
    progress: &'a mut dyn FnMut(u64),
    report: Report,
    /// The first copy of each file with several names.
    names: HashMap<u64, PathBuf>,
}

impl<S: Source> Export<'_, S> {
    /// Copies one entry with everything below it. A failure is reported, and the rest is copied.
    fn one(&mut self, id: &S::Id, target: &Path) {
        let copied = self
            .source
            .node(id)
            .and_then(|node| match node.kind.clone() {
                Kind::Directory => self.directory(id, &node, target),
                Kind::File => self.file(id, &node, target),
                Kind::Symlink(link) => self.symlink(&node, &link, target),
                Kind::Special(kind, device) => self.special(&node, kind, device, target),
            });
        if let Err(failure) = copied {
            self.note(target, &failure);
        }
    }

    fn note(&mut self, target: &Path, failure: &Failure) {
        self.report.problems.push(Problem {
            path: Some(report::name(target)),
            offset: None,
            status: failure.status,
            message: failure.message().to_owned(),
        });
    }

    fn directory(&mut self, id: &S::Id, node: &Node, target: &Path) -> Result<(), Failure> {
        let failed = |e: io::Error| cannot_write(target, &e);
        match found(target)? {
            None => DirBuilder::new()
                .mode(0o700)
                .create(target)
                .and_then(|()| attributes::disinherit(target))
                .map_err(failed)?,
            Some(there) if there.is_dir() => {
                // An earlier export may have removed write permission.
                let mode = there.permissions().mode();
                let open = Permissions::from_mode(mode | 0o700);
                std::fs::set_permissions(target, open).map_err(failed)?;
            }
            Some(_) => return Err(in_the_way(target)),
        }
        for (name, id) in self.source.entries(id)? {
            self.one(&id, &target.join(name));
        }
        attributes::give(node, target, target, &mut self.report.missed_attributes)?;
        File::open(target)
            .and_then(|directory| directory.sync_all())
            .map_err(failed)?;
        self.report.directories += 1;
        Ok(())
    }

    fn file(&mut self, id: &S::Id, node: &Node, target: &Path) -> Result<(), Failure> {
        if node.links > 1
            && let Some(first) = self.names.get(&node.id).cloned()
        {
            return self.another_name(&first, target);
        }
        let there = found(target)?;
        if there.as_ref().is_some_and(|there| is_same(there, node)) {
            self.report.present += 1;
            (self.progress)(node.size);
        } else {
            self.make_way(there.as_ref(), target)?;
            self.copy(id, node, target)?;
        }
        if node.links > 1 {
            self.names.insert(node.id, target.to_owned());
        }
        Ok(())
    }

    fn copy(&mut self, id: &S::Id, node: &Node, target: &Path) -> Result<(), Failure> {
        let mut contents = self.source.contents(id)?;
        let draft = TemporaryFile::new(target)?;
        attributes::disinherit(draft.path()).map_err(|e| cannot_write(target, &e))?;
        let (size, salvage) = (node.size, self.options.salvage);
        let lost = copy::contents(&mut *contents, size, &draft, target, salvage, self.progress)?;
        if contents.has_changed()? {
            return Err(Failure::new(
                exit::BUSY,
                format_args!(
                    "{} was written to while it was copied and is left out; export it again",
                    target.display()
                ),
            ));
        }
        let mut facts = node.clone();
        if !lost.is_empty() {
            // With the time of the source it would count as exported from now on.
            facts.modified = draft.modified(target)?;
        }
        attributes::give(
            &facts,
            draft.path(),
            target,
            &mut self.report.missed_attributes,
        )?;
        draft.finish(target)?;
        self.report.files += 1;
        self.report.raw += size;
        if let [first, ..] = &lost[..] {
            let start = first.start;
            let all: u64 = lost.iter().map(|range| range.end - range.start).sum();
            let failure = Failure::new(
                exit::IO,
                format_args!(
                    "{} is damaged: {} in {} could not be read and are zeros, the first at offset \
                     {start}; restore the file from another copy",
                    target.display(),
                    counted(all, "byte", "bytes"),
                    counted(lost.len() as u64, "place", "places")
                ),
            );
            self.note(target, &failure);
        }
        Ok(())
    }

    fn another_name(&mut self, first: &Path, target: &Path) -> Result<(), Failure> {
        let failed = |e: io::Error| cannot_write(target, &e);
        let there = found(target)?;
        let first_facts = first.symlink_metadata().map_err(failed)?;
        let facts = |m: &Metadata| (m.dev(), m.ino());
        if there
            .as_ref()
            .is_some_and(|there| facts(there) == facts(&first_facts))
        {
            self.report.present += 1;
            return Ok(());
        }
        self.make_way(there.as_ref(), target)?;
        self.replace(target, |path| std::fs::hard_link(first, path))
    }

    fn symlink(&mut self, node: &Node, link: &OsString, target: &Path) -> Result<(), Failure> {
        if let Some(there) = found(target)? {
            if there.is_symlink() && std::fs::read_link(target).is_ok_and(|found| found == *link) {
                self.report.present += 1;
                return Ok(());
            }
            self.make_way(Some(&there), target)?;
        }
        self.replace(target, |path| symlink(link, path))?;
        attributes::give(node, target, target, &mut self.report.missed_attributes)
    }

    fn special(
        &mut self,
        node: &Node,
        kind: u32,
        device: u64,
        target: &Path,
    ) -> Result<(), Failure> {
        let kind = FileType::from_raw_mode(kind);
        if let Some(there) = found(target)? {
            let there_kind = FileType::from_raw_mode(there.mode());
            if there_kind == kind && there.rdev() == device {
                self.report.present += 1;
                return Ok(());
            }
            self.make_way(Some(&there), target)?;
        }
        self.replace(target, |path| {
            mknodat(CWD, path, kind, Mode::from_raw_mode(0o600), device)?;
            attributes::disinherit(path)
        })?;
        attributes::give(node, target, target, &mut self.report.missed_attributes)
    }

    /// Creates an entry without contents, replacing an existing one.
    fn replace(
        &mut self,
        target: &Path,
        make: impl Fn(&Path) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let failed = |e: io::Error| cannot_write(target, &e);
        // Under a draft's name, so that the old file stays until the new one is complete.
        let draft = TemporaryFile::new(target)?;
        std::fs::remove_file(draft.path()).map_err(failed)?;
        make(draft.path()).map_err(failed)?;
        draft.finish(target)?;
        self.report.others += 1;
        Ok(())
    }

    /// Fails unless the target is free or may be replaced.
    fn make_way(&self, there: Option<&Metadata>, target: &Path) -> Result<(), Failure> {
        match there {
            Some(there) if there.is_dir() || !self.options.force => Err(in_the_way(target)),
            _ => Ok(()),
        }
    }
}

fn found(target: &Path) -> Result<Option<Metadata>, Failure> {
    match target.symlink_metadata() {
        Ok(metadata) => Ok(Some(metadata)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(cannot_write(target, &e)),
    }
}

fn is_same(there: &Metadata, node: &Node) -> bool {
    there.is_file()
        && !there.file_type().is_fifo()
        && there.len() == node.size
        && (there.mtime(), there.mtime_nsec() as u32) == node.modified
}

fn in_the_way(target: &Path) -> Failure {
    Failure::new(
        exit::CANNOT_CREATE,
        format_args!(
            "{} already exists and differs; move it away, or replace files with --force",
            target.display()
        ),
    )
}
