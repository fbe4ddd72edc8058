//! Backups of a running server: one at a time, and none continues when the server ends.

use crate::failure::{Failure, FailureKind};
use docs::engine::CopyProgress;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Backups of a server: their folder, and the running one.
#[derive(Debug)]
pub(crate) struct Backups {
    pub(crate) folder: Option<PathBuf>,
    under_way: Mutex<Option<UnderWay>>,
    is_ending: AtomicBool,
}

/// A running backup and its progress.
#[derive(Clone, Debug)]
pub(crate) struct UnderWay {
    pub(crate) name: String,
    pub(crate) progress: CopyProgress,
}

/// Permission to make a backup; returned when it is dropped, whatever the result.
pub(crate) struct BackupPermit {
    pub(crate) backups: Arc<Backups>,
}

impl Drop for BackupPermit {
    fn drop(&mut self) {
        *self.backups.under_way() = None;
    }
}

impl Backups {
    pub(crate) fn new(folder: Option<PathBuf>) -> Backups {
        Backups { folder, under_way: Mutex::new(None), is_ending: AtomicBool::new(false) }
    }

    /// The server ends: stops a running backup.
    pub(crate) fn give_up(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    pub(crate) fn under_way(&self) -> MutexGuard<'_, Option<UnderWay>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn take_turn(self: &Arc<Backups>, name: &str) -> Result<BackupPermit, Failure> {
        let mut under_way = self.under_way();
        if let Some(other) = under_way.as_ref() {
            let detail = format!(
                "the backup `{}` is running, and only one runs at a time: GET /_/backup shows its progress",
                other.name
            );
            return Err(Failure::new(FailureKind::Conflict, detail));
        }
        *under_way = Some(UnderWay { name: name.to_owned(), progress: CopyProgress::default() });
        Ok(BackupPermit { backups: Arc::clone(self) })
    }

    /// Records the progress, and returns whether the backup may continue.
    pub(crate) fn note(&self, progress: CopyProgress) -> ControlFlow<()> {
        if let Some(under_way) = self.under_way().as_mut() {
            under_way.progress = progress;
        }
        if self.is_ending.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
