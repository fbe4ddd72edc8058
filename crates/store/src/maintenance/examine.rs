//! Examination of a closed store: everything is read and checked, nothing is changed.
//!
//! Opening a store would begin a new epoch of its log and cut off a torn tail. An operator who examines a broken store
//! wants it unchanged. The examination checks:
//!
//! - both meta pages and, for each whose log start exists, everything that it reaches: pages, key order, counts, and
//!   that the space map marks exactly the reached pages as used (`tree/verify.rs`). Recovery would use the older state
//!   if the newer meta page were lost.
//! - the log from the newest state on: segments, checksums, the chain of batches, operations, and that versions rise by
//!   one from the tree's last version to the end.

use std::fmt;
use std::path::Path;

use crate::base::error::StoreError;
use crate::base::key::Version;
use crate::base::limits::TREE_NAME;
use crate::disk::{Access, Disk};
use crate::engine::lifecycle::at_rest::{lock_source, refuse_unless_store};
use crate::engine::lifecycle::folder::open_disk;
use crate::engine::lifecycle::recovery::usable_metas;
use crate::engine::options::StoreOptions;
use crate::log::{self, Batch, LogPosition};
use crate::store::Store;
use crate::tree::{TreeFile, TreeReport};

/// Result of an examination.
#[derive(Debug)]
pub struct Examination {
    /// The newest state.
    pub newest: TreeReport,
    /// The previous state, if its log start still exists and it differs from the newest one.
    pub older: Option<TreeReport>,
    /// One of the two meta pages is damaged. This alone is no fault: a power failure during its write causes it, and
    /// the next checkpoint repairs it.
    pub torn_meta: Option<StoreError>,
    /// Batches of the log after the newest state.
    pub batches: u64,
    /// Bytes of a batch that was torn while it was written; it was never acknowledged.
    pub torn_bytes: u64,
    /// The last version.
    pub version: Version,
    /// The first fault of the log, which was read up to there.
    pub log_fault: Option<StoreError>,
}

impl Examination {
    /// Whether no fault was found.
    pub fn is_clean(&self) -> bool {
        self.newest.is_clean() && self.older.as_ref().is_none_or(TreeReport::is_clean) && self.log_fault.is_none()
    }
}

impl Store {
    /// Examines the store in a folder without opening it; meanwhile no other process can open it.
    pub fn examine(dir: &Path) -> Result<Examination, StoreError> {
        refuse_unless_store(dir)?;
        Store::examine_on(&open_disk(dir)?)
    }

    /// The same on any disk.
    pub fn examine_on(disk: &dyn Disk) -> Result<Examination, StoreError> {
        let _lock = lock_source(disk)?;
        look(Access::ReadOnly, disk, TREE_NAME)
    }
}

/// Examines the store whose tree file has this name. With [`Access::ReadOnly`] nothing is written; otherwise the state
/// found is made durable.
pub(crate) fn look(access: Access, disk: &dyn Disk, tree_name: &str) -> Result<Examination, StoreError> {
    let open = || TreeFile::open_for(access, disk, tree_name, StoreOptions::default().map_bytes);
    let opening = open()?;
    let torn_meta = opening.fault().cloned();
    let (newest, older) = usable_metas(disk, &opening)?;
    let known = opening.metas().next().cloned();
    let view = opening.choose(newest)?.view();
    let other = older.map(|index| Ok::<_, StoreError>(open()?.choose(index)?.view())).transpose()?;
    let older = other.filter(|other| !other.meta().is_same_state(view.meta())).map(|other| other.verify());
    let mut walk = Walk {
        tree_version: view.meta().version.0,
        last: view.meta().version.0,
        batches: 0,
        pieces: (LogPosition::default(), 0),
    };
    let read = if access == Access::ReadOnly { log::look_through } else { log::replay };
    let read = read(disk, &view.meta().log_start, &mut |at, batch| walk.take(at, batch));
    let (torn_bytes, log_fault) = match read {
        Ok(replayed) if walk.last < view.meta().reaches.0 => (0, Some(log::ends_early(&replayed.tail))),
        Ok(replayed) => (replayed.torn_bytes, None),
        Err(error @ StoreError::Io { .. }) => return Err(error),
        Err(error) => (0, Some(error)),
    };
    let Walk { last, batches, .. } = walk;
    // If the log start of the newest meta page is missing, the log of the older state must still reach the newest
    // page's version.
    let lost = known.filter(|known| known.reaches.0 > last).map(|known| log::start_is_gone(disk, &known.log_start));
    let log_fault = log_fault.or(lost);
    Ok(Examination { newest: view.verify(), older, torn_meta, batches, torn_bytes, version: Version(last), log_fault })
}

/// A pass over the log.
struct Walk {
    tree_version: u64,
    last: u64,
    batches: u64,
    /// The position of the newest first piece of a large transaction, and the number of pieces from it on.
    pieces: (LogPosition, u32),
}

impl Walk {
    fn take(&mut self, at: &LogPosition, batch: &Batch<'_>) -> Result<(), StoreError> {
        let damage = |what| at.damage(what);
        self.batches += 1;
        if let Some(piece) = batch.piece() {
            let (number, operations) = piece.map_err(damage)?;
            operations.into_iter().try_for_each(|operation| operation.map(drop)).map_err(damage)?;
            self.pieces = match number {
                0 => (*at, 1),
                number if number == self.pieces.1 => (self.pieces.0, number + 1),
                // Without the earlier ones no record names it.
                _ => (LogPosition::default(), 0),
            };
        }
        for transaction in batch.transactions() {
            let (version, operations) = transaction.map_err(damage)?;
            match operations.pieces() {
                // The pieces of a record that is in the trees may be gone.
                Some(pieces) => {
                    let pieces = pieces.map_err(damage)?;
                    if version > self.tree_version && (pieces.first, pieces.count) != self.pieces {
                        return Err(damage("pieces of a committed large transaction are missing"));
                    }
                }
                None => operations.into_iter().try_for_each(|operation| operation.map(drop)).map_err(damage)?,
            }
            // A checkpoint may have ended inside a batch: then the batch's first transactions are in the tree already.
            if version > self.tree_version || self.last > self.tree_version {
                if version != self.last + 1 {
                    return Err(damage("versions do not rise by one"));
                }
                self.last = version;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Examination {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.newest)?;
        if let Some(older) = &self.older {
            write!(out, "the state before it: {} pages read", older.reached_pages)?;
            writeln!(out, ", {} faults", older.fault_count)?;
            older.faults.iter().try_for_each(|fault| writeln!(out, "fault in the state before: {fault}"))?;
        }
        if let Some(torn) = &self.torn_meta {
            writeln!(out, "note: one of the two meta pages is damaged; the next checkpoint rewrites it: {torn}")?;
        }
        let Examination { batches, torn_bytes, version, .. } = self;
        writeln!(out, "log: {batches} batches up to change {}, {torn_bytes} bytes of a torn tail", version.0)?;
        self.log_fault.iter().try_for_each(|fault| writeln!(out, "fault: {fault}"))
    }
}
