//! The views of a collection during a bulk load, and the views over them.

use std::borrow::Cow;
use std::ops::ControlFlow;

use binjson::StoredDocument;

use super::Views;
use super::definition::Contribution;
use super::gather::{GATHER_BYTES_MAX, ImportGather};
use super::table;
use super::view::View;
use crate::engine::{self, BulkTree, Direction, KeyRange, STAMP_BYTES, SortedEntries, Store, TreeId};
use crate::error::WriteError;
use crate::sql::grouping::Memory;

/// See the module's text.
pub(crate) struct Loading<'c> {
    /// The views that read the collection, with their places.
    gathers: Vec<(usize, ImportGather)>,
    /// The number of views that share the memory.
    count: usize,
    bytes: usize,
    views: &'c Views,
    memory: Memory,
    contribution: Contribution,
}

/// Trees to be attached.
type Trees = Vec<(TreeId, BulkTree)>;

impl<'c> Loading<'c> {
    pub(crate) fn new(place: usize, views: &'c Views, store: &Store, bytes: usize) -> Loading<'c> {
        let count = views.of_collection(place).count().max(1);
        let mut loading = Loading {
            gathers: Vec::new(),
            count,
            bytes: bytes / count,
            views,
            memory: Memory::default(),
            contribution: Contribution::default(),
        };
        // Failed views have no valid rows to add to: the next opening builds them anew.
        let ready = views.list.iter().enumerate().filter(|(_, view)| view.is_ready());
        let own = ready.filter(|(_, view)| view.definition.collection() == Some(place));
        loading.gathers = own.map(|(place, _)| (place, loading.gather(store))).collect();
        loading
    }

    fn gather(&self, store: &Store) -> ImportGather {
        ImportGather::new(store, GATHER_BYTES_MAX / self.count.max(1), self.bytes)
    }

    pub(crate) fn add(&mut self, document: StoredDocument<'_>) -> Result<(), WriteError> {
        for (place, gather) in &mut self.gathers {
            let view = &self.views.list[*place];
            view.contribution(document, &mut self.memory, &mut self.contribution)?;
            gather.add(view, &self.contribution)?;
        }
        Ok(())
    }

    /// Builds all their trees.
    pub(crate) fn build(mut self, store: &Store) -> Result<Trees, WriteError> {
        let mut trees = Trees::new();
        while let Some((place, gather)) = self.gathers.pop() {
            self.build_one(place, gather, store, &mut trees)?;
        }
        Ok(trees)
    }

    /// Builds a view's trees, and adds its rows to the views over it.
    fn build_one(
        &mut self,
        place: usize,
        gather: ImportGather,
        store: &Store,
        trees: &mut Trees,
    ) -> Result<(), WriteError> {
        let view = &self.views.list[place];
        let (mut groups, mut values) = (store.bulk()?, store.bulk()?);
        let uppers = self.views.uppers(place).filter(|(_, upper)| upper.is_ready());
        let mut uppers: Vec<(usize, ImportGather)> = uppers.map(|(place, _)| (place, self.gather(store))).collect();
        if uppers.is_empty() {
            gather
                .finish(view, &mut |key, value| values.push(key, value), &mut |key, value| groups.push(key, value))?;
        } else {
            let (mut group_run, mut value_run) = (store.sorted_run()?, store.sorted_run()?);
            let each_value = &mut |key: &[u8], value: &[u8]| {
                value_run.push(key, &[])?;
                values.push(key, value)
            };
            let each_group = &mut |key: &[u8], state: &[u8]| {
                group_run.push(key, state)?;
                groups.push(key, state)
            };
            gather.finish(view, each_value, each_group)?;
            let (group_run, value_run) = (group_run.finish()?, value_run.finish()?);
            let mut rows = Rows { view, values: value_run.read()?, next: None };
            let mut entries = group_run.read()?;
            rows.step()?;
            let mut group = entry(&mut entries)?;
            if let Some(always) = view.definition.always().filter(|key| group.as_ref().is_none_or(|(of, _)| of != key))
            {
                self.add_row(&rows.row(always, None)?, view, &mut uppers)?;
            }
            while let Some((key, state)) = group {
                self.add_row(&rows.row(key, Some(state))?, view, &mut uppers)?;
                group = entry(&mut entries)?;
            }
        }
        trees.extend([(view.groups, groups), (view.values, values)]);
        uppers.into_iter().try_for_each(|(place, gather)| self.build_one(place, gather, store, trees))
    }

    fn add_row(&mut self, row: &Row<'_>, lower: &View, uppers: &mut [(usize, ImportGather)]) -> Result<(), WriteError> {
        for (place, gather) in uppers {
            let upper = &self.views.list[*place];
            let wanted = upper.definition.wanted_of(&lower.definition);
            let mut stored = Vec::new();
            table::document(lower, row, &wanted, &row.key, &mut table::Rendered::default(), &mut stored)?;
            let document = stored.get(STAMP_BYTES..).and_then(|bytes| StoredDocument::from_bytes(bytes).ok());
            let Some(document) = document else { continue };
            upper.contribution(document, &mut self.memory, &mut self.contribution)?;
            gather.add(upper, &self.contribution)?;
        }
        Ok(())
    }
}

fn entry(entries: &mut SortedEntries) -> Result<Option<engine::Entry>, engine::StoreError> {
    let next = entries.next()?;
    Ok(next.map(|(key, value)| (key.to_vec(), value.to_vec())))
}

/// The rows of a view that is being built, in order, each with its counted values.
struct Rows<'r> {
    view: &'r View,
    values: SortedEntries,
    next: Option<Vec<u8>>,
}

impl<'r> Rows<'r> {
    fn step(&mut self) -> Result<(), engine::StoreError> {
        self.next = entry(&mut self.values)?.map(|(key, _)| key);
        Ok(())
    }

    /// The next row's state, and the first and last value of each of its facets.
    fn row(&mut self, key: Vec<u8>, state: Option<Vec<u8>>) -> Result<Row<'r>, engine::StoreError> {
        let mut ends: Vec<Vec<u8>> = Vec::new();
        while let Some(value) = self.next.take_if(|value| value.starts_with(&key)) {
            let facet = |of: &Vec<u8>| of.get(key.len()).copied();
            match &ends[..] {
                // Only the first and the last value of a facet are kept: the last one is replaced.
                [.., first, last] if facet(first) == facet(&value) && facet(last) == facet(&value) => {
                    ends.pop();
                }
                _ => {}
            }
            ends.push(value);
            self.step()?;
        }
        Ok(Row { view: self.view, key, state, ends })
    }
}

/// One row's part of the trees, as an engine's view.
struct Row<'r> {
    view: &'r View,
    key: Vec<u8>,
    state: Option<Vec<u8>>,
    ends: Vec<Vec<u8>>,
}

#[allow(clippy::type_complexity, reason = "as for the trait")]
impl engine::ReadView for Row<'_> {
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, engine::StoreError> {
        let is_it = tree == self.view.groups && key == self.key;
        Ok(self.state.as_deref().filter(|_| is_it).map(Cow::Borrowed))
    }

    fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), engine::StoreError> {
        let mut found: Vec<&Vec<u8>> = self.ends.iter().filter(|key| table::is_within(range, key)).collect();
        if direction == Direction::Backward {
            found.reverse();
        }
        for key in found.into_iter().filter(|_| tree == self.view.values) {
            if visit(key, &[]).is_break() {
                break;
            }
        }
        Ok(())
    }
}
