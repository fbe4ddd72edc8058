//! Verification and statistics: one pass over everything that a view reaches.
//!
//! It checks every page's checksum, number, kind and level; the order of keys in each page, and that they are within
//! the fences of the branch above (so across pages too); overflow values; the trees' entry counts; and that the space
//! map is exactly what is reachable: no page twice, none reachable and free, none in use and unreachable.
//!
//! Damage is reported with its position, and the pass continues with the other pages. No page is visited twice, so the
//! pass ends whatever the pages contain.

use super::build::space_map::Places;
use super::file::TreeFile;
use super::format::node::{Node, Stored};
use super::format::page::{Damage, Extent, META_PAGES, PAGE_BYTES, PageNo};
use super::format::root::Root;
use super::read::view::{TreeInfo, TreeView};
use super::state::shared::Shared;
use super::state::space::Bitmap;
use crate::base::error::StoreError;
use crate::base::key::TreeId;

/// Maximum number of faults in a report; further ones are only counted.
const FAULTS_LISTED_MAX: usize = 1000;

/// Statistics of one tree.
#[derive(Clone, Debug)]
pub struct TreeStat {
    /// Id, name, entries, depth.
    pub info: TreeInfo,
    /// Leaves.
    pub leaf_pages: u64,
    /// Branches.
    pub branch_pages: u64,
    /// Overflow pages.
    pub overflow_pages: u64,
    /// Used bytes of leaves.
    pub leaf_bytes: u64,
}

impl TreeStat {
    /// Used share of the leaves' bytes.
    pub fn fill(&self) -> f64 {
        self.leaf_bytes as f64 / (self.leaf_pages.max(1) * PAGE_BYTES as u64) as f64
    }
}

/// Result of a verification.
#[derive(Debug, Default)]
pub struct TreeReport {
    /// By tree.
    pub trees: Vec<TreeStat>,
    /// Number of pages that the view reaches, including meta pages, catalog and space map.
    pub reached_pages: u64,
    /// Pages of the catalog and of the space map.
    pub system_pages: u64,
    /// Faults with file and offset; at most 1,000.
    pub faults: Vec<StoreError>,
    /// Number of faults.
    pub fault_count: u64,
}

impl TreeReport {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.fault_count == 0
    }

    pub(super) fn fault(&mut self, error: StoreError) {
        self.fault_count += 1;
        if self.faults.len() < FAULTS_LISTED_MAX {
            self.faults.push(error);
        }
    }
}

/// Use of the file's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceStat {
    /// Pages of the file.
    pub pages: u64,
    /// Reached by the newest meta page, without the meta pages themselves.
    pub live: u64,
    /// Free.
    pub free: u64,
    /// Freed, but reached by an older view or the older meta page.
    pub waiting: u64,
    /// Written by a running checkpoint or bulk build.
    pub in_flight: u64,
}

impl TreeFile {
    /// The current use of pages.
    pub fn space_stat(&self) -> SpaceStat {
        let space = self.shared.space();
        let waiting = space.waiting.iter().flat_map(|w| &w.pages).map(|extent| u64::from(extent.count)).sum();
        let (pages, free, live) = (u64::from(space.page_count), u64::from(space.free_count()), space.live.count());
        let in_flight = pages.saturating_sub(live + free + waiting + u64::from(META_PAGES));
        SpaceStat { pages, live, free, waiting, in_flight }
    }
}

impl TreeView {
    /// Checks everything that the view reaches; none of its pages changes while the view is held.
    pub fn verify(&self) -> TreeReport {
        self.verify_reached().0
    }

    /// The same; also returns the reached pages.
    pub(super) fn verify_reached(&self) -> (TreeReport, Bitmap) {
        let mut walk = Verify { shared: self.shared(), seen: Bitmap::default(), report: TreeReport::default() };
        for page in 0..META_PAGES {
            walk.seen.insert(page);
        }
        let no_name = TreeInfo { tree: TreeId(0), name: None, entries: 0, depth: 0 };
        walk.tree(self.meta().catalog, no_name);
        walk.report.trees.clear();
        walk.space_map(&self.meta().directories);
        walk.report.system_pages = walk.seen.count() - u64::from(META_PAGES);
        for info in self.list() {
            walk.tree(self.root(info.tree), info);
        }
        walk.space(&self.meta().directories, self.meta().page_count);
        walk.report.reached_pages = walk.seen.count();
        (walk.report, walk.seen)
    }
}

struct Verify<'v> {
    shared: &'v Shared,
    seen: Bitmap,
    report: TreeReport,
}

/// A node to visit: its place, its level, and the fences of its keys.
struct Visit<'k> {
    place: PageNo,
    level: u8,
    low: &'k [u8],
    upper: Option<&'k [u8]>,
}

impl<'v> Verify<'v> {
    fn damage(&mut self, place: PageNo, what: &'static str) {
        let error = self.shared.damage(place, Damage(what));
        self.report.fault(error);
    }

    /// Marks pages as reached; false if one was reached before.
    fn reach(&mut self, extent: Extent) -> bool {
        let mut is_new = true;
        for page in extent.pages() {
            if !self.seen.insert(page.0) {
                self.damage(page, "page reached twice");
                is_new = false;
            }
        }
        is_new
    }

    fn tree(&mut self, root: Root, info: TreeInfo) {
        let mut stat = TreeStat { info, leaf_pages: 0, branch_pages: 0, overflow_pages: 0, leaf_bytes: 0 };
        let faults = self.report.fault_count;
        let mut entries = 0;
        if root.page != PageNo::NONE {
            let visit = Visit { place: root.page, level: root.level, low: &[], upper: None };
            self.node(visit, &mut stat, &mut entries);
        }
        // An unreadable page hides its entries; that was reported once.
        if entries != root.entries && faults == self.report.fault_count {
            self.damage(root.page, "tree holds another number of entries than the catalog says");
        }
        self.report.trees.push(stat);
    }

    /// Each recursion goes down one level, at most `LEVEL_MAX` levels.
    fn node(&mut self, visit: Visit<'_>, stat: &mut TreeStat, entries: &mut u64) {
        if !self.reach(Extent::one(visit.place)) {
            return;
        }
        let node = match self.shared.checked_node(visit.place, visit.level) {
            Ok(node) => node,
            Err(error) => return self.report.fault(error),
        };
        let outcome = if visit.level == 0 {
            stat.leaf_pages += 1;
            stat.leaf_bytes += node.used_bytes() as u64;
            *entries += node.count() as u64;
            self.leaf(&visit, &node, stat)
        } else {
            stat.branch_pages += 1;
            self.branch(&visit, &node, stat, entries)
        };
        if let Err(Damage(what)) = outcome {
            self.damage(visit.place, what);
        }
    }

    fn leaf(&mut self, visit: &Visit<'_>, leaf: &Node<'v>, stat: &mut TreeStat) -> Result<(), Damage> {
        check_keys(visit, leaf)?;
        for index in 0..leaf.count() {
            if let Stored::Overflow(value) = leaf.stored(index)? {
                match self.shared.overflow(value, true) {
                    Ok(_) => {
                        self.reach(value.extent());
                        stat.overflow_pages += u64::from(value.extent().count);
                    }
                    Err(error) => self.report.fault(error),
                }
            }
        }
        Ok(())
    }

    fn branch(
        &mut self,
        visit: &Visit<'_>,
        branch: &Node<'v>,
        stat: &mut TreeStat,
        entries: &mut u64,
    ) -> Result<(), Damage> {
        check_keys(visit, branch)?;
        let (mut low, mut separator) = (visit.low.to_vec(), Vec::new());
        for index in 0..=branch.count() {
            let place = branch.child(index)?;
            let upper = if index < branch.count() {
                branch.key_into(index, &mut separator)?;
                Some(separator.as_slice())
            } else {
                visit.upper
            };
            self.node(Visit { place, level: visit.level - 1, low: &low, upper }, stat, entries);
            std::mem::swap(&mut low, &mut separator);
        }
        Ok(())
    }

    /// The pages of the space map; [`Verify::space`] reports damaged ones.
    fn space_map(&mut self, directories: &[PageNo]) {
        if let Ok((places, _)) = Places::load(self.shared, directories) {
            for page in places.pages() {
                self.reach(Extent::one(page));
            }
        }
    }

    fn space(&mut self, directories: &[PageNo], page_count: u32) {
        let live = match Places::load(self.shared, directories) {
            Ok((_, live)) => live,
            Err(error) => return self.report.fault(error),
        };
        if self.report.fault_count > 0 {
            // Pages below a damaged page are not reached: a comparison would report the same damage many times.
            return;
        }
        for index in 0..live.words().max(self.seen.words()) {
            let differing = live.word(index) ^ self.seen.word(index);
            for bit in (0..u64::BITS).filter(|bit| differing >> bit & 1 == 1) {
                let page = PageNo(index as u32 * u64::BITS + bit);
                match (live.get(page.0), page.0 < META_PAGES) {
                    (_, true) => {}
                    (true, _) => self.damage(page, "page in use that nothing reaches"),
                    (false, _) => self.damage(page, "reachable page that the space map marks as free"),
                }
            }
        }
        if live.extents(u32::MAX).any(|extent| extent.start.0 + extent.count > page_count) {
            self.damage(PageNo(page_count), "space map counts pages beyond the end of the file");
        }
    }
}

/// Checks that keys ascend strictly and are within the fences.
fn check_keys(visit: &Visit<'_>, node: &Node<'_>) -> Result<(), Damage> {
    let (mut key, mut last) = (Vec::new(), Vec::new());
    for index in 0..node.count() {
        node.key_into(index, &mut key)?;
        if index > 0 && key <= last {
            return Err(Damage("keys out of order"));
        }
        if key.as_slice() < visit.low || visit.upper.is_some_and(|upper| key.as_slice() >= upper) {
            return Err(Damage("key outside the fences of the branch above"));
        }
        std::mem::swap(&mut key, &mut last);
    }
    Ok(())
}
