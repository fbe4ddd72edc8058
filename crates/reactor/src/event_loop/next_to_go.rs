//! Connections that are closed next if memory is short: left over from the last search (`hoarders.rs`), used until none is left or
//! the search is too old.

use crate::protocol::ConnectionId;

/// The connections to close next when a part is short: the rest of the last search.
#[derive(Default)]
pub(crate) struct NextToGo {
    /// The first to be closed stands last.
    pub(crate) ids: Vec<ConnectionId>,
    pub(crate) found_ns: u64,
}
