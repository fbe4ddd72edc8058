//! Removes expired documents ([`docs::expire`]) in batches. The thread exists only if a collection has an expiry, and ends by itself
//! when the database is closed.

use super::Inner;
use docs::CollectionId;
use docs::Sweep;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Time between two sweeps.
const SWEEP: Duration = Duration::from_secs(1);
/// Documents examined in one batch, and the pause after it. This bounds a sweep to 10,000 documents a second, so that writes keep the
/// disk.
const GO_DOCUMENTS: usize = 200;
const REST: Duration = Duration::from_millis(20);
/// Time until the next sweep after a failure of the store, such as a full disk.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// Starts the thread, if a collection has an expiry.
pub(crate) fn start(inner: &Arc<Inner>) -> std::io::Result<()> {
    let collections = inner.docs.expiring();
    if collections.is_empty() {
        return Ok(());
    }
    // A weak reference between batches: the database closes when no other reference is left.
    let inner = Arc::downgrade(inner);
    std::thread::Builder::new().name("expiry".to_owned()).spawn(move || run(&inner, &collections)).map(drop)
}

fn run(inner: &Weak<Inner>, collections: &[CollectionId]) {
    let mut pause = SWEEP;
    loop {
        std::thread::sleep(pause);
        pause = SWEEP;
        for collection in collections {
            match sweep(inner, *collection) {
                Swept::All => {}
                Swept::Failed => pause = AFTER_FAILURE,
                Swept::Closed => return,
            }
        }
    }
}

enum Swept {
    All,
    Failed,
    Closed,
}

/// Removes the expired documents of one collection.
fn sweep(inner: &Weak<Inner>, collection: CollectionId) -> Swept {
    let mut sweep: Option<Sweep> = None;
    loop {
        let Some(inner) = inner.upgrade() else { return Swept::Closed };
        let swept = inner.docs.expire(sweep.get_or_insert_with(|| inner.docs.sweep(collection)), GO_DOCUMENTS);
        match swept {
            Ok(swept) if swept.has_more => {}
            Ok(_) => return Swept::All,
            Err(error) => {
                let name = &inner.docs.collection_at(collection).info.name;
                tracing::error!(collection = name, %error, "expired documents cannot be removed");
                return Swept::Failed;
            }
        }
        drop(inner);
        std::thread::sleep(REST);
    }
}
