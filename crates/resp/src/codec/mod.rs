//! The codec: bytes to requests and replies and back, without I/O.
//!
//! | subject | file |
//! |---|---|
//! | where a request or a reply ends, in bytes that arrive in pieces | `request_framer`, `reply_framer`, `advance` |
//! | parts of messages | `number`, `short_length`, `payload` (bulk strings, skipped), `header` (first lines of replies) |
//! | a complete message in a buffer, read in place | `arguments`, `view`, `inline` |
//! | writing | `encoder` |
//! | what is refused | `limits`, `protocol_error` |

mod advance;
mod arguments;
mod encoder;
mod header;
mod inline;
mod limits;
mod number;
mod payload;
mod protocol_error;
mod reply_framer;
mod request_framer;
mod short_length;
mod view;

pub use advance::Advance;
pub use arguments::{Arguments, PartialArgument};

pub use encoder::{ProtocolVersion, ReplyWriter, write_command};
pub(crate) use encoder::{write_bulk, write_count};
pub use inline::rewrite_inline;
pub use limits::{ARGUMENTS_MAX, BULK_BYTES_MAX, DEPTH_MAX, ELEMENTS_MAX, FrameLimits, LINE_BYTES_MAX};
pub use protocol_error::ProtocolError;
pub use reply_framer::{ReplyFramer, ReplyKind};
pub use request_framer::{RequestFramer, RequestKind};
pub use view::{Elements, ReplyView};
