//! Write queue of one connection: copied bytes, with pieces between them that are not copied.
//!
//! ```text
//!  bytes   | sent | head of a reply |            head of the next ... |
//!                                   ^ splices[0].at
//!  splices                          memory of another owner, or a range of a file
//! ```
//!
//! The copied bytes of all replies stand in one `Vec`; a piece records the index of the byte before which it goes. So the usual
//! queue is one slice and one `send`; `writev` is for queues with pieces in memory, `sendfile` for files. The bytes before a file
//! are sent with MSG_MORE, so that a head and its file begin in one segment.
//!
//! A turn sends at most [`FILE_BYTES_PER_TURN`] of files: a file that is not in the page cache is read from disk meanwhile, and
//! the loop's other connections wait for that.
//!
//! Invariants: `sent <= bytes.len()`; splices ascend in `at`, and none has `at < sent`.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use crate::connection::piece::Piece;
use crate::connection::socket::Then;
use crate::connection::transport::Transport;
use crate::metrics::Counter;

/// Slices passed to one `writev`; the kernel takes 1024 at most, and 64 already fill a socket's buffer.
const PIECES_PER_WRITE: usize = 64;
/// Sent bytes at the front of the queue are removed once they are this many and half of all.
const COMPACT_BYTES_MIN: usize = 4096;
/// Bytes of files that a connection sends in one turn.
const FILE_BYTES_PER_TURN: usize = 512 << 10;

struct Splice {
    /// Goes out before `bytes[at]`.
    at: usize,
    piece: Piece,
    sent: usize,
}

impl Splice {
    fn unsent(&self) -> usize {
        self.piece.len() - self.sent
    }

    /// The unsent rest of a piece in memory; `None` for a file.
    fn memory(&self) -> Option<&[u8]> {
        match &self.piece {
            Piece::Shared(bytes) => bytes.get(self.sent..),
            Piece::Static(bytes) => bytes.get(self.sent..),
            Piece::File(_) => None,
        }
    }
}

/// Arguments of one `writev`.
struct Gathered<'q> {
    slices: [IoSlice<'q>; PIECES_PER_WRITE],
    count: usize,
    /// A file's bytes come next.
    file_follows: bool,
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

    /// Queues a piece behind all appended bytes.
    pub(crate) fn push(&mut self, piece: Piece) {
        self.splice(self.bytes.len(), piece);
    }

    /// Queues a piece before byte `at` of the tail, which was appended since the last piece.
    pub(crate) fn splice(&mut self, at: usize, piece: Piece) {
        let last = self.splices.back().map_or(self.sent, |splice| splice.at);
        debug_assert!((last..=self.bytes.len()).contains(&at), "pieces are queued in their order");
        if !piece.is_empty() {
            self.splices_unsent += piece.len();
            self.splices.push_back(Splice { at: at.clamp(last, self.bytes.len()), piece, sent: 0 });
        }
    }

    pub(crate) fn unsent(&self) -> usize {
        self.bytes.len() - self.sent + self.splices_unsent
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.unsent() == 0
    }

    /// Bytes allocated for the copied part.
    pub(crate) fn storage_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    pub(crate) fn has_storage(&self) -> bool {
        self.bytes.capacity() != 0
    }

    /// Gives storage to a queue that has none (so no copied bytes are queued; pieces may be).
    pub(crate) fn give_storage(&mut self, storage: Vec<u8>) {
        debug_assert!(self.bytes.is_empty() && storage.is_empty());
        self.bytes = storage;
    }

    pub(crate) fn take_storage(&mut self) -> Vec<u8> {
        self.sent = 0;
        self.bytes.clear();
        std::mem::take(&mut self.bytes)
    }

    /// Writes until the queue is empty, the kernel takes no more, or the turn's limit of file bytes is reached. Returns the
    /// number of bytes taken. If the queue is not empty afterwards and the transport is still writable, the next turn continues.
    pub(crate) fn write_to(&mut self, transport: &mut Transport, then: Then, writes: &Counter) -> io::Result<usize> {
        let (mut total, mut file_bytes_left) = (0, FILE_BYTES_PER_TURN);
        while !self.is_empty() && file_bytes_left > 0 {
            writes.add(1);
            let asked;
            let taken = if self.splices.is_empty() {
                asked = self.bytes.len() - self.sent;
                transport.write(&self.bytes[self.sent..], then)
            } else if self.is_file_next() {
                // A sendfile may be short for other reasons too: only after EAGAIN will there be an event.
                asked = 0;
                self.send_file(transport, &mut file_bytes_left)
            } else {
                let Gathered { slices, count, file_follows } = self.gather();
                asked = slices[..count].iter().map(|slice| slice.len()).sum();
                transport.write_vectored(&slices[..count], if file_follows { Then::More } else { then })
            };
            match taken {
                Ok(taken) => {
                    self.advance(taken);
                    total += taken;
                    // A short write means a full socket buffer: another attempt would only return EAGAIN.
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

    fn is_file_next(&self) -> bool {
        let next = self.splices.front().filter(|splice| splice.at == self.sent);
        next.is_some_and(|splice| matches!(splice.piece, Piece::File(_)))
    }

    /// Sends a part of the file at the front.
    fn send_file(&self, transport: &mut Transport, bytes_left: &mut usize) -> io::Result<usize> {
        let Some(splice) = self.splices.front() else { return Ok(0) };
        let Piece::File(range) = &splice.piece else { return Ok(0) };
        let bytes = splice.unsent().min(*bytes_left);
        let taken = transport.send_file(range.file(), range.offset(splice.sent), bytes)?;
        if taken == 0 {
            let what = "a file became shorter while it was being sent: its reply cannot be completed";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        *bytes_left -= taken.min(*bytes_left);
        Ok(taken)
    }

    fn gather(&self) -> Gathered<'_> {
        let mut gathered = Gathered { slices: [IoSlice::new(&[]); PIECES_PER_WRITE], count: 0, file_follows: false };
        let Gathered { slices, count, file_follows } = &mut gathered;
        let mut from = self.sent;
        for splice in &self.splices {
            // Each splice may need two slices, and the bytes behind the last one need one.
            if *count + 3 > PIECES_PER_WRITE {
                return gathered;
            }
            if splice.at > from {
                slices[*count] = IoSlice::new(&self.bytes[from..splice.at]);
                from = splice.at;
                *count += 1;
            }
            let Some(memory) = splice.memory() else {
                *file_follows = true;
                return gathered;
            };
            slices[*count] = IoSlice::new(memory);
            *count += 1;
        }
        if from < self.bytes.len() {
            slices[*count] = IoSlice::new(&self.bytes[from..]);
            *count += 1;
        }
        gathered
    }

    fn advance(&mut self, mut taken: usize) {
        while let Some(splice) = self.splices.front_mut() {
            let before = taken.min(splice.at - self.sent);
            self.sent += before;
            taken -= before;
            let inside = taken.min(splice.unsent());
            splice.sent += inside;
            self.splices_unsent -= inside;
            taken -= inside;
            if splice.unsent() > 0 {
                return;
            }
            self.splices.pop_front();
        }
        self.sent += taken;
        debug_assert!(self.sent <= self.bytes.len());
    }

    /// Drops sent bytes. Bytes move only if at least as many were sent since the last move, so each byte moves O(1) times.
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
    use std::io::Write;
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::connection::piece::FileRange;

    #[derive(Clone, Debug)]
    enum Step {
        Append(usize),
        Share(usize),
        /// A range of the test's file, from an offset on.
        File(u64, usize),
        Taken(usize),
    }

    const FILE_BYTES: usize = 8000;

    fn file_byte(offset: usize) -> u8 {
        (offset % 251) as u8
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..6000_usize).prop_map(Step::Append),
            (0..6000_usize).prop_map(Step::Share),
            (0..2000_u64, 0..6000_usize).prop_map(|(from, bytes)| Step::File(from, bytes)),
            (1..9000_usize).prop_map(Step::Taken),
        ];
        prop::collection::vec(step, 1..200)
    }

    /// The bytes that the next `writev` or `sendfile` would be given.
    fn offered(queue: &OutputQueue) -> Vec<u8> {
        if queue.is_file_next() {
            let Some(Splice { piece: Piece::File(range), sent, .. }) = queue.splices.front() else { panic!("no file") };
            let mut bytes = vec![0; queue.splices[0].unsent()];
            range.file().read_exact_at(&mut bytes, range.offset(*sent)).unwrap();
            return bytes;
        }
        let Gathered { slices, count, file_follows } = queue.gather();
        assert!(!file_follows || queue.splices.iter().any(|splice| splice.memory().is_none()));
        slices[..count].iter().flat_map(|slice| slice.iter().copied()).collect()
    }

    /// Plays the kernel, which takes any part of the offered bytes, and compares with a plain byte string.
    fn check_against_bytes(steps: &[Step]) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&(0..FILE_BYTES).map(file_byte).collect::<Vec<u8>>()).unwrap();
        let file = Arc::new(file);
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
                    queue.push(Piece::Shared(vec![fill; bytes].into()));
                    model.resize(model.len() + bytes, fill);
                }
                Step::File(from, bytes) => {
                    queue.push(Piece::File(FileRange::new(Arc::clone(&file), from, bytes)));
                    model.extend((from as usize..).take(bytes).map(file_byte));
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
