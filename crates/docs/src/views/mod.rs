//! Views: grouped queries whose rows every write keeps up to date.
//!
//! A write adds to each view of its collection what the new document contributes and takes out what the old one did
//! (`write.rs`); the engine lays these changes onto the rows (`fold.rs`). They are additions in a group (`state.rs`), so they
//! commute: two writes of one group need not conflict, and a view is built beside running writes by adding what stood in its
//! collection to the same rows (`build.rs`). Queries see a view as a table (`table.rs`). A view may read another one: rows that
//! change are taken out of it and added to it as documents are (`chain.rs`, `upper.rs`).
//!
//! - A view that may be asked ([`ViewState::Ready`]) equals its query run from scratch at every version.
//! - Sums have no error, whatever the order of changes: integers in 128 bits, reals by [`crate::exact_sum`].

mod build;
mod chain;
pub(crate) mod definition;
pub(crate) mod fold;
mod gather;
mod heart;
mod loading;
pub(crate) mod operand;
mod order;
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
pub(crate) use heart::Heart;
pub(crate) use loading::Loading;
pub use order::CHAIN_MAX;
pub(crate) use order::compile;
pub(crate) use stored::{built_in, declared_in, resolve, tables};
pub(crate) use verify::{Source, verify};
pub use verify::{ViewFault, ViewReport};
pub(crate) use view::View;
pub use view::{ViewState, ViewStatus};

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

    /// The views that read another, by its place.
    pub(crate) fn uppers(&self, lower: usize) -> impl Iterator<Item = (usize, &Arc<View>)> {
        self.list.iter().enumerate().filter(move |(_, view)| view.definition.lower() == Some(lower))
    }

    /// The views that read a collection, and those that read them, however far.
    pub(crate) fn of_collection(&self, collection: usize) -> impl Iterator<Item = &Arc<View>> {
        self.list.iter().filter(move |view| self.bottom(view).definition.collection() == Some(collection))
    }

    /// The view at the lower end of one's chain.
    fn bottom<'v>(&'v self, view: &'v View) -> &'v View {
        let mut bottom = view;
        while let Some(lower) = self.lower(bottom) {
            bottom = lower;
        }
        bottom
    }

    /// The view that one reads.
    pub(crate) fn lower(&self, view: &View) -> Option<&Arc<View>> {
        self.list.get(view.definition.lower()?)
    }

    /// How many views stand below one.
    fn depth(&self, view: &View) -> usize {
        self.lower(view).map_or(0, |lower| 1 + self.depth(lower))
    }

    /// The view that answers for the declared one at a place as of a state of the engine: itself, or while it is being built the one
    /// before, if that has the same columns.
    fn serving(&self, place: usize, engine: &impl engine::View) -> Result<&View, store::Error> {
        let Some(view) = self.list.get(place) else { return Err(unavailable("?", "is not there")) };
        if view.was_ready() {
            return Ok(view);
        }
        // The state may be older than the view's last row, and than the end of the one before.
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

fn unavailable(name: &str, why: &str) -> store::Error {
    let source = std::io::Error::new(std::io::ErrorKind::WouldBlock, Unbuilt(format!("the view `{name}` {why}")));
    store::Error::Io { context: "ask a view".to_string(), source }
}
