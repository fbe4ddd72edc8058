//! The bytes of a bulk string and the CR LF after them: skipped, never copied, wherever the input is cut.

use super::protocol_error::ProtocolError;

/// CR and LF.
pub(crate) const LINE_END_BYTES: u64 = 2;

/// The remaining part of a bulk string.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Payload {
    /// Bytes including the line end; 0 outside a bulk string.
    left: u64,
}

impl Payload {
    /// A payload of this many bytes, the line end included; 0 for none.
    #[inline]
    pub(crate) fn of(bytes: u64) -> Payload {
        Payload { left: bytes }
    }

    /// Bytes still to come, the line end included.
    #[inline]
    pub(crate) fn bytes_to_come(self) -> u64 {
        self.left
    }

    /// Skips the available bytes of the bulk string and returns their number.
    #[inline]
    pub(crate) fn advance(&mut self, input: &[u8]) -> Result<usize, ProtocolError> {
        if let Some([b'\r', b'\n', ..]) = input.get(self.left.saturating_sub(LINE_END_BYTES) as usize..)
            && self.left >= LINE_END_BYTES
        {
            return Ok(std::mem::take(&mut self.left) as usize);
        }
        self.part(input)
    }

    /// Slow path: the line end is missing so far, or is wrong.
    fn part(&mut self, input: &[u8]) -> Result<usize, ProtocolError> {
        let data = (self.left.saturating_sub(LINE_END_BYTES)).min(input.len() as u64);
        self.left -= data;
        let mut at = data as usize;
        while self.left > 0 && at < input.len() {
            let expected = if self.left == LINE_END_BYTES { b'\r' } else { b'\n' };
            if input[at] != expected {
                return Err(ProtocolError::LineEnd);
            }
            self.left -= 1;
            at += 1;
        }
        Ok(at)
    }
}
