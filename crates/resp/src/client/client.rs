//! The blocking client: one connection, opened on first use and reopened after a loss.
//!
//! Guarantees:
//!
//! - A call ends within `ClientSettings::timeout`, whatever the server does. Only the system may take longer: to look up a host
//!   name, or to connect to a Unix socket whose backlog is full.
//! - After a failed exchange the connection is dropped, so a late reply is never delivered to another command.
//! - If no byte of a command was sent, the command is sent on the next connection, within its time. No other command is
//!   repeated.
//! - A new connection has the session of the old one: protocol, user and database. State that a command changed directly
//!   (`SELECT`, `MULTI`, `WATCH`, `CLIENT SETNAME`) is lost with the connection: see [`Client::select`], and send
//!   transactions as one [`Pipeline`].
//! - Commands without a reply wait in a bounded queue while there is no connection. Commands with a reply are never queued:
//!   their caller waits, or gets [`NotSent`].
//!
//! A client is used by one thread at a time; [`ClientPool`](super::ClientPool) shares some among many.

use super::backoff::Backoff;
use super::command::{self, ToArguments};
use super::connection::Connection;
use super::error::{CommandError, Lost, NotSent, ServerError};
use super::from_reply::FromReply;
use super::pipeline::Pipeline;
use super::queue::Queue;
use super::session;
use super::settings::{ClientSettings, deadline};
use super::silence::{self, Silence};
use crate::codec::ReplyView;
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

/// A connection that was idle for longer is checked before use: servers close idle connections, and a command that is sent
/// to a closed connection has an unknown outcome.
const IDLE_CHECK: Duration = Duration::from_millis(100);
/// Size in bytes up to which the command buffer is kept between calls.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// A client of one server. Dropping it closes the connection; commands in the queue are lost then.
#[derive(Debug)]
pub struct Client {
    settings: ClientSettings,
    connection: Option<Connection>,
    backoff: Backoff,
    silence: Silence,
    queue: Queue,
    /// The encoded current command.
    output: Vec<u8>,
}

impl Client {
    /// Creates a client, which connects at its first command.
    pub fn new(settings: ClientSettings) -> Client {
        let backoff = Backoff::new(settings.backoff_min, settings.backoff_max);
        let queue = Queue::new(settings.queue_bytes_max);
        Client { settings, connection: None, backoff, silence: Silence::Unknown, queue, output: Vec::new() }
    }

    /// Connects to an address, in a single attempt, with the default settings of [`ClientSettings::of`].
    ///
    /// # Errors
    /// The address is wrong, the server is not reached in time, or it refuses the session.
    pub fn connect(address: &str) -> Result<Client, CommandError> {
        let mut client = Client::new(ClientSettings::of(address)?);
        client.try_connect(Call::of(&client.settings))?;
        Ok(client)
    }

    /// The settings in force.
    pub fn settings(&self) -> &ClientSettings {
        &self.settings
    }

    /// Changes the time limit of later calls.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.settings.timeout = timeout;
    }

    /// Sends a command and converts its reply.
    ///
    /// # Errors
    /// See [`CommandError`]; an error reply is [`CommandError::Server`].
    ///
    /// ```no_run
    /// # fn main() -> Result<(), resp::CommandError> {
    /// let mut client = resp::Client::connect("redis://localhost")?;
    /// client.command::<()>(("SET", "visits", 41))?;
    /// let visits: i64 = client.command(("INCR", "visits"))?;
    /// let nobody: Option<String> = client.command(("GET", "nobody"))?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn command<T: FromReply>(&mut self, command: impl ToArguments) -> Result<T, CommandError> {
        T::from_reply(self.view(command)?).map_err(CommandError::Conversion)
    }

    /// Sends a command and returns its reply as a view of the client's buffer: nothing is copied or allocated.
    ///
    /// # Errors
    /// See [`CommandError`]; an error reply is [`CommandError::Server`].
    #[inline]
    pub fn view(&mut self, command: impl ToArguments) -> Result<ReplyView<'_>, CommandError> {
        self.write(&command)?;
        let reply = self.call()?;
        let connection = self.connection.as_ref().expect("a connection that gave a reply");
        match connection.view(reply) {
            ReplyView::Error(text) => Err(CommandError::Server(ServerError::of(text))),
            view => Ok(view),
        }
    }

    /// Sends all commands of a pipeline in one write and returns one result for each. An error reply concerns only its own
    /// command. If the connection is lost on the way, that loss is the result of every command without a reply.
    ///
    /// # Errors
    /// Nothing was sent.
    pub fn pipeline<T: FromReply>(
        &mut self,
        pipeline: &Pipeline,
    ) -> Result<Vec<Result<T, CommandError>>, CommandError> {
        let mut results = Vec::with_capacity(pipeline.len());
        let outcome = self.pipeline_with(pipeline, |_, reply| {
            results.push(match reply {
                ReplyView::Error(text) => Err(CommandError::Server(ServerError::of(text))),
                reply => T::from_reply(reply).map_err(CommandError::Conversion),
            });
        });
        match outcome {
            Ok(()) => {}
            Err(CommandError::OutcomeUnknown(lost)) => {
                results.resize_with(pipeline.len(), || Err(CommandError::OutcomeUnknown(lost.clone())));
            }
            Err(CommandError::Protocol(error)) => {
                results.resize_with(pipeline.len(), || Err(CommandError::Protocol(error)))
            }
            Err(not_sent) => return Err(not_sent),
        }
        Ok(results)
    }

    /// Sends all commands of a pipeline in one write. Each reply is passed to `on_reply` as it arrives, in order, with the
    /// index of its command: no reply is kept or allocated. An error reply is [`ReplyView::Error`].
    ///
    /// # Errors
    /// See [`CommandError`]. Replies that `on_reply` received before are valid.
    pub fn pipeline_with(
        &mut self,
        pipeline: &Pipeline,
        mut on_reply: impl FnMut(usize, ReplyView<'_>),
    ) -> Result<(), CommandError> {
        if pipeline.is_empty() {
            return Ok(());
        }
        self.check_size(pipeline.bytes().len())?;
        self.exchange(|connection, _, deadline| {
            connection.pipeline(pipeline.bytes(), pipeline.len(), deadline, &mut on_reply)
        })
    }

    /// Sends a command and does not wait for its reply. The caller learns neither a value nor an error.
    ///
    /// If the server supports `CLIENT REPLY OFF`, its replies are switched off; otherwise they are read and dropped without
    /// waiting. While there is no connection the command is queued, and sent before any later command. It is lost if the
    /// connection is lost or the client is dropped. The first call asks the server whether it supports the command. If
    /// commands follow one another within a millisecond, the kernel fills whole packets: the last command may then wait 200
    /// ms, unless a command with a reply follows.
    ///
    /// # Errors
    /// [`NotSent::QueueFull`], or the server has not read for the time of the call.
    #[inline]
    pub fn noreply(&mut self, command: impl ToArguments) -> Result<(), CommandError> {
        self.write(&command)?;
        let output = std::mem::take(&mut self.output);
        let sent = self.send_unanswered(&output, 1);
        self.output = output;
        sent
    }

    /// [`Client::noreply`] for all commands of a pipeline, in one write.
    ///
    /// # Errors
    /// As [`Client::noreply`].
    pub fn noreply_pipeline(&mut self, pipeline: &Pipeline) -> Result<(), CommandError> {
        self.check_size(pipeline.bytes().len())?;
        self.send_unanswered(pipeline.bytes(), pipeline.len() as u64)
    }

    /// Selects a database, on this connection and all later ones.
    ///
    /// # Errors
    /// See [`CommandError`]; the database then stays as it was.
    pub fn select(&mut self, database: u32) -> Result<(), CommandError> {
        self.command::<()>(("SELECT", database))?;
        self.settings.database = database;
        Ok(())
    }

    /// Authenticates as another user, on this connection and all later ones; without a name as the default user.
    ///
    /// # Errors
    /// See [`CommandError`]; the user then stays as it was.
    pub fn authenticate(&mut self, user: Option<&str>, password: &str) -> Result<(), CommandError> {
        self.command::<()>(("AUTH", user, password))?;
        self.settings.user = user.map(str::to_owned);
        self.settings.password = Some(password.to_owned());
        Ok(())
    }

    /// Publishes a message and returns the number of subscribers that the server sent it to.
    ///
    /// # Errors
    /// See [`CommandError`].
    pub fn publish(&mut self, channel: impl ToArguments, message: impl ToArguments) -> Result<u64, CommandError> {
        self.command(("PUBLISH", channel, message))
    }

    /// Bytes of commands without a reply that wait for a connection.
    pub fn queued_bytes(&self) -> usize {
        self.queue.bytes().len()
    }

    #[inline]
    fn write(&mut self, command: &impl ToArguments) -> Result<(), CommandError> {
        if self.output.capacity() > KEPT_BYTES_MAX {
            self.output = Vec::new();
        }
        self.output.clear();
        command::write(&mut self.output, command);
        self.check_size(self.output.len())
    }

    #[inline]
    fn check_size(&self, bytes: usize) -> Result<(), CommandError> {
        if bytes > self.settings.request_bytes_max { Err(NotSent::TooLarge { bytes }.into()) } else { Ok(()) }
    }

    #[inline]
    fn call(&mut self) -> Result<Range<usize>, CommandError> {
        self.exchange(|connection, output, deadline| connection.call(output, deadline))
    }

    /// Runs an exchange on a connection whose replies are on. An exchange that failed before a byte was sent is repeated on
    /// a new connection.
    #[inline]
    fn exchange<T>(
        &mut self,
        mut exchange: impl FnMut(&mut Connection, &[u8], Instant) -> Result<T, CommandError>,
    ) -> Result<T, CommandError> {
        let call = Call::of(&self.settings);
        loop {
            let is_new = self.ready(call)?;
            let connection = self.connection.as_mut().expect("a connection that is ready");
            let outcome =
                prepare(connection, call, is_new).and_then(|()| exchange(connection, &self.output, call.deadline));
            let error = match outcome {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let has_sent = connection.has_sent();
            self.connection = None;
            if has_sent {
                return Err(error);
            }
            if is_new || Instant::now() >= call.deadline {
                return Err(NotSent::Connect(io::Error::other(error.to_string())).into());
            }
        }
    }

    /// Ensures a connection. After a failed attempt it waits until the next one is due. Returns whether the connection is
    /// new.
    #[inline]
    fn ready(&mut self, call: Call) -> Result<bool, CommandError> {
        if self.is_connected(call.start) {
            return Ok(false);
        }
        let mut last = io::Error::from(io::ErrorKind::TimedOut);
        loop {
            let now = Instant::now();
            let due = self.backoff.due().unwrap_or(now);
            if due >= call.deadline {
                return Err(NotSent::Connect(last).into());
            }
            std::thread::sleep(due.saturating_duration_since(now));
            match self.try_connect(call) {
                Ok(()) => return Ok(true),
                Err(CommandError::NotSent(NotSent::Connect(error))) => last = error,
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether there is a connection. A connection that was idle is checked.
    #[inline]
    fn is_connected(&mut self, now: Instant) -> bool {
        let Some(connection) = &mut self.connection else { return false };
        if connection.idle(now) >= IDLE_CHECK && !connection.is_alive() {
            self.connection = None;
        }
        self.connection.is_some()
    }

    /// Makes one attempt to connect, then sends the queued commands.
    fn try_connect(&mut self, call: Call) -> Result<(), CommandError> {
        let now = Instant::now();
        let deadline = call.deadline.min(deadline(now, self.settings.connect_timeout));
        let opened = session::open(&self.settings, deadline);
        match opened {
            Ok(connection) => self.connection = Some(connection),
            Err(error) => {
                self.backoff.failed(Instant::now());
                return Err(error.into());
            }
        }
        self.backoff.succeeded();
        self.send_queue(call)
    }

    fn send_queue(&mut self, call: Call) -> Result<(), CommandError> {
        if self.queue.is_empty() {
            return Ok(());
        }
        let waiting = self.queue.take();
        let cause = match self.try_unanswered(&waiting.bytes, waiting.commands, call, true) {
            Ok(true) => return Ok(()),
            Ok(false) => {
                self.queue.put_back(waiting);
                io::ErrorKind::ConnectionReset.into()
            }
            // Some may have been executed. Sending them again could execute them twice.
            Err(error) => io::Error::other(error.to_string()),
        };
        self.backoff.failed(Instant::now());
        Err(NotSent::Connect(cause).into())
    }

    /// Sends commands whose replies are not wanted, or queues them.
    fn send_unanswered(&mut self, bytes: &[u8], commands: u64) -> Result<(), CommandError> {
        let call = Call::of(&self.settings);
        let mut is_new = false;
        if !self.is_connected(call.start) {
            let is_due = self.backoff.due().is_none_or(|due| due <= call.start);
            match if is_due { self.try_connect(call) } else { Ok(()) } {
                Err(CommandError::NotSent(NotSent::Connect(_))) => {}
                attempt => attempt?,
            }
            is_new = true;
        }
        if self.connection.is_some() && self.try_unanswered(bytes, commands, call, is_new)? {
            return Ok(());
        }
        self.queue.push(bytes, commands).map_err(CommandError::from)
    }

    /// Sends them on the connection. False: the connection failed before a byte was sent.
    fn try_unanswered(&mut self, bytes: &[u8], commands: u64, call: Call, is_new: bool) -> Result<bool, CommandError> {
        self.ask_for_silence(call);
        let Some(connection) = &mut self.connection else { return Ok(false) };
        let wants_silence = self.silence == Silence::Kept && !connection.is_silent();
        let outcome = connection.begin(call.start, call.timeout, is_new).and_then(|()| {
            if wants_silence {
                connection.switch_silence(silence::OFF, true, call.deadline)?;
            }
            connection.send_unanswered(bytes, commands, call.deadline)
        });
        let Err(error) = outcome else { return Ok(true) };
        let has_sent = connection.has_sent();
        self.connection = None;
        if has_sent { Err(error) } else { Ok(false) }
    }

    /// Finds out, once for each client, whether the server supports `CLIENT REPLY OFF`. The connection may be lost by that.
    fn ask_for_silence(&mut self, call: Call) {
        let Some(connection) = self.connection.as_mut().filter(|_| self.silence == Silence::Unknown) else { return };
        let answer =
            connection.begin(call.start, call.timeout, true).and_then(|()| silence::ask(connection, call.deadline));
        match answer {
            Ok(answer) => self.silence = answer,
            // Some proxies close the connection after an unknown command; a user may lack the right to PING.
            Err(CommandError::OutcomeUnknown(Lost::Closed | Lost::TimedOut)) if connection.has_sent() => {
                self.silence = Silence::Refused;
                self.connection = session::open(&self.settings, call.deadline).ok();
            }
            Err(_) => self.connection = None,
        }
        if self.connection.is_none() {
            self.backoff.failed(Instant::now());
        }
    }
}

/// Time of one call.
#[derive(Clone, Copy, Debug)]
struct Call {
    start: Instant,
    timeout: Duration,
    deadline: Instant,
}

impl Call {
    #[inline]
    fn of(settings: &ClientSettings) -> Call {
        let start = Instant::now();
        Call { start, timeout: settings.timeout, deadline: deadline(start, settings.timeout) }
    }
}

/// Prepares a connection for commands with replies.
#[inline]
fn prepare(connection: &mut Connection, call: Call, is_new: bool) -> Result<(), CommandError> {
    connection.begin(call.start, call.timeout, is_new)?;
    if connection.is_silent() {
        connection.switch_silence(silence::ON, false, call.deadline)?;
    }
    Ok(())
}
