//! What replies are made of: errors, header fields, reusable buffers, streamed bodies.
//!
//! This is the lowest room: it imports no other. It knows neither requests nor applications. The reply itself is
//! `dispatch/response.rs`, because a late reply has a part in the path of its request.

mod buffer;
mod error;
mod fields;
mod head;
mod stream;

pub(crate) use buffer::Buffer;
pub use error::{Error, ErrorPage, escaped};
pub(crate) use fields::Fields;
pub use head::Head;
pub use stream::{Pieces, Stream};
