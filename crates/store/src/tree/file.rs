//! The tree file: the current view, and queries of its space.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::build::space_map::Places;
use super::format::page::PageNo;
use super::read::view::TreeView;
use super::state::held::Held;
use super::state::shared::{GROWTH_PAGES_MAX, Growth, Shared};
use crate::base::error::StoreError;
use crate::disk::ReadQueue;

/// Pages of values that need several adjacent pages each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Runs {
    pub(crate) pages: u32,
    /// Pages of the largest value.
    pub(crate) longest: u32,
}

impl Runs {
    /// The sum of two needs.
    pub(crate) fn and(self, other: Runs) -> Runs {
        Runs { pages: self.pages.saturating_add(other.pages), longest: self.longest.max(other.longest) }
    }

    /// Whether room for these is also room for `other`.
    pub(crate) fn covers(self, other: Runs) -> bool {
        self.pages >= other.pages && self.longest >= other.longest
    }
}

/// Pages that checkpoints will find without growing the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promised {
    /// Pages in all.
    pub(crate) pages: u32,
    /// Of these, pages in runs for values of several pages.
    pub(crate) runs: u32,
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

    /// Number of damaged pages of the newest state, and the first.
    pub(crate) fn damaged_pages(&self) -> (u64, Option<StoreError>) {
        self.shared.damaged()
    }

    /// Number of pages that the newest state reaches.
    pub(crate) fn live_pages(&self) -> u32 {
        self.shared.live_pages.load(Ordering::Acquire)
    }

    /// Number of pages that finished checkpoints have taken since the file was opened.
    pub(crate) fn merged_pages(&self) -> u64 {
        self.shared.merged_pages.load(Ordering::Acquire)
    }

    /// Promises `wanted` free pages to checkpoints, `runs` of them in runs of adjacent pages, growing the file if
    /// necessary. Returns the number that exists, which may be smaller if the disk is full. The pages are in the file,
    /// durably: no other program can take their space, and they exist after a crash.
    ///
    /// With `may_grow` false nothing is allocated. Bulk builds do not use promised pages.
    pub(crate) fn promise(&self, wanted: u32, runs: Runs, may_grow: bool) -> Result<Promised, StoreError> {
        let shared = &self.shared;
        let wanted_singles = wanted.saturating_sub(runs.pages);
        let (mut has_grown, mut is_full) = (false, !may_grow);
        let outcome = loop {
            let (oldest, newest) = (self.oldest_view(), self.view().meta().sequence);
            let mut space = shared.space();
            // The running checkpoint will be durable before the next one begins. If it was published since `newest` was
            // read, it has no pages any more, and the count is only too low.
            let durable = newest + u64::from(space.merging > 0);
            let merging_runs = space.merging_runs.min(runs.pages);
            let (certain, kept) = space.keep(runs.pages - merging_runs, runs.longest);
            let singles = space.available(oldest, durable).saturating_sub(kept + space.merging_runs);
            let missing_runs = match runs.pages - merging_runs - certain {
                0 => 0,
                missing => missing + runs.longest.saturating_sub(1).saturating_sub(space.free_at_end()),
            };
            let missing = wanted_singles.saturating_sub(singles) + missing_runs;
            if missing == 0 || is_full {
                space.promised = singles.min(wanted_singles) + kept + space.merging_runs;
                let runs = certain + merging_runs;
                break Ok(Promised { pages: singles + runs, runs });
            }
            has_grown = true;
            // In steps, so that a checkpoint that needs pages does not wait for all of it.
            match shared.grow_by(&mut space, missing.min(GROWTH_PAGES_MAX), Growth::Zeroed) {
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
