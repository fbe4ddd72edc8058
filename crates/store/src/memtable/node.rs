//! Node of the ordered index: sorted key heads, with the references that they lead to.
//!
//! A head is eight bytes of a key after the node's prefix, big-endian: most comparisons end there, without reading the
//! key. The prefix is common to all keys between the node's fences, so it is not compared.
//!
//! ```text
//!  0     4      8     12                        16         336        496   512
//!  +-----+------+-----+-------------------------+----------+----------+------+
//!  | seq | next | low | count, level, prefix    | heads    | places   | none |
//!  | u32 | u32  | u32 | u8, u8, u16             | u64 x 40 | u32 x 40 |      |
//!  +-----+------+-----+-------------------------+----------+----------+------+
//! ```
//!
//! Invariants:
//!
//! - `low`, the least key that belongs here (none: no bound), and `level` never change once the node is reachable. The
//!   upper bound is the `low` of `next`, the right neighbour on the same level.
//! - Level 0 is a leaf, whose places are keys. Higher levels are branches, whose places are nodes of the level below; an
//!   entry's key is that node's `low`, and entry 0's head is 0.
//! - Entries ascend strictly. They only move right, when the node splits; nodes are never merged or freed.
//! - `seq` is odd while the writer changes the node. Everything is atomic: a reader during a change reads a mixture
//!   in which every part is valid by itself, detects the change by `seq`, and reads again.

#![allow(unsafe_code)] // By the level a place is a key's or a node's; converting its bits back is unsafe. So is `Lined`.

use super::arena::{Arena, AtomicRef, KeyKind, KeyRef, Lined, Ref};
use crate::base;
use crate::base::head::common_prefix;
use crate::base::limits::KEY_BYTES_MAX;
use crate::base::prefetch::prefetch_line;
use crate::base::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use crate::base::sync::{spin_loop, thread};

/// Entries of a node: 496 bytes with the header, in eight cache lines.
pub(super) const NODE_ENTRIES: usize = 5 * GROUP_ENTRIES;
/// Entries that a search compares together.
const GROUP_ENTRIES: usize = 8;
/// Checks of an odd `seq` before the reader yields its processor: the writer may have been preempted.
const SPINS_MAX: u32 = 128;

const _: () = assert!(size_of::<Node>() == 512 && NODE_ENTRIES <= u8::MAX as usize);
/// The shape has 16 bits for the length of the prefix that heads skip.
const _: () = assert!(KEY_BYTES_MAX <= u16::MAX as usize);

/// One node. Zeroed memory is an empty leaf without bounds.
#[repr(C, align(64))]
pub(super) struct Node {
    seq: AtomicU32,
    next: AtomicRef<Node>,
    low: AtomicRef<KeyKind>,
    shape: AtomicU32,
    heads: [AtomicU64; NODE_ENTRIES],
    places: [AtomicU32; NODE_ENTRIES],
}

/// Reference to a node.
pub(super) type NodeRef = Ref<Node>;

// SAFETY: it consists of atomics; a zeroed node is an empty leaf.
unsafe impl Lined for Node {}

/// Count, level and prefix length of a node, read at once.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// Entries.
    pub(super) count: usize,
    /// Height above the leaves.
    pub(super) level: u32,
    /// Length of the prefix common to all keys between the fences.
    pub(super) prefix: usize,
}

/// Which entries a search skips.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Past {
    /// Entries below the key: the search ends at the first one not below it.
    Less,
    /// Also the key itself.
    LessOrEqual,
}

/// A reader met a concurrent change; what it read must be discarded.
#[derive(Debug)]
pub(super) struct Torn;

/// The head of a key after the prefix.
fn head(key: &[u8], prefix: usize) -> u64 {
    base::head::head(key.get(prefix..).unwrap_or_default())
}

impl Node {
    // Reading.

    /// Waits until no change is in progress; data read after that is valid if [`Node::unchanged`] then returns true.
    #[inline]
    pub(super) fn begin(&self) -> u32 {
        let mut spins = 0;
        loop {
            let seq = self.seq.load(Ordering::Acquire);
            if seq.is_multiple_of(2) {
                return seq;
            }
            spins += 1;
            if spins < SPINS_MAX { spin_loop() } else { thread::yield_now() }
        }
    }

    /// True if nothing has changed since `begin` returned `seq`.
    #[inline]
    pub(super) fn unchanged(&self, seq: u32) -> bool {
        // The fence keeps the reads above from moving below the second load of `seq`.
        fence(Ordering::Acquire);
        self.seq.load(Ordering::Relaxed) == seq
    }

    #[inline]
    pub(super) fn shape(&self) -> Shape {
        let bits = self.shape.load(Ordering::Relaxed);
        Shape {
            count: (bits & 0xff).min(NODE_ENTRIES as u32) as usize,
            level: bits >> 8 & 0xff,
            prefix: (bits >> 16) as usize,
        }
    }

    /// The right neighbour.
    #[inline]
    pub(super) fn next(&self) -> Option<NodeRef> {
        self.next.load()
    }

    /// The least key that belongs here.
    #[inline]
    pub(super) fn low(&self) -> Option<KeyRef> {
        self.low.load()
    }

    /// The key of entry `at` of a leaf.
    pub(super) fn key(&self, at: usize) -> Option<KeyRef> {
        let bits = self.places[at].load(Ordering::Acquire);
        // SAFETY: the level never changes while others can reach the node, and `put` and `split_off` store bits of
        // references to keys into nodes of level 0, with release; otherwise they are 0.
        (self.shape().level == 0).then(|| unsafe { Ref::from_bits(bits) })?
    }

    /// Copies the keys `from..to` of a leaf, each to its own number; returns the number of all.
    pub(super) fn copy_keys(&self, (from, to): (usize, usize), into: &mut [Option<KeyRef>; NODE_ENTRIES]) -> usize {
        let shape = self.shape();
        let count = if shape.level == 0 { shape.count } else { 0 };
        let to = to.min(count);
        let wanted = from.min(to)..to;
        for (key, place) in into[wanted.clone()].iter_mut().zip(&self.places[wanted]) {
            // SAFETY: as in `key`: the node is a leaf.
            *key = unsafe { Ref::from_bits(place.load(Ordering::Acquire)) };
        }
        count
    }

    /// The node of entry `at` of a branch.
    #[inline]
    pub(super) fn child(&self, at: usize) -> Option<NodeRef> {
        let bits = self.places[at].load(Ordering::Acquire);
        // SAFETY: as in `key`: places of nodes above level 0 are references to nodes.
        (self.shape().level > 0).then(|| unsafe { Ref::from_bits(bits) })?
    }

    /// The key by which entry `at` is ordered.
    fn entry_key<'a>(&self, arena: &'a Arena, shape: Shape, at: usize) -> Result<&'a [u8], Torn> {
        let key = if shape.level == 0 { self.key(at) } else { arena.get(self.child(at).ok_or(Torn)?).low() };
        Ok(arena.key(key.ok_or(Torn)?).bytes)
    }

    /// The first of the entries `from..count` that the search does not skip.
    pub(super) fn search(&self, arena: &Arena, from: usize, key: &[u8], past: Past) -> Result<usize, Torn> {
        let shape = self.shape();
        let wanted = head(key, shape.prefix);
        let first = self.first_head(from, shape.count, |head| head < wanted);
        if first >= shape.count || self.heads[first].load(Ordering::Relaxed) != wanted {
            return Ok(first);
        }
        // Equal heads: only the keys themselves decide.
        let mut low = first;
        let mut high = self.first_head(first, shape.count, |head| head <= wanted);
        while low < high {
            let middle = (low + high) / 2;
            let entry = self.entry_key(arena, shape, middle)?;
            if entry < key || (past == Past::LessOrEqual && entry == key) { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    /// The first of the entries `from..count` whose head is not below.
    ///
    /// The last heads of the groups determine the group, then the group's heads determine the entry: two rounds of
    /// independent loads without branches. A binary search has six dependent loads, and mispredicts every other branch.
    #[inline]
    fn first_head(&self, from: usize, count: usize, below: impl Fn(u64) -> bool) -> usize {
        let (groups, _) = self.heads.as_chunks::<GROUP_ENTRIES>();
        let passed =
            |at: usize, head: &AtomicU64| usize::from(at < count) & usize::from(below(head.load(Ordering::Relaxed)));
        let last = GROUP_ENTRIES - 1;
        let group: usize =
            (0..groups.len() - 1).map(|group| passed(group * GROUP_ENTRIES + last, &groups[group][last])).sum();
        let start = group * GROUP_ENTRIES;
        let inside: usize = groups[group].iter().enumerate().map(|(at, head)| passed(start + at, head)).sum();
        (start + inside).max(from)
    }

    /// Prefetches the lines that a search reads.
    pub(super) fn prefetch(&self) {
        let at = (&raw const *self).cast::<u8>();
        for line in 0..6 {
            prefetch_line(at.wrapping_add(line * 64));
        }
    }

    // Writing: the memtable's one writer only.

    fn set_shape(&self, shape: Shape) {
        let bits = shape.count as u32 | shape.level << 8 | (shape.prefix as u32) << 16;
        self.shape.store(bits, Ordering::Relaxed);
    }

    /// Begins a change.
    fn lock(&self) {
        self.seq.store(self.seq.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        // A thread that sees one of the stores below also sees `seq` odd.
        fence(Ordering::Release);
    }

    /// Ends a change.
    fn unlock(&self) {
        self.seq.store(self.seq.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Runs `change` so that concurrent readers detect it. A change that panics is ended too: readers would otherwise
    /// wait forever, and each part that it left is valid by itself.
    pub(super) fn change<R>(&self, change: impl FnOnce(&Node) -> R) -> R {
        struct Changing<'n>(&'n Node);
        impl Drop for Changing<'_> {
            fn drop(&mut self) {
                self.0.unlock();
            }
        }
        self.lock();
        let _changing = Changing(self);
        change(self)
    }

    /// Makes a fresh node the first branch above `child`.
    pub(super) fn start_branch(&self, level: u32, child: NodeRef) {
        self.places[0].store(child.bits(), Ordering::Relaxed);
        self.set_shape(Shape { count: 1, level, prefix: 0 });
    }

    /// Inserts an entry at `at`, moving the later ones. `place` is a key's in a leaf, a node's in a branch.
    ///
    /// # Safety
    /// The node is not full and inside `change`; `place` is of the kind that the node's level requires.
    unsafe fn put(&self, at: usize, head: u64, place: u32) {
        let shape = self.shape();
        for to in (at + 1..=shape.count).rev() {
            self.heads[to].store(self.heads[to - 1].load(Ordering::Relaxed), Ordering::Relaxed);
            self.places[to].store(self.places[to - 1].load(Ordering::Relaxed), Ordering::Release);
        }
        self.heads[at].store(head, Ordering::Relaxed);
        self.places[at].store(place, Ordering::Release);
        self.set_shape(Shape { count: shape.count + 1, ..shape });
    }

    /// Inserts a key into a leaf that has room.
    pub(super) fn put_key(&self, at: usize, bytes: &[u8], key: KeyRef) {
        let shape = self.shape();
        assert!(shape.level == 0 && shape.count < NODE_ENTRIES, "keys go into leaves with room");
        // SAFETY: just asserted.
        self.change(|node| unsafe { node.put(at, head(bytes, shape.prefix), key.bits()) });
    }

    /// Inserts a node, whose least key is `low`, into a branch that has room. Inside `change`.
    pub(super) fn put_child(&self, at: usize, low: &[u8], child: NodeRef) {
        let shape = self.shape();
        assert!(shape.level > 0 && shape.count < NODE_ENTRIES, "nodes go into branches with room");
        // SAFETY: just asserted.
        unsafe { self.put(at, head(low, shape.prefix), child.bits()) };
    }

    /// Moves the entries from `from` on into `right`, a fresh node at `place`, which becomes the right neighbour.
    /// Returns its `low`. Inside `change`; other threads reach `right` only through later stores.
    pub(super) fn split_off(&self, arena: &Arena, from: usize, place: NodeRef) -> Option<KeyRef> {
        let right = arena.get(place);
        let shape = self.shape();
        let low = if shape.level == 0 { self.key(from) } else { arena.get(self.child(from)?).low() };
        right.low.store(low);
        right.next.store(self.next());
        for (to, at) in (from..shape.count).enumerate() {
            right.heads[to].store(self.heads[at].load(Ordering::Relaxed), Ordering::Relaxed);
            right.places[to].store(self.places[at].load(Ordering::Relaxed), Ordering::Release);
        }
        if shape.level > 0 {
            right.heads[0].store(0, Ordering::Relaxed);
        }
        right.set_shape(Shape { count: shape.count - from, ..shape });
        self.set_shape(Shape { count: from, ..shape });
        self.next.store(Some(place));
        right.sharpen(arena);
        self.sharpen(arena);
        low
    }

    /// Adds an empty right neighbour for keys from `low` on: the split for ascending keys.
    pub(super) fn start_right(&self, arena: &Arena, low: KeyRef, place: NodeRef) -> Option<KeyRef> {
        let right = arena.get(place);
        let shape = self.shape();
        right.low.store(Some(low));
        right.next.store(self.next());
        right.set_shape(Shape { count: 0, level: shape.level, prefix: 0 });
        self.next.store(Some(place));
        self.sharpen(arena);
        Some(low)
    }

    /// Extends the prefix if the fences share a longer one and some heads are equal. Inside `change`.
    fn sharpen(&self, arena: &Arena) {
        let shape = self.shape();
        let first = usize::from(shape.level > 0);
        let heads = self.heads.get(first..shape.count).unwrap_or_default();
        if !heads.windows(2).any(|pair| pair[0].load(Ordering::Relaxed) == pair[1].load(Ordering::Relaxed)) {
            return;
        }
        let (Some(low), Some(next)) = (self.low(), self.next()) else { return };
        let Some(high) = arena.get(next).low() else { return };
        let prefix = common_prefix(arena.key(low).bytes, arena.key(high).bytes);
        if prefix <= shape.prefix {
            return;
        }
        for at in first..shape.count {
            if let Ok(key) = self.entry_key(arena, shape, at) {
                self.heads[at].store(head(key, prefix), Ordering::Relaxed);
            }
        }
        self.set_shape(Shape { prefix, ..shape });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_heads_order(a: &[u8], b: &[u8], prefix: usize) {
        assert!(head(a, prefix) <= head(b, prefix), "{a:?} {b:?} {prefix}");
    }

    #[test]
    fn heads_never_contradict_the_order_of_the_keys() {
        let keys: &[&[u8]] = &[
            b"",
            b"\0",
            b"\0\0",
            b"\0\xff",
            b"a",
            b"a\0",
            b"abcdefg",
            b"abcdefgh",
            b"abcdefgh\0",
            b"abcdefgi",
            b"\xff",
        ];
        for pair in keys.windows(2) {
            check_heads_order(pair[0], pair[1], 0);
        }
        check_heads_order(b"prefix", b"prefix1", 6);
        check_heads_order(b"prefix12345678", b"prefix2", 6);
    }

    #[test]
    fn a_head_is_the_key_behind_the_prefix_padded_with_zeros() {
        assert_eq!(head(b"xyAB", 2), 0x4142_0000_0000_0000);
        assert_eq!(head(b"xy", 2), 0);
        assert_eq!(head(b"x", 2), 0);
    }
}
