//! Comparison of an open file's space with what its newest view reaches: each page must be exactly one of reachable,
//! free, waiting, or in flight.
//!
//! The disk stores only which pages are reachable (`verify.rs` compares that). Which of the others may be allocated is
//! in memory. A reachable page that was allocated would be overwritten under its readers.

use super::file::TreeFile;
use super::format::page::{Damage, META_PAGES, PageNo};
use super::state::space::{Bitmap, Space};
use super::verify::TreeReport;

impl TreeFile {
    /// Checks everything that the newest view reaches, and the allocation state. While the view is held none of its
    /// pages may be free, whatever checkpoints do meanwhile.
    pub fn verify(&self) -> TreeReport {
        let view = self.view();
        let (mut report, reached) = view.verify_reached();
        let space = self.shared.space();
        check(&space, &reached, &mut |page, what| report.fault(self.shared.damage(page, Damage(what))));
        report
    }
}

fn check(space: &Space, reached: &Bitmap, fault: &mut dyn FnMut(PageNo, &'static str)) {
    for extent in reached.extents(u32::MAX) {
        for page in extent.pages().filter(|page| !space.taken.get(page.0)) {
            fault(page, "reachable page that is free to be allocated");
        }
    }
    let mut waiting = Bitmap::default();
    for page in space.waiting.iter().flat_map(|waiting| &waiting.pages).flat_map(|extent| extent.pages()) {
        if !waiting.insert(page.0) {
            fault(page, "page that is listed twice as waiting");
        }
        if !space.taken.get(page.0) {
            fault(page, "waiting page that is free to be allocated");
        }
        if space.live.get(page.0) || page.0 < META_PAGES {
            fault(page, "waiting page that is in use");
        }
    }
    let taken = space.taken.extents(space.page_count).map(|extent| extent.count).sum::<u32>();
    if taken + space.free_count() != space.page_count {
        fault(PageNo(space.page_count), "free pages are counted wrong");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SystemDisk;
    use crate::log::LogPosition;
    use crate::tree::Pace;
    use crate::tree::format::page::Extent;
    use crate::tree::state::space::Waiting;
    use crate::{TreeId, Version};

    fn no_pace() -> Pace {
        Box::new(|_, _, _| Ok(()))
    }

    fn file(directory: &tempfile::TempDir) -> TreeFile {
        let disk = SystemDisk::new(directory.path()).unwrap();
        TreeFile::create(&disk, "tree", Version(0), LogPosition::default()).unwrap();
        let file = TreeFile::open(&disk, "tree", 1 << 30).unwrap().choose(0).unwrap();
        for version in 1..=3u64 {
            let mut writer = file.begin(no_pace()).unwrap();
            let rows: Vec<_> = (0..500u32).map(|number| (number.to_be_bytes(), [version as u8; 300])).collect();
            writer.merge(TreeId(1), rows.iter().map(|(key, value)| (&key[..], Some(&value[..])))).unwrap();
            writer.finish(Version(version), LogPosition::default()).unwrap();
        }
        file
    }

    #[track_caller]
    fn check_breaking(expected: &str, break_space: impl FnOnce(&mut Space)) {
        let directory = tempfile::tempdir().unwrap();
        let file = file(&directory);
        let report = file.verify();
        assert!(report.is_clean(), "{:?}", report.faults);
        break_space(&mut file.shared.space());
        let report = file.verify();
        assert!(report.faults.iter().any(|fault| fault.to_string().contains(expected)), "{:?}", report.faults);
    }

    fn first_live(space: &Space) -> Extent {
        let start = space.live.extents(u32::MAX).flat_map(|extent| extent.pages()).next().unwrap();
        Extent::one(start)
    }

    #[test]
    fn a_page_in_two_places_is_told() {
        check_breaking("reachable page that is free", |space| {
            let live = first_live(space);
            space.give_back(&[live]);
        });
        check_breaking("waiting page that is in use", |space| {
            let live = first_live(space);
            space.waiting.push_back(Waiting { sequence: 9, pages: vec![live] });
        });
        check_breaking("twice as waiting", |space| {
            let pages = space.waiting.back().unwrap().pages.clone();
            space.waiting.push_back(Waiting { sequence: 9, pages });
        });
        check_breaking("waiting page that is free", |space| {
            let pages = space.waiting.back().unwrap().pages.clone();
            space.give_back(&pages);
        });
        check_breaking("counted wrong", |space| {
            let free = (2..space.page_count).find(|page| !space.taken.get(*page)).unwrap();
            space.taken.insert(free);
        });
    }
}
