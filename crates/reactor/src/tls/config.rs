//! TLS settings of both sides: a server's certificate and key, a client's trusted roots and expected server name.
//!
//! Both are made from PEM text. A [`TlsServer`] is shared by its listeners' loops, and its certificate can be replaced while they
//! run: later handshakes use the new one, and open connections stay as they are.
//!
//! A server may require client certificates: then a handshake without a certificate issued by the server's client roots fails. A
//! client that has been given a certificate presents it to servers that ask.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// Default time limit of a handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Why a certificate, a key or a name cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateError {
    /// The certificate's text has no PEM block of a certificate, or a damaged one.
    Certificate(String),
    /// The key's text has no PEM block of a private key, or an unusable one.
    Key(String),
    /// Certificate and key do not belong together.
    Mismatch,
    /// The text of trusted roots has no PEM block of a certificate, or a damaged one.
    Roots(String),
    /// Neither a DNS name nor an IP address.
    Name(String),
}

impl fmt::Display for CertificateError {
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

impl std::error::Error for CertificateError {}

/// The server's side of TLS. Cheap to clone; all clones share one certificate.
#[derive(Clone)]
pub struct TlsServer(Arc<Server>);

struct Server {
    /// Replaced as a whole. Locked once for each accepted connection, which costs a thousandth of its handshake.
    in_force: Mutex<InForce>,
    protocols: Vec<Vec<u8>>,
    handshake_max: Duration,
}

/// Settings of later handshakes.
#[derive(Clone)]
struct InForce {
    config: Arc<ServerConfig>,
    /// Verifies client certificates, if they are required.
    clients: Option<Arc<dyn ClientCertVerifier>>,
}

impl TlsServer {
    /// From PEM: a certificate followed by those of its issuers, and its private key (PKCS #8, PKCS #1 or SEC 1). `protocols` are
    /// offered by ALPN in order of preference; a client that offers only others is refused.
    pub fn from_pem(certificate: &[u8], key: &[u8], protocols: &[&str]) -> Result<Self, CertificateError> {
        Self::new(certificate, key, None, protocols)
    }

    /// The same, and clients must have a certificate issued by one of these roots, in PEM.
    pub fn from_pem_with_client_roots(
        certificate: &[u8],
        key: &[u8],
        client_roots: &[u8],
        protocols: &[&str],
    ) -> Result<Self, CertificateError> {
        Self::new(certificate, key, Some(client_verifier(client_roots)?), protocols)
    }

    fn new(
        certificate: &[u8],
        key: &[u8],
        clients: Option<Arc<dyn ClientCertVerifier>>,
        protocols: &[&str],
    ) -> Result<Self, CertificateError> {
        let protocols: Vec<Vec<u8>> = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let in_force = Mutex::new(InForce::new(certificate, key, clients, &protocols)?);
        Ok(Self(Arc::new(Server { in_force, protocols, handshake_max: HANDSHAKE_MAX })))
    }

    /// The same with another time limit for a handshake, from accept to its end.
    pub fn with_handshake_max(self, handshake_max: Duration) -> Self {
        let (in_force, protocols) = (Mutex::new(self.in_force()), self.0.protocols.clone());
        Self(Arc::new(Server { in_force, protocols, handshake_max }))
    }

    /// Makes later handshakes use another certificate; the requirement for client certificates stays. If it cannot be used,
    /// nothing changes.
    pub fn replace(&self, certificate: &[u8], key: &[u8]) -> Result<(), CertificateError> {
        self.put_in_force(certificate, key, self.in_force().clients)
    }

    /// Makes later handshakes use another certificate, and require client certificates issued by these roots. If one of them
    /// cannot be used, nothing changes.
    pub fn replace_with_client_roots(
        &self,
        certificate: &[u8],
        key: &[u8],
        client_roots: &[u8],
    ) -> Result<(), CertificateError> {
        self.put_in_force(certificate, key, Some(client_verifier(client_roots)?))
    }

    fn put_in_force(
        &self,
        certificate: &[u8],
        key: &[u8],
        clients: Option<Arc<dyn ClientCertVerifier>>,
    ) -> Result<(), CertificateError> {
        let in_force = InForce::new(certificate, key, clients, &self.0.protocols)?;
        *self.0.in_force.lock().unwrap_or_else(PoisonError::into_inner) = in_force;
        Ok(())
    }

    fn in_force(&self) -> InForce {
        self.0.in_force.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.in_force().config
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

impl InForce {
    fn new(
        certificate: &[u8],
        key: &[u8],
        clients: Option<Arc<dyn ClientCertVerifier>>,
        protocols: &[Vec<u8>],
    ) -> Result<Self, CertificateError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| CertificateError::Key(error.to_string()))?;
        let builder = match &clients {
            Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier)),
            None => builder.with_no_client_auth(),
        };
        let own = certified_key(certificate, key, &provider)?;
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(own)));
        config.alpn_protocols = protocols.to_vec();
        // Sessions are resumed by tickets, which clients keep: the server stores none of them.
        config.ticketer = ring::Ticketer::new().map_err(|error| CertificateError::Key(error.to_string()))?;
        config.send_tls13_tickets = 1;
        Ok(Self { config: Arc::new(config), clients })
    }
}

/// A certificate with its private key, checked to belong together.
fn certified_key(certificate: &[u8], key: &[u8], provider: &CryptoProvider) -> Result<CertifiedKey, CertificateError> {
    let chain = certificates(certificate).map_err(CertificateError::Certificate)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| CertificateError::Key(error.to_string()))?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => CertificateError::Mismatch,
        rustls::Error::InvalidCertificate(what) => CertificateError::Certificate(what.to_string()),
        other => CertificateError::Key(other.to_string()),
    })
}

/// Verifier of client certificates issued by these roots.
fn client_verifier(roots: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, CertificateError> {
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(root_store(roots)?), provider).build();
    verifier.map_err(|error| CertificateError::Roots(error.to_string()))
}

/// The trusted certificates of a PEM text.
fn root_store(pem: &[u8]) -> Result<RootCertStore, CertificateError> {
    let mut trusted = RootCertStore::empty();
    for root in certificates(pem).map_err(CertificateError::Roots)? {
        trusted.add(root).map_err(|error| CertificateError::Roots(error.to_string()))?;
    }
    Ok(trusted)
}

/// The certificates of a PEM text, at least one.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|error| error.to_string())?;
    if all.is_empty() { Err("no PEM block of a certificate".to_owned()) } else { Ok(all) }
}

/// The client's side of TLS: the certificates that it trusts, and the name that the server must have. Cheap to clone.
#[derive(Clone)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    handshake_max: Duration,
}

impl TlsClient {
    /// Trusts the certificates of a PEM text and those that they have issued, and expects a server of this name: a DNS name or an
    /// IP address. `protocols` are offered by ALPN.
    pub fn from_pem(roots: &[u8], name: &str, protocols: &[&str]) -> Result<Self, CertificateError> {
        let trusted = root_store(roots)?;
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| CertificateError::Roots(error.to_string()))?;
        let mut config = builder.with_root_certificates(trusted).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Ok(Self { config: Arc::new(config), name: server_name(name)?, handshake_max: HANDSHAKE_MAX })
    }

    /// The same with a client certificate, in PEM as a server's, presented to servers that require one.
    pub fn with_certificate(self, certificate: &[u8], key: &[u8]) -> Result<Self, CertificateError> {
        let own = certified_key(certificate, key, &ring::default_provider())?;
        let mut config = ClientConfig::clone(&self.config);
        config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(own));
        Ok(Self { config: Arc::new(config), ..self })
    }

    /// With the caller's settings of rustls: the system's roots, say, or a client certificate. Connections of one such value
    /// resume one another's sessions.
    pub fn of_config(config: Arc<ClientConfig>, name: ServerName<'static>) -> Self {
        Self { config, name, handshake_max: HANDSHAKE_MAX }
    }

    /// The same for a server of another name.
    pub fn named(&self, name: &str) -> Result<Self, CertificateError> {
        Ok(Self { name: server_name(name)?, ..self.clone() })
    }

    /// The same with another time limit for a handshake, from the connection's making to the handshake's end.
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

fn server_name(name: &str) -> Result<ServerName<'static>, CertificateError> {
    ServerName::try_from(name.to_owned()).map_err(|_| CertificateError::Name(name.to_owned()))
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
        assert_eq!(server.replace(other.as_bytes(), key.as_bytes()), Err(CertificateError::Mismatch));
        assert!(Arc::ptr_eq(&before, &server.config()));
        server.replace(certificate.as_bytes(), key.as_bytes()).unwrap();
        assert!(!Arc::ptr_eq(&before, &server.config()));
    }

    #[test]
    fn what_is_required_of_clients_stays_when_the_certificate_alone_is_replaced() {
        let ((certificate, key), (other, other_key)) = (pair("a.test"), pair("b.test"));
        let [certificate, key, other, other_key] = [&certificate, &key, &other, &other_key].map(|pem| pem.as_bytes());
        assert!(matches!(
            TlsServer::from_pem_with_client_roots(certificate, key, key, &[]),
            Err(CertificateError::Roots(_))
        ));
        let server = TlsServer::from_pem_with_client_roots(certificate, key, other, &[]).unwrap();
        server.replace(other, other_key).unwrap();
        assert!(server.in_force().clients.is_some());
        assert!(matches!(server.replace_with_client_roots(certificate, key, b""), Err(CertificateError::Roots(_))));
        server.replace_with_client_roots(certificate, key, certificate).unwrap();
    }

    #[test]
    fn a_client_s_own_certificate_is_checked_as_a_server_s_is() {
        let ((certificate, key), (_, other_key)) = (pair("a.test"), pair("b.test"));
        let client = TlsClient::from_pem(certificate.as_bytes(), "a.test", &[]).unwrap();
        let with = |key: &str| client.clone().with_certificate(certificate.as_bytes(), key.as_bytes()).map(drop);
        assert_eq!(with(&key), Ok(()));
        assert_eq!(with(&other_key), Err(CertificateError::Mismatch));
        assert!(matches!(with(""), Err(CertificateError::Key(_))));
    }

    #[test]
    fn a_client_needs_roots_and_a_name() {
        let (root, _) = pair("a.test");
        let of = |roots: &str, name: &str| TlsClient::from_pem(roots.as_bytes(), name, &[]).map(drop);
        assert_eq!(of(&root, "a.test"), Ok(()));
        assert_eq!(of(&root, "127.0.0.1"), Ok(()));
        assert!(matches!(of("", "a.test"), Err(CertificateError::Roots(_))));
        assert!(matches!(of(&root, "no name"), Err(CertificateError::Name(_))));
    }
}
