//! The one small trait through which documents reach an engine, so that another than `store` can stand under it.

use std::borrow::Cow;
use std::ops::ControlFlow;

pub use store::{Direction, KeyRange, TreeId};

/// What can be read: a snapshot, or a transaction in progress.
pub trait View {
    /// The value of a key, borrowed or owned.
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, store::Error>;
    /// Visits entries in key order until the range ends or `visit` breaks.
    fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), store::Error>;
}

impl View for store::Snapshot<'_> {
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, store::Error> {
        store::Snapshot::get(self, tree, key)
    }
    fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), store::Error> {
        store::Snapshot::scan(self, tree, range, direction, visit)
    }
}
