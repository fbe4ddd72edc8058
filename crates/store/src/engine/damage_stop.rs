//! What a damaged page that checkpoints need does to writes.
//!
//! A checkpoint that meets a damaged page cannot go past it, and neither will the next one. From then on writes are refused
//! with the page and what is wrong with it, until a checkpoint succeeds. What was acknowledged is in the log and in
//! memory, and reads of all other pages go on. Were writes taken until the memtables are full, the log would grow by what a
//! start with smaller memtables could not replay, and the refusal would come later and say less.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::lock;
use crate::error::Error;

/// Behind what is wrong with the page.
const NO_WRITES: &str = "a checkpoint needs this page, so no writes are taken: restore a backup";

/// See the module's text.
#[derive(Default)]
pub(crate) struct DamageStop {
    is_set: AtomicBool,
    /// What the last checkpoint failed with.
    error: Mutex<Option<Error>>,
}

impl DamageStop {
    /// Whether a damaged page stopped the last checkpoint.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// What writes are refused with.
    #[cold]
    pub(super) fn error(&self) -> Error {
        match &*lock(&self.error) {
            Some(Error::Corrupt { file, offset, what }) => {
                Error::corrupt(file, *offset, format!("{what}; {NO_WRITES}"))
            }
            Some(Error::Io { context, source }) => {
                let source = io::Error::new(source.kind(), format!("{source}; {NO_WRITES}"));
                Error::Io { context: context.clone(), source }
            }
            Some(other) => other.copy(),
            // A checkpoint has just succeeded.
            None => Error::Busy,
        }
    }

    /// Notes the damage that a checkpoint met, or that it met none; logged where that changes whether writes are taken.
    pub(super) fn note(&self, damage: Option<&Error>) {
        *lock(&self.error) = damage.map(Error::copy);
        match (self.is_set.swap(damage.is_some(), Ordering::AcqRel), damage) {
            (false, Some(error)) => tracing::error!(%error, "a damaged page stops checkpoints: writes are refused"),
            (true, None) => tracing::info!("checkpoints go on: writes are taken again"),
            _ => {}
        }
    }
}
