//! Attaching bulk builds: whole trees appear at once, through one meta page.
//!
//! Writers stand still from the check that the trees are empty until the meta page is durable; the pages themselves were
//! written before. What the memtable held goes into the same checkpoint, so that the new version is the newest of all and
//! replay starts behind it.

use std::collections::BTreeMap;

use super::checkpoint::merge_table;
use super::view::View;
use super::{Engine, lock};
use crate::error::Error;
use crate::key::{Direction, KeyRange, TreeId};
use crate::transaction::Commit;
use crate::tree::BulkRoot;

/// Few rows that go with the builds; catalog-like.
const ROWS_MAX: usize = 4096;

impl Engine {
    pub(crate) fn attach(
        &self,
        builds: Vec<(TreeId, BulkRoot)>,
        rows: &[(TreeId, Vec<u8>, Vec<u8>)],
    ) -> Result<Commit, Error> {
        if rows.len() > ROWS_MAX {
            return Err(Error::Limit { what: "rows with an attachment", limit: ROWS_MAX as u64 });
        }
        let _merging = self.hold_merging()?;
        let mut writer = self.writer_while_merging()?;
        let turn = lock(&self.turn);
        self.refresh(&mut writer);
        // Under `writer` and `turn` no batch is on its way: all versions are visible, or the log has failed.
        self.wait_until_visible(writer.next_version - 1)?;
        for (tree, _) in &builds {
            self.refuse_unless_empty(&writer.generation, writer.next_version - 1, *tree)?;
        }
        if !writer.table.table().is_empty() {
            self.rotate(&mut writer)?;
        }
        let version = writer.next_version;
        let mut tree = self.tree.begin(self.pace())?;
        if let Some(table) = &writer.generation.frozen {
            merge_table(&mut tree, table)?;
        }
        for (id, build) in builds {
            tree.attach(id, build)?;
        }
        for (id, rows) in sorted(rows) {
            tree.merge(id, rows.iter().map(|(key, value)| (*key, Some(*value))))?;
        }
        let log_start = writer.tail.position();
        let view = self.finish(tree, version, log_start)?;
        self.publish(|generation| {
            generation.tree = view;
            generation.frozen = None;
        });
        self.room_merged();
        writer.next_version = version + 1;
        self.show(version);
        self.refresh(&mut writer);
        self.forget_frozen();
        self.log.release_before(log_start.segment);
        drop(turn);
        Ok(Commit { version: crate::Version(version) })
    }

    fn refuse_unless_empty(&self, generation: &super::Generation, version: u64, tree: TreeId) -> Result<(), Error> {
        let mut is_empty = true;
        View { generation, version }.scan(tree, KeyRange::ALL, Direction::Forward, &mut |_, _| {
            is_empty = false;
            std::ops::ControlFlow::Break(())
        })?;
        if is_empty {
            Ok(())
        } else {
            Err(Error::Limit { what: "entries of a tree that a build is attached to", limit: 0 })
        }
    }
}

/// Rows by tree and key; of equal keys the last one.
fn sorted(rows: &[(TreeId, Vec<u8>, Vec<u8>)]) -> BTreeMap<TreeId, BTreeMap<&[u8], &[u8]>> {
    let mut trees: BTreeMap<TreeId, BTreeMap<&[u8], &[u8]>> = BTreeMap::new();
    for (tree, key, value) in rows {
        trees.entry(*tree).or_default().insert(key, value);
    }
    trees
}
