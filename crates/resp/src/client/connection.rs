//! One connection: requests out, replies in, in order and within a deadline.
//!
//! A connection is in use from [`Connection::begin`] until the exchange has succeeded. A connection whose exchange failed
//! is broken and must be dropped, so that a late reply is never taken for that of another command. Replies without a
//! waiting caller are counted in `owed` and dropped before the next wanted reply. Pushes (RESP3) are not replies; they are
//! dropped on arrival.

use super::error::{CommandError, Lost};
use super::input::Input;
use super::settings::ClientSettings;
use super::stream::Stream;
use crate::codec::{ReplyKind, ReplyView};
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Largest number of replies without a waiting caller before they are read: one system call for that many commands, and
/// fewer bytes than any socket buffer holds.
const OWED_MAX: u64 = 64;
/// Commands without a reply that follow one another within this time are a burst, which the kernel may send in full
/// packets: that takes a third of the time for small commands.
const BURST_PAUSE_MAX: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct Connection {
    stream: Stream,
    input: Input,
    reply_bytes_max: usize,
    /// Receive timeout that is set on the socket.
    receive_timeout: Duration,
    /// Replies to skip before the next wanted one.
    owed: u64,
    /// Whether `CLIENT REPLY OFF` is in force.
    is_silent: bool,
    is_broken: bool,
    /// Whether a byte of the current request was sent.
    has_sent: bool,
    /// Whether the next receive may rely on the socket's own timeout: once for each exchange, since that timeout starts
    /// anew with every call.
    may_block: bool,
    /// Whether more commands are likely to follow soon.
    is_burst: bool,
    last_used: Instant,
    /// Time of the last commands without a reply, if no other command followed.
    last_unanswered: Option<Instant>,
}

impl Connection {
    /// Connects, without opening a session.
    ///
    /// # Errors
    /// As [`Stream::connect`].
    pub(crate) fn open(settings: &ClientSettings, deadline: Instant) -> io::Result<Connection> {
        let stream = Stream::connect(settings, deadline)?;
        stream.set_receive_timeout(settings.timeout)?;
        Ok(Connection {
            stream,
            input: Input::new(),
            reply_bytes_max: settings.reply_bytes_max,
            receive_timeout: settings.timeout,
            owed: 0,
            is_silent: false,
            is_broken: false,
            has_sent: false,
            may_block: false,
            is_burst: false,
            last_used: Instant::now(),
            last_unanswered: None,
        })
    }

    /// Begins an exchange with the deadline `now + timeout`; `is_late` means that a part of that time is already used.
    ///
    /// # Errors
    /// The connection is unusable: it is broken, or holds an unexpected reply.
    pub(crate) fn begin(&mut self, now: Instant, timeout: Duration, is_late: bool) -> Result<(), CommandError> {
        self.has_sent = false;
        if self.is_broken {
            return Err(Lost::Closed.into());
        }
        (self.is_broken, self.may_block, self.last_used) = (true, !is_late, now);
        let last = self.last_unanswered.take();
        self.is_burst = last.is_some_and(|last| now.saturating_duration_since(last) < BURST_PAUSE_MAX);
        self.input.shrink();
        if timeout != self.receive_timeout {
            self.stream.set_receive_timeout(timeout).map_err(Lost::from)?;
            self.receive_timeout = timeout;
        }
        if self.input.is_empty() { Ok(()) } else { self.drop_arrived() }
    }

    /// Time since the last exchange began.
    pub(crate) fn idle(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.last_used)
    }

    /// Whether a byte of the exchange's request was sent. If none was, the request may be sent again elsewhere.
    pub(crate) fn has_sent(&self) -> bool {
        self.has_sent
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Sends a request and waits for its reply; returns the reply's range for [`Connection::view`].
    #[inline]
    pub(crate) fn call(&mut self, request: &[u8], deadline: Instant) -> Result<Range<usize>, CommandError> {
        self.send(request, deadline)?;
        loop {
            if let Some(reply) = self.next_arrived()? {
                self.is_broken = false;
                return Ok(reply);
            }
            self.receive(deadline)?;
        }
    }

    /// The reply that was read last.
    #[inline]
    pub(crate) fn view(&self, reply: Range<usize>) -> ReplyView<'_> {
        self.input.view(reply)
    }

    /// The bytes of the reply that was read last.
    pub(crate) fn bytes(&self, reply: Range<usize>) -> &[u8] {
        self.input.bytes(reply)
    }

    /// Sends requests and passes their replies to `on_reply`, in order of arrival. Replies are read also while requests are
    /// still being sent: a server that cannot write its replies stops reading.
    pub(crate) fn pipeline(
        &mut self,
        requests: &[u8],
        count: usize,
        deadline: Instant,
        on_reply: &mut dyn FnMut(usize, ReplyView<'_>),
    ) -> Result<(), CommandError> {
        let (mut sent, mut answered) = (0, 0);
        loop {
            while answered < count
                && let Some(reply) = self.next_arrived()?
            {
                on_reply(answered, self.input.view(reply));
                answered += 1;
            }
            if sent < requests.len() {
                sent += self.send_some(&requests[sent..], false, deadline)?;
            } else if answered < count {
                self.receive(deadline)?;
            } else {
                self.is_broken = false;
                return Ok(());
            }
        }
    }

    /// Sends commands whose replies are not wanted, and drops replies that have arrived. Waits only while the socket is
    /// full.
    pub(crate) fn send_unanswered(
        &mut self,
        requests: &[u8],
        count: u64,
        deadline: Instant,
    ) -> Result<(), CommandError> {
        if !self.is_silent {
            self.owed += count;
        }
        let mut sent = 0;
        while sent < requests.len() {
            sent += self.send_some(&requests[sent..], self.is_burst, deadline)?;
            if !self.input.is_empty() {
                self.drop_arrived()?;
            }
        }
        if self.owed >= OWED_MAX {
            self.drop_owed()?;
        }
        self.last_unanswered = Some(self.last_used);
        self.is_broken = false;
        Ok(())
    }

    /// Switches the server's replies off or on; `request` is the command for it.
    pub(crate) fn switch_silence(
        &mut self,
        request: &[u8],
        is_silent: bool,
        deadline: Instant,
    ) -> Result<(), CommandError> {
        self.send(request, deadline)?;
        // Only the command that switches replies on is answered.
        self.owed += u64::from(!is_silent);
        self.is_silent = is_silent;
        Ok(())
    }

    /// Checks whether the server has closed the connection.
    pub(crate) fn is_alive(&mut self) -> bool {
        match self.receive_now() {
            Ok(_) => true,
            Err(CommandError::OutcomeUnknown(Lost::TimedOut)) => true,
            Err(_) => false,
        }
    }

    /// Waits without a request until a push arrives, for subscribers. None at the deadline.
    pub(crate) fn wait_for_push(&mut self, deadline: Instant) -> Result<Option<Range<usize>>, CommandError> {
        self.input.shrink();
        loop {
            if let Some(push) = self.input.next_reply()? {
                return Ok(Some(push));
            }
            match self.receive(deadline) {
                Err(CommandError::OutcomeUnknown(Lost::TimedOut)) => return Ok(None),
                received => received?,
            }
        }
    }

    /// Sends all of a request.
    #[inline]
    pub(crate) fn send(&mut self, request: &[u8], deadline: Instant) -> Result<(), CommandError> {
        let mut sent = 0;
        while sent < request.len() {
            sent += self.send_some(&request[sent..], false, deadline)?;
        }
        Ok(())
    }

    /// Sends as much as the socket accepts. If the socket is full, waits until it is writable and receives bytes that
    /// arrive meanwhile.
    #[inline]
    fn send_some(&mut self, bytes: &[u8], more_follows: bool, deadline: Instant) -> Result<usize, CommandError> {
        match self.stream.send_now(bytes, more_follows) {
            Ok(sent) => {
                self.has_sent |= sent > 0;
                Ok(sent)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_while_full(deadline).map(|()| 0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(Lost::from(error).into()),
        }
    }

    #[cold]
    fn wait_while_full(&mut self, deadline: Instant) -> Result<(), CommandError> {
        let readiness = self.stream.wait(true, deadline).map_err(Lost::from)?;
        if !readiness.is_readable || readiness.is_writable {
            return Ok(());
        }
        match self.receive_now() {
            Err(CommandError::OutcomeUnknown(Lost::TimedOut)) => Ok(()),
            received => received.map(drop),
        }
    }

    /// Receives bytes. The first receive of an exchange is one blocking system call; later ones wait with `poll` for the
    /// time that is left.
    #[inline]
    fn receive(&mut self, deadline: Instant) -> Result<(), CommandError> {
        if self.may_block {
            self.may_block = false;
            let room = self.input.room(self.reply_bytes_max)?;
            match self.stream.receive(room) {
                // The caller's next attempt waits only for the time that is left.
                Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                    return Ok(());
                }
                received => return self.received(received).map(drop),
            }
        }
        loop {
            match self.receive_now() {
                Err(CommandError::OutcomeUnknown(Lost::TimedOut)) => {}
                received => return received.map(drop),
            }
            // The bytes may be a part of a TLS record, so that no clear bytes can be read yet.
            self.stream.wait(false, deadline).map_err(Lost::from)?;
        }
    }

    /// Receives the bytes that have arrived. `TimedOut`: none have.
    fn receive_now(&mut self) -> Result<usize, CommandError> {
        let room = self.input.room(self.reply_bytes_max)?;
        let received = self.stream.receive_now(room);
        self.received(received)
    }

    #[inline]
    fn received(&mut self, received: io::Result<usize>) -> Result<usize, CommandError> {
        match received.map_err(Lost::from)? {
            0 => Err(Lost::Closed.into()),
            bytes => {
                self.input.received(bytes);
                Ok(bytes)
            }
        }
    }

    /// The next wanted reply among the received bytes.
    #[inline]
    fn next_arrived(&mut self) -> Result<Option<Range<usize>>, CommandError> {
        while let Some(reply) = self.input.next_reply()? {
            if self.input.kind() == Some(ReplyKind::Push) {
                continue;
            }
            if self.owed == 0 {
                return Ok(Some(reply));
            }
            self.owed -= 1;
        }
        Ok(None)
    }

    /// Drops received replies that no caller waits for.
    ///
    /// # Errors
    /// A reply beyond the number owed: it could be taken for the reply of the next command.
    fn drop_arrived(&mut self) -> Result<(), CommandError> {
        let unexpected = self.next_arrived()?.is_some();
        let is_part_of_push = self.input.kind() == Some(ReplyKind::Push);
        if unexpected || self.owed == 0 && !self.input.is_empty() && !is_part_of_push {
            return Err(Lost::Closed.into());
        }
        Ok(())
    }

    /// Reads the owed replies that have arrived.
    fn drop_owed(&mut self) -> Result<(), CommandError> {
        while self.owed > 0 {
            match self.receive_now() {
                Err(CommandError::OutcomeUnknown(Lost::TimedOut)) => return Ok(()),
                received => received?,
            };
            self.drop_arrived()?;
        }
        Ok(())
    }
}
