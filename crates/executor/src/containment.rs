//! Panics of tasks stay in the task: they are caught, counted by the caller and named in the log.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs foreign code. `false`: it panicked, which the log tells with the name of the executor.
pub(crate) fn run_contained(name: &str, work: impl FnOnce()) -> bool {
    // The work is consumed, and nothing of ours is shared with it, so no broken state can be seen after its panic.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(()) => true,
        Err(payload) => {
            report(name, payload);
            false
        }
    }
}

#[cold]
fn report(name: &str, payload: Box<dyn Any + Send>) {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text");
    tracing::error!(pool = name, "a job panicked: {text}");
    // Dropping a payload is foreign code too.
    drop_contained(payload);
}

/// Drops a value of foreign type; a panic in its drop goes no further.
pub(crate) fn drop_contained<T>(value: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        // A payload whose own drop panics would end the process; it is forgotten instead.
        std::mem::forget(payload);
    }
}
