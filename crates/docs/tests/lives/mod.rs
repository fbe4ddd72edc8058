//! Lives of a database: a life begins when the folder is opened and ends at any operation of the disk. Either the disk dies
//! after so many operations, or it loses unsynced data. A seed determines all choices.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use crate::dying_disk::Dying;
use crate::simulation::disk::SimulatedDisk;
use docs::DocumentDatabase;
use docs::config::Config;
use docs::engine::{Store, StoreOptions};
use store::disk::Disk;

/// Pseudo-random numbers from a seed (xorshift).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// The next number, below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

/// Opens a database on a disk that dies when `left` is used up; `None` if that happens during the opening.
pub(crate) fn open(dir: &Path, settings: &Config, left: &Arc<AtomicI64>) -> Option<DocumentDatabase> {
    let mut options = StoreOptions::default();
    // Small, so that a life has checkpoints.
    options.memtable_bytes = 1 << 20;
    options.log_segment_bytes = 1 << 20;
    let (store, _) = Store::open_on(Arc::new(Dying::new(dir, left)), options).ok()?;
    DocumentDatabase::with_store(settings, dir, store).ok()
}

/// Opens a database on a disk whose power may fail; `None` if that happens during the opening.
pub(crate) fn open_powered(disk: &Arc<SimulatedDisk>, settings: &Config) -> Option<DocumentDatabase> {
    let mut options = StoreOptions::default();
    options.memtable_bytes = 256 << 10;
    options.log_segment_bytes = 64 << 10;
    options.map_bytes = 1 << 30;
    let disk: Arc<dyn Disk> = Arc::clone(disk) as Arc<dyn Disk>;
    let (store, _) = Store::open_on(disk, options).ok()?;
    DocumentDatabase::with_store(settings, Path::new("nowhere"), store).ok()
}
