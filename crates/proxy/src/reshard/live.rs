//! Following the source's changes until its clients are switched to the nodes.
//!
//! The source publishes the key of each change (keyspace notifications). First everything is copied, then again and again the keys that
//! have changed since. **What that guarantees:** when [`Reshard::follow`] ends, the nodes have every change that the source had executed
//! when `stop` was set. A message of our own, published to the same connection behind the last of these changes, tells that all of them
//! were heard. Changes of single keys come to the nodes in an order of their own, so reads from the nodes before the end may see one
//! change without an earlier one of another key.
//!
//! The source publishes nothing for FLUSHDB, FLUSHALL and SWAPDB: they are not followed. Where messages are lost, because the source has
//! cut the connection or too many keys changed ([`CHANGED_KEYS_MAX`]), everything is copied anew, and keys that the source does not have
//! are removed from the nodes.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use resp::{Client, Event, Subscriber};

use super::source::Source;
use super::{Progress, Reshard, ReshardError};

/// Changed keys that wait to be copied.
const CHANGED_KEYS_MAX: usize = 1_000_000;
/// How long nothing is done where nothing has changed.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a message may take through the source.
const MESSAGE_TIME_MAX: Duration = Duration::from_secs(30);
/// The setting by which a source publishes changes, and what is wanted of it: key events, of all types.
const SETTING: &str = "notify-keyspace-events";
const WANTED: &str = "EA";

/// How far the nodes are behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Following {
    /// Everything is copied.
    Copying(Progress),
    /// So many changed keys are to be copied.
    Behind(u64),
}

/// What was heard of the source.
#[derive(Default)]
struct Heard {
    keys: Mutex<HashSet<Vec<u8>>>,
    /// Messages are missing: all that was before the subscription, or before it was made anew.
    is_incomplete: AtomicBool,
    /// The subscription was in force once.
    is_heard: AtomicBool,
    /// The message behind all others has come.
    is_last: AtomicBool,
    /// Nothing is listened for any more.
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
    /// Copies all, then what changes, until `stop` is set; what that guarantees stands above. Gives the number of keys that were
    /// copied again.
    ///
    /// # Errors
    /// The source or a node is not reached, or refuses; the source cannot be told to publish changes.
    pub fn follow(&self, told: &mut dyn FnMut(Following)) -> Result<u64, ReshardError> {
        let mut client = Client::new(self.plan.source.clone());
        let before = publish_changes(&mut client).map_err(ReshardError::NotFollowed)?;
        let followed = self.follow_published(&mut client, told);
        if let Some(before) = before {
            // Copying has an outcome already. A source that is not reached keeps the setting, which costs it a little.
            let _ = client.command::<()>(("CONFIG", "SET", SETTING, before));
        }
        followed
    }

    fn follow_published(&self, client: &mut Client, told: &mut dyn FnMut(Following)) -> Result<u64, ReshardError> {
        let events = format!("__keyevent@{}__:", self.plan.source.database);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let last = format!("{events}sapsan-reshard-{}-{now}", std::process::id());
        let mut subscriber = Subscriber::connect(self.plan.source.clone()).map_err(ReshardError::Source)?;
        subscriber.psubscribe(&[format!("{events}*")]).map_err(ReshardError::Source)?;
        let heard = Heard::default();
        std::thread::scope(|scope| {
            let listener = scope.spawn(|| listen(&mut subscriber, last.as_bytes(), &heard));
            let copied = self.copy_changes(client, &last, &heard, told, || listener.is_finished());
            heard.is_over.store(true, Ordering::Release);
            let listened = listener.join().unwrap_or(Err(ReshardError::Panicked));
            listened.and(copied)
        })
    }

    fn copy_changes(
        &self,
        client: &mut Client,
        last: &str,
        heard: &Heard,
        told: &mut dyn FnMut(Following),
        is_deaf: impl Fn() -> bool,
    ) -> Result<u64, ReshardError> {
        let never = AtomicBool::new(false);
        // What is begun here ends: only this loop obeys `stop`.
        let inside = Reshard { plan: self.plan.clone(), stop: &never };
        let (mut source, mut again) = (Source::new(&self.plan.source), 0);
        let mut asked_at: Option<Instant> = None;
        loop {
            if is_deaf() {
                return Ok(again);
            }
            if heard.is_incomplete.swap(false, Ordering::AcqRel) {
                inside.copy(&mut |progress| told(Following::Copying(progress)))?;
                inside.each_extra_key(|node, keys| node.command::<()>(("DEL", keys)))?;
                continue;
            }
            // Looked at before the keys are taken: those of all changes before the last message are among them.
            let is_last = asked_at.is_some() && heard.is_last.load(Ordering::Acquire);
            let keys: Vec<Vec<u8>> = std::mem::take(&mut *heard.keys()).into_iter().collect();
            told(Following::Behind(keys.len() as u64));
            if keys.is_empty() && !is_last {
                std::thread::sleep(PAUSE);
            } else {
                again += keys.len() as u64;
                inside.with_writers(|writers| inside.copy_keys(&mut source, keys, writers, &mut |_, _| {}))?;
            }
            if is_last {
                return Ok(again);
            }
            if asked_at.is_none() && self.stop.load(Ordering::Relaxed) && heard.is_heard.load(Ordering::Acquire) {
                client.command::<()>(("PUBLISH", last, "")).map_err(ReshardError::Source)?;
                asked_at = Some(Instant::now());
            }
            if asked_at.is_some_and(|asked| asked.elapsed() > MESSAGE_TIME_MAX)
                && !heard.is_last.load(Ordering::Acquire)
            {
                // It was lost with the connection: what was missed is copied, and it is sent again.
                asked_at = None;
            }
        }
    }
}

/// Notes the keys of changes, until nobody wants to know.
fn listen(subscriber: &mut Subscriber, last: &[u8], heard: &Heard) -> Result<(), ReshardError> {
    while !heard.is_over.load(Ordering::Acquire) {
        let event = match subscriber.next(PAUSE) {
            // The next call makes the connection anew.
            Err(resp::Error::OutcomeUnknown(_)) => continue,
            event => event.map_err(ReshardError::Source)?,
        };
        match event {
            Some(Event::Message { channel, .. }) if channel == last => heard.is_last.store(true, Ordering::Release),
            Some(Event::Message { payload, .. }) => heard.add(payload),
            // From here on nothing is missed: at the beginning, and after a lost connection.
            Some(Event::Subscribed { .. }) => {
                heard.is_incomplete.store(true, Ordering::Release);
                heard.is_heard.store(true, Ordering::Release);
            }
            Some(Event::Reconnected | Event::Unsubscribed { .. }) | None => {}
        }
    }
    Ok(())
}

/// Has the source publish changes of keys; gives the setting that it had, where it had to be changed.
fn publish_changes(client: &mut Client) -> Result<Option<String>, resp::Error> {
    let (_, value): (String, String) = client.command(("CONFIG", "GET", SETTING))?;
    if WANTED.chars().all(|flag| value.contains(flag)) {
        return Ok(None);
    }
    client.command::<()>(("CONFIG", "SET", SETTING, format!("{value}{WANTED}")))?;
    Ok(Some(value))
}
