//! Commands without replies: whether the server can be told to keep silent.
//!
//! Redis does not answer `CLIENT REPLY OFF`, and answers `CLIENT REPLY ON`. A server that lacks them answers both with an
//! error; one was seen that answers both with OK and goes on replying; a proxy may close the connection. So the question is
//! asked once for each client, with a PING behind it that ends the answers.

use super::command;
use super::connection::Connection;
use super::error::Error;
use crate::codec::View;
use std::time::Instant;

/// What is known of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    Unknown,
    /// It keeps silent when it is told to.
    Kept,
    /// It answers every command: replies are read and dropped.
    Refused,
}

pub(crate) const OFF: &[u8] = b"*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$3\r\nOFF\r\n";
pub(crate) const ON: &[u8] = b"*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$2\r\nON\r\n";

/// Asks the server, on a connection on which an exchange has begun. Replies are on afterwards.
///
/// # Errors
/// The connection is gone, which some servers do to answer an unknown command.
pub(crate) fn ask(connection: &mut Connection, deadline: Instant) -> Result<Silence, Error> {
    let mut request = [OFF, ON].concat();
    command::write(&mut request, "PING");
    let (mut answers, mut is_refused) = (0, false);
    connection.send(&request, deadline)?;
    loop {
        let reply = connection.call(&[], deadline)?;
        match connection.view(reply) {
            View::Simple(b"PONG") => break,
            View::Error(_) => is_refused = true,
            _ => {}
        }
        answers += 1;
    }
    Ok(if answers == 1 && !is_refused { Silence::Kept } else { Silence::Refused })
}
