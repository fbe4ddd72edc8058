//! The end of a reactor after one of its loops has failed, by a panic or by an error of the kernel.
//!
//! A panic in a protocol closes its connection. A panic in the loop itself leaves connections without service and mail unread.
//! Such a reactor cannot go on with the remaining loops, so it ends:
//!
//! 1. The loop's connections and listening sockets are closed, and mail to it is dropped.
//! 2. The other loops close their connections and end, so that [`crate::RunningReactor::join`] returns with the error.
//! 3. The closure given to [`crate::RunningReactor::on_broken`] is called, once: the program may end there.

use std::any::Any;
use std::sync::{Mutex, PoisonError};

/// Called when a loop has ended by itself.
pub(crate) type OnBroken = Box<dyn FnOnce() + Send>;

/// Whether a loop has ended by itself, and the closure to call then.
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
    /// Sets the closure to call once a loop has ended by itself; if one has, it is called at once.
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

/// The text of a panic.
pub(crate) fn text_of(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}
