//! Commands for Redis nodes: a proxy before them, and copying keys to them.

pub(crate) mod proxy;
pub(crate) mod reshard;
