//! Statements whose changes exceed an ordinary transaction: which statements are eligible, and their retries
//! ([`crate::statements::LargeRun`]).

use std::sync::Arc;

use crate::database::{CollectionId, DocumentDatabase, WriteKind};
use crate::engine;
use crate::error::WriteError;
use crate::sql::{Action, Budget, QueryError, SpillSpace, Value};
use crate::statements::{LargeRun, Modification, ModifyError};
use crate::views::ViewState;
use crate::writes::Collection;

/// Attempts for such a statement; an attempt fails if concurrent writes change too much.
const TRIES_MAX: usize = 3;
/// With less free disk space than this no large transaction is started.
const BYTES_LEAST: u64 = 16 << 20;

/// Result of such a statement.
pub(crate) struct LargeDid {
    /// Documents that were affected.
    pub(crate) documents: u64,
    /// Rows that were scanned.
    pub(crate) looked_at: u64,
}

/// Whether a statement failed because it exceeds one transaction's limits.
pub(crate) fn is_too_large(error: &ModifyError) -> bool {
    matches!(error, ModifyError::Query(QueryError::Limit { .. }) | ModifyError::Write(WriteError::TooLarge { .. }))
}

impl DocumentDatabase {
    /// Whether a statement must run in an ordinary transaction.
    pub(crate) fn is_for_one_transaction(&self, statement: &Modification, collection: &Collection) -> bool {
        let info = &collection.info;
        let is_known = |readiness: &crate::catalog::Readiness| !readiness.is_building();
        let is_settled = collection.announced.is_empty()
            && info.indexes.iter().all(|index| is_known(&index.readiness))
            && info.unique.iter().all(|unique| is_known(&unique.readiness));
        let is_own = |place: &crate::writes::ReferencePlace| place.target == info.tree;
        let mut views = self.views_at_work().of_collection(statement.collection());
        !statement.may_be_large()
            || !is_settled
            || collection.references.iter().any(is_own)
            || views.any(|view| view.state() == ViewState::Building)
            || (statement.action() == Action::Insert && collection.keys.is_some())
    }

    /// Runs a statement in a large transaction; `None` if it cannot run in one.
    pub(crate) fn modify_large(
        &self,
        statement: &Modification,
        parameters: &[Value<'_>],
        budget: &Budget<'_>,
    ) -> Option<Result<LargeDid, ModifyError>> {
        let space = budget.spill?;
        let collection = self.collection_at(CollectionId(statement.collection()));
        if self.is_for_one_transaction(statement, collection) {
            return None;
        }
        let _passing = match self.pass(WriteKind::Long) {
            Some(passing) => passing,
            None => return Some(Err(engine::StoreError::Busy.into())),
        };
        let budget = &Budget { now_ms: self.moment_ms(budget.now_ms), ..*budget };
        for _ in 1..TRIES_MAX {
            match self.try_large(statement, collection, parameters, budget, space) {
                Err(ModifyError::Write(WriteError::Busy)) => {}
                did => return Some(did),
            }
        }
        Some(self.try_large(statement, collection, parameters, budget, space))
    }

    fn try_large(
        &self,
        statement: &Modification,
        collection: &Collection,
        parameters: &[Value<'_>],
        budget: &Budget<'_>,
        space: &Arc<SpillSpace>,
    ) -> Result<LargeDid, ModifyError> {
        let watched = LargeRun::watched(statement, collection);
        let mut taken = space.take_rest();
        if statement.action() == Action::Insert {
            // The INSERT's source query may spill to disk too, so it gets half of the space.
            taken.shrink(taken.bytes() / 2);
        }
        let mut tx = loop {
            match self.store().large(taken.bytes(), &watched) {
                Err(engine::StoreError::Full) if taken.bytes() / 2 >= BYTES_LEAST => taken.shrink(taken.bytes() / 2),
                begun => break begun?,
            }
        };
        let (reader, later) = (self.store().reader()?, self.store().reader()?);
        let began = reader.snapshot();
        let source = (collection, self.catalog());
        let mut run = LargeRun::new((statement, parameters), source, budget, &began, &later);
        let looked_at = run.run(&mut tx)?;
        match tx.commit(&mut run) {
            Ok(_) => Ok(LargeDid { documents: run.documents(), looked_at }),
            Err(engine::StoreError::Aborted) => {
                Err(run.take_failure().unwrap_or_else(|| engine::StoreError::Aborted.into()))
            }
            Err(error) => Err(error.into()),
        }
    }
}
