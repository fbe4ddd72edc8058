//! Answers: what each request's reply must be, and the comparison of replies with them.
//!
//! An answers file has one line for each request of the ammo, in the same order ([`AnswerLines`]). While the engine reads ahead,
//! expected answers wait in a [`Comparison`] under the request's index. The engine's comparing thread asks the comparison's
//! [`Comparer`] for a verdict on each reply. None of this runs on a thread that sends.

mod body;
mod compare;
mod comparison;
mod difference;
mod expected;
mod reader;

pub use body::{BodyCheck, BodyExpectation, UnexpectedBodies};
pub use comparison::{Comparer, Comparison, PENDING_BYTES_MAX};
pub use difference::{AnswerDifferences, DIFFERENCES_KEPT_MAX, Difference, SHOWN_BYTES_MAX};
pub use expected::Expected;
pub(crate) use reader::AnswerLines;
