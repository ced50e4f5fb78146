use super::*;
use crate::engine::ReferenceKv;
use crate::extent::{Extent, FramePart, PackBytes, PackId, Place};
use crate::schema;

fn namespace() -> Namespace {
    Namespace::open(Arc::new(ReferenceKv::new()), 0, (0, 0)).unwrap()
}

/// What the engine over etcd takes.
pub(super) fn limits() -> crate::kv::Limits {
    crate::kv::Limits {
        compares: 32,
        ops: 95,
        bytes: 1_400_000,
    }
}

/// A file to be made.
pub(super) fn file_node() -> NewNode {
    node(schema::S_IFREG | 0o600)
}

fn node(mode: u32) -> NewNode {
    NewNode {
        mode,
        uid: 1,
        gid: 2,
        rdev: 0,
        target: Vec::new(),
        chunk_shift: 20,
        xattrs: Vec::new(),
    }
}

fn file(ns: &Namespace, parent: u64, name: &str, size: u64) -> u64 {
    let ino = ns
        .create(parent, name.as_bytes(), &node(schema::S_IFREG | 0o644))
        .unwrap()
        .ino;
    let part = FramePart {
        pack: PackId(1),
        at: ino * 100,
        frame_len: 10,
        raw_len: 4096,
        skip: 0,
    };
    let extent = Extent {
        offset: 0,
        len: 4096,
        place: Place::Frame(part),
    };
    let commit = DataCommit {
        map: MapChange::Append(vec![extent]),
        size: Some(size),
        stored: 10,
        packs: [(PackId(1), 10)].into(),
        ..DataCommit::default()
    };
    ns.commit_data(ino, &commit).unwrap();
    ino
}

fn dir(ns: &Namespace, parent: u64, name: &str) -> u64 {
    ns.create(parent, name.as_bytes(), &node(schema::S_IFDIR | 0o755))
        .unwrap()
        .ino
}

macro_rules! assert_refused {
    ($result:expr, $fact:ident) => {
        match $result {
            Err(Error::$fact) => {}
            other => panic!("{other:?}"),
        }
    };
}

fn totals(ns: &Namespace, dir: u64) -> (u64, u64, u64, u64) {
    let r = ns.rollup(dir).unwrap();
    (r.raw, r.stored, r.files, r.dirs)
}

#[test]
fn totals_follow_files_through_renames_links_and_removal() {
    let ns = namespace();
    let a = dir(&ns, ROOT, "a");
    let b = dir(&ns, a, "b");
    let c = dir(&ns, ROOT, "c");
    file(&ns, b, "x", 100);
    file(&ns, b, "y", 50);
    assert_eq!(totals(&ns, ROOT), (150, 20, 2, 3));
    assert_eq!(totals(&ns, a), (150, 20, 2, 1));

    ns.rename(a, b"b", c, b"b2", RenameMode::Replace).unwrap();
    assert_eq!(totals(&ns, a), (0, 0, 0, 0));
    assert_eq!(totals(&ns, c), (150, 20, 2, 1));
    assert_eq!(totals(&ns, ROOT), (150, 20, 2, 3));
    assert_eq!(ns.inode(a).unwrap().nlink, 2);
    assert_eq!(ns.inode(c).unwrap().nlink, 3);

    let x = ns.lookup(b, b"x").unwrap().ino;
    ns.link(x, a, b"hard").unwrap();
    let removed = ns.unlink(b, b"x").unwrap();
    assert_eq!(
        removed,
        Removed {
            ino: x,
            orphaned: false
        }
    );
    assert_eq!(totals(&ns, c), (50, 10, 1, 1));
    assert_eq!(totals(&ns, ROOT), (150, 20, 2, 3));

    let removed = ns.unlink(a, b"hard").unwrap();
    assert!(removed.orphaned);
    assert_eq!(totals(&ns, ROOT), (50, 10, 1, 3));
    let orphans = || -> Vec<u64> {
        let (orphans, _) = ns.orphans().unwrap();
        orphans.iter().map(|orphan| orphan.ino).collect()
    };
    assert_eq!(orphans(), [x]);
    let seen = ns.contents(x).unwrap();
    ns.purge(&seen, &[(PackId(1), 10)].into()).unwrap();
    assert_eq!(orphans(), []);
    let pack = PackId(1);
    assert_eq!(ns.packs().unwrap(), vec![PackBytes { pack, bytes: 10 }]);
    assert_refused!(ns.inode(x), NotFound);
    let (start, end) = keys::all_of(x);
    assert!(ns.kv().range(&start, &end, 9).unwrap().is_empty());
}

#[test]
fn exchange_swaps_files_and_directories_with_their_totals() {
    let ns = namespace();
    let (a, b) = (dir(&ns, ROOT, "a"), dir(&ns, ROOT, "b"));
    let inner = dir(&ns, a, "inner");
    file(&ns, inner, "deep", 7);
    let f = file(&ns, b, "f", 3);
    ns.rename(a, b"inner", b, b"f", RenameMode::Exchange)
        .unwrap();
    assert_eq!(ns.lookup(a, b"inner").unwrap().ino, f);
    assert_eq!(ns.lookup(b, b"f").unwrap().ino, inner);
    assert_eq!(totals(&ns, a), (3, 10, 1, 0));
    assert_eq!(totals(&ns, b), (7, 10, 1, 1));
    assert_eq!(
        (ns.inode(a).unwrap().nlink, ns.inode(b).unwrap().nlink),
        (2, 3)
    );
    assert_refused!(
        ns.rename(a, b"inner", b, b"none", RenameMode::Exchange),
        NotFound
    );
}

#[test]
fn rename_refuses_what_would_lose_something() {
    let ns = namespace();
    let a = dir(&ns, ROOT, "a");
    let b = dir(&ns, a, "b");
    file(&ns, ROOT, "f", 1);
    file(&ns, b, "g", 1);
    let replace = RenameMode::Replace;
    assert_refused!(ns.rename(ROOT, b"a", b, b"x", replace), Loop);
    assert_refused!(ns.rename(ROOT, b"f", ROOT, b"a", replace), IsDirectory);
    assert_refused!(ns.rename(ROOT, b"a", ROOT, b"f", replace), NotDirectory);
    let c = dir(&ns, ROOT, "c");
    assert_refused!(ns.rename(ROOT, b"c", a, b"b", replace), NotEmpty);
    assert_refused!(
        ns.rename(ROOT, b"c", ROOT, b"f", RenameMode::NoReplace),
        Exists
    );
    assert_refused!(ns.rmdir(ROOT, b"a"), NotEmpty);
    assert_refused!(ns.unlink(ROOT, b"a"), IsDirectory);
    assert_refused!(ns.rmdir(ROOT, b"f"), NotDirectory);
    ns.rmdir(ROOT, b"c").unwrap();
    assert_refused!(ns.create(c, b"late", &node(schema::S_IFREG)), NotFound);
}

#[test]
fn a_directory_read_in_pieces_shows_every_lasting_entry_once() {
    let ns = namespace();
    for i in 0..500 {
        ns.create(ROOT, format!("f{i}").as_bytes(), &node(schema::S_IFREG))
            .unwrap();
    }
    let mut seen = std::collections::BTreeSet::new();
    let mut cookie = 0;
    loop {
        let page = ns.readdir(ROOT, cookie, 7).unwrap();
        let Some(last) = page.last() else { break };
        assert!(cookie < last.cookie);
        cookie = last.cookie;
        for entry in page {
            assert!(seen.insert(entry.name.clone()), "twice");
            if entry.name.ends_with(b"3") {
                ns.unlink(ROOT, &entry.name).unwrap();
            }
        }
        ns.create(
            ROOT,
            format!("new{cookie}").as_bytes(),
            &node(schema::S_IFREG),
        )
        .unwrap();
    }
    for i in 0..500 {
        assert!(
            seen.contains(format!("f{i}").as_bytes()),
            "f{i} was not shown"
        );
    }
}

#[test]
fn extended_attributes_obey_create_and_replace() {
    let ns = namespace();
    let f = file(&ns, ROOT, "f", 0);
    assert_refused!(ns.set_xattr(f, b"user.a", b"1", XattrMode::Replace), NoData);
    ns.set_xattr(f, b"user.a", b"1", XattrMode::Create).unwrap();
    assert_refused!(ns.set_xattr(f, b"user.a", b"2", XattrMode::Create), Exists);
    ns.set_xattr(f, b"user.a", b"3", XattrMode::Set).unwrap();
    assert_eq!(ns.xattr(f, b"user.a").unwrap(), Some(b"3".to_vec()));
    assert_eq!(ns.xattr_names(f).unwrap(), vec![b"user.a".to_vec()]);
    ns.remove_xattr(f, b"user.a").unwrap();
    assert_refused!(ns.remove_xattr(f, b"user.a"), NoData);
    assert_refused!(
        ns.set_xattr(f, b"user.b", &vec![0; 65_537], XattrMode::Set),
        TooLarge
    );
}

#[test]
fn paths_are_found_as_far_as_there_are_names() {
    let ns = namespace();
    let dir = ns
        .create(ROOT, b"run", &node(schema::S_IFDIR | 0o755))
        .unwrap()
        .ino;
    let f = file(&ns, dir, "ocean.nc", 0);
    assert_eq!(ns.path(ROOT), "/");
    assert_eq!(ns.path(f), "/run/ocean.nc");
    // Found again under another name, also one that another file had, and in one line.
    ns.rename(dir, b"ocean.nc", dir, b"old", RenameMode::Replace)
        .unwrap();
    let other = file(&ns, dir, "ocean.nc", 0);
    assert_eq!(ns.path(f), "/run/old");
    assert_eq!(ns.path(other), "/run/ocean.nc");
    ns.rename(dir, b"old", ROOT, b"ocean.nc", RenameMode::Replace)
        .unwrap();
    assert_eq!(ns.path(f), "/ocean.nc");
    ns.rename(ROOT, b"ocean.nc", dir, b"a\nb", RenameMode::Replace)
        .unwrap();
    assert_eq!(ns.path(f), "/run/a\\nb");
    ns.unlink(dir, b"a\nb").unwrap();
    assert_eq!(ns.path(f), format!("/inode {f}"));
}
