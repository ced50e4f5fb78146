//! Certificates, and where connections without them are allowed.

use std::net::IpAddr;
use std::path::PathBuf;

use etcd_client::{Certificate, Identity, TlsOptions};

use super::EtcdOptions;
use crate::Error;

/// The port on which etcd listens for clients.
const PORT: u16 = 2379;

/// Files in PEM format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The authority that signed the certificates of the members.
    pub ca: PathBuf,
    /// The certificate of this client and its key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// A member, as the client library wants it.
#[derive(Clone, Debug)]
pub(super) struct Address {
    pub(super) url: String,
    pub(super) tls: Option<TlsOptions>,
}

/// The addresses that the options name.
///
/// # Errors
/// [`Error::Refused`] when one cannot be used, or a file of a certificate cannot be read.
pub(super) fn addresses(options: &EtcdOptions) -> Result<Vec<Address>, Error> {
    if options.endpoints.is_empty() {
        return Err(Error::Refused(
            "no address of an etcd member is given".into(),
        ));
    }
    let tls = options.tls.as_ref().map(load).transpose()?;
    let parse = |endpoint: &String| address(endpoint, tls.as_ref(), options.allow_plain);
    options.endpoints.iter().map(parse).collect()
}

fn address(endpoint: &str, tls: Option<&TlsOptions>, allow_plain: bool) -> Result<Address, Error> {
    let (is_plain, rest) = match endpoint.split_once("://") {
        Some(("http", rest)) => (true, rest),
        Some(("https", rest)) => (false, rest),
        Some((other, _)) => {
            return Err(Error::Refused(format!(
                "'{endpoint}': '{other}' is not a protocol of etcd; use https or http"
            )));
        }
        None => (tls.is_none(), endpoint),
    };
    let (host, port) = host_and_port(rest.trim_end_matches('/'))
        .ok_or_else(|| Error::Refused(format!("'{endpoint}' is not the address of a member")))?;
    if is_plain && !allow_plain && !is_loopback(host) {
        return Err(Error::Refused(format!(
            "'{endpoint}' is on another machine, and without TLS anybody on the way can read and \
             change what is sent; give certificates, or allow plain connections"
        )));
    }
    let scheme = if is_plain { "http" } else { "https" };
    let tls = match (is_plain, tls) {
        (true, _) => None,
        (false, Some(tls)) => Some(tls.clone()),
        (false, None) => {
            return Err(Error::Refused(format!(
                "'{endpoint}' wants TLS: give the certificate of the authority that signed its \
                 certificate"
            )));
        }
    };
    let url = format!("{scheme}://{host}:{port}");
    Ok(Address { url, tls })
}

/// The host, in brackets if it is an IPv6 address, and the port.
fn host_and_port(text: &str) -> Option<(&str, u16)> {
    let colon = match text.rfind(']') {
        Some(bracket) => text[bracket..].find(':').map(|at| at + bracket),
        None => text.rfind(':'),
    };
    let (host, port) = match colon {
        Some(at) => (&text[..at], text[at + 1..].parse().ok()?),
        None => (text, PORT),
    };
    let is_host = !host.is_empty() && !host.contains(['/', '@', '?', '#']);
    is_host.then_some((host, port))
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn load(files: &TlsFiles) -> Result<TlsOptions, Error> {
    let read = |path: &PathBuf| {
        std::fs::read(path)
            .map_err(|e| Error::Refused(format!("cannot read '{}': {e}", path.display())))
    };
    let tls = TlsOptions::new().ca_certificate(Certificate::from_pem(read(&files.ca)?));
    Ok(match &files.client {
        Some((certificate, key)) => {
            tls.identity(Identity::from_pem(read(certificate)?, read(key)?))
        }
        None => tls,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(endpoint: &str, tls: bool, allow_plain: bool) -> Result<String, Error> {
        let tls = tls.then(TlsOptions::new);
        address(endpoint, tls.as_ref(), allow_plain).map(|address| address.url)
    }

    #[test]
    fn addresses_get_a_protocol_and_a_port() {
        for (text, tls, expected) in [
            ("localhost", false, "http://localhost:2379"),
            ("127.0.0.1:99", false, "http://127.0.0.1:99"),
            ("[::1]", false, "http://[::1]:2379"),
            ("http://[::1]:8/", false, "http://[::1]:8"),
            ("node1", true, "https://node1:2379"),
            ("https://node1:8", true, "https://node1:8"),
        ] {
            assert_eq!(url(text, tls, false).ok().as_deref(), Some(expected));
        }
        for text in ["", "ftp://a", "a:b", ":1", "a/b", "u@h"] {
            assert!(
                matches!(url(text, true, true), Err(Error::Refused(_))),
                "{text}"
            );
        }
    }

    #[test]
    fn plain_connections_stay_on_this_machine_unless_allowed() {
        assert!(url("http://10.0.0.1:2379", false, false).is_err());
        assert!(url("node1", false, false).is_err());
        assert!(url("http://node1", true, false).is_err());
        assert!(url("https://node1", false, true).is_err());
        assert!(url("http://10.0.0.1:2379", false, true).is_ok());
    }
}
