//! Errors between a client and its server, by what the caller can do about them.

use crate::codec::ProtocolError;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Why a command has no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum CommandError {
    /// Nothing was sent: the command may be repeated.
    NotSent(NotSent),
    /// The command was sent, at least in part, and its reply did not arrive: it may or may not have been executed. The
    /// connection is closed, so a late reply is never delivered.
    OutcomeUnknown(Lost),
    /// The server sent bytes that are not a reply. The connection is closed, and the outcome is unknown too.
    Protocol(ProtocolError),
    /// The server refused the command or failed: its error reply.
    Server(ServerError),
    /// The command was executed; its reply has another type than the caller requested.
    Conversion(Mismatch),
}

/// Why nothing was sent.
#[derive(Debug)]
#[non_exhaustive]
pub enum NotSent {
    /// The address is wrong; the text says why.
    Address(String),
    /// No connection could be made within the time of the call.
    Connect(io::Error),
    /// One side refused the other's TLS: the server's certificate has an unknown issuer, another name or has expired, the
    /// server requires a client certificate, or does not speak TLS. The error says which.
    Tls(io::Error),
    /// The server refused the password, the database or the protocol.
    Handshake(ServerError),
    /// No client of the pool became free within the time of the call.
    PoolExhausted,
    /// There is no connection, and the queue for commands that wait for one is full: see `ClientSettings::queue_bytes_max`.
    QueueFull,
    /// A bound on commands in flight or on unsent bytes is reached: see `LoopSettings`.
    Congested,
    /// The command or pipeline is larger than `ClientSettings::request_bytes_max`.
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}

/// How the reply was lost. All commands of a pipeline that wait for replies share one loss.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Lost {
    /// The time of the call ran out.
    TimedOut,
    /// The connection was closed before the reply: by the server, or because what came before cannot be continued.
    Closed,
    /// The reply, or the element that must be whole in the buffer, is larger than `ClientSettings::reply_bytes_max`.
    TooLarge,
    /// The kernel reported this error.
    Io(Arc<io::Error>),
}

/// An error reply: a code in capitals, a blank, a text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerError {
    text: String,
}

impl ServerError {
    /// Takes the bytes of an error reply; invalid UTF-8 is replaced.
    pub(crate) fn of(text: &[u8]) -> ServerError {
        ServerError { text: String::from_utf8_lossy(text).into_owned() }
    }

    /// The first word, as `ERR`, `WRONGTYPE` or `MOVED`.
    pub fn code(&self) -> &str {
        self.text.split(' ').next().unwrap_or_default()
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// A reply of another type than requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The type that was requested.
    pub expected: &'static str,
    /// The reply that came: its type, and the beginning of its value.
    pub got: String,
}

impl fmt::Display for CommandError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandError::NotSent(reason) => write!(formatter, "not sent: {reason}"),
            CommandError::OutcomeUnknown(lost) => write!(formatter, "sent, outcome unknown: {lost}"),
            CommandError::Protocol(error) => write!(formatter, "the server's reply is no RESP: {error}"),
            CommandError::Server(error) => write!(formatter, "the server refused: {error}"),
            CommandError::Conversion(mismatch) => write!(formatter, "unexpected reply: {mismatch}"),
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
            NotSent::Congested => formatter.write_str("too many commands in flight, or too many unsent bytes"),
            NotSent::QueueFull => formatter.write_str("no connection, and the queue is full"),
            NotSent::TooLarge { bytes } => write!(formatter, "{bytes} bytes are too many for one request"),
        }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lost::TimedOut => formatter.write_str("no reply in time"),
            Lost::Closed => formatter.write_str("the connection was closed before the reply"),
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

impl std::error::Error for CommandError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CommandError::NotSent(NotSent::Connect(error) | NotSent::Tls(error)) => Some(error),
            CommandError::OutcomeUnknown(Lost::Io(error)) => Some(error.as_ref()),
            CommandError::NotSent(NotSent::Handshake(error)) | CommandError::Server(error) => Some(error),
            CommandError::Protocol(error) => Some(error),
            CommandError::Conversion(mismatch) => Some(mismatch),
            CommandError::NotSent(_) | CommandError::OutcomeUnknown(_) => None,
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

impl From<NotSent> for CommandError {
    fn from(reason: NotSent) -> CommandError {
        CommandError::NotSent(reason)
    }
}

impl From<Lost> for CommandError {
    fn from(lost: Lost) -> CommandError {
        CommandError::OutcomeUnknown(lost)
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

impl From<ProtocolError> for CommandError {
    fn from(error: ProtocolError) -> CommandError {
        CommandError::Protocol(error)
    }
}
