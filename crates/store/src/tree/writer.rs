//! Tree writer: one checkpoint, from the view that it starts from to the view that it makes.
//!
//! 1. Merges and attachments write new pages beside the old ones; nothing that a meta page reaches is overwritten.
//! 2. [`TreeWriter::finish`] writes the catalog and the space map, syncs, writes the meta page, syncs.
//! 3. Only then is the new view returned, and the freed pages begin to wait for its readers.
//!
//! A writer that is dropped before the end has changed nothing: its pages are freed. After a failed sync the content of
//! the disk is unknown, so the file refuses further writers.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::build::chunk_writer::Pace;
use super::build::merge::{Cut, Edit, Merge};
use super::build::output::Output;
use super::build::space_map::{self, Places};
use super::bulk::BulkRoot;
use super::file::{Current, TreeFile};
use super::format::meta::{FORMAT_VERSION, Meta};
use super::format::page::{Extent, META_PAGES, PAGE_BYTES, PageNo};
use super::format::root::Root;
use super::pinned;
use super::read::catalog::{NAME_BYTES_MAX, Trees};
use super::read::view::TreeView;
use super::state::shared::Growth;
use super::state::space::{Bitmap, Waiting, join};
use crate::base::error::StoreError;
use crate::base::key::{TreeId, Version};
use crate::base::limits::TREES_MAX;
use crate::base::sync::atomic::Ordering;
use crate::log::LogPosition;

/// See the module's text.
pub struct TreeWriter<'f> {
    file: &'f TreeFile,
    base: Arc<TreeView>,
    output: Output,
    freed: Vec<Extent>,
    trees: Trees,
    /// Number of lost pages of the file when it began.
    lost: u64,
    /// Trees whose catalog row changes.
    touched: BTreeSet<u32>,
    /// A call failed half way; the writer can only be dropped.
    is_broken: bool,
}

impl TreeFile {
    /// Starts a checkpoint on the newest view.
    pub fn begin(&self, pace: Pace) -> Result<TreeWriter<'_>, StoreError> {
        self.shared.fail_stop().check()?;
        if self.is_writing.swap(true, Ordering::AcqRel) {
            return Err(StoreError::Busy);
        }
        let mut current = self.current();
        current.views.forget_gone();
        let newest = current.view.meta().sequence;
        let oldest = current.views.oldest().unwrap_or(newest);
        self.shared.space().release(oldest, newest);
        pinned::release_unreached(&self.shared, &current, newest);
        let output = Output::new(self.shared.clone(), current.next_sequence, Growth::Zeroed, pace);
        Ok(TreeWriter::new(self, current.view.clone(), output))
    }
}

impl<'f> TreeWriter<'f> {
    fn new(file: &'f TreeFile, base: Arc<TreeView>, output: Output) -> TreeWriter<'f> {
        let trees = base.trees().clone();
        let lost = file.shared.lost();
        TreeWriter { file, base, output, freed: Vec::new(), trees, lost, touched: BTreeSet::new(), is_broken: false }
    }

    /// Sets the name of a tree.
    pub fn set_name(&mut self, tree: TreeId, name: &str) -> Result<(), StoreError> {
        if name.len() > NAME_BYTES_MAX {
            return Err(StoreError::Limit { what: "name of a tree", limit: NAME_BYTES_MAX as u64 });
        }
        self.touch(tree)?;
        self.trees.set_name(tree.0, Some(name));
        Ok(())
    }

    /// Applies changes to a tree, in ascending order of keys. After an error the writer can only be dropped.
    pub fn merge<'e>(
        &mut self,
        tree: TreeId,
        changes: impl IntoIterator<Item = (&'e [u8], Option<&'e [u8]>)>,
    ) -> Result<(), StoreError> {
        self.merge_with(tree, &[], changes)
    }

    /// The same, in one pass, on the tree without some ranges of keys, which are ascending and disjoint.
    pub(crate) fn merge_with<'e>(
        &mut self,
        tree: TreeId,
        cuts: &[Cut<'_>],
        changes: impl IntoIterator<Item = (&'e [u8], Option<&'e [u8]>)>,
    ) -> Result<(), StoreError> {
        self.read_own_pages(tree)?;
        let root = self.merge_root(self.trees.root(tree.0), cuts, changes)?;
        self.trees.set_root(tree.0, root);
        self.touch(tree)
    }

    /// Deletes the keys from `from` on and below `to` (or to the end). Whole pages in between are freed without being
    /// rewritten, but each is read, for its entry count and its overflow values.
    pub fn delete_range(&mut self, tree: TreeId, from: &[u8], to: Option<&[u8]>) -> Result<(), StoreError> {
        if to.is_some_and(|to| to <= from) {
            return Ok(());
        }
        self.merge_with(tree, &[Cut { from, to }], std::iter::empty())
    }

    /// Makes a finished build the content of a tree, which must be empty.
    pub fn attach(&mut self, tree: TreeId, build: BulkRoot) -> Result<(), StoreError> {
        if self.trees.root(tree.0).page != PageNo::NONE {
            return Err(StoreError::Limit { what: "entries of a tree that a build is attached to", limit: 0 });
        }
        self.touch(tree)?;
        let (root, pages) = build.into_parts();
        self.output.adopt(pages);
        self.trees.set_root(tree.0, root);
        Ok(())
    }

    fn touch(&mut self, tree: TreeId) -> Result<(), StoreError> {
        if tree.0 >= TREES_MAX {
            return Err(StoreError::Limit { what: "tree id", limit: u64::from(TREES_MAX) });
        }
        self.touched.insert(tree.0);
        Ok(())
    }

    /// A tree that this checkpoint has already changed is read again, from pages that must be in the file for that.
    fn read_own_pages(&mut self, tree: TreeId) -> Result<(), StoreError> {
        if self.touched.contains(&tree.0) {
            self.output.flush()?;
            self.file.shared.cover()?;
        }
        Ok(())
    }

    fn merge_root<'e>(
        &mut self,
        root: Root,
        cuts: &[Cut<'_>],
        changes: impl IntoIterator<Item = Edit<'e>>,
    ) -> Result<Root, StoreError> {
        self.is_broken = true;
        let shared = self.file.shared.clone();
        #[expect(clippy::map_identity, reason = "it shortens the lifetime of the changes to that of `shared`")]
        let changes = changes.into_iter().map(|(key, value)| (key, value));
        let root = Merge::new(&shared, &mut self.output, &mut self.freed, cuts, changes).apply(root)?;
        self.is_broken = false;
        Ok(root)
    }

    /// Makes everything durable and visible: the trees now contain the versions up to `version`, and replay starts at `log_start`.
    pub fn finish(self, version: Version, log_start: LogPosition) -> Result<Arc<TreeView>, StoreError> {
        self.finish_at(version, log_start, version)
    }

    /// The same for trees that contain a part of the versions up to `reaches` in addition to what they contained before: replay
    /// starts where it did.
    pub(crate) fn finish_part(self, reaches: Version) -> Result<Arc<TreeView>, StoreError> {
        let (version, log_start) = (self.base.meta().version, self.base.meta().log_start);
        self.finish_at(version, log_start, reaches)
    }

    fn finish_at(
        mut self,
        version: Version,
        log_start: LogPosition,
        reaches: Version,
    ) -> Result<Arc<TreeView>, StoreError> {
        if self.is_broken {
            return Err(StoreError::Aborted);
        }
        let catalog = self.write_catalog()?;
        let (old_places, live) = {
            let current = self.file.current();
            (current.places.clone(), self.file.shared.space().live.clone())
        };
        let (places, live) = space_map::store(&mut self.output, live, &old_places, &mut self.freed)?;
        self.output.flush()?;
        // Checksums were valid when pages were read; a page lost after that would have been copied as zeros.
        self.file.shared.check_lost(self.lost)?;
        let sequence = self.output.sequence();
        let page_count = self.file.shared.space().page_count;
        let directories = places.directories.clone();
        // A part of an unfinished checkpoint stays in the trees until a checkpoint is finished.
        let reaches = reaches.max(version).max(self.base.meta().reaches);
        let format = FORMAT_VERSION;
        let meta = Meta { format, sequence, version, reaches, log_start, page_count, catalog, directories };
        // Before the meta page: once that is durable nothing may fail, because its pages would be freed.
        self.file.shared.cover()?;
        self.write_meta(&meta)?;
        Ok(self.publish(meta, places, live))
    }

    fn write_catalog(&mut self) -> Result<Root, StoreError> {
        let touched = std::mem::take(&mut self.touched);
        let rows: Vec<_> = touched.iter().map(|tree| (tree.to_be_bytes(), self.trees.row(*tree))).collect();
        let changes = rows.iter().map(|(key, row)| (key.as_slice(), row.as_deref()));
        self.merge_root(self.base.meta().catalog, &[], changes)
    }

    fn write_meta(&mut self, meta: &Meta) -> Result<(), StoreError> {
        let shared = &self.file.shared;
        let slot = PageNo((self.file.current().slot.0 + 1) % META_PAGES);
        let page = meta.encode(slot);
        debug_assert_eq!(page.len(), PAGE_BYTES);
        let written = shared
            .sync_all()
            .and_then(|()| shared.file().write_all_at(&page, slot.offset()))
            .and_then(|()| shared.sync_all());
        written.map_err(|error| {
            // Even if the write failed: how much of the page was written is unknown.
            shared.fail_stop().stop("write of a meta page", &error);
            shared.io_failure("sync", error)
        })?;
        self.file.current().slot = slot;
        Ok(())
    }

    fn publish(&mut self, meta: Meta, places: Places, live: Bitmap) -> Arc<TreeView> {
        let sequence = meta.sequence;
        let trees = std::mem::take(&mut self.trees);
        // The pages belong to the view now: they stay taken.
        self.output.release();
        let mut current = self.file.current();
        let mut space = self.file.shared.space();
        self.file.shared.live_pages.store(live.count() as u32, Ordering::Release);
        space.live = live;
        space.waiting.push_back(Waiting { sequence, pages: join(std::mem::take(&mut self.freed)) });
        let hold = current.views.hold(sequence, meta.directories.clone());
        let view = Arc::new(TreeView::new(self.file.shared.clone(), meta, trees, hold));
        let Current { view: newest, places: newest_places, next_sequence, .. } = &mut *current;
        *newest = view.clone();
        *newest_places = places;
        *next_sequence = sequence + 1;
        view
    }
}

impl Drop for TreeWriter<'_> {
    fn drop(&mut self) {
        self.file.is_writing.store(false, Ordering::Release);
    }
}
