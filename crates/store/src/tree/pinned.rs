//! A reader that stays: which freed pages it keeps from being used again.
//!
//! Freed pages wait until no view older than their freeing is held. Alone, that rule would make one reader that never ends
//! keep everything that any later checkpoint frees, also pages that were written long after its state: the file would grow
//! by all that is written, without end. So while an older view holds up the row, its space map is asked, which lies
//! in the file, untouched for as long as the view is held: what no held view reaches is free at once. Then the file
//! grows by what differs between the reader's state and the newest one, and by no more however long it stays.

use super::file::{Current, TreeFile};
use super::page::Extent;
use super::shared::Shared;
use super::space::{Bitmap, Space, Waiting, join};
use super::space_map::Places;

impl TreeFile {
    /// Pages that wait for readers of older states only.
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

/// Frees what waits for a held view that does not reach it. `newest` is the sequence of the newest durable meta page: what
/// it freed is left alone, for the other meta page reaches it.
pub(super) fn release_unreached(shared: &Shared, current: &Current, newest: u64) {
    if shared.space().waiting.front().is_none_or(|waiting| waiting.sequence >= newest) {
        return;
    }
    let mut reached = Bitmap::default();
    for directories in current.views.before(newest) {
        // A map that cannot be read says nothing: then all of it waits on.
        let Ok((_, live)) = Places::load(shared, directories) else { return };
        for index in 0..live.words() {
            reached.set_word(index, reached.word(index) | live.word(index));
        }
    }
    split(&mut shared.space(), &reached, newest);
}

/// Of what was freed before `newest` the reached pages wait on, together.
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
    use crate::tree::page::PageNo;

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
