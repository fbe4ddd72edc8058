//! The keys that other transactions change while a large transaction is active, and the delay of their batches.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::base::error::StoreError;
use crate::base::fail_stop::lock;
use crate::base::key::TreeId;
use crate::engine::Engine;
use crate::log::{Edit, Operation};

/// Memory for recorded keys that were not yet fetched.
const WATCHED_BYTES_MAX: usize = 4 << 20;
/// Overhead of a recorded key.
const KEY_OVERHEAD: usize = 64;
/// Delay of each batch from the third round on; doubled in each further round, up to the bound.
const PAUSE_FIRST: Duration = Duration::from_micros(250);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// A key that another transaction has changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Changed {
    /// Its tree.
    pub tree: TreeId,
    /// The key.
    pub key: Vec<u8>,
}

/// Records the keys that others change while a large transaction is active.
#[derive(Default)]
pub(crate) struct Watching {
    is_armed: AtomicBool,
    noted: Mutex<Noted>,
    /// Delay of each batch, in microseconds.
    pause: AtomicU64,
}

#[derive(Default)]
struct Noted {
    trees: Vec<TreeId>,
    keys: HashSet<Changed>,
    bytes: usize,
    /// The newest version recorded.
    version: u64,
    /// More has changed than can be recorded key by key, or a range was deleted.
    is_lost: bool,
}

impl Watching {
    /// Delays a batch. The caller holds no lock that the large transaction needs.
    #[inline]
    pub(in crate::engine) fn pause(&self) {
        let pause = self.pause.load(Ordering::Relaxed);
        if pause > 0 {
            std::thread::sleep(Duration::from_micros(pause));
        }
    }

    pub(super) fn set_pause(&self, pause: Duration) {
        self.pause.store(pause.as_micros() as u64, Ordering::Relaxed);
    }

    /// The current delay of each batch.
    pub(super) fn pause_now(&self) -> Duration {
        Duration::from_micros(self.pause.load(Ordering::Relaxed))
    }

    /// Number of keys recorded and not yet fetched.
    pub(super) fn noted_keys(&self) -> usize {
        lock(&self.noted).keys.len()
    }

    /// Delay of batches in a round.
    pub(super) fn pause_in(round: u32) -> Duration {
        let doubled = round.checked_sub(2).map(|times| PAUSE_FIRST.saturating_mul(1 << times.min(16)));
        doubled.unwrap_or_default().min(PAUSE_MAX)
    }

    /// Under the writer's lock.
    #[inline]
    pub(in crate::engine) fn note(&self, version: u64, operation: &Operation<'_>) {
        if self.is_armed.load(Ordering::Relaxed) {
            self.note_armed(version, operation);
        }
    }

    #[cold]
    fn note_armed(&self, version: u64, operation: &Operation<'_>) {
        let mut noted = lock(&self.noted);
        noted.version = version;
        let tree = TreeId(operation.tree);
        if matches!(operation.edit, Edit::DeleteRange { .. }) {
            noted.is_lost = true;
        } else if noted.trees.contains(&tree) && !noted.is_lost {
            let key = operation.key.to_vec();
            let bytes = KEY_OVERHEAD + key.len();
            if noted.keys.insert(Changed { tree, key }) {
                noted.bytes += bytes;
                noted.is_lost = noted.bytes > WATCHED_BYTES_MAX;
            }
        }
    }
}

/// Recording for one large transaction; dropping it stops the recording.
pub(crate) struct Armed {
    engine: Arc<Engine>,
}

impl Armed {
    /// Starts recording changes of these trees.
    pub(crate) fn new(engine: &Arc<Engine>, trees: &[TreeId]) -> Result<Armed, StoreError> {
        let writer = engine.hold_writer();
        if engine.watching.is_armed.swap(true, Ordering::Relaxed) {
            return Err(StoreError::Busy);
        }
        *lock(&engine.watching.noted) = Noted { trees: trees.to_vec(), ..Noted::default() };
        let newest = writer.next_version - 1;
        drop(writer);
        let armed = Armed { engine: Arc::clone(engine) };
        // Every snapshot from here on contains the earlier changes.
        engine.wait_until_visible(newest)?;
        Ok(armed)
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        let watching = &self.engine.watching;
        *lock(&watching.noted) = Noted::default();
        watching.set_pause(Duration::ZERO);
        watching.is_armed.store(false, Ordering::Relaxed);
    }
}

impl Engine {
    /// Takes the keys recorded since the last call. Every snapshot taken from now on contains their changes.
    pub(super) fn changed_by_others(&self) -> Result<Vec<Changed>, StoreError> {
        let (keys, version) = {
            let mut noted = lock(&self.watching.noted);
            if noted.is_lost {
                return Err(StoreError::Busy);
            }
            noted.bytes = 0;
            (std::mem::take(&mut noted.keys), noted.version)
        };
        self.wait_until_visible(version)?;
        Ok(keys.into_iter().collect())
    }
}
