//! Write queue of one connection: bytes copied in, with shared pieces spliced between them.
//!
//! ```text
//!  bytes   | sent | head of a reply |            head of the next ... |
//!                                   ^ splices[0].at
//!  splices                          Arc<[u8]> of a static file
//! ```
//!
//! Copied bytes of all replies stand in one `Vec`; a shared piece only remembers before which of them it goes. So the
//! usual queue is one slice and one `send`; `writev` is for queues with shared pieces.
//!
//! Invariants: `sent <= bytes.len()`; splices ascend in `at`, and none has `at < sent`.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;

use crate::metrics::Counter;
use crate::socket::Then;
use crate::transport::Transport;

/// Pieces given to one `writev`; the kernel takes 1024 at most, and 64 already fill a socket's buffer.
const PIECES_PER_WRITE: usize = 64;
/// Sent bytes in front of the queue are moved out of the way once they are this many and half of all.
const COMPACT_BYTES_MIN: usize = 4096;

struct Splice {
    /// Goes out before `bytes[at]`.
    at: usize,
    piece: Arc<[u8]>,
    sent: usize,
}

/// Bytes that wait to be taken by the kernel.
#[derive(Default)]
pub(crate) struct OutputQueue {
    bytes: Vec<u8>,
    sent: usize,
    splices: VecDeque<Splice>,
    splices_unsent: usize,
}

impl OutputQueue {
    /// The tail, for appending.
    pub(crate) fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    pub(crate) fn push_shared(&mut self, piece: Arc<[u8]>) {
        if !piece.is_empty() {
            self.splices_unsent += piece.len();
            self.splices.push_back(Splice { at: self.bytes.len(), piece, sent: 0 });
        }
    }

    pub(crate) fn unsent(&self) -> usize {
        self.bytes.len() - self.sent + self.splices_unsent
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.unsent() == 0
    }

    /// Bytes of memory behind the copied part.
    pub(crate) fn storage_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    pub(crate) fn has_storage(&self) -> bool {
        self.bytes.capacity() != 0
    }

    /// Storage for a queue that has none (so nothing copied is queued; shared pieces may be).
    pub(crate) fn give_storage(&mut self, storage: Vec<u8>) {
        debug_assert!(self.bytes.is_empty() && storage.is_empty());
        self.bytes = storage;
    }

    pub(crate) fn take_storage(&mut self) -> Vec<u8> {
        self.sent = 0;
        self.bytes.clear();
        std::mem::take(&mut self.bytes)
    }

    /// Writes until the queue is empty or the kernel takes no more. Gives the number of bytes taken; the queue is
    /// not empty afterwards exactly when the kernel is full.
    pub(crate) fn write_to(&mut self, transport: &mut Transport, then: Then, writes: &Counter) -> io::Result<usize> {
        let mut total = 0;
        while !self.is_empty() {
            writes.add(1);
            let asked;
            let taken = if self.splices.is_empty() {
                asked = self.bytes.len() - self.sent;
                transport.write(&self.bytes[self.sent..], then)
            } else {
                let (slices, count) = self.slices();
                asked = slices[..count].iter().map(|slice| slice.len()).sum();
                transport.write_vectored(&slices[..count], then)
            };
            match taken {
                Ok(taken) => {
                    self.advance(taken);
                    total += taken;
                    // A short write means a full socket buffer: the next attempt would only say EAGAIN.
                    if taken < asked {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.compact();
        Ok(total)
    }

    fn slices(&self) -> ([IoSlice<'_>; PIECES_PER_WRITE], usize) {
        let mut slices = [IoSlice::new(&[]); PIECES_PER_WRITE];
        let (mut count, mut from) = (0, self.sent);
        for splice in &self.splices {
            // Each splice may need two places, and the tail behind the last one needs one.
            if count + 3 > PIECES_PER_WRITE {
                return (slices, count);
            }
            if splice.at > from {
                slices[count] = IoSlice::new(&self.bytes[from..splice.at]);
                from = splice.at;
                count += 1;
            }
            slices[count] = IoSlice::new(&splice.piece[splice.sent..]);
            count += 1;
        }
        if from < self.bytes.len() {
            slices[count] = IoSlice::new(&self.bytes[from..]);
            count += 1;
        }
        (slices, count)
    }

    fn advance(&mut self, mut taken: usize) {
        while let Some(splice) = self.splices.front_mut() {
            let before = taken.min(splice.at - self.sent);
            self.sent += before;
            taken -= before;
            let inside = taken.min(splice.piece.len() - splice.sent);
            splice.sent += inside;
            self.splices_unsent -= inside;
            taken -= inside;
            if splice.sent < splice.piece.len() {
                return;
            }
            self.splices.pop_front();
        }
        self.sent += taken;
        debug_assert!(self.sent <= self.bytes.len());
    }

    /// Forgets what was sent. Moving happens only when at least as much was sent since, so each byte moves O(1) times.
    fn compact(&mut self) {
        if self.sent == self.bytes.len() && self.splices.is_empty() {
            self.bytes.clear();
            self.sent = 0;
        } else if self.sent >= COMPACT_BYTES_MIN && self.sent >= self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            for splice in &mut self.splices {
                splice.at -= self.sent;
            }
            self.sent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Append(usize),
        Share(usize),
        Taken(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..6000_usize).prop_map(Step::Append),
            (0..6000_usize).prop_map(Step::Share),
            (1..9000_usize).prop_map(Step::Taken),
        ];
        prop::collection::vec(step, 1..200)
    }

    /// What one `writev` would be given.
    fn offered(queue: &OutputQueue) -> Vec<u8> {
        let (slices, count) = queue.slices();
        slices[..count].iter().flat_map(|slice| slice.iter().copied()).collect()
    }

    /// Plays the kernel, which takes any part of what it is offered, and compares with a plain byte string.
    fn check_against_bytes(steps: &[Step]) {
        let (mut queue, mut model) = (OutputQueue::default(), Vec::new());
        for (number, step) in steps.iter().enumerate() {
            let fill = number as u8;
            match *step {
                Step::Append(bytes) => {
                    let all = queue.bytes.len() + bytes;
                    queue.tail().resize(all, fill);
                    model.resize(model.len() + bytes, fill);
                }
                Step::Share(bytes) => {
                    queue.push_shared(vec![fill; bytes].into());
                    model.resize(model.len() + bytes, fill);
                }
                Step::Taken(bytes) => {
                    let offered = offered(&queue);
                    assert!(model.starts_with(&offered), "at step {number}");
                    assert!(!offered.is_empty() || model.is_empty(), "nothing offered at step {number}");
                    let taken = bytes.min(offered.len());
                    queue.advance(taken);
                    queue.compact();
                    model.drain(..taken);
                }
            }
            assert_eq!(queue.unsent(), model.len());
        }
    }

    proptest! {
        #[test]
        fn bytes_leave_in_the_order_in_which_they_were_queued(steps in steps()) {
            check_against_bytes(&steps);
        }
    }
}
