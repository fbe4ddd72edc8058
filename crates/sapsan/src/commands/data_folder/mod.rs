//! Commands on a whole data folder, or on the store of a running server: copies, checks, figures.

pub(crate) mod backup;
pub(crate) mod compact;
pub(crate) mod restore;
pub(crate) mod stat;
pub(crate) mod verify;
