//! Whether an index or unique field is complete. One that is declared for a collection with documents is built while the
//! database serves (`opening/index_build.rs`).
//!
//! All copies of a catalog entry share one state, so that plans and writes see it change. It changes once: from building to
//! ready, or to refused if a stored document breaks the rule.
//!
//! A reader's snapshot may be older than the end of a build and lack entries. So each index that becomes ready gets the next
//! number, and a reader reads the highest number ([`count`]) before it takes a snapshot. The snapshot has all entries of
//! indexes up to that number, and must not be read through later ones ([`Readiness::is_ready_by`]).

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

const BUILDING: u8 = 0;
const READY: u8 = 1;
const REFUSED: u8 = 2;

/// Number of indexes and rules that have become ready, in all databases of the process.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Number of indexes and rules that have become ready so far. Must be read before a snapshot is taken.
#[inline]
pub(crate) fn count() -> u64 {
    COUNT.load(Ordering::SeqCst)
}

/// See the module's text. The default is ready, from the beginning.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    growth: Option<Arc<Growth>>,
}

#[derive(Debug)]
struct Growth {
    state: AtomicU8,
    /// Its number in the order of becoming ready; 0 before.
    number: AtomicU64,
    documents: AtomicU64,
    failure: Mutex<Option<String>>,
    /// The catalog's row to be written once it is ready.
    row: (String, String),
}

/// The state that is reported to operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadinessState {
    /// Queries use it.
    Ready,
    /// Being built: the number of documents processed. Writes maintain it already.
    Building(u64),
    /// Refused because of a stored document. Writes neither maintain nor obey it.
    Refused(String),
}

/// Any two are equal, so that readiness does not affect the equality of catalog entries.
impl PartialEq for Readiness {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl Eq for Readiness {}

impl Readiness {
    /// The state of a part that is to be built; the catalog gets this row when it is ready.
    pub(crate) fn building(row: (String, String)) -> Readiness {
        let (state, number, documents) = (AtomicU8::new(BUILDING), AtomicU64::new(0), AtomicU64::new(0));
        Readiness { growth: Some(Arc::new(Growth { state, number, documents, failure: Mutex::default(), row })) }
    }

    /// The state of a part that never becomes ready.
    pub(crate) fn never() -> Readiness {
        Readiness::building((String::new(), String::new()))
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

    /// Whether a snapshot taken at this count has all of its entries.
    #[inline]
    pub(crate) fn is_ready_by(&self, count: u64) -> bool {
        let number = |growth: &Arc<Growth>| growth.number.load(Ordering::Acquire);
        self.is_ready() && self.growth.as_ref().is_none_or(|growth| number(growth) <= count)
    }

    /// Whether it was not ready at the start, and is not refused.
    pub(crate) fn becomes_ready(&self) -> bool {
        self.growth.is_some() && !self.is_refused()
    }

    /// Whether it is being built.
    #[inline]
    pub fn is_building(&self) -> bool {
        self.is(BUILDING)
    }

    /// Whether it was refused.
    #[inline]
    pub fn is_refused(&self) -> bool {
        self.is(REFUSED)
    }

    /// Its state.
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
            growth.number.store(COUNT.fetch_add(1, Ordering::SeqCst) + 1, Ordering::Release);
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
