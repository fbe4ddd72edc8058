//! A statement that deletes all documents of a collection, done as deletions of whole trees: documents, index entries, unique values
//! and the rows of the collection's views. It costs the same whatever the collection holds.
//!
//! A deleted range takes every key that is there at its commit, whoever put it, and additions to views that are on their way would
//! outlive it. So the gate is closed meanwhile ([`crate::gate`]): no write is under way, and those that come wait some milliseconds. The
//! documents are counted there, too: the tree file knows its entries, and few changes lie above it after a checkpoint.
//!
//! Where it cannot be done so, the statement deletes document by document like any other ([`Database::modify`]):
//!
//! - it has a condition, or RETURNING;
//! - a collection that refers to this one has documents, which may refer to what goes;
//! - an index, rule or view of it is being built, or a view over a view counts the row that the lower one has of no document;
//! - its indexes, unique fields and views are too many for one transaction ([`store::RANGES_MAX`]);
//! - its documents expire and are many: those that are due are not counted, and each is looked at to tell;
//! - statements that run for long hold up the gate, or a disk is too full for a checkpoint.
//!
//! Followers of changes are told to read the collection anew ([`crate::changes::DocumentChange::Reset`]).

use store::{KeyRange, RANGES_MAX, TreeId};

use crate::collection::Collection;
use crate::database::{CollectionId, Database};
use crate::large::LargeDid;
use crate::sql::{Action, Budget, Modification, ModifyError, Value};
use crate::views::ViewState;

/// Up to so many documents are counted one by one while writes wait: some milliseconds.
const COUNTED_MAX: u64 = 100_000;

impl Database {
    /// Deletes all documents; `None` where nothing was done, and the statement has to be run like any other.
    pub(crate) fn truncate(
        &self,
        statement: &Modification,
        parameters: &[Value<'_>],
        budget: &Budget<'_>,
    ) -> Option<Result<LargeDid, ModifyError>> {
        let collection = self.collection_at(CollectionId(statement.collection()));
        if statement.action() != Action::Delete
            || !statement.is_whole()
            || self.is_for_one_transaction(statement, collection)
        {
            return None;
        }
        let trees = self.trees_of(statement.collection())?;
        self.try_truncate(statement, collection, (parameters, budget), &trees).transpose()
    }

    fn try_truncate(
        &self,
        statement: &Modification,
        collection: &Collection,
        (parameters, budget): (&[Value<'_>], &Budget<'_>),
        trees: &[TreeId],
    ) -> Result<Option<LargeDid>, ModifyError> {
        let (reader, tree) = (self.store().reader()?, collection.info.tree);
        let about = reader.snapshot().entries_about(tree, KeyRange::ALL)?;
        if about > COUNTED_MAX {
            if collection.is_timed() {
                return Ok(None);
            }
            if self.store().checkpoint().is_err() {
                // A full disk takes deletions all the same.
                return Ok(None);
            }
        }
        let Some(_closed) = self.inner.gate.try_close() else { return Ok(None) };
        if self.is_superseded() {
            return Err(store::Error::Busy.into());
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
        Ok(Some(LargeDid { documents, looked_at: 0 }))
    }

    /// All trees that hold what a collection's documents put there. `None` where one of them is not empty without documents, or where
    /// they are more than a transaction can empty.
    fn trees_of(&self, collection: usize) -> Option<Vec<TreeId>> {
        let (views, info) = (self.views_at_work(), &self.collection_at(CollectionId(collection)).info);
        let mut trees = vec![info.tree];
        trees.extend(info.indexes.iter().map(|index| index.tree));
        trees.extend(info.unique.iter().map(|unique| unique.tree));
        for view in views.of_collection(collection).filter(|view| view.state() != ViewState::Failed) {
            if views.lower(view).is_some_and(|lower| lower.definition.always().is_some()) {
                return None;
            }
            trees.extend([view.groups, view.values]);
        }
        (trees.len() <= RANGES_MAX).then_some(trees)
    }
}
