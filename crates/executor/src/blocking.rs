//! Announcing a blocking call: a task informs its model that its thread is about to wait.
//!
//! Each thread of a model registers an [`Announce`]. The IO-aware pool lets another thread run meanwhile; the other models
//! only count. On a thread without a model, [`blocking`] only calls its closure. A nested announcement has no effect: the
//! outer one covers it.

use std::cell::RefCell;
use std::sync::Arc;

/// Actions of a model around a blocking call, on the thread that blocks.
pub(crate) trait Announce: Send + Sync {
    /// The thread is about to block.
    fn blocks(&self);
    /// The thread has returned from the call; this may block until it may run again.
    fn unblocks(&self);
}

thread_local! {
    /// The model of this thread; none while a blocking call is announced.
    static MODEL: RefCell<Option<Arc<dyn Announce>>> = const { RefCell::new(None) };
}

/// Calls `call`, which may block (a sleep, a file, a lock), and announces that to the model of this thread.
///
/// On an IO-aware pool this may return later than `call`: only when a permit to run is free.
pub fn blocking<R>(call: impl FnOnce() -> R) -> R {
    let Some(model) = MODEL.with(|model| model.borrow_mut().take()) else { return call() };
    model.blocks();
    // Also dropped if `call` panics: the permit to run is taken again before unwinding continues.
    let _announced = Announced(Some(model));
    call()
}

struct Announced(Option<Arc<dyn Announce>>);

impl Drop for Announced {
    fn drop(&mut self) {
        if let Some(model) = self.0.take() {
            model.unblocks();
            MODEL.with(|here| here.replace(Some(model)));
        }
    }
}

/// Registers the model of this thread, until the returned value is dropped.
pub(crate) fn register(model: Arc<dyn Announce>) -> Registered {
    Registered { before: MODEL.with(|here| here.replace(Some(model))) }
}

/// While this exists, announcements of this thread reach the registered model.
#[must_use]
pub(crate) struct Registered {
    before: Option<Arc<dyn Announce>>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let before = self.before.take();
        MODEL.with(|here| here.replace(before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[derive(Default)]
    struct Count {
        blocks: AtomicU32,
        unblocks: AtomicU32,
    }

    impl Announce for Count {
        fn blocks(&self) {
            self.blocks.fetch_add(1, Ordering::Relaxed);
        }
        fn unblocks(&self) {
            self.unblocks.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Count {
        fn seen(&self) -> (u32, u32) {
            (self.blocks.load(Ordering::Relaxed), self.unblocks.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn a_nested_announcement_counts_once_and_a_foreign_thread_announces_nothing() {
        let count = Arc::new(Count::default());
        assert_eq!(blocking(|| 1), 1);
        let registered = register(Arc::clone(&count) as Arc<dyn Announce>);
        assert_eq!(blocking(|| blocking(|| count.seen())), (1, 0));
        assert_eq!(count.seen(), (1, 1));
        drop(registered);
        blocking(|| ());
        assert_eq!(count.seen(), (1, 1));
    }

    #[test]
    fn a_call_that_panics_has_returned_from_blocking() {
        let count = Arc::new(Count::default());
        let _registered = register(Arc::clone(&count) as Arc<dyn Announce>);
        let call = || blocking(|| std::panic::panic_any("on purpose"));
        assert!(std::panic::catch_unwind(call).is_err());
        assert_eq!(count.seen(), (1, 1));
        blocking(|| ());
        assert_eq!(count.seen(), (2, 2), "later announcements count");
    }
}
