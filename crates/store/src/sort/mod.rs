//! External sort: entries in any order become entries in key order, with bounded memory and temporary files.
//!
//! Bulk builds read its result. It imports `base` and `disk`, and knows nothing of pages, trees or the log.

mod merge;
mod part;
mod run;
mod sorter;

pub use merge::{SortedEntries, SortedEntry};
pub use run::{SortedRun, SortedRunWriter};
pub use sorter::Sorter;
