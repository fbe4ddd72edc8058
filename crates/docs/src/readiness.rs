//! Whether an index or a unique field is complete: one that was declared for a collection with documents is built while the
//! database serves (`index_build.rs`).
//!
//! All copies of a catalog's entry share one state, so that plans and writes see it change. It goes one way: from building to
//! ready, or to refused, which a stored document was the reason for.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

const BUILDING: u8 = 0;
const READY: u8 = 1;
const REFUSED: u8 = 2;

/// See the module's text. The default is ready, from the beginning.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    growth: Option<Arc<Growth>>,
}

#[derive(Debug)]
struct Growth {
    state: AtomicU8,
    documents: AtomicU64,
    failure: Mutex<Option<String>>,
    /// The catalog's row once it is ready.
    row: (String, String),
}

/// What is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadinessState {
    /// It is used.
    Ready,
    /// So many documents were looked at. Writes keep it already.
    Building(u64),
    /// A stored document has no place in it. Nothing keeps or heeds it.
    Refused(String),
}

/// Not a part of what an entry is.
impl PartialEq for Readiness {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl Eq for Readiness {}

impl Readiness {
    /// Of one that is to be built; then the catalog gets this row.
    pub(crate) fn building(row: (String, String)) -> Readiness {
        let (state, documents, failure) = (AtomicU8::new(BUILDING), AtomicU64::new(0), Mutex::default());
        Readiness { growth: Some(Arc::new(Growth { state, documents, failure, row })) }
    }

    #[inline]
    fn is(&self, wanted: u8) -> bool {
        self.growth.as_ref().map_or(wanted == READY, |growth| growth.state.load(Ordering::Acquire) == wanted)
    }

    /// Whether queries may use it.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.is(READY)
    }

    /// Whether it is being built.
    #[inline]
    pub fn is_building(&self) -> bool {
        self.is(BUILDING)
    }

    /// Whether it is kept no more.
    #[inline]
    pub fn is_refused(&self) -> bool {
        self.is(REFUSED)
    }

    /// What is told of it.
    pub fn state(&self) -> ReadinessState {
        let Some(growth) = &self.growth else { return ReadinessState::Ready };
        match growth.state.load(Ordering::Acquire) {
            READY => ReadinessState::Ready,
            REFUSED => {
                let failure = growth.failure.lock().unwrap_or_else(PoisonError::into_inner);
                ReadinessState::Refused(failure.clone().unwrap_or_default())
            }
            _ => ReadinessState::Building(growth.documents.load(Ordering::Relaxed)),
        }
    }

    pub(crate) fn count(&self, documents: u64) {
        if let Some(growth) = &self.growth {
            growth.documents.fetch_add(documents, Ordering::Relaxed);
        }
    }

    pub(crate) fn row(&self) -> Option<&(String, String)> {
        self.growth.as_ref().map(|growth| &growth.row)
    }

    pub(crate) fn set_ready(&self) {
        if let Some(growth) = &self.growth {
            growth.state.store(READY, Ordering::Release);
        }
    }

    pub(crate) fn refuse(&self, why: String) {
        if let Some(growth) = &self.growth {
            *growth.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
            growth.state.store(REFUSED, Ordering::Release);
        }
    }
}
