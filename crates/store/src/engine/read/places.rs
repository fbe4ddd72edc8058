//! Places: a reader's cache of where short keys lie in the tree file, so that it need not descend the tree again.
//!
//! A joined or popular document is looked up repeatedly, and its position in the file (its place) stays the same until
//! the next checkpoint. A descent through three or four pages is a chain of dependent cache misses. A lookup by a
//! remembered place costs one miss for the cache's own line, and then the value's lines are fetched together.
//!
//! ```text
//!  a set, one cache line                               place
//!  +----------+--------+------------+-- … --+          63            25 24   14 13    4 3        0
//!  | sequence | victim | key, place | x 3   |          | offset        | length | tree | key + 1  |
//!  | u64      | u64    | u64, u64   |       |          | 39 bits       | 11     | 10   | 4        |
//!  +----------+--------+------------+-- … --+
//! ```
//!
//! An entry holds the whole key (at most 8 bytes, so integer keys and short texts) and its length, so a false hit is
//! impossible. A place is an offset and a length. It is checked against the map like any other, so it cannot point
//! outside the map. A place that does not fit the bits (a high tree number, an offset past 512 GB) is not remembered.
//!
//! The same table remembers where a range begins, by the range's first key: the entry holds a leaf, and the rank of the
//! range's first entry in place of a length. The two kinds of entries differ in the name (tree number and key length).
//!
//! The sequence of a set is the tree state that its entries belong to. A set with another sequence counts as empty, so
//! a checkpoint costs nothing here; clearing the whole table would delay the reader's event loop.
//!
//! The table is zeroed pages that the kernel provides when they are touched, huge pages if possible.
//!
//! A set has three entries, because with one a third of the places is lost to collisions while the table is half empty. Entries are
//! replaced in turn. LRU would need a write at each hit, and keys that are read in a cycle would evict one another for ever.

use std::cell::{Cell, OnceCell, RefCell};

use memmap2::{Advice, MmapMut};

use crate::base::error::StoreError;
use crate::base::head::head;
use crate::base::key::TreeId;
use crate::base::prefetch::prefetch;
use crate::tree::{Beginning, PAGE_BYTES, PageNo, TreeView, VALUE_INLINE_MAX};

/// Maximum number of keys that are prefetched together: eight connections with batches of sixteen. Their lines fill a good
/// part of an L1 cache.
const FORESEEN_MAX: usize = 128;
/// Keys that [`Places::get_all`] fetches together: as many as a word has bits, and more than a core's outstanding misses.
const TOGETHER_MAX: usize = u32::BITS as usize;
/// Longest key that is remembered.
const KEY_BYTES: usize = 8;
/// Shortest first key of a range that is remembered: the name has bits for no more lengths.
const BEGINNING_BYTES_MIN: usize = 3;
/// Added to the length in the name of a range's beginning. The sum is above any key's length and fits into the same
/// bits.
const BEGINNING_LENGTHS: u64 = (KEY_BYTES + 1 - BEGINNING_BYTES_MIN) as u64;
const KEY_BITS: u32 = 4;
const TREE_BITS: u32 = 10;
const NAME_BITS: u32 = KEY_BITS + TREE_BITS;
const LENGTH_BITS: u32 = 11;
const OFFSET_BITS: u32 = u64::BITS - NAME_BITS - LENGTH_BITS;
const NAME_MASK: u64 = (1 << NAME_BITS) - 1;
const LENGTH_MASK: u64 = (1 << LENGTH_BITS) - 1;
const _: () = assert!(VALUE_INLINE_MAX as u64 <= LENGTH_MASK && KEY_BYTES + 1 < 1 << KEY_BITS);
const _: () = assert!(KEY_BYTES as u64 + 1 + BEGINNING_LENGTHS < 1 << KEY_BITS && PAGE_BYTES as u64 / 8 <= LENGTH_MASK);
const _: () = assert!(BEGINNING_BYTES_MIN as u64 + 1 + BEGINNING_LENGTHS > KEY_BYTES as u64 + 1);
/// 2^64 divided by the golden ratio: spreads neighbouring keys (Knuth, volume 3, section 6.4).
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

const LINE_BYTES: usize = 64;
const LINE_WORDS: usize = LINE_BYTES / size_of::<u64>();
/// Words of a set before its entries.
const SET_WORDS: usize = 2;
/// Words of an entry: key and place.
const ENTRY_WORDS: usize = 2;
/// Bytes of a huge page (x86-64, and arm64 with pages of 4 KB).
const LARGE_PAGE_BYTES: usize = 2 << 20;
const WAYS: u64 = ((LINE_WORDS - SET_WORDS) / ENTRY_WORDS) as u64;

/// One reader's cache of places.
pub(crate) struct Places {
    /// A power of two; 0 disables the cache.
    sets_count: usize,
    /// Allocated when the reader first finds a key.
    table: OnceCell<RefCell<Table>>,
    foreseen: RefCell<Foresight>,
    /// See [`crate::Reader::check_at_most`].
    check_max: Cell<usize>,
}

/// Keys that will be looked up soon.
#[derive(Default)]
struct Foresight {
    keys: Box<[Foreseen]>,
    len: usize,
}

#[derive(Clone, Copy, Default)]
struct Foreseen {
    key: u64,
    name: u64,
    index: usize,
    /// The leaf in which a key without a remembered place must be, or in which a range begins.
    leaf: PageNo,
    /// The rank of a range's beginning, if remembered.
    rank: Option<usize>,
}

/// The sets, in anonymous pages, huge ones if the kernel has them: with a table larger than the TLB covers, each lookup
/// would otherwise also wait for a TLB miss.
struct Table {
    /// `None` if the kernel gave no memory; then nothing is remembered.
    bytes: Option<MmapMut>,
}

/// See the module's text. All zeros is an empty set, since no tree state has sequence 0.
type Set = [u64; LINE_WORDS];

#[derive(Clone, Copy)]
struct Entry {
    /// The key's bytes, padded with zeros.
    key: u64,
    /// Offset, length and name; 0: empty.
    place: u64,
}

impl Places {
    /// A table of at most `bytes`.
    pub(crate) fn new(bytes: usize) -> Places {
        let sets_count = (bytes / LINE_BYTES).checked_ilog2().map_or(0, |log| 1 << log);
        Places { sets_count, table: OnceCell::new(), foreseen: RefCell::default(), check_max: Cell::new(usize::MAX) }
    }

    /// Sets the longest value whose checksum is computed.
    #[inline]
    pub(crate) fn check_at_most(&self, bytes: usize) {
        self.check_max.set(bytes);
    }

    /// Longest value whose checksum is computed.
    #[inline]
    pub(crate) fn check_max(&self) -> usize {
        self.check_max.get()
    }

    /// The value of a key, by its remembered place or by a search.
    #[inline]
    pub(crate) fn get<'t>(&self, view: &'t TreeView, tree: TreeId, key: &[u8]) -> Result<Option<&'t [u8]>, StoreError> {
        let Some((padded, name)) = self.named(tree, key) else {
            return Ok(view.find(tree, key, self.check_max.get())?.map(|(value, _)| value));
        };
        let index = self.index(padded, name);
        if let Some(place) = self.known(view, index, padded, name) {
            return value_of(view, place).map(Some);
        }
        self.search(view, tree, key, Entry { key: padded, place: name }, index)
    }

    /// The values of many keys of one length. All sets are prefetched before the first is read, and all places found
    /// there before the first value is read, so the cache misses overlap.
    pub(crate) fn get_all<'t, const N: usize>(
        &self,
        view: &'t TreeView,
        tree: TreeId,
        keys: &[[u8; N]],
        values: &mut [Option<&'t [u8]>],
    ) -> Result<(), StoreError> {
        let (Some((_, name)), Some(table)) = (self.named(tree, &[0; N]), self.table.get()) else {
            return keys.iter().zip(values).try_for_each(|(key, value)| {
                *value = self.get(view, tree, key)?;
                Ok(())
            });
        };
        let sequence = view.meta().sequence;
        for (keys, values) in keys.chunks(TOGETHER_MAX).zip(values.chunks_mut(TOGETHER_MAX)) {
            let (mut indexes, mut missing) = ([0; TOGETHER_MAX], 0u32);
            {
                let table = table.borrow();
                for (key, index) in keys.iter().zip(&mut indexes) {
                    *index = self.index(head(key), name);
                    table.prefetch(*index);
                }
                for (at, ((key, index), value)) in keys.iter().zip(&indexes).zip(&mut *values).enumerate() {
                    match table.find(*index, sequence, head(key), name) {
                        Some(place) => *value = Some(value_of(view, place)?),
                        None => missing |= 1 << at,
                    }
                }
            }
            while missing != 0 {
                let at = missing.trailing_zeros() as usize;
                missing &= missing - 1;
                let entry = Entry { key: head(&keys[at]), place: name };
                values[at] = self.search(view, tree, &keys[at], entry, indexes[at])?;
            }
        }
        Ok(())
    }

    /// The beginning of a range, if a range with the same first key was read in this state of the tree.
    #[inline]
    pub(crate) fn beginning(&self, view: &TreeView, tree: TreeId, from: &[u8]) -> Option<Beginning> {
        let (padded, name) = self.named_beginning(tree, from)?;
        beginning_at(self.known(view, self.index(padded, name), padded, name)?)
    }

    /// Remembers where a range begins.
    #[inline(never)]
    pub(crate) fn remember_beginning(&self, view: &TreeView, tree: TreeId, from: &[u8], beginning: Beginning) {
        if let Some((padded, name)) = self.named_beginning(tree, from) {
            let (entry, index) = (Entry { key: padded, place: name }, self.index(padded, name));
            self.put(view, entry, index, beginning.rank, beginning.leaf.offset());
        }
    }

    #[inline]
    fn named_beginning(&self, tree: TreeId, from: &[u8]) -> Option<(u64, u64)> {
        let (padded, name) = self.named(tree, from).filter(|_| from.len() >= BEGINNING_BYTES_MIN)?;
        Some((padded, name + BEGINNING_LENGTHS))
    }

    /// Records a key that will be looked up soon, and prefetches its set. Keys beyond [`FORESEEN_MAX`] are ignored.
    #[inline]
    pub(crate) fn foresee(&self, tree: TreeId, key: &[u8]) {
        if let Some((padded, name)) = self.named(tree, key) {
            self.note(padded, name);
        }
    }

    /// The same for a range that will be read from this key on.
    #[inline]
    pub(crate) fn foresee_beginning(&self, tree: TreeId, from: &[u8]) {
        if let Some((padded, name)) = self.named_beginning(tree, from) {
            self.note(padded, name);
        }
    }

    fn note(&self, key: u64, name: u64) {
        let index = self.index(key, name);
        if let Some(table) = self.table.get() {
            table.borrow().prefetch(index);
        }
        let mut foreseen = self.foreseen.borrow_mut();
        if foreseen.keys.is_empty() {
            foreseen.keys = vec![Foreseen::default(); FORESEEN_MAX].into_boxed_slice();
        }
        let at = foreseen.len;
        if let Some(place) = foreseen.keys.get_mut(at) {
            *place = Foreseen { key, name, index, leaf: PageNo::default(), rank: None };
            foreseen.len += 1;
        }
    }

    #[inline]
    pub(crate) fn has_foreseen(&self) -> bool {
        self.foreseen.borrow().len > 0
    }

    /// Prefetches the values of the recorded keys and the first entries of the recorded ranges. For keys without a
    /// remembered place, all leaves are found before the first leaf is searched, so the cache misses overlap.
    pub(crate) fn fetch(&self, view: &TreeView) {
        let mut foreseen = self.foreseen.borrow_mut();
        let count = std::mem::take(&mut foreseen.len);
        let keys = foreseen.keys.get_mut(..count).unwrap_or_default();
        for key in &mut *keys {
            match self.known(view, key.index, key.key, key.name) {
                Some(place) if key.is_beginning() => {
                    let Some(Beginning { leaf, rank }) = beginning_at(place) else { continue };
                    view.fetch_leaf(leaf);
                    (key.leaf, key.rank) = (leaf, Some(rank));
                }
                // Only a prefetch: the actual read reports damage.
                Some(place) => drop(value_of(view, place)),
                None => key.leaf = view.leaf_of(key.tree(), key.bytes(&mut [0; KEY_BYTES])).unwrap_or_default(),
            }
        }
        for key in keys.iter().filter(|key| key.leaf != PageNo::default()) {
            let mut bytes = [0; KEY_BYTES];
            let bytes = key.bytes(&mut bytes);
            let entry = Entry { key: key.key, place: key.name };
            if key.is_beginning() {
                let found = view.begin_in(key.leaf, bytes, key.rank);
                if let (Ok(Some(rank)), None) = (found, key.rank) {
                    self.put(view, entry, key.index, rank, key.leaf.offset());
                }
            } else if let Ok(Some((value, Some(offset)))) = view.find_in(key.leaf, bytes, 0) {
                self.remember(view, entry, key.index, value, offset);
            }
        }
    }

    /// A key and its name in the form of an entry; `None` if such keys are not remembered.
    #[inline]
    fn named(&self, tree: TreeId, key: &[u8]) -> Option<(u64, u64)> {
        let is_remembered = key.len() <= KEY_BYTES && tree.0 >> TREE_BITS == 0 && self.sets_count > 0;
        is_remembered.then(|| (head(key), u64::from(tree.0) << KEY_BITS | (key.len() as u64 + 1)))
    }

    /// The remembered place of a key in this state of the tree.
    #[inline]
    fn known(&self, view: &TreeView, index: usize, key: u64, name: u64) -> Option<u64> {
        self.table.get()?.borrow().find(index, view.meta().sequence, key, name)
    }

    /// The set of a key.
    #[inline]
    fn index(&self, key: u64, name: u64) -> usize {
        // The high half is folded in, because the bytes of a short key are all there.
        let spread = (key ^ key >> 32 ^ name).wrapping_mul(SPREAD);
        (spread >> 32) as usize & (self.sets_count - 1)
    }

    #[inline(never)]
    fn search<'t>(
        &self,
        view: &'t TreeView,
        tree: TreeId,
        key: &[u8],
        entry: Entry,
        index: usize,
    ) -> Result<Option<&'t [u8]>, StoreError> {
        let Some((value, offset)) = view.find(tree, key, self.check_max.get())? else { return Ok(None) };
        if let Some(offset) = offset {
            self.remember(view, entry, index, value, offset);
        }
        Ok(Some(value))
    }

    fn remember(&self, view: &TreeView, entry: Entry, index: usize, value: &[u8], offset: u64) {
        self.put(view, entry, index, value.len(), offset);
    }

    fn put(&self, view: &TreeView, mut entry: Entry, index: usize, length: usize, offset: u64) {
        if offset >> OFFSET_BITS == 0 {
            entry.place |= offset << (NAME_BITS + LENGTH_BITS) | (length as u64) << NAME_BITS;
            let table = self.table.get_or_init(|| RefCell::new(Table::new(self.sets_count)));
            table.borrow_mut().put(index, view.meta().sequence, entry);
        }
    }
}

/// The value at a remembered place.
#[inline]
fn value_of(view: &TreeView, place: u64) -> Result<&[u8], StoreError> {
    let (offset, length) = (place >> (NAME_BITS + LENGTH_BITS), place >> NAME_BITS & LENGTH_MASK);
    view.value_at(offset, length as usize)
}

/// The beginning at a remembered place.
#[inline]
fn beginning_at(place: u64) -> Option<Beginning> {
    let (offset, rank) = (place >> (NAME_BITS + LENGTH_BITS), place >> NAME_BITS & LENGTH_MASK);
    let leaf = PageNo(u32::try_from(offset / PAGE_BYTES as u64).ok()?);
    Some(Beginning { leaf, rank: rank as usize })
}

impl Foreseen {
    /// The length in the name, plus 1, and for a beginning plus the offset that marks it.
    fn length_named(&self) -> u64 {
        self.name & ((1 << KEY_BITS) - 1)
    }

    fn is_beginning(&self) -> bool {
        self.length_named() > KEY_BYTES as u64 + 1
    }

    fn tree(&self) -> TreeId {
        TreeId((self.name >> KEY_BITS) as u32)
    }

    fn bytes<'b>(&self, bytes: &'b mut [u8; KEY_BYTES]) -> &'b [u8] {
        *bytes = self.key.to_be_bytes();
        let beside = 1 + if self.is_beginning() { BEGINNING_LENGTHS } else { 0 };
        bytes.get(..(self.length_named() - beside) as usize).unwrap_or_default()
    }
}

impl Table {
    fn new(sets_count: usize) -> Table {
        let bytes = MmapMut::map_anon(sets_count * LINE_BYTES).ok();
        if let Some(bytes) = bytes.as_ref().filter(|bytes| bytes.len() >= LARGE_PAGE_BYTES) {
            // Only advice: without huge pages the table is slower.
            let _ = bytes.advise(Advice::HugePage);
        }
        Table { bytes }
    }

    #[inline]
    fn prefetch(&self, index: usize) {
        if let Some(set) = self.line(index) {
            prefetch(set);
        }
    }

    #[inline]
    fn line(&self, index: usize) -> Option<&[u8; LINE_BYTES]> {
        self.bytes.as_ref()?.get(index * LINE_BYTES..)?.first_chunk()
    }

    /// The place remembered under a key and name in this state of the tree.
    #[inline]
    fn find(&self, index: usize, sequence: u64, key: u64, name: u64) -> Option<u64> {
        let set = set_of(self.line(index)?);
        // Branch-free, since which entry matches cannot be predicted.
        let found = set[SET_WORDS..].as_chunks().0.iter().fold(0, |found, [its_key, place]| {
            let is_it = (*its_key == key) & (place & NAME_MASK == name);
            found | place & u64::from(is_it).wrapping_neg()
        });
        (found != 0 && set[0] == sequence).then_some(found)
    }

    fn put(&mut self, index: usize, sequence: u64, entry: Entry) {
        let line = self.bytes.as_mut().and_then(|bytes| bytes.get_mut(index * LINE_BYTES..)?.first_chunk_mut());
        let Some(line) = line else { return };
        let mut set = set_of(line);
        if set[0] != sequence {
            set = [0; LINE_WORDS];
            set[0] = sequence;
        }
        let turn = set[1] % WAYS;
        set[1] = turn + 1;
        let at = SET_WORDS + turn as usize * ENTRY_WORDS;
        set[at..at + ENTRY_WORDS].copy_from_slice(&[entry.key, entry.place]);
        for (bytes, word) in line.as_chunks_mut().0.iter_mut().zip(set) {
            *bytes = word.to_ne_bytes();
        }
    }
}

#[inline]
fn set_of(line: &[u8; LINE_BYTES]) -> Set {
    let words = line.as_chunks().0;
    std::array::from_fn(|at| words.get(at).map_or(0, |word| u64::from_ne_bytes(*word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETS: usize = 4;

    fn entry(key: u64) -> Entry {
        Entry { key, place: key << (NAME_BITS + LENGTH_BITS) | 7 }
    }

    #[track_caller]
    fn check(table: &Table, index: usize, sequence: u64, expected: &[u64]) {
        let found: Vec<u64> = (1..10).filter(|key| table.find(index, sequence, *key, 7).is_some()).collect();
        assert_eq!(found, expected);
        for key in found {
            assert_eq!(table.find(index, sequence, key, 7), Some(entry(key).place));
            assert_eq!(table.find(index, sequence, key, 6), None);
        }
    }

    #[test]
    fn a_set_keeps_the_last_three_of_one_state_of_the_tree() {
        let mut table = Table::new(SETS);
        (1..=2).for_each(|key| table.put(1, 5, entry(key)));
        check(&table, 1, 5, &[1, 2]);
        (3..=5).for_each(|key| table.put(1, 5, entry(key)));
        check(&table, 1, 5, &[3, 4, 5]);
        check(&table, 1, 6, &[]);
        check(&table, 0, 5, &[]);
        table.put(1, 6, entry(8));
        check(&table, 1, 6, &[8]);
        check(&table, 1, 5, &[]);
    }

    #[test]
    fn an_empty_set_holds_nothing_not_even_the_key_zero() {
        let table = Table::new(SETS);
        for index in 0..SETS {
            assert_eq!(table.find(index, 0, 0, 1), None);
        }
    }

    #[test]
    fn every_set_is_one_cache_line_inside_the_table() {
        let mut table = Table::new(SETS);
        assert_eq!(table.line(0).unwrap().as_ptr() as usize % LINE_BYTES, 0);
        table.put(SETS - 1, 5, entry(1));
        check(&table, SETS - 1, 5, &[1]);
        table.put(SETS, 5, entry(1));
        check(&table, SETS - 1, 5, &[1]);
    }

    #[test]
    fn what_is_foreseen_gives_back_its_tree_and_key_and_tells_a_beginning() {
        let places = Places::new(LINE_BYTES);
        let key = [0, 1, 2, 3, 4, 5, 6, 0];
        for (tree, length) in
            [0, 7, 1023].into_iter().flat_map(|tree| (0..=KEY_BYTES).map(move |length| (tree, length)))
        {
            let key = &key[..length];
            places.foresee(TreeId(tree), key);
            places.foresee_beginning(TreeId(tree), key);
            let mut foreseen = places.foreseen.borrow_mut();
            let count = std::mem::take(&mut foreseen.len);
            assert_eq!(count, if length < BEGINNING_BYTES_MIN { 1 } else { 2 });
            for (noted, is_beginning) in foreseen.keys[..count].iter().zip([false, true]) {
                assert_eq!((noted.tree(), noted.is_beginning()), (TreeId(tree), is_beginning));
                assert_eq!(noted.bytes(&mut [0; KEY_BYTES]), key);
            }
        }
    }

    #[test]
    fn a_table_is_never_larger_than_it_may_be() {
        let sets = |bytes| Places::new(bytes).sets_count;
        assert_eq!([0, 63, 64, 127, 128, 4095, 2 << 20].map(sets), [0, 0, 1, 1, 2, 32, 1 << 15]);
    }
}
