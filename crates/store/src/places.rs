//! Places: where a reader has lately found short keys in the tree file, so that it need not search for them again.
//!
//! A joined or popular document is looked up again and again; its place in the file is the same until the next
//! checkpoint. A direct-mapped table of [`PLACES`] entries remembers it: one probe of a cache line in place of a search
//! through three or four pages. An entry holds the whole key (at most 8 bytes, so integer keys and short texts), hence a
//! wrong hit is impossible; a place is an offset and a length, checked against the map like any other, so that nothing
//! here can reach outside of it. When the tree's sequence changes the table is emptied.

use std::cell::{Cell, OnceCell};

use crate::error::Error;
use crate::key::TreeId;
use crate::tree::TreeView;

/// Entries of one reader's table: 384 KB, made when the reader first finds something.
pub(crate) const PLACES: usize = 1 << PLACES_BITS;
const PLACES_BITS: u32 = 14;
/// Longest key that is remembered.
const KEY_BYTES: usize = 8;
/// Bits of an entry's `place` that hold the length; an inline value is at most a quarter page long.
const LENGTH_BITS: u32 = 16;
/// 2^64 divided by the golden ratio: spreads neighbouring keys (Knuth, volume 3, section 6.4).
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// One reader's table.
#[derive(Default)]
pub(crate) struct Places {
    /// The tree's state of which the entries are.
    sequence: Cell<u64>,
    entries: OnceCell<Box<[Cell<Entry>]>>,
}

/// A key and its place. All zero: nothing.
#[derive(Clone, Copy, Default)]
struct Entry {
    /// The key's bytes, padded with zeros.
    key: u64,
    /// Tree, and one more than the key's length.
    name: u64,
    /// Offset in the file, and length.
    place: u64,
}

impl Places {
    /// The value of a key, by its remembered place or by a search.
    #[inline]
    pub(crate) fn get<'t>(&self, view: &'t TreeView, tree: TreeId, key: &[u8]) -> Result<Option<&'t [u8]>, Error> {
        if key.len() > KEY_BYTES {
            return view.get(tree, key);
        }
        let sequence = view.meta().sequence;
        if self.sequence.get() != sequence {
            self.forget(sequence);
        }
        let padded = crate::tree::head(key);
        let name = u64::from(tree.0) << 8 | (key.len() as u64 + 1);
        let slot = (padded ^ name.rotate_left(32)).wrapping_mul(SPREAD) >> (u64::BITS - PLACES_BITS);
        if let Some(entries) = self.entries.get()
            && let Some(cell) = entries.get(slot as usize)
        {
            let entry = cell.get();
            if entry.key == padded && entry.name == name {
                let length = entry.place & ((1 << LENGTH_BITS) - 1);
                return view.value_at(entry.place >> LENGTH_BITS, length as usize).map(Some);
            }
        }
        self.search(view, tree, key, Entry { key: padded, name, place: 0 }, slot as usize)
    }

    fn search<'t>(
        &self,
        view: &'t TreeView,
        tree: TreeId,
        key: &[u8],
        mut entry: Entry,
        slot: usize,
    ) -> Result<Option<&'t [u8]>, Error> {
        let Some((value, offset)) = view.find(tree, key)? else { return Ok(None) };
        if let Some(offset) = offset.filter(|_| value.len() < 1 << LENGTH_BITS) {
            entry.place = offset << LENGTH_BITS | value.len() as u64;
            let entries = self.entries.get_or_init(|| vec![Cell::default(); PLACES].into_boxed_slice());
            if let Some(cell) = entries.get(slot) {
                cell.set(entry);
            }
        }
        Ok(Some(value))
    }

    #[cold]
    fn forget(&self, sequence: u64) {
        for cell in self.entries.get().into_iter().flatten() {
            cell.set(Entry::default());
        }
        self.sequence.set(sequence);
    }
}
