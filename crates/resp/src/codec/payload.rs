//! The bytes of a bulk string and the CR LF behind them: passed over, never copied, wherever the input is cut.

use super::protocol_error::ProtocolError;

/// CR and LF.
pub(crate) const LINE_END_BYTES: u64 = 2;

/// How much of a bulk string is still to come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Payload {
    /// Bytes including the line end; 0 outside of a bulk string.
    left: u64,
}

impl Payload {
    /// So many bytes follow, the line end included; 0 for none.
    #[inline]
    pub(crate) fn of(bytes: u64) -> Payload {
        Payload { left: bytes }
    }

    /// Bytes still to come, the line end included.
    #[inline]
    pub(crate) fn bytes_to_come(self) -> u64 {
        self.left
    }

    /// Passes over what is there of the bulk string and gives the number of bytes that belong to it.
    #[inline]
    pub(crate) fn advance(&mut self, input: &[u8]) -> Result<usize, ProtocolError> {
        if let Some([b'\r', b'\n', ..]) = input.get(self.left.saturating_sub(LINE_END_BYTES) as usize..)
            && self.left >= LINE_END_BYTES
        {
            return Ok(std::mem::take(&mut self.left) as usize);
        }
        self.part(input)
    }

    /// The same where the line end is not there yet, or is none.
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
