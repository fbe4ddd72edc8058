//! Messages of channels on an event loop: SUBSCRIBE and PSUBSCRIBE on a connection of their own.
//!
//! The subscriber keeps the list of its channels and patterns, connects when the loop starts, and subscribes again after a loss.
//! Messages published meanwhile are lost, which is reported as [`SubscriberEvent::Reconnected`].

use super::failure::Failure;
use super::link::Upkeep;
use super::loop_settings::LoopSettings;
use super::managed_connection::{ManagedConnection, Shared, Work};
use crate::client::{CommandError, SubscriberEvent, event_of, write_subscriptions};
use crate::codec::{ReplyKind, ReplyView};
use reactor::{ConnectionId, Neighbourhood, Setup};
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::rc::Rc;

type Handler = dyn FnMut(Result<SubscriberEvent<'_>, CommandError>, &mut Neighbourhood<'_>);

/// A connection for messages on one event loop. Clones share it; it ends when the last one is dropped.
#[derive(Clone)]
pub struct LoopSubscriber {
    managed: Shared<Messages>,
    /// Its reference count tells the loop's hooks when the last handle is gone.
    _handle: Rc<()>,
}

impl LoopSubscriber {
    /// A subscriber on the loop that `setup` describes. `on_event` receives each event as it arrives, without a copy. It receives
    /// an error if the server refuses a subscription or the session ([`NotSent`](crate::NotSent); further attempts follow), or
    /// sends bytes that are not a message.
    pub fn new(
        settings: LoopSettings,
        setup: &mut Setup<'_>,
        on_event: impl FnMut(Result<SubscriberEvent<'_>, CommandError>, &mut Neighbourhood<'_>) + 'static,
    ) -> LoopSubscriber {
        let work = Messages {
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
            was_open: false,
            on_event: Rc::new(RefCell::new(on_event)),
        };
        let (managed, handle) = (ManagedConnection::new(settings, work, setup.lp()), Rc::new(()));
        setup.add_state(Box::new(Upkeep::new(&managed, &handle)));
        LoopSubscriber { managed, _handle: handle }
    }

    /// Subscribes to channels, now and after each reconnect; [`SubscriberEvent::Subscribed`] comes for each.
    pub fn subscribe<C: AsRef<[u8]>>(&self, at: &mut Neighbourhood<'_>, channels: &[C]) {
        self.managed.borrow_mut().work.channels.extend(channels.iter().map(|channel| channel.as_ref().to_vec()));
        self.send(at, "SUBSCRIBE", channels);
    }

    /// Subscribes to all channels whose names match a pattern, as `news.*`.
    pub fn psubscribe<C: AsRef<[u8]>>(&self, at: &mut Neighbourhood<'_>, patterns: &[C]) {
        self.managed.borrow_mut().work.patterns.extend(patterns.iter().map(|pattern| pattern.as_ref().to_vec()));
        self.send(at, "PSUBSCRIBE", patterns);
    }

    /// Ends subscriptions to channels; [`SubscriberEvent::Unsubscribed`] comes for each.
    pub fn unsubscribe<C: AsRef<[u8]>>(&self, at: &mut Neighbourhood<'_>, channels: &[C]) {
        remove(&mut self.managed.borrow_mut().work.channels, channels);
        self.send(at, "UNSUBSCRIBE", channels);
    }

    /// Ends subscriptions to patterns.
    pub fn punsubscribe<C: AsRef<[u8]>>(&self, at: &mut Neighbourhood<'_>, patterns: &[C]) {
        remove(&mut self.managed.borrow_mut().work.patterns, patterns);
        self.send(at, "PUNSUBSCRIBE", patterns);
    }

    /// Sends on the open connection. If there is none, the next one begins with the list as it then is.
    fn send<C: AsRef<[u8]>>(&self, at: &mut Neighbourhood<'_>, name: &str, channels: &[C]) {
        let open = self.managed.borrow().open_id();
        if let Some(output) = open.and_then(|id| at.output(id)) {
            write_subscriptions(output, name, channels.iter().map(AsRef::as_ref));
        }
    }
}

fn remove<C: AsRef<[u8]>>(known: &mut BTreeSet<Vec<u8>>, names: &[C]) {
    known.retain(|known| names.iter().all(|name| name.as_ref() != known));
}

impl fmt::Debug for LoopSubscriber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LoopSubscriber").finish_non_exhaustive()
    }
}

struct Messages {
    channels: BTreeSet<Vec<u8>>,
    patterns: BTreeSet<Vec<u8>>,
    /// Whether an earlier connection was open.
    was_open: bool,
    /// Borrowed only during the call; nothing calls it recursively.
    on_event: Rc<RefCell<Handler>>,
}

fn report(managed: &Shared<Messages>, event: Result<SubscriberEvent<'_>, CommandError>, at: &mut Neighbourhood<'_>) {
    let on_event = Rc::clone(&managed.borrow().work.on_event);
    (on_event.borrow_mut())(event, at);
}

impl Work for Messages {
    type Ended = Failure;

    fn wants_connection(&self) -> bool {
        true
    }

    fn is_idle(&self) -> bool {
        true
    }

    fn deadline_ns(&self) -> u64 {
        u64::MAX
    }

    fn opened(managed: &Shared<Messages>, id: ConnectionId, at: &mut Neighbourhood<'_>) {
        let is_again = {
            let work = &mut managed.borrow_mut().work;
            if let Some(output) = at.output(id) {
                write_subscriptions(output, "SUBSCRIBE", work.channels.iter().map(Vec::as_slice));
                write_subscriptions(output, "PSUBSCRIBE", work.patterns.iter().map(Vec::as_slice));
            }
            std::mem::replace(&mut work.was_open, true)
        };
        if is_again {
            report(managed, Ok(SubscriberEvent::Reconnected), at);
        }
    }

    fn reply(
        managed: &Shared<Messages>,
        _kind: ReplyKind,
        reply: ReplyView<'_>,
        at: &mut Neighbourhood<'_>,
    ) -> Result<(), Failure> {
        report(managed, event_of(reply), at);
        Ok(())
    }

    /// The next connection reports the loss.
    fn lost(&mut self, failure: &Failure, ended: &mut VecDeque<Failure>) {
        if matches!(failure, Failure::Protocol(_)) {
            ended.push_back(failure.clone());
        }
    }

    fn refused(&mut self, failure: &Failure, ended: &mut VecDeque<Failure>) {
        if failure.is_refusal() {
            ended.push_back(failure.clone());
        }
    }

    fn expire(&mut self, _now_ns: u64, _ended: &mut VecDeque<Failure>) -> bool {
        false
    }

    fn report(managed: &Shared<Messages>, failure: Failure, at: &mut Neighbourhood<'_>) {
        report(managed, Err(failure.error()), at);
    }
}
