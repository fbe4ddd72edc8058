//! The replies that a client waits for, in the order of its commands.
//!
//! The reply at the head is copied to the client's output while it arrives. Replies that arrive too early are kept. The replies
//! of one node arrive in the order of their commands, so each node has one run of kept bytes, and each place in the queue counts
//! its bytes of the run:
//!
//! ```text
//!  places    | 1: awaited | 2: node B, 5 bytes | 3: node B, 7 bytes | 4: whole | …
//!  node B    | 5 bytes of 2 | 7 bytes of 3 |
//! ```
//!
//! A joined reply, or one of the proxy itself, is kept as a whole. Runs take their storage from the loop's pool and return it
//! when they are empty, so a client that waits for nothing holds no memory.

use std::collections::VecDeque;

use resp::codec::{ProtocolVersion, ReplyWriter};

/// Source of a reply that becomes available as a whole: the proxy itself, or several nodes.
pub(crate) const WHOLE: u16 = u16::MAX;
/// Largest number of spare buffers of a loop.
const POOL_BUFFERS_MAX: usize = 256;
/// A larger buffer is returned to the allocator.
const POOL_BUFFER_BYTES_MAX: usize = 64 << 10;

/// Reused storage for kept replies.
#[derive(Default)]
pub(crate) struct BufferPool(Vec<Vec<u8>>);

impl BufferPool {
    fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_default()
    }

    fn give(&mut self, mut buffer: Vec<u8>) {
        if self.0.len() < POOL_BUFFERS_MAX && buffer.capacity() <= POOL_BUFFER_BYTES_MAX {
            buffer.clear();
            self.0.push(buffer);
        }
    }
}

/// One expected reply.
struct Place {
    /// The node whose run has its kept bytes, or [`WHOLE`].
    source: u16,
    is_complete: bool,
    /// Number of its bytes that are kept in the node's run.
    kept_bytes: usize,
    whole: Option<Box<[u8]>>,
}

/// Kept bytes of one node.
#[derive(Default)]
struct Run {
    bytes: Vec<u8>,
    /// Bytes at the front that were passed on.
    passed: usize,
}

/// See the module.
#[derive(Default)]
pub(crate) struct ReplyQueue {
    places: VecDeque<Place>,
    /// Number of the place at the head; numbers wrap around.
    head: u32,
    /// Whether some of the head's bytes were passed on.
    head_has_begun: bool,
    /// Indexed by node.
    runs: Vec<Run>,
    kept_bytes: usize,
}

impl ReplyQueue {
    /// Number of expected replies.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Bytes that wait for earlier replies.
    #[inline]
    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Adds a reply that `source` will deliver, and returns its number.
    #[inline]
    pub(crate) fn push(&mut self, source: u16) -> u32 {
        let number = self.head.wrapping_add(self.places.len() as u32);
        self.places.push_back(Place { source, is_complete: false, kept_bytes: 0, whole: None });
        number
    }

    /// Number of the next reply.
    pub(crate) fn head(&self) -> u32 {
        self.head
    }

    /// Whether this reply is next.
    #[inline]
    pub(crate) fn is_head(&self, number: u32) -> bool {
        number == self.head
    }

    /// Whether a part of the reply at the head was passed on: no other bytes may follow it.
    pub(crate) fn head_has_begun(&self) -> bool {
        self.head_has_begun
    }

    /// Passes on bytes of the reply at the head; after its last byte also the kept replies that follow it.
    #[inline]
    pub(crate) fn forward(&mut self, bytes: &[u8], is_complete: bool, output: &mut Vec<u8>, pool: &mut BufferPool) {
        output.extend_from_slice(bytes);
        self.head_has_begun = true;
        if is_complete {
            self.pop();
            self.release(output, pool);
        }
    }

    /// Keeps bytes of a reply that is not next.
    pub(crate) fn keep(&mut self, number: u32, bytes: &[u8], is_complete: bool, pool: &mut BufferPool) {
        let place = &mut self.places[number.wrapping_sub(self.head) as usize];
        place.kept_bytes += bytes.len();
        place.is_complete = is_complete;
        self.kept_bytes += bytes.len();
        let source = usize::from(place.source);
        if self.runs.len() <= source {
            self.runs.resize_with(source + 1, Run::default);
        }
        let run = &mut self.runs[source];
        if run.bytes.capacity() == 0 {
            run.bytes = pool.take();
        } else if run.passed > run.bytes.len() / 2 {
            run.bytes.drain(..run.passed);
            run.passed = 0;
        }
        run.bytes.extend_from_slice(bytes);
    }

    /// Answers a command with a complete reply, which replaces any kept bytes.
    pub(crate) fn answer(&mut self, number: u32, reply: &[u8], output: &mut Vec<u8>, pool: &mut BufferPool) {
        if self.is_head(number) {
            return self.forward(reply, true, output, pool);
        }
        self.keep_whole(number, reply.to_vec());
    }

    /// The same for a reply that is not next.
    pub(crate) fn keep_whole(&mut self, number: u32, reply: Vec<u8>) {
        let place = &mut self.places[number.wrapping_sub(self.head) as usize];
        if place.kept_bytes > 0 {
            // They are the last bytes of the run.
            let run = &mut self.runs[usize::from(place.source)];
            run.bytes.truncate(run.bytes.len() - place.kept_bytes);
            self.kept_bytes -= place.kept_bytes;
        }
        self.kept_bytes += reply.len();
        *place = Place { source: WHOLE, is_complete: true, kept_bytes: 0, whole: Some(reply.into_boxed_slice()) };
    }

    #[inline]
    fn pop(&mut self) {
        self.places.pop_front();
        self.head = self.head.wrapping_add(1);
        self.head_has_begun = false;
    }

    /// Passes on the bytes kept for the head, and continues while heads are complete.
    #[inline]
    fn release(&mut self, output: &mut Vec<u8>, pool: &mut BufferPool) {
        while let Some(place) = self.places.front_mut() {
            if let Some(whole) = place.whole.take() {
                output.extend_from_slice(&whole);
                self.kept_bytes -= whole.len();
            } else if place.kept_bytes > 0 {
                let bytes = std::mem::take(&mut place.kept_bytes);
                self.runs[usize::from(place.source)].pass_on(bytes, output, pool);
                self.kept_bytes -= bytes;
                self.head_has_begun = true;
            }
            if !place.is_complete {
                return;
            }
            self.pop();
        }
    }
}

impl Run {
    fn pass_on(&mut self, bytes: usize, output: &mut Vec<u8>, pool: &mut BufferPool) {
        let end = self.passed + bytes;
        output.extend_from_slice(&self.bytes[self.passed..end]);
        self.passed = end;
        if end == self.bytes.len() {
            pool.give(std::mem::take(&mut self.bytes));
            self.passed = 0;
        }
    }
}

/// Encodes a reply of the proxy.
pub(crate) fn written(version: ProtocolVersion, write: impl FnOnce(&mut ReplyWriter<'_>)) -> Vec<u8> {
    let mut reply = Vec::new();
    write(&mut ReplyWriter::new(&mut reply, version));
    reply
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_error_takes_the_place_of_half_a_reply() {
        let (mut queue, mut output, mut pool) = (ReplyQueue::default(), Vec::new(), BufferPool::default());
        let numbers = [queue.push(0), queue.push(1), queue.push(1)];
        queue.keep(numbers[1], b"+one\r\n", true, &mut pool);
        queue.keep(numbers[2], b"+tw", false, &mut pool);
        queue.answer(numbers[2], b"-ERR\r\n", &mut output, &mut pool);
        assert_eq!((output.len(), queue.kept_bytes()), (0, 12));
        queue.forward(b"+zero\r\n", true, &mut output, &mut pool);
        assert_eq!(output, b"+zero\r\n+one\r\n-ERR\r\n");
        assert!(queue.len() == 0 && queue.kept_bytes() == 0);
    }

    proptest! {
        /// Commands of several nodes, whose replies arrive in pieces: in order for each node, the nodes in any order.
        #[test]
        fn replies_leave_in_the_order_of_their_commands(
            sources in prop::collection::vec((0..4_u16, 1..20_usize), 1..60),
            turns in prop::collection::vec((0..4_usize, 1..30_usize), 0..400),
        ) {
            let (mut queue, mut output, mut pool) = (ReplyQueue::default(), Vec::new(), BufferPool::default());
            let mut to_come: Vec<VecDeque<(u32, Vec<u8>)>> = vec![VecDeque::new(); 4];
            let mut expected = Vec::new();
            for (at, (source, bytes)) in sources.iter().enumerate() {
                let reply = vec![at as u8; *bytes];
                expected.extend_from_slice(&reply);
                let number = queue.push(*source);
                to_come[usize::from(*source)].push_back((number, reply));
            }
            let rest = (0..4).cycle().map(|node| (node, 7)).take(4 * 60 * 3);
            for (node, bytes) in turns.into_iter().chain(rest) {
                let Some((number, reply)) = to_come[node].front_mut() else { continue };
                let bytes = bytes.min(reply.len());
                let piece: Vec<u8> = reply.drain(..bytes).collect();
                let is_complete = reply.is_empty();
                if queue.is_head(*number) {
                    queue.forward(&piece, is_complete, &mut output, &mut pool);
                } else {
                    queue.keep(*number, &piece, is_complete, &mut pool);
                }
                if is_complete {
                    to_come[node].pop_front();
                }
            }
            prop_assert_eq!(output, expected);
            prop_assert!(queue.len() == 0 && queue.kept_bytes() == 0);
        }
    }
}
