//! The tables of docs/store-format.md, followed by hand: nothing here uses the code that writes or
//! reads these formats, except frames, which the tests of the codec pin.
//!
//! `tests/golden-2` is a store of format 2 without sled's directory. The same walk goes over a store
//! that this program has just written.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use shale_codec::{ByteOrder, Decoder, Effort, ElementKind, FrameHeader, parse_header};
use shale_index::schema::S_IFREG;
use shale_index::{NewNode, ROOT};

use crate::fsck::{FsckOptions, fsck};
use crate::{Block, DeviceOptions, OfflineStore, Region, SettleOptions, Store, StoreOptions};

const DATA: u8 = 1;
const MAP: u8 = 2;
const CATALOG: u8 = 3;
const TILE: u8 = 4;
const TILES: u8 = 5;
const GATHER: u8 = 6;

/// Takes bytes from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(len);
        self.0 = rest;
        head
    }

    fn byte(&mut self) -> u8 {
        self.take(1)[0]
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes(self.take(4).try_into().unwrap())
    }

    fn long(&mut self) -> u64 {
        u64::from_le_bytes(self.take(8).try_into().unwrap())
    }

    fn varint(&mut self) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = self.byte();
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        value
    }

    fn varints(&mut self, count: u64) -> Vec<u64> {
        (0..count).map(|_| self.varint()).collect()
    }
}

#[derive(Debug)]
struct Frame {
    at: u64,
    header: FrameHeader,
    raw: Vec<u8>,
}

impl Frame {
    fn read(file: &[u8], at: u64) -> Self {
        let bytes = &file[at as usize..];
        let header = parse_header(bytes).unwrap();
        let mut raw = Vec::new();
        let frame = &bytes[..header.frame_len as usize];
        Decoder::new().decode(frame, &mut raw).unwrap();
        assert_eq!(raw.len(), header.raw_len as usize);
        Self { at, header, raw }
    }

    fn end(&self) -> u64 {
        self.at + u64::from(self.header.frame_len)
    }

    fn kind(&self) -> u8 {
        self.header.meta.kind as u8
    }

    /// All frames from one place to another, back to back.
    fn between(file: &[u8], within: Range<u64>) -> Vec<Self> {
        let mut frames = Vec::new();
        let mut at = within.start;
        while at < within.end {
            let frame = Self::read(file, at);
            at = frame.end();
            frames.push(frame);
        }
        assert_eq!(at, within.end);
        frames
    }
}

/// A piece of a map: kind, offset, length, then the fields of its kind.
#[derive(Debug, PartialEq, Eq)]
struct Piece(u8, Vec<u64>);

fn extents(bytes: &mut Bytes<'_>) -> Vec<Piece> {
    (0..bytes.varint())
        .map(|_| match bytes.byte() {
            kind @ 0 => Piece(kind, bytes.varints(2)),
            kind @ 1 => Piece(kind, bytes.varints(7)),
            kind @ 2 => Piece(kind, bytes.varints(9)),
            kind => panic!("kind {kind}"),
        })
        .collect()
}

/// The packs of a store by number, with their frames.
type Packs = BTreeMap<u64, Vec<Frame>>;

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn superblock(path: &Path, format: u32) -> [u8; 16] {
    let all = read(&path.join("superblock"));
    assert_eq!(all.len(), 64);
    let mut bytes = Bytes(&all);
    assert_eq!(bytes.take(8), b"SHALEFS\0");
    assert_eq!((bytes.word(), bytes.word()), (format, 0));
    let id = bytes.take(16).try_into().unwrap();
    assert!(bytes.long() > 1_700_000_000);
    assert_eq!(bytes.take(20), [0; 20]);
    assert_eq!(bytes.word(), crc32c::crc32c(&all[..60]));
    id
}

fn pack(path: &Path, id: [u8; 16], format: u32) -> (u64, Vec<Frame>) {
    let all = read(path);
    let mut bytes = Bytes(&all);
    assert_eq!(bytes.take(8), b"SHALEPK\0");
    assert_eq!((bytes.word(), bytes.word()), (1, 0));
    assert_eq!(bytes.take(16), id);
    let pack = bytes.long();
    assert_eq!(bytes.take(20), [0; 20]);
    assert_eq!(bytes.word(), crc32c::crc32c(&all[..60]));

    let trailer = &all[all.len() - 32..];
    let mut bytes = Bytes(trailer);
    assert_eq!(bytes.take(8), b"SHALEPE\0");
    let at = bytes.long();
    let directory = Frame::read(&all, at);
    assert_eq!(bytes.word(), directory.header.frame_len);
    assert_eq!(bytes.long(), pack);
    assert_eq!(bytes.word(), crc32c::crc32c(&trailer[..28]));
    assert_eq!(directory.end(), all.len() as u64 - 32);
    let meta = &directory.header.meta;
    assert_eq!(
        (directory.kind(), meta.inode, meta.offset),
        (CATALOG, 0, pack)
    );

    let frames = Frame::between(&all, 64..at);
    assert_eq!(directory.raw.len(), frames.len() * 37);
    let mut listed = Bytes(&directory.raw);
    for frame in &frames {
        let meta = &frame.header.meta;
        assert_eq!(listed.byte(), frame.kind());
        assert_eq!(listed.long(), meta.inode);
        assert_eq!(listed.long(), meta.offset);
        assert_eq!(listed.long(), meta.sequence);
        assert_eq!(u64::from(listed.word()), frame.at);
        assert_eq!(listed.word(), frame.header.frame_len);
        assert_eq!(listed.word(), frame.header.raw_len);
        match format {
            2 => assert_eq!(meta.sequence >> 40, pack >> 24),
            _ => assert!(meta.sequence >= (pack >> 24) << 20),
        }
    }
    (pack, frames)
}

fn packs(path: &Path, id: [u8; 16], format: u32) -> Packs {
    let mut packs = Packs::new();
    for session in names(&path.join("packs")) {
        let Some(number) = session.strip_prefix('s') else {
            assert_eq!(session, "catalog");
            continue;
        };
        let number = u64::from_str_radix(number, 16).unwrap();
        for name in names(&path.join("packs").join(&session)) {
            let (found, frames) = pack(&path.join("packs").join(&session).join(&name), id, format);
            let within = u64::from_str_radix(name.strip_suffix(".pack").unwrap(), 16).unwrap();
            assert_eq!((session.len(), name.len()), (9, 11));
            assert_eq!(found, number << 24 | within);
            packs.insert(found, frames);
        }
    }
    packs
}

fn catalog(path: &Path, id: [u8; 16]) {
    let dir = path.join("packs/catalog");
    for name in names(&dir) {
        let number = name
            .strip_prefix('c')
            .unwrap()
            .strip_suffix(".log")
            .unwrap();
        let number = u64::from_str_radix(number, 16).unwrap();
        let all = read(&dir.join(&name));
        let frames = Frame::between(&all, 0..all.len() as u64);
        assert_eq!(frames[0].header.meta.offset, 5);
        for Frame { header, raw, .. } in &frames {
            assert_eq!((header.meta.kind as u8, header.meta.inode), (CATALOG, 0));
            match header.meta.offset {
                5 => {
                    assert_eq!(raw[..16], id);
                    assert_eq!(raw[16..], number.to_le_bytes());
                }
                3 | 4 => assert!(raw.is_empty()),
                holds => {
                    assert!(holds == 1 || holds == 2);
                    let mut bytes = Bytes(raw);
                    while !bytes.0.is_empty() {
                        let len = bytes.word() as usize;
                        let (commit, crc) = bytes.take(len).split_at(len - 4);
                        assert_eq!(crc, crc32c::crc32c(commit).to_le_bytes());
                        let version = Bytes(commit).varint();
                        assert!(version <= header.meta.sequence);
                    }
                }
            }
        }
    }
}

fn of_kind(packs: &Packs, kind: u8) -> Vec<(u64, &Frame)> {
    let all = packs.iter().flat_map(|(&pack, frames)| {
        let frames = frames.iter().filter(move |frame| frame.kind() == kind);
        frames.map(move |frame| (pack, frame))
    });
    all.collect()
}

/// Every map segment: roots point at leaves, leaves at frames or arrays.
fn maps(packs: &Packs) -> (usize, usize) {
    let (mut roots, mut leaves) = (0, 0);
    let frame = |pack: u64, at: u64| packs[&pack].iter().find(|frame| frame.at == at).unwrap();
    for (_, segment) in of_kind(packs, MAP) {
        let mut bytes = Bytes(&segment.raw);
        let letter = bytes.byte();
        for Piece(kind, fields) in extents(&mut bytes) {
            let (offset, len) = (fields[0], fields[1]);
            match (letter, kind, &fields[2..]) {
                (b'R', 1, &[pack, at, frame_len, raw_len, 0]) => {
                    let leaf = frame(pack, at);
                    assert_eq!(
                        (leaf.kind(), leaf.header.meta.offset, len),
                        (MAP, offset, 1)
                    );
                    assert_eq!(u64::from(leaf.header.frame_len), frame_len);
                    assert_eq!(u64::from(leaf.header.raw_len), raw_len);
                    assert_eq!(leaf.raw[0], b'L');
                }
                (b'L', 0, []) => {}
                (b'L', 1, &[pack, at, frame_len, raw_len, skip]) => {
                    let data = frame(pack, at);
                    assert_eq!(data.header.meta.inode, segment.header.meta.inode);
                    assert_eq!(u64::from(data.header.frame_len), frame_len);
                    assert_eq!(u64::from(data.header.raw_len), raw_len);
                    assert!(skip + len <= raw_len);
                }
                (b'L', 2, &[pack, at, frame_len, directory_len, body, raw_len, skip]) => {
                    let directory = frame(pack, at);
                    assert_eq!(directory.kind(), TILES);
                    assert_eq!(u64::from(directory.header.frame_len), frame_len);
                    assert_eq!(u64::from(directory.header.raw_len), directory_len);
                    assert!(body <= at && skip + len <= raw_len);
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(bytes.0.is_empty());
        match letter {
            b'R' => roots += 1,
            b'L' => leaves += 1,
            letter => panic!("{letter}"),
        }
    }
    (roots, leaves)
}

/// Every gathered frame: the pieces of its file.
fn gathered(packs: &Packs) -> Vec<Vec<(u64, u64)>> {
    let mut all = Vec::new();
    for (_, frame) in of_kind(packs, GATHER) {
        let mut bytes = Bytes(&frame.raw);
        let pieces: Vec<(u64, u64)> = (0..bytes.varint())
            .map(|_| (bytes.varint(), bytes.varint()))
            .collect();
        let total: u64 = pieces.iter().map(|piece| piece.1).sum();
        let padding = bytes.0.len() - total as usize;
        assert!(padding < 8 && bytes.take(padding).iter().all(|&byte| byte == 0));
        let table = (frame.raw.len() as u64 - total) % 8;
        assert_eq!(table, pieces[0].0 % 8, "elements keep their phase");
        assert_eq!(frame.header.meta.offset, pieces[0].0);
        all.push(pieces);
    }
    all
}

/// An array of tiles: records, bytes of a record, and of each field dims and extents of a tile.
#[derive(Debug, PartialEq, Eq)]
struct Array {
    records: u64,
    record: u64,
    fields: Vec<(Vec<u64>, Vec<u64>)>,
    tiles: usize,
}

fn arrays(packs: &Packs) -> Vec<Array> {
    let mut all = Vec::new();
    for (pack, directory) in of_kind(packs, TILES) {
        let mut bytes = Bytes(&directory.raw);
        assert_eq!(bytes.byte(), b'T');
        let (records, record) = (bytes.varint(), bytes.varint());
        let fields: Vec<(Vec<u64>, Vec<u64>)> = (0..bytes.varint())
            .map(|_| {
                let dims = bytes.varint();
                (bytes.varints(dims), bytes.varints(dims + 1))
            })
            .collect();
        let mut lengths = Vec::new();
        while !bytes.0.is_empty() {
            lengths.push(bytes.varint());
        }
        let before: Vec<&Frame> = packs[&pack]
            .iter()
            .filter(|frame| frame.at < directory.at)
            .collect();
        let tiles = &before[before.len() - lengths.len()..];
        for (tile, &len) in tiles.iter().zip(&lengths) {
            assert_eq!(u64::from(tile.header.frame_len), len);
            assert_eq!(tile.kind(), TILE);
            assert_eq!(tile.header.meta.offset, directory.header.meta.offset);
        }
        let raw: usize = tiles.iter().map(|tile| tile.raw.len()).sum();
        assert_eq!(raw as u64, records * record);
        all.push(Array {
            records,
            record,
            fields,
            tiles: lengths.len(),
        });
    }
    all
}

pub(super) fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden-2")
}

pub(super) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for name in names(from) {
        let (from, to) = (from.join(&name), to.join(&name));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            std::fs::copy(from, to).unwrap();
        }
    }
}

fn floats() -> Vec<u8> {
    let cells =
        (0..24u32).flat_map(|z| (0..128).flat_map(move |y| (0..128).map(move |x| (x, y, z))));
    cells
        .map(|(x, y, z)| ((x / 8) * 3 + (y / 8) * 5 + z * 7) % 32)
        .flat_map(|value: u32| (value as f32 * 0.25).to_le_bytes())
        .collect()
}

fn pieces() -> Vec<u8> {
    let mut all = vec![0; 109 * 8192];
    for number in 0..110usize {
        let mut piece = vec![number as u8; 1000];
        piece.extend_from_slice(format!("piece {number}").as_bytes());
        let at = number * 8192;
        all.resize(all.len().max(at + piece.len()), 0);
        all[at..at + piece.len()].copy_from_slice(&piece);
    }
    all
}

#[test]
fn the_golden_store_is_as_the_document_says() {
    let path = golden();
    let id = superblock(&path, 2);
    let packs = packs(&path, id, 2);
    catalog(&path, id);
    let counts = [DATA, MAP, TILE, TILES, GATHER].map(|kind| of_kind(&packs, kind).len());
    assert_eq!(counts, [136, 2, 4, 1, 1]);
    assert_eq!(maps(&packs), (1, 1));
    let leaf = of_kind(&packs, MAP)[0].1;
    let pieces = extents(&mut Bytes(&leaf.raw[1..]));
    assert_eq!(pieces.len(), 96);
    let first = Piece(1, vec![0, 1007, 0x0100_0000, 160, 223, 1007, 0]);
    assert_eq!(pieces[0], first);
    assert_eq!(gathered(&packs), [[(0, 128)]]);
    let array = Array {
        records: 24,
        record: 128 * 128 * 4,
        fields: vec![(vec![128, 512], vec![24, 32, 512])],
        tiles: 4,
    };
    assert_eq!(arrays(&packs), [array]);
}

#[test]
fn the_golden_store_is_read_and_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    copy(&golden(), dir.path());
    for rebuild in [false, true] {
        if rebuild {
            std::fs::remove_dir_all(dir.path().join("index")).unwrap();
        }
        let options = FsckOptions {
            rebuild,
            ..FsckOptions::default()
        };
        let report = fsck(dir.path(), &options, &mut |_, _| {}).unwrap();
        assert!(
            report.problems.iter().all(|problem| problem.repaired),
            "{report:?}"
        );
        assert_contents(dir.path());
    }
}

/// Asserts that a store holds what the golden one does.
pub(super) fn assert_contents(path: &Path) {
    let store = OfflineStore::open(path).unwrap();
    let mut found = BTreeMap::new();
    for entry in store.entries(ROOT).unwrap() {
        let name = String::from_utf8(entry.name).unwrap();
        let inode = store.inode(entry.ino).unwrap();
        if inode.is_file() {
            let mut bytes = vec![0; inode.size as usize];
            let mut contents = store.contents(entry.ino).unwrap();
            assert_eq!(contents.read(0, &mut bytes).unwrap(), bytes.len());
            found.insert(name, bytes);
        } else if !inode.is_dir() {
            found.insert(name, inode.target);
        } else {
            assert_eq!(inode.nlink, 2);
            let below = store.entries(entry.ino).unwrap();
            assert_eq!(below[0].name, b"small.txt");
            let xattrs = store.xattrs(below[0].ino).unwrap();
            assert_eq!(xattrs, [(b"user.note".to_vec(), b"golden".to_vec())]);
        }
    }
    assert_eq!(found["link"], b"dir/small.txt");
    assert!(found["array.npy"][128..] == floats());
    assert!(found["pieces.bin"] == pieces());
    let root = store.inode(ROOT).unwrap();
    assert_eq!(root.nlink, 3, "it has one directory");
    let taken = store.taken(&root).unwrap();
    let raw = found["array.npy"].len() + found["pieces.bin"].len();
    assert!(taken.raw > raw as u64 && taken.stored > 0, "{taken:?}");
    assert_eq!((taken.files, taken.dirs), (4, 1));
}

/// Creates the same files with the current code.
fn make(path: &Path) {
    let options = StoreOptions {
        memory: 64 << 20,
        workers: 1,
        owner: (0, 0),
        effort: Effort::Fast,
        purpose: "under test".to_owned(),
        device: DeviceOptions::default(),
        kernel_cache: true,
    };
    let store = Store::open(path, &options).unwrap();
    let file = |name: &[u8]| {
        let node = NewNode {
            mode: S_IFREG | 0o640,
            uid: 0,
            gid: 0,
            rdev: 0,
            chunk_shift: 16,
            target: Vec::new(),
            xattrs: Vec::new(),
        };
        let inode = store.namespace().create(ROOT, name, &node).unwrap();
        store.file(inode.ino).unwrap()
    };
    let fragments = file(b"pieces.bin");
    for (number, piece) in pieces().chunks(8192).enumerate() {
        store
            .write(&fragments, number as u64 * 8192, &piece[..1000])
            .unwrap();
        store.sync(&fragments).unwrap();
    }
    store.close(fragments);
    let array = file(b"array.npy");
    store.write(&array, 0, &[b'h'; 128]).unwrap();
    store.write(&array, 128, &floats()).unwrap();
    store.sync(&array).unwrap();
    let region = Region {
        offset: 128,
        records: 24,
        record: 128 * 128 * 4,
        blocks: vec![Block {
            at: 0,
            width: 4,
            kind: ElementKind::Float,
            order: ByteOrder::Little,
            dims: vec![128, 128],
        }],
    };
    let how = SettleOptions {
        workers: 1,
        effort: Effort::Dense,
        force: true,
        rewrite: true,
        pace: &|_| true,
    };
    store.settle(&array, &[region], &how).unwrap();
    store.close(array);
    store.shut_down().unwrap();
}

#[test]
fn a_new_store_is_as_the_document_says() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path());
    let id = superblock(dir.path(), 3);
    let packs = packs(dir.path(), id, 3);
    catalog(dir.path(), id);
    let (roots, leaves) = maps(&packs);
    assert!(roots > 0 && leaves > 0);
    assert_eq!(gathered(&packs), [[(0, 128)]]);
    let arrays = arrays(&packs);
    assert_eq!(
        (arrays.len(), arrays[0].records, arrays[0].tiles),
        (1, 24, 4)
    );
}
