//! The commands that open a session on a new connection: protocol, user, database.
//!
//! They are sent in one write: `HELLO 3 AUTH user password` or `AUTH [user] password`, then `SELECT database`. A server
//! without HELLO (before Redis 6, twemproxy) is used with RESP2, which does not need it.

use super::command;
use super::connection::Connection;
use super::error::{CommandError, Lost, NotSent, ServerError};
use super::settings::ClientSettings;
use crate::codec::{ProtocolVersion, ReplyView};
use std::io;
use std::time::Instant;

/// User of a password that comes without a user name.
const DEFAULT_USER: &str = "default";

/// Connects and opens the session.
///
/// # Errors
/// [`NotSent::Connect`], which another attempt may cure, or [`NotSent::Tls`] or [`NotSent::Handshake`].
pub(crate) fn open(settings: &ClientSettings, deadline: Instant) -> Result<Connection, NotSent> {
    let mut connection = Connection::open(settings, deadline).map_err(of_connect)?;
    let (request, count) = request(settings);
    if count == 0 {
        return Ok(connection);
    }
    let mut refusal = None;
    let mut on_reply = |_: usize, reply: ReplyView<'_>| {
        if let (ReplyView::Error(text), None) = (reply, &refusal) {
            refusal = Some(ServerError::of(text));
        }
    };
    let outcome = connection
        .begin(Instant::now(), settings.timeout, true)
        .and_then(|()| connection.pipeline(&request, count, deadline, &mut on_reply));
    match (refusal, outcome) {
        (Some(refusal), _) => Err(NotSent::Handshake(refusal)),
        (None, outcome) => outcome.map(|()| connection).map_err(|error| of_connect(as_io(error))),
    }
}

/// The commands of the session, and the number of their replies.
pub(crate) fn request(settings: &ClientSettings) -> (Vec<u8>, usize) {
    let (mut output, mut count) = (Vec::new(), 0);
    let user = settings.user.as_deref();
    let password = settings.password.as_deref();
    match (settings.version, password) {
        (ProtocolVersion::Resp3, password) => {
            let credentials = password.map(|password| ("AUTH", user.unwrap_or(DEFAULT_USER), password));
            command::write(&mut output, &("HELLO", 3, credentials));
            count += 1;
        }
        (ProtocolVersion::Resp2, Some(password)) => {
            command::write(&mut output, &("AUTH", user, password));
            count += 1;
        }
        (ProtocolVersion::Resp2, None) => {}
    }
    if settings.database != 0 {
        command::write(&mut output, &("SELECT", settings.database));
        count += 1;
    }
    (output, count)
}

/// If opening the session fails, the connection counts as not made.
fn as_io(error: CommandError) -> io::Error {
    match error {
        CommandError::OutcomeUnknown(Lost::TimedOut) => io::ErrorKind::TimedOut.into(),
        CommandError::OutcomeUnknown(Lost::Io(error)) => io::Error::new(error.kind(), error.to_string()),
        error => io::Error::other(error.to_string()),
    }
}

/// Separates refused TLS (see `Stream::connect`) from failures that another attempt may cure.
fn of_connect(error: io::Error) -> NotSent {
    if error.kind() == io::ErrorKind::InvalidData { NotSent::Tls(error) } else { NotSent::Connect(error) }
}
