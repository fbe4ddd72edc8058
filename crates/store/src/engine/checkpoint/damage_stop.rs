//! Refusal of writes after a checkpoint met a damaged page.
//!
//! The next checkpoint would meet the same page. So from then on writes are refused with the page and its fault, until
//! a checkpoint succeeds. Acknowledged changes are in the log and in memory, and reads of all other pages continue. If
//! writes continued until the memtables are full, the log could grow beyond what a start with smaller memtables can
//! replay, and the error would come later and be less specific.

use std::io;

use crate::base::error::StoreError;
use crate::base::fail_stop::lock;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicBool, Ordering};

/// Appended to the fault of the page.
const NO_WRITES: &str = "a checkpoint needs this page, so no writes are taken: restore a backup";

/// See the module's text.
#[derive(Default)]
pub(crate) struct DamageStop {
    is_set: AtomicBool,
    /// The error of the last checkpoint.
    error: Mutex<Option<StoreError>>,
}

impl DamageStop {
    /// Whether a damaged page stopped the last checkpoint.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// The error with which writes are refused.
    #[cold]
    pub(in crate::engine) fn error(&self) -> StoreError {
        match &*lock(&self.error) {
            Some(StoreError::Corrupt { file, offset, what }) => {
                StoreError::corrupt(file, *offset, format!("{what}; {NO_WRITES}"))
            }
            Some(StoreError::Io { context, source }) => {
                let source = io::Error::new(source.kind(), format!("{source}; {NO_WRITES}"));
                StoreError::Io { context: context.clone(), source: source.into() }
            }
            Some(other) => other.clone(),
            // A checkpoint has just succeeded.
            None => StoreError::Busy,
        }
    }

    /// Records the damage that a checkpoint met, or `None`; logs a change of state.
    pub(super) fn note(&self, damage: Option<&StoreError>) {
        *lock(&self.error) = damage.cloned();
        match (self.is_set.swap(damage.is_some(), Ordering::AcqRel), damage) {
            (false, Some(error)) => tracing::error!(%error, "a damaged page stops checkpoints: writes are refused"),
            (true, None) => tracing::info!("checkpoints go on: writes are taken again"),
            _ => {}
        }
    }
}
