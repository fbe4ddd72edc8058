//! Bytes to requests, without I/O.
//!
//! [`reader`] decides which form a request has: `plain` reads the usual head in one pass, `head` any other; bodies are gathered whole
//! (`chunked`) or passed on in pieces (`pieces`). A request that is refused has its reason in `refusal`.

pub(crate) mod chunked;
pub(crate) mod head;
pub(crate) mod pieces;
pub(crate) mod plain;
pub(crate) mod reader;
pub(crate) mod refusal;
pub(crate) mod scan;
pub(crate) mod visible;
