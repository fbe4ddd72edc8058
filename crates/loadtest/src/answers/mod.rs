//! Answers: what is expected of each request, and how replies are compared with it.
//!
//! An answers file has one line for each request of the ammo, in the same order ([`AnswerLines`]). While the engine reads ahead, what is expected waits in a
//! [`Comparison`] under the request's index; the engine's comparing thread asks the comparison's [`Comparer`] for its verdict on each reply. Nothing of it
//! runs on a thread that sends.

mod compare;
mod comparison;
mod difference;
mod expected;
mod reader;

pub use comparison::{Comparer, Comparison, PENDING_BYTES_MAX};
pub use difference::{DIFFERENCES_KEPT_MAX, Difference, Differences, SHOWN_BYTES_MAX};
pub use expected::Expected;
pub(crate) use reader::AnswerLines;
