//! The blocking client: one connection, opened when it is needed and again when it is lost.
//!
//! What holds:
//!
//! - A call ends within `Settings::timeout`, whatever the server does; looking up a host's name is the system's affair.
//! - After a failed exchange the connection is dropped, so a late reply reaches nobody.
//! - A command of which no byte was sent is sent on the next connection, within its time. No other command is repeated.
//! - A new connection has the session of the old one: protocol, user and database. What a command changed by itself
//!   (`SELECT`, `MULTI`, `WATCH`, `CLIENT SETNAME`) is lost with the connection: see [`Client::select`], and send
//!   transactions as one [`Pipeline`].
//! - Commands without a reply wait in a bounded queue while there is no connection. Commands with a reply never wait there:
//!   their caller waits, or gets [`NotSent`].
//!
//! A client is used by one thread at a time; [`Pool`](super::Pool) shares some among many.

use super::backoff::Backoff;
use super::command::{self, ToArguments};
use super::connection::Connection;
use super::error::{Error, Lost, NotSent, ServerError};
use super::from_reply::FromReply;
use super::pipeline::Pipeline;
use super::queue::Queue;
use super::session;
use super::settings::{Settings, deadline};
use super::silence::{self, Silence};
use crate::codec::View;
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

/// A connection that was not used for so long is looked at before it is used: servers close idle connections, and a
/// command that is sent into a closed one has an unknown outcome.
const IDLE_CHECK: Duration = Duration::from_millis(100);
/// Bytes of the buffer for commands that are kept between calls.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// A client of one server. Dropping it closes the connection; commands in the queue are lost then.
#[derive(Debug)]
pub struct Client {
    settings: Settings,
    connection: Option<Connection>,
    backoff: Backoff,
    silence: Silence,
    queue: Queue,
    /// The command in hand.
    output: Vec<u8>,
}

impl Client {
    /// A client that connects at its first command.
    pub fn new(settings: Settings) -> Client {
        let backoff = Backoff::new(settings.backoff_min, settings.backoff_max);
        let queue = Queue::new(settings.queue_bytes_max);
        Client { settings, connection: None, backoff, silence: Silence::Unknown, queue, output: Vec::new() }
    }

    /// Connects to an address, in one attempt, with the default settings of [`Settings::of`].
    ///
    /// # Errors
    /// The address is wrong, the server is not reached in time, or it refuses the session.
    pub fn connect(address: &str) -> Result<Client, Error> {
        let mut client = Client::new(Settings::of(address)?);
        client.try_connect(Call::of(&client.settings))?;
        Ok(client)
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes what a call may take, from the next one on.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.settings.timeout = timeout;
    }

    /// Sends a command and converts its reply.
    ///
    /// # Errors
    /// See [`Error`]; an error reply is [`Error::Server`].
    ///
    /// ```no_run
    /// # fn main() -> Result<(), resp::Error> {
    /// let mut client = resp::Client::connect("redis://localhost")?;
    /// client.command::<()>(("SET", "visits", 41))?;
    /// let visits: i64 = client.command(("INCR", "visits"))?;
    /// let nobody: Option<String> = client.command(("GET", "nobody"))?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn command<T: FromReply>(&mut self, command: impl ToArguments) -> Result<T, Error> {
        T::from_reply(self.view(command)?).map_err(Error::Conversion)
    }

    /// Sends a command and gives its reply in the client's buffer: nothing is copied or allocated.
    ///
    /// # Errors
    /// See [`Error`]; an error reply is [`Error::Server`].
    #[inline]
    pub fn view(&mut self, command: impl ToArguments) -> Result<View<'_>, Error> {
        self.write(&command)?;
        let reply = self.call()?;
        let connection = self.connection.as_ref().expect("a connection that gave a reply");
        match connection.view(reply) {
            View::Error(text) => Err(Error::Server(ServerError::of(text))),
            view => Ok(view),
        }
    }

    /// Sends all commands of a pipeline in one write and gives a result for each: the error of one command is its result
    /// alone. Where the connection is lost on the way, the commands without a reply share that as their result.
    ///
    /// # Errors
    /// Nothing was sent.
    pub fn pipeline<T: FromReply>(&mut self, pipeline: &Pipeline) -> Result<Vec<Result<T, Error>>, Error> {
        let mut results = Vec::with_capacity(pipeline.len());
        let outcome = self.pipeline_with(pipeline, |_, reply| {
            results.push(match reply {
                View::Error(text) => Err(Error::Server(ServerError::of(text))),
                reply => T::from_reply(reply).map_err(Error::Conversion),
            });
        });
        match outcome {
            Ok(()) => {}
            Err(Error::OutcomeUnknown(lost)) => {
                results.resize_with(pipeline.len(), || Err(Error::OutcomeUnknown(lost.clone())));
            }
            Err(Error::Protocol(error)) => results.resize_with(pipeline.len(), || Err(Error::Protocol(error))),
            Err(not_sent) => return Err(not_sent),
        }
        Ok(results)
    }

    /// Sends all commands of a pipeline in one write and gives each reply to `on_reply` with its command's place, in order,
    /// as it comes: nothing is kept or allocated for a reply. An error reply is [`View::Error`].
    ///
    /// # Errors
    /// See [`Error`]; replies given to `on_reply` before are good.
    pub fn pipeline_with(
        &mut self,
        pipeline: &Pipeline,
        mut on_reply: impl FnMut(usize, View<'_>),
    ) -> Result<(), Error> {
        if pipeline.is_empty() {
            return Ok(());
        }
        self.check_size(pipeline.bytes().len())?;
        self.exchange(|connection, _, deadline| {
            connection.pipeline(pipeline.bytes(), pipeline.len(), deadline, &mut on_reply)
        })
    }

    /// Sends a command and does not wait for its reply, which nobody will see: neither a value nor an error.
    ///
    /// Where the server can be told to keep silent (`CLIENT REPLY OFF`) it is; else replies are read and dropped without
    /// waiting for them. While there is no connection the command is queued, and sent before any later command. It may be
    /// lost: with the connection, or when the client is dropped. The first call asks the server what it can. Of commands
    /// that follow one another within a millisecond the kernel makes full packets: the last of them may wait 200 ms, unless
    /// a command with a reply pushes them.
    ///
    /// # Errors
    /// [`NotSent::QueueFull`], or the server read nothing for the time of the call.
    #[inline]
    pub fn noreply(&mut self, command: impl ToArguments) -> Result<(), Error> {
        self.write(&command)?;
        let output = std::mem::take(&mut self.output);
        let sent = self.send_unanswered(&output, 1);
        self.output = output;
        sent
    }

    /// [`Client::noreply`] of all commands of a pipeline, in one write.
    ///
    /// # Errors
    /// As [`Client::noreply`].
    pub fn noreply_pipeline(&mut self, pipeline: &Pipeline) -> Result<(), Error> {
        self.check_size(pipeline.bytes().len())?;
        self.send_unanswered(pipeline.bytes(), pipeline.len() as u64)
    }

    /// Selects a database, on this connection and all later ones.
    ///
    /// # Errors
    /// See [`Error`]; the database is then the one of before.
    pub fn select(&mut self, database: u32) -> Result<(), Error> {
        self.command::<()>(("SELECT", database))?;
        self.settings.database = database;
        Ok(())
    }

    /// Becomes another user, on this connection and all later ones; without a name the default user.
    ///
    /// # Errors
    /// See [`Error`]; the user is then the one of before.
    pub fn authenticate(&mut self, user: Option<&str>, password: &str) -> Result<(), Error> {
        self.command::<()>(("AUTH", user, password))?;
        self.settings.user = user.map(str::to_owned);
        self.settings.password = Some(password.to_owned());
        Ok(())
    }

    /// Publishes a message and gives the number of subscribers that the server sent it to.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn publish(&mut self, channel: impl ToArguments, message: impl ToArguments) -> Result<u64, Error> {
        self.command(("PUBLISH", channel, message))
    }

    /// Bytes of commands without a reply that wait for a connection.
    pub fn queued_bytes(&self) -> usize {
        self.queue.bytes().len()
    }

    #[inline]
    fn write(&mut self, command: &impl ToArguments) -> Result<(), Error> {
        if self.output.capacity() > KEPT_BYTES_MAX {
            self.output = Vec::new();
        }
        self.output.clear();
        command::write(&mut self.output, command);
        self.check_size(self.output.len())
    }

    #[inline]
    fn check_size(&self, bytes: usize) -> Result<(), Error> {
        if bytes > self.settings.request_bytes_max { Err(NotSent::TooLarge { bytes }.into()) } else { Ok(()) }
    }

    #[inline]
    fn call(&mut self) -> Result<Range<usize>, Error> {
        self.exchange(|connection, output, deadline| connection.call(output, deadline))
    }

    /// Makes an exchange on a connection that replies. One that failed before a byte was sent is made again, on a new
    /// connection.
    #[inline]
    fn exchange<T>(
        &mut self,
        mut exchange: impl FnMut(&mut Connection, &[u8], Instant) -> Result<T, Error>,
    ) -> Result<T, Error> {
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

    /// Makes sure of a connection, waiting for the next attempt where one has failed; says whether it is new.
    #[inline]
    fn ready(&mut self, call: Call) -> Result<bool, Error> {
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
                Err(Error::NotSent(NotSent::Connect(error))) => last = error,
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether there is a connection. One that was idle is looked at.
    #[inline]
    fn is_connected(&mut self, now: Instant) -> bool {
        let Some(connection) = &mut self.connection else { return false };
        if connection.idle(now) >= IDLE_CHECK && !connection.is_alive() {
            self.connection = None;
        }
        self.connection.is_some()
    }

    /// One attempt to connect; sends what is queued.
    fn try_connect(&mut self, call: Call) -> Result<(), Error> {
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

    fn send_queue(&mut self, call: Call) -> Result<(), Error> {
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
            // Some may have been executed: to send them again could execute them twice.
            Err(error) => io::Error::other(error.to_string()),
        };
        self.backoff.failed(Instant::now());
        Err(NotSent::Connect(cause).into())
    }

    /// Sends commands whose replies nobody wants, or queues them.
    fn send_unanswered(&mut self, bytes: &[u8], commands: u64) -> Result<(), Error> {
        let call = Call::of(&self.settings);
        let mut is_new = false;
        if !self.is_connected(call.start) {
            let is_due = self.backoff.due().is_none_or(|due| due <= call.start);
            match if is_due { self.try_connect(call) } else { Ok(()) } {
                Err(Error::NotSent(NotSent::Connect(_))) => {}
                attempt => attempt?,
            }
            is_new = true;
        }
        if self.connection.is_some() && self.try_unanswered(bytes, commands, call, is_new)? {
            return Ok(());
        }
        self.queue.push(bytes, commands).map_err(Error::from)
    }

    /// Sends them on the connection; false if that broke before a byte was sent.
    fn try_unanswered(&mut self, bytes: &[u8], commands: u64, call: Call, is_new: bool) -> Result<bool, Error> {
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

    /// Finds out, once for each client, whether the server can keep silent. There may be no connection afterwards.
    fn ask_for_silence(&mut self, call: Call) {
        let Some(connection) = self.connection.as_mut().filter(|_| self.silence == Silence::Unknown) else { return };
        let answer =
            connection.begin(call.start, call.timeout, true).and_then(|()| silence::ask(connection, call.deadline));
        match answer {
            Ok(answer) => self.silence = answer,
            // Some proxies close the connection at an unknown command; a user may be allowed no PING.
            Err(Error::OutcomeUnknown(Lost::Closed | Lost::TimedOut)) if connection.has_sent() => {
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
    fn of(settings: &Settings) -> Call {
        let start = Instant::now();
        Call { start, timeout: settings.timeout, deadline: deadline(start, settings.timeout) }
    }
}

/// Makes a connection ready for commands with replies.
#[inline]
fn prepare(connection: &mut Connection, call: Call, is_new: bool) -> Result<(), Error> {
    connection.begin(call.start, call.timeout, is_new)?;
    if connection.is_silent() {
        connection.switch_silence(silence::ON, false, call.deadline)?;
    }
    Ok(())
}
