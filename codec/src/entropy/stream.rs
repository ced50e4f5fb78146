//! Codes one stream by one general-purpose coder, and back.
#![forbid(unsafe_code)]

use lz4_flex::block::{self as lz4, CompressTable};
use zstd::zstd_safe::{self, CCtx, CParameter, DCtx, DParameter, FrameFormat, ParamSwitch};

use crate::checksum::hash32;
use crate::entropy::sparse;
use crate::error::Error;
use crate::frame::{Coder, Filter, StreamEntry};
use crate::transform::runs::leading;

/// How a stream is to be coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Raw,
    Runs,
    Gaps,
    Entropy,
    Lz4,
    /// Zstd with long matches only: fast both ways.
    Quick,
    Zstd(i32),
}

/// Compressors with their state, reused from stream to stream.
pub(crate) struct StreamEncoder {
    entropy: Option<CCtx<'static>>,
    quick: Option<CCtx<'static>>,
    zstd: Option<(i32, CCtx<'static>)>,
    lz4: Option<CompressTable>,
    /// Where a stream is coded before it is known to gain.
    room: Vec<u8>,
    tokens: Vec<u8>,
}

/// The lowest level: zstd skips over everything instead of looking for matches.
const ENTROPY_LEVEL: i32 = -131_072;

impl StreamEncoder {
    pub(crate) fn new() -> Self {
        StreamEncoder {
            entropy: None,
            quick: None,
            zstd: None,
            lz4: None,
            room: Vec::new(),
            tokens: Vec::new(),
        }
    }

    /// Appends `bytes` to `out`, coded as `fate` says, or uncoded if that gains
    /// nothing.
    pub(crate) fn encode(
        &mut self,
        fate: Fate,
        filter: Filter,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<StreamEntry, Error> {
        let begin = out.len();
        let mut coder = Coder::Raw;
        if !bytes.is_empty() && is_constant(bytes) {
            out.push(bytes[0]);
            coder = Coder::Constant;
        } else if fate != Fate::Raw && bytes.len() > 1 {
            let room = &mut self.room;
            let worst = lz4::get_maximum_output_size(bytes.len());
            if room.len() < worst {
                room.resize(worst, 0);
            }
            // A result longer than the input is useless, so it gets no room;
            // but the LZ4 encoder requires room for the worst case.
            let mut room = std::mem::take(room);
            let limit = bytes.len() - 1;
            let done = match fate {
                Fate::Raw => None,
                Fate::Runs => match encode_runs(bytes, &mut room[..bytes.len() / 64]) {
                    Some(len) => Some((Coder::Runs, len)),
                    // More runs than expected.
                    None => self
                        .quick()?
                        .compress2(&mut room[..limit], bytes)
                        .ok()
                        .map(|len| (Coder::Zstd, len)),
                },
                Fate::Gaps => sparse::encode(bytes, &mut self.tokens, &mut room[..limit])
                    .map(|len| (Coder::Gaps, len)),
                Fate::Entropy => self
                    .entropy()?
                    .compress2(&mut room[..limit], bytes)
                    .ok()
                    .map(|len| (Coder::Entropy, len)),
                Fate::Quick => self
                    .quick()?
                    .compress2(&mut room[..limit], bytes)
                    .ok()
                    .map(|len| (Coder::Zstd, len)),
                Fate::Zstd(level) => self
                    .zstd(level)?
                    .compress2(&mut room[..limit], bytes)
                    .ok()
                    .map(|len| (Coder::Zstd, len)),
                Fate::Lz4 => {
                    let table = self.lz4.get_or_insert_with(CompressTable::large);
                    lz4::compress_into_with_table(bytes, &mut room, table)
                        .ok()
                        .map(|len| (Coder::Lz4, len))
                }
            };
            match done {
                Some((by, len)) if len < bytes.len() => {
                    coder = by;
                    out.extend_from_slice(&room[..len]);
                }
                _ => {}
            }
            self.room = room;
        }
        if coder == Coder::Raw {
            out.extend_from_slice(bytes);
        }
        Ok(StreamEntry {
            coder,
            filter,
            raw_len: bytes.len() as u32,
            stored_len: (out.len() - begin) as u32,
            check: hash32(&out[begin..]),
        })
    }

    /// Length of the bytes under LZ4: a quick test for repeats.
    pub(crate) fn lz4_len(&mut self, bytes: &[u8], room: &mut Vec<u8>) -> usize {
        let table = self.lz4.get_or_insert_with(CompressTable::large);
        room.resize(lz4::get_maximum_output_size(bytes.len()), 0);
        lz4::compress_into_with_table(bytes, room, table).unwrap_or(usize::MAX)
    }

    fn entropy(&mut self) -> Result<&mut CCtx<'static>, Error> {
        if self.entropy.is_none() {
            let mut context = new_context(ENTROPY_LEVEL)?;
            context
                .set_parameter(CParameter::LiteralCompressionMode(ParamSwitch::Enable))
                .map_err(zstd_error)?;
            self.entropy = Some(context);
        }
        self.entropy
            .as_mut()
            .ok_or(Error::Malformed("no entropy coder"))
    }

    fn quick(&mut self) -> Result<&mut CCtx<'static>, Error> {
        if self.quick.is_none() {
            let mut context = new_context(1)?;
            context
                .set_parameter(CParameter::MinMatch(7))
                .map_err(zstd_error)?;
            self.quick = Some(context);
        }
        self.quick.as_mut().ok_or(Error::Malformed("no zstd"))
    }

    fn zstd(&mut self, level: i32) -> Result<&mut CCtx<'static>, Error> {
        match &mut self.zstd {
            Some((have, _)) if *have == level => {}
            Some((have, context)) => {
                context
                    .set_parameter(CParameter::CompressionLevel(level))
                    .map_err(zstd_error)?;
                *have = level;
            }
            None => self.zstd = Some((level, new_context(level)?)),
        }
        self.zstd
            .as_mut()
            .map(|(_, context)| context)
            .ok_or(Error::Malformed("no zstd"))
    }
}

fn new_context(level: i32) -> Result<CCtx<'static>, Error> {
    let mut context = CCtx::try_create().ok_or(Error::Coder {
        coder: "zstd",
        reason: "out of memory",
    })?;
    for parameter in [
        CParameter::CompressionLevel(level),
        CParameter::Format(FrameFormat::Magicless),
        CParameter::ChecksumFlag(false),
        CParameter::ContentSizeFlag(false),
    ] {
        context.set_parameter(parameter).map_err(zstd_error)?;
    }
    Ok(context)
}

fn zstd_error(code: zstd_safe::ErrorCode) -> Error {
    Error::Coder {
        coder: "zstd",
        reason: zstd_safe::get_error_name(code),
    }
}

/// Checks the stored bytes of a stream.
pub(crate) fn verify(entry: &StreamEntry, stored: &[u8]) -> Result<(), Error> {
    let found = hash32(stored);
    if found != entry.check {
        return Err(Error::Checksum {
            part: "stream",
            expected: u64::from(entry.check),
            found: u64::from(found),
        });
    }
    Ok(())
}

/// Decompressors with their state.
pub(crate) struct StreamDecoder {
    zstd: Option<DCtx<'static>>,
}

impl StreamDecoder {
    pub(crate) fn new() -> Self {
        StreamDecoder { zstd: None }
    }

    /// Checks `stored` and fills `out`, whose length is the stream's decoded
    /// length, undoing the coder but not the filter.
    pub(crate) fn decode(
        &mut self,
        entry: &StreamEntry,
        stored: &[u8],
        out: &mut [u8],
    ) -> Result<(), Error> {
        verify(entry, stored)?;
        if entry.raw_len as usize != out.len() {
            return Err(Error::Malformed("stream of unexpected length"));
        }
        match entry.coder {
            Coder::Raw if stored.len() == out.len() => out.copy_from_slice(stored),
            Coder::Raw => return Err(Error::Malformed("raw stream of a different length")),
            Coder::Rans => return Err(Error::Malformed("classes where bytes are expected")),
            Coder::Constant => match stored {
                [byte] => out.fill(*byte),
                _ => return Err(Error::Malformed("constant stream is not one byte")),
            },
            Coder::Runs => decode_runs(stored, out)?,
            Coder::Gaps => sparse::decode(stored, out)?,
            Coder::Lz4 => match lz4::decompress_into(stored, out) {
                Ok(len) if len == out.len() => {}
                Ok(_) => return Err(Error::Malformed("lz4 stream is short")),
                Err(_) => {
                    return Err(Error::Coder {
                        coder: "lz4",
                        reason: "corrupt block",
                    });
                }
            },
            Coder::Entropy | Coder::Zstd => {
                let len = self.zstd()?.decompress(out, stored).map_err(zstd_error)?;
                if len != out.len() {
                    return Err(Error::Malformed("zstd stream is short"));
                }
            }
        }
        Ok(())
    }

    fn zstd(&mut self) -> Result<&mut DCtx<'static>, Error> {
        if self.zstd.is_none() {
            let mut context = DCtx::try_create().ok_or(Error::Coder {
                coder: "zstd",
                reason: "out of memory",
            })?;
            context
                .set_parameter(DParameter::Format(FrameFormat::Magicless))
                .map_err(zstd_error)?;
            self.zstd = Some(context);
        }
        self.zstd.as_mut().ok_or(Error::Malformed("no zstd"))
    }
}

fn is_constant(bytes: &[u8]) -> bool {
    // The first few bytes nearly always decide.
    bytes.len() < 2 || (bytes[0] == bytes[1] && bytes[..bytes.len() - 1] == bytes[1..])
}

fn encode_runs(bytes: &[u8], room: &mut [u8]) -> Option<usize> {
    let mut at = 0;
    let mut rest = bytes;
    while let Some(&byte) = rest.first() {
        let run = leading(rest, byte);
        rest = &rest[run..];
        *room.get_mut(at)? = byte;
        at += 1;
        let mut left = run - 1;
        loop {
            let low = (left & 0x7F) as u8;
            left >>= 7;
            *room.get_mut(at)? = if left == 0 { low } else { low | 0x80 };
            at += 1;
            if left == 0 {
                break;
            }
        }
    }
    Some(at)
}

fn decode_runs(stored: &[u8], out: &mut [u8]) -> Result<(), Error> {
    const SHORT: Error = Error::Malformed("runs end early");
    let mut at = 0;
    let mut filled = 0;
    while filled < out.len() {
        let byte = *stored.get(at).ok_or(SHORT)?;
        at += 1;
        let mut run = 0usize;
        for shift in (0..28).step_by(7) {
            let part = *stored.get(at).ok_or(SHORT)?;
            at += 1;
            run |= ((part & 0x7F) as usize) << shift;
            if part < 0x80 {
                break;
            }
        }
        let target = out
            .get_mut(filled..filled + run + 1)
            .ok_or(Error::Malformed("runs longer than the stream"))?;
        target.fill(byte);
        filled += run + 1;
    }
    if at != stored.len() {
        return Err(Error::Malformed("bytes after the last run"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_coder_gives_the_bytes_back() {
        let mut bytes = vec![7; 300];
        bytes.extend((0..2000u32).map(|i| ((i * i) >> 5) as u8 & 15));
        bytes.extend([0; 70_000]);
        let mut encoder = StreamEncoder::new();
        let mut decoder = StreamDecoder::new();
        for fate in [
            Fate::Raw,
            Fate::Runs,
            Fate::Gaps,
            Fate::Entropy,
            Fate::Lz4,
            Fate::Quick,
            Fate::Zstd(1),
            Fate::Zstd(9),
        ] {
            let mut out = vec![1, 2, 3];
            let entry = encoder
                .encode(fate, Filter::None, &bytes, &mut out)
                .unwrap();
            assert!(
                fate == Fate::Raw || out.len() < bytes.len() / 4,
                "{fate:?} {}",
                out.len()
            );
            let mut back = vec![0; bytes.len()];
            decoder.decode(&entry, &out[3..], &mut back).unwrap();
            assert_eq!(back, bytes, "{fate:?}");
        }
    }
}
