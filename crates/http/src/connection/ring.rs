//! The order of a connection's replies: a ring with a slot for each request whose reply cannot be sent yet.
//!
//! ```text
//!   front (sequence 7)                                   next sequence: 10
//!   | POST, waits for its late reply | GET, composed | POST, answered |
//! ```
//!
//! The usual request has no slot: if the ring is empty, its reply goes straight into the write queue. Only replies that wait, or
//! are behind one that waits, have slots.
//!
//! Invariants: slot `i` has sequence `first + i`; `writes_unanswered` counts the slots that wait for a request that may change
//! something; `watched` those whose client is watched; `held_bytes` is the sum over the slots; a slot whose reply ends the
//! connection is the last.

use std::collections::VecDeque;

use crate::access_log::Entry;
use crate::method::RequestOrder;
use crate::metrics::latency::Measure;
use crate::presence::Watched;
use crate::reply::composer::Shape;
use crate::reply::late::Answer;
use crate::reply::part::Splices;
use crate::reply::stream::Stream;
use crate::status::Status;

/// Content of a slot.
pub(crate) enum Held {
    /// Nothing yet: the service has a late reply.
    Nothing,
    /// A late reply that was sent and waits for those before it.
    Answer(Box<Answer>),
    /// A composed reply.
    Bytes(Status, Vec<u8>),
    /// A composed reply, and pieces that go between its bytes.
    Spliced(Status, Vec<u8>, Box<Splices>),
    /// A composed head (empty once sent), and a pulled body.
    Stream(Status, Vec<u8>, Box<Stream>),
}

/// One request whose reply has not left.
pub(crate) struct Slot {
    pub(crate) shape: Shape,
    pub(crate) order: RequestOrder,
    pub(crate) held: Held,
    pub(crate) measure: Measure,
    pub(crate) log: Option<Box<Entry>>,
    /// The service watches whether the client stays, until the reply has left.
    pub(crate) watched: Option<Watched>,
}

/// Memory of a slot beside its reply's bytes: itself, an answer's or a stream's box, its small fields.
const SLOT_BYTES: usize = 320;
const _: () = assert!(size_of::<Slot>() + size_of::<Answer>() + 100 < SLOT_BYTES);

/// Slots in the order of their requests. Bound: `ClientLimits::pipelined_max`, enforced by the connection, and one more for a
/// refusal.
#[derive(Default)]
pub(crate) struct Ring {
    slots: VecDeque<Slot>,
    first: u64,
    writes_unanswered: usize,
    /// Unanswered requests whose order is [`RequestOrder::Alone`].
    alone_unanswered: usize,
    streams: usize,
    /// Slots whose requests were HTTP/1.0.
    http10: usize,
    watched: usize,
    held_bytes: usize,
}

impl Ring {
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The sequence of the next slot that is pushed.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// Whether a request that may change something waits for its answer.
    pub(crate) fn has_unanswered_write(&self) -> bool {
        self.writes_unanswered > 0
    }

    /// Whether a request that is [`RequestOrder::Alone`] waits for its answer; no other write may begin before that.
    pub(crate) fn stands_alone(&self) -> bool {
        self.alone_unanswered > 0
    }

    /// Whether a stream is being sent, or waits for its turn.
    pub(crate) fn has_stream(&self) -> bool {
        self.streams > 0
    }

    /// Whether no further request may be read: behind a stream, or behind a request of HTTP/1.0, whose reply may have an unknown length,
    /// which only closing the connection ends.
    #[inline]
    pub(crate) fn ends_reading(&self) -> bool {
        self.streams + self.http10 > 0
    }

    /// Whether a service watches the client.
    pub(crate) fn is_watched(&self) -> bool {
        self.watched > 0
    }

    /// Records that the client sends no more.
    pub(crate) fn client_ended(&self) {
        self.slots.iter().filter_map(|slot| slot.watched.as_ref()).for_each(Watched::ended);
    }

    /// Bytes of replies that wait for their turn.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        if self.slots.is_empty() { 0 } else { self.held_bytes + self.slots.len() * SLOT_BYTES }
    }

    pub(crate) fn push(&mut self, slot: Slot) {
        self.held_bytes += slot.held_bytes();
        self.writes_unanswered += usize::from(slot.waits_to_write());
        self.alone_unanswered += usize::from(slot.waits_alone());
        self.streams += usize::from(slot.is_stream());
        self.http10 += usize::from(slot.shape.http10);
        self.watched += usize::from(slot.watched.is_some());
        self.slots.push_back(slot);
    }

    /// Whether the reply of this sequence has not left.
    pub(crate) fn holds(&self, sequence: u64) -> bool {
        (self.first..self.next_sequence()).contains(&sequence)
    }

    /// Puts a late reply into its slot. `false`: no such slot waits.
    pub(crate) fn answer(&mut self, sequence: u64, answer: Box<Answer>) -> bool {
        let index = sequence.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        let Some(slot) = index.and_then(|index| self.slots.get_mut(index)) else { return false };
        if !matches!(slot.held, Held::Nothing) {
            return false;
        }
        self.writes_unanswered -= usize::from(slot.waits_to_write());
        self.alone_unanswered -= usize::from(slot.waits_alone());
        slot.held = Held::Answer(answer);
        self.held_bytes += slot.held_bytes();
        true
    }

    /// Replaces the content of the front slot, which holds an answer.
    pub(crate) fn replace_front(&mut self, held: Held) {
        if let Some(slot) = self.slots.front_mut() {
            self.held_bytes -= slot.held_bytes();
            slot.held = held;
            self.held_bytes += slot.held_bytes();
            self.streams += usize::from(slot.is_stream());
        }
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut Slot> {
        self.slots.front_mut()
    }

    pub(crate) fn back_mut(&mut self) -> Option<&mut Slot> {
        self.slots.back_mut()
    }

    pub(crate) fn pop(&mut self) -> Option<Slot> {
        let slot = self.slots.pop_front()?;
        self.first += 1;
        self.held_bytes -= slot.held_bytes();
        self.writes_unanswered -= usize::from(slot.waits_to_write());
        self.alone_unanswered -= usize::from(slot.waits_alone());
        self.streams -= usize::from(slot.is_stream());
        self.http10 -= usize::from(slot.shape.http10);
        self.watched -= usize::from(slot.watched.is_some());
        Some(slot)
    }
}

impl Slot {
    fn waits_to_write(&self) -> bool {
        self.order != RequestOrder::Read && matches!(self.held, Held::Nothing)
    }

    fn waits_alone(&self) -> bool {
        self.order == RequestOrder::Alone && matches!(self.held, Held::Nothing)
    }

    /// A stream's head is not counted: it is sent by itself, before the slot is popped.
    fn held_bytes(&self) -> usize {
        match &self.held {
            Held::Nothing | Held::Stream(..) => 0,
            Held::Answer(answer) => answer.body.len(),
            Held::Bytes(_, bytes) | Held::Spliced(_, bytes, _) => bytes.len(),
        }
    }

    fn is_stream(&self) -> bool {
        matches!(self.held, Held::Stream(..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::latency::Series;

    fn slot(order: RequestOrder) -> Slot {
        let shape = Shape { http10: false, persistent: true, head_only: false };
        let measure = Measure { began_ns: 0, method: None, series: Series::OTHER };
        Slot { shape, order, held: Held::Nothing, measure, log: None, watched: None }
    }

    fn answer() -> Box<Answer> {
        Box::new(Answer {
            status: Status(200),
            json: true,
            fields: Vec::new(),
            body: Vec::new(),
            pieces: None,
            source: None,
            _charge: None,
        })
    }

    #[test]
    fn an_answer_finds_its_slot_once_and_a_stale_one_finds_none() {
        let mut ring = Ring::default();
        ring.push(slot(RequestOrder::Write));
        ring.push(slot(RequestOrder::Read));
        assert!(ring.answer(1, answer()));
        assert!(!ring.answer(1, answer()));
        assert!(ring.has_unanswered_write());
        assert!(ring.answer(0, answer()));
        assert!(!ring.has_unanswered_write());
        ring.pop();
        assert_eq!(ring.next_sequence(), 2);
        assert!(!ring.answer(0, answer()));
        assert!(!ring.answer(7, answer()));
    }
}
