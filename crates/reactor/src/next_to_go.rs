//! The rest of a search for the holders of memory (`hoarders.rs`), kept by the loop until it is used up or too old.

use crate::protocol::ConnectionId;

/// The connections to close next when a part is short: the rest of the last search.
#[derive(Default)]
pub(crate) struct NextToGo {
    /// The first to be closed stands last.
    pub(crate) ids: Vec<ConnectionId>,
    pub(crate) found_ns: u64,
}
