//! Where metrics are served.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// A Unix socket, or a port on the loopback interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `unix:/PATH`
    Unix(PathBuf),
    /// `127.0.0.1:PORT` or `[::1]:PORT`
    Loopback(SocketAddr),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const WANTED: &str = "give unix:/PATH, 127.0.0.1:PORT or [::1]:PORT";
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return if path.is_absolute() && path.file_name().is_some() {
                Ok(Self::Unix(path))
            } else {
                Err(format!(
                    "metrics '{text}' needs the absolute path of a socket; {WANTED}"
                ))
            };
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if !address.ip().is_loopback() => Err(format!(
                "metrics '{text}' could be reached from other machines; {WANTED}, and let other \
                 machines in through a proxy that asks for a password"
            )),
            Ok(address) => Ok(Self::Loopback(address)),
            Err(_) => Err(format!("metrics '{text}' is not an address; {WANTED}")),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Loopback(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_this_machine_can_reach() {
        for good in [
            "unix:/run/shale.sock",
            "127.0.0.1:9460",
            "127.8.8.8:1",
            "[::1]:9460",
        ] {
            assert_eq!(good.parse::<Address>().unwrap().to_string(), good);
        }
        for (bad, word) in [
            ("0.0.0.0:9460", "other machines"),
            ("192.0.2.7:9460", "other machines"),
            ("[::]:9460", "other machines"),
            ("[2001:db8::1]:9460", "other machines"),
            ("localhost:9460", "not an address"),
            ("9460", "not an address"),
            ("", "not an address"),
            ("127.0.0.1", "not an address"),
            ("127.0.0.1:99999", "not an address"),
            ("unix:run/shale.sock", "absolute"),
            ("unix:", "absolute"),
            ("unix:/", "absolute"),
        ] {
            let error = bad.parse::<Address>().unwrap_err();
            assert!(error.contains(word), "{bad}: {error}");
            assert!(!error.contains('\n'));
        }
    }
}
