//! What the benches share: servers and load generators that are started and pinned, and the file of results.

pub(crate) mod memory_limit;
pub(crate) mod open_load;
pub(crate) mod process;
pub(crate) mod results;
pub(crate) mod stage;
pub(crate) mod wrk;
