//! What a connection has received: one buffer, read in place.
//!
//! ```text
//! 0        start            scanned         end         buffer.len()
//! | done   | reply in hand  | not seen yet  | free      |
//! ```
//!
//! The framer goes from `scanned` on and never back. The buffer grows while a reply does not fit, up to a limit, and gives
//! the memory of a large reply back before the next call.

use super::error::{Error, Lost};
use crate::codec::{Limits, ReplyFramer, ReplyKind, View};
use std::ops::Range;

/// Bytes of the buffer as long as replies fit: a pipeline of hundreds of small ones does.
const BUFFER_BYTES: usize = 64 << 10;
/// Bytes of a grown buffer that is kept.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// What a client's framer takes. `Settings::reply_bytes_max` bounds bulk strings, whatever the server's own limit is.
pub(crate) fn reply_limits() -> Limits {
    Limits { bulk_bytes_max: u64::from(u32::MAX), ..Limits::default() }
}

#[derive(Debug)]
pub(crate) struct Input {
    buffer: Vec<u8>,
    start: usize,
    scanned: usize,
    end: usize,
    framer: ReplyFramer,
}

impl Input {
    pub(crate) fn new() -> Input {
        let framer = ReplyFramer::new(reply_limits());
        Input { buffer: vec![0; BUFFER_BYTES], start: 0, scanned: 0, end: 0, framer }
    }

    /// Finds the next reply among what was received, as its place in the buffer; none if it is not complete.
    #[inline]
    pub(crate) fn next_reply(&mut self) -> Result<Option<Range<usize>>, Error> {
        let advance = self.framer.advance(&self.buffer[self.scanned..self.end])?;
        self.scanned += advance.consumed;
        if !advance.is_complete {
            return Ok(None);
        }
        let reply = self.start..self.scanned;
        self.start = self.scanned;
        Ok(Some(reply))
    }

    /// Kind of the reply that [`Input::next_reply`] gave last.
    #[inline]
    pub(crate) fn kind(&self) -> Option<ReplyKind> {
        self.framer.kind()
    }

    /// The reply that [`Input::next_reply`] gave last.
    #[inline]
    pub(crate) fn view(&self, reply: Range<usize>) -> View<'_> {
        self.framer.view(&self.buffer[reply])
    }

    /// Whether received bytes wait to be seen, or a reply is incomplete.
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Free space of the buffer, for the next bytes; [`Input::received`] then says how many came.
    ///
    /// # Errors
    /// The reply in hand has more than `reply_bytes_max`.
    #[inline]
    pub(crate) fn room(&mut self, reply_bytes_max: usize) -> Result<&mut [u8], Error> {
        if self.start == self.end {
            (self.start, self.scanned, self.end) = (0, 0, 0);
        } else if self.end == self.buffer.len() {
            self.make_room(reply_bytes_max)?;
        }
        Ok(&mut self.buffer[self.end..])
    }

    #[inline]
    pub(crate) fn received(&mut self, bytes: usize) {
        self.end += bytes;
    }

    /// Moves the incomplete reply to the front; where it fills half of the buffer already, into one twice as large.
    fn make_room(&mut self, reply_bytes_max: usize) -> Result<(), Error> {
        let bytes = self.end - self.start;
        if bytes > reply_bytes_max {
            return Err(Lost::TooLarge.into());
        }
        if bytes > self.buffer.len() / 2 {
            // A new buffer of zeros is not touched before it is used; growing the old one would write it all.
            let mut larger = vec![0; self.buffer.len() * 2];
            larger[..bytes].copy_from_slice(&self.buffer[self.start..self.end]);
            self.buffer = larger;
        } else {
            self.buffer.copy_within(self.start..self.end, 0);
        }
        (self.start, self.scanned, self.end) = (0, self.scanned - self.start, bytes);
        Ok(())
    }

    /// Gives the memory of a large reply back, unless the buffer is in use.
    #[inline]
    pub(crate) fn shrink(&mut self) {
        if self.buffer.len() > KEPT_BYTES_MAX && self.is_empty() {
            self.buffer = vec![0; BUFFER_BYTES];
            (self.start, self.scanned, self.end) = (0, 0, 0);
        }
    }
}
