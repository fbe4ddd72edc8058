//! Address of an outgoing connection's peer, and the reasons why a connection could not be made.

use std::fmt;
use std::io::{Error, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Address reported for peers on a Unix socket: they are on this machine. No TCP peer has port 0.
pub const UNIX_PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A peer that listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix socket's file.
    Unix(PathBuf),
}

impl Address {
    /// The peer's address as protocols see it: 127.0.0.1, port 0 for a Unix socket.
    pub(crate) fn peer(&self) -> SocketAddr {
        match self {
            Self::Tcp(address) => *address,
            Self::Unix(_) => UNIX_PEER,
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl From<PathBuf> for Address {
    fn from(path: PathBuf) -> Self {
        Self::Unix(path)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Why an outgoing connection could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectFailure {
    /// No server listens there (ECONNREFUSED).
    Refused,
    /// Not connected within its time ([`crate::ReactorSettings::connect_max`], or the kernel's ETIMEDOUT).
    TimedOut,
    /// No route to the peer's host or network (EHOSTUNREACH, ENETUNREACH, ENETDOWN).
    Unreachable,
    /// This machine has no local address or no free port for the connection (EADDRNOTAVAIL).
    AddressNotAvailable,
    /// The process or the system is out of file descriptors (EMFILE, ENFILE).
    TooManyDescriptors,
    /// [`crate::ReactorSettings::outgoing_max`] connections are open.
    LimitReached,
    /// The TLS handshake failed: the peer is not trusted, has another name, or shares no protocol version or cipher.
    /// [`crate::Protocol::failed`] gets the text.
    Handshake,
    /// Anything else; `NotFound` for a Unix socket whose file is missing, `WouldBlock` for one whose backlog is full.
    Other(ErrorKind),
}

impl ConnectFailure {
    /// Classifies an error of socket(2) or connect(2).
    pub(crate) fn of(error: &Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => Self::TooManyDescriptors,
            Some(libc::ECONNREFUSED) => Self::Refused,
            Some(libc::ETIMEDOUT) => Self::TimedOut,
            Some(libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ENETDOWN) => Self::Unreachable,
            Some(libc::EADDRNOTAVAIL) => Self::AddressNotAvailable,
            _ => Self::Other(error.kind()),
        }
    }
}

impl fmt::Display for ConnectFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "connection refused",
            Self::TimedOut => "not connected in time",
            Self::Unreachable => "host or network unreachable",
            Self::AddressNotAvailable => "no local address or port available",
            Self::TooManyDescriptors => "too many open files",
            Self::Handshake => "the TLS handshake failed",
            Self::LimitReached => "the limit of outgoing connections is reached",
            Self::Other(kind) => return kind.fmt(f),
        })
    }
}

impl std::error::Error for ConnectFailure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_of_the_kernel_has_its_reason() {
        for (errno, failure) in [
            (libc::ECONNREFUSED, ConnectFailure::Refused),
            (libc::ETIMEDOUT, ConnectFailure::TimedOut),
            (libc::EHOSTUNREACH, ConnectFailure::Unreachable),
            (libc::ENETUNREACH, ConnectFailure::Unreachable),
            (libc::ENETDOWN, ConnectFailure::Unreachable),
            (libc::EADDRNOTAVAIL, ConnectFailure::AddressNotAvailable),
            (libc::EMFILE, ConnectFailure::TooManyDescriptors),
            (libc::ENFILE, ConnectFailure::TooManyDescriptors),
            (libc::ENOENT, ConnectFailure::Other(ErrorKind::NotFound)),
            (libc::EAGAIN, ConnectFailure::Other(ErrorKind::WouldBlock)),
        ] {
            assert_eq!(ConnectFailure::of(&Error::from_raw_os_error(errno)), failure);
        }
    }
}
