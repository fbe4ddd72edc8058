//! Attaching bulk builds: whole trees become visible at once, through one meta page.
//!
//! Writers are blocked from the check that the trees are empty until the meta page is durable; the builds' pages were written before.
//! The same checkpoint also merges the memtables. So the trees contain every version up to the new one, and replay starts after it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::base::error::StoreError;
use crate::base::key::{Direction, KeyRange, TreeId, Version};
use crate::base::limits::{LOOK_FOR_READERS_EVERY, READERS_WAIT_MAX};
use crate::base::readers::Reservation;
use crate::base::sync::thread;
use crate::disk::DIRECT_ALIGN;
use crate::engine::Engine;
use crate::engine::checkpoint::pace;
use crate::engine::checkpoint::pieces::merge_all;
use crate::engine::read::view::{Generation, View};
use crate::engine::write::transaction::Commit;
use crate::engine::write::writer::IdleWriter;
use crate::log::BatchBuilder;
use crate::tree::BulkRoot;

/// The few, catalog-like rows that are put with the builds.
const ROWS_MAX: usize = 4096;

impl Engine {
    pub(crate) fn attach(
        &self,
        builds: Vec<(TreeId, BulkRoot)>,
        rows: &[(TreeId, Vec<u8>, Vec<u8>)],
    ) -> Result<Commit, StoreError> {
        if rows.len() > ROWS_MAX {
            return Err(StoreError::Limit { what: "rows with an attachment", limit: ROWS_MAX as u64 });
        }
        self.look_for_files()?;
        let (merging, place, mut writer) = loop {
            let merging = self.hold_merging()?;
            // Before the writer's lock, so that no other thread waits for these readers.
            let place = self.reserve_state(READERS_WAIT_MAX)?;
            let writer = self.writer_while_merging()?;
            let table = writer.table.table();
            let is_ordinary = table.is_empty() || self.is_ordinary(table);
            if is_ordinary && self.claims.held().is_none() {
                break (merging, place, writer);
            }
            drop((writer, place, merging));
            match is_ordinary {
                // A large transaction ends first.
                true => thread::sleep(LOOK_FOR_READERS_EVERY),
                // Its memtable is merged before any writer waits.
                false => self.checkpoint()?,
            }
            self.check_writable()?;
        };
        let turn = self.take_turn();
        self.fail_stop.check()?;
        // Under `writer` and `turn` no batch is in flight: all versions are visible, or the log has failed.
        self.wait_until_visible(writer.next_version - 1)?;
        for (tree, _) in &builds {
            self.refuse_unless_empty(&writer.generation, writer.next_version - 1, *tree)?;
        }
        if !writer.table.table().is_empty() {
            self.rotate(&mut writer, READERS_WAIT_MAX)?;
        }
        let trees = builds.iter().map(|(tree, _)| *tree).chain(rows.iter().map(|(tree, ..)| *tree)).collect();
        let version = self.log_loaded(&mut writer, &trees)?;
        let attached = self.attach_at(version, &mut writer, builds, rows, place);
        if attached.is_err() && !self.is_poisoned() {
            // The version is used up: it changed nothing, and the next one follows.
            self.show(version);
        }
        drop((turn, merging));
        self.alarm.ring();
        attached.map(|()| Commit { version: Version(version) })
    }

    /// Takes the next version and logs a transaction that tells readers of changes which trees were loaded.
    ///
    /// It is logged before the meta page that makes the trees visible, and replay skips it. A crash between the two
    /// makes readers reset trees that have not changed; in the other order they would miss a load. For the same reason
    /// the rows put with the builds are not in it; their trees are reset too.
    pub(super) fn log_loaded(&self, writer: &mut IdleWriter, trees: &BTreeSet<TreeId>) -> Result<u64, StoreError> {
        let version = writer.next_version;
        let mut builder = BatchBuilder::new(DIRECT_ALIGN);
        builder.restart(version);
        builder.begin_transaction();
        trees.iter().for_each(|tree| builder.push_loaded(tree.0));
        builder.end_transaction();
        let len = (builder.len() as u64).next_multiple_of(DIRECT_ALIGN as u64);
        if writer.tail.room() < len {
            self.log.roll(&mut writer.tail)?;
        }
        if writer.tail.room() < len {
            return Err(StoreError::Limit {
                what: "trees of one attachment (log_segment_bytes)",
                limit: writer.tail.room(),
            });
        }
        writer.next_version = version + 1;
        let sealed = self.log.seal(&mut writer.tail, &mut builder);
        self.log.write(&sealed).and_then(|()| self.log.sync()).map_err(|error| {
            self.poison("writing to the log", &error);
            StoreError::Unknown(error.into())
        })?;
        Ok(version)
    }

    /// Under the writer's lock and `turn`.
    fn attach_at(
        &self,
        version: u64,
        writer: &mut IdleWriter,
        builds: Vec<(TreeId, BulkRoot)>,
        rows: &[(TreeId, Vec<u8>, Vec<u8>)],
        place: Reservation<'_, Generation>,
    ) -> Result<(), StoreError> {
        let mut tree = self.tree.begin(pace::unhindered(Arc::clone(&self.is_closing)))?;
        if let Some(table) = &writer.generation.frozen {
            merge_all(&mut tree, table, Version(version))?;
        }
        for (id, build) in builds {
            tree.attach(id, build)?;
        }
        for (id, rows) in sorted(rows) {
            tree.merge(id, rows.iter().map(|(key, value)| (*key, Some(*value))))?;
        }
        let end = writer.tail.end();
        let view = self.finish(tree, end).map_err(|error| match error {
            // The meta page may have reached the disk; then the whole load exists after reopening.
            StoreError::Io { source, .. } if self.is_poisoned() => StoreError::Unknown(source),
            other => other,
        })?;
        self.publish(place, |generation| {
            generation.tree = view;
            generation.frozen = None;
        });
        self.show(version);
        self.refresh(writer);
        self.forget_frozen(version);
        self.log.release_before(end.log_start().segment);
        Ok(())
    }

    fn refuse_unless_empty(&self, generation: &Generation, version: u64, tree: TreeId) -> Result<(), StoreError> {
        let mut is_empty = true;
        View { generation, version }.scan(tree, KeyRange::ALL, Direction::Forward, &mut |_, _| {
            is_empty = false;
            std::ops::ControlFlow::Break(())
        })?;
        if is_empty {
            Ok(())
        } else {
            Err(StoreError::Limit { what: "entries of a tree that a build is attached to", limit: 0 })
        }
    }
}

/// Rows by tree and key; of equal keys the last.
fn sorted(rows: &[(TreeId, Vec<u8>, Vec<u8>)]) -> BTreeMap<TreeId, BTreeMap<&[u8], &[u8]>> {
    let mut trees: BTreeMap<TreeId, BTreeMap<&[u8], &[u8]>> = BTreeMap::new();
    for (tree, key, value) in rows {
        trees.entry(*tree).or_default().insert(key, value);
    }
    trees
}
