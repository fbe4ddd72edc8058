//! Bodies that are made while they are sent.

use super::error::Error;
use http::{BodySource, More};
use std::borrow::Cow;

/// Makes a body piece by piece, on the event loop, whenever the client has received most of what was sent. Must not wait.
///
/// A closure implements it: it appends the next piece (at most about 64 KB) and returns whether there is more.
pub trait Pieces: Send + 'static {
    /// Appends the next piece to `out` without changing the bytes before it. On `Err` the connection is cut, so that the client sees
    /// that the body is incomplete.
    fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, Error>;
}

impl<F: FnMut(&mut Vec<u8>) -> Result<bool, Error> + Send + 'static> Pieces for F {
    fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, Error> {
        self(out)
    }
}

/// A body that is made while it is sent. One piece of it is in memory at a time.
///
/// ```
/// # use sapsan::Stream;
/// fn numbers() -> Stream {
///     let mut next = 0;
///     Stream::new("text/plain", move |out: &mut Vec<u8>| {
///         out.extend_from_slice(format!("{next}\n").as_bytes());
///         next += 1;
///         Ok(next < 1_000_000)
///     })
/// }
/// ```
pub struct Stream {
    pub(crate) content_type: Cow<'static, str>,
    pub(crate) bytes: Option<u64>,
    pub(crate) source: Box<dyn BodySource + Send>,
}

impl Stream {
    /// A body of unknown length, sent in chunks.
    pub fn new(content_type: impl Into<Cow<'static, str>>, pieces: impl Pieces) -> Stream {
        Stream { content_type: content_type.into(), bytes: None, source: Box::new(Source(pieces)) }
    }

    /// A body of unknown length from a source that may have to wait for its next piece ([`http::More::Wait`]).
    pub fn of_source(content_type: impl Into<Cow<'static, str>>, source: Box<dyn BodySource + Send>) -> Stream {
        Stream { content_type: content_type.into(), bytes: None, source }
    }

    /// Sets the length in bytes. If the source makes another number of bytes, the connection is cut.
    pub fn with_length(mut self, bytes: u64) -> Stream {
        self.bytes = Some(bytes);
        self
    }
}

struct Source<P>(P);

impl<P: Pieces> BodySource for Source<P> {
    fn pull(&mut self, out: &mut Vec<u8>) -> More {
        match self.0.next(out) {
            Ok(true) => More::Yes,
            Ok(false) => More::No,
            Err(error) => {
                tracing::warn!(%error, "a streamed body is broken off");
                More::Broken
            }
        }
    }
}
