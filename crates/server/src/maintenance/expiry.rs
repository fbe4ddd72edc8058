//! The thread that removes expired documents ([`docs::expire`]), a few at a time. It runs only if a collection has an expiry.

use crate::threads::panics::{Panics, caught};
use docs::{CollectionId, DocumentDatabase, WriteError};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval of sweeps.
const SWEEP: Duration = Duration::from_secs(1);
/// Documents checked in one batch, and the pause after it: at most 10,000 a second, so that writes keep the disk.
const GO_DOCUMENTS: usize = 200;
const REST: Duration = Duration::from_millis(20);
/// Pause of a collection after a failure of the store, such as a full disk.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// Counters of the thread.
#[derive(Debug, Default)]
struct Counts {
    removed: AtomicU64,
    failures: AtomicU64,
    blocked: AtomicU64,
    unremovable: AtomicU64,
    lag_ms: AtomicU64,
}

/// Counts of expiry, for the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExpiryNumbers {
    /// Documents removed since start.
    pub(crate) removed: u64,
    /// Attempts that failed.
    pub(crate) failures: u64,
    /// Documents that the last sweep kept because others refer to them.
    pub(crate) blocked: u64,
    /// Documents that it could not remove for another reason.
    pub(crate) unremovable: u64,
    /// Time since the first document found by the last sweep expired.
    pub(crate) lag_ms: u64,
}

/// The thread; ends when it is dropped.
pub(crate) struct Expiry {
    counts: Arc<Counts>,
    panics: Arc<Panics>,
    at_work: Mutex<Option<(Sender<()>, JoinHandle<()>)>>,
}

impl Expiry {
    pub(crate) fn new(panics: &Arc<Panics>) -> Expiry {
        Expiry { counts: Arc::default(), panics: Arc::clone(panics), at_work: Mutex::default() }
    }

    /// Starts the thread, if a collection has an expiry.
    pub(crate) fn start(&self, database: &DocumentDatabase) -> std::io::Result<()> {
        let collections = database.expiring();
        if collections.is_empty() {
            return Ok(());
        }
        let (stop, stopped) = channel();
        let (database, counts, panics) = (database.clone(), Arc::clone(&self.counts), Arc::clone(&self.panics));
        let thread = std::thread::Builder::new().name("expiry".to_owned()).spawn(move || {
            let mut swept: Vec<Swept> = collections.into_iter().map(Swept::new).collect();
            let rest = |rest| stopped.recv_timeout(rest) == Err(RecvTimeoutError::Timeout);
            // The other end is dropped to stop the thread.
            while rest(SWEEP) {
                sweep_all(&mut swept, &counts, &panics, |swept| swept.sweep(&database, &counts, &rest));
            }
        })?;
        *self.at_work.lock().unwrap_or_else(PoisonError::into_inner) = Some((stop, thread));
        Ok(())
    }

    /// Ends the thread, until it is started again.
    pub(crate) fn stop(&self) {
        if let Some((stop, thread)) = self.at_work.lock().unwrap_or_else(PoisonError::into_inner).take() {
            drop(stop);
            // A panic of the thread was reported by itself.
            let _ = thread.join();
        }
    }

    pub(crate) fn numbers(&self) -> ExpiryNumbers {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts { removed, failures, blocked, unremovable, lag_ms } = &*self.counts;
        ExpiryNumbers {
            removed: of(removed),
            failures: of(failures),
            blocked: of(blocked),
            unremovable: of(unremovable),
            lag_ms: of(lag_ms),
        }
    }
}

impl Drop for Expiry {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A collection, and the result of its last sweep.
struct Swept {
    collection: CollectionId,
    /// Not before this moment: its last sweep failed.
    next: Instant,
    blocked: u64,
    unremovable: u64,
    lag_ms: u64,
    /// Why a document could not be removed, as last logged.
    reported: Option<String>,
    /// Text of the panic of its last sweep.
    panicked: Option<String>,
}

impl Swept {
    fn new(collection: CollectionId) -> Swept {
        Swept {
            collection,
            next: Instant::now(),
            blocked: 0,
            unremovable: 0,
            lag_ms: 0,
            reported: None,
            panicked: None,
        }
    }

    fn failed(&mut self, counts: &Counts) {
        counts.failures.fetch_add(1, Ordering::Relaxed);
        self.next = Instant::now() + AFTER_FAILURE;
        self.panicked = None;
    }

    /// Removes expired documents until none is left or `rest` returns `false`. A failure only delays this collection.
    fn sweep(&mut self, database: &DocumentDatabase, counts: &Counts, rest: &dyn Fn(Duration) -> bool) {
        if Instant::now() < self.next {
            return;
        }
        let name = &database.collection_at(self.collection).info.name;
        let (mut sweep, mut why) = (database.sweep(self.collection), None);
        let lag_before = std::mem::take(&mut self.lag_ms);
        (self.blocked, self.unremovable) = (0, 0);
        loop {
            let swept = match database.expire(&mut sweep, GO_DOCUMENTS) {
                Ok(swept) => swept,
                // The store is busy, or a large statement has claimed what is expired: the next sweep goes on.
                Err(WriteError::Busy) => {
                    tracing::debug!(collection = name, "expired documents are removed later: the store is busy");
                    // What was late is still there.
                    self.lag_ms = self.lag_ms.max(lag_before);
                    self.panicked = None;
                    return;
                }
                Err(error) => {
                    tracing::error!(collection = name, %error, "expired documents cannot be removed");
                    self.failed(counts);
                    return;
                }
            };
            counts.removed.fetch_add(swept.removed, Ordering::Relaxed);
            self.blocked += swept.blocked;
            self.unremovable += swept.unremovable;
            self.lag_ms = self.lag_ms.max(swept.lag_ms);
            why = why.or(swept.why);
            if !swept.has_more || !rest(REST) {
                break;
            }
        }
        self.panicked = None;
        if why != self.reported {
            if let Some(why) = &why {
                let documents = self.unremovable;
                tracing::error!(collection = name, documents, why, "an expired document cannot be removed");
            }
            self.reported = why;
        }
    }
}

/// Sweeps each collection, whatever the result for others. A panic counts as a failure of its collection.
fn sweep_all(swept: &mut [Swept], counts: &Counts, panics: &Panics, sweep: impl Fn(&mut Swept)) {
    for swept in &mut *swept {
        if let Err(text) = caught(|| sweep(swept)) {
            swept.failed(counts);
            swept.panicked = Some(text);
        }
    }
    panics.note("expiry", swept.iter().find_map(|swept| swept.panicked.clone()));
    counts.blocked.store(swept.iter().map(|swept| swept.blocked).sum(), Ordering::Relaxed);
    counts.unremovable.store(swept.iter().map(|swept| swept.unremovable).sum(), Ordering::Relaxed);
    counts.lag_ms.store(swept.iter().map(|swept| swept.lag_ms).max().unwrap_or(0), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use docs::{Op, Precondition, Write};

    #[test]
    fn a_sweep_that_finds_the_store_busy_keeps_the_lag_and_is_no_failure() {
        let folder = tempfile::tempdir().unwrap();
        let text = "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\nexpire = \"until\"\n";
        let config = docs::config::Config::parse("c.toml".as_ref(), text).unwrap();
        let mut options = docs::engine::StoreOptions::default();
        options.readers_max = 8;
        let (database, _) = DocumentDatabase::open(&config, folder.path(), options).unwrap();
        let (counts, panics) = (Counts::default(), Panics::default());
        let collection = database.expiring()[0];
        let write = |body: &[u8]| {
            let op = Op::Insert { body: body.to_vec() };
            database.write_now(&Write { collection, op, precondition: Precondition::None }).unwrap();
        };
        write(br#"{"id":1,"until":1}"#);
        let mut swept = [Swept::new(collection)];
        let mut sweep = || {
            sweep_all(&mut swept, &counts, &panics, |swept| swept.sweep(&database, &counts, &|_| true));
            let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
            (of(&counts.removed), of(&counts.failures), of(&counts.lag_ms) > 1_000_000)
        };
        assert_eq!(sweep(), (1, 0, true));
        // All readers are in use.
        let sessions: Vec<_> = std::iter::from_fn(|| database.session().ok()).collect();
        assert_eq!(sweep(), (1, 0, true), "it has seen nothing that is less late");
        drop(sessions);
        assert_eq!(sweep(), (1, 0, false));
    }

    #[test]
    fn a_panic_holds_up_its_collection_alone_and_is_told_until_that_is_swept() {
        let (counts, panics) = (Counts::default(), Panics::default());
        let mut swept: Vec<Swept> = (0..3).map(|number| Swept::new(CollectionId(number))).collect();
        let sweep = |swept: &mut Swept| {
            assert_ne!(swept.collection, CollectionId(1), "as a test wants it");
            swept.blocked += 1;
        };
        sweep_all(&mut swept, &counts, &panics, sweep);
        assert_eq!(swept.iter().map(|swept| swept.blocked).collect::<Vec<_>>(), [1, 0, 1]);
        assert_eq!(counts.failures.load(Ordering::Relaxed), 1);
        assert!(swept[1].next > Instant::now() && swept[2].next <= Instant::now());
        assert!(panics.message().is_some_and(|reported| reported.contains("as a test wants it")));
        // Not swept: it is too early.
        sweep_all(&mut swept, &counts, &panics, |_| {});
        assert!(panics.message().is_some());
        sweep_all(&mut swept, &counts, &panics, |swept| swept.panicked = None);
        assert_eq!(panics.message(), None);
    }
}
