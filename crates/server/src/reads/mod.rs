//! Reads that would wait for the disk: the check before a read and the threads for such reads (`cold`), documents read past the page
//! cache (`direct`), and the document that a path names (`named`).
//!
//! It may import `config` and `failure`. `service::cold_read` passes reads to the threads.

pub(crate) mod cold;
pub(crate) mod direct;
pub(crate) mod named;
