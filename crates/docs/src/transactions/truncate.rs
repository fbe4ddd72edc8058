//! Deletion of all documents of a collection as range deletions of whole trees: documents, index entries, unique values and the
//! rows of the collection's views. The cost does not depend on the number of documents.
//!
//! A range deletion removes every key that exists at its commit, including keys of concurrent writes, while concurrent
//! additions to views would survive it. So the gate is closed meanwhile (`database/gate.rs`): no write is in progress, and new
//! ones wait for some milliseconds. The documents are counted under the closed gate too. This is quick: the tree file stores
//! its number of entries, and after a checkpoint few later changes must be counted.
//!
//! In these cases the statement deletes document by document like any other ([`DocumentDatabase::modify`]):
//!
//! - it has a condition, or RETURNING;
//! - a collection that refers to this one has documents, which may refer to deleted ones;
//! - an index, rule or view of it is being built, or a view over a view contains a lower row that exists even without
//!   documents;
//! - its indexes, unique fields and views are too many for one transaction ([`engine::RANGES_MAX`]);
//! - it has many documents, and they expire: each would have to be read, because expired ones must not be counted;
//! - long-running statements keep the gate from closing, or the disk is too full for a checkpoint.
//!
//! Readers of the changes get a reset of the collection ([`crate::database::changes::DocumentChange::Reset`]).

use crate::database::{CollectionId, DocumentDatabase};
use crate::engine::{self, KeyRange, RANGES_MAX, TreeId};
use crate::sql::{Action, Budget, Value};
use crate::statements::{Modification, ModifyError, StatementCounts};
use crate::writes::Collection;

/// Maximum number of documents that are counted one by one while writes wait (some milliseconds).
const COUNTED_MAX: u64 = 100_000;

impl DocumentDatabase {
    /// Deletes all documents; `None`: nothing was done, and the statement must run like any other.
    pub(crate) fn truncate(
        &self,
        statement: &Modification,
        parameters: &[Value<'_>],
        budget: &Budget<'_>,
    ) -> Option<Result<StatementCounts, ModifyError>> {
        let collection = self.collection_at(CollectionId(statement.collection()));
        if statement.action() != Action::Delete
            || !statement.is_whole()
            || !self.has_all_built(collection, statement.collection())
        {
            return None;
        }
        let trees = self.trees_of(statement.collection())?;
        self.try_truncate(statement, collection, parameters, budget, &trees).transpose()
    }

    fn try_truncate(
        &self,
        statement: &Modification,
        collection: &Collection,
        parameters: &[Value<'_>],
        budget: &Budget<'_>,
        trees: &[TreeId],
    ) -> Result<Option<StatementCounts>, ModifyError> {
        let (reader, tree) = (self.store().reader()?, collection.info.tree);
        let about = reader.snapshot().entries_about(tree, KeyRange::ALL)?;
        if about > COUNTED_MAX {
            if collection.is_timed() {
                return Ok(None);
            }
            if self.store().checkpoint().is_err() {
                // A full disk still permits deletions, document by document.
                return Ok(None);
            }
        }
        let Some(_closed) = self.inner.gate.try_close() else { return Ok(None) };
        if self.is_superseded() {
            return Err(engine::StoreError::Busy.into());
        }
        let snapshot = reader.snapshot();
        for referrer in &collection.referrers {
            if snapshot.first(referrer.documents, KeyRange::ALL)?.is_some() {
                return Ok(None);
            }
        }
        let documents = match collection.is_timed() {
            true => {
                let budget = Budget { now_ms: self.moment_ms(budget.now_ms), ..*budget };
                statement.count(&snapshot, parameters, &budget)?
            }
            false => snapshot.count(tree)?,
        };
        if documents > 0 {
            self.store().commit(&mut |tx| {
                trees.iter().for_each(|tree| tx.delete_range(*tree, KeyRange::ALL));
                Ok(())
            })?;
        }
        Ok(Some(StatementCounts { documents, ..StatementCounts::default() }))
    }

    /// All trees with entries of a collection's documents. `None` if a view over a view contains a row that exists without
    /// documents, or if there are too many trees for one transaction.
    fn trees_of(&self, collection: usize) -> Option<Vec<TreeId>> {
        let (views, info) = (self.views_at_work(), &self.collection_at(CollectionId(collection)).info);
        let mut trees = vec![info.tree];
        trees.extend(info.indexes.iter().map(|index| index.tree));
        trees.extend(info.unique.iter().map(|unique| unique.tree));
        for view in views.of_collection(collection).filter(|view| view.readiness.is_maintained()) {
            if views.lower(view).is_some_and(|lower| lower.definition.always().is_some()) {
                return None;
            }
            trees.extend([view.groups, view.values]);
        }
        (trees.len() <= RANGES_MAX).then_some(trees)
    }
}
