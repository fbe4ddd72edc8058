//! Commit of large transactions: their changes go into the log in pieces, and one record commits them.
//!
//! 1. The changes are written to the log as pieces, batches that belong to no version. Replay and readers of changes
//!    keep them aside. Other commits get their turn between two pieces.
//! 2. The record is an ordinary transaction that names the first piece. With it the changes exist, after any crash.
//! 3. In the same turn the transaction's memtable becomes the active one, and the previous one is frozen. So readers see
//!    all changes at once, others write on top of them, and the next checkpoints merge them like any others.
//!
//! If the commit ends before the record, the pieces mean nothing. Until the transaction's memtable is frozen, a
//! checkpoint's log start is not after the first piece ([`LargeInLog`]).

use std::sync::Arc;

use crate::base::error::StoreError;
use crate::base::key::{TreeId, Version};
use crate::base::limits::READERS_WAIT_MAX;
use crate::disk::DIRECT_ALIGN;
use crate::engine::Engine;
use crate::engine::checkpoint::need::Need;
use crate::engine::checkpoint::pace;
use crate::engine::load::large::LargeTx;
use crate::engine::write::transaction::Commit;
use crate::engine::write::writer::{IdleWriter, LargeInLog};
use crate::log::{BatchBuilder, Edit, LogPosition, Operation, PiecesInLog};
use crate::memtable::{Memtable, MemtableWriter};
use crate::tree::PAGE_BYTES;

/// Size of a piece. Another commit waits for at most one of them.
const PIECE_BYTES: usize = 1 << 20;

impl Engine {
    pub(super) fn commit_large(&self, tx: LargeTx, last: TreeId) -> Result<Commit, StoreError> {
        if tx.table().is_empty() {
            return Ok(Commit { version: Version(self.visible()) });
        }
        self.look_for_files()?;
        let need = self.check_disk_for(tx.table())?;
        self.freeze_earlier()?;
        let (table, active) = tx.into_parts();
        let committed = self.log_pieces(table.table(), last).and_then(|pieces| self.show_large(table, &pieces, need));
        if committed.is_err() {
            self.forget_pieces();
        }
        drop(active);
        self.alarm.ring();
        committed
    }

    /// After a commit that has failed: its pieces mean nothing, and the log is no longer kept for them. If nothing else was
    /// changed since the last checkpoint, an empty one releases their segments.
    fn forget_pieces(&self) {
        let mut writer = self.hold_writer();
        if matches!(writer.large, LargeInLog::Pieces(_)) {
            writer.large = LargeInLog::Nothing;
        }
        drop(writer);
        if let Err(error) = self.release_merged_log() {
            tracing::warn!(%error, "the log of a large transaction that failed is kept until the next checkpoint");
        }
    }

    /// If all memtables are merged: a checkpoint without changes, after which replay starts at the log's end.
    fn release_merged_log(&self) -> Result<(), StoreError> {
        let _merging = self.hold_merging()?;
        let place = self.reserve_state(READERS_WAIT_MAX)?;
        let mut writer = self.writer_while_merging()?;
        let _turn = self.take_turn();
        self.fail_stop.check()?;
        self.wait_until_visible(writer.next_version - 1)?;
        if !writer.table.table().is_empty() {
            return Ok(());
        }
        let end = writer.tail.end();
        let view = self.finish(self.tree.begin(pace::unhindered(Arc::clone(&self.is_closing)))?, end)?;
        self.publish(place, |generation| generation.tree = view);
        self.refresh(&mut writer);
        self.log.release_before(end.log_start().segment);
        Ok(())
    }

    /// Freezes the memtable of an earlier large transaction, so that the log's start concerns one of them only.
    fn freeze_earlier(&self) -> Result<(), StoreError> {
        while matches!(self.hold_writer().large, LargeInLog::Active) {
            self.checkpoint()?;
        }
        Ok(())
    }

    /// Requires ample disk space: for the pieces, for the checkpoint that merges them, and for the memtable that takes other
    /// writes meanwhile ([`Engine::next_memtable`]).
    fn check_disk_for(&self, table: &Memtable) -> Result<Need, StoreError> {
        let need = Need::of(table);
        let pages = need.pages(self.tree.live_pages().into()).all;
        let beside = (table.used_bytes() + table.used_bytes() / 2).div_ceil(PAGE_BYTES) as u64;
        if self.is_ample_for(pages + beside) { Ok(need) } else { Err(StoreError::Full) }
    }

    /// Writes the pieces. The changes of the tree `last` come last.
    fn log_pieces(&self, table: &Memtable, last: TreeId) -> Result<PiecesInLog, StoreError> {
        let piece_bytes = PIECE_BYTES.min(self.options.batch_bytes_max());
        let mut trees = table.trees();
        trees.sort_by_key(|tree| *tree == last);
        let mut changes = table.changes_of(trees).peekable();
        let mut builder = BatchBuilder::new(piece_bytes);
        let mut pieces = PiecesInLog { first: LogPosition::default(), count: 0, bytes: table.used_bytes() as u64 };
        while changes.peek().is_some() {
            builder.begin_piece(pieces.count);
            while let Some(change) = changes.next() {
                let edit = change.entry.value.map_or(Edit::Delete, Edit::Put);
                builder.push(Operation { tree: change.tree.0, key: change.entry.key, edit }, None);
                let next_bytes =
                    changes.peek().map_or(0, |next| next.entry.key.len() + next.entry.value.map_or(0, <[u8]>::len));
                if builder.len() + next_bytes > piece_bytes {
                    break;
                }
            }
            builder.end_piece();
            self.check_lost(table)?;
            let at = self.write_piece(&mut builder, pieces.count == 0)?;
            if pieces.count == 0 {
                pieces.first = at;
            }
            pieces.count += 1;
        }
        Ok(pieces)
    }

    fn check_lost(&self, table: &Memtable) -> Result<(), StoreError> {
        if table.lost() == 0 { Ok(()) } else { Err(crate::memtable::lost_error()) }
    }

    /// Writes a piece as the log's next batch, and returns its position.
    fn write_piece(&self, builder: &mut BatchBuilder, is_first: bool) -> Result<LogPosition, StoreError> {
        let mut writer = self.hold_writer();
        if !has_log_room(&writer, builder) {
            self.roll(&mut writer)?;
        }
        let turn = self.take_turn();
        self.fail_stop.check()?;
        let at = writer.tail.end().log_start();
        if is_first {
            writer.large = LargeInLog::Pieces(at);
        }
        builder.set_first_version(writer.next_version);
        let sealed = self.log.seal(&mut writer.tail, builder);
        drop(writer);
        let written = self.log.write(&sealed);
        // Before the next batch may be written behind a missing piece.
        let written = written.map_err(|error| {
            self.poison("writing to the log", &error);
            StoreError::Unknown(error.into())
        });
        drop(turn);
        written.map(|()| at)
    }

    /// Writes the record, and makes the transaction's memtable the active one.
    fn show_large(&self, table: MemtableWriter, pieces: &PiecesInLog, need: Need) -> Result<Commit, StoreError> {
        let _merging = self.hold_merging()?;
        let place = self.reserve_state(READERS_WAIT_MAX)?;
        let mut writer = self.writer_while_merging()?;
        let mut builder = BatchBuilder::new(DIRECT_ALIGN);
        builder.begin_transaction();
        builder.push_pieces(pieces);
        builder.end_transaction();
        if !has_log_room(&writer, &builder) {
            // No memtable is frozen for it: nothing can be merged under this lock, and the previous memtable is frozen below.
            self.log.roll(&mut writer.tail)?;
        }
        let turn = self.take_turn();
        self.fail_stop.check()?;
        // Under `writer` and the turn no batch is in flight: all versions are visible, or the log has failed.
        self.wait_until_visible(writer.next_version - 1)?;
        self.refresh(&mut writer);
        self.check_lost(table.table())?;
        // The pieces took space of the disk, and so did other programs.
        if !self.is_ample_for(need.pages(writer.live_pages).all) {
            return Err(StoreError::Full);
        }
        let end = writer.tail.end().kept_from(pieces.first);
        let version = writer.next_version;
        writer.next_version = version + 1;
        builder.set_first_version(version);
        let sealed = self.log.seal(&mut writer.tail, &mut builder);
        self.log.write(&sealed).map_err(|error| {
            self.poison("writing to the log", &error);
            StoreError::Unknown(error.into())
        })?;
        let (own, before) = (Arc::clone(table.table()), Arc::clone(&writer.generation.active));
        let has_before = !before.is_empty();
        writer.memtables.push(Arc::downgrade(&own));
        writer.table_begins_at = own.used_bytes();
        writer.table = table;
        writer.large = LargeInLog::Active;
        self.throttle.restart();
        writer.frozen_need = writer.need.pages(writer.live_pages);
        writer.need = need;
        self.disk_space.note(writer.needed(writer.need));
        self.publish(place, |generation| {
            generation.frozen = has_before.then_some(before);
            generation.active = own;
            generation.least_version = version;
        });
        self.show(version);
        self.refresh(&mut writer);
        if has_before {
            self.checkpoints.frozen(end);
        }
        self.checkpoints.request_by_size();
        drop((turn, writer));
        tracing::info!(pieces = pieces.count, bytes = pieces.bytes, "a large transaction is committed");
        Ok(Commit { version: Version(version) })
    }
}

/// Whether the log's segment has room for a batch. A new one has, because no change exceeds a transaction's bound.
fn has_log_room(writer: &IdleWriter, builder: &BatchBuilder) -> bool {
    (builder.len() as u64).next_multiple_of(DIRECT_ALIGN as u64) <= writer.tail.room()
}
