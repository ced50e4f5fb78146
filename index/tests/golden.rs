//! Keys and values of the index as docs/store-format.md has them: fixed bytes.

use shale_index::extent::{
    Extent, FramePart, PackBytes, PackId, Place, TilePart, decode_extents, encode_extents,
};
use shale_index::schema::{
    CommitRecord, Dentry, Effect, RecordId, Rollup, S_IFREG, Time, decode_freed, decode_number,
    encode_freed, encode_number, keys, totals,
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
    let time = |secs| Time { secs, nanos: 5 };
    let times = (time(1), time(-2));
    let record = |effect| CommitRecord {
        extents: extents(),
        effect,
    };
    let written = Effect::Written {
        reached: 300,
        times,
        stored: 7,
    };
    let cut = Effect::Cut { size: 300, times };
    for (effect, head) in [
        (Effect::Laid, "0200"),
        (written, "0201ac020205030507"),
        (cut, "0202ac0202050305"),
    ] {
        let bytes = record(effect).encode();
        let (found, list) = bytes.split_at(head.len() / 2);
        assert_eq!(hex(found), head);
        assert_eq!(list, encode_extents(&extents()));
        assert_eq!(CommitRecord::decode(&bytes), Some(record(effect)));
    }
    let mut old = vec![1];
    old.extend(encode_extents(&extents()));
    assert_eq!(
        CommitRecord::decode(&old),
        Some(record(Effect::Laid)),
        "of format 2"
    );
}

#[test]
fn small_records_stay_as_they_are() {
    let dentry = Dentry {
        ino: 300,
        kind: S_IFREG,
    };
    assert_eq!(hex(&dentry.encode()), "01ac02808002");
    let old = [0x01, 0xe8, 0x07, 0x80, 0x01, 0x03, 0x01];
    let totals = Rollup {
        raw: 1000,
        stored: 128,
        files: 3,
        dirs: 1,
    };
    assert_eq!(Rollup::decode_old(&old), Some(totals), "of format 2");
    let counter = totals.as_delta().counter();
    let counter = counter.plus(&totals::touched(2, Time { secs: 1, nanos: 0 }));
    assert_eq!(hex(&counter.encode()), "c180a8d6b907d00f8002060204");
    let freed = [PackBytes {
        pack: PackId(300),
        bytes: 5,
    }];
    assert_eq!(hex(&encode_freed(&freed)), "0101ac0205");
    assert_eq!(decode_freed(&encode_freed(&freed)), Some(freed.to_vec()));
    assert_eq!(hex(&encode_number(16_777_216)), "0180808008");
    assert_eq!(decode_number(&encode_number(u64::MAX)), Some(u64::MAX));
}

#[test]
fn keys_stay_as_they_are() {
    assert_eq!(hex(&keys::inode(258)), "690000000000000102");
    let id = RecordId { session: 2, seq: 3 };
    assert_eq!(
        hex(&keys::record(1, id)),
        "69000000000000000100000000000000020000000000000003"
    );
    assert_eq!(hex(&keys::totals(258)), "6900000000000001022b");
    assert_eq!(hex(&keys::pack(PackId(258))), "700000000000000102");
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
