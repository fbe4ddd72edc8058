//! Seeded test data: the same seed gives the same bytes on every machine.

mod names;
mod travels;

pub(crate) use travels::{Counts, Travels};
