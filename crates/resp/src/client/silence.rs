//! Commands without replies: whether the server can switch its replies off.
//!
//! Redis does not answer `CLIENT REPLY OFF`, and answers `CLIENT REPLY ON`. A server without them answers both with an
//! error; one was seen that answers both with OK and goes on replying; a proxy may close the connection. Therefore each
//! client tests this once, with a PING behind both commands that marks the end of the replies.

use super::command;
use super::connection::Connection;
use super::error::CommandError;
use crate::codec::ReplyView;
use std::time::Instant;

/// What is known about the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    Unknown,
    /// It switches its replies off on request.
    Kept,
    /// It answers every command: its replies are read and dropped.
    Refused,
}

pub(crate) const OFF: &[u8] = b"*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$3\r\nOFF\r\n";
pub(crate) const ON: &[u8] = b"*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$2\r\nON\r\n";

/// Tests the server, on a connection on which an exchange has begun. Replies are on afterwards.
///
/// # Errors
/// The connection was lost; some servers close it after an unknown command.
pub(crate) fn ask(connection: &mut Connection, deadline: Instant) -> Result<Silence, CommandError> {
    let mut request = [OFF, ON].concat();
    command::write(&mut request, "PING");
    let (mut answers, mut is_refused) = (0, false);
    connection.send(&request, deadline)?;
    loop {
        let reply = connection.call(&[], deadline)?;
        match connection.view(reply) {
            ReplyView::Simple(b"PONG") => break,
            ReplyView::Error(_) => is_refused = true,
            _ => {}
        }
        answers += 1;
    }
    Ok(if answers == 1 && !is_refused { Silence::Kept } else { Silence::Refused })
}
