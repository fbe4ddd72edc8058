//! TLS 1.2 and 1.3, for listeners and for outgoing connections, by rustls.
//!
//! `config` has the settings of either side; `session` is one connection's records. Versions before 1.2, renegotiation and
//! compression do not exist in rustls; early data (0-RTT) is off.

mod config;
mod session;

pub use config::{CertificateError, TlsClient, TlsServer};
pub(crate) use session::Session;
