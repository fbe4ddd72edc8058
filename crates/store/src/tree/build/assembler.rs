//! Builds nodes bottom-up: it receives entries for the leaves and writes pages on every level.
//!
//! One run is open on each level. When it is cut, its pages are written and become entries of the run above. A merge
//! feeds it old and new entries, a bulk build only new ones.

use super::output::Output;
use super::run::{Held, Run};
use crate::base::error::StoreError;
use crate::base::head::common_prefix;
use crate::tree::format::page::LEVEL_MAX;
use crate::tree::format::root::Root;

/// See the module's text.
#[derive(Default)]
pub(in crate::tree) struct Assembler<'a> {
    runs: Vec<Run<'a>>,
    /// Keys were added after the last one of the tree.
    pub(in crate::tree) append: bool,
}

/// The lowest fence: all keys are at or above it.
const LOWEST: &[u8] = &[];

impl<'a> Assembler<'a> {
    /// The open run of a level.
    pub(in crate::tree) fn run(&mut self, level: u8) -> &mut Run<'a> {
        let index = usize::from(level);
        while self.runs.len() <= index {
            self.runs.push(Run::default());
        }
        &mut self.runs[index]
    }

    /// Opens the run of a level at a fence, unless it continues from the previous node.
    pub(in crate::tree) fn open(&mut self, level: u8, low: &[u8]) {
        let run = self.run(level);
        if run.low.is_none() {
            run.low = Some(low.to_vec());
        }
    }

    /// Writes the pages that a heavy run can already fill.
    pub(in crate::tree) fn relieve(&mut self, level: u8, output: &mut Output) -> Result<(), StoreError> {
        if self.run(level).is_heavy() {
            let ends = self.run(level).plan_early(level);
            self.write(level, &ends, output)?;
        }
        Ok(())
    }

    /// Writes a level's whole run and closes it. The levels below are closed already.
    pub(super) fn close(&mut self, level: u8, output: &mut Output) -> Result<(), StoreError> {
        let append = self.append;
        let ends = self.run(level).plan_all(level, append);
        self.write(level, &ends, output)?;
        self.run(level).low = None;
        Ok(())
    }

    fn write(&mut self, level: u8, ends: &[usize], output: &mut Output) -> Result<(), StoreError> {
        if ends.is_empty() {
            return Ok(());
        }
        assert!(level < LEVEL_MAX, "a tree of sound branches is not that deep");
        let mut run = std::mem::take(self.run(level));
        let mut low = run.low.take().unwrap_or_default();
        let mut start = 0;
        self.open(level + 1, LOWEST);
        for &end in ends {
            let page = output.write_node(level, run.entries(start..end))?;
            self.run(level + 1).push(&low, &[], Held::Child { page, fresh: true });
            if end < run.len() {
                let next = run.key(end);
                let separator_len = if level == 0 { common_prefix(run.key(end - 1), next) + 1 } else { next.len() };
                low.clear();
                low.extend_from_slice(&next[..separator_len]);
            }
            start = end;
        }
        run.drop_front(start);
        run.low = Some(low);
        *self.run(level) = run;
        self.relieve(level + 1, output)
    }

    /// Closes all levels. Returns the resulting tree, without its entry count.
    pub(in crate::tree) fn finish(mut self, output: &mut Output) -> Result<Root, StoreError> {
        let mut level = 0;
        loop {
            let is_top = self.runs.iter().skip(usize::from(level) + 1).all(Run::is_empty);
            if is_top && self.run(level).is_empty() {
                return Ok(Root::default());
            }
            if let (true, Some(page)) = (is_top, self.run(level).only_child()) {
                return Ok(Root { page, level: level - 1, entries: 0 });
            }
            self.close(level, output)?;
            level += 1;
        }
    }
}
