//! Memtable: the changes since the last checkpoint, in memory, with all versions.
//!
//! One writer ([`MemtableWriter`]) inserts records; any number of readers use the shared [`Memtable`] without locks.
//! Everything is in one [`arena`] of fixed size, which bounds the memtable's memory:
//!
//! ```text
//!            hash slot ----.                          .---- leaf of the tree's B+tree
//!                          v                          v
//!                    +--------------------------------------+     +--------+     +--------+
//!                    | key: newest | tree | length | bytes  | --> | record | --> | record | --> none
//!                    +--------------------------------------+     +--------+     +--------+
//! ```
//!
//! A key is entered once into the hash and once into its tree. A further change of it only puts a record in front of
//! the others, with one store.
//!
//! Guarantees:
//!
//! - A reader at version V sees the newest record with version <= V of each key, provided that the records up to V were
//!   inserted before it reads (the engine stores the visible version with release after inserting).
//! - Slices point into the arena and live as long as the borrow of the memtable. Nothing is moved or freed before.
//! - An insert that returns [`Full`] changed nothing.
//!
//! A read costs one step for each record of the key that is newer than the snapshot: hardly any for fresh snapshots,
//! and up to all the key's records for a snapshot as old as the memtable.
//!
//! The writer ensures that versions do not fall. Syncs, the log and reclamation are the engine's task.
//! It imports `base` and the scratch file of `disk`; it must not know trees or the log.

mod arena;
mod cursor;
mod hash;
mod node;
mod ordered;
mod ranges;
mod tree_entry;

use std::sync::Arc;

use crate::base::error::StoreError;
use crate::base::key::{Direction, KeyRange, TreeId, Version};
use crate::base::sync::atomic::{AtomicUsize, Ordering};
use crate::disk::{Disk, ScratchFile};
use arena::{Arena, AtomicRef, Fill, Record};
pub use cursor::RangeChange;
pub(crate) use cursor::RangeCursor;
use hash::{Index, KeyHash, Table};
use node::{NODE_ENTRIES, Node};
pub use ranges::{BOUNDARIES_MAX, Stretch};
use tree_entry::TreeEntry;

/// Number of chains in the directory of trees; further trees share chains.
const DIRECTORY_CHAINS: usize = 256;

/// Longest key or value: the largest 32-bit length below the mark of a deletion.
const LENGTH_MAX: usize = u32::MAX as usize - 1;

/// The arena has no room for the record; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Result of a lookup in the memtable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup<'m> {
    /// Nothing that the snapshot sees: read the layer below.
    Absent,
    /// Deleted.
    Deleted,
    /// Its value.
    Value(&'m [u8]),
}

impl<'m> Lookup<'m> {
    #[inline]
    fn of(record: Option<Record<'m>>) -> Lookup<'m> {
        match record {
            None => Lookup::Absent,
            Some(Record { value: None, .. }) => Lookup::Deleted,
            Some(Record { value: Some(value), .. }) => Lookup::Value(value),
        }
    }
}

/// One change with its tree, as a checkpoint merges it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeChange<'m> {
    /// The tree.
    pub tree: TreeId,
    /// Key, value, version.
    pub entry: RangeChange<'m>,
}

/// The readers' side. The fields of a lookup share one cache line, apart from the fields that inserts change.
#[repr(C, align(64))]
pub struct Memtable {
    arena: Arena,
    index: Index,
    /// Number of keys in the trees of boundaries (see `ranges.rs`): 0 if no range was deleted.
    boundaries: AtomicUsize,
    directory: [AtomicRef<TreeEntry>; DIRECTORY_CHAINS],
    keys: AtomicUsize,
    nodes: AtomicUsize,
    used_bytes: AtomicUsize,
}

/// The only right to insert. Dropping it freezes the memtable.
pub struct MemtableWriter {
    table: Arc<Memtable>,
    fill: Fill,
    newest: Version,
}

impl Memtable {
    /// An empty memtable of at most `arena_bytes`; memory is allocated as it fills.
    pub fn new(arena_bytes: usize) -> std::io::Result<(Arc<Memtable>, MemtableWriter)> {
        Arena::new(arena_bytes).map(Memtable::over)
    }

    /// An empty memtable in a file: the kernel may write its content to the disk and reclaim the memory.
    pub(crate) fn in_file(file: &ScratchFile) -> std::io::Result<(Arc<Memtable>, MemtableWriter)> {
        Arena::in_file(file).map(Memtable::over)
    }

    /// An empty memtable in the memory of a discarded one, which saves the kernel's zeroing of all its pages. While the
    /// old one's writer is alive it allocates new memory.
    pub fn reuse(self) -> std::io::Result<(Arc<Memtable>, MemtableWriter)> {
        self.arena.reuse().map(Memtable::over)
    }

    fn over((arena, fill): (Arena, Fill)) -> (Arc<Memtable>, MemtableWriter) {
        let table = Arc::new(Memtable {
            arena,
            index: Index::new(),
            boundaries: AtomicUsize::new(0),
            directory: std::array::from_fn(|_| AtomicRef::none()),
            keys: AtomicUsize::new(0),
            nodes: AtomicUsize::new(0),
            used_bytes: AtomicUsize::new(0),
        });
        let writer = MemtableWriter { table: Arc::clone(&table), fill, newest: Version(0) };
        (table, writer)
    }

    /// The newest record of a key that a snapshot of `version` sees.
    #[inline]
    pub fn get(&self, version: Version, tree: TreeId, key: &[u8]) -> Lookup<'_> {
        let Some(table) = self.index.table_alone() else {
            let is_empty = self.index.is_empty();
            return if is_empty { Lookup::Absent } else { self.get_beside_ranges(version, tree, key) };
        };
        // A tree without changes, such as one that others refer to, needs no hash.
        if self.tree_entry(tree).is_none() {
            return Lookup::Absent;
        }
        self.get_hashed(table, self.index.hash(tree, key), version, tree, key)
    }

    /// The same if the hash alone answers. Not inlined, so that a read of an empty memtable does not save its registers.
    #[inline(never)]
    fn get_hashed(&self, table: Table, hash: KeyHash, version: Version, tree: TreeId, key: &[u8]) -> Lookup<'_> {
        let place = table.find(&self.arena, hash, tree, key);
        Lookup::of(place.and_then(|place| self.arena.visible(place, version)))
    }

    /// The same if ranges were deleted.
    #[cold]
    #[inline(never)]
    fn get_beside_ranges(&self, version: Version, tree: TreeId, key: &[u8]) -> Lookup<'_> {
        let deleted = self.deletion_of(version, tree, key);
        let place = self.index.find(&self.arena, self.index.hash(tree, key), tree, key);
        match place.and_then(|place| self.arena.visible(place, version)) {
            Some(record) if record.version >= deleted => Lookup::of(Some(record)),
            _ if deleted > Version(0) => Lookup::Deleted,
            _ => Lookup::Absent,
        }
    }

    /// False if the tree has no change. Costs a load or two, less than the lookup of a key.
    #[inline]
    pub(crate) fn may_change(&self, tree: TreeId) -> bool {
        !self.is_empty() && (self.has_ranges() || self.tree_entry(tree).is_some())
    }

    /// The version that last changed a key.
    pub fn latest(&self, tree: TreeId, key: &[u8]) -> Option<Version> {
        let place = self.index.find(&self.arena, self.index.hash(tree, key), tree, key);
        let newest = place.map(|place| self.arena.newest(place).version);
        let deleted = self.has_ranges().then(|| self.deletion_of(Version(u64::MAX), tree, key));
        newest.max(deleted.filter(|deleted| *deleted > Version(0)))
    }

    /// True if a key of the range was changed by a version above `version`.
    pub fn changed_since(&self, version: Version, tree: TreeId, range: KeyRange<'_>) -> bool {
        if self.has_ranges() && self.is_range_deleted_since(version, tree, range) {
            return true;
        }
        let newest = self.tree_entry(tree).map(|entry| entry.newest.load(Ordering::Acquire));
        if newest.is_none_or(|newest| newest <= version.0) {
            return false;
        }
        self.scan(Version(u64::MAX), tree, range, Direction::Forward).any(|change| change.version > version)
    }

    /// Allocates the memory that [`MemtableWriter::wants_memory`] has requested. For a background thread; one thread at a time.
    pub(crate) fn populate(&self) {
        self.arena.populate();
    }

    /// Prefetches the memory that an insert of this key reads first.
    pub(crate) fn foresee(&self, tree: TreeId, key: &[u8]) {
        self.index.foresee(&self.arena, self.index.hash(tree, key));
    }

    /// Prefetches what it reads next, some time after [`Memtable::foresee`].
    pub(crate) fn foresee_key(&self, tree: TreeId, key: &[u8]) {
        self.index.foresee_key(&self.arena, self.index.hash(tree, key));
    }

    /// The trees with changed keys or deleted ranges, in order. Allocates: for checkpoints.
    pub fn trees(&self) -> Vec<TreeId> {
        let mut trees = Vec::new();
        for chain in &self.directory {
            let mut at = chain.load();
            while let Some(entry) = at.map(|place| self.arena.get(place)) {
                trees.push(ranges::owner_of(TreeId(entry.id.load(Ordering::Relaxed))));
                at = entry.next.load();
            }
        }
        trees.sort_unstable();
        trees.dedup();
        trees
    }

    /// Every key with its newest record, by tree and key, even if a later range deletion covers it. For a frozen memtable.
    pub fn changes(&self) -> impl Iterator<Item = TreeChange<'_>> {
        self.changes_of(self.trees())
    }

    /// The same for some trees, in this order.
    pub(crate) fn changes_of(&self, trees: Vec<TreeId>) -> impl Iterator<Item = TreeChange<'_>> {
        trees.into_iter().flat_map(move |tree| {
            let changes = self.scan(Version(u64::MAX), tree, KeyRange::ALL, Direction::Forward);
            changes.map(move |entry| TreeChange { tree, entry })
        })
    }

    /// Allocated bytes of the arena, of all kinds.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Whether its memory is in a file.
    pub(crate) fn is_in_file(&self) -> bool {
        self.arena.is_in_file()
    }

    /// Number of pages of its file that the disk has failed to read back. Reads of them have returned zeros.
    #[inline]
    pub(crate) fn lost(&self) -> u64 {
        self.arena.lost()
    }

    /// Size of the arena in bytes.
    pub fn arena_bytes(&self) -> usize {
        self.arena.bytes()
    }

    /// Number of keys, including deleted ones, and of boundaries of deleted ranges.
    pub fn len(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// True if nothing was inserted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn tree_entry(&self, tree: TreeId) -> Option<&TreeEntry> {
        let mut at = self.directory[tree.0 as usize % DIRECTORY_CHAINS].load();
        loop {
            let entry = self.arena.get(at?);
            if entry.id.load(Ordering::Relaxed) == tree.0 {
                return Some(entry);
            }
            at = entry.next.load();
        }
    }
}

impl MemtableWriter {
    /// An empty memtable of this size in a scratch file, or in memory if the disk has no such files.
    pub(crate) fn in_scratch(disk: &dyn Disk, bytes: usize) -> Result<MemtableWriter, StoreError> {
        let file = disk.scratch(bytes as u64);
        let file = file.map_err(|error| StoreError::io("make a file for a large transaction", error))?;
        let made = match &file {
            Some(file) => Memtable::in_file(file),
            None => Memtable::new(bytes),
        };
        let (_, writer) = made.map_err(|error| StoreError::io("map a large transaction's file", error))?;
        Ok(writer)
    }

    /// The memtable that this writer fills.
    pub fn table(&self) -> &Arc<Memtable> {
        &self.table
    }

    /// Inserts a record: a value, or `None` for a deletion. `version` must be at least that of the previous insert.
    pub fn insert(&mut self, version: Version, tree: TreeId, key: &[u8], value: Option<&[u8]>) -> Result<(), Full> {
        assert!(version >= self.newest, "versions do not fall: {version:?} after {:?}", self.newest);
        if key.len().max(value.map_or(0, <[u8]>::len)) > LENGTH_MAX {
            return Err(Full);
        }
        let table = &*self.table;
        let hash = table.index.hash(tree, key);
        let mut entry = table.tree_entry(tree);
        match table.index.find(&table.arena, hash, tree, key) {
            Some(place) => self.fill.push_record(place, version, value).ok_or(Full)?,
            None => {
                // The descent hides the cache miss.
                table.index.prefetch(&table.arena, hash);
                // Room for every step is checked first, so that no step can fail half-way.
                if !self.has_room(entry, key, value.map_or(0, <[u8]>::len), 0) {
                    return Err(Full);
                }
                let made = insert_key(table, &mut self.fill, entry, Insert { hash, version, tree, key, value });
                entry = Some(made.expect("room for it was checked"));
            }
        }
        if let Some(entry) = entry {
            entry.newest.store(version.0, Ordering::Release);
        }
        self.newest = version;
        table.used_bytes.store(table.arena.bytes() - self.fill.free_bytes(), Ordering::Relaxed);
        Ok(())
    }

    /// True, once for each stretch, if the memtable is about to grow into memory that the kernel has not allocated yet:
    /// [`Memtable::populate`] allocates it.
    pub(crate) fn wants_memory(&mut self) -> bool {
        self.fill.wants_memory()
    }

    /// Whether there is room for exactly what a new key takes, and for `more` bytes. First checks an upper bound that
    /// does not read the tree, and counts nodes only if that is too much.
    #[inline]
    fn has_room(&self, tree: Option<&TreeEntry>, key: &[u8], value_length: usize, more: usize) -> bool {
        let table = &*self.table;
        let free = self.fill.free_bytes();
        let new_tree = if tree.is_none() { size_of::<TreeEntry>() } else { 0 };
        let bytes = arena::key_bytes(key.len()) + arena::record_bytes(value_length) + new_tree + more;
        let bytes = bytes.saturating_add(table.index.growth_bytes(table.len(), 1));
        let with = |nodes: usize| bytes.saturating_add(nodes * size_of::<Node>());
        with(ordered::nodes_for_one_key(tree)) <= free || with(ordered::nodes_for(&table.arena, tree, key)) <= free
    }

    /// True if everything added to `demand` is certain to fit. It counts the worst case. After that no insert fails: the check of
    /// each insert requires exactly what it takes, and all inserts together take at most what is counted here.
    pub fn fits(&self, demand: &Demand) -> bool {
        let index = self.table.index.growth_bytes(self.table.len(), demand.records);
        let nodes = demand.nodes_max(self.table.nodes.load(Ordering::Relaxed)) * size_of::<Node>();
        let trees = demand.new_trees * size_of::<TreeEntry>();
        let Some(boundaries) = demand.boundaries_bytes(self.table.boundaries.load(Ordering::Relaxed)) else {
            return false;
        };
        let rest = index.saturating_add(nodes).saturating_add(trees).saturating_add(boundaries);
        demand.bytes.saturating_add(rest) <= self.fill.free_bytes()
    }
}

/// Upper bound of what a set of inserts allocates in the arena; see [`MemtableWriter::fits`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Demand {
    records: usize,
    bytes: usize,
    /// Nodes, if each record meets full nodes on its whole path.
    nodes: usize,
    /// Upper bound of trees that do not exist yet.
    new_trees: usize,
    /// The last of them, so that a tree is counted once unless its records alternate with those of many other trees.
    last_new_trees: [Option<TreeId>; NEW_TREES_KNOWN],
    /// Boundaries of deleted ranges that may be new.
    boundaries: usize,
    has_ranges: bool,
}

/// New trees that a [`Demand`] remembers.
const NEW_TREES_KNOWN: usize = 8;

impl Demand {
    /// Adds one insert.
    pub fn add(&mut self, writer: &MemtableWriter, tree: TreeId, key_length: usize, value_length: usize) {
        self.bytes = self.bytes.saturating_add(arena::key_bytes(key_length));
        self.bytes = self.bytes.saturating_add(arena::record_bytes(value_length));
        self.add_some(writer, tree, 1);
    }

    /// Adds this many inserts into one tree, without the bytes of their keys and values.
    pub(crate) fn add_some(&mut self, writer: &MemtableWriter, tree: TreeId, records: usize) {
        let entry = writer.table.tree_entry(tree);
        self.records += records;
        self.nodes += records * ordered::nodes_for_one_key(entry);
        if entry.is_none() && !self.last_new_trees.contains(&Some(tree)) {
            self.last_new_trees[self.new_trees % NEW_TREES_KNOWN] = Some(tree);
            self.new_trees += 1;
        }
    }

    /// Adds the bytes of this many inserts, in total.
    pub(crate) fn add_bytes(&mut self, records: usize, key_bytes: usize, value_bytes: usize) {
        let overhead = records * (arena::key_bytes(0) + arena::record_bytes(0) + 2 * arena::UNIT);
        self.bytes = self.bytes.saturating_add(key_bytes + value_bytes + overhead);
    }

    /// Maximum number of nodes that the records take if there are `existing` nodes: the lesser of two bounds.
    ///
    /// By records: each splits at most one node on each level that its tree has now. Above the old root at first one
    /// node is added, then one for each 20 splits on the old root's level.
    ///
    /// By nodes, for each tree: a leaf that is not full is split only after 20 inserts into it, since a split leaves
    /// half a node. A full leaf is split once, the last leaf twice, since ascending keys leave it full. Each split adds
    /// a child above, so branches add a twentieth; a full root adds a root. A tree of N nodes with k new keys takes at
    /// most 1.09 N + 2.09 + k / 18, which is not above 3 N + k / 10.
    fn nodes_max(&self, existing: usize) -> usize {
        let new_trees = 3 * self.new_trees;
        let together = 3 * existing + self.records / (NODE_ENTRIES / 4) + new_trees;
        if self.records == 1 { self.nodes } else { together.min(self.nodes + new_trees) }
    }
}

/// The error for a page of a memtable's file that the disk could not read back.
pub(crate) fn lost_error() -> StoreError {
    let source = std::io::Error::other("the disk could not read back a page of it");
    StoreError::io("read a large transaction's file", source)
}

/// The first record of a new key.
struct Insert<'i> {
    hash: KeyHash,
    version: Version,
    tree: TreeId,
    key: &'i [u8],
    value: Option<&'i [u8]>,
}

fn insert_key<'t>(
    table: &'t Memtable,
    fill: &mut Fill,
    entry: Option<&'t TreeEntry>,
    new: Insert<'_>,
) -> Option<&'t TreeEntry> {
    let keys = table.len();
    table.index.make_room(&table.arena, fill, keys)?;
    let entry = match entry {
        Some(entry) => entry,
        None => add_tree(table, fill, new.tree)?,
    };
    let place = fill.push_key(new.tree, new.key, new.version, new.value)?;
    let nodes = ordered::put(&table.arena, fill, entry, place)?;
    table.nodes.store(table.nodes.load(Ordering::Relaxed) + nodes, Ordering::Relaxed);
    table.index.put(&table.arena, new.hash, place);
    table.keys.store(keys + 1, Ordering::Relaxed);
    Some(entry)
}

/// Adds a tree at the front of its directory chain.
fn add_tree<'t>(table: &'t Memtable, fill: &mut Fill, tree: TreeId) -> Option<&'t TreeEntry> {
    let chain = &table.directory[tree.0 as usize % DIRECTORY_CHAINS];
    let place = fill.push::<TreeEntry>()?;
    let entry = table.arena.get(place);
    entry.id.store(tree.0, Ordering::Relaxed);
    entry.next.store(chain.load());
    chain.store(Some(place));
    Some(entry)
}
