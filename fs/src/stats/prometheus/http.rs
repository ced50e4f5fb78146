//! The part of HTTP/1.1 that a scraper needs: one GET per connection, one answer.

use std::io;
use std::time::{Duration, Instant};

use super::socket::Stream;

/// Most bytes of a request, which has no body.
const REQUEST_MAX: usize = 8 << 10;
/// How long a client may take to send its request, and to read the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The request of a client.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    Metrics,
    /// Anything else: the status and a message.
    Refused(&'static str, &'static str),
}

/// Serves one connection. `body` returns the metrics, for `users` only.
pub(super) fn serve(
    stream: &mut dyn Stream,
    users: &[u32],
    body: impl FnOnce() -> Option<String>,
) -> io::Result<()> {
    // Now, while the client is certainly connected: it may close its end early.
    let allowed = stream.is_from(users)?;
    let wish = match read_head(stream)? {
        Some(_) if !allowed => Wish::Refused(
            "403 Forbidden",
            "only root, the user of the daemon and the users of -o metrics_users may read the metrics\n",
        ),
        Some(head) => understand(&head),
        None => Wish::Refused(
            "431 Request Header Fields Too Large",
            "the request is too long\n",
        ),
    };
    let deadline = Instant::now() + PATIENCE;
    match wish {
        Wish::Metrics => match body() {
            Some(text) => {
                let kind = "text/plain; version=0.0.4; charset=utf-8";
                reply(stream, deadline, "200 OK", kind, &text)
            }
            None => {
                let text = "the store does not answer; read the log of the mount\n";
                reply(stream, deadline, "503 Service Unavailable", PLAIN, text)
            }
        },
        Wish::Refused(status, text) => reply(stream, deadline, status, PLAIN, text),
    }
}

const PLAIN: &str = "text/plain; charset=utf-8";

/// Everything up to the empty line; `None` if that is too long.
fn read_head(stream: &mut dyn Stream) -> io::Result<Option<Vec<u8>>> {
    let deadline = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        stream.set_timeout(left(deadline)?)?;
        let count = match stream.read(&mut buffer) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        // The client closed before the end of its request.
        if count == 0 {
            return Ok(Some(head));
        }
        head.extend_from_slice(buffer.get(..count).unwrap_or_default());
        if is_complete(&head) {
            return Ok(Some(head));
        }
        if head.len() > REQUEST_MAX {
            return Ok(None);
        }
    }
}

fn is_complete(head: &[u8]) -> bool {
    head.windows(4).any(|end| end == b"\r\n\r\n") || head.windows(2).any(|end| end == b"\n\n")
}

fn left(deadline: Instant) -> io::Result<Duration> {
    match deadline.checked_duration_since(Instant::now()) {
        Some(left) if !left.is_zero() => Ok(left),
        _ => Err(io::ErrorKind::TimedOut.into()),
    }
}

fn understand(head: &[u8]) -> Wish {
    const BAD: Wish = Wish::Refused("400 Bad Request", "this is not HTTP\n");
    let Some(line) = head.split(|&byte| byte == b'\n').next() else {
        return BAD;
    };
    let Ok(line) = std::str::from_utf8(line) else {
        return BAD;
    };
    let words: Vec<&str> = line.trim_end_matches('\r').split(' ').collect();
    match words[..] {
        [method, target, version] if version.starts_with("HTTP/1.") => {
            let path = target.split('?').next().unwrap_or_default();
            match (method, path) {
                ("GET", "/metrics") => Wish::Metrics,
                ("GET", _) => Wish::Refused("404 Not Found", "metrics are at /metrics\n"),
                _ => Wish::Refused("405 Method Not Allowed", "only GET is served here\n"),
            }
        }
        _ => BAD,
    }
}

fn reply(
    stream: &mut dyn Stream,
    deadline: Instant,
    status: &str,
    kind: &str,
    text: &str,
) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nAllow: GET\r\n\
         Connection: close\r\n\r\n",
        text.len()
    );
    for mut rest in [head.as_bytes(), text.as_bytes()] {
        while !rest.is_empty() {
            stream.set_timeout(left(deadline)?)?;
            match stream.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
    stream.flush()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    struct Fake {
        user: u32,
        request: io::Cursor<Vec<u8>>,
        answer: Vec<u8>,
    }

    impl Read for Fake {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            // Byte by byte, as a slow client sends it.
            let some = buf.len().min(7);
            self.request.read(&mut buf[..some])
        }
    }

    impl Write for Fake {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            let some = buf.len().min(11);
            self.answer.extend_from_slice(&buf[..some]);
            Ok(some)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Stream for Fake {
        fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
            assert!(!timeout.is_zero());
            Ok(())
        }

        fn is_from(&self, users: &[u32]) -> io::Result<bool> {
            Ok(users.contains(&self.user))
        }
    }

    fn answer(request: &[u8]) -> String {
        answer_to(7, request)
    }

    fn answer_to(user: u32, request: &[u8]) -> String {
        let mut fake = Fake {
            user,
            request: io::Cursor::new(request.to_vec()),
            answer: Vec::new(),
        };
        serve(&mut fake, &[0, 7], || Some("up 1\n".to_owned())).unwrap();
        String::from_utf8(fake.answer).unwrap()
    }

    #[test]
    fn a_scraper_gets_its_numbers() {
        for request in [
            &b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"[..],
            b"GET /metrics?x=y HTTP/1.0\r\n\r\n",
            b"GET /metrics HTTP/1.1\n\n",
        ] {
            let answer = answer(request);
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            assert!(answer.contains("Content-Length: 5\r\n"));
            assert!(answer.ends_with("\r\n\r\nup 1\n"));
        }
    }

    #[test]
    fn a_user_who_may_not_see_them_learns_nothing() {
        for request in [
            &b"GET /metrics HTTP/1.1\r\n\r\n"[..],
            b"GET / HTTP/1.1\n\n",
            b"",
        ] {
            let answer = answer_to(8, request);
            assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{answer}");
            assert!(!answer.contains("up 1"));
        }
    }

    #[test]
    fn everything_else_is_refused() {
        let long = [b"GET /metrics HTTP/1.1\r\nX: ".to_vec(), vec![b'x'; 20_000]].concat();
        for (request, status) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "404"),
            (b"GET /metrics/../etc HTTP/1.1\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"GET /metrics\r\n\r\n", "400"),
            (b"", "400"),
            (b"\r\n\r\n", "400"),
            (b"\xff\xfe\x00 a b\n\n", "400"),
            (b"GET /metrics HTTP/2\r\n\r\n", "400"),
            (&long, "431"),
        ] {
            let answer = answer(request);
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{:?}: {answer}",
                String::from_utf8_lossy(request)
            );
            assert!(!answer.contains("up 1"));
        }
    }
}
