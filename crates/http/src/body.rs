//! Bodies that are pulled piece by piece.

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
