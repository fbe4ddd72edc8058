//! Work besides requests: a running backup, a running verification of a view, the thread that removes expired documents, requests
//! for a reload that wait for its thread.
//!
//! It may import `failure`, `requests` and `threads`. It knows neither the service nor who answers about this work.

pub(crate) mod backups;
pub(crate) mod expiry;
pub(crate) mod reload_requests;
pub(crate) mod verification;
