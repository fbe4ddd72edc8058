//! Whole stores as operators handle them: backup, restore, compaction, examination, and reports as text.
//!
//! It imports the engine and `tree`, and extends [`Store`](crate::Store). Nothing of the store but the crate's root
//! imports it.

mod backup;
pub(crate) mod compact;
pub(crate) mod examine;
pub(crate) mod inspect;
pub(crate) mod restore;
