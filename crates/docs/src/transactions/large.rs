//! Statements whose changes exceed an ordinary transaction run in a large one ([`engine::LargeTx`]).

use std::sync::Arc;

use crate::catalog::readiness;
use crate::database::{CollectionId, DocumentDatabase, WriteKind};
use crate::engine;
use crate::error::WriteError;
use crate::sql::{Budget, QueryError, RowList, SpillSpace, Value};
use crate::statements::{Modification, ModifyError, StatementCounts};
use crate::views::table::WithViews;
use crate::writes::Collection;

/// With less free disk space than this no large transaction is started.
const BYTES_LEAST: u64 = 16 << 20;

/// Whether a statement failed because it exceeds one transaction's limits.
pub(crate) fn is_too_large(error: &ModifyError) -> bool {
    matches!(error, ModifyError::Query(QueryError::Limit { .. }) | ModifyError::Write(WriteError::TooLarge { .. }))
}

impl DocumentDatabase {
    /// Whether everything that is derived from a collection's documents is built.
    pub(crate) fn has_all_built(&self, collection: &Collection, place: usize) -> bool {
        let info = &collection.info;
        let is_own = |reference: &crate::writes::ReferencePlace| reference.target == info.tree;
        collection.announced.is_empty()
            && info.indexes.iter().all(|index| !index.readiness.is_pending())
            && info.unique.iter().all(|unique| !unique.readiness.is_pending())
            && !collection.references.iter().any(is_own)
            && !self.is_building_views(place)
    }

    /// Whether a view of a collection is being built: its builders write the rows that a large transaction would claim.
    pub(crate) fn is_building_views(&self, collection: usize) -> bool {
        self.views_at_work().of_collection(collection).any(|view| view.readiness.is_pending())
    }

    /// Runs a statement in a large transaction; `None` if its budget has no disk space for one.
    pub(crate) fn modify_large(
        &self,
        statement: &Modification,
        parameters: &[Value<'_>],
        budget: &Budget<'_>,
        returned: &mut RowList,
    ) -> Option<Result<StatementCounts, ModifyError>> {
        let space = budget.spill?;
        let passing = (!self.is_building_views(statement.collection())).then(|| self.pass(WriteKind::Long)).flatten();
        let Some(_passing) = passing else { return Some(Err(engine::StoreError::Busy.into())) };
        let collection = self.collection_at(CollectionId(statement.collection()));
        let budget = &Budget { now_ms: self.moment_ms(budget.now_ms), ..*budget };
        Some(self.apply_large(statement, collection, parameters, budget, space, returned))
    }

    fn apply_large(
        &self,
        statement: &Modification,
        collection: &Collection,
        parameters: &[Value<'_>],
        budget: &Budget<'_>,
        space: &Arc<SpillSpace>,
        returned: &mut RowList,
    ) -> Result<StatementCounts, ModifyError> {
        let mut taken = space.take_rest();
        // The source query may spill to disk too, so it gets half of the space.
        taken.shrink(taken.bytes() / 2);
        let whole = statement.trees_read(self.catalog());
        let mut tx = loop {
            match self.store().large(taken.bytes(), &whole) {
                Err(engine::StoreError::Full) if taken.bytes() / 2 >= BYTES_LEAST => taken.shrink(taken.bytes() / 2),
                begun => break begun?,
            }
        };
        let reader = self.store().reader()?;
        // An index that becomes ready later may lack entries in this state.
        let ready_by = readiness::count();
        let began = WithViews { inner: reader.snapshot(), views: self.views_at_work(), ready_by };
        let done = statement.apply_large(collection, &mut tx, &began, parameters, budget, returned)?;
        // It pins the pages of a state that is no longer read.
        drop(began);
        tx.commit(collection.info.tree)?;
        Ok(done)
    }
}
