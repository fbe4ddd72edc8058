//! Verification report and statistics as text for operators.

use std::fmt;

use crate::engine::stats::Stats;
use crate::store::Store;
use crate::tree::{SpaceStat, TreeReport};

/// The content of a store; its text is what `sapsan stat` prints.
#[derive(Debug)]
pub struct Inventory {
    /// The trees as of the last checkpoint.
    pub report: TreeReport,
    /// Use of the tree file's pages.
    pub space: SpaceStat,
    /// State and counts.
    pub stats: Stats,
}

impl Store {
    /// Trees with depth and fill, space, and statistics.
    pub fn stat(&self) -> Inventory {
        Inventory { report: self.verify(), space: self.engine().tree.space_stat(), stats: self.stats() }
    }
}

impl fmt::Display for TreeReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries: u64 = self.trees.iter().map(|tree| tree.info.entries).sum();
        writeln!(out, "tree file: {} trees, {entries} entries, {} pages read", self.trees.len(), self.reached_pages)?;
        for fault in &self.faults {
            writeln!(out, "fault: {fault}")?;
        }
        let untold = self.fault_count - self.faults.len() as u64;
        if untold > 0 {
            writeln!(out, "and {untold} faults more")?;
        }
        Ok(())
    }
}

impl fmt::Display for Inventory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "{:<32} {:>12} {:>6} {:>9} {:>9} {:>9} {:>6}",
            "tree", "entries", "depth", "leaves", "branches", "overflow", "fill"
        )?;
        for tree in &self.report.trees {
            let name = tree.info.name.as_deref().unwrap_or("(no name)");
            writeln!(
                out,
                "{name:<32} {:>12} {:>6} {:>9} {:>9} {:>9} {:>5.0}%",
                tree.info.entries,
                tree.info.depth,
                tree.leaf_pages,
                tree.branch_pages,
                tree.overflow_pages,
                tree.fill() * 100.0
            )?;
        }
        let SpaceStat { pages, live, free, waiting, in_flight } = self.space;
        writeln!(out, "pages of 4 KB: {pages}; live {live}, free {free}, waiting {waiting}, in flight {in_flight}")?;
        let (states, pinned) = (self.stats.pinned_states, self.stats.pinned_pages);
        writeln!(out, "oldest reader: {states} states behind, it holds {pinned} of the waiting pages")?;
        writeln!(out, "newest version {}, checkpointed up to {}", self.stats.version, self.stats.tree_version)?;
        writeln!(out, "log: {} bytes in use; memtable: {} bytes", self.stats.log_bytes, self.stats.memtable_bytes)?;
        let (oldest, kept) = (self.stats.changes_oldest, self.stats.changes_kept_bytes);
        writeln!(
            out,
            "changes since version {oldest} can be read; {kept} bytes of log are kept only for readers of changes"
        )
    }
}
