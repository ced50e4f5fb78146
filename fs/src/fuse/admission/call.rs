//! How many bytes a thread that waits for an answer is about to write.
//!
//! The kernel asks once for a call of `write`, whatever its length, and does not pass on the
//! length. The thread waits in that call meanwhile, so the daemon can look up its arguments.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// Most that one call can write.
const MOST: u64 = 0x7fff_f000;
/// Pieces of a vectored write at most, and the size of the description of one.
const PIECES: u64 = 1024;
const PIECE: usize = 16;

/// The call of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Write this number of bytes.
    Write(u64),
    /// Read, or seek in the file.
    Read,
    /// Something else.
    Other,
    /// The daemon is not allowed to look: the thread is another user's, or the system forbids it.
    Hidden,
}

/// The call of a thread that waits for an answer.
pub(super) fn of(thread: u32) -> Call {
    match fs::read_to_string(format!("/proc/{thread}/syscall")) {
        Ok(text) => understand(thread, &text).unwrap_or(Call::Other),
        Err(_) => Call::Hidden,
    }
}

fn understand(thread: u32, text: &str) -> Option<Call> {
    let (number, arguments) = parse(text)?;
    let argument = |index: usize| arguments.get(index).copied();
    let bytes = match number {
        libc::SYS_read
        | libc::SYS_pread64
        | libc::SYS_readv
        | libc::SYS_preadv
        | libc::SYS_preadv2
        | libc::SYS_lseek => return Some(Call::Read),
        libc::SYS_write | libc::SYS_pwrite64 => argument(2)?,
        libc::SYS_sendfile => argument(3)?,
        libc::SYS_splice => argument(4)?,
        libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2 => {
            vector(thread, argument(1)?, argument(2)?)?
        }
        _ => return None,
    };
    Some(Call::Write(bytes.min(MOST)))
}

/// The number and the arguments of a call.
fn parse(text: &str) -> Option<(i64, Vec<u64>)> {
    let mut words = text.split_whitespace();
    let number = words.next()?.parse().ok()?;
    let arguments = words
        .take(6)
        .map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok());
    Some((number, arguments.collect::<Option<_>>()?))
}

/// The total length of the pieces of a vectored write.
fn vector(thread: u32, address: u64, pieces: u64) -> Option<u64> {
    let mut bytes = vec![0; pieces.min(PIECES) as usize * PIECE];
    let memory = File::open(format!("/proc/{thread}/mem")).ok()?;
    memory.read_exact_at(&mut bytes, address).ok()?;
    let lengths = bytes.chunks_exact(PIECE).map(|piece| {
        let (_, length) = piece.split_at(PIECE / 2);
        u64::from_ne_bytes(length.try_into().unwrap_or_default())
    });
    Some(lengths.fold(0, u64::saturating_add))
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Write};
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_line_of_the_kernel_is_understood() {
        let line = "1 0x3 0x7f00 0x2000 0x0 0x0 0x0 0x7ffd 0x7f12";
        assert_eq!(parse(line), Some((1, vec![3, 0x7f00, 0x2000, 0, 0, 0])));
        assert_eq!(parse("running"), None);
        assert_eq!(parse(""), None);
    }

    /// The call seen of a thread that is stuck on a full pipe.
    fn seen(call: impl FnOnce(&mut std::io::PipeWriter) + Send + 'static) -> Call {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let (send, receive) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            send.send(nix::unistd::gettid().as_raw() as u32).unwrap();
            call(&mut writer);
        });
        let id = receive.recv().unwrap();
        let mut found = of(id);
        while !matches!(found, Call::Write(bytes) if bytes >= 1 << 20)
            && found != Call::Hidden
            && !thread.is_finished()
        {
            std::thread::sleep(Duration::from_millis(1));
            found = of(id);
        }
        drop(reader);
        let _ = thread.join();
        found
    }

    #[test]
    fn a_call_in_progress_tells_its_length() {
        let once = seen(|pipe| drop(pipe.write(&vec![1; 3 << 20])));
        let pieces = seen(|pipe| {
            let (a, b) = (vec![1; 1 << 20], vec![2; 2 << 20]);
            drop(pipe.write_vectored(&[IoSlice::new(&a), IoSlice::new(&b)]));
        });
        // Some systems let no process look at another one.
        assert!(
            [Call::Write(3 << 20), Call::Hidden].contains(&once),
            "{once:?}"
        );
        assert_eq!(pieces, once);
    }
}
