//! Keys and values of the index as docs/store-format.md has them: fixed bytes.

use shale_index::extent::{
    Extent, FramePart, PackId, Place, TilePart, decode_extents, encode_extents,
};
use shale_index::schema::{
    CommitRecord, Dentry, Rollup, S_IFREG, decode_number, encode_number, keys,
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A hole, a part of a frame, a part of an array of tiles.
fn extents() -> Vec<Extent> {
    let pack = PackId::new(1, 2);
    vec![
        Extent {
            offset: 0,
            len: 300,
            place: Place::Hole,
        },
        Extent {
            offset: 300,
            len: 1000,
            place: Place::Frame(FramePart {
                pack,
                at: 64,
                frame_len: 500,
                raw_len: 2000,
                skip: 128,
            }),
        },
        Extent {
            offset: 1300,
            len: 4,
            place: Place::Tiles(TilePart {
                pack,
                at: 900,
                frame_len: 70,
                directory_len: 23,
                body: 336,
                raw_len: 1 << 20,
                skip: 16,
            }),
        },
    ]
}

#[test]
fn a_list_of_extents_stays_as_it_is() {
    let list = extents();
    let bytes = encode_extents(&list);
    assert_eq!(
        hex(&bytes),
        concat!(
            "03",
            "0000ac02",
            "01ac02e807",
            "82808008",
            "40f403d00f8001",
            "02940a04",
            "82808008",
            "84074617d00280804010",
        )
    );
    assert_eq!(decode_extents(&bytes), Some(list));
}

#[test]
fn a_commit_record_stays_as_it_is() {
    let record = CommitRecord { extents: extents() };
    let bytes = record.encode();
    assert_eq!(bytes[0], 1);
    assert_eq!(bytes[1..], encode_extents(&extents()));
    assert_eq!(CommitRecord::decode(&bytes), Some(record));
}

#[test]
fn small_records_stay_as_they_are() {
    let dentry = Dentry {
        ino: 300,
        kind: S_IFREG,
    };
    assert_eq!(hex(&dentry.encode()), "01ac02808002");
    let totals = Rollup {
        raw: 1000,
        stored: 128,
        files: 3,
        dirs: 1,
    };
    assert_eq!(hex(&totals.encode()), "01e80780010301");
    assert_eq!(hex(&encode_number(16_777_216)), "0180808008");
    assert_eq!(decode_number(&encode_number(u64::MAX)), Some(u64::MAX));
}

#[test]
fn keys_stay_as_they_are() {
    assert_eq!(hex(&keys::inode(258)), "690000000000000102");
    let commit = keys::commit(1, 2, 3);
    assert_eq!(
        hex(&commit),
        "63000000000000000100000000000000020000000000000003"
    );
    // As the store in store/tests/golden has them.
    for (name, hash) in [
        (&b"pieces.bin"[..], 0x4b_2a2b_ee02_18cc),
        (b"array.npy", 0x8c_c234_9499_c72e),
        (b"small.txt", 0x15_2139_bc32_daff),
    ] {
        assert_eq!(keys::name_hash(name), hash);
    }
    let dentry = keys::dentry(1, b"array.npy");
    assert_eq!(
        hex(&dentry),
        "6400000000000000018cc2349499c72e61727261792e6e7079"
    );
}
