//! Bodies in pieces: replies' that are pulled, and requests' that are taken.

use std::borrow::Cow;

use crate::status::Status;

/// What a pull from a [`BodySource`] gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// There is more: pull again at the next low-water mark.
    Yes,
    /// The body is complete.
    No,
    /// There is nothing now: pull again when the stream's [`crate::Nudge`] was sent.
    Wait,
    /// Something went wrong half-way: the connection is cut, so that the client sees a broken body.
    Broken,
}

/// A streamed body. Lives on the loop's thread.
pub trait BodySource: 'static {
    /// Appends the next piece (about 64 KB) to `out`, and touches nothing before it. Must not wait: a source that has
    /// nothing yet says [`More::Wait`], or holds up its whole loop.
    fn pull(&mut self, out: &mut Vec<u8>) -> More;
}

/// Takes the body of one request in pieces, as they arrive: see [`crate::Service::takes_pieces`]. Lives on the loop's thread. Dropped
/// before its end was told, it is one whose connection is gone, or whose request was answered before.
pub trait BodySink: 'static {
    /// The next bytes of the body, never none. Gives how many of them it has taken. Where these are not all, the connection is not
    /// read, and its client is not waited for, until the reply's [`crate::Nudge`] is sent.
    fn take(&mut self, piece: &[u8]) -> usize;
    /// Bytes of memory that it holds of the body: they count as those of bodies that arrive.
    fn held_bytes(&self) -> usize;
    /// The body was taken whole, or nothing more of it will come: the connection is closed behind the reply then.
    fn end(self: Box<Self>, end: Result<(), BodyFault>);
}

/// Why nothing more of a request's body comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyFault {
    /// What a reply is to say.
    pub status: Status,
    /// What is wrong, in words for the client's developer.
    pub detail: Cow<'static, str>,
}
