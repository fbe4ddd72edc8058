//! Replies: media types, one document, the key of a new one, large replies as streams, rows that leave while they are made.
//!
//! It may import `config`, `failure`, `requests`, `threads` and `reads`. It knows no route and no
//! service.

pub(crate) mod document;
pub(crate) mod large;
pub(crate) mod media;
pub(crate) mod new_key;
pub(crate) mod pipe;
pub(crate) mod row_stream;
pub mod rows;
