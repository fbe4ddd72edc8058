//! Views over views: applying the change of a row of a lower view to the upper views, which read it.
//!
//! A row of a view is derived from its group's state and, for MIN and MAX, from counted values. The store computes the row
//! before and after each transaction that folds into either ([`engine::Fold::derived`]). In the same transaction its old
//! contribution to the upper views is replaced by the new one.
//!
//! An upper view that is being built follows only the lower rows that its build has read, up to the key stored in the catalog
//! under [`progress_key`]. The build reads rows and stores that key in one transaction, so each lower row is counted once,
//! whether it changes before or after that.
//!
//! Working memory is the thread's own: a lock around shared memory would be held while a fold reads, and the read of a large
//! transaction waits for the batch that the writer has open, while the writer would wait for that lock.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

use binjson::StoredDocument;
use hashbrown::HashMap;

use super::view::View;
use super::{row, table, write};
use crate::engine::{self, Direction, FoldView, Further, KeyRange, RowChange, STAMP_BYTES, TreeId};
use crate::error::VIEW_CANNOT_TAKE;
use crate::sql::IntegerOverflow;
use crate::writes::scratch;

/// The views of a database that read other views.
pub(crate) struct Chains {
    views: Vec<Arc<View>>,
    /// For each view its upper views, and which of its columns any of them reads.
    uppers: Vec<(Vec<usize>, Vec<bool>)>,
    /// The trees of the lower views.
    trees: HashMap<TreeId, Part>,
    catalog_tree: TreeId,
}

/// The role of a tree in a view.
#[derive(Clone, Copy)]
struct Part {
    view: usize,
    is_values: bool,
}

impl Chains {
    pub(crate) fn new(views: &[Arc<View>], catalog_tree: TreeId) -> Chains {
        let uppers_of = |place: usize| (0..views.len()).filter(move |&of| views[of].definition.lower() == Some(place));
        let mut uppers = Vec::new();
        let mut trees = HashMap::new();
        for (place, view) in views.iter().enumerate() {
            let mut wanted = vec![false; view.definition.columns.len()];
            for upper in uppers_of(place) {
                let of = views[upper].definition.wanted_of(&view.definition);
                wanted.iter_mut().zip(of).for_each(|(wanted, of)| *wanted |= of);
            }
            uppers.push((uppers_of(place).collect::<Vec<usize>>(), wanted));
            if !uppers[place].0.is_empty() {
                trees.insert(view.groups, Part { view: place, is_values: false });
                trees.insert(view.values, Part { view: place, is_values: true });
            }
        }
        Chains { views: views.to_vec(), uppers, trees, catalog_tree }
    }

    /// The upper views that follow changes now.
    fn following(&self, place: usize) -> impl Iterator<Item = &Arc<View>> {
        let uppers = self.uppers[place].0.iter().map(|upper| &self.views[*upper]);
        uppers.filter(|upper| upper.is_ready() || (upper.readiness.is_pending() && upper.has_begun_to_follow()))
    }

    /// See [`engine::Fold::derived`].
    pub(crate) fn derived<'k>(&self, tree: TreeId, key: &'k [u8]) -> Option<(u32, &'k [u8])> {
        if self.trees.is_empty() {
            return None;
        }
        let part = *self.trees.get(&tree)?;
        self.following(part.view).next()?;
        let key = if part.is_values { self.views[part.view].definition.group_of(key)? } else { key };
        Some((part.view as u32, key))
    }

    /// See [`engine::Fold::derive`].
    pub(crate) fn derive(
        &self,
        place: usize,
        key: &[u8],
        now: &dyn FoldView,
        out: &mut Vec<u8>,
    ) -> Result<(), engine::StoreError> {
        let (view, wanted) = (&self.views[place], &self.uppers[place].1);
        match row::with_memory(|memory| table::document(view, &Folding(now), wanted, key, memory, out)) {
            Err(engine::StoreError::Io { source, .. }) if IntegerOverflow::is_in(&source) => {
                Err(engine::StoreError::Refused { why: VIEW_CANNOT_TAKE })
            }
            done => done,
        }
    }

    /// See [`engine::Fold::follow`].
    pub(crate) fn follow(
        &self,
        place: usize,
        key: &[u8],
        change: RowChange<'_>,
        now: &dyn FoldView,
        further: &mut Further<'_>,
    ) -> Result<(), engine::StoreError> {
        let (Ok(old), Ok(new)) = (document(change.before), document(change.after)) else {
            return Err(engine::StoreError::Refused { why: "a row of a view is damaged" });
        };
        for upper in self.following(place) {
            if upper.is_ready() || self.has_come_to(upper, key, now)? {
                scratch::with(|memory| write::one(upper, old, new, further, &mut memory.views))
                    .map_err(|_| engine::StoreError::Refused { why: VIEW_CANNOT_TAKE })?;
            }
        }
        Ok(())
    }

    /// Whether the build of an upper view has read the lower row with this key.
    fn has_come_to(&self, upper: &View, key: &[u8], now: &dyn FoldView) -> Result<bool, engine::StoreError> {
        let progress = now.get(self.catalog_tree, &progress_key(upper))?;
        Ok(progress.is_some_and(|progress| *progress >= *progress_value(Some(key))))
    }
}

fn document(row: &[u8]) -> Result<Option<StoredDocument<'_>>, binjson::Damaged> {
    row.get(STAMP_BYTES..).map(StoredDocument::from_bytes).transpose()
}

/// The key of the catalog's row with the progress of an upper view's build.
pub(crate) fn progress_key(upper: &View) -> Vec<u8> {
    progress_name(upper.number).into_bytes()
}

/// The same from a view's number, as text.
pub(crate) fn progress_name(number: u64) -> String {
    format!("{PROGRESS}{number}")
}

/// Prefix of these keys.
pub(crate) const PROGRESS: &str = "view-progress/";

/// The key of the last lower row that a build has read, in hexadecimal, which keeps the order of keys; or a marker for the end.
pub(crate) fn progress_value(key: Option<&[u8]>) -> Vec<u8> {
    match key {
        Some(key) => key.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect(),
        None => b"~".to_vec(),
    }
}

/// The progress of a view that was built since the opening. An older snapshot does not contain it, and reads the predecessor.
pub(crate) const ANSWERS: &[u8] = b"~answers";

/// The read access of a fold, as the engine's view.
struct Folding<'f>(&'f dyn FoldView);

#[allow(clippy::type_complexity, reason = "as for the trait")]
impl engine::ReadView for Folding<'_> {
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, engine::StoreError> {
        self.0.get(tree, key)
    }
    fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), engine::StoreError> {
        self.0.scan(tree, range, direction, visit)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;
    use crate::config::Config;
    use crate::database::DocumentDatabase;
    use crate::engine::StoreOptions;

    const CONFIG: &str = "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n\
                          [views.lower]\nquery = \"SELECT kind, COUNT(*) AS n FROM items GROUP BY kind\"\n\
                          [views.upper]\nquery = \"SELECT n, COUNT(*) AS c FROM lower GROUP BY n\"\n";

    /// A state without rows, in which a read ends when `before` has ended.
    struct Empty<'e>(&'e dyn Fn());

    impl FoldView for Empty<'_> {
        fn get(&self, _: TreeId, _: &[u8]) -> Result<Option<Cow<'_, [u8]>>, engine::StoreError> {
            (self.0)();
            Ok(None)
        }
        fn scan(
            &self,
            _: TreeId,
            _: KeyRange<'_>,
            _: Direction,
            _: &mut (dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + '_),
        ) -> Result<(), engine::StoreError> {
            (self.0)();
            Ok(())
        }
    }

    #[test]
    fn the_writer_derives_a_row_while_the_read_of_a_large_transaction_waits_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let config = Config::parse("views.toml".as_ref(), CONFIG).unwrap();
        let (database, _) = DocumentDatabase::open(&config, folder.path(), StoreOptions::default()).unwrap();
        let core = &database.inner.core;
        let chains = Arc::new(Chains::new(&core.views.list, core.catalog_tree));
        let lower = core.views.list.iter().position(|view| view.name == "lower").unwrap();
        let (begin, begins) = channel::<()>();
        let (end, ends) = channel();
        let writer = Arc::clone(&chains);
        std::thread::spawn(move || {
            while begins.recv().is_ok() {
                writer.derive(lower, b"key", &Empty(&|| {}), &mut Vec::new()).unwrap();
                end.send(()).unwrap();
            }
        });
        let until_written = || {
            begin.send(()).unwrap();
            ends.recv_timeout(Duration::from_secs(60)).expect("the writer does not wait for the reader");
        };
        chains.derive(lower, b"key", &Empty(&until_written), &mut Vec::new()).unwrap();
    }
}
