//! Certificates for this machine, of an authority that no system knows.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A directory with `ca.pem`, a server's `server.crt` and `server.key` that it has issued, and `other.pem`, an authority
/// that has issued neither.
#[derive(Debug)]
pub(crate) struct Certificates(TempDir);

impl Certificates {
    /// New ones.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let make = |arguments: &[&str]| {
            let mut command = Command::new("openssl");
            let made = command.current_dir(directory.path()).args(arguments).output();
            let made = made.expect("openssl: scripts/test.sh installs it");
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        };
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
        for (name, subject) in [("ca", "/CN=authority"), ("other", "/CN=other authority")] {
            let (file, secret) = (format!("{name}.pem"), format!("{name}.key"));
            let own = ["-subj", subject, "-keyout", &secret, "-out", &file];
            make(&[&["req", "-x509"][..], &key, &own].concat());
        }
        let own = ["-subj", "/CN=weir", "-addext", "subjectAltName=IP:127.0.0.1", "-addext"];
        let signed = ["basicConstraints=CA:FALSE", "-CA", "ca.pem", "-CAkey", "ca.key"];
        let files = ["-keyout", "server.key", "-out", "server.crt"];
        make(&[&["req", "-x509"][..], &key, &own, &signed, &files].concat());
        Self(directory)
    }

    /// Where they are.
    pub(crate) fn directory(&self) -> &Path {
        self.0.path()
    }

    /// One of the files.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory().join(name)
    }
}
