//! Panics of the server's own threads: each is a bug. The thread continues with its next work, and health reports the panic until
//! that work is done. The panic of a thread that cannot continue is reported until the server is restarted.
//!
//! A panic in a request's job on a pool is answered with 500 and not reported here: it leaves no work undone.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Threads whose last work panicked, with the texts.
#[derive(Debug, Default)]
pub(crate) struct Panics {
    message: Mutex<BTreeMap<&'static str, String>>,
}

impl Panics {
    /// Records a thread's panic, or that it has done its work.
    pub(crate) fn note(&self, thread: &'static str, panicked: Option<String>) {
        let mut message = self.lock();
        match panicked {
            None => drop(message.remove(thread)),
            Some(text) if message.get(thread) == Some(&text) => {}
            Some(text) => {
                tracing::error!(thread, text, "a thread panicked, which is a bug of Sapsan");
                message.insert(thread, text);
            }
        }
    }

    /// All of them in one line, if there are any.
    pub(crate) fn message(&self) -> Option<String> {
        let message = self.lock();
        let lines: Vec<String> = message.iter().map(|(thread, text)| format!("{thread}: {text}")).collect();
        if lines.is_empty() { None } else { Some(lines.join("; ")) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, String>> {
        self.message.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs some work; or returns the text of its panic. The caller must not use the work's data afterwards.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| text_of(&*panic).to_owned())
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no panic message)")
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
        assert_eq!(panics.message().as_deref(), Some("expiry: with 7"));
        panics.note("expiry", caught(|| 3).err());
        assert_eq!(panics.message(), None);
    }
}
