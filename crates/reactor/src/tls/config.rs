//! The settings of either side of TLS: a server's certificate and key, a client's roots and the name that it expects.
//!
//! Both are made from PEM text. A [`TlsServer`] is shared by its listeners' loops, and gets another certificate while they run:
//! handshakes from then on use it, and open connections go on as they are.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// Time for a handshake, unless another is set.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Why a certificate, a key or a name cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsError {
    /// The certificate's text has no PEM block of a certificate, or a damaged one.
    Certificate(String),
    /// The key's text has no PEM block of a private key, or one of no use.
    Key(String),
    /// Certificate and key are not of one pair.
    Mismatch,
    /// The text of trusted roots has no PEM block of a certificate, or a damaged one.
    Roots(String),
    /// Neither a DNS name nor an IP address.
    Name(String),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificate(what) => write!(f, "certificate: {what}"),
            Self::Key(what) => write!(f, "private key: {what}"),
            Self::Mismatch => f.write_str("the private key is not that of the certificate"),
            Self::Roots(what) => write!(f, "trusted certificates: {what}"),
            Self::Name(name) => write!(f, "`{name}` is neither a DNS name nor an IP address"),
        }
    }
}

impl std::error::Error for TlsError {}

/// The server's side of TLS. Cheap to clone; all clones share one certificate.
#[derive(Clone)]
pub struct TlsServer(Arc<Server>);

struct Server {
    /// Replaced as a whole. Locked once for each accepted connection, which costs a thousandth of its handshake.
    config: Mutex<Arc<ServerConfig>>,
    protocols: Vec<Vec<u8>>,
    handshake_max: Duration,
}

impl TlsServer {
    /// From PEM: a certificate with those of its issuers behind it, and its private key (PKCS #8, PKCS #1 or SEC 1). `protocols`
    /// are offered by ALPN, the preferred one first; a client that offers only others is refused.
    pub fn from_pem(certificate: &[u8], key: &[u8], protocols: &[&str]) -> Result<Self, TlsError> {
        let protocols: Vec<Vec<u8>> = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let config = Mutex::new(server_config(certificate, key, &protocols)?);
        Ok(Self(Arc::new(Server { config, protocols, handshake_max: HANDSHAKE_MAX })))
    }

    /// The same with another time for a handshake, from accept to its end.
    pub fn with_handshake_max(self, handshake_max: Duration) -> Self {
        let server = &self.0;
        let (config, protocols) = (Mutex::new(self.config()), server.protocols.clone());
        Self(Arc::new(Server { config, protocols, handshake_max }))
    }

    /// Has later handshakes use another certificate. Where it cannot be used, nothing changes.
    pub fn replace(&self, certificate: &[u8], key: &[u8]) -> Result<(), TlsError> {
        let config = server_config(certificate, key, &self.0.protocols)?;
        *self.0.config.lock().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.config.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn handshake_max(&self) -> Duration {
        self.0.handshake_max
    }
}

impl fmt::Debug for TlsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsServer").field("handshake_max", &self.0.handshake_max).finish_non_exhaustive()
    }
}

fn server_config(certificate: &[u8], key: &[u8], protocols: &[Vec<u8>]) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = certificates(certificate).map_err(TlsError::Certificate)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| TlsError::Key(error.to_string()))?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| TlsError::Key(error.to_string()))?.with_no_client_auth();
    let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => TlsError::Mismatch,
        rustls::Error::InvalidCertificate(what) => TlsError::Certificate(what.to_string()),
        other => TlsError::Key(other.to_string()),
    })?;
    config.alpn_protocols = protocols.to_vec();
    // Sessions are resumed by tickets, which clients keep: the server remembers none of them.
    config.ticketer = ring::Ticketer::new().map_err(|error| TlsError::Key(error.to_string()))?;
    config.send_tls13_tickets = 1;
    Ok(Arc::new(config))
}

/// The certificates of a PEM text, one at least.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|error| error.to_string())?;
    if all.is_empty() { Err("no PEM block of a certificate".to_owned()) } else { Ok(all) }
}

/// The client's side of TLS: the certificates that it trusts, and the name that its peer must have. Cheap to clone.
#[derive(Clone)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    handshake_max: Duration,
}

impl TlsClient {
    /// Trusts the certificates of a PEM text and what they have issued, and expects a peer of this name: a DNS name or an IP
    /// address. `protocols` are offered by ALPN.
    pub fn from_pem(roots: &[u8], name: &str, protocols: &[&str]) -> Result<Self, TlsError> {
        let mut trusted = RootCertStore::empty();
        for root in certificates(roots).map_err(TlsError::Roots)? {
            trusted.add(root).map_err(|error| TlsError::Roots(error.to_string()))?;
        }
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| TlsError::Roots(error.to_string()))?;
        let mut config = builder.with_root_certificates(trusted).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Ok(Self { config: Arc::new(config), name: server_name(name)?, handshake_max: HANDSHAKE_MAX })
    }

    /// The same for a peer of another name.
    pub fn named(&self, name: &str) -> Result<Self, TlsError> {
        Ok(Self { name: server_name(name)?, ..self.clone() })
    }

    /// The same with another time for a handshake, from the connection's making to the handshake's end.
    pub fn with_handshake_max(self, handshake_max: Duration) -> Self {
        Self { handshake_max, ..self }
    }

    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    pub(crate) fn name(&self) -> ServerName<'static> {
        self.name.clone()
    }

    pub(crate) fn handshake_max(&self) -> Duration {
        self.handshake_max
    }
}

fn server_name(name: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(name.to_owned()).map_err(|_| TlsError::Name(name.to_owned()))
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsClient").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str) -> (String, String) {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[track_caller]
    fn check_refused(certificate: &str, key: &str, expected: &str) {
        let error = TlsServer::from_pem(certificate.as_bytes(), key.as_bytes(), &[]).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    }

    #[test]
    fn what_is_wrong_with_a_certificate_or_its_key_is_said() {
        let ((certificate, key), (_, other_key)) = (pair("a.test"), pair("b.test"));
        check_refused("", &key, "certificate: no PEM block of a certificate");
        check_refused(&key, &key, "certificate: no PEM block of a certificate");
        check_refused("-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n", &key, "certificate: ");
        check_refused(&certificate, &certificate, "private key: ");
        check_refused(&certificate, "", "private key: ");
        check_refused(&certificate, &other_key, "the private key is not that of the certificate");
        assert!(TlsServer::from_pem(certificate.as_bytes(), key.as_bytes(), &["http/1.1"]).is_ok());
    }

    #[test]
    fn a_certificate_that_cannot_be_used_replaces_nothing() {
        let ((certificate, key), (other, _)) = (pair("a.test"), pair("b.test"));
        let server = TlsServer::from_pem(certificate.as_bytes(), key.as_bytes(), &[]).unwrap();
        let before = server.config();
        assert_eq!(server.replace(other.as_bytes(), key.as_bytes()), Err(TlsError::Mismatch));
        assert!(Arc::ptr_eq(&before, &server.config()));
        server.replace(certificate.as_bytes(), key.as_bytes()).unwrap();
        assert!(!Arc::ptr_eq(&before, &server.config()));
    }

    #[test]
    fn a_client_needs_roots_and_a_name() {
        let (root, _) = pair("a.test");
        let of = |roots: &str, name: &str| TlsClient::from_pem(roots.as_bytes(), name, &[]).map(drop);
        assert_eq!(of(&root, "a.test"), Ok(()));
        assert_eq!(of(&root, "127.0.0.1"), Ok(()));
        assert!(matches!(of("", "a.test"), Err(TlsError::Roots(_))));
        assert!(matches!(of(&root, "no name"), Err(TlsError::Name(_))));
    }
}
