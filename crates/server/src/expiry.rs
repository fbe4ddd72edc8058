//! The thread that removes documents whose time has come ([`docs::expire`]), a few at a time. It runs only where a collection
//! expires.

use docs::{CollectionId, Database};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two looks at what has come due.
const SWEEP: Duration = Duration::from_secs(1);
/// Documents that are looked at in one go, and the rest after it: 10,000 a second at most, so that writes keep the disk.
const GO_DOCUMENTS: usize = 200;
const REST: Duration = Duration::from_millis(20);
/// After a failure of the store, such as a full disk.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// What is told of it.
#[derive(Debug, Default)]
struct Counts {
    removed: AtomicU64,
    failures: AtomicU64,
    blocked: AtomicU64,
    lag_ms: AtomicU64,
}

/// Numbers for the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// Documents removed since start.
    pub(crate) removed: u64,
    /// Attempts that failed.
    pub(crate) failures: u64,
    /// Documents that the last sweep left because others refer to them.
    pub(crate) blocked: u64,
    /// How long the document was due that the last sweep found first.
    pub(crate) lag_ms: u64,
}

/// The thread; ends when it is dropped.
#[derive(Default)]
pub(crate) struct Expiry {
    counts: Arc<Counts>,
    at_work: Mutex<Option<(Sender<()>, JoinHandle<()>)>>,
}

impl Expiry {
    /// Starts the thread, if there is something for it to do.
    pub(crate) fn start(&self, database: &Database) -> std::io::Result<()> {
        let collections = database.expiring();
        if collections.is_empty() {
            return Ok(());
        }
        let (stop, stopped) = channel();
        let (database, counts) = (database.clone(), Arc::clone(&self.counts));
        let thread = std::thread::Builder::new().name("expiry".to_owned()).spawn(move || {
            let mut pause = SWEEP;
            // The other end is dropped to stop it.
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                pause = sweep(&database, &collections, &counts, &|rest| {
                    stopped.recv_timeout(rest) == Err(RecvTimeoutError::Timeout)
                });
            }
        })?;
        *self.at_work.lock().unwrap_or_else(PoisonError::into_inner) = Some((stop, thread));
        Ok(())
    }

    /// Ends the thread, until it is started again.
    pub(crate) fn stop(&self) {
        if let Some((stop, thread)) = self.at_work.lock().unwrap_or_else(PoisonError::into_inner).take() {
            drop(stop);
            // A panic of the thread was told by itself.
            let _ = thread.join();
        }
    }

    pub(crate) fn numbers(&self) -> Numbers {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts { removed, failures, blocked, lag_ms } = &*self.counts;
        Numbers { removed: of(removed), failures: of(failures), blocked: of(blocked), lag_ms: of(lag_ms) }
    }
}

impl Drop for Expiry {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Removes what has come due until nothing is left or `rest` says to stop; gives the pause after it.
fn sweep(
    database: &Database,
    collections: &[CollectionId],
    counts: &Counts,
    rest: &dyn Fn(Duration) -> bool,
) -> Duration {
    let (mut blocked, mut lag_ms) = (0, 0);
    for collection in collections {
        let mut sweep = database.sweep(*collection);
        loop {
            let swept = match database.expire(&mut sweep, GO_DOCUMENTS) {
                Ok(swept) => swept,
                Err(error) => {
                    let collection = &database.collection_at(*collection).info.name;
                    tracing::error!(collection, %error, "documents whose time has come cannot be removed");
                    counts.failures.fetch_add(1, Ordering::Relaxed);
                    return AFTER_FAILURE;
                }
            };
            counts.removed.fetch_add(swept.removed, Ordering::Relaxed);
            blocked += swept.blocked;
            lag_ms = lag_ms.max(swept.lag_ms);
            if !swept.has_more || !rest(REST) {
                break;
            }
        }
    }
    counts.blocked.store(blocked, Ordering::Relaxed);
    counts.lag_ms.store(lag_ms, Ordering::Relaxed);
    SWEEP
}
