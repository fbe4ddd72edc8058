//! Builds a collection's trees from documents in order of their keys: the tree of the documents bottom-up, while the entries of
//! indexes, unique values, references and views go to sorters.

use binjson::StoredDocument;

use crate::database::{CollectionId, DocumentDatabase};
use crate::encoding::FieldNumbers;
use crate::engine::{self, BulkTree, STAMP_BYTES, SortedRun, SortedRunWriter, TreeId};
use crate::opening::{DocumentOrigin, LoadError, Loader, ORIGIN_BYTES, Task, TreesToBuild};
use crate::views::Loading;
use crate::writes::Collection;

/// See the module's text.
pub(super) struct TreesBuilder<'c> {
    database: &'c DocumentDatabase,
    collection: &'c Collection,
    tree: BulkTree,
    loader: Loader<'c>,
    views: Loading<'c>,
    /// The keys of its documents that have not expired, in order, if other collections refer to it.
    keys: Option<SortedRunWriter>,
    shape: FieldNumbers,
    /// The collection has no indexes, unique fields, references or views.
    is_alone: bool,
}

/// The result.
pub(super) struct BuiltTrees<'c> {
    pub(super) tree: BulkTree,
    pub(super) tasks: Vec<Task<'c>>,
    /// The trees of its views.
    pub(super) views: Vec<(TreeId, BulkTree)>,
    pub(super) keys: Option<SortedRun>,
    pub(super) documents: u64,
}

impl<'c> TreesBuilder<'c> {
    /// Starts with no documents; index entries may take `sort_bytes` of memory.
    pub(super) fn new(
        database: &'c DocumentDatabase,
        number: usize,
        sort_bytes: usize,
    ) -> Result<TreesBuilder<'c>, LoadError> {
        let collection = database.collection_at(CollectionId(number));
        let wanted = TreesToBuild {
            indexes: (0..collection.indexes.len()).collect(),
            unique: (0..collection.unique.len()).collect(),
            references: (0..collection.references.len()).collect(),
        };
        let nothing_beside = wanted.indexes.is_empty() && wanted.unique.is_empty() && wanted.references.is_empty();
        Ok(TreesBuilder {
            database,
            collection,
            tree: database.store().bulk()?,
            loader: Loader::new(collection, &wanted, database.store(), sort_bytes),
            views: Loading::new(number, database.views_at_work(), database.store(), sort_bytes),
            keys: keys_of(database, collection)?,
            shape: FieldNumbers::default(),
            is_alone: nothing_beside && collection.views.is_empty(),
        })
    }

    /// Adds the next document: `stored` is its change number and the document.
    pub(super) fn add(&mut self, key: &[u8], place: &[u8; ORIGIN_BYTES], stored: &[u8]) -> Result<(), LoadError> {
        let document = stored.get(STAMP_BYTES..).and_then(|bytes| StoredDocument::from_bytes(bytes).ok());
        let document = document.ok_or_else(damaged)?;
        if !self.is_alone {
            self.add_beside(key, place, document)?;
        }
        self.add_again(key, stored)
    }

    fn add_beside(
        &mut self,
        key: &[u8],
        place: &[u8; ORIGIN_BYTES],
        document: StoredDocument<'_>,
    ) -> Result<(), LoadError> {
        let found = self.collection.info.key.kind.of_bytes(key).ok_or_else(damaged)?;
        let loader = &mut self.loader;
        let added = self.collection.with_row(document, &mut self.shape, |row| loader.add(row, &found, place))?;
        let added = added.and_then(|()| self.views.add(document));
        added.map_err(|why| LoadError::Record { why, from: DocumentOrigin { place: *place, key: key.to_vec() } })
    }

    /// Adds a document whose index entries were added before the tree was restarted.
    pub(super) fn add_again(&mut self, key: &[u8], stored: &[u8]) -> Result<(), LoadError> {
        self.tree.push(key, stored)?;
        if let Some(keys) = &mut self.keys
            && self.collection.is_there(stored, || self.database.clock().now_ms())
        {
            keys.push(key, &[])?;
        }
        Ok(())
    }

    /// Restarts the documents' tree; index entries are kept. Returns the old tree.
    pub(super) fn begin_again(&mut self) -> Result<BulkTree, LoadError> {
        self.keys = keys_of(self.database, self.collection)?;
        Ok(std::mem::replace(&mut self.tree, self.database.store().bulk()?))
    }

    /// The documents' tree alone.
    pub(super) fn into_tree(self) -> BulkTree {
        self.tree
    }

    pub(super) fn finish(self) -> Result<BuiltTrees<'c>, LoadError> {
        let keys = self.keys.map(SortedRunWriter::finish).transpose()?;
        let views = self.views.build(self.database.store()).map_err(|why| {
            let source = std::io::Error::other(why.to_string());
            LoadError::Store(engine::StoreError::Io {
                context: "building the views".to_string(),
                source: source.into(),
            })
        })?;
        let documents = self.tree.entries();
        Ok(BuiltTrees { tree: self.tree, tasks: self.loader.into_tasks(), views, keys, documents })
    }
}

fn keys_of(
    database: &DocumentDatabase,
    collection: &Collection,
) -> Result<Option<SortedRunWriter>, engine::StoreError> {
    (!collection.referrers.is_empty()).then(|| database.store().sorted_run()).transpose()
}

fn damaged() -> LoadError {
    LoadError::damaged("a sorted run is damaged")
}
