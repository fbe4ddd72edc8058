//! Messages of channels: SUBSCRIBE and PSUBSCRIBE on a connection of their own.
//!
//! A subscriber keeps the list of its subscriptions and subscribes again after a reconnect. Messages published meanwhile are
//! lost, which is reported as [`SubscriberEvent::Reconnected`]: the application then rereads its data. No message is queued
//! here: the next one is read from the socket on request. The server disconnects a subscriber that reads too slowly
//! (`client-output-buffer-limit`).

use super::backoff::Backoff;
use super::command;
use super::connection::Connection;
use super::error::{CommandError, Lost, NotSent, ServerError};
use super::session;
use super::settings::{ClientSettings, deadline};
use crate::codec::{Elements, ReplyView};
use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

/// An event of a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriberEvent<'s> {
    /// A message.
    Message {
        /// The pattern that the channel's name matched, for subscriptions to patterns.
        pattern: Option<&'s [u8]>,
        /// Name of the channel.
        channel: &'s [u8],
        /// The published bytes.
        payload: &'s [u8],
    },
    /// A subscription is in force: messages published from now on will arrive.
    Subscribed {
        /// Name or pattern.
        channel: &'s [u8],
    },
    /// A subscription has ended.
    Unsubscribed {
        /// Name or pattern.
        channel: &'s [u8],
    },
    /// The connection was lost and reopened. Messages may be missing.
    Reconnected,
}

/// A connection for messages.
#[derive(Debug)]
pub struct Subscriber {
    settings: ClientSettings,
    connection: Option<Connection>,
    backoff: Backoff,
    channels: BTreeSet<Vec<u8>>,
    patterns: BTreeSet<Vec<u8>>,
}

impl Subscriber {
    /// Connects.
    ///
    /// # Errors
    /// The server is not reached in time, or refuses the session.
    pub fn connect(settings: ClientSettings) -> Result<Subscriber, CommandError> {
        let backoff = Backoff::new(settings.backoff_min, settings.backoff_max);
        let (channels, patterns) = (BTreeSet::new(), BTreeSet::new());
        let mut subscriber = Subscriber { settings, connection: None, backoff, channels, patterns };
        let deadline = deadline(Instant::now(), subscriber.settings.timeout);
        subscriber.reconnect(deadline)?;
        Ok(subscriber)
    }

    /// Subscribes to channels; [`SubscriberEvent::Subscribed`] comes for each.
    ///
    /// # Errors
    /// The connection is lost; the next [`Subscriber::next`] reconnects and subscribes.
    pub fn subscribe<C: AsRef<[u8]>>(&mut self, channels: &[C]) -> Result<(), CommandError> {
        self.channels.extend(channels.iter().map(|channel| channel.as_ref().to_vec()));
        self.send("SUBSCRIBE", channels)
    }

    /// Subscribes to all channels whose names match a pattern, as `news.*`.
    ///
    /// # Errors
    /// As [`Subscriber::subscribe`].
    pub fn psubscribe<C: AsRef<[u8]>>(&mut self, patterns: &[C]) -> Result<(), CommandError> {
        self.patterns.extend(patterns.iter().map(|pattern| pattern.as_ref().to_vec()));
        self.send("PSUBSCRIBE", patterns)
    }

    /// Ends subscriptions to channels; [`SubscriberEvent::Unsubscribed`] comes for each.
    ///
    /// # Errors
    /// As [`Subscriber::subscribe`].
    pub fn unsubscribe<C: AsRef<[u8]>>(&mut self, channels: &[C]) -> Result<(), CommandError> {
        self.channels.retain(|known| channels.iter().all(|channel| channel.as_ref() != known));
        self.send("UNSUBSCRIBE", channels)
    }

    /// Ends subscriptions to patterns.
    ///
    /// # Errors
    /// As [`Subscriber::subscribe`].
    pub fn punsubscribe<C: AsRef<[u8]>>(&mut self, patterns: &[C]) -> Result<(), CommandError> {
        self.patterns.retain(|known| patterns.iter().all(|pattern| pattern.as_ref() != known));
        self.send("PUNSUBSCRIBE", patterns)
    }

    /// The next event. None if `timeout` ends first. A lost connection is reopened meanwhile.
    ///
    /// # Errors
    /// The server refused a subscription ([`CommandError::Server`]) or the session, or sent bytes that are not a message; a message is too
    /// large, or reading failed ([`CommandError::OutcomeUnknown`]). The next call connects again.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<SubscriberEvent<'_>>, CommandError> {
        let deadline = deadline(Instant::now(), timeout);
        if let Some(connection) = &mut self.connection {
            match connection.wait_for_push(deadline) {
                Ok(None) => return Ok(None),
                Ok(Some(message)) => {
                    let connection = self.connection.as_ref().expect("the connection that gave a message");
                    return event_of(connection.view(message)).map(Some);
                }
                Err(CommandError::OutcomeUnknown(Lost::Closed)) => self.connection = None,
                Err(error) => {
                    self.connection = None;
                    return Err(error);
                }
            }
        }
        match self.wait_and_reconnect(deadline) {
            Ok(()) => Ok(Some(SubscriberEvent::Reconnected)),
            Err(CommandError::NotSent(NotSent::Connect(_))) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn send<C: AsRef<[u8]>>(&mut self, name: &str, channels: &[C]) -> Result<(), CommandError> {
        let mut output = Vec::new();
        write_subscriptions(&mut output, name, channels.iter().map(AsRef::as_ref));
        let Some(connection) = self.connection.as_mut().filter(|_| !channels.is_empty()) else { return Ok(()) };
        let sent = connection.send(&output, deadline(Instant::now(), self.settings.timeout));
        if sent.is_err() {
            self.connection = None;
        }
        sent
    }

    fn wait_and_reconnect(&mut self, deadline: Instant) -> Result<(), CommandError> {
        loop {
            let now = Instant::now();
            let due = self.backoff.due().unwrap_or(now);
            if due >= deadline {
                std::thread::sleep(deadline.saturating_duration_since(now));
                return Err(NotSent::Connect(io::ErrorKind::TimedOut.into()).into());
            }
            std::thread::sleep(due.saturating_duration_since(now));
            match self.reconnect(deadline) {
                Err(CommandError::NotSent(NotSent::Connect(_))) => {}
                outcome => return outcome,
            }
        }
    }

    /// Makes one attempt to connect and renews all subscriptions.
    fn reconnect(&mut self, until: Instant) -> Result<(), CommandError> {
        let until = until.min(deadline(Instant::now(), self.settings.connect_timeout));
        let opened = session::open(&self.settings, until).and_then(|mut connection| {
            let mut output = Vec::new();
            write_subscriptions(&mut output, "SUBSCRIBE", self.channels.iter().map(Vec::as_slice));
            write_subscriptions(&mut output, "PSUBSCRIBE", self.patterns.iter().map(Vec::as_slice));
            let sent = connection.send(&output, until);
            sent.map(|()| connection).map_err(|error| NotSent::Connect(io::Error::other(error.to_string())))
        });
        match opened {
            Ok(connection) => self.connection = Some(connection),
            Err(error) => {
                self.backoff.failed(Instant::now());
                return Err(error.into());
            }
        }
        self.backoff.succeeded();
        Ok(())
    }
}

/// Writes a command with these arguments. Writes nothing if there are none, which the server would read as "all".
pub(crate) fn write_subscriptions<'c>(output: &mut Vec<u8>, name: &str, channels: impl Iterator<Item = &'c [u8]>) {
    let channels: Vec<&[u8]> = channels.collect();
    if !channels.is_empty() {
        command::write(output, &(name, channels));
    }
}

/// RESP2 sends events as arrays, RESP3 as pushes.
pub(crate) fn event_of(view: ReplyView<'_>) -> Result<SubscriberEvent<'_>, CommandError> {
    if let ReplyView::Error(text) = view {
        return Err(CommandError::Server(ServerError::of(text)));
    }
    let unknown =
        || CommandError::Conversion(super::error::Mismatch { expected: "a message", got: format!("{view:?}") });
    let mut elements = view.elements().ok_or_else(unknown)?;
    let kind = text(&mut elements).ok_or_else(unknown)?;
    let first = text(&mut elements).ok_or_else(unknown)?;
    match kind {
        b"message" => {
            let payload = text(&mut elements).ok_or_else(unknown)?;
            Ok(SubscriberEvent::Message { pattern: None, channel: first, payload })
        }
        b"pmessage" => {
            let (channel, payload) = (text(&mut elements), text(&mut elements));
            let (channel, payload) = channel.zip(payload).ok_or_else(unknown)?;
            Ok(SubscriberEvent::Message { pattern: Some(first), channel, payload })
        }
        b"subscribe" | b"psubscribe" => Ok(SubscriberEvent::Subscribed { channel: first }),
        b"unsubscribe" | b"punsubscribe" => Ok(SubscriberEvent::Unsubscribed { channel: first }),
        _ => Err(unknown()),
    }
}

fn text<'s>(elements: &mut Elements<'s>) -> Option<&'s [u8]> {
    elements.next()?.text()
}
