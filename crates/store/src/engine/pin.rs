//! Pinning: a generation, and a version that it shows.
//!
//! Two values that change one after the other, and are read one after the other: what is published, and the version that
//! is visible. The writer publishes a generation with the next memtable first, and shows versions that only it holds
//! after. So a version that was read before the generation was still the newest is one that it shows.

use crate::readers::{Guard, Published, ReaderSlot};

/// The newest generation, with a version that it shows; `version` reads the newest one that is visible.
#[inline]
pub(super) fn pin<'s, T: Send + Sync>(
    published: &Published<T>,
    slot: &'s ReaderSlot<T>,
    version: impl Fn(&T) -> u64,
) -> (Guard<'s, T>, u64) {
    loop {
        let guard = slot.load();
        let version = version(&guard);
        // A newer generation would mean that `version` may count what only that one holds. An older number means that the
        // owner is about to tell of this one: it need not be waited for.
        if published.epoch() <= guard.epoch() {
            return (guard, version);
        }
    }
}

/// A reader beside a writer that changes memtables: in every interleaving.
#[cfg(all(test, feature = "loom"))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU64, Ordering};
    use loom::thread::spawn;

    /// The last version that a generation holds.
    struct Holds(u64);

    #[test]
    fn a_version_is_never_shown_by_a_generation_that_lacks_it() {
        loom::model(|| {
            let published = Published::new(Holds(1), 1);
            let slot = published.register().expect("a free slot");
            let visible = Arc::new(AtomicU64::new(1));
            let reading = {
                let (published, visible) = (std::sync::Arc::clone(&published), Arc::clone(&visible));
                spawn(move || {
                    let (guard, version) = pin(&published, &slot, |_| visible.load(Ordering::Acquire));
                    assert!(version <= guard.0, "version {version} of a generation that ends with {}", guard.0);
                })
            };
            published.replace(Holds(2)).expect("room");
            visible.store(2, Ordering::Release);
            reading.join().expect("the reader's checks hold");
        });
    }
}
