//! Pinning a generation together with a version that it contains.
//!
//! The published generation and the visible version change one after the other, and are read one after the other. The
//! writer first publishes a generation with the next memtable, then makes versions visible that only this generation
//! contains. So if the generation is still the newest one after the version was read, it contains the version.

use crate::base::readers::{Published, ReadGuard, ReaderSlot};

/// The newest generation, with a version that it contains; `version` reads the newest visible version.
#[inline]
pub(in crate::engine) fn pin<'s, T: Send + Sync>(
    published: &Published<T>,
    slot: &'s ReaderSlot<T>,
    version: impl Fn(&T) -> u64,
) -> (ReadGuard<'s, T>, u64) {
    loop {
        let guard = slot.load();
        let version = version(&guard);
        // If there is a newer generation, `version` may count changes that only the newer one contains. If the epoch is
        // older, the owner is about to store it, and there is no need to wait.
        if published.epoch() <= guard.epoch() {
            return (guard, version);
        }
    }
}

/// A reader beside a writer that changes memtables, in every interleaving.
#[cfg(all(test, feature = "loom"))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU64, Ordering};
    use loom::thread::spawn;

    /// The last version that a generation contains.
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
            published.reserve().expect("room").replace(Holds(2));
            visible.store(2, Ordering::Release);
            reading.join().expect("the reader's checks hold");
        });
    }
}
