//! Hash index of a memtable: from a key to its reference, in one cache line.
//!
//! Buckets are cache lines of eight slots, filled from the first; a full bucket overflows into the next. A slot holds
//! 32 bits of the key's hash and the key's 32-bit reference. So a wrong key is hardly ever compared, and a larger table
//! is filled from the slots alone, without reading a key.
//!
//! Most keys that are looked up have not changed since the checkpoint. For them each bucket has a filter word: three
//! bits for each key with this home bucket. The words of all buckets are an eighth of the table, so they fit into a
//! cache that is too small for the table. The word alone refuses 99 of 100 absent keys.
//!
//! ```text
//!  bucket 0 .. bucket n-1 | filter words 0..7 | 8..15 | .. n-1
//!  8 slots of u64 each    | 8 words of u64 in each line
//! ```
//!
//! Invariants:
//!
//! - Slots only change from empty to taken, and a table is never full ([`FILL_MAX`]): every probe ends at an empty slot.
//! - The table lies in the arena and doubles. Outgrown tables stay, since readers may be inside. They hold everything
//!   that a snapshot older than the growth can see.
//! - Hashes are seeded for each memtable, so a client cannot choose colliding keys.
#![allow(unsafe_code)] // A slot holds a reference as bits; converting it back is the arena's unsafe call.

use std::hash::{BuildHasher, Hasher};

use super::arena::{Arena, Fill, KeyRef, Lined, Ref};
use crate::base::key::TreeId;
use crate::base::prefetch::prefetch_line;
use crate::base::sync::DefaultHashBuilder;
use crate::base::sync::atomic::{AtomicU64, Ordering};

/// Slots of a bucket.
const BUCKET_SLOTS: usize = 8;
/// Average number of taken slots per bucket at which the table doubles.
const FILL_MAX: usize = 6;
/// Logarithm of the first table's number of buckets.
const FIRST_LOG2: u32 = 3;

const _: () = assert!(1 << FIRST_LOG2 >= BUCKET_SLOTS, "filter words fill whole lines");

/// Logarithm of the largest table's number of buckets: the index comes from the 32 bits of the hash.
const LOG2_MAX: u32 = 30;

/// One cache line of slots. Zeroed memory is an empty bucket.
#[repr(C, align(64))]
pub(super) struct Bucket {
    slots: [AtomicU64; BUCKET_SLOTS],
}

// SAFETY: it consists of atomics; a zeroed bucket is empty.
unsafe impl Lined for Bucket {}

/// Number and place of the current buckets.
#[derive(Clone, Copy)]
pub(super) struct Table {
    log2: u32,
    /// The first bucket.
    place: Ref<Bucket>,
}

/// Hash of a key.
#[derive(Clone, Copy)]
pub(super) struct KeyHash(u32);

/// The hash index.
pub(super) struct Index {
    seed: DefaultHashBuilder,
    /// `log2 << 32 | place`, and [`BESIDE_RANGES`]; 0 if there is no table.
    table: AtomicU64,
}

/// Set in the table's word if ranges were deleted. So the sign of a word that a lookup loads anyway shows whether the hash alone
/// determines the result.
const BESIDE_RANGES: u64 = 1 << 63;

impl KeyHash {
    /// The key's bits in its home bucket's filter word. Mixed again, since keys of one bucket share the hash's first bits.
    #[inline]
    fn filter_bits(self) -> u64 {
        let mixed = u64::from(self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        1 << (mixed >> 58) | 1 << (mixed >> 52 & 63) | 1 << (mixed >> 46 & 63)
    }
}

/// Cache lines of a table with its filter.
fn table_lines(log2: u32) -> usize {
    (1 << log2) + (1 << log2) / BUCKET_SLOTS
}

/// Bucket `at`'s filter word.
fn filter_word(filter: &[Bucket], at: usize) -> &AtomicU64 {
    &filter[at / BUCKET_SLOTS].slots[at % BUCKET_SLOTS]
}

impl Table {
    fn index(self, hash: KeyHash) -> usize {
        (hash.0 >> (32 - self.log2)) as usize
    }

    /// The buckets, and the lines of filter words.
    fn parts(self, arena: &Arena) -> (&[Bucket], &[Bucket]) {
        // SAFETY: tables are made only in `Index::grow`, which reserved this many lines.
        unsafe { arena.get_all(self.place, table_lines(self.log2)) }.split_at(1 << self.log2)
    }

    /// The reference to a key.
    #[inline]
    pub(super) fn find(self, arena: &Arena, hash: KeyHash, tree: TreeId, key: &[u8]) -> Option<KeyRef> {
        let (buckets, filter) = self.parts(arena);
        let mut at = self.index(hash);
        let bits = hash.filter_bits();
        if filter_word(filter, at).load(Ordering::Relaxed) & bits != bits {
            return None;
        }
        loop {
            for slot in &buckets[at].slots {
                let bits = slot.load(Ordering::Acquire);
                if (bits >> 32) as u32 == hash.0 {
                    // SAFETY: `put` stored the bits of a reference to a key of this arena with release; else 0.
                    let place: KeyRef = unsafe { Ref::from_bits(bits as u32) }?;
                    let found = arena.key(place);
                    if found.bytes == key && found.tree == tree {
                        return Some(place);
                    }
                } else if bits == 0 {
                    return None;
                }
            }
            at = (at + 1) % buckets.len();
        }
    }

    fn put(self, arena: &Arena, slot: u64) {
        let (buckets, filter) = self.parts(arena);
        let hash = KeyHash((slot >> 32) as u32);
        let mut at = self.index(hash);
        let word = filter_word(filter, at);
        word.store(word.load(Ordering::Relaxed) | hash.filter_bits(), Ordering::Relaxed);
        loop {
            if let Some(free) = buckets[at].slots.iter().find(|taken| taken.load(Ordering::Relaxed) == 0) {
                return free.store(slot, Ordering::Release);
            }
            at = (at + 1) % buckets.len();
        }
    }
}

impl Index {
    pub(super) fn new() -> Index {
        Index { seed: DefaultHashBuilder::default(), table: AtomicU64::new(0) }
    }

    #[inline]
    pub(super) fn hash(&self, tree: TreeId, key: &[u8]) -> KeyHash {
        let mut hasher = self.seed.build_hasher();
        hasher.write_u32(tree.0);
        hasher.write(key);
        let wide = hasher.finish();
        KeyHash((wide >> 32) as u32 ^ wide as u32)
    }

    #[inline]
    fn table(&self) -> Option<Table> {
        let bits = self.table.load(Ordering::Acquire) & !BESIDE_RANGES;
        // SAFETY: `grow` put the bits of a reference to buckets of this arena there, with release; else they are 0.
        let place = unsafe { Ref::from_bits(bits as u32) }?;
        Some(Table { log2: (bits >> 32) as u32, place })
    }

    /// The table, if it is not empty and no range was deleted, so that it alone determines a key's record.
    #[inline]
    pub(super) fn table_alone(&self) -> Option<Table> {
        let bits = self.table.load(Ordering::Acquire);
        if bits as i64 <= 0 {
            return None;
        }
        // SAFETY: as in `table`.
        let place = unsafe { Ref::from_bits(bits as u32) }?;
        Some(Table { log2: (bits >> 32) as u32, place })
    }

    /// Records that ranges were deleted. Writer only, after the first insert.
    pub(super) fn note_ranges(&self) {
        debug_assert!(!self.is_empty(), "boundaries are keys");
        self.table.fetch_or(BESIDE_RANGES, Ordering::Release);
    }

    /// Whether ranges were deleted.
    #[inline]
    pub(super) fn is_beside_ranges(&self) -> bool {
        self.table.load(Ordering::Relaxed) & BESIDE_RANGES != 0
    }

    /// True if nothing was ever inserted.
    pub(super) fn is_empty(&self) -> bool {
        self.table.load(Ordering::Relaxed) == 0
    }

    /// The reference to a key.
    pub(super) fn find(&self, arena: &Arena, hash: KeyHash, tree: TreeId, key: &[u8]) -> Option<KeyRef> {
        self.table()?.find(arena, hash, tree, key)
    }

    /// Prefetches the line into which [`Index::put`] will put a key with this hash.
    pub(super) fn prefetch(&self, arena: &Arena, hash: KeyHash) {
        if let Some(table) = self.table() {
            prefetch_line((&raw const table.parts(arena).0[table.index(hash)]).cast());
        }
    }

    /// Prefetches the lines that [`Index::find`] reads first.
    pub(super) fn foresee(&self, arena: &Arena, hash: KeyHash) {
        if let Some(table) = self.table() {
            let (buckets, filter) = table.parts(arena);
            let at = table.index(hash);
            prefetch_line((&raw const *filter_word(filter, at)).cast());
            prefetch_line((&raw const buckets[at]).cast());
        }
    }

    /// Prefetches the key that [`Index::find`] will compare, after the lines of [`Index::foresee`] have arrived. A key
    /// that overflowed its home bucket is not prefetched.
    pub(super) fn foresee_key(&self, arena: &Arena, hash: KeyHash) {
        let Some(table) = self.table() else { return };
        let (buckets, _) = table.parts(arena);
        for slot in &buckets[table.index(hash)].slots {
            let bits = slot.load(Ordering::Acquire);
            if (bits >> 32) as u32 == hash.0 {
                // SAFETY: `put` stored the bits of a reference to a key of this arena with release; else 0.
                let place: Option<KeyRef> = unsafe { Ref::from_bits(bits as u32) };
                place.into_iter().for_each(|place| arena.prefetch(place, 1));
            }
        }
    }

    /// Free arena bytes needed to insert `more` keys beside the `len` existing ones.
    pub(super) fn growth_bytes(&self, len: usize, more: usize) -> usize {
        let log2 = self.table().map(|table| table.log2);
        let mut next = log2.map_or(FIRST_LOG2, |log2| log2 + 1);
        let mut room = log2.map_or(0, |log2| FILL_MAX << log2);
        let mut bytes = 0;
        while room < len + more {
            bytes += size_of::<Bucket>() * table_lines(next);
            room = FILL_MAX << next;
            next += 1;
        }
        bytes
    }

    /// Makes the table large enough for one more key than the `len` in it. Writer only.
    pub(super) fn make_room(&self, arena: &Arena, fill: &mut Fill, len: usize) -> Option<()> {
        let old = self.table();
        match old {
            Some(table) if len < FILL_MAX << table.log2 => Some(()),
            _ => self.grow(arena, fill, old),
        }
    }

    fn grow(&self, arena: &Arena, fill: &mut Fill, old: Option<Table>) -> Option<()> {
        let log2 = old.map_or(FIRST_LOG2, |table| table.log2 + 1);
        let place = fill.push_all(table_lines(log2)).filter(|_| log2 <= LOG2_MAX)?;
        let table = Table { log2, place };
        for bucket in old.map_or(&[][..], |table| table.parts(arena).0) {
            for slot in &bucket.slots {
                let bits = slot.load(Ordering::Relaxed);
                if bits != 0 {
                    table.put(arena, bits);
                }
            }
        }
        let ranges = self.table.load(Ordering::Relaxed) & BESIDE_RANGES;
        self.table.store(ranges | u64::from(log2) << 32 | u64::from(place.bits()), Ordering::Release);
        Some(())
    }

    /// Inserts a key that is not in the table. Writer only, after [`Index::make_room`].
    pub(super) fn put(&self, arena: &Arena, hash: KeyHash, key: KeyRef) {
        let table = self.table().expect("make_room made a table");
        table.put(arena, u64::from(hash.0) << 32 | u64::from(key.bits()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Version;

    /// Inserts keys with these hashes, the same bytes in different trees, and finds each again.
    #[track_caller]
    fn check_found(hashes: &[u32]) {
        let (arena, mut fill) = Arena::new(1 << 20).expect("memory");
        let index = Index::new();
        let absent = KeyHash(hashes[0]);
        let places: Vec<KeyRef> = (0u32..)
            .zip(hashes)
            .map(|(tree, hash)| {
                assert!(index.find(&arena, KeyHash(*hash), TreeId(tree), b"key").is_none());
                index.make_room(&arena, &mut fill, tree as usize).expect("room");
                let place = fill.push_key(TreeId(tree), b"key", Version(1), None).expect("room");
                index.put(&arena, KeyHash(*hash), place);
                place
            })
            .collect();
        for ((tree, hash), place) in (0u32..).zip(hashes).zip(places) {
            assert!(index.find(&arena, KeyHash(*hash), TreeId(tree), b"key") == Some(place), "tree {tree}");
        }
        assert!(index.find(&arena, absent, TreeId(0), b"other").is_none());
    }

    #[test]
    fn keys_of_one_hash_are_told_apart_and_spill_round_the_end_of_the_table() {
        check_found(&[u32::MAX; 40]);
        check_found(&[0; 40]);
    }

    #[test]
    fn keys_survive_the_growth_of_the_table() {
        let count = if cfg!(miri) { 100 } else { 2000u32 };
        let scattered: Vec<u32> = (0..count).map(|number| number.wrapping_mul(0x9e37_79b1)).collect();
        check_found(&scattered);
    }
}
