//! Panics of tasks are contained: they are caught, counted by the caller and logged.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs foreign code. `false`: it panicked, which is logged with the executor's name.
pub(crate) fn run_contained(name: &str, work: impl FnOnce()) -> bool {
    // The work is consumed and shares no state with the executor, so no inconsistent state is visible after its
    // panic.
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
    // Dropping a payload runs foreign code too.
    drop_contained(payload);
}

/// Drops a value of a foreign type; a panic in its drop is contained.
pub(crate) fn drop_contained<T>(value: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        // If a payload's own drop panics, the process would end; the payload is forgotten instead.
        std::mem::forget(payload);
    }
}
