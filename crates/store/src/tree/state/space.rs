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
//! A value of several pages needs as many adjacent free pages. If the disk has no room for the file to grow, stretches
//! of free pages are kept for such values ([`Space::keep`]), so that single pages do not break them up. Values of at
//! most m pages each fill at least n - m + 1 pages of a stretch of n, whatever their order: when a value does not fit,
//! fewer than m pages are left.

use std::collections::VecDeque;

use crate::tree::format::page::{Extent, META_PAGES, PageNo};

const WORD_BITS: u32 = u64::BITS;

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

    /// The last page in `from..end` that is in the set (`wanted`) or is not.
    fn find_last(&self, from: u32, end: u32, wanted: bool) -> Option<u32> {
        let mut end = end;
        while end > from {
            let (index, bits) = ((end - 1) / WORD_BITS, (end - 1) % WORD_BITS + 1);
            let word = if wanted { self.word(index as usize) } else { !self.word(index as usize) };
            let word = word << (WORD_BITS - bits);
            if word != 0 {
                let found = end - 1 - word.leading_zeros();
                return (found >= from).then_some(found);
            }
            end = index * WORD_BITS;
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
    /// Pages that the running checkpoint has taken and not returned.
    pub(in crate::tree) merging: u32,
    /// Pages kept for checkpoints, including those that the running one has taken: bulk builds leave this many.
    pub(in crate::tree) promised: u32,
    /// Of these, pages for values of several pages.
    pub(in crate::tree) merging_runs: u32,
    /// Stretches kept for values of several pages, ascending. Some of their pages may have been taken since.
    kept: Vec<Extent>,
    /// The kept stretch where the last search ended.
    kept_cursor: usize,
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
            merging: 0,
            promised: 0,
            merging_runs: 0,
            kept: Vec::new(),
            kept_cursor: 0,
            free_count,
            cursor: META_PAGES,
            run_cursor: META_PAGES,
            no_run_of: u32::MAX,
        }
    }

    pub(in crate::tree) fn free_count(&self) -> u32 {
        self.free_count
    }

    /// The next run of at most `most` free pages, up to the next multiple of `stretch`: runs taken one after the other
    /// form whole stretches of the file, which suit huge pages of the page cache. Pages of kept stretches come last,
    /// one at a time, and only for a checkpoint.
    pub(super) fn take_some(&mut self, stretch: u32, most: u32, is_checkpoint: bool) -> Option<Extent> {
        if self.free_count == 0 || most == 0 {
            return None;
        }
        let end = self.page_count;
        let found = self.find_single(self.cursor, end).or_else(|| self.find_single(META_PAGES, self.cursor.min(end)));
        let Some(start) = found else {
            // The lowest page of a stretch, so that the rest of the stretch stays whole.
            let start = self.taken.find(META_PAGES, end, false).filter(|_| is_checkpoint)?;
            return Some(self.mark(start, start + 1));
        };
        let end = self.kept_after(start).map_or(end, |kept| kept.start.0);
        let stretch_end = (start / stretch.max(1)).saturating_add(1).saturating_mul(stretch.max(1));
        let limit = stretch_end.min(start.saturating_add(most)).min(end);
        let end = self.taken.find(start, limit, true).unwrap_or(limit);
        self.cursor = end;
        Some(self.mark(start, end))
    }

    /// The next run of exactly `count` free pages; for a checkpoint from a kept stretch, if one has room.
    pub(super) fn take_run(&mut self, count: u32, is_checkpoint: bool) -> Option<Extent> {
        if count > self.free_count {
            return None;
        }
        if count == 1 && !self.kept.is_empty() {
            return self.take_some(u32::MAX, 1, is_checkpoint);
        }
        if is_checkpoint && let Some(start) = self.find_kept(count) {
            return Some(self.mark(start, start + count));
        }
        if count >= self.no_run_of {
            return None;
        }
        let start = self.find_run(self.run_cursor, count).or_else(|| self.find_run(META_PAGES, count));
        let Some(start) = start else {
            self.no_run_of = count;
            return None;
        };
        self.run_cursor = start + count;
        Some(self.mark(start, start + count))
    }

    /// The first kept stretch that ends after a page.
    fn kept_after(&self, page: u32) -> Option<Extent> {
        self.kept.get(self.kept.partition_point(|kept| kept.end() <= page)).copied()
    }

    /// A free page in `from..end` that is not kept.
    fn find_single(&self, mut from: u32, end: u32) -> Option<u32> {
        loop {
            let page = self.taken.find(from, end, false)?;
            match self.kept_after(page).filter(|kept| kept.start.0 <= page) {
                Some(kept) => from = kept.end(),
                None => return Some(page),
            }
        }
    }

    /// A run of free pages outside of kept stretches.
    fn find_run(&self, mut from: u32, count: u32) -> Option<u32> {
        while let Some(start) = self.find_single(from, self.page_count) {
            let limit = start.checked_add(count).filter(|limit| *limit <= self.page_count)?;
            let stop = self.taken.find(start, limit, true).unwrap_or(limit);
            match self.kept_after(start).filter(|kept| kept.start.0 < stop) {
                Some(kept) => from = kept.end(),
                None if stop == limit => return Some(start),
                None => from = stop,
            }
        }
        None
    }

    /// A run of free pages at the start of the free part of a kept stretch.
    fn find_kept(&mut self, count: u32) -> Option<u32> {
        for step in 0..self.kept.len() {
            let index = (self.kept_cursor + step) % self.kept.len();
            let kept = self.kept[index];
            let mut from = kept.start.0;
            while let Some(start) = self.taken.find(from, kept.end(), false) {
                let Some(limit) = start.checked_add(count).filter(|limit| *limit <= kept.end()) else { break };
                match self.taken.find(start, limit, true) {
                    None => {
                        self.kept_cursor = index;
                        return Some(start);
                    }
                    Some(taken) => from = taken,
                }
            }
        }
        None
    }

    /// Keeps stretches of free pages, from the end of the file on, until `pages` pages of values of at most `longest`
    /// pages are certain to find room there, or no stretch is left. Returns how many pages are certain, at most
    /// `pages`, and how many are kept for them.
    pub(in crate::tree) fn keep(&mut self, pages: u32, longest: u32) -> (u32, u32) {
        let waste = longest.saturating_sub(1);
        let (mut certain, mut kept_pages, mut end) = (0, 0, self.page_count);
        self.kept.clear();
        while certain < pages
            && let Some(last) = self.taken.find_last(META_PAGES, end, false)
        {
            let first = self.taken.find_last(META_PAGES, last, true).map_or(META_PAGES, |taken| taken + 1);
            let useful = (last + 1 - first).saturating_sub(waste).min(pages - certain);
            if useful > 0 {
                let count = useful + waste;
                self.kept.push(Extent { start: PageNo(last + 1 - count), count });
                certain += useful;
                kept_pages += count;
            }
            end = first;
        }
        self.kept.reverse();
        (self.kept_cursor, self.no_run_of) = (0, u32::MAX);
        (certain, kept_pages)
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
    pub(super) fn unpromised(&self) -> u32 {
        (self.free_count + self.merging).saturating_sub(self.promised).min(self.free_count)
    }

    /// Pages that must become free before a bulk build may take `wanted`.
    pub(super) fn shortfall(&self, wanted: u32) -> u32 {
        wanted.saturating_add(self.promised).saturating_sub(self.free_count + self.merging)
    }

    /// Number of pages that checkpoints will find without growing the file: the free ones, those that the running
    /// checkpoint has taken, and those that the next one releases. `oldest_view` is the oldest view held; `durable` is
    /// the sequence of the meta page that will be durable when the next checkpoint begins.
    pub(in crate::tree) fn available(&self, oldest_view: u64, durable: u64) -> u32 {
        let released = self.waiting(|waiting| waiting.sequence <= oldest_view && waiting.sequence < durable);
        self.free_count + self.merging + released
    }

    /// Number of pages that wait only for the next checkpoint, which replaces the older meta page that reaches them.
    pub(in crate::tree) fn freed_by_next(&self, oldest_view: u64, durable: u64) -> u32 {
        self.waiting(|waiting| waiting.sequence <= oldest_view && waiting.sequence == durable)
    }

    fn waiting(&self, counts: impl Fn(&Waiting) -> bool) -> u32 {
        let waiting = self.waiting.iter().filter(|waiting| counts(waiting)).flat_map(|waiting| &waiting.pages);
        waiting.map(|extent| extent.count).sum()
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
    fn stretches_are_kept_from_the_end_on_as_far_as_they_are_needed() {
        let mut space = with_free(&[(10, 5), (20, 1), (30, 9), (50, 2), (60, 4)], 70);
        assert_eq!(space.keep(0, 0), (0, 0));
        // With values of three pages, a stretch of four fills two, one of nine fills seven, and one of two fills none.
        assert_eq!(space.keep(5, 3), (5, 9));
        assert_eq!(space.kept.iter().map(|kept| (kept.start.0, kept.count)).collect::<Vec<_>>(), [(34, 5), (60, 4)]);
        assert_eq!(space.keep(100, 3), (12, 18));
        assert_eq!(space.keep(100, 1), (21, 21));
        assert_eq!(space.keep(100, 10), (0, 0));
    }

    #[test]
    fn whatever_is_certain_finds_its_place_whatever_the_order() {
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
            let longest = rng.random_range(2..20);
            let wanted = rng.random_range(1..200);
            let (certain, kept) = space.keep(wanted, longest);
            assert!(certain <= wanted && kept <= space.free_count(), "seed {seed}");
            let (mut runs, mut singles) = (certain, space.free_count() - kept);
            while runs > 0 || singles > 0 {
                let count = rng.random_range(2..=longest).min(runs);
                if count > 0 && (singles == 0 || rng.random()) {
                    // The last one may be shorter than any value of several pages.
                    assert!(space.take_run(count, true).is_some(), "seed {seed}: {runs} pages of runs are left");
                    runs -= count;
                } else if singles > 0 {
                    singles -= space.take_some(8, singles, true).unwrap().count;
                }
            }
        }
    }

    #[test]
    fn a_build_leaves_kept_stretches_alone() {
        let mut space = with_free(&[(10, 2), (20, 8)], 40);
        assert_eq!(space.keep(6, 3), (6, 8));
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
