//! Follows the source's changes until its clients are switched to the nodes.
//!
//! The source publishes the key of each change (keyspace notifications). First all keys are copied, then repeatedly the keys that
//! have changed since. **Guarantee:** when [`Reshard::follow`] ends, the nodes have every change that the source had executed
//! when `stop` was set. To know this, it publishes a message that the same subscription receives after these changes; once the
//! message arrives, all of them have been received. Changes of different keys reach the nodes in any order, so a read from the
//! nodes before the end may see one change without an earlier change of another key.
//!
//! A node that was restarted may have lost what was copied to it. `run_id` of INFO shows it ([`super::servers`]): everything is copied
//! again, as after a lost connection; after the stop it is an error instead. A source that was restarted is an error too: it may have
//! lost its keys and its setting. No key is removed from a node because a restarted source does not have it.
//!
//! The source publishes nothing for FLUSHDB, FLUSHALL and SWAPDB: they are not followed. If messages are lost, because the source
//! closed the connection or too many keys changed ([`CHANGED_KEYS_MAX`]), all keys are copied again, and keys that the source
//! does not have are removed from the nodes.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use resp::{Client, Subscriber, SubscriberEvent};

use super::servers::Servers;
use super::source::Source;
use super::{Reshard, ReshardError, ReshardProgress, servers};

/// Largest number of changed keys that wait to be copied.
const CHANGED_KEYS_MAX: usize = 1_000_000;
/// Pause if nothing has changed.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a published message may take to arrive.
const MESSAGE_TIME_MAX: Duration = Duration::from_secs(30);
/// The setting that makes a source publish changes, and the flags that are needed: key events, of all types.
const SETTING: &str = "notify-keyspace-events";
const WANTED: &str = "EA";

/// Interval of the checks that the servers are still the same processes.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Pause before another attempt after a lost connection.
const INTERRUPTION_PAUSE: Duration = Duration::from_millis(200);

/// How far the nodes lag behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Following {
    /// All keys are being copied: at the beginning, or after messages were lost.
    Copying(ReshardProgress),
    /// This many changed keys wait to be copied.
    Behind(u64),
    /// A connection broke, or a node was restarted, for this reason: everything is copied again, as soon as all servers can be reached.
    Interrupted(String),
}

/// What the source has published.
#[derive(Default)]
struct Heard {
    keys: Mutex<HashSet<Vec<u8>>>,
    /// Whether messages are missing: those before the subscription began, or before it was renewed.
    is_incomplete: AtomicBool,
    /// Whether the subscription has been in force.
    is_heard: AtomicBool,
    /// Whether the final message has arrived.
    is_last: AtomicBool,
    /// Whether the listener must end.
    is_over: AtomicBool,
}

impl Heard {
    fn keys(&self) -> MutexGuard<'_, HashSet<Vec<u8>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, key: &[u8]) {
        let mut keys = self.keys();
        if keys.len() == CHANGED_KEYS_MAX {
            keys.clear();
            self.is_incomplete.store(true, Ordering::Release);
        }
        if !keys.contains(key) {
            keys.insert(key.to_vec());
        }
    }
}

impl Reshard<'_> {
    /// Copies all keys, then changed keys, until `stop` is set; for the guarantee see the module. Returns the number of keys that
    /// were copied again.
    ///
    /// # Errors
    /// The source or a node is unreachable, or refuses a command; a node is the source, or two nodes are one server; the source
    /// cannot be configured to publish changes, or was restarted; a node was restarted after the stop.
    pub fn follow(&self, on_progress: &mut dyn FnMut(Following)) -> Result<u64, ReshardError> {
        let mut servers = Servers::ask(&self.plan)?;
        let mut client = servers::client(&self.plan.source);
        let before = publish_changes(&mut client).map_err(ReshardError::NotFollowed)?;
        let followed = self.follow_published(&mut client, &mut servers, on_progress);
        if let Some(before) = before {
            let mut client = servers::client(&self.plan.source);
            // The outcome of the copy is known already. A source that is unreachable keeps the setting, at a small cost for it.
            let _ = client.command::<()>(("CONFIG", "SET", SETTING, before));
        }
        followed
    }

    fn follow_published(
        &self,
        client: &mut Client,
        servers: &mut Servers,
        on_progress: &mut dyn FnMut(Following),
    ) -> Result<u64, ReshardError> {
        let events = format!("__keyevent@{}__:", self.plan.source.database);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let last = format!("{events}sapsan-reshard-{}-{now}", std::process::id());
        let mut subscriber = Subscriber::connect(self.plan.source.clone()).map_err(ReshardError::Source)?;
        subscriber.psubscribe(&[format!("{events}*")]).map_err(ReshardError::Source)?;
        let heard = Heard::default();
        std::thread::scope(|scope| {
            let listener = scope.spawn(|| listen(&mut subscriber, last.as_bytes(), &heard));
            let copied = self.copy_changes(client, servers, (&last, &heard), on_progress, &|| listener.is_finished());
            heard.is_over.store(true, Ordering::Release);
            let listened = listener.join().unwrap_or(Err(ReshardError::Panicked));
            listened.and(copied)
        })
    }

    /// Copies changes until the last message. After a lost connection or the restart of a node, everything is copied again.
    fn copy_changes(
        &self,
        client: &mut Client,
        servers: &mut Servers,
        (last, heard): (&str, &Heard),
        on_progress: &mut dyn FnMut(Following),
        is_deaf: &dyn Fn() -> bool,
    ) -> Result<u64, ReshardError> {
        let mut again = 0;
        loop {
            let copied = self.copy_connected(client, servers, (last, heard), on_progress, (&mut again, is_deaf));
            let Err(error) = copied else { return Ok(again) };
            let may_pass = error.is_lost_connection() || matches!(error, ReshardError::NodeRestarted { .. });
            if !may_pass || self.stop.load(Ordering::Relaxed) || is_deaf() {
                return Err(error);
            }
            on_progress(Following::Interrupted(error.to_string()));
            *client = servers::client(&self.plan.source);
            heard.is_incomplete.store(true, Ordering::Release);
            std::thread::sleep(INTERRUPTION_PAUSE);
        }
    }

    /// Copies changes until the last message, while all servers can be reached.
    fn copy_connected(
        &self,
        client: &mut Client,
        servers: &mut Servers,
        (last, heard): (&str, &Heard),
        on_progress: &mut dyn FnMut(Following),
        (again, is_deaf): (&mut u64, &dyn Fn() -> bool),
    ) -> Result<(), ReshardError> {
        let never = AtomicBool::new(false);
        // The parts of this loop run to their end: only the loop itself obeys `stop`.
        let inside = Reshard { plan: self.plan.clone(), stop: &never };
        let identity = servers.source();
        let mut source = Source::new(&self.plan.source);
        let (mut asked_at, mut checked_at): (Option<Instant>, Option<Instant>) = (None, None);
        loop {
            if is_deaf() {
                return Ok(());
            }
            let is_incomplete = heard.is_incomplete.load(Ordering::Acquire);
            if is_incomplete || checked_at.is_none_or(|checked| checked.elapsed() >= CHECK_EVERY) {
                servers.check()?;
                checked_at = Some(Instant::now());
            }
            if !heard.is_heard.load(Ordering::Acquire) {
                // Nothing is copied yet: "no changes" would say that the nodes have all keys.
                std::thread::sleep(PAUSE);
                continue;
            }
            if heard.is_incomplete.swap(false, Ordering::AcqRel) {
                inside.copy_all(&identity, &mut |progress| on_progress(Following::Copying(progress)))?;
                servers.check()?;
                inside.each_extra_key(|node, keys| {
                    identity.check(client)?;
                    let deleted = node.command::<()>(("DEL", keys));
                    deleted.map_err(|error| ReshardError::of_node(node.settings(), error))
                })?;
                continue;
            }
            // Read before the keys are taken: the keys of all changes before the last message are then among them.
            let is_last = asked_at.is_some() && heard.is_last.load(Ordering::Acquire);
            let keys: Vec<Vec<u8>> = std::mem::take(&mut *heard.keys()).into_iter().collect();
            on_progress(Following::Behind(keys.len() as u64));
            if keys.is_empty() && !is_last {
                std::thread::sleep(PAUSE);
            } else {
                *again += keys.len() as u64;
                inside.with_writers(&identity, |writers| {
                    inside.copy_keys((&mut source, &identity), keys, writers, &mut |_, _| {})
                })?;
            }
            if is_last {
                // What was copied before is there only if no node has been restarted.
                return servers.check();
            }
            if asked_at.is_none() && self.stop.load(Ordering::Relaxed) && heard.is_heard.load(Ordering::Acquire) {
                client.command::<()>(("PUBLISH", last, "")).map_err(ReshardError::Source)?;
                asked_at = Some(Instant::now());
            }
            if asked_at.is_some_and(|asked| asked.elapsed() > MESSAGE_TIME_MAX)
                && !heard.is_last.load(Ordering::Acquire)
            {
                // The message was lost with the connection: the missed changes are copied, and the message is sent again.
                asked_at = None;
            }
        }
    }
}

/// Records the keys of changes, until `is_over` is set.
fn listen(subscriber: &mut Subscriber, last: &[u8], heard: &Heard) -> Result<(), ReshardError> {
    while !heard.is_over.load(Ordering::Acquire) {
        let event = match subscriber.next(PAUSE) {
            // The next call reconnects.
            Err(resp::CommandError::OutcomeUnknown(_)) => continue,
            event => event.map_err(ReshardError::Source)?,
        };
        match event {
            Some(SubscriberEvent::Message { channel, .. }) if channel == last => {
                heard.is_last.store(true, Ordering::Release)
            }
            Some(SubscriberEvent::Message { payload, .. }) => heard.add(payload),
            // No message is missed from here on, at the beginning and after a reconnect.
            Some(SubscriberEvent::Subscribed { .. }) => {
                heard.is_incomplete.store(true, Ordering::Release);
                heard.is_heard.store(true, Ordering::Release);
            }
            Some(SubscriberEvent::Reconnected | SubscriberEvent::Unsubscribed { .. }) | None => {}
        }
    }
    Ok(())
}

/// Makes the source publish changed keys; returns the former setting if it had to be changed.
fn publish_changes(client: &mut Client) -> Result<Option<String>, resp::CommandError> {
    let (_, value): (String, String) = client.command(("CONFIG", "GET", SETTING))?;
    if WANTED.chars().all(|flag| value.contains(flag)) {
        return Ok(None);
    }
    client.command::<()>(("CONFIG", "SET", SETTING, format!("{value}{WANTED}")))?;
    Ok(Some(value))
}
