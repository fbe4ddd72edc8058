//! A view of an open database: its definition, its trees, and its state.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use binjson::StoredDocument;

use super::definition::{Contribution, Definition};
use crate::catalog::{Readiness, RuleState};
use crate::engine::TreeId;
use crate::error::WriteError;
use crate::sql::grouping::Memory;

/// Reported status of a view.
#[derive(Clone, Debug)]
pub struct ViewStatus {
    /// Its name.
    pub name: String,
    /// Its query.
    pub query: String,
    /// Its state.
    pub state: RuleState,
    /// Documents read so far while building.
    pub documents: u64,
    /// Number of parts of the collection that are read, and of all parts.
    pub parts: (u64, u64),
    /// Duration of the build so far, or in total; zero if it was already built at the opening.
    pub elapsed: Duration,
    /// Estimated remaining time, from the speed so far.
    pub remaining: Option<Duration>,
    /// Why it could not be built.
    pub failure: Option<String>,
}

/// A view.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) name: String,
    pub(crate) query: String,
    pub(crate) definition: Definition,
    /// The number in the names of its trees and of its catalog row.
    pub(crate) number: u64,
    pub(crate) groups: TreeId,
    pub(crate) values: TreeId,
    pub(crate) readiness: Readiness,
    /// Whether it was already built at the opening.
    was_ready: bool,
    pub(crate) documents: AtomicU64,
    pub(crate) parts_done: AtomicU64,
    pub(crate) parts: AtomicU64,
    began: OnceLock<Instant>,
    took: OnceLock<Duration>,
    /// For a view over a view: whether its build has begun.
    follows: AtomicBool,
}

impl View {
    pub(crate) fn new(
        (name, query): (&str, &str),
        definition: Definition,
        (number, groups, values): (u64, TreeId, TreeId),
        is_ready: bool,
    ) -> View {
        View {
            name: name.to_string(),
            query: query.to_string(),
            definition,
            number,
            groups,
            values,
            readiness: Readiness::of(if is_ready { RuleState::Ready } else { RuleState::Declared }),
            was_ready: is_ready,
            documents: AtomicU64::new(0),
            parts_done: AtomicU64::new(0),
            parts: AtomicU64::new(0),
            began: OnceLock::new(),
            took: OnceLock::new(),
            follows: AtomicBool::new(false),
        }
    }

    /// The contribution of a document: see [`Definition::contribution`].
    #[inline]
    pub(crate) fn contribution(
        &self,
        document: StoredDocument<'_>,
        memory: &mut Memory,
        out: &mut Contribution,
    ) -> Result<(), WriteError> {
        self.definition.contribution((&self.name, self.number), document, memory, out)
    }

    /// Starts applying changes of the lower view to the rows that the build has already read.
    pub(crate) fn begin_to_follow(&self) {
        self.follows.store(true, Ordering::Release);
    }

    pub(crate) fn has_begun_to_follow(&self) -> bool {
        self.follows.load(Ordering::Acquire)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.readiness.is_ready()
    }

    pub(crate) fn was_ready(&self) -> bool {
        self.was_ready
    }

    /// Records the begin of its build, with the number of parts.
    pub(crate) fn begin(&self, parts: u64) {
        self.parts.store(parts, Ordering::Relaxed);
        self.began.get_or_init(Instant::now);
    }

    /// Records the end of its build.
    pub(crate) fn end(&self) {
        self.took.get_or_init(|| self.began.get().map_or(Duration::ZERO, Instant::elapsed));
    }

    pub(crate) fn fail(&self, why: String) {
        self.end();
        self.readiness.refuse(why);
    }

    pub(crate) fn has_failed_for(&self, why: &str) -> bool {
        self.readiness.failure().as_deref() == Some(why)
    }

    pub(crate) fn status(&self) -> ViewStatus {
        let (done, parts) = (self.parts_done.load(Ordering::Relaxed), self.parts.load(Ordering::Relaxed));
        let running = || self.began.get().map_or(Duration::ZERO, Instant::elapsed);
        let elapsed = self.took.get().copied().unwrap_or_else(running);
        let is_estimated = self.readiness.is_pending() && done > 0;
        ViewStatus {
            name: self.name.clone(),
            query: self.query.clone(),
            state: self.readiness.now(),
            documents: self.documents.load(Ordering::Relaxed),
            parts: (done, parts),
            elapsed,
            remaining: is_estimated.then(|| elapsed.mul_f64(parts.saturating_sub(done) as f64 / done as f64)),
            failure: self.readiness.failure(),
        }
    }
}

/// A view that reads a collection, with the places of its fields in the collection's rows.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) view: Arc<View>,
    pub(crate) columns: Vec<usize>,
}
