//! Received bytes of a connection: one buffer, read in place.
//!
//! ```text
//! 0        start            scanned         end         buffer.len()
//! | done   | current reply  | not scanned   | free      |
//! ```
//!
//! The framer reads on from `scanned` and never goes back. The buffer grows up to a limit while a reply does not fit, and
//! releases the memory of a large reply before the next call.

use super::error::{CommandError, Lost};
use crate::codec::{FrameLimits, ReplyFramer, ReplyKind, ReplyView};
use std::ops::Range;

/// Size of the buffer while replies fit: enough for a pipeline of hundreds of small ones.
const BUFFER_BYTES: usize = 64 << 10;
/// Size in bytes up to which a grown buffer is kept.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Limits of a client's framer. `ClientSettings::reply_bytes_max` bounds bulk strings, whatever the server's own limit is.
pub(crate) fn reply_limits() -> FrameLimits {
    FrameLimits { bulk_bytes_max: u64::from(u32::MAX), ..FrameLimits::default() }
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

    /// Finds the next reply among the received bytes and returns its range in the buffer. None while it is incomplete.
    #[inline]
    pub(crate) fn next_reply(&mut self) -> Result<Option<Range<usize>>, CommandError> {
        let advance = self.framer.advance(&self.buffer[self.scanned..self.end])?;
        self.scanned += advance.consumed;
        if !advance.is_complete {
            return Ok(None);
        }
        let reply = self.start..self.scanned;
        self.start = self.scanned;
        Ok(Some(reply))
    }

    /// Kind of the reply that [`Input::next_reply`] returned last.
    #[inline]
    pub(crate) fn kind(&self) -> Option<ReplyKind> {
        self.framer.kind()
    }

    /// The reply that [`Input::next_reply`] returned last.
    #[inline]
    pub(crate) fn view(&self, reply: Range<usize>) -> ReplyView<'_> {
        self.framer.view(&self.buffer[reply])
    }

    /// The bytes of the reply that [`Input::next_reply`] returned last.
    pub(crate) fn bytes(&self, reply: Range<usize>) -> &[u8] {
        &self.buffer[reply]
    }

    /// Whether no received bytes are left, not even those of an incomplete reply.
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Free space of the buffer for the next bytes; the caller then reports their number to [`Input::received`].
    ///
    /// # Errors
    /// The current reply is larger than `reply_bytes_max`.
    #[inline]
    pub(crate) fn room(&mut self, reply_bytes_max: usize) -> Result<&mut [u8], CommandError> {
        if self.start == self.end {
            (self.start, self.scanned, self.end) = (0, 0, 0);
        } else if self.end - self.start >= reply_bytes_max {
            return Err(Lost::TooLarge.into());
        } else if self.end == self.buffer.len() {
            self.make_room();
        }
        // A reply that is larger is never complete in the buffer.
        let end = self.buffer.len().min(self.start.saturating_add(reply_bytes_max));
        Ok(&mut self.buffer[self.end..end])
    }

    #[inline]
    pub(crate) fn received(&mut self, bytes: usize) {
        self.end += bytes;
    }

    /// Moves the incomplete reply to the front. If it fills half of the buffer, moves it into a buffer twice as large.
    fn make_room(&mut self) {
        let bytes = self.end - self.start;
        if bytes > self.buffer.len() / 2 {
            // A new buffer of zeros is mapped only when it is used; growing the old one would write all of it.
            let mut larger = vec![0; self.buffer.len() * 2];
            larger[..bytes].copy_from_slice(&self.buffer[self.start..self.end]);
            self.buffer = larger;
        } else {
            self.buffer.copy_within(self.start..self.end, 0);
        }
        (self.start, self.scanned, self.end) = (0, self.scanned - self.start, bytes);
    }

    /// Releases the memory of a large reply, unless the buffer is in use.
    #[inline]
    pub(crate) fn shrink(&mut self) {
        if self.buffer.len() > KEPT_BYTES_MAX && self.is_empty() {
            self.buffer = vec![0; BUFFER_BYTES];
            (self.start, self.scanned, self.end) = (0, 0, 0);
        }
    }
}
