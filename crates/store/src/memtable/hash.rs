//! Hash side of a memtable: from a key to its place, in one cache line.
//!
//! Buckets are cache lines of eight slots, filled from the first; a full bucket spills into the next. A slot is 32
//! bits of the key's hash and the 32-bit place of the key, so a key that is not there costs one line and no
//! comparison of bytes, and a larger table is filled from the slots alone, without touching a key.
//!
//! Invariants:
//!
//! - Slots only ever go from empty to taken, and a table is never full ([`FILL_MAX`]): every probe ends at an empty
//!   slot.
//! - The table lies in the arena and doubles; outgrown ones stay, since readers may be inside. They hold all that a
//!   snapshot older than the growth can see.
//! - Hashes are seeded for each memtable, so nobody outside can choose keys that collide.
#![allow(unsafe_code)] // A slot holds a reference as bits; turning it back is the arena's unsafe call.

use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use super::arena::{Arena, BucketsRef, Fill, KeyRef, Ref};
use crate::TreeId;

/// Slots of a bucket.
const BUCKET_SLOTS: usize = 8;
/// Taken slots per bucket, on average, at which the table doubles.
const FILL_MAX: usize = 6;
/// Logarithm of the first table's buckets.
const FIRST_LOG2: u32 = 3;
/// Logarithm of the largest table's buckets: the index comes from the 32 bits of the hash.
const LOG2_MAX: u32 = 30;

/// One cache line of slots. Zeroed memory is an empty bucket.
#[repr(C, align(64))]
pub(super) struct Bucket {
    slots: [AtomicU64; BUCKET_SLOTS],
}

/// Buckets in use: how many, and where.
#[derive(Clone, Copy)]
struct Table {
    log2: u32,
    place: BucketsRef,
}

/// Hash of a key.
#[derive(Clone, Copy)]
pub(super) struct KeyHash(u32);

/// The hash side.
pub(super) struct Index {
    seed: hashbrown::DefaultHashBuilder,
    /// `log2 << 32 | place`; 0 is no table.
    table: AtomicU64,
}

impl Table {
    fn index(self, hash: KeyHash) -> usize {
        (hash.0 >> (32 - self.log2)) as usize
    }

    fn buckets(self, arena: &Arena) -> &[Bucket] {
        // SAFETY: tables are made in `Index::grow` alone, with as many buckets as it reserved.
        unsafe { arena.buckets(self.place, 1 << self.log2) }
    }

    fn put(self, arena: &Arena, slot: u64) {
        let buckets = self.buckets(arena);
        let mut at = self.index(KeyHash((slot >> 32) as u32));
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
        Index { seed: hashbrown::DefaultHashBuilder::default(), table: AtomicU64::new(0) }
    }

    pub(super) fn hash(&self, tree: TreeId, key: &[u8]) -> KeyHash {
        let mut hasher = self.seed.build_hasher();
        hasher.write_u32(tree.0);
        hasher.write(key);
        let wide = hasher.finish();
        KeyHash((wide >> 32) as u32 ^ wide as u32)
    }

    fn table(&self) -> Option<Table> {
        let bits = self.table.load(Ordering::Acquire);
        // SAFETY: `grow` put the bits of a reference to buckets of this arena there, with release; else they are 0.
        let place = unsafe { Ref::from_bits(bits as u32) }?;
        Some(Table { log2: (bits >> 32) as u32, place })
    }

    /// True while nothing was ever put in.
    pub(super) fn is_empty(&self) -> bool {
        self.table.load(Ordering::Relaxed) == 0
    }

    /// The place of a key.
    pub(super) fn find(&self, arena: &Arena, hash: KeyHash, tree: TreeId, key: &[u8]) -> Option<KeyRef> {
        let table = self.table()?;
        let buckets = table.buckets(arena);
        let mut at = table.index(hash);
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

    /// Bytes that the arena must have free so that `more` keys beside the `len` there are can be put in.
    pub(super) fn growth_bytes(&self, len: usize, more: usize) -> usize {
        let log2 = self.table().map(|table| table.log2);
        let mut next = log2.map_or(FIRST_LOG2, |log2| log2 + 1);
        let mut room = log2.map_or(0, |log2| FILL_MAX << log2);
        let mut bytes = 0;
        while room < len + more {
            bytes += size_of::<Bucket>() << next;
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
        let place = fill.push_buckets(1 << log2).filter(|_| log2 <= LOG2_MAX)?;
        let table = Table { log2, place };
        for bucket in old.map_or(&[][..], |table| table.buckets(arena)) {
            for slot in &bucket.slots {
                let bits = slot.load(Ordering::Relaxed);
                if bits != 0 {
                    table.put(arena, bits);
                }
            }
        }
        self.table.store(u64::from(log2) << 32 | u64::from(place.bits()), Ordering::Release);
        Some(())
    }

    /// Puts in a key that is not there. Writer only, after [`Index::make_room`].
    pub(super) fn put(&self, arena: &Arena, hash: KeyHash, key: KeyRef) {
        let table = self.table().expect("make_room made a table");
        table.put(arena, u64::from(hash.0) << 32 | u64::from(key.bits()));
    }
}
