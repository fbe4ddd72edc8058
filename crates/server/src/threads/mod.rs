//! Work that would block a loop: the pool of long queries with its queues, the time limit on a loop, the client that may leave
//! meanwhile, panics of threads; and the bound of memory that waiting work takes (`in_flight`).
//!
//! It may import `access` (permits), `config` and `failure`. It knows neither the work that it runs nor the service.

pub(crate) mod background;
pub(crate) mod client;
pub(crate) mod in_flight;
pub(crate) mod loop_time;
pub(crate) mod panics;
pub(crate) mod query_pool;
pub(crate) mod query_state;
