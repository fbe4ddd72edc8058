//! TLS settings: trusted certificates, expected server name, client certificate.
//!
//! Files are read when the settings are made, not for each connection: a wrong file is reported at once, and the clients of
//! a pool share one copy. To use changed files, make new settings.

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Environment variable that names another file of root certificates, as for OpenSSL.
const ROOTS_VARIABLE: &str = "SSL_CERT_FILE";
/// Where systems keep their root certificates, in one PEM file.
const ROOTS_FILES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt", // Debian, Ubuntu, Arch, Gentoo
    "/etc/pki/tls/certs/ca-bundle.crt",   // Fedora, Red Hat
    "/etc/ssl/ca-bundle.pem",             // SUSE
    "/etc/ssl/cert.pem",                  // Alpine, BSD, macOS
];

/// Why the TLS settings cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsSettingsError {
    /// A file cannot be read.
    File {
        /// Its path.
        path: PathBuf,
        /// The system's reason.
        reason: String,
    },
    /// The system has no file of trusted certificates at any of the usual places.
    NoSystemRoots,
    /// The PEM text of trusted certificates holds no certificate, or a damaged one.
    Roots(String),
    /// The server's name is neither a DNS name nor an IP address.
    Name(String),
    /// The client's certificate or key cannot be used, or they do not belong together.
    Identity(String),
}

impl fmt::Display for TlsSettingsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsSettingsError::File { path, reason } => write!(formatter, "{}: {reason}", path.display()),
            TlsSettingsError::NoSystemRoots => write!(
                formatter,
                "the system's trusted certificates are at none of the usual places; name a file with `ca` or {ROOTS_VARIABLE}"
            ),
            TlsSettingsError::Roots(reason) => write!(formatter, "trusted certificates: {reason}"),
            TlsSettingsError::Name(name) => write!(formatter, "`{name}` is neither a DNS name nor an IP address"),
            TlsSettingsError::Identity(reason) => write!(formatter, "the client's certificate: {reason}"),
        }
    }
}

impl std::error::Error for TlsSettingsError {}

/// The client's side of TLS. Cloning is cheap; clones can resume one another's sessions.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    roots: Arc<RootCertStore>,
    server_name: ServerName<'static>,
}

impl Tls {
    /// Trusts the system's root certificates, or those of the file that `SSL_CERT_FILE` names. `server_name` is the DNS name
    /// or IP address in the server's certificate.
    ///
    /// # Errors
    /// There is no such file, or the name is invalid.
    pub fn with_system_roots(server_name: &str) -> Result<Tls, TlsSettingsError> {
        let pem = read_file(&system_roots_file()?)?;
        let mut roots = RootCertStore::empty();
        // A single certificate that this library cannot read must not make the others useless.
        let (added, _) = roots.add_parsable_certificates(certificates(&pem).map_err(TlsSettingsError::Roots)?);
        if added == 0 {
            return Err(TlsSettingsError::Roots("none of the system's can be used".to_owned()));
        }
        Tls::of(roots, server_name)
    }

    /// Trusts only the certificates of this PEM text and those issued by them.
    ///
    /// # Errors
    /// The text holds no certificate, or a damaged one, or the name is invalid.
    pub fn with_roots(pem: &[u8], server_name: &str) -> Result<Tls, TlsSettingsError> {
        let mut roots = RootCertStore::empty();
        for root in certificates(pem).map_err(TlsSettingsError::Roots)? {
            roots.add(root).map_err(|error| TlsSettingsError::Roots(error.to_string()))?;
        }
        Tls::of(roots, server_name)
    }

    /// [`Tls::with_roots`] from a file.
    ///
    /// # Errors
    /// As [`Tls::with_roots`], or the file cannot be read.
    pub fn with_roots_file(path: &Path, server_name: &str) -> Result<Tls, TlsSettingsError> {
        Tls::with_roots(&read_file(path)?, server_name)
    }

    /// Sets the client certificate for servers that require one, as Redis does by default (`tls-auth-clients`). Both texts
    /// are PEM: a certificate followed by those of its issuers, and its private key (PKCS #8, PKCS #1 or SEC 1).
    ///
    /// # Errors
    /// One of them cannot be used, or they do not belong together.
    pub fn with_identity(self, certificate: &[u8], key: &[u8]) -> Result<Tls, TlsSettingsError> {
        let chain = certificates(certificate).map_err(TlsSettingsError::Identity)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| TlsSettingsError::Identity(error.to_string()))?;
        let config = builder(&self.roots)?.with_client_auth_cert(chain, key);
        let config = config.map_err(|error| TlsSettingsError::Identity(error.to_string()))?;
        Ok(Tls { config: Arc::new(config), ..self })
    }

    /// [`Tls::with_identity`] from files.
    ///
    /// # Errors
    /// As [`Tls::with_identity`], or a file cannot be read.
    pub fn with_identity_files(self, certificate: &Path, key: &Path) -> Result<Tls, TlsSettingsError> {
        self.with_identity(&read_file(certificate)?, &read_file(key)?)
    }

    fn of(roots: RootCertStore, server_name: &str) -> Result<Tls, TlsSettingsError> {
        let name = ServerName::try_from(server_name.to_owned());
        let server_name = name.map_err(|_| TlsSettingsError::Name(server_name.to_owned()))?;
        let roots = Arc::new(roots);
        let config = Arc::new(builder(&roots)?.with_no_client_auth());
        Ok(Tls { config, roots, server_name })
    }

    /// The parts from which a session is made.
    #[cfg(feature = "reactor")]
    pub(crate) fn parts(&self) -> (Arc<ClientConfig>, ServerName<'static>) {
        (Arc::clone(&self.config), self.server_name.clone())
    }

    /// A new client session.
    pub(crate) fn new_session(&self) -> Result<ClientConnection, rustls::Error> {
        ClientConnection::new(Arc::clone(&self.config), self.server_name.clone())
    }
}

/// Clones are equal. Settings made separately are not: their files may have differed.
impl PartialEq for Tls {
    fn eq(&self, other: &Tls) -> bool {
        Arc::ptr_eq(&self.config, &other.config) && self.server_name == other.server_name
    }
}

impl Eq for Tls {}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tls").field("server_name", &self.server_name.to_str()).finish_non_exhaustive()
    }
}

type Builder = rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>;

fn builder(roots: &Arc<RootCertStore>) -> Result<Builder, TlsSettingsError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder =
        builder.with_safe_default_protocol_versions().map_err(|error| TlsSettingsError::Roots(error.to_string()))?;
    Ok(builder.with_root_certificates(Arc::clone(roots)))
}

/// The certificates of a PEM text; at least one.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|error| error.to_string())?;
    if all.is_empty() { Err("no PEM block of a certificate".to_owned()) } else { Ok(all) }
}

fn system_roots_file() -> Result<PathBuf, TlsSettingsError> {
    let named = std::env::var_os(ROOTS_VARIABLE).map(PathBuf::from);
    let usual = || ROOTS_FILES.iter().map(PathBuf::from).find(|path| path.is_file());
    named.or_else(usual).ok_or(TlsSettingsError::NoSystemRoots)
}

fn read_file(path: &Path) -> Result<Vec<u8>, TlsSettingsError> {
    std::fs::read(path).map_err(|error| TlsSettingsError::File { path: path.to_owned(), reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str) -> (String, String) {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[test]
    fn a_client_needs_roots_and_a_name() {
        let (root, key) = pair("a.test");
        let of = |roots: &str, name: &str| Tls::with_roots(roots.as_bytes(), name).map(drop);
        assert_eq!(of(&root, "a.test"), Ok(()));
        assert_eq!(of(&root, "127.0.0.1"), Ok(()));
        assert_eq!(of("", "a.test"), Err(TlsSettingsError::Roots("no PEM block of a certificate".to_owned())));
        assert_eq!(of(&key, "a.test"), Err(TlsSettingsError::Roots("no PEM block of a certificate".to_owned())));
        assert_eq!(of(&root, "no name"), Err(TlsSettingsError::Name("no name".to_owned())));
    }

    #[test]
    fn a_certificate_of_the_client_needs_its_own_key() {
        let ((certificate, key), (_, other_key)) = (pair("a.test"), pair("b.test"));
        let tls = Tls::with_roots(certificate.as_bytes(), "a.test").unwrap();
        let with = |key: &str| tls.clone().with_identity(certificate.as_bytes(), key.as_bytes()).map(drop);
        assert_eq!(with(&key), Ok(()));
        for key in [other_key.as_str(), "", &certificate] {
            assert!(matches!(with(key), Err(TlsSettingsError::Identity(_))), "{:?}", with(key));
        }
    }

    #[test]
    fn clones_are_equal_and_others_are_not() {
        let (root, _) = pair("a.test");
        let of = |name| Tls::with_roots(root.as_bytes(), name).unwrap();
        let tls = of("a.test");
        assert_eq!(tls, tls.clone());
        assert_ne!(tls, of("a.test"));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let error = Tls::with_roots_file(Path::new("/none/roots.pem"), "a.test").unwrap_err().to_string();
        assert!(error.starts_with("/none/roots.pem: "), "{error}");
    }
}
