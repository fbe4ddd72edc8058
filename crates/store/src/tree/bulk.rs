//! Bulk build: a whole tree bottom-up from sorted entries, with full leaves, written in long stretches.
//!
//! It runs concurrently with checkpoints and needs no log. Until a [`TreeWriter`](super::TreeWriter) attaches the
//! finished tree, no meta page reaches its pages, and a crash or a drop frees them. Pages are encoded on the caller's
//! thread and written by a second one (`chunk_writer.rs`).

use std::sync::Arc;

use super::build::assembler::Assembler;
use super::build::chunk_writer::Pace;
use super::build::output::Output;
use super::build::run::Held;
use super::file::TreeFile;
use super::format::page::{Extent, VALUE_INLINE_MAX};
use super::format::root::Root;
use super::read::whole::WholeTree;
use super::state::shared::{Growth, Shared};
use crate::base::error::StoreError;
use crate::base::limits::check_limits;

/// See the module's text.
pub struct BulkBuilder {
    shared: Arc<Shared>,
    output: Output,
    assembler: Assembler<'static>,
    last_key: Vec<u8>,
    entries: u64,
}

/// A finished tree that is in no view yet.
pub struct BulkRoot {
    shared: Arc<Shared>,
    root: Root,
    pages: Vec<Extent>,
}

impl TreeFile {
    /// Starts a bottom-up build; any number may run concurrently with a checkpoint.
    pub fn bulk(&self, pace: Pace) -> BulkBuilder {
        let sequence = self.current().next_sequence;
        BulkBuilder::new(self.shared.clone(), Output::new(self.shared.clone(), sequence, Growth::Allocated, pace))
    }
}

impl BulkBuilder {
    fn new(shared: Arc<Shared>, output: Output) -> BulkBuilder {
        let mut assembler = Assembler::default();
        assembler.append = true;
        assembler.open(0, &[]);
        BulkBuilder { shared, output, assembler, last_key: Vec::new(), entries: 0 }
    }

    /// Adds the next entry. Keys must rise strictly; otherwise an error is returned.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        check_limits(key, value)?;
        if self.entries > 0 && key <= self.last_key.as_slice() {
            return Err(StoreError::Limit { what: "equal or falling keys in a bulk build", limit: 0 });
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.entries += 1;
        if value.len() > VALUE_INLINE_MAX {
            let place = self.output.write_overflow(value)?;
            self.assembler.run(0).push(key, &[], Held::Overflow(place));
        } else {
            self.assembler.run(0).push_copy(key, value);
        }
        self.assembler.relieve(0, &mut self.output)
    }

    /// Entries so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Writes the remaining pages. The checkpoint that attaches the tree makes it durable and visible.
    pub fn finish(mut self) -> Result<BulkRoot, StoreError> {
        let root = self.assembler.finish(&mut self.output)?;
        self.output.settle()?;
        let pages = self.output.release();
        Ok(BulkRoot { shared: self.shared, root: Root { entries: self.entries, ..root }, pages })
    }
}

impl BulkRoot {
    /// Entries of the tree.
    pub fn entries(&self) -> u64 {
        self.root.entries
    }

    /// The entries in order.
    pub fn read(&self) -> Result<BulkCursor<'_>, StoreError> {
        self.shared.cover()?;
        let lost = self.shared.lost();
        Ok(BulkCursor { entries: WholeTree::new(&self.shared, self.root), shared: &self.shared, lost })
    }

    /// The tree and its pages, which the caller now has to free.
    pub(super) fn into_parts(mut self) -> (Root, Vec<Extent>) {
        (self.root, std::mem::take(&mut self.pages))
    }
}

/// Reads a finished build from its start to its end.
pub struct BulkCursor<'r> {
    entries: WholeTree<'r>,
    shared: &'r Shared,
    /// Number of lost pages before the first read.
    lost: u64,
}

impl BulkCursor<'_> {
    /// Moves to the next entry; false after the last.
    pub fn advance(&mut self) -> Result<bool, StoreError> {
        let is_any = self.entries.advance()?;
        // A lost leaf is a page of zeros and so no leaf; this check is for overflow values.
        self.shared.check_lost(self.lost)?;
        Ok(is_any)
    }

    /// The key; empty after the last entry.
    pub fn key(&self) -> &[u8] {
        self.entries.key()
    }

    /// The value.
    pub fn value(&self) -> Result<&[u8], StoreError> {
        self.entries.value()
    }
}

impl Drop for BulkRoot {
    fn drop(&mut self) {
        self.shared.give_back(&self.pages);
    }
}
