//! Panics of the server's own threads: each is a bug. The thread goes on with its next work, and health tells until that has
//! been done; a thread that cannot go on is told until the server is started again.
//!
//! What a request asked of a pool is answered 500, and not told here: nothing is missing when it is over.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Which threads panicked at their last work, and with what.
#[derive(Debug, Default)]
pub(crate) struct Panics {
    told: Mutex<BTreeMap<&'static str, String>>,
}

impl Panics {
    /// Notes what a thread panicked with, or that it has done its work.
    pub(crate) fn note(&self, thread: &'static str, panicked: Option<String>) {
        let mut told = self.lock();
        match panicked {
            None => drop(told.remove(thread)),
            Some(text) if told.get(thread) == Some(&text) => {}
            Some(text) => {
                tracing::error!(thread, text, "a thread panicked, which is a bug of Sapsan");
                told.insert(thread, text);
            }
        }
    }

    /// A line of all, where there are any.
    pub(crate) fn told(&self) -> Option<String> {
        let told = self.lock();
        let lines: Vec<String> = told.iter().map(|(thread, text)| format!("{thread}: {text}")).collect();
        if lines.is_empty() { None } else { Some(lines.join("; ")) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, String>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Does some work; or gives what it panicked with. Whoever asks looks no more at what the work had in its hands.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| text_of(&*panic).to_owned())
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it says nothing")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_until_the_same_thread_has_done_its_work() {
        let panics = Panics::default();
        assert_eq!(caught(|| 1), Ok(1));
        let number = 7;
        panics.note("expiry", caught(|| -> u32 { panic!("with {number}") }).err());
        panics.note("reload", caught(|| 2).err());
        assert_eq!(panics.told().as_deref(), Some("expiry: with 7"));
        panics.note("expiry", caught(|| 3).err());
        assert_eq!(panics.told(), None);
    }
}
