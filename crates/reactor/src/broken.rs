//! What becomes of a reactor one of whose loops ends by a panic or by an error of the kernel.
//!
//! A protocol's panic costs its connection; one of the loop itself leaves connections behind that nobody serves, and mail
//! that nobody reads. A reactor without one of its loops is no smaller reactor but a broken one, so it ends:
//!
//! 1. The loop's connections and listening sockets are closed, and mail to it is dropped.
//! 2. The other loops cut their connections and end, so that [`crate::Running::join`] returns with the error.
//! 3. What [`crate::Running::on_broken`] was given is called, once: the program may end there.

use std::any::Any;
use std::sync::{Mutex, PoisonError};

/// What is called when a loop has ended by itself.
pub(crate) type OnBroken = Box<dyn FnOnce() + Send>;

/// Whether a loop has ended by itself, and what is called for it.
#[derive(Default)]
pub(crate) struct Broken {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_broken: bool,
    call: Option<OnBroken>,
}

impl Broken {
    /// Has `call` called once a loop has ended by itself; at once if one has.
    pub(crate) fn on_broken(&self, call: OnBroken) {
        self.change(|state| state.call = Some(call));
    }

    /// A loop has ended by itself.
    pub(crate) fn set(&self) {
        self.change(|state| state.is_broken = true);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        let call = if state.is_broken { state.call.take() } else { None };
        drop(state);
        if let Some(call) = call {
            call();
        }
    }
}

/// What a panic said.
pub(crate) fn text_of(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}
