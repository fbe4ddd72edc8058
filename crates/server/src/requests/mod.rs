//! What a request says: parameters of the query, of the path and of header fields, preconditions, lines of its body.
//!
//! It may import `config` and `failure`. It knows no service and no reply: a value is typed and checked here, and used elsewhere.

pub(crate) mod escape;
pub(crate) mod header_params;
pub(crate) mod json_body;
pub(crate) mod lines;
pub(crate) mod params;
pub(crate) mod preconditions;
