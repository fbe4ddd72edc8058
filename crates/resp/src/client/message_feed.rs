//! A connection on which the server sends unasked: the replication stream (PSYNC), MONITOR.
//!
//! Every message has the form of a reply. The caller gets its bytes as they were sent: a replica counts them.

use super::ToArguments;
use super::command;
use super::connection::Connection;
use super::error::CommandError;
use super::session;
use super::settings::{ClientSettings, deadline};
use std::time::{Duration, Instant};

/// A connection for messages that answer no command. It does not connect again: what was missed is the caller's to find out.
#[derive(Debug)]
pub struct MessageFeed {
    connection: Connection,
    timeout: Duration,
}

impl MessageFeed {
    /// Connects and opens the session, in a single attempt.
    ///
    /// # Errors
    /// The server is not reached in time, or refuses the session.
    pub fn connect(settings: &ClientSettings) -> Result<MessageFeed, CommandError> {
        let until = deadline(Instant::now(), settings.connect_timeout.min(settings.timeout));
        Ok(MessageFeed { connection: session::open(settings, until)?, timeout: settings.timeout })
    }

    /// Sends a command. Its reply, if it has one, is the next message.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn send(&mut self, command: impl ToArguments) -> Result<(), CommandError> {
        let mut output = Vec::new();
        command::write(&mut output, &command);
        self.connection.send(&output, deadline(Instant::now(), self.timeout))
    }

    /// The bytes of the next message. None if `timeout` ends first.
    ///
    /// # Errors
    /// The connection is lost, or the server sent bytes that are no message; later calls fail too.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<&[u8]>, CommandError> {
        let message = self.connection.wait_for_push(deadline(Instant::now(), timeout))?;
        Ok(message.map(|message| self.connection.bytes(message)))
    }
}
