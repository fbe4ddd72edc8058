//! The tree file: the current view, and queries of its space.

use std::sync::Arc;

use super::build::space_map::Places;
use super::format::page::{PAGE_BYTES, PageNo};
use super::read::view::TreeView;
use super::state::held::Held;
use super::state::shared::{GROWTH_PAGES_MAX, Growth, Shared};
use super::state::space::Space;
use crate::base::error::StoreError;
use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::base::sync::{Mutex, MutexGuard, PoisonError};
use crate::disk::ReadQueue;

/// Pages that checkpoints need, or that are free for them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FreePages {
    pub(crate) all: u64,
    /// Of these, adjacent ones for values of several pages.
    pub(crate) adjacent: u64,
}

/// The state that a writer starts from and replaces.
pub(super) struct Current {
    pub(super) view: Arc<TreeView>,
    pub(super) places: Places,
    /// The meta page of this state; the other one is written next.
    pub(super) slot: PageNo,
    /// Sequence of the next checkpoint.
    pub(super) next_sequence: u64,
    /// Views that may still be read.
    pub(super) views: Held,
}

/// An open tree file.
pub struct TreeFile {
    pub(super) shared: Arc<Shared>,
    current: Mutex<Current>,
    /// One writer at a time.
    pub(super) is_writing: AtomicBool,
}

impl TreeFile {
    pub(super) fn new(shared: Arc<Shared>, current: Current) -> TreeFile {
        TreeFile { shared, current: Mutex::new(current), is_writing: AtomicBool::new(false) }
    }

    /// The newest view.
    pub fn view(&self) -> Arc<TreeView> {
        self.current().view.clone()
    }

    /// Reads of this file past the page cache, if the data is larger than memory and the system supports such reads.
    pub(crate) fn read_queue(&self, places: usize, place_bytes: usize) -> Option<Box<dyn ReadQueue>> {
        let shared = &self.shared;
        // Data that fits into memory gets there sooner if all reads go through the page cache.
        if !shared.is_read_alone() {
            return None;
        }
        let queue = shared.file().read_queue(places, place_bytes);
        queue.inspect_err(|error| tracing::info!(%error, "no reads past the page cache")).ok()
    }

    /// Number of pages that the disk has failed to read so far, through the map or past the page cache.
    pub(crate) fn lost_pages(&self) -> u64 {
        self.shared.lost() + self.shared.refused.count()
    }

    /// Whether the map has lost a page.
    pub(crate) fn has_lost_in_map(&self) -> bool {
        self.shared.lost() > 0
    }

    /// Whether the file is shorter than it was: another program has cut it.
    pub(crate) fn is_cut(&self) -> bool {
        // The length comes second, since the file grows before its pages are counted.
        let bytes = PageNo(self.shared.space().page_count).offset();
        self.shared.file().len().is_ok_and(|len| len < bytes)
    }

    /// Number of damaged pages of the newest state, and the first.
    pub(crate) fn damaged_pages(&self) -> (u64, Option<StoreError>) {
        self.shared.damaged()
    }

    /// Number of pages that the newest state reaches.
    pub(crate) fn live_pages(&self) -> u32 {
        self.shared.live_pages.load(Ordering::Acquire)
    }

    /// Bytes by which the file may grow, if the disk has them.
    pub(crate) fn growth_bytes_max(&self) -> u64 {
        self.shared.growth_bytes_max(&self.shared.space())
    }

    /// Pages that a checkpoint can write without growing the file.
    pub(crate) fn free_pages(&self) -> FreePages {
        let (oldest, newest) = (self.oldest_view(), self.view().meta().sequence);
        self.free_pages_of(&mut self.shared.space(), oldest, newest)
    }

    fn free_pages_of(&self, space: &mut Space, oldest: u64, newest: u64) -> FreePages {
        space.release(oldest, newest);
        match self.shared.fill_holes(space) {
            true => FreePages { all: space.free_count().into(), adjacent: space.extent_pages().into() },
            false => FreePages { all: 0, adjacent: 0 },
        }
    }

    /// Reserves pages for checkpoints: as many as `needed` says, with those of them that must be adjacent. If some are missing,
    /// the file grows by zeros, by `ahead` pages more, as far as the disk has room. Returns the pages that it has then, durably:
    /// no other program can take their space, and bulk builds do not use them. `needed` is called under the lock of the space.
    pub(crate) fn reserve(&self, needed: &dyn Fn() -> FreePages, ahead: u32) -> Result<FreePages, StoreError> {
        let shared = &self.shared;
        let (mut has_grown, mut is_full) = (false, false);
        let outcome = loop {
            let (oldest, newest) = (self.oldest_view(), self.view().meta().sequence);
            let mut space = shared.space();
            let FreePages { all, adjacent } = needed();
            let (all, adjacent) = (in_pages(all), in_pages(adjacent));
            space.reserve(all, adjacent);
            let free = self.free_pages_of(&mut space, oldest, newest);
            let lacks_adjacent = adjacent > space.extent_pages();
            let at_end = if lacks_adjacent { adjacent.saturating_sub(space.free_at_end()) } else { 0 };
            let missing = all.saturating_sub(space.free_count()).max(at_end);
            let possible = shared.growth_bytes_max(&space) / PAGE_BYTES as u64;
            if missing == 0 || is_full || possible == 0 {
                break Ok(free);
            }
            has_grown = true;
            // In steps, so that a checkpoint that needs pages does not wait for all of it.
            let pages = missing.saturating_add(ahead).min(GROWTH_PAGES_MAX).min(in_pages(possible));
            match shared.grow_by(&mut space, pages, Growth::Zeroed) {
                Ok(()) => {}
                Err(StoreError::Full) => is_full = true,
                Err(error) => break Err(error),
            }
        };
        if has_grown {
            shared.file().sync_data().map_err(|error| shared.io_failure("sync", error))?;
        }
        outcome
    }

    /// Number of pages that the next checkpoint frees, whatever it merges.
    pub(crate) fn freed_by_next(&self) -> u32 {
        let (oldest, newest) = (self.oldest_view(), self.view().meta().sequence);
        self.shared.space().freed_by_next(oldest, newest)
    }

    /// Sequence of the oldest view that is held. Pages freed since may be reachable from a held view.
    pub fn oldest_view(&self) -> u64 {
        let current = self.current();
        current.views.oldest().unwrap_or(current.view.meta().sequence)
    }

    pub(super) fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A number of pages as the file counts them; no file has more.
fn in_pages(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
