//! Catching panics of work that other threads wait for: the panic becomes the work's error, so that no thread waits in vain.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::engine;

/// The error of the work, or its panic as text; the panic hook has already reported the place.
pub(crate) fn outcome<T>(work: impl FnOnce() -> Result<T, engine::StoreError>) -> Result<T, String> {
    unless_panic(work)?.map_err(|error| error.to_string())
}

/// The work's result, or its panic as text.
pub(crate) fn unless_panic<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    // Sound because the caller discards whatever the work was changing.
    let done = catch_unwind(AssertUnwindSafe(work));
    done.map_err(|panic| format!("a panic, which is a bug of Sapsan: {}", text_of(&*panic)))
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no panic message)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_and_a_panic_are_told_alike() {
        assert_eq!(outcome(|| Ok(5)), Ok(5));
        assert_eq!(outcome(|| Err::<(), _>(engine::StoreError::Full)), Err(engine::StoreError::Full.to_string()));
        let number = 7;
        for (message, what) in [
            (outcome(|| -> Result<(), engine::StoreError> { panic!("in text") }), "in text"),
            (outcome(|| -> Result<(), engine::StoreError> { panic!("with {number}") }), "with 7"),
        ] {
            assert!(
                message.as_ref().is_err_and(|message| message.starts_with("a panic") && message.ends_with(what)),
                "{message:?}"
            );
        }
    }
}
