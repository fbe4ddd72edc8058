//! Views: grouped queries whose rows every write keeps up to date.
//!
//! A write adds to each view of its collection what the new document contributes and takes out what the old one did
//! (`write.rs`); the engine lays these changes onto the rows (`fold.rs`). They are additions in a group (`state.rs`), so they
//! commute: two writes of one group need not conflict, and a view is built beside running writes by adding what stood in its
//! collection to the same rows (`build.rs`). Queries see a view as a table (`table.rs`).
//!
//! - A view that may be asked ([`ViewState::Ready`]) equals its query run from scratch at every version.
//! - Sums have no error, whatever the order of changes: integers in 128 bits, reals by [`crate::exact_sum`].

mod build;
pub(crate) mod definition;
pub(crate) mod fold;
mod gather;
pub(crate) mod state;
mod stored;
pub(crate) mod table;
mod verify;
mod view;
pub(crate) mod write;

use std::sync::Arc;

pub(crate) use build::{Builder, Heart};
pub(crate) use gather::Loading;
pub(crate) use stored::{resolve, tables};
pub(crate) use verify::verify;
pub use verify::{ViewFault, ViewReport};
pub(crate) use view::View;
pub use view::{ViewState, ViewStatus};

/// Most views of a database.
pub const VIEWS_MAX: usize = 256;

/// The views of an open database: the declared ones in the catalog's order, then those that serve until a changed definition
/// is built.
#[derive(Debug, Default)]
pub(crate) struct Views {
    pub(crate) list: Vec<Arc<View>>,
}

impl Views {
    /// The view that answers for the declared one at a place: itself, or while it is being built the one before, if that
    /// has the same columns.
    fn serving(&self, place: usize) -> Result<&View, store::Error> {
        let Some(view) = self.list.get(place) else { return Err(unavailable("?", "is not there")) };
        if view.is_ready() {
            return Ok(view);
        }
        let same = |other: &&Arc<View>| {
            other.name == view.name && other.is_ready() && other.definition.looks_like(&view.definition)
        };
        match (self.list.iter().find(same), view.status()) {
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
    let source = std::io::Error::new(std::io::ErrorKind::WouldBlock, why.to_string());
    store::Error::Io { context: format!("view {name}"), source }
}
