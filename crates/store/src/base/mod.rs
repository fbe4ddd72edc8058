//! The lowest room: the words that all other rooms of the store share, and mechanisms that know no file of a store.
//!
//! Here are errors, keys and versions, bounds, the clock, synchronisation, published values with their readers, and the
//! stop of all writes after a failure. It imports nothing of this crate, so every other room may import it.

pub(crate) mod clock;
pub(crate) mod error;
pub(crate) mod fail_stop;
pub(crate) mod head;
pub(crate) mod key;
pub(crate) mod limits;
pub(crate) mod monitor;
pub(crate) mod prefetch;
pub mod readers;
pub(crate) mod sync;
