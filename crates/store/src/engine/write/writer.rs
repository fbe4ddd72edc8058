//! The writer's state, under one lock: the holder of the lock is the only writer.
//!
//! To place a transaction the writer validates its reads, makes room in log and memtable, appends to the batch, and
//! inserts into the memtable. Nothing of it is visible yet, and all possible refusals come before the first insert.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::changes::KeyChange;
use super::decision::{Decided, Decision};
use super::fold::Fold;
use super::fold_results::Folds;
use super::request::Request;
use super::transaction::{Abort, Tx, Work};
use crate::base::error::StoreError;
use crate::base::fail_stop::{Held, lock};
use crate::base::key::{TreeId, Version};
use crate::base::limits::{LOOK_FOR_READERS_EVERY, READERS_WAIT_MAX};
use crate::base::sync::atomic::Ordering;
use crate::base::sync::{Instant, thread};
use crate::disk::DIRECT_ALIGN;
use crate::engine::Engine;
use crate::engine::checkpoint::disk_space::{AHEAD_PAGES, DELETION_PAGES};
use crate::engine::checkpoint::need::Need;
use crate::engine::read::view::{Generation, View};
use crate::engine::stats::count;
use crate::log::{BATCH_HEADER_BYTES, BatchBuilder, Edit, LogPosition, Operation, Tail};
use crate::memtable::{Demand, Full, Memtable, MemtableWriter};
use crate::tree::{FreePages, PAGE_BYTES};

/// The writer while no batch is open. Only here a memtable is frozen, a segment begun or a load published: an [`OpenBatch`]
/// borrows the writer inside, from which there is no way back.
pub(crate) struct IdleWriter(Writer);

impl IdleWriter {
    pub(crate) fn new(writer: Writer) -> IdleWriter {
        IdleWriter(writer)
    }

    /// Opens a batch in this buffer.
    pub(super) fn open<'b>(&mut self, builder: &'b mut BatchBuilder) -> OpenBatch<'_, 'b> {
        builder.restart(self.next_version);
        OpenBatch { writer: &mut self.0, builder }
    }
}

impl Deref for IdleWriter {
    type Target = Writer;

    fn deref(&self) -> &Writer {
        &self.0
    }
}

impl DerefMut for IdleWriter {
    fn deref_mut(&mut self) -> &mut Writer {
        &mut self.0
    }
}

/// A batch while it is gathered. It borrows the writer from the [`IdleWriter`], so what needs that one
/// happens between two batches only.
pub(super) struct OpenBatch<'w, 'b> {
    pub(super) writer: &'w mut Writer,
    pub(super) builder: &'b mut BatchBuilder,
}

impl OpenBatch<'_, '_> {
    pub(super) fn is_empty(&self) -> bool {
        self.builder.transactions() == 0
    }
}

/// See the module's text.
pub(crate) struct Writer {
    pub(crate) tail: Tail,
    pub(crate) table: MemtableWriter,
    /// Bytes of the memtable that were used when it became the active one.
    pub(crate) table_begins_at: usize,
    /// What the log holds of a large transaction whose memtable is not yet frozen.
    pub(crate) large: LargeInLog,
    /// All memtables made so far that may still be in use.
    pub(crate) memtables: Vec<Weak<Memtable>>,
    /// The generation that the writer reads through. It may be older than the published one, but is never wrong.
    pub(crate) generation: Generation,
    /// What a checkpoint of the active memtable needs; the memtable counts its keys.
    pub(crate) need: Need,
    /// What the checkpoint of the frozen memtable needs.
    pub(crate) frozen_need: FreePages,
    /// Pages that the trees may have when that checkpoint begins.
    pub(crate) live_pages: u64,
    /// Epoch of the published value of which `generation` is a copy.
    pub(crate) epoch: u64,
    pub(crate) next_version: u64,
    /// Results of the batch's folds, not yet put.
    pub(crate) folds: Folds,
    pub(crate) fold: Option<Arc<dyn Fold>>,
    /// A transaction of this group has waited in vain for readers to release old states, so the others do not wait.
    pub(crate) gave_up: bool,
    /// The first of the backlog did not fit behind the last batch.
    pub(crate) wants_room: bool,
    /// Taken from the queue, not yet placed.
    pub(crate) backlog: VecDeque<Box<Request>>,
    /// A vector that is swapped with the queue's.
    #[expect(clippy::vec_box, reason = "a request is moved four times on its way; by pointer")]
    pub(crate) taken: Vec<Box<Request>>,
}

/// What the log holds of a large transaction. Until its memtable is frozen, replay needs its pieces.
#[derive(Clone, Copy)]
pub(crate) enum LargeInLog {
    /// There is none, or a checkpoint merges it like any other change.
    Nothing,
    /// Its pieces, the first at this position, and no record that commits them.
    Pieces(LogPosition),
    /// Pieces and record: its memtable is the active one.
    Active,
}

/// Result of placing a transaction.
pub(super) enum Placed {
    /// It is in the batch, has no changes to write, or is refused.
    Decided(Decision),
    /// The batch must be sent before there is room.
    SendFirst,
}

type Prepare<'p> = dyn FnMut(&mut Tx<'_>) -> Result<(), Abort> + 'p;

impl Writer {
    fn newest(&self) -> u64 {
        self.next_version - 1
    }

    /// Folds the operands of a transaction, if it has any.
    fn fold(&mut self, work: &Work) -> Result<(), StoreError> {
        if !work.changes.has_folds() {
            return Ok(());
        }
        let view = View { generation: &self.generation, version: self.next_version - 1 };
        self.folds.fold(self.fold.as_deref(), &view, &work.changes)
    }

    fn fits_log(&self, bytes: usize) -> bool {
        bytes.next_multiple_of(DIRECT_ALIGN) as u64 <= self.tail.room()
    }

    /// What checkpoints of both memtables need, if this is what the active one needs.
    pub(in crate::engine) fn needed(&self, active: Need) -> FreePages {
        let (active, frozen) = (active.pages(self.live_pages), self.frozen_need);
        FreePages { all: active.all + frozen.all, adjacent: active.adjacent + frozen.adjacent }
    }

    /// Whether the memtables hold nothing that a checkpoint could merge.
    fn is_all_merged(&self) -> bool {
        self.table.table().is_empty() && self.generation.frozen.is_none()
    }

    /// Whether others have changed what this transaction read since it read it.
    fn is_stale(&self, work: &Work) -> bool {
        let since = work.snapshot;
        if since == self.newest() || work.reads.is_empty() {
            return false;
        }
        // Changes that a checkpoint has merged, and those of a large transaction, have no versions of their own.
        since < self.generation.contains()
            || work.reads.changed_in(&self.generation.active, since)
            || self.generation.frozen.as_ref().is_some_and(|table| work.reads.changed_in(table, since))
    }
}

/// A memtable's size is rounded up to this number of bytes.
const MEMTABLE_ROUNDED_TO: usize = 64;

/// The activity named by a panic under the writer's lock.
const DOING: &str = "the writer was at work";

impl Engine {
    /// The writer's lock. A panic under it stops the store before the lock is released.
    pub(crate) fn hold_writer(&self) -> Held<'_, IdleWriter> {
        self.fail_stop.lock(&self.writer, DOING)
    }

    /// The same if the lock is free.
    pub(in crate::engine) fn try_hold_writer(&self) -> Option<Held<'_, IdleWriter>> {
        self.fail_stop.try_lock(&self.writer, DOING)
    }

    /// Takes over the generation that the checkpointer published.
    pub(crate) fn refresh(&self, writer: &mut Writer) {
        if self.published.epoch() != writer.epoch {
            let current = lock(&self.current);
            writer.generation = current.clone();
            writer.epoch = self.published.epoch();
            if writer.generation.frozen.is_none() {
                writer.frozen_need = FreePages::default();
            }
            // A pending merge adds at most as many pages as it needs.
            writer.live_pages = u64::from(self.tree.live_pages()) + writer.frozen_need.all;
            self.note_need(writer);
        }
    }

    /// Records what checkpoints of both memtables need.
    pub(in crate::engine) fn note_need(&self, writer: &Writer) {
        self.disk_space.note(writer.needed(writer.need));
    }

    /// Puts one transaction into the batch. `prepare` is called again only if its reads have changed.
    pub(super) fn place(&self, batch: &mut OpenBatch<'_, '_>, work: &mut Work, prepare: &mut Prepare<'_>) -> Placed {
        match self.try_place(batch, work, prepare) {
            Ok(None) => Placed::SendFirst,
            Ok(Some(version)) => Placed::Decided(Ok(version).into()),
            Err(error) => Placed::Decided(Err(error).into()),
        }
    }

    /// The version of the transaction; `None` if the batch must be sent first.
    fn try_place(
        &self,
        batch: &mut OpenBatch<'_, '_>,
        work: &mut Work,
        prepare: &mut Prepare<'_>,
    ) -> Result<Option<u64>, StoreError> {
        if batch.writer.folds.meets(work) {
            self.put_folds(batch);
        }
        if batch.writer.is_stale(work) {
            count(&self.counters.redone, 1);
            // Its new reads may touch folded keys.
            self.put_folds(batch);
            let view = View { generation: &batch.writer.generation, version: batch.writer.newest() };
            let redone = catch_unwind(AssertUnwindSafe(|| work.prepare(view, prepare)));
            redone.unwrap_or(Err(StoreError::Aborted))?;
        }
        if work.is_aborted {
            return Err(StoreError::Aborted);
        }
        if work.changes.is_empty() {
            return Ok(Some(batch.writer.newest()));
        }
        if self.checkpoints.damage_stop.is_set() {
            return Err(self.checkpoints.damage_stop.error());
        }
        self.deleted_files.check()?;
        // Held until the changes are in the memtable.
        let claimed = self.claims.held();
        if claimed.as_ref().is_some_and(|claimed| claimed.meet(&work.changes)) {
            return Err(StoreError::Claimed);
        }
        batch.writer.fold(work)?;
        let is_claimed =
            |(tree, key): (TreeId, &[u8])| claimed.as_ref().is_some_and(|claimed| claimed.holds(tree, key));
        let fits = match work.changes.has_folds() && batch.writer.folds.folded().any(is_claimed) {
            true => Err(StoreError::Claimed),
            false => self.fits(batch, work),
        };
        if matches!(fits, Ok(true)) {
            let version = self.append(batch, work.changes.iter());
            if claimed.is_some() {
                // A large transaction that claims a folded key must find its new value.
                self.put_folds(batch);
            }
            return Ok(Some(version));
        }
        if work.changes.has_folds() {
            batch.writer.folds.take_back();
        }
        fits.map(|_| None)
    }

    /// Puts the results of the folds into the batch, as a transaction of its own. Its space was reserved together with
    /// that of each transaction that folded.
    pub(super) fn put_folds(&self, batch: &mut OpenBatch<'_, '_>) {
        if batch.writer.folds.is_empty() {
            return;
        }
        let mut folds = std::mem::take(&mut batch.writer.folds);
        if folds.puts().next().is_some() {
            self.append(batch, folds.puts());
        }
        folds.clear();
        batch.writer.folds = folds;
    }

    /// See [`crate::Store::set_fold`].
    pub(crate) fn set_fold(&self, fold: Arc<dyn Fold>) {
        // No batch is open while the lock is free, so no result of the previous function is left.
        self.hold_writer().fold = Some(fold);
    }

    /// Whether the batch, log, memtable and disk have room for a transaction whose operands are folded.
    fn fits(&self, batch: &OpenBatch<'_, '_>, work: &Work) -> Result<bool, StoreError> {
        let writer = &*batch.writer;
        let log_bytes = batch.builder.len() + work.changes.log_bytes() + writer.folds.log_bytes();
        let is_full = !batch.is_empty() && log_bytes > self.options.batch_bytes_max();
        Ok(!is_full && writer.fits_log(log_bytes) && self.has_disk_room(writer, work)? && fits_memtable(writer, work))
    }

    /// Between two batches: makes room for the first transaction of the backlog, if the last batch had none. Those for which
    /// there is none are refused.
    pub(super) fn make_room_for_next(&self, writer: &mut IdleWriter, done: &mut Decided) {
        writer.gave_up = false;
        if writer.wants_room && !self.is_poisoned() {
            self.refresh(writer);
        }
        while !self.is_poisoned()
            && std::mem::take(&mut writer.wants_room)
            && let Some(request) = writer.backlog.pop_front()
        {
            // An error of its folds is found when it is placed.
            let is_folded = writer.fold(&request.work).is_ok() && request.work.changes.has_folds();
            let made = self.make_room(writer, &request.work);
            if is_folded {
                writer.folds.take_back();
            }
            match made {
                Ok(()) => writer.backlog.push_front(request),
                Err(error) => {
                    done.push((request, Err(error).into()));
                    self.queue.settle(1);
                    writer.wants_room = true;
                }
            }
        }
    }

    /// Rolls the log and freezes memtables until there is room for a transaction whose operands are folded.
    fn make_room(&self, writer: &mut IdleWriter, work: &Work) -> Result<(), StoreError> {
        let log_bytes = BATCH_HEADER_BYTES + work.changes.log_bytes() + writer.folds.log_bytes();
        let (limit, what) = self.options.transaction_bound();
        let refusal = |what| StoreError::Limit { what, limit: limit as u64 };
        if !writer.fits_log(log_bytes) {
            self.roll(writer)?;
            if !writer.fits_log(log_bytes) {
                return Err(refusal(what));
            }
        }
        while !self.has_disk_room(writer, work)? {
            self.empty_memtables(writer)?;
        }
        while !fits_memtable(writer, work) {
            if writer.table.table().is_empty() {
                // The transaction is within the bound on bytes, but spread over so many trees that even an empty memtable
                // might be too small.
                return Err(refusal("transaction"));
            }
            self.empty_memtables(writer)?;
        }
        Ok(())
    }

    /// Continues in the next segment of the log. On a full disk a checkpoint first releases older segments.
    pub(in crate::engine) fn roll(&self, writer: &mut IdleWriter) -> Result<(), StoreError> {
        loop {
            let rolled = self.log.roll(&mut writer.tail);
            self.look_for_files()?;
            match rolled {
                Err(StoreError::Full) if self.log.has_older_segments() && !writer.is_all_merged() => {
                    self.empty_memtables(writer)?;
                }
                rolled => return rolled,
            }
        }
    }

    /// Whether the pages for the checkpoint of this transaction are reserved; false if a checkpoint now would help.
    fn has_disk_room(&self, writer: &Writer, work: &Work) -> Result<bool, StoreError> {
        let mut need = writer.need;
        let mut keys = writer.table.table().len();
        let (mut puts, mut deletions) = (0, 0);
        for change in work.changes.iter() {
            need.add(&change.operation);
            // A range adds two boundaries.
            keys += 1 + usize::from(matches!(change.operation.edit, Edit::DeleteRange { .. }));
            *(if matches!(change.operation.edit, Edit::Put(_)) { &mut puts } else { &mut deletions }) += 1;
        }
        // If there are other changes, its folds take only a few bytes.
        let is_deletion = puts == 0 && deletions > 0;
        let reserve = if is_deletion { 0 } else { DELETION_PAGES };
        need.keys = keys as u64;
        writer.folds.add_need(&mut need);
        let mut needed = writer.needed(need);
        needed.all += reserve;
        // With less room than this margin every few transactions would need a checkpoint. Then the disk counts as full.
        let margin = if writer.is_all_merged() && !is_deletion { AHEAD_PAGES } else { 0 };
        if self.has_disk_space(needed, margin)? {
            return Ok(true);
        }
        if writer.is_all_merged() {
            self.note_refusal(needed, margin);
            return Err(StoreError::Full);
        }
        // A checkpoint usually takes fewer pages than its bound.
        Ok(false)
    }

    /// One step towards empty memtables: waits for the checkpoint of the frozen one, or freezes the active one.
    fn empty_memtables(&self, writer: &mut IdleWriter) -> Result<(), StoreError> {
        if writer.generation.frozen.is_none() {
            return self.rotate_waiting(writer);
        }
        self.checkpoints.wait_until_merged(self, || self.refresh(writer))?;
        self.refresh(writer);
        Ok(())
    }

    fn append<'c>(&self, batch: &mut OpenBatch<'_, '_>, changes: impl Iterator<Item = KeyChange<'c>>) -> u64 {
        let OpenBatch { writer, builder } = batch;
        let version = writer.next_version;
        builder.begin_transaction();
        for change in changes {
            builder.push(change.operation, change.is_stamped.then_some(version));
        }
        for operation in builder.end_transaction() {
            let operation = operation.expect("the builder reads back what it has just written");
            writer.need.add(&operation);
            put_into(&mut writer.table, version, &operation).expect("room was made for the whole transaction");
        }
        writer.next_version = version + 1;
        writer.need.keys = writer.table.table().len() as u64;
        if writer.table.wants_memory() {
            self.disk_space.request_memory();
        }
        let table = writer.table.table();
        let is_due = table.used_bytes() > self.options.checkpoint_at_bytes() || table.boundaries_percent() > 50;
        if is_due && writer.generation.frozen.is_none() {
            self.checkpoints.request_by_size();
        }
        version
    }

    /// Freezes the active memtable for a transaction that waits for room.
    fn rotate_waiting(&self, writer: &mut IdleWriter) -> Result<(), StoreError> {
        let wait_max = if writer.gave_up { Duration::ZERO } else { READERS_WAIT_MAX };
        let rotated = self.rotate(writer, wait_max);
        writer.gave_up = rotated.is_err();
        rotated
    }

    /// Freezes the active memtable and continues with a new one. If readers hold too many states or memtables, waits at
    /// most `wait_max` for each of the two. After an error nothing has changed.
    pub(crate) fn rotate(&self, writer: &mut IdleWriter, wait_max: Duration) -> Result<(), StoreError> {
        // Otherwise the frozen memtable would be dropped, and its acknowledged changes with it.
        assert!(writer.generation.frozen.is_none(), "a frozen memtable is merged before the next one is frozen");
        let place = self.reserve_state(wait_max)?;
        let (table, table_writer) = self.next_memtable(writer, wait_max)?;
        writer.table = table_writer;
        writer.table_begins_at = 0;
        let end = match writer.large {
            LargeInLog::Pieces(first) => writer.tail.end().kept_from(first),
            LargeInLog::Nothing | LargeInLog::Active => writer.tail.end(),
        };
        if matches!(writer.large, LargeInLog::Active) {
            writer.large = LargeInLog::Nothing;
        }
        self.throttle.restart();
        writer.frozen_need = writer.need.pages(writer.live_pages);
        writer.need = Need::default();
        self.publish(place, |generation| {
            generation.frozen = Some(std::mem::replace(&mut generation.active, table));
        });
        self.refresh(writer);
        self.checkpoints.frozen(end);
        Ok(())
    }

    /// An empty memtable. Arenas alternate: the one merged last is reused once no reader holds it. If readers hold the
    /// maximum number, waits for them, and fails with [`StoreError::Busy`].
    pub(in crate::engine) fn next_memtable(
        &self,
        writer: &mut Writer,
        wait_max: Duration,
    ) -> Result<(Arc<Memtable>, MemtableWriter), StoreError> {
        let began = Instant::now();
        // The merge of a large transaction takes longer than others take to fill a memtable.
        let before = writer.table.table();
        let beside = if self.is_ordinary(before) { 0 } else { before.used_bytes() / 2 };
        if beside > self.options.memtable_bytes
            && self.is_ample_for(beside.div_ceil(PAGE_BYTES) as u64)
            && let Ok(made) = MemtableWriter::in_scratch(&*self.disk, beside)
        {
            writer.memtables.push(Arc::downgrade(made.table()));
            return Ok((Arc::clone(made.table()), made));
        }
        let made = loop {
            // Old states that no reader holds may still hold memtables, among them the writer's own copy.
            self.refresh(writer);
            self.published.reclaim();
            // A memtable may be put there only now: a merge publishes its result before it releases its memtable.
            let spare = lock(&self.spare).take().and_then(Arc::into_inner);
            writer.memtables.retain(|table| table.strong_count() > 0);
            match spare {
                Some(spare) => break spare.reuse().map_err(|error| StoreError::io("reuse a memtable", error))?,
                None if writer.memtables.len() < self.options.memtables_max => {
                    break new_memtable(self.options.memtable_bytes)?;
                }
                None if began.elapsed() >= wait_max => return Err(StoreError::Busy),
                None => {}
            }
            self.check_writable()?;
            thread::sleep(LOOK_FOR_READERS_EVERY);
        };
        writer.memtables.push(Arc::downgrade(&made.0));
        Ok(made)
    }

    /// Whether a memtable is of the usual size. That of a large transaction is larger, and so is the next one.
    pub(in crate::engine) fn is_ordinary(&self, table: &Memtable) -> bool {
        !table.is_in_file() && table.arena_bytes() <= self.options.memtable_bytes.next_multiple_of(MEMTABLE_ROUNDED_TO)
    }

    /// Makes versions up to this one visible.
    pub(crate) fn show(&self, version: u64) {
        self.visible.store(version, Ordering::Release);
    }
}

pub(crate) fn new_memtable(bytes: usize) -> Result<(Arc<Memtable>, MemtableWriter), StoreError> {
    Memtable::new(bytes).map_err(|error| StoreError::io("allocate a memtable", error))
}

/// Puts an operation, read from the log or about to be logged, into the memtable.
pub(crate) fn put_into(table: &mut MemtableWriter, version: u64, operation: &Operation<'_>) -> Result<(), Full> {
    let (version, tree) = (Version(version), TreeId(operation.tree));
    match operation.edit {
        Edit::Put(value) => table.insert(version, tree, operation.key, Some(value)),
        Edit::Delete => table.insert(version, tree, operation.key, None),
        Edit::DeleteRange { to } => table.delete_range(version, tree, operation.key, to),
    }
}

fn fits_memtable(writer: &Writer, work: &Work) -> bool {
    let table = &writer.table;
    let mut demand = Demand::default();
    for change in work.changes.iter() {
        let Operation { tree, key, edit } = change.operation;
        match edit {
            Edit::DeleteRange { to } => demand.add_range(table, TreeId(tree), key.len(), to.map(<[u8]>::len)),
            Edit::Put(_) | Edit::Delete => demand.add(table, TreeId(tree), key.len(), edit.bytes().len()),
        }
    }
    writer.folds.add_demand(&mut demand, table);
    table.fits(&demand)
}
