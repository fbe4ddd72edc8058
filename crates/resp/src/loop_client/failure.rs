//! Why commands have no result, in a form that can be cloned for many of them.

use crate::client::{CommandError, Lost, NotSent, ServerError};
use crate::codec::ProtocolError;
use reactor::{Closed, ConnectFailure};
use std::io;
use std::sync::Arc;

/// Why a connection or an attempt to connect failed.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// An open connection was lost.
    Lost(Lost),
    /// The server sent bytes that are not a reply.
    Protocol(ProtocolError),
    /// No connection could be made: another attempt may succeed.
    Connect(Reason),
    /// One side refused the other's TLS.
    Tls(Reason),
    /// The server refused the session.
    Handshake(ServerError),
}

/// An [`io::Error`] that can be cloned.
#[derive(Clone, Debug)]
pub(super) struct Reason {
    kind: io::ErrorKind,
    text: String,
}

impl Reason {
    fn new(kind: io::ErrorKind, text: impl ToString) -> Reason {
        Reason { kind, text: text.to_string() }
    }

    fn error(&self) -> io::Error {
        io::Error::new(self.kind, self.text.clone())
    }
}

impl Failure {
    /// No connection was made within the time of the call.
    pub(super) fn timed_out() -> Failure {
        Failure::Connect(Reason::new(io::ErrorKind::TimedOut, "not connected in time"))
    }

    /// Why a connection could not be made.
    pub(super) fn of_connect(failure: ConnectFailure) -> Failure {
        let kind = match failure {
            ConnectFailure::Refused => io::ErrorKind::ConnectionRefused,
            ConnectFailure::TimedOut => io::ErrorKind::TimedOut,
            ConnectFailure::Unreachable => io::ErrorKind::HostUnreachable,
            ConnectFailure::AddressNotAvailable => io::ErrorKind::AddrNotAvailable,
            ConnectFailure::Other(kind) => kind,
            _ => io::ErrorKind::Other,
        };
        Failure::Connect(Reason::new(kind, failure))
    }

    /// Why a connection ended, from the reactor's reason.
    pub(super) fn of_closed(reason: Closed) -> Failure {
        match reason {
            Closed::Unconnected(failure) => Failure::of_connect(failure),
            Closed::Stalled => Failure::Lost(Lost::TimedOut),
            Closed::Hoarded => {
                let error = io::Error::new(io::ErrorKind::OutOfMemory, "the event loop's memory is short");
                Failure::Lost(Lost::Io(Arc::new(error)))
            }
            _ => Failure::Lost(Lost::Closed),
        }
    }

    /// Why a connection ended, as its transport says it.
    pub(super) fn of_transport(error: &io::Error) -> Failure {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(error) => {
                let error = crate::client::explained(error);
                Failure::Tls(Reason::new(error.kind(), error))
            }
            None => Failure::Lost(io::Error::new(error.kind(), error.to_string()).into()),
        }
    }

    /// If the connection is lost before its session is open, it counts as not made.
    pub(super) fn before_session(self) -> Failure {
        match self {
            Failure::Lost(Lost::TimedOut) => Failure::timed_out(),
            Failure::Lost(Lost::Io(error)) => Failure::Connect(Reason::new(error.kind(), error)),
            Failure::Lost(lost) => Failure::Connect(Reason::new(io::ErrorKind::ConnectionReset, lost)),
            Failure::Protocol(error) => Failure::Connect(Reason::new(io::ErrorKind::InvalidData, error)),
            other => other,
        }
    }

    /// If an open connection is lost, a failure of connecting or TLS counts as a loss.
    pub(super) fn after_session(self) -> Failure {
        match self {
            Failure::Tls(reason) | Failure::Connect(reason) => Failure::Lost(Lost::Io(Arc::new(reason.error()))),
            other => other,
        }
    }

    /// Whether later attempts would end in the same way until a setting is changed.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Failure::Tls(_) | Failure::Handshake(_))
    }

    /// The error of one command.
    pub(super) fn error(&self) -> CommandError {
        match self {
            Failure::Lost(lost) => CommandError::OutcomeUnknown(lost.clone()),
            Failure::Protocol(error) => CommandError::Protocol(*error),
            Failure::Connect(reason) => CommandError::NotSent(NotSent::Connect(reason.error())),
            Failure::Tls(reason) => CommandError::NotSent(NotSent::Tls(reason.error())),
            Failure::Handshake(error) => CommandError::NotSent(NotSent::Handshake(error.clone())),
        }
    }
}

impl From<Lost> for Failure {
    fn from(lost: Lost) -> Failure {
        Failure::Lost(lost)
    }
}

impl From<ProtocolError> for Failure {
    fn from(error: ProtocolError) -> Failure {
        Failure::Protocol(error)
    }
}
