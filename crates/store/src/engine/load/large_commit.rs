//! Commit of large transactions: they are merged into unpublished trees while writers continue, and one meta page makes them visible.
//!
//! 1. The transaction's changes are merged into new pages. This takes longest, and no writer waits for it.
//! 2. The visible changes of other transactions are merged too, from the memtables. If they change keys of the watched
//!    trees, the transaction is revised. This is repeated until few changes are left.
//! 3. Under the writer's lock: the remaining changes, the last revision, the meta page. So the trees contain all
//!    versions before the transaction's and the transaction itself, and replay starts after it.
//!
//! If the large transaction and another one changed the same key, the large transaction's value wins: its revision knew
//! the other value.
//!
//! From the third round on, each batch of the committers is delayed, longer from round to round, so that others change
//! fewer keys in a round. No checkpoint can merge a memtable meanwhile. If writers fill both memtables, they wait. Then
//! the new trees are dropped, the memtable is merged, and the work starts again.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::large::{CHANGED_LAST_MAX, LargeTx, OWN, Revise};
use super::watching::Watching;
use crate::base::error::StoreError;
use crate::base::fail_stop::{Held, lock};
use crate::base::key::{TreeId, Version};
use crate::base::limits::{CATALOG, LOOK_AGAIN, READERS_WAIT_MAX};
use crate::disk::ScratchFile;
use crate::engine::Engine;
use crate::engine::checkpoint::pace;
use crate::engine::checkpoint::pieces::{merge_all, name_trees};
use crate::engine::checkpoint::room::{self, Need};
use crate::engine::read::view::View;
use crate::engine::write::changes::Changes;
use crate::engine::write::commit::SENDING;
use crate::engine::write::fold_results::Folds;
use crate::engine::write::transaction::Commit;
use crate::engine::write::writer::{IdleWriter, Writer};
use crate::log::{Edit, Operation};
use crate::memtable::{Lookup, Memtable};
use crate::tree::TreeWriter;

/// Rounds before the commit gives up. Each should take less time than the one before.
const ROUNDS_MAX: u32 = 16;
/// Maximum number of attempts to build the new trees.
const TRIES_MAX: usize = 3;
/// If the writer's lock is held this long, its holder is assumed to wait for a memtable that cannot be merged.
const WRITER_WAIT_MAX: Duration = Duration::from_millis(500);
/// Minimum delay of a batch while this commit wants the writer's lock; without it a committer would take the lock again at once.
const PAUSE_LEAST: Duration = Duration::from_millis(1);

/// The memtables merged so far into the new trees, each up to a version.
#[derive(Default)]
struct Merged {
    tables: Vec<(Arc<Memtable>, Version)>,
}

/// Why the trees could not be finished.
enum Unfinished {
    /// A writer waits for a memtable that cannot be merged meanwhile.
    WriterWaits,
    Failed(StoreError),
}

impl From<StoreError> for Unfinished {
    fn from(error: StoreError) -> Unfinished {
        Unfinished::Failed(error)
    }
}

impl Engine {
    pub(crate) fn scratch(&self, bytes: u64) -> Result<Option<ScratchFile>, StoreError> {
        self.disk.scratch(bytes).map_err(|error| StoreError::io("make a file for a large transaction", error))
    }

    pub(crate) fn commit_large(
        self: &Arc<Engine>,
        tx: &mut LargeTx,
        revise: &mut dyn Revise,
    ) -> Result<Commit, StoreError> {
        if tx.table().is_empty() {
            return Ok(Commit { version: Version(self.visible()) });
        }
        self.look_for_files()?;
        self.check_disk_for(tx)?;
        for _ in 0..TRIES_MAX {
            let tried = self.try_commit_large(tx, revise);
            self.watching.set_pause(Duration::ZERO);
            match tried {
                Ok(commit) => return Ok(commit),
                Err(Unfinished::Failed(error)) => return Err(error),
                Err(Unfinished::WriterWaits) => {}
            }
        }
        Err(StoreError::Busy)
    }

    /// Requires ample disk space: the new trees need space in addition to the old ones, and later checkpoints need
    /// space too.
    fn check_disk_for(&self, tx: &LargeTx) -> Result<(), StoreError> {
        let mut need = Need::default();
        for change in tx.table().changes() {
            let edit = change.entry.value.map_or(Edit::Delete, Edit::Put);
            need.add(&Operation { tree: change.tree.0, key: change.entry.key, edit });
        }
        need.keys = tx.table().len() as u64;
        let pages = need.pages(self.tree.live_pages().into());
        match self.disk.free_bytes() {
            Ok(Some(free)) if !room::is_ample(free, pages + self.room.needed_pages()) => Err(StoreError::Full),
            _ => Ok(()),
        }
    }

    fn try_commit_large(self: &Arc<Engine>, tx: &mut LargeTx, revise: &mut dyn Revise) -> Result<Commit, Unfinished> {
        let _merging = self.hold_merging()?;
        let place = self.reserve_state(READERS_WAIT_MAX)?;
        let begun = Instant::now();
        let mut tree = self.tree.begin(pace::of_bulk_build(Arc::clone(self)))?;
        let mut merged = Merged::default();
        tx.begin_late();
        merge_all(&mut tree, tx.table(), Version(u64::MAX))?;
        // Keys that `revise` has passed back because writers had waited long enough.
        let mut left = Vec::new();
        for round in 0..ROUNDS_MAX {
            self.watching.set_pause(Watching::pause_in(round));
            let mut changed = self.changed_by_others()?;
            let is_little = changed.len() <= CHANGED_LAST_MAX;
            changed.append(&mut left);
            if !changed.is_empty() {
                revise.revise(tx, &changed, false).map_err(|_| StoreError::Aborted)?;
            }
            self.merge_others(&mut tree, &mut merged, tx.table(), Version(self.visible()))?;
            if !is_little {
                continue;
            }
            tree.sync_so_far()?;
            let mut writer = self.writer_or_waiting()?;
            let held = Instant::now();
            let turn = self.fail_stop.lock(&self.turn, SENDING);
            self.fail_stop.check()?;
            self.wait_until_visible(writer.next_version - 1)?;
            self.refresh(&mut writer);
            if self.watching.noted_keys() > CHANGED_LAST_MAX {
                continue;
            }
            let (table, table_writer) = match self.next_memtable(&mut writer, Duration::ZERO) {
                // Readers hold all memtables. No writer waits for them here; try again later.
                Err(StoreError::Busy) => {
                    drop((turn, writer));
                    std::thread::sleep(READERS_WAIT_MAX / ROUNDS_MAX);
                    continue;
                }
                made => made?,
            };
            let changed = self.changed_by_others()?;
            if !changed.is_empty() && !revise.revise(tx, &changed, true).map_err(|_| StoreError::Aborted)? {
                left = changed;
                continue;
            }
            self.merge_others(&mut tree, &mut merged, tx.table(), Version(self.visible()))?;
            self.fold_into(&writer, tx, revise)?;
            merge_late(&mut tree, tx)?;
            let trees: BTreeSet<TreeId> = tx.table().trees().into_iter().collect();
            let version = self.log_loaded(&mut writer, &trees)?;
            let end = writer.tail.end();
            let view = match self.finish(tree, end) {
                Ok(view) => view,
                Err(error) => {
                    if !self.is_poisoned() {
                        // The version is used up: it changed nothing, and the next one follows.
                        self.show(version);
                    }
                    drop(turn);
                    self.alarm.ring();
                    // The meta page may have reached the disk; then the whole transaction exists after reopening.
                    return Err(Unfinished::Failed(match error {
                        StoreError::Io { source, .. } if self.is_poisoned() => StoreError::Unknown(source),
                        other => other,
                    }));
                }
            };
            writer.table = table_writer;
            writer.need = Need::default();
            self.throttle.restart();
            self.room.rotated(0, Default::default());
            self.publish(place, |generation| {
                generation.tree = view;
                generation.frozen = None;
                generation.active = table;
            });
            self.room_merged();
            self.show(version);
            self.refresh(&mut writer);
            self.forget_frozen(version);
            self.log.release_before(end.log_start().segment);
            drop((turn, writer));
            self.alarm.ring();
            let (writers_waited, took) = (held.elapsed(), begun.elapsed());
            tracing::info!(
                keys = tx.table().len(),
                rounds = round + 1,
                ?took,
                ?writers_waited,
                "a large transaction is committed"
            );
            return Ok(Commit { version: Version(version) });
        }
        Err(StoreError::Busy.into())
    }

    /// The writer's lock, for a large commit, during which no memtable can be merged.
    fn writer_or_waiting(&self) -> Result<Held<'_, IdleWriter>, Unfinished> {
        let began = Instant::now();
        let pause = self.watching.pause_now();
        self.watching.set_pause(pause.max(PAUSE_LEAST));
        loop {
            if let Some(writer) = self.try_hold_writer() {
                return Ok(writer);
            }
            self.fail_stop.check()?;
            if began.elapsed() >= WRITER_WAIT_MAX {
                return Err(Unfinished::WriterWaits);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Merges the memtables' changes up to a visible version into the trees, except for keys that the transaction changes itself.
    fn merge_others(
        &self,
        tree: &mut TreeWriter<'_>,
        merged: &mut Merged,
        own: &Memtable,
        version: Version,
    ) -> Result<(), StoreError> {
        let generation = lock(&self.current).clone();
        for table in generation.frozen.iter().chain([&generation.active]) {
            if table.has_ranges() {
                return Err(StoreError::Busy);
            }
            let known = merged.tables.iter().position(|(known, _)| Arc::ptr_eq(known, table));
            let after = known.map_or(Version(0), |at| merged.tables[at].1);
            for id in table.trees() {
                let mut cursor = table.cursor(version, id);
                let mut entry = cursor.seek(Bound::Unbounded);
                let new = std::iter::from_fn(|| {
                    let found = entry?;
                    entry = cursor.next();
                    Some(found)
                });
                let new = new.filter(|entry| entry.version > after && own.get(OWN, id, entry.key) == Lookup::Absent);
                tree.merge(id, new.map(|entry| (entry.key, entry.value)))?;
                if id == CATALOG {
                    name_trees(tree, table, version)?;
                }
            }
            match known {
                Some(at) => merged.tables[at].1 = version,
                None => merged.tables.push((Arc::clone(table), version)),
            }
        }
        Ok(())
    }

    /// Applies the folds of the transaction to the values of trees and memtables, and puts the results.
    fn fold_into(&self, writer: &Writer, tx: &mut LargeTx, revise: &mut dyn Revise) -> Result<(), StoreError> {
        let operands = revise.folds();
        if operands.is_empty() {
            return Ok(());
        }
        let (limit, what) = self.options.transaction_bound();
        let mut changes = Changes::new(limit, what);
        operands.iter().for_each(|(tree, key, operand)| changes.fold(*tree, key, operand));
        if let Some(failure) = changes.take_failure() {
            return Err(failure);
        }
        let view = View { generation: &writer.generation, version: writer.next_version - 1 };
        let mut folds = Folds::default();
        folds.fold(writer.fold.as_deref(), view, &changes)?;
        for put in folds.puts() {
            let Operation { tree, key, edit } = put.operation;
            match edit {
                Edit::Put(value) => tx.put(TreeId(tree), key, value)?,
                Edit::Delete | Edit::DeleteRange { .. } => tx.delete(TreeId(tree), key)?,
            }
        }
        Ok(())
    }
}

/// Puts the keys that the transaction has changed since the trees were started, with their current values.
fn merge_late(tree: &mut TreeWriter<'_>, tx: &LargeTx) -> Result<(), StoreError> {
    let mut late = tx.late().peekable();
    while let Some((id, _)) = late.peek() {
        let id = *id;
        let of_tree = std::iter::from_fn(|| late.next_if(|(of, _)| *of == id));
        let changes = of_tree.filter_map(|(_, key)| Some((key.as_slice(), tx.get(id, key)?)));
        tree.merge(id, changes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_wait_the_longer_the_more_often_much_has_changed() {
        let pauses: Vec<u64> = (0..ROUNDS_MAX).map(|round| Watching::pause_in(round).as_micros() as u64).collect();
        assert_eq!(pauses[..6], [0, 0, 250, 500, 1000, 2000]);
        assert_eq!(pauses.last(), Some(&20_000));
    }
}
