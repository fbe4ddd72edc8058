//! Recovery: chooses the newest meta page whose log start exists, then replays the log into memtables.
//!
//! Of the tree file only the meta pages, the catalog and the space map are read. The log after the trees' version fits
//! into the two memtables that it came from. Only if `memtable_bytes` was reduced since, the first memtable is merged
//! here.

use std::sync::Arc;

use super::folder::{self, FolderLock};
use crate::base::error::StoreError;
use crate::base::fail_stop::FailStop;
use crate::base::key::Version;
use crate::base::limits::{COMMIT_SLOTS, TREE_NAME};
use crate::base::readers::Published;
use crate::base::sync::atomic::AtomicU64;
use crate::base::sync::{Instant, Mutex};
use crate::disk::Disk;
use crate::engine::Engine;
use crate::engine::checkpoint::checkpointer::Checkpoints;
use crate::engine::checkpoint::need::Need;
use crate::engine::checkpoint::pieces::merge_all;
use crate::engine::load::large::OWN;
use crate::engine::options::{Durability, StoreOptions};
use crate::engine::read::view::Generation;
use crate::engine::stats::{Counters, Recovery};
use crate::engine::write::fold_results::Folds;
use crate::engine::write::queue::Queue;
use crate::engine::write::weight::Weights;
use crate::engine::write::writer::{IdleWriter, LargeInLog, Writer, new_memtable, put_into};
use crate::log::{self, Batch, BatchEnd, Log, LogPosition, LogSettings, PiecesInLog, Retention};
use crate::memtable::{Full, Memtable, MemtableWriter};
use crate::sort::Sorter;
use crate::tree::{Meta, Opening, TreeFile};

impl Engine {
    /// Opens or creates the store on a disk.
    pub(crate) fn open(disk: Arc<dyn Disk>, options: StoreOptions) -> Result<(Engine, Recovery), StoreError> {
        let began = Instant::now();
        options.check()?;
        let mut lock = folder::lock(&*disk)?;
        let settings = LogSettings {
            segment_bytes: options.log_segment_bytes,
            sync_each: options.durability == Durability::Commit,
        };
        Sorter::remove_leftovers(&*disk)?;
        if has_tree(&*disk)? {
            folder::remove_part(&*disk)?;
            name_again(&*disk, &options, &mut lock)?;
        } else {
            folder::refuse_unfinished(&*disk)?;
            create(&disk, settings)?;
        }
        lock.hold_tree(&*disk)?;
        let fail_stop = Arc::new(FailStop::default());
        let (tree, meta_fault) = open_tree(&*disk, &options, &fail_stop)?;
        let mut replay = Replay::new(&*disk, &tree, options.memtable_bytes)?;
        replay.is_meta_whole = meta_fault.is_none();
        let in_tree = tree.view().meta().in_tree();
        let retention = Arc::new(Retention::new(options.kept()));
        let (log, tail, replayed) =
            Log::open(Arc::clone(&disk), settings, (retention, Arc::clone(&fail_stop)), &in_tree, &mut |at, batch| {
                replay.take(at, batch)
            })?;
        let Replay { active, frozen, last_version, need, frozen_need, large, .. } = replay;
        let table_begins_at = active.table().used_bytes();
        let live_pages = u64::from(tree.live_pages());
        let frozen_need = frozen_need.pages(live_pages);
        let checkpoints = Checkpoints::new();
        if let Some((_, end)) = &frozen {
            checkpoints.frozen(*end);
        }
        let generation = Generation {
            tree: tree.view(),
            frozen: frozen.map(|(table, _)| table),
            is_in_file: active.table().is_in_file(),
            active: Arc::clone(active.table()),
            least_version: 0,
        };
        let published = Published::new(generation.clone(), options.readers_max + COMMIT_SLOTS);
        let slots = (0..COMMIT_SLOTS).filter_map(|_| published.register()).collect();
        let memtables = generation.tables().map(Arc::downgrade).collect();
        let writer = Writer {
            tail,
            memtables,
            table: active,
            generation: generation.clone(),
            need,
            frozen_need,
            live_pages: live_pages + frozen_need.all,
            epoch: published.epoch(),
            next_version: last_version + 1,
            table_begins_at,
            large,
            folds: Folds::default(),
            fold: None,
            gave_up: false,
            wants_room: false,
            backlog: Default::default(),
            taken: Vec::new(),
        };
        let engine = Engine {
            disk,
            spare: Mutex::default(),
            sorters: AtomicU64::new(0),
            log,
            tree,
            published,
            current: Mutex::new(generation),
            visible: AtomicU64::new(last_version).into(),
            queue: Queue::new(options.queue_max).into(),
            weights: Weights::new(options.queue_bytes_max).into(),
            crowd: Default::default(),
            watch: Mutex::default(),
            writer: Mutex::new(IdleWriter::new(writer)),
            turn: Mutex::default(),
            fail_stop,
            is_closing: Arc::default(),
            checkpoints,
            deleted_files: Default::default(),
            disk_space: Default::default(),
            throttle: Arc::default(),
            alarm: Default::default(),
            slots: Mutex::new(slots),
            builders: Mutex::default(),
            counters: Counters::default(),
            claims: Default::default(),
            lock,
            options,
        };
        engine.note_growth();
        engine.note_need(&engine.hold_writer());
        let recovery = Recovery {
            batches: replayed.batches,
            torn_bytes: replayed.torn_bytes,
            version: engine.visible(),
            elapsed: began.elapsed(),
        };
        Ok((engine, recovery))
    }
}

fn has_tree(disk: &dyn Disk) -> Result<bool, StoreError> {
    let names = disk.list().map_err(|error| StoreError::io("list the store's directory", error))?;
    Ok(names.iter().any(|name| name == TREE_NAME))
}

/// Creates a new store: the log first, then the tree file, whose name makes the store exist.
fn create(disk: &Arc<dyn Disk>, settings: LogSettings) -> Result<(), StoreError> {
    if log::holds_data(&**disk)? {
        return Err(StoreError::corrupt(TREE_NAME, 0, "the tree file is gone, and the log holds data"));
    }
    let (log, tail) = Log::create(Arc::clone(disk), settings)?;
    let start = tail.end().log_start();
    // The log's segment supply, which also syncs names, ends here: it could receive an error that concerns the tree file's
    // name.
    drop((tail, log));
    TreeFile::create(&**disk, TREE_NAME, Version(0), start)
}

/// The sync of a new tree file's name may have failed, and the kernel reports that only once: a later process that sees the name
/// cannot know that a power failure would remove it. So until the log holds transactions each start creates the file again.
fn name_again(disk: &dyn Disk, options: &StoreOptions, lock: &mut FolderLock) -> Result<(), StoreError> {
    let Some((version, log_start)) = TreeFile::open(disk, TREE_NAME, options.map_bytes)?.made_for() else {
        return Ok(());
    };
    if log::holds_data(disk)? {
        return Ok(());
    }
    lock.leave_tree();
    TreeFile::create(disk, TREE_NAME, version, log_start)
}

/// Opens the newest meta page whose log start exists. A damaged meta page, or one without its log start, must not be
/// ignored: the older state alone would be old data taken for new. Also returns the fault of a damaged one.
fn open_tree(
    disk: &dyn Disk,
    options: &StoreOptions,
    fail_stop: &Arc<FailStop>,
) -> Result<(TreeFile, Option<StoreError>), StoreError> {
    let mut opening = TreeFile::open(disk, TREE_NAME, options.map_bytes)?;
    let fits = || opening.bytes() <= crate::disk::memory_bytes() / 2;
    if !options.read_ahead.unwrap_or_else(fits) {
        opening.read_alone()?;
    }
    let (index, _) = usable_metas(disk, &opening)?;
    let fault = opening.fault().cloned();
    if let Some(fault) = &fault {
        tracing::warn!(%fault, "one of the two meta pages is damaged; going on from the other");
    }
    if let Some(newest) = opening.metas().next().filter(|_| index > 0) {
        refuse_lost_versions(disk, &opening, index, newest)?;
    }
    Ok((opening.choose_for(index, Arc::clone(fail_stop))?, fault))
}

/// The newest meta page whose log start exists, and the other one if that exists for it too.
pub(crate) fn usable_metas(disk: &dyn Disk, opening: &Opening) -> Result<(usize, Option<usize>), StoreError> {
    let mut usable = Vec::new();
    for (index, meta) in opening.metas().enumerate() {
        if log::start_exists(disk, &meta.log_start)? {
            usable.push(index);
        }
    }
    match (usable.as_slice(), opening.metas().next()) {
        ([newest, older @ ..], _) => Ok((*newest, older.first().copied())),
        ([], Some(newest)) => Err(log::start_is_gone(disk, &newest.log_start)),
        ([], None) => Err(StoreError::corrupt(TREE_NAME, 0, "no meta page")),
    }
}

/// The log of the older state must reach at least the newer meta page's version.
fn refuse_lost_versions(disk: &dyn Disk, opening: &Opening, index: usize, newest: &Meta) -> Result<(), StoreError> {
    let Some(older) = opening.metas().nth(index) else { return Ok(()) };
    let mut last = older.version.0;
    log::replay(disk, &older.log_start, &mut |_, batch| {
        let behind = batch.first_version().saturating_add(u64::from(batch.transaction_count()));
        last = last.max(behind.saturating_sub(1));
        Ok(())
    })?;
    if last < newest.reaches.0 { Err(log::start_is_gone(disk, &newest.log_start)) } else { Ok(()) }
}

/// Replay of batches into the memtables.
struct Replay<'t> {
    disk: &'t dyn Disk,
    tree: &'t TreeFile,
    active: MemtableWriter,
    frozen: Option<(Arc<Memtable>, BatchEnd)>,
    memtable_bytes: usize,
    last_version: u64,
    need: Need,
    frozen_need: Need,
    /// Whether neither meta page is damaged.
    is_meta_whole: bool,
    /// What the log holds of a large transaction: whether its memtable is the active one.
    large: LargeInLog,
    /// The first piece of a large transaction since the last record: its record may follow.
    first_piece: Option<LogPosition>,
    /// Epoch of the batch that announced a bulk build which the tree file lacks.
    missing_build: Option<u64>,
}

impl<'t> Replay<'t> {
    fn new(disk: &'t dyn Disk, tree: &'t TreeFile, memtable_bytes: usize) -> Result<Replay<'t>, StoreError> {
        let (_, active) = new_memtable(memtable_bytes)?;
        let last_version = tree.view().meta().version.0;
        let (need, frozen_need) = (Need::default(), Need::default());
        Ok(Replay {
            disk,
            tree,
            active,
            frozen: None,
            memtable_bytes,
            last_version,
            need,
            frozen_need,
            is_meta_whole: true,
            large: LargeInLog::Nothing,
            first_piece: None,
            missing_build: None,
        })
    }

    fn take(&mut self, at: &LogPosition, batch: &Batch<'_>) -> Result<(), StoreError> {
        let damage = |what| at.damage(what);
        if !self.is_meta_whole && self.missing_build == Some(batch.epoch()) {
            // A later batch of the same epoch proves that the build was complete: after its announcement nothing is logged
            // until it is in the tree file or abandoned, and after a crash the epoch differs. So the damaged meta page had
            // the build, and this one is older.
            return Err(damage(
                "the tree file lacks a bulk build that was complete, and one of its meta pages is damaged",
            ));
        }
        if let Some(piece) = batch.piece() {
            let (number, _) = piece.map_err(damage)?;
            if number == 0 {
                self.first_piece = Some(*at);
            }
            return Ok(());
        }
        if let Some(pieces) = committed_pieces(batch) {
            self.first_piece = None;
            let version = batch.first_version();
            if version > self.last_version + 1 {
                return Err(damage("an earlier version is missing: neither the log nor the tree file holds it"));
            }
            if version > self.last_version {
                self.take_large(BatchEnd::before(batch, at), &pieces.map_err(damage)?)?;
                self.last_version = version;
            }
            return Ok(());
        }
        loop {
            let is_first = self.active.table().is_empty();
            match self.insert(at, batch)? {
                Ok(()) => return Ok(()),
                Err(Full) if is_first => self.enlarge()?,
                // Some of the batch is in the full memtable, and stays out of the trees: that memtable ends before the batch.
                Err(Full) => self.rotate(BatchEnd::before(batch, at))?,
            }
        }
    }

    /// Puts those transactions of a batch into the active memtable that are not in the trees. If the memtable is full, it has a
    /// part of them, and the whole batch belongs into the next one.
    fn insert(&mut self, at: &LogPosition, batch: &Batch<'_>) -> Result<Result<(), Full>, StoreError> {
        let damage = |what| at.damage(what);
        let (mut last_version, mut need) = (self.last_version, self.need);
        for transaction in batch.transactions() {
            let (version, operations) = transaction.map_err(damage)?;
            if version <= last_version {
                // Already in the trees: those of older builds may end inside a batch, at whose beginning replay starts.
                continue;
            }
            if version > last_version + 1 {
                // Part of the log is missing, or the newest meta page is missing and this is the older state.
                return Err(damage("an earlier version is missing: neither the log nor the tree file holds it"));
            }
            // If replay skips all operations, the transaction announces a build. A transaction of folds alone has no operations.
            let mut is_announcement = operations.len() > 0;
            for operation in operations {
                is_announcement = false;
                let operation = operation.map_err(damage)?;
                if let Err(Full) = put_into(&mut self.active, version, &operation) {
                    return Ok(Err(Full));
                }
                need.add(&operation);
            }
            last_version = version;
            if is_announcement {
                self.missing_build = Some(batch.epoch());
            }
        }
        need.keys = self.active.table().len() as u64;
        (self.last_version, self.need) = (last_version, need);
        Ok(Ok(()))
    }

    /// Replaces the active memtable by one of twice its size, for a batch that was written with larger memtables.
    fn enlarge(&mut self) -> Result<(), StoreError> {
        let bytes = self.active.table().arena_bytes();
        (_, self.active) = new_memtable(bytes.saturating_mul(2))?;
        if self.active.table().arena_bytes() == bytes {
            return Err(StoreError::Limit { what: "batch of the log for the memtable", limit: bytes as u64 });
        }
        Ok(())
    }

    /// Makes a committed large transaction's changes, from its pieces, the active memtable; the previous one is frozen.
    fn take_large(&mut self, before: BatchEnd, pieces: &PiecesInLog) -> Result<(), StoreError> {
        let bytes = usize::try_from(pieces.bytes).unwrap_or(usize::MAX);
        // In key order the changes take no more than they took before.
        let bytes = bytes.saturating_add(bytes / 4).saturating_add(self.memtable_bytes);
        let mut own = match MemtableWriter::in_scratch(self.disk, bytes) {
            // The store must open on a full disk.
            Err(StoreError::Full) => new_memtable(bytes)?.1,
            made => made?,
        };
        let mut count = 0;
        log::look_through(self.disk, &pieces.first, &mut |at, batch| {
            let damage = |what| at.damage(what);
            let Some(piece) = batch.piece().filter(|_| count < pieces.count) else { return Ok(()) };
            let (number, operations) = piece.map_err(damage)?;
            if number != count {
                return Err(damage("a piece of a large transaction is missing"));
            }
            count += 1;
            for operation in operations {
                put_into(&mut own, OWN.0, &operation.map_err(damage)?)
                    .map_err(|Full| StoreError::Limit { what: "bytes of a large transaction", limit: bytes as u64 })?;
            }
            Ok(())
        })?;
        if count < pieces.count {
            return Err(pieces.first.damage("pieces of a committed large transaction are missing"));
        }
        self.merge_frozen()?;
        let need = Need::of(own.table());
        let active = std::mem::replace(&mut self.active, own);
        self.frozen_need = std::mem::replace(&mut self.need, need);
        if !active.table().is_empty() {
            self.frozen = Some((Arc::clone(active.table()), before.kept_from(pieces.first)));
        }
        self.large = LargeInLog::Active;
        Ok(())
    }

    fn merge_frozen(&mut self) -> Result<(), StoreError> {
        if let Some((table, end)) = self.frozen.take() {
            let mut writer = self.tree.begin(Box::new(|_, _, _| Ok(())))?;
            merge_all(&mut writer, &table, end.version())?;
            writer.finish(end.version(), end.log_start())?;
        }
        Ok(())
    }

    /// Freezes the full memtable, and merges the one that was frozen before.
    fn rotate(&mut self, end: BatchEnd) -> Result<(), StoreError> {
        self.merge_frozen()?;
        self.large = LargeInLog::Nothing;
        let end = self.first_piece.map_or(end, |first| end.kept_from(first));
        let (_, next) = new_memtable(self.memtable_bytes)?;
        let full = std::mem::replace(&mut self.active, next);
        self.frozen = Some((Arc::clone(full.table()), end));
        self.frozen_need = std::mem::take(&mut self.need);
        Ok(())
    }
}

/// The pieces that a batch commits: the record of a large transaction is alone in its batch.
fn committed_pieces(batch: &Batch<'_>) -> Option<Result<PiecesInLog, &'static str>> {
    let (_, operations) = batch.transactions().next()?.ok()?;
    operations.pieces()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::TreeId;
    use crate::disk::MemoryDisk;
    use crate::log::{BEGINNING, BatchBuilder, Edit};

    /// Replays batches of one transaction each, on a tree with all versions up to `in_tree`.
    fn replay(in_tree: u64, versions: &[u64]) -> Result<u64, StoreError> {
        let disk = MemoryDisk::new(64 << 10);
        TreeFile::create(&disk, TREE_NAME, Version(in_tree), BEGINNING)?;
        let tree = TreeFile::open(&disk, TREE_NAME, 1 << 20)?.choose(0)?;
        let mut replay = Replay::new(&disk, &tree, 256 << 10)?;
        for version in versions {
            let mut builder = BatchBuilder::new(4096);
            builder.restart(*version);
            builder.begin_transaction();
            builder.push(log::Operation { tree: TreeId(1).0, key: b"key", edit: Edit::Put(b"value") }, None);
            builder.end_transaction();
            let (bytes, _) = builder.seal(&BEGINNING, 0);
            replay.take(&BEGINNING, &Batch::read(bytes).expect("as it was made"))?;
        }
        Ok(replay.last_version)
    }

    #[test]
    fn a_version_behind_one_that_nobody_has_is_damage() {
        assert_eq!(replay(7, &[6, 7, 8, 9]).unwrap(), 9);
        assert_eq!(replay(7, &[3]).unwrap(), 7);
        for versions in [&[9][..], &[8, 10]] {
            let error = replay(7, versions).unwrap_err();
            assert!(
                matches!(&error, StoreError::Corrupt { .. }) && error.to_string().contains("neither the log"),
                "{error}"
            );
        }
    }
}
