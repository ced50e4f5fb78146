//! The user at the other end of a connection on the loopback interface.
//!
//! That socket is on this machine and in this network namespace. The kernel lists it, with the user
//! who created it, in `/proc/net/tcp` or, if it speaks IPv4 through IPv6, in `/proc/net/tcp6`.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream};

/// How often the list is read: one that changes meanwhile may lack a socket.
const LOOKS: u32 = 3;
const ESTABLISHED: &str = "01";

/// The user at the other end; `None` if it is closed.
pub(super) fn user_of(stream: &TcpStream) -> io::Result<Option<u32>> {
    let (theirs, ours) = (stream.peer_addr()?, stream.local_addr()?);
    for _ in 0..LOOKS {
        for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
            let table = match std::fs::read_to_string(table) {
                // A machine without IPv6 has no such list.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                read => read?,
            };
            if let Some(user) = find(&table, theirs, ours) {
                return Ok(Some(user));
            }
        }
    }
    Ok(None)
}

/// Looks for the socket whose own address is `local`. Only a connected socket counts: the kernel
/// lists a closed one with user 0.
fn find(table: &str, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    let (local, remote) = (spellings(local), spellings(remote));
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (from, to) = (fields.next()?, fields.next()?);
        let known =
            local.iter().any(|known| known == from) && remote.iter().any(|known| known == to);
        let state = fields.next()?;
        let user = fields.nth(3)?;
        (known && state == ESTABLISHED).then(|| user.parse().ok())?
    })
}

/// An address in the notation of either list.
fn spellings(address: SocketAddr) -> [String; 2] {
    let words = |bytes: &[u8]| -> String {
        bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|&word| format!("{:08X}", u32::from_ne_bytes(word)))
            .collect()
    };
    let long = |ip: Ipv6Addr| words(&ip.octets());
    let [short, long] = match address.ip() {
        IpAddr::V4(ip) => [words(&ip.octets()), long(ip.to_ipv6_mapped())],
        IpAddr::V6(ip) => [long(ip), long(ip)],
    };
    [short, long].map(|ip| format!("{ip}:{:04X}", address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn the_user_of_a_connection_is_found() {
        let own = nix::unistd::geteuid().as_raw();
        for address in ["127.0.0.1:0", "127.3.2.1:0", "[::1]:0"] {
            // A machine may have no IPv6.
            let Ok(listener) = TcpListener::bind(address) else {
                continue;
            };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, _) = listener.accept().unwrap();
            assert_eq!(user_of(&server).unwrap(), Some(own), "{address}");
            drop(client);
            assert_eq!(user_of(&server).unwrap(), None, "{address}, closed");
        }
    }

    const HEAD: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    fn line(local: &str, remote: &str, state: &str, user: &str) -> String {
        format!(
            "   3: {local} {remote} {state} 00000000:00000000 00:00000000 00000000 {user} 0 4711 1\n"
        )
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn only_the_other_end_of_this_connection_counts() {
        let (theirs, ours) = ("127.0.0.1:40000", "127.0.0.1:9460");
        let look = |lines: &[String]| {
            let table = HEAD.to_owned() + &lines.concat();
            find(&table, theirs.parse().unwrap(), ours.parse().unwrap())
        };
        let (a, b) = ("0100007F:9C40", "0100007F:24F4");
        assert_eq!(look(&[line(a, b, "01", " 1001")]), Some(1001));
        // Our own end of it, another port, another address, one that waits to be forgotten.
        assert_eq!(look(&[line(b, a, "01", "0")]), None);
        assert_eq!(look(&[line("0100007F:9C41", b, "01", "0")]), None);
        assert_eq!(look(&[line("0200007F:9C40", b, "01", "0")]), None);
        for state in ["02", "03", "04", "05", "06", "08"] {
            assert_eq!(look(&[line(a, b, state, "0")]), None, "{state}");
        }
        let mapped = "0000000000000000FFFF0000";
        let (a, b) = (format!("{mapped}{a}"), format!("{mapped}{b}"));
        assert_eq!(look(&[line(&a, &b, "01", "1001")]), Some(1001));
        assert_eq!(look(&["nonsense\n".to_owned(), String::new()]), None);
    }
}
