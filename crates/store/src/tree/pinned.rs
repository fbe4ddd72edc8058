//! Long-lived readers: which freed pages they keep from being reused.
//!
//! Freed pages wait until no view older than their freeing is held. With that rule alone one reader that never ends
//! would retain everything that later checkpoints free, even pages written long after its state, and the file would
//! grow without bound. So while an older view blocks the queue, its space map is read, which stays in the file as long
//! as the view is held: a page that no held view reaches is free at once. Then the file grows by the difference between
//! the reader's state and the newest one, however long the reader stays.

use super::build::space_map::Places;
use super::file::{Current, TreeFile};
use super::format::page::Extent;
use super::state::shared::Shared;
use super::state::space::{Bitmap, Space, Waiting, join};

impl TreeFile {
    /// Number of pages that wait only for readers of older states.
    pub(crate) fn pinned_pages(&self) -> u64 {
        let (oldest, newest) = (self.oldest_view(), self.view().meta().sequence);
        let space = self.shared.space();
        let is_pinned = |waiting: &&Waiting| waiting.sequence > oldest && waiting.sequence < newest;
        space
            .waiting
            .iter()
            .filter(is_pinned)
            .flat_map(|waiting| &waiting.pages)
            .map(|pages| u64::from(pages.count))
            .sum()
    }
}

/// Frees pages that wait for a held view that does not reach them. `newest` is the sequence of the newest durable meta
/// page; the pages that it freed are not touched, because the other meta page reaches them.
pub(super) fn release_unreached(shared: &Shared, current: &Current, newest: u64) {
    if shared.space().waiting.front().is_none_or(|waiting| waiting.sequence >= newest) {
        return;
    }
    let mut reached = Bitmap::default();
    for directories in current.views.before(newest) {
        // A map that cannot be read proves nothing: everything keeps waiting.
        let Ok((_, live)) = Places::load(shared, directories) else { return };
        for index in 0..live.words() {
            reached.set_word(index, reached.word(index) | live.word(index));
        }
    }
    split(&mut shared.space(), &reached, newest);
}

/// Of the pages freed before `newest`, the reached ones keep waiting, in one entry.
fn split(space: &mut Space, reached: &Bitmap, newest: u64) {
    let (mut kept, mut free) = (Vec::new(), Vec::new());
    let mut sequence = 0;
    while let Some(waiting) = space.waiting.pop_front_if(|waiting| waiting.sequence < newest) {
        sequence = waiting.sequence;
        for page in waiting.pages.iter().flat_map(|extent| extent.pages()) {
            if reached.get(page.0) { &mut kept } else { &mut free }.push(Extent::one(page));
        }
    }
    if !kept.is_empty() {
        space.waiting.push_front(Waiting { sequence, pages: join(kept) });
    }
    space.give_back(&join(free));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::format::page::PageNo;

    #[test]
    fn what_the_newest_checkpoint_freed_stays_for_the_other_meta_page() {
        let extent = |start| Extent { start: PageNo(start), count: 10 };
        let mut taken = Bitmap::default();
        assert!((0..50).all(|page| taken.insert(page)));
        let waiting =
            [(5, 10), (6, 20), (7, 30)].map(|(sequence, start)| Waiting { sequence, pages: vec![extent(start)] });
        let mut space = Space::new(Bitmap::default(), taken, 50, waiting.into());
        let mut reached = Bitmap::default();
        reached.insert(12);
        split(&mut space, &reached, 7);
        let left: Vec<_> = space.waiting.iter().map(|waiting| (waiting.sequence, waiting.pages.clone())).collect();
        assert_eq!(left, [(6, vec![Extent::one(PageNo(12))]), (7, vec![extent(30)])]);
        assert_eq!(space.free_count(), 19);
    }
}
