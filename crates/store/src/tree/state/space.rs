//! Allocation of pages: free, reachable, or in flight.
//!
//! There are two bitmaps with a bit for each page of the file (32 KB of memory for each GB):
//!
//! - `live`: the newest meta page reaches it. This one is stored, by [`crate::tree::build::space_map`].
//! - `taken`: must not be allocated. Beside live pages these are pages in flight (written by a checkpoint or a bulk build
//!   and not yet reached by a meta page) and waiting pages: freed, but reached by an older view or by the older meta page.
//!
//! Free pages are allocated as runs, in ascending order from the end of the last search (next fit). So the pages of one
//! checkpoint are in few ascending stretches, which suits writing and pacing.
//!
//! On a disk with little space, pages are reserved for checkpoints ([`Space::reserve`]): `pages` free pages, and one
//! stretch of adjacent ones, the extent, for values of several pages. Every page of the file has its space on the disk
//! (`DiskFile::allocate`), so a free page is one that can be written. A checkpoint that takes at most `pages` pages, and
//! at most as many as the extent has for values of several pages, finds them all, whatever the order: values take the
//! extent's pages from its front, one after the other, and single pages come from the extent only when no other page is
//! free; from then on all free pages are the extent.

use std::collections::VecDeque;

use crate::tree::format::page::{Extent, META_PAGES, PageNo};

const WORD_BITS: u32 = u64::BITS;
/// Pages of the extent beyond the request, if the file has them, so that not every value of several pages needs a search.
const EXTENT_AHEAD_PAGES: u32 = 256;
const NO_EXTENT: Extent = Extent { start: PageNo::NONE, count: 0 };

/// A set of pages.
#[derive(Clone, Default, PartialEq, Eq)]
pub(in crate::tree) struct Bitmap {
    words: Vec<u64>,
}

impl Bitmap {
    pub(in crate::tree) fn get(&self, page: u32) -> bool {
        self.words.get((page / WORD_BITS) as usize).is_some_and(|word| word >> (page % WORD_BITS) & 1 == 1)
    }

    /// Adds a page; returns whether it was not in the set before.
    pub(in crate::tree) fn insert(&mut self, page: u32) -> bool {
        let index = (page / WORD_BITS) as usize;
        if index >= self.words.len() {
            self.words.resize(index + 1, 0);
        }
        let bit = 1 << (page % WORD_BITS);
        let is_new = self.words[index] & bit == 0;
        self.words[index] |= bit;
        is_new
    }

    /// Removes a page; returns whether it was in the set.
    pub(in crate::tree) fn remove(&mut self, page: u32) -> bool {
        let bit = 1 << (page % WORD_BITS);
        match self.words.get_mut((page / WORD_BITS) as usize) {
            Some(word) if *word & bit != 0 => {
                *word &= !bit;
                true
            }
            _ => false,
        }
    }

    /// 64 pages at once: those from `64 * index` on.
    pub(in crate::tree) fn word(&self, index: usize) -> u64 {
        self.words.get(index).copied().unwrap_or(0)
    }

    pub(in crate::tree) fn set_word(&mut self, index: usize, word: u64) {
        if index >= self.words.len() {
            self.words.resize(index + 1, 0);
        }
        self.words[index] = word;
    }

    pub(in crate::tree) fn words(&self) -> usize {
        self.words.len()
    }

    pub(in crate::tree) fn count(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// The first page in `from..end` that is in the set (`wanted`) or is not.
    fn find(&self, from: u32, end: u32, wanted: bool) -> Option<u32> {
        let mut index = (from / WORD_BITS) as usize;
        let mut skip = from % WORD_BITS;
        let last = end.div_ceil(WORD_BITS) as usize;
        // After the last word no page is in the set, so a search for one ends there.
        let last = if wanted { last.min(self.words.len()) } else { last };
        while index < last {
            let word = if wanted { self.word(index) } else { !self.word(index) };
            let word = word >> skip << skip;
            if word != 0 {
                let found = index as u32 * WORD_BITS + word.trailing_zeros();
                return (found < end).then_some(found);
            }
            (index, skip) = (index + 1, 0);
        }
        None
    }

    /// All pages of the set below `end`, as runs.
    pub(in crate::tree) fn extents(&self, end: u32) -> impl Iterator<Item = Extent> + '_ {
        let mut from = 0;
        std::iter::from_fn(move || {
            let start = self.find(from, end, true)?;
            let stop = self.find(start, end, false).unwrap_or(end);
            from = stop;
            Some(Extent { start: PageNo(start), count: stop - start })
        })
    }
}

/// Joins adjacent extents, so that the list of pages waiting for a long-lived reader stays short.
pub(in crate::tree) fn join(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.sort_unstable_by_key(|extent| extent.start);
    extents.dedup_by(|next, extent| {
        let touches = extent.start.0 + extent.count == next.start.0;
        if touches {
            extent.count += next.count;
        }
        touches
    });
    extents.shrink_to_fit();
    extents
}

/// Pages freed by one checkpoint, until nothing can reach them.
pub(in crate::tree) struct Waiting {
    /// The checkpoint that freed them: views with a lower sequence reach them.
    pub(in crate::tree) sequence: u64,
    pub(in crate::tree) pages: Vec<Extent>,
}

/// See the module's text.
pub(in crate::tree) struct Space {
    pub(in crate::tree) live: Bitmap,
    pub(in crate::tree) taken: Bitmap,
    /// Pages of the file.
    pub(in crate::tree) page_count: u32,
    pub(in crate::tree) waiting: VecDeque<Waiting>,
    /// Free pages that bulk builds leave to checkpoints.
    reserved: u32,
    /// Free pages for values of several pages.
    extent: Extent,
    free_count: u32,
    cursor: u32,
    /// Where the last search for a run ended; otherwise each search would scan the same fragments.
    run_cursor: u32,
    /// No run of this many free pages was found, and none was freed since.
    no_run_of: u32,
}

impl Space {
    /// The space of a file of `page_count` pages in which `taken` are not free. The meta pages never are.
    pub(in crate::tree) fn new(live: Bitmap, mut taken: Bitmap, page_count: u32, waiting: VecDeque<Waiting>) -> Space {
        for page in 0..META_PAGES {
            taken.insert(page);
        }
        let taken_count = taken.extents(page_count).map(|extent| extent.count).sum::<u32>();
        let free_count = page_count.saturating_sub(taken_count);
        Space {
            live,
            taken,
            page_count,
            waiting,
            reserved: 0,
            extent: NO_EXTENT,
            free_count,
            cursor: META_PAGES,
            run_cursor: META_PAGES,
            no_run_of: u32::MAX,
        }
    }

    pub(in crate::tree) fn free_count(&self) -> u32 {
        self.free_count
    }

    /// Pages of the extent.
    pub(in crate::tree) fn extent_pages(&self) -> u32 {
        self.extent.count
    }

    /// Reserves free pages for checkpoints, `adjacent` of them in one stretch, as far as they exist.
    pub(in crate::tree) fn reserve(&mut self, pages: u32, adjacent: u32) {
        self.reserved = pages;
        if adjacent == 0 {
            self.extent = NO_EXTENT;
        } else if self.extent.count < adjacent && adjacent < self.no_run_of {
            self.extent = self.longest_stretch(adjacent.saturating_add(EXTENT_AHEAD_PAGES));
            if self.extent.count < adjacent {
                self.no_run_of = adjacent;
            }
        }
    }

    /// The first stretch of at least `most` free pages, cut to that, or else the longest.
    fn longest_stretch(&self, most: u32) -> Extent {
        let (mut longest, mut from) = (NO_EXTENT, META_PAGES);
        while longest.count < most
            && let Some(start) = self.taken.find(from, self.page_count, false)
        {
            let limit = start.saturating_add(most).min(self.page_count);
            from = self.taken.find(start, limit, true).unwrap_or(limit);
            if from - start > longest.count {
                longest = Extent { start: PageNo(start), count: from - start };
            }
        }
        longest
    }

    /// The next run of at most `most` free pages, up to the next multiple of `stretch`: runs taken one after the other
    /// form whole stretches of the file, which suit huge pages of the page cache. Pages of the extent come last, one at a
    /// time, and only for a checkpoint.
    pub(super) fn take_some(&mut self, stretch: u32, most: u32, is_checkpoint: bool) -> Option<Extent> {
        if self.free_count == 0 || most == 0 {
            return None;
        }
        let end = self.page_count;
        let found = self.find_single(self.cursor, end).or_else(|| self.find_single(META_PAGES, self.cursor.min(end)));
        let Some(start) = found else { return self.take_of_extent(1, is_checkpoint) };
        let end = if start < self.extent.start.0 { end.min(self.extent.start.0) } else { end };
        let stretch_end = (start / stretch.max(1)).saturating_add(1).saturating_mul(stretch.max(1));
        let limit = stretch_end.min(start.saturating_add(most)).min(end);
        let end = self.taken.find(start, limit, true).unwrap_or(limit);
        self.cursor = end;
        Some(self.mark(start, end))
    }

    /// The next run of exactly `count` free pages; for a checkpoint from the extent, if there is no other.
    pub(super) fn take_run(&mut self, count: u32, is_checkpoint: bool) -> Option<Extent> {
        if count > self.free_count {
            return None;
        }
        if count < self.no_run_of {
            let start = self.find_run(self.run_cursor, count).or_else(|| self.find_run(META_PAGES, count));
            if let Some(start) = start {
                self.run_cursor = start + count;
                return Some(self.mark(start, start + count));
            }
            if self.extent.count < count {
                self.no_run_of = count;
            }
        }
        self.take_of_extent(count, is_checkpoint)
    }

    /// The first pages of the extent.
    fn take_of_extent(&mut self, count: u32, is_checkpoint: bool) -> Option<Extent> {
        let left = self.extent.count.checked_sub(count).filter(|_| is_checkpoint)?;
        let taken = self.mark(self.extent.start.0, self.extent.start.0 + count);
        self.extent = Extent { start: PageNo(taken.end()), count: left };
        Some(taken)
    }

    /// A free page in `from..end` outside of the extent.
    fn find_single(&self, from: u32, end: u32) -> Option<u32> {
        let page = self.taken.find(from, end, false)?;
        if self.extent.holds(PageNo(page)) { self.taken.find(self.extent.end(), end, false) } else { Some(page) }
    }

    /// A run of free pages outside of the extent.
    fn find_run(&self, mut from: u32, count: u32) -> Option<u32> {
        while let Some(start) = self.find_single(from, self.page_count) {
            let limit = start.checked_add(count).filter(|limit| *limit <= self.page_count)?;
            let stop = self.taken.find(start, limit, true).unwrap_or(limit);
            if self.extent.count > 0 && start < self.extent.start.0 && self.extent.start.0 < stop {
                from = self.extent.end();
            } else if stop == limit {
                return Some(start);
            } else {
                from = stop;
            }
        }
        None
    }

    fn mark(&mut self, start: u32, end: u32) -> Extent {
        for page in start..end {
            self.taken.insert(page);
        }
        self.free_count -= end - start;
        Extent { start: PageNo(start), count: end - start }
    }

    /// Records that the file has grown to `page_count` pages; the new ones are free.
    pub(super) fn grow(&mut self, page_count: u32) {
        self.free_count += page_count.saturating_sub(self.page_count);
        self.page_count = self.page_count.max(page_count);
        self.no_run_of = u32::MAX;
    }

    /// Free pages at the end of the file.
    pub(in crate::tree) fn free_at_end(&self) -> u32 {
        (META_PAGES..self.page_count).rev().take_while(|page| !self.taken.get(*page)).count() as u32
    }

    /// Free pages that a bulk build may take.
    pub(super) fn unreserved(&self) -> u32 {
        self.free_count.saturating_sub(self.reserved)
    }

    /// Number of pages that wait only for the next checkpoint, which replaces the older meta page that reaches them.
    pub(in crate::tree) fn freed_by_next(&self, oldest_view: u64, durable: u64) -> u32 {
        let freed = self.waiting.iter().filter(|freed| freed.sequence <= oldest_view && freed.sequence == durable);
        freed.flat_map(|freed| &freed.pages).map(|extent| extent.count).sum()
    }

    /// Frees pages.
    pub(in crate::tree) fn give_back(&mut self, extents: &[Extent]) {
        for page in extents.iter().flat_map(|extent| extent.pages()) {
            if self.taken.remove(page.0) {
                self.free_count += 1;
            }
        }
        self.no_run_of = u32::MAX;
    }

    /// Frees the pages that wait only for views below `oldest_view`. `newest` is the sequence of the newest durable
    /// meta page, so the other one on disk has at most `newest - 1`.
    pub(in crate::tree) fn release(&mut self, oldest_view: u64, newest: u64) {
        while self.waiting.front().is_some_and(|waiting| waiting.sequence <= oldest_view && waiting.sequence < newest) {
            if let Some(waiting) = self.waiting.pop_front() {
                self.give_back(&waiting.pages);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(page_count: u32) -> Space {
        Space::new(Bitmap::default(), Bitmap::default(), page_count, VecDeque::new())
    }

    #[test]
    fn free_runs_are_given_out_in_rising_order_and_come_back() {
        let mut space = space(200);
        assert_eq!(space.take_some(64, u32::MAX, true), Some(Extent { start: PageNo(2), count: 62 }));
        assert_eq!(space.take_some(1000, u32::MAX, true), Some(Extent { start: PageNo(64), count: 136 }));
        assert_eq!(space.take_some(1, u32::MAX, true), None);
        space.give_back(&[Extent { start: PageNo(10), count: 3 }, Extent { start: PageNo(100), count: 70 }]);
        assert_eq!(space.free_count(), 73);
        assert_eq!(space.take_run(71, true), None);
        assert_eq!(space.take_run(4, true), Some(Extent { start: PageNo(100), count: 4 }));
        assert_eq!(space.take_some(9, u32::MAX, true), Some(Extent { start: PageNo(10), count: 3 }));
        assert_eq!(space.take_some(9, u32::MAX, true), Some(Extent { start: PageNo(104), count: 4 }));
        assert_eq!(space.take_some(9, 0, true), None);
        assert_eq!(space.take_some(9, 2, true), Some(Extent { start: PageNo(108), count: 2 }));
    }

    /// A file in which these pages are free, as (start, count).
    fn with_free(stretches: &[(u32, u32)], page_count: u32) -> Space {
        let mut space = space(page_count);
        while space.take_some(u32::MAX, u32::MAX, true).is_some() {}
        let extents = stretches.iter().map(|&(start, count)| Extent { start: PageNo(start), count });
        space.give_back(&extents.collect::<Vec<_>>());
        space
    }

    #[test]
    fn the_extent_is_the_longest_stretch_or_the_first_one_that_suffices() {
        let mut space = with_free(&[(10, 5), (20, 1), (30, 9), (50, 2), (60, 4)], 70);
        let extent = |space: &mut Space, adjacent| {
            space.reserve(21, adjacent);
            (space.extent.start.0, space.extent.count)
        };
        assert_eq!(extent(&mut space, 0).1, 0);
        assert_eq!(extent(&mut space, 5), (30, 9));
        assert_eq!(extent(&mut space, 10), (30, 9));
        space.grow(2000);
        assert_eq!(extent(&mut space, 10), (70, 266));
    }

    #[test]
    fn a_checkpoint_within_its_reserve_finds_all_pages_whatever_the_order() {
        use rand::{RngExt, SeedableRng, rngs::SmallRng};
        for seed in 0..2000 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let mut free = Vec::new();
            let mut at = META_PAGES;
            while at < 400 {
                let count = rng.random_range(1..40);
                free.push((at, count));
                at += count + rng.random_range(1..30);
            }
            let mut space = with_free(&free, at + 1);
            space.reserve(space.free_count(), rng.random_range(1..60));
            let mut adjacent = rng.random_range(0..=space.extent_pages());
            let mut singles = space.free_count() - adjacent;
            while adjacent > 0 || singles > 0 {
                let count = rng.random_range(2..20).min(adjacent);
                if count > 0 && (singles == 0 || rng.random()) {
                    assert!(space.take_run(count, true).is_some(), "seed {seed}: {count} of {adjacent}");
                    adjacent -= count;
                } else if singles > 0 {
                    let taken = space.take_some(8, singles, true);
                    singles -= taken.unwrap_or_else(|| panic!("seed {seed}: no page for {singles}")).count;
                }
            }
        }
    }

    #[test]
    fn a_build_leaves_the_extent_and_the_reserve_alone() {
        let mut space = with_free(&[(10, 2), (20, 8)], 40);
        space.reserve(9, 6);
        assert_eq!((space.extent.start.0, space.extent.count, space.unreserved()), (20, 8, 1));
        assert_eq!(space.take_run(3, false), None);
        assert_eq!(space.take_some(100, 100, false), Some(Extent { start: PageNo(10), count: 2 }));
        assert_eq!(space.take_some(100, 100, false), None);
        // A checkpoint takes them if there are no others, one by one.
        assert_eq!(space.take_some(100, 100, true), Some(Extent::one(PageNo(20))));
        assert_eq!(space.take_run(3, true), Some(Extent { start: PageNo(21), count: 3 }));
    }

    #[test]
    fn extents_that_touch_become_one() {
        let extents = [(7, 1), (2, 3), (5, 1), (9, 2)].map(|(start, count)| Extent { start: PageNo(start), count });
        let joined = [(2, 4), (7, 1), (9, 2)].map(|(start, count)| Extent { start: PageNo(start), count });
        assert_eq!(join(extents.to_vec()), joined);
    }

    #[test]
    fn pages_wait_for_the_last_older_view_and_for_the_older_meta_page() {
        let mut space = space(10);
        let all = space.take_some(10, u32::MAX, true).into_iter().collect::<Vec<_>>();
        space.waiting.push_back(Waiting { sequence: 5, pages: all });
        space.release(4, 9);
        assert_eq!(space.free_count(), 0);
        space.release(5, 5);
        assert_eq!(space.free_count(), 0);
        space.release(5, 6);
        assert_eq!(space.free_count(), 8);
    }
}
