//! Hashed timer wheel: one coarse deadline for each connection slot.
//!
//! A wheel of `SPOKES` lists, one for each 10 ms; a deadline is on the list `tick % SPOKES`. Entries are nodes of an array
//! indexed by slot and linked both ways, so that scheduling, moving and cancelling are O(1) and never allocate once the array has
//! grown, and a slot has one entry at most. A deadline further away than one turn of the wheel (82 s) stays on its spoke and is
//! checked once a turn: cheaper than the cascades of a hierarchical wheel for deadlines that are nearly all under a minute and a
//! half.
//!
//! The wheel is changed rarely: a connection that postpones its deadline on every request leaves the entry where it is, and the
//! loop schedules it again when the entry fires (see `turn`).
//!
//! Invariants:
//!
//! - A node is on exactly one spoke while `tick != 0`, on none otherwise.
//! - Bit `s` of `occupied` is set exactly while spoke `s` is not empty.
//! - No entry is due before `next`.

/// Length of a tick.
pub(crate) const TICK_NS: u64 = 10_000_000;
const SPOKES: usize = 8192;
const WORDS: usize = SPOKES / 64;
const NONE: u32 = u32::MAX;
const _: () = assert!(SPOKES.is_power_of_two() && SPOKES >= 64);

#[derive(Clone, Copy)]
struct Node {
    /// When it is due; 0 while not on the wheel.
    tick: u64,
    next: u32,
    /// `NONE` for the first of its spoke.
    previous: u32,
}

const LOOSE: Node = Node { tick: 0, next: NONE, previous: NONE };

/// Deadlines of slots, in ticks since the clock's zero.
pub(crate) struct Wheel {
    heads: Box<[u32]>,
    occupied: Box<[u64]>,
    nodes: Vec<Node>,
    /// Every tick up to this one was handled.
    cursor: u64,
    /// No entry is due before this; `u64::MAX` if there is none.
    next: u64,
}

/// The first tick at which `at_ns` has passed.
pub(crate) fn tick_after(at_ns: u64) -> u64 {
    at_ns.div_ceil(TICK_NS).max(1)
}

fn spoke_of(tick: u64) -> usize {
    tick as usize & (SPOKES - 1)
}

impl Wheel {
    pub(crate) fn new(now_ns: u64) -> Self {
        Self {
            heads: vec![NONE; SPOKES].into_boxed_slice(),
            occupied: vec![0; WORDS].into_boxed_slice(),
            nodes: Vec::new(),
            cursor: now_ns / TICK_NS,
            next: u64::MAX,
        }
    }

    /// When [`Wheel::advance`] has work, in nanoseconds; `u64::MAX`: never.
    pub(crate) fn next_ns(&self) -> u64 {
        self.next.saturating_mul(TICK_NS)
    }

    /// Puts `slot` on the wheel, or moves it. A tick in the past fires at the next advance.
    pub(crate) fn schedule(&mut self, slot: u32, tick: u64) {
        self.cancel(slot);
        if self.nodes.len() <= slot as usize {
            self.nodes.resize(slot as usize + 1, LOOSE);
        }
        let tick = tick.max(self.cursor + 1);
        let spoke = spoke_of(tick);
        let head = std::mem::replace(&mut self.heads[spoke], slot);
        if head != NONE {
            self.nodes[head as usize].previous = slot;
        }
        self.nodes[slot as usize] = Node { tick, next: head, previous: NONE };
        self.occupied[spoke / 64] |= 1 << (spoke % 64);
        self.next = self.next.min(tick);
    }

    /// Removes `slot` from the wheel; no effect if it is not on it.
    pub(crate) fn cancel(&mut self, slot: u32) {
        let Some(node) = self.nodes.get_mut(slot as usize) else { return };
        let was = std::mem::replace(node, LOOSE);
        if was.tick == 0 {
            return;
        }
        let spoke = spoke_of(was.tick);
        if was.previous == NONE {
            self.heads[spoke] = was.next;
            if was.next == NONE {
                self.occupied[spoke / 64] &= !(1 << (spoke % 64));
            }
        } else {
            self.nodes[was.previous as usize].next = was.next;
        }
        if was.next != NONE {
            self.nodes[was.next as usize].previous = was.previous;
        }
    }

    /// Advances to `now_ns` and moves every slot that is due into `due`.
    pub(crate) fn advance(&mut self, now_ns: u64, due: &mut Vec<u32>) {
        let now = now_ns / TICK_NS;
        if now < self.next {
            // No entry is on the ticks in between, but the cursor must not fall behind by a whole turn.
            self.cursor = self.cursor.max(now);
            return;
        }
        let last = now.min(self.cursor + SPOKES as u64);
        let mut tick = self.cursor + 1;
        while let Some(found) = self.occupied_from(tick).filter(|found| *found <= last) {
            self.take_due(spoke_of(found), now, due);
            tick = found + 1;
            if tick > last {
                break;
            }
        }
        self.cursor = now;
        self.next = self.occupied_from(now + 1).unwrap_or(u64::MAX);
    }

    fn take_due(&mut self, spoke: usize, now: u64, due: &mut Vec<u32>) {
        let mut slot = self.heads[spoke];
        while slot != NONE {
            let node = self.nodes[slot as usize];
            if node.tick <= now {
                self.cancel(slot);
                due.push(slot);
            }
            slot = node.next;
        }
    }

    /// The first tick from `from` on, within one turn, whose spoke is occupied.
    fn occupied_from(&self, from: u64) -> Option<u64> {
        let spoke = spoke_of(from);
        let first = self.occupied[spoke / 64] >> (spoke % 64);
        if first != 0 {
            return Some(from + u64::from(first.trailing_zeros()));
        }
        let to_word_end = 64 - (spoke % 64) as u64;
        (0..WORDS).find_map(|step| {
            let word = self.occupied[(spoke / 64 + 1 + step) % WORDS];
            (word != 0).then(|| from + to_word_end + step as u64 * 64 + u64::from(word.trailing_zeros()))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const SLOTS: u32 = 40;

    #[derive(Clone, Debug)]
    enum Step {
        Schedule { slot: u32, in_ticks: u64 },
        Cancel { slot: u32 },
        Advance { ticks: u64 },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        // Distances on both sides of a word, of the wheel's turn, and of several turns.
        let distance = prop_oneof![0..70_u64, 8100..8300_u64, 16_300..24_700_u64];
        let step = prop_oneof![
            4 => (0..SLOTS, distance.clone()).prop_map(|(slot, in_ticks)| Step::Schedule { slot, in_ticks }),
            1 => (0..SLOTS).prop_map(|slot| Step::Cancel { slot }),
            2 => distance.prop_map(|ticks| Step::Advance { ticks }),
        ];
        prop::collection::vec(step, 1..120)
    }

    /// Runs the steps on the wheel and on a plain map: the same slots must be due at the same advances, and the wheel must never
    /// sleep past one.
    fn check_against_map(steps: &[Step], begin_tick: u64) {
        let mut now = begin_tick;
        let mut wheel = Wheel::new(now * TICK_NS);
        let mut model: BTreeMap<u32, u64> = BTreeMap::new();
        for step in steps {
            match *step {
                Step::Schedule { slot, in_ticks } => {
                    wheel.schedule(slot, now + in_ticks);
                    // A deadline in the past is due at the next tick that the wheel handles.
                    model.insert(slot, (now + in_ticks).max(wheel.cursor + 1));
                }
                Step::Cancel { slot } => {
                    wheel.cancel(slot);
                    model.remove(&slot);
                }
                Step::Advance { ticks } => now += ticks,
            }
            if let Some(first) = model.values().min() {
                assert!(wheel.next_ns() <= first * TICK_NS, "the wheel would sleep past tick {first}");
            }
            let mut due = Vec::new();
            wheel.advance(now * TICK_NS + 1, &mut due);
            due.sort_unstable();
            let expected: Vec<u32> = model.iter().filter(|(_, tick)| **tick <= now).map(|(slot, _)| *slot).collect();
            assert_eq!(due, expected, "after {step:?} at tick {now}");
            model.retain(|_, tick| *tick > now);
        }
    }

    proptest! {
        #[test]
        fn slots_fall_due_as_in_a_plain_map(steps in steps(), begin_tick in 0..20_000_u64) {
            check_against_map(&steps, begin_tick);
        }
    }

    #[test]
    fn an_empty_wheel_never_wakes() {
        let mut wheel = Wheel::new(5 * TICK_NS);
        assert_eq!(wheel.next_ns(), u64::MAX);
        wheel.schedule(3, 9);
        wheel.advance(9 * TICK_NS, &mut Vec::new());
        assert_eq!(wheel.next_ns(), u64::MAX);
    }

    #[test]
    fn a_moment_is_rounded_up_to_a_tick() {
        assert_eq!([1, TICK_NS - 1, TICK_NS, TICK_NS + 1].map(tick_after), [1, 1, 1, 2]);
    }
}
