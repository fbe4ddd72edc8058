//! Bodies in pieces: reply bodies that are pulled, and request bodies that are pushed to a sink.

use std::borrow::Cow;

use crate::status::Status;

/// Result of a pull from a [`BodySource`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// There is more: pull again at the next low-water mark.
    Yes,
    /// The body is complete.
    No,
    /// Nothing is available now: pull again when the stream's [`crate::Nudge`] is sent.
    Wait,
    /// The source failed half-way: the connection is closed, so that the client sees a truncated body.
    Broken,
}

/// A streamed body. Lives on the loop's thread.
pub trait BodySource: 'static {
    /// Appends the next piece (about 64 KB) to `out`, and does not touch the bytes before. Must not block, since it would hold up
    /// the whole loop: a source that has nothing yet returns [`More::Wait`].
    fn pull(&mut self, out: &mut Vec<u8>) -> More;
}

/// Takes the body of one request in pieces, as they arrive: see [`crate::Service::takes_pieces`]. Lives on the loop's thread. If
/// it is dropped without a call of `end`, its connection is gone, or its request was answered before.
pub trait BodySink: 'static {
    /// Takes the next bytes of the body, never an empty piece, and returns how many it has taken. If it does not take all, the
    /// connection is not read, and its client's deadline does not run, until the reply's [`crate::Nudge`] is sent.
    fn take(&mut self, piece: &[u8]) -> usize;
    /// Bytes of memory that it holds of the body. They count as bytes of arriving bodies.
    fn held_bytes(&self) -> usize;
    /// Called at the end: the body was taken whole, or no more of it will come. In the second case the connection is closed after
    /// the reply.
    fn end(self: Box<Self>, end: Result<(), BodyFault>);
}

/// Why no more of a request's body comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyFault {
    /// Status for the reply.
    pub status: Status,
    /// Description for the client's developer.
    pub detail: Cow<'static, str>,
}
