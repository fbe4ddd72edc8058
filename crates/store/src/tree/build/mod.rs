//! New pages: merging sorted changes into nodes, cutting runs of entries into pages, output in chunks, the space map.
//!
//! It imports `tree::state` and `tree::format`. It must not know meta pages or views: the writer, the bulk build and
//! the copy, one room above, decide what becomes visible.

pub(super) mod assembler;
pub(super) mod chunk_writer;
pub(super) mod merge;
pub(super) mod output;
pub(super) mod run;
pub(super) mod space_map;
