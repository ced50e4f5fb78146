//! Chunks whose parts differ: noise beside long runs, the ends of sparse files.

use shale_codec::{Decoder, Effort, Encoder, FrameKind, FrameMeta, Hint};

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

/// Every effort brings back chunks in which noise and runs meet anywhere.
#[test]
fn noise_beside_runs_comes_back() {
    let meta = FrameMeta {
        kind: FrameKind::Data,
        inode: 1,
        offset: 0,
        sequence: 1,
    };
    let efforts = [
        Effort::None,
        Effort::Fast,
        Effort::Balanced,
        Effort::Dense,
        Effort::Lz4,
        Effort::Zstd(3),
    ];
    for effort in efforts {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
        for total in [4096, 65_536, 1 << 20] {
            for len in [1, 10, 700, 5_000, 70_000, 600_000] {
                for at in [0, 1, 4095, 300_000] {
                    for fill in [0u8, 7] {
                        let mut raw = vec![fill; total];
                        let start = at.min(total);
                        let end = (start + len).min(total);
                        raw[start..end].copy_from_slice(&noise(end - start, len as u64));
                        let mut frame = Vec::new();
                        encoder
                            .encode(&meta, &Hint::Unknown, effort, &raw, &mut frame)
                            .unwrap();
                        let mut back = Vec::new();
                        decoder.decode(&frame, &mut back).unwrap_or_else(|e| {
                            panic!("{effort}: {len} bytes of noise at {at} of {total}: {e}")
                        });
                        assert!(back == raw, "{effort}: {len} at {at} of {total}");
                    }
                }
            }
        }
    }
}

/// The first bytes of a frame describe it as well as all of it; a frame truncated inside its
/// directory cannot be described.
#[test]
fn the_head_of_a_frame_describes_it() {
    let meta = FrameMeta {
        kind: FrameKind::Data,
        inode: 1,
        offset: 0,
        sequence: 1,
    };
    let raw: Vec<u8> = (0..100_000u32)
        .flat_map(|i| (i as f32).sin().to_le_bytes())
        .collect();
    let mut frame = Vec::new();
    Encoder::new()
        .encode(&meta, &Hint::Unknown, Effort::Fast, &raw, &mut frame)
        .unwrap();
    let header = shale_codec::parse_header(&frame).unwrap();
    let head = shale_codec::HEADER_LEN + header.directory_len as usize;
    assert!(head < frame.len());
    assert_eq!(
        shale_codec::describe_head(&frame[..head]).unwrap(),
        shale_codec::describe(&frame).unwrap()
    );
    for cut in [0, 63, 64, head - 1] {
        assert!(shale_codec::describe_head(&frame[..cut]).is_err());
    }
}
