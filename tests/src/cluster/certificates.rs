//! Certificates for a cluster on loopback, made with the command `openssl`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Cmd, Outcome};

/// An authority, and what it has signed.
#[derive(Debug)]
pub struct Certificates {
    directory: PathBuf,
}

impl Certificates {
    /// A new authority with a certificate for the members.
    pub fn new(directory: &Path) -> Outcome<Self> {
        fs::create_dir(directory)?;
        let certificates = Self {
            directory: directory.to_path_buf(),
        };
        Cmd::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
            .args(["ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
            .args([
                "-subj",
                "/CN=test authority",
                "-keyout",
                "ca.key",
                "-out",
                "ca.crt",
            ])
            .cwd(directory)
            .ok()?;
        certificates.sign("member")?;
        Ok(certificates)
    }

    /// Makes a key and a certificate; `name` becomes the user of etcd.
    pub fn sign(&self, name: &str) -> Outcome<(PathBuf, PathBuf)> {
        Cmd::new("openssl")
            .args([
                "req",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
            ])
            .args(["-nodes", "-subj", &format!("/CN={name}")])
            .args([
                "-keyout",
                &format!("{name}.key"),
                "-out",
                &format!("{name}.csr"),
            ])
            .cwd(&self.directory)
            .ok()?;
        let extensions = self.directory.join("extensions");
        let usage = "extendedKeyUsage=serverAuth,clientAuth\n";
        fs::write(
            &extensions,
            format!("subjectAltName=DNS:localhost,IP:127.0.0.1\n{usage}"),
        )?;
        Cmd::new("openssl")
            .args(["x509", "-req", "-days", "2", "-CAcreateserial"])
            .args([
                "-CA",
                "ca.crt",
                "-CAkey",
                "ca.key",
                "-extfile",
                "extensions",
            ])
            .args([
                "-in",
                &format!("{name}.csr"),
                "-out",
                &format!("{name}.crt"),
            ])
            .cwd(&self.directory)
            .ok()?;
        Ok((
            self.file(&format!("{name}.crt")),
            self.file(&format!("{name}.key")),
        ))
    }

    /// The certificate of the authority.
    pub fn ca(&self) -> PathBuf {
        self.file("ca.crt")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Options of etcd that ask for certificates on both sides.
    pub(super) fn member_options(&self) -> Vec<String> {
        let mut options = vec![
            "--client-cert-auth".into(),
            "--peer-client-cert-auth".into(),
        ];
        for prefix in ["", "peer-"] {
            for (option, file) in [
                ("trusted-ca-file", "ca.crt"),
                ("cert-file", "member.crt"),
                ("key-file", "member.key"),
            ] {
                options.push(format!("--{prefix}{option}={}", self.file(file).display()));
            }
        }
        options
    }
}
