//! The application's handle for commands on an event loop.

use super::commands::{Commands, Order};
use super::in_flight::{Completion, Gathered, Then};
use super::link::Upkeep;
use super::loop_settings::LoopSettings;
use super::managed_connection::{ManagedConnection, Shared};
use crate::client::{CommandError, FromReply, NotSent, Pipeline, ToArguments, write_command};
use crate::codec::ReplyView;
use reactor::{Neighbourhood, Setup};
use std::fmt;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// A client of one server on one event loop. Clones share its connection. After the last one is dropped, the connection ends once
/// nothing is in flight. See the [module](self) for the guarantees.
#[derive(Clone)]
pub struct LoopClient {
    managed: Shared<Commands>,
    timeout: Duration,
    /// Counted by the loop's hooks.
    _handle: Rc<()>,
}

impl LoopClient {
    /// A client on the loop that `setup` describes; it connects at its first command. Each loop needs its own.
    pub fn new(settings: LoopSettings, setup: &mut Setup<'_>) -> LoopClient {
        let (timeout, queue_bytes_max) = (settings.client.timeout, settings.client.queue_bytes_max);
        let (managed, handle) =
            (ManagedConnection::new(settings, Commands::new(queue_bytes_max), setup.lp()), Rc::new(()));
        setup.add_state(Box::new(Upkeep::new(&managed, &handle)));
        LoopClient { managed, timeout, _handle: handle }
    }

    /// The same client with another time limit for each of its commands: waiting for a connection, sending and the reply.
    pub fn within(&self, timeout: Duration) -> LoopClient {
        LoopClient { timeout, ..self.clone() }
    }

    /// Sends a command. `then` receives its converted reply, or an error, later on this loop.
    ///
    /// # Errors
    /// Nothing is sent and `then` is dropped: [`NotSent::Congested`], [`NotSent::QueueFull`] or [`NotSent::TooLarge`].
    pub fn command<T: FromReply>(
        &self,
        at: &mut Neighbourhood<'_>,
        command: impl ToArguments,
        then: impl FnOnce(Result<T, CommandError>, &mut Neighbourhood<'_>) + 'static,
    ) -> Result<(), NotSent> {
        self.view(at, command, |reply, at| {
            then(reply.and_then(|reply| T::from_reply(reply).map_err(CommandError::Conversion)), at);
        })
    }

    /// Sends a command. `then` receives its reply as a view of the loop's read buffer: nothing is copied, and only `then` itself
    /// is allocated.
    ///
    /// # Errors
    /// As [`LoopClient::command`].
    pub fn view(
        &self,
        at: &mut Neighbourhood<'_>,
        command: impl ToArguments,
        then: impl FnOnce(Result<ReplyView<'_>, CommandError>, &mut Neighbourhood<'_>) + 'static,
    ) -> Result<(), NotSent> {
        let completion: Completion = Box::new(then);
        self.take(at, |output| write_command(output, &command), 1, Then::One(completion))
    }

    /// Sends all commands of a pipeline together, with no other command between them. `then` receives a result for each, as from
    /// [`Client::pipeline`](crate::Client::pipeline). For an empty pipeline it is called at once.
    ///
    /// # Errors
    /// As [`LoopClient::command`].
    pub fn pipeline<T: FromReply + 'static>(
        &self,
        at: &mut Neighbourhood<'_>,
        pipeline: &Pipeline,
        then: impl FnOnce(Result<Vec<Result<T, CommandError>>, CommandError>, &mut Neighbourhood<'_>) + 'static,
    ) -> Result<(), NotSent> {
        if pipeline.is_empty() {
            then(Ok(Vec::new()), at);
            return Ok(());
        }
        let gather = Then::Each(Box::new(Gathered::new(pipeline.len(), then)));
        self.take(at, |output| output.extend_from_slice(pipeline.bytes()), pipeline.len(), gather)
    }

    /// Sends a command whose outcome is not wanted: its reply is dropped on arrival. (`CLIENT REPLY OFF` would silence the
    /// connection's other commands too.) While there is no connection the command waits for one, without a deadline.
    ///
    /// # Errors
    /// As [`LoopClient::command`].
    pub fn noreply(&self, at: &mut Neighbourhood<'_>, command: impl ToArguments) -> Result<(), NotSent> {
        self.take(at, |output| write_command(output, &command), 1, Then::Nothing)
    }

    /// [`LoopClient::noreply`] for all commands of a pipeline.
    ///
    /// # Errors
    /// As [`LoopClient::command`].
    pub fn noreply_pipeline(&self, at: &mut Neighbourhood<'_>, pipeline: &Pipeline) -> Result<(), NotSent> {
        if pipeline.is_empty() {
            return Ok(());
        }
        self.take(at, |output| output.extend_from_slice(pipeline.bytes()), pipeline.len(), Then::Nothing)
    }

    /// Selects a database, on this connection and, once the server has agreed, on all later ones. Commands that were sent before
    /// are executed in the old database, later ones in the new one. Clones share the choice.
    ///
    /// # Errors
    /// As [`LoopClient::command`].
    pub fn select(
        &self,
        at: &mut Neighbourhood<'_>,
        database: u32,
        then: impl FnOnce(Result<(), CommandError>, &mut Neighbourhood<'_>) + 'static,
    ) -> Result<(), NotSent> {
        let managed = Rc::downgrade(&self.managed);
        self.command(at, ("SELECT", database), move |outcome: Result<(), CommandError>, at| {
            if outcome.is_ok() {
                remember(&managed, |settings| settings.client.database = database);
            }
            then(outcome, at);
        })
    }

    /// Authenticates as another user, on this connection and, once the server has agreed, on all later ones; without a name as
    /// the default user.
    ///
    /// # Errors
    /// As [`LoopClient::command`].
    pub fn authenticate(
        &self,
        at: &mut Neighbourhood<'_>,
        user: Option<&str>,
        password: &str,
        then: impl FnOnce(Result<(), CommandError>, &mut Neighbourhood<'_>) + 'static,
    ) -> Result<(), NotSent> {
        let managed = Rc::downgrade(&self.managed);
        let (new_user, new_password) = (user.map(str::to_owned), password.to_owned());
        self.command(at, ("AUTH", user, password), move |outcome: Result<(), CommandError>, at| {
            if outcome.is_ok() {
                remember(&managed, |settings| {
                    (settings.client.user, settings.client.password) = (new_user, Some(new_password));
                });
            }
            then(outcome, at);
        })
    }

    /// Publishes a message. `then` receives the number of subscribers that the server sent it to.
    ///
    /// # Errors
    /// As [`LoopClient::command`].
    pub fn publish(
        &self,
        at: &mut Neighbourhood<'_>,
        channel: impl ToArguments,
        message: impl ToArguments,
        then: impl FnOnce(Result<u64, CommandError>, &mut Neighbourhood<'_>) + 'static,
    ) -> Result<(), NotSent> {
        self.command(at, ("PUBLISH", channel, message), then)
    }

    /// Number of replies that have not arrived.
    pub fn in_flight(&self) -> usize {
        self.managed.borrow().work.in_flight()
    }

    /// Bytes of commands that wait for a connection.
    pub fn queued_bytes(&self) -> usize {
        self.managed.borrow().work.queued_bytes()
    }

    fn take(
        &self,
        at: &mut Neighbourhood<'_>,
        write: impl FnOnce(&mut Vec<u8>),
        replies: usize,
        then: Then,
    ) -> Result<(), NotSent> {
        ManagedConnection::take(&self.managed, Order { write, replies, then, timeout: self.timeout }, at)
    }
}

/// Changes the settings of later connections. A completion must not keep its own managed connection alive, hence the weak pointer.
fn remember(managed: &Weak<std::cell::RefCell<ManagedConnection<Commands>>>, change: impl FnOnce(&mut LoopSettings)) {
    if let Some(managed) = managed.upgrade() {
        change(&mut managed.borrow_mut().settings);
    }
}

impl fmt::Debug for LoopClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LoopClient").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
