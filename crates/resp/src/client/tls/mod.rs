//! TLS of a connection.
//!
//! | subject | file |
//! |---|---|
//! | trusted certificates, the server's name, the client's own certificate | `config` |
//! | handshake, encryption, decryption | `channel` |
//!
//! TLS 1.2 and 1.3. There is no setting that skips the check of the server's certificate.

mod channel;
mod config;

pub(crate) use channel::Channel;
#[cfg(feature = "reactor")]
pub(crate) use channel::explained;
pub use config::{Tls, TlsSettingsError};
