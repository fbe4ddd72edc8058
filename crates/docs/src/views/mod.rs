//! Views: grouped queries whose rows every write keeps up to date.
//!
//! For each view of its collection, a write subtracts the contribution of the old document and adds that of the new one
//! (`write.rs`); the engine applies these changes to the view's rows (`fold.rs`). The changes form a commutative group under
//! addition (`state.rs`). So two writes to the same row do not conflict, and a view is built while writes continue, by adding
//! the stored documents to the same rows (`build.rs`). Queries see a view as a table (`table.rs`). A view may read another
//! view, whose changed rows are then subtracted and added like documents (`chain.rs`, `upper.rs`).
//!
//! - A view that is ready ([`crate::catalog::RuleState`]) equals the result of its query at every version.
//! - Sums are exact, whatever the order of changes: integers in 128 bits, reals by [`crate::encoding::exact_sum`].

mod build;
mod chain;
mod database_core;
pub(crate) mod definition;
pub(crate) mod fold;
mod gather;
mod loading;
pub(crate) mod operand;
mod order;
pub(crate) mod row;
pub(crate) mod state;
mod stored;
pub(crate) mod table;
mod upper;
mod verify;
mod view;
pub(crate) mod write;

use std::sync::Arc;

use crate::engine::{self, TreeId};
use crate::sql::Unbuilt;

pub(crate) use build::Builder;
pub(crate) use chain::Chains;
pub(crate) use database_core::DatabaseCore;
pub(crate) use loading::Loading;
pub use order::CHAIN_MAX;
pub(crate) use order::compile;
pub use row::ViewId;
pub(crate) use stored::{built_in, declared_in, resolve, tables};
pub use verify::{ViewFault, ViewReport};
pub(crate) use verify::{ViewSource, verify};
pub use view::ViewStatus;
pub(crate) use view::{View, Watch};

/// Most views of a database.
pub const VIEWS_MAX: usize = 256;

/// The views of an open database: the declared ones in the catalog's order, then those that serve until a changed definition
/// is built.
#[derive(Debug)]
pub(crate) struct Views {
    pub(crate) list: Vec<Arc<View>>,
    pub(crate) catalog_tree: TreeId,
}

impl Views {
    pub(crate) fn new(catalog_tree: TreeId) -> Views {
        Views { list: Vec::new(), catalog_tree }
    }

    /// The views that read the view at this place.
    pub(crate) fn uppers(&self, lower: usize) -> impl Iterator<Item = (usize, &Arc<View>)> {
        self.list.iter().enumerate().filter(move |(_, view)| view.definition.lower() == Some(lower))
    }

    /// The views that read a collection, directly or through other views.
    pub(crate) fn of_collection(&self, collection: usize) -> impl Iterator<Item = &Arc<View>> {
        self.list.iter().filter(move |view| self.bottom(view).definition.collection() == Some(collection))
    }

    /// The lowest view of a view's chain.
    fn bottom<'v>(&'v self, view: &'v View) -> &'v View {
        let mut bottom = view;
        while let Some(lower) = self.lower(bottom) {
            bottom = lower;
        }
        bottom
    }

    /// The view that this view reads.
    pub(crate) fn lower(&self, view: &View) -> Option<&Arc<View>> {
        self.list.get(view.definition.lower()?)
    }

    /// The number of views below a view.
    fn depth(&self, view: &View) -> usize {
        self.lower(view).map_or(0, |lower| 1 + self.depth(lower))
    }

    /// The view that answers queries on the declared view at a place, for a given engine state: the view itself, or while it is
    /// being built its predecessor, if that has the same columns.
    fn serving(&self, place: usize, engine: &impl engine::ReadView) -> Result<&View, engine::StoreError> {
        let Some(view) = self.list.get(place) else { return Err(unavailable("?", "is not there")) };
        if view.was_ready() {
            return Ok(view);
        }
        // The engine state may be older than the end of the view's build.
        let answers = |progress: &[u8]| progress == chain::ANSWERS;
        if view.is_ready() && engine.get(self.catalog_tree, &chain::progress_key(view))?.as_deref().is_some_and(answers)
        {
            return Ok(view);
        }
        let same = |other: &&Arc<View>| {
            let answered = other.is_ready() || (other.was_ready() && view.is_ready());
            other.name == view.name && answered && other.definition.looks_like(&view.definition)
        };
        match (self.list.iter().filter(|other| !Arc::ptr_eq(other, view)).find(same), view.status()) {
            (Some(before), _) => Ok(before),
            (None, status) => match status.failure {
                Some(why) => Err(unavailable(&view.name, &format!("could not be built: {why}"))),
                None => {
                    let (done, all) = status.parts;
                    Err(unavailable(&view.name, &format!("is being built: {done} of {all} parts are done")))
                }
            },
        }
    }
}

fn unavailable(name: &str, why: &str) -> engine::StoreError {
    let source = std::io::Error::new(std::io::ErrorKind::WouldBlock, Unbuilt(format!("the view `{name}` {why}")));
    engine::StoreError::Io { context: "ask a view".to_string(), source: source.into() }
}
