//! What can go wrong between a client and its server, by what the caller can do about it.

use crate::codec::ProtocolError;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Why a command has no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Nothing was sent: the command may be repeated.
    NotSent(NotSent),
    /// The command was sent, at least in part, and its reply did not come: it may have been executed or not. The
    /// connection is closed, so a reply that comes late reaches nobody.
    OutcomeUnknown(Lost),
    /// The server sent bytes that are no reply. The connection is closed, and the outcome is unknown too.
    Protocol(ProtocolError),
    /// The server refused the command, or failed: its own words.
    Server(ServerError),
    /// The command was executed; its reply is of another type than the caller asked for.
    Conversion(Mismatch),
}

/// Why nothing was sent.
#[derive(Debug)]
#[non_exhaustive]
pub enum NotSent {
    /// The address is wrong, in these words.
    Address(String),
    /// No connection could be made within the time of the call.
    Connect(io::Error),
    /// One side refused the other's TLS: the server's certificate has an unknown issuer, another name or no more validity, the
    /// server wants a certificate of the client, or speaks no TLS. The error says which.
    Tls(io::Error),
    /// The server refused the password, the database or the protocol.
    Handshake(ServerError),
    /// A pool had no client free within the time of the call.
    PoolExhausted,
    /// There is no connection, and the queue for commands that wait for one is full: see `Settings::queue_bytes_max`.
    QueueFull,
    /// As much is in flight or unsent as may be: see `LoopSettings`.
    Congested,
    /// The command or pipeline has more than `Settings::request_bytes_max`.
    TooLarge {
        /// Its bytes.
        bytes: usize,
    },
}

/// How the reply was lost. All commands of a pipeline that wait for replies lose them in the same way.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Lost {
    /// The time of the call ended.
    TimedOut,
    /// The server closed the connection.
    Closed,
    /// The reply, or the part of it that must be whole, is larger than `Settings::reply_bytes_max`.
    TooLarge,
    /// The kernel reported this.
    Io(Arc<io::Error>),
}

/// An error reply: a code in capitals, a blank, a text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerError {
    text: String,
}

impl ServerError {
    /// Takes the bytes of an error reply; what is no UTF-8 is replaced.
    pub(crate) fn of(text: &[u8]) -> ServerError {
        ServerError { text: String::from_utf8_lossy(text).into_owned() }
    }

    /// The first word, as `ERR`, `WRONGTYPE` or `MOVED`.
    pub fn code(&self) -> &str {
        self.text.split(' ').next().unwrap_or_default()
    }

    /// All of it.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// A reply of another type than was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// What was asked for.
    pub expected: &'static str,
    /// What came: its type, and the beginning of its value.
    pub got: String,
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotSent(reason) => write!(formatter, "not sent: {reason}"),
            Error::OutcomeUnknown(lost) => write!(formatter, "sent, outcome unknown: {lost}"),
            Error::Protocol(error) => write!(formatter, "the server's reply is no RESP: {error}"),
            Error::Server(error) => write!(formatter, "the server refused: {error}"),
            Error::Conversion(mismatch) => write!(formatter, "unexpected reply: {mismatch}"),
        }
    }
}

impl fmt::Display for NotSent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotSent::Address(reason) => formatter.write_str(reason),
            NotSent::Connect(error) => write!(formatter, "no connection: {error}"),
            NotSent::Tls(error) => error.fmt(formatter),
            NotSent::Handshake(error) => write!(formatter, "the server refused the session: {error}"),
            NotSent::PoolExhausted => formatter.write_str("no client of the pool became free in time"),
            NotSent::Congested => formatter.write_str("too much waits for the server already"),
            NotSent::QueueFull => formatter.write_str("no connection, and the queue is full"),
            NotSent::TooLarge { bytes } => write!(formatter, "{bytes} bytes are too many for one request"),
        }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lost::TimedOut => formatter.write_str("no reply in time"),
            Lost::Closed => formatter.write_str("the server closed the connection"),
            Lost::TooLarge => formatter.write_str("the reply is larger than the limit"),
            Lost::Io(error) => error.fmt(formatter),
        }
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "expected {}, got {}", self.expected, self.got)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::NotSent(NotSent::Connect(error) | NotSent::Tls(error)) => Some(error),
            Error::OutcomeUnknown(Lost::Io(error)) => Some(error.as_ref()),
            Error::NotSent(NotSent::Handshake(error)) | Error::Server(error) => Some(error),
            Error::Protocol(error) => Some(error),
            Error::Conversion(mismatch) => Some(mismatch),
            Error::NotSent(_) | Error::OutcomeUnknown(_) => None,
        }
    }
}

impl std::error::Error for ServerError {}
impl std::error::Error for Mismatch {}

impl std::error::Error for NotSent {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            NotSent::Connect(error) | NotSent::Tls(error) => Some(error),
            NotSent::Handshake(error) => Some(error),
            _ => None,
        }
    }
}

impl From<NotSent> for Error {
    fn from(reason: NotSent) -> Error {
        Error::NotSent(reason)
    }
}

impl From<Lost> for Error {
    fn from(lost: Lost) -> Error {
        Error::OutcomeUnknown(lost)
    }
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Lost {
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Lost::TimedOut,
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => Lost::Closed,
            _ => Lost::Io(Arc::new(error)),
        }
    }
}

impl From<ProtocolError> for Error {
    fn from(error: ProtocolError) -> Error {
        Error::Protocol(error)
    }
}
