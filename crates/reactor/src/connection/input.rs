//! Input buffer: bytes of a connection that were received and not consumed.
//!
//! ```text
//!  0          start            end            bytes.len()
//!  +----------+----------------+--------------+
//!  | consumed | filled         | room         |
//!  +----------+----------------+--------------+
//! ```
//!
//! `bytes` is initialised over its whole length once, so that a read needs neither zeroing nor `unsafe`. An idle connection's
//! `bytes` is empty: the loop lends storage for a turn (see `turn`), and only unconsumed bytes are copied into storage of the
//! connection's own.

/// Bytes received and not consumed.
#[derive(Default)]
pub(crate) struct InputBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

/// The least storage given to unconsumed bytes.
const STORAGE_BYTES_MIN: usize = 4096;

impl InputBuffer {
    pub(crate) fn with_storage(bytes: usize) -> Self {
        Self { bytes: vec![0; bytes], start: 0, end: 0 }
    }

    pub(crate) fn has_storage(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Bytes of memory allocated.
    pub(crate) fn storage_bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    /// Drops the first `n` filled bytes, or all of them if there are fewer.
    pub(crate) fn consume(&mut self, n: usize) {
        debug_assert!(n <= self.len(), "consumed more than was received");
        self.start = (self.start + n).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.end..]
    }

    /// Marks the first `n` bytes of the room as filled.
    pub(crate) fn fill(&mut self, n: usize) {
        debug_assert!(n <= self.bytes.len() - self.end, "filled more than the room");
        self.end = (self.end + n).min(self.bytes.len());
    }

    /// Makes room after the filled bytes: by moving them to the front, or by doubling the storage up to `filled_max`. No effect
    /// if `filled_max` bytes are filled.
    pub(crate) fn make_room(&mut self, filled_max: usize) {
        if self.bytes.len() - self.end >= STORAGE_BYTES_MIN / 2 {
            return;
        }
        let is_full_grown = self.bytes.len() >= filled_max;
        if self.start > 0 && (is_full_grown || self.start >= self.bytes.len() / 2) {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        } else if !is_full_grown {
            let storage = (self.bytes.len() * 2).max(STORAGE_BYTES_MIN).min(filled_max);
            self.bytes.resize(storage, 0);
        }
    }

    /// Copies the filled bytes into `storage` (from a pool), enlarging it if it is too small, and empties this buffer.
    pub(crate) fn move_into(&mut self, mut storage: Vec<u8>) -> Self {
        let filled = self.len();
        if storage.len() < filled {
            storage.resize(filled.next_power_of_two().max(STORAGE_BYTES_MIN), 0);
        }
        storage[..filled].copy_from_slice(self.filled());
        (self.start, self.end) = (0, 0);
        Self { bytes: storage, start: 0, end: filled }
    }

    /// Gives up the storage; filled bytes are lost.
    pub(crate) fn take_storage(&mut self) -> Vec<u8> {
        (self.start, self.end) = (0, 0);
        std::mem::take(&mut self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Receive(usize),
        Consume(usize),
        MoveOut(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (1..9000_usize).prop_map(Step::Receive),
            (0..9000_usize).prop_map(Step::Consume),
            (0..9000_usize).prop_map(Step::MoveOut),
        ];
        prop::collection::vec(step, 1..60)
    }

    fn check_against_queue(steps: &[Step], filled_max: usize) {
        let mut buffer = InputBuffer::default();
        let mut model: VecDeque<u8> = VecDeque::new();
        let mut next = 0_u8;
        for step in steps {
            match *step {
                Step::Receive(bytes) => {
                    buffer.make_room(filled_max);
                    assert!(!buffer.room().is_empty() || buffer.len() >= filled_max, "no room at {}", buffer.len());
                    let taken = bytes.min(buffer.room().len());
                    for byte in &mut buffer.room()[..taken] {
                        *byte = next;
                        model.push_back(next);
                        next = next.wrapping_add(1);
                    }
                    buffer.fill(taken);
                }
                Step::Consume(bytes) => {
                    let bytes = bytes.min(buffer.len());
                    buffer.consume(bytes);
                    model.drain(..bytes);
                }
                Step::MoveOut(storage) => buffer = buffer.move_into(vec![0xee; storage]),
            }
            assert!(buffer.filled().iter().eq(model.iter()), "after {step:?}");
        }
    }

    proptest! {
        #[test]
        fn bytes_come_out_as_they_went_in(steps in steps(), filled_max in 512..40_000_usize) {
            check_against_queue(&steps, filled_max);
        }
    }
}
