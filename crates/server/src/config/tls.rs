//! `[server] tls`: the certificate of the server's addresses.
//!
//! The files are read with the configuration, so a missing or damaged file, or a key of another certificate, is a mistake of the
//! configuration. They are read again at each reload.

use docs::config::{ConfigTable, Item, read_file};
use reactor::{CertificateError, TlsServer};
use std::path::{Path, PathBuf};

/// Protocols offered inside TLS (RFC 7301).
const PROTOCOLS: [&str; 1] = ["http/1.1"];
/// Bytes of each file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The setting: two files in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// The certificate, followed by those of its issuers.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl TlsConfig {
    /// The server's side of TLS. The error names the file.
    pub(crate) fn server(&self) -> Result<TlsServer, String> {
        let (cert, key) = self.read_files()?;
        TlsServer::from_pem(&cert, &key, &PROTOCOLS).map_err(|error| self.named(&error))
    }

    /// Makes later connections use the files' present content.
    pub(crate) fn replace(&self, server: &TlsServer) -> Result<(), String> {
        let (cert, key) = self.read_files()?;
        server.replace(&cert, &key).map_err(|error| self.named(&error))
    }

    fn read_files(&self) -> Result<(Vec<u8>, Vec<u8>), String> {
        let read = |path: &Path| {
            read_file(path, FILE_BYTES_MAX).map_err(|error| format!("cannot read {}: {error}", path.display()))
        };
        Ok((read(&self.cert)?, read(&self.key)?))
    }

    fn named(&self, error: &CertificateError) -> String {
        let (cert, key) = (self.cert.display(), self.key.display());
        match error {
            CertificateError::Key(_) => format!("{key}: {error}"),
            CertificateError::Mismatch => format!("{key} is not the private key of the certificate in {cert}"),
            _ => format!("{cert}: {error}"),
        }
    }
}

/// Reads the setting.
pub(super) fn read(item: &Item<'_>) -> Option<TlsConfig> {
    let table = item.table()?;
    table.check_keys(&["cert", "key"], &[]);
    let (cert, key) = (file(&table, "cert"), file(&table, "key"));
    let config = TlsConfig { cert: cert?, key: key? };
    config.server().map_err(|problem| item.mistake(problem, "a certificate and its private key, in PEM")).ok()?;
    Some(config)
}

fn file(table: &ConfigTable<'_>, key: &str) -> Option<PathBuf> {
    Some(table.source().relative(table.require(key)?.text()?))
}
