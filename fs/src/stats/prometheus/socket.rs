//! A listening socket that removes itself.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::peer;
use crate::options::Address;

/// A listening socket. Dropping it removes a Unix socket.
#[derive(Debug)]
pub(super) enum Listener {
    Unix {
        listener: UnixListener,
        path: PathBuf,
        /// Device and inode, so that only this socket is removed.
        id: (u64, u64),
    },
    Loopback(TcpListener),
}

/// A connection.
pub(super) trait Stream: Read + Write + Send {
    /// Sets how long a read or a write may take.
    fn set_timeout(&self, timeout: Duration) -> io::Result<()>;

    /// Whether the client is one of these users, or allowed for another reason.
    fn is_from(&self, users: &[u32]) -> io::Result<bool>;
}

impl Stream for UnixStream {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout))?;
        self.set_write_timeout(Some(timeout))
    }

    /// The kernel has checked the permissions of the socket.
    fn is_from(&self, _users: &[u32]) -> io::Result<bool> {
        Ok(true)
    }
}

impl Stream for TcpStream {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout))?;
        self.set_write_timeout(Some(timeout))
    }

    fn is_from(&self, users: &[u32]) -> io::Result<bool> {
        let user = peer::user_of(self)?;
        Ok(user.is_some_and(|user| users.contains(&user)))
    }
}

impl Listener {
    pub(super) fn bind(address: &Address) -> io::Result<Self> {
        let listener = match address {
            Address::Loopback(address) => Self::Loopback(TcpListener::bind(address)?),
            Address::Unix(path) => Self::bind_unix(path)?,
        };
        // A client may be gone before it is accepted.
        match &listener {
            Self::Unix { listener, .. } => listener.set_nonblocking(true)?,
            Self::Loopback(listener) => listener.set_nonblocking(true)?,
        }
        Ok(listener)
    }

    /// Created under another name and renamed, so that the socket never has other permissions, and
    /// replaces a stale one atomically.
    fn bind_unix(path: &Path) -> io::Result<Self> {
        require_stale(path)?;
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".new-{}", std::process::id()));
        let fresh = PathBuf::from(name);
        match std::fs::remove_file(&fresh) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let listener = UnixListener::bind(&fresh)?;
        let placed = std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o600))
            .and_then(|()| std::fs::symlink_metadata(&fresh))
            .and_then(|metadata| std::fs::rename(&fresh, path).map(|()| metadata));
        match placed {
            Ok(metadata) => Ok(Self::Unix {
                listener,
                path: path.to_owned(),
                id: (metadata.dev(), metadata.ino()),
            }),
            Err(e) => {
                let _ = std::fs::remove_file(&fresh);
                Err(e)
            }
        }
    }

    /// `None` when the client is gone.
    pub(super) fn accept(&self) -> io::Result<Option<Box<dyn Stream>>> {
        let accepted: io::Result<Box<dyn Stream>> = match self {
            Self::Unix { listener, .. } => listener.accept().and_then(|(stream, _)| {
                stream.set_nonblocking(false)?;
                Ok(Box::new(stream) as Box<dyn Stream>)
            }),
            Self::Loopback(listener) => listener.accept().and_then(|(stream, _)| {
                stream.set_nonblocking(false)?;
                Ok(Box::new(stream) as Box<dyn Stream>)
            }),
        };
        match accepted {
            Ok(stream) => Ok(Some(stream)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix { listener, .. } => listener.as_fd(),
            Self::Loopback(listener) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix { path, id, .. } = self
            && std::fs::symlink_metadata(&*path)
                .is_ok_and(|found| (found.dev(), found.ino()) == *id)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Fails if the path holds something that must not be replaced.
fn require_stale(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
        Ok(found) if !found.file_type().is_socket() => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the path exists and is not a socket",
        )),
        Ok(_) => require_silence(path),
    }
}

/// Fails if another process listens. The socket of a killed daemon takes a moment to close.
fn require_silence(path: &Path) -> io::Result<()> {
    const LOOKS: u32 = 20;
    for _ in 0..LOOKS {
        match UnixStream::connect(path) {
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e),
            Ok(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AddrInUse,
        "another process listens there",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_socket_is_replaced_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.sock");
        let address = Address::Unix(path.clone());
        // Left behind by a process that died.
        drop(UnixListener::bind(&path).unwrap());
        let first = Listener::bind(&address).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let busy = Listener::bind(&address).unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::AddrInUse);
        drop(first);
        assert!(!path.exists());
        std::fs::write(&path, "not a socket").unwrap();
        assert!(Listener::bind(&address).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"not a socket");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_socket_of_a_successor_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.sock");
        let old = Listener::bind(&Address::Unix(path.clone())).unwrap();
        std::fs::remove_file(&path).unwrap();
        let _new = UnixListener::bind(&path).unwrap();
        drop(old);
        assert!(path.exists());
    }
}
