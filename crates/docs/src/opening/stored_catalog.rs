//! The stored catalog: one row for each collection, index, unique field and reference of the directory.
//!
//! The rows are stored in the tree `catalog`; keys and values are text.
//!
//! ```text
//!  collection/NAME         {"key": FIELD, "type": TYPE, "schema": TEXT or null}, and "expire": FIELD, "expire_after": SECONDS;
//!                          for expiry by last write, with its own name for a field, also "expire_since": SECONDS;
//!                          with "undeclared": true if it has documents and the last configuration did not declare it
//!  index/NAME/FIELD,FIELD  {"tree": TREE, "included": [FIELD, …], "format": of its entries (`encoding/index.rs`)}
//!  unique/NAME/FIELD,FIELD {"tree": TREE}                      these two with "state": "building" until it is built
//!  reference/NAME/FIELD    {"target": NAME}
//!  standing/TREE           {"collection": NAME, "fields": [FIELD, …]} with the row of
//!                          an index that is no longer declared like this, until the indexes that begin with its field are built
//!  drop/TREE               {}            the tree's entries are obsolete and are to be removed
//!  counts/NUMBER           approximate size of a tree (`counter.rs`)
//! ```
//!
//! When a database is opened, the catalog that the configuration declares is compared with these rows. If a collection has
//! documents, missing or changed parts are built before the database opens (`rebuild.rs`). An index is built into a tree with a
//! new name. One step makes the tree visible and changes its row, so a stop before it leaves the old index.
//!
//! If the work is done while the database serves (`builds_indexes_later`), a row keeps the rules in force until a new rule
//! replaces them ([`crate::writes::announced`]). Likewise an index that the configuration changes or no longer declares stands, is
//! maintained and serves queries, references and expiry, while a declared index with the same first field is not complete.

use std::collections::BTreeSet;
use std::sync::Arc;

use schema::Schema;
use serde_json::{Value as Json, json};

use super::declared_rows::{declared_row, included, index_fields};
use super::loader::TreesToBuild;
use super::losses;
use super::open_error::DatabaseOpenError;
use super::stored_rows::{
    DROP, Rows, STANDING, UNDECLARED, documents_tree, holds_any, is_empty, is_part, parsed, tree_of,
};
use crate::catalog::{
    Catalog, CollectionInfo, ExpireInfo, FieldInfo, IndexInfo, Readiness, ReferenceInfo, RuleState, UniqueInfo,
};
use crate::config::row_name::{collection_row, index_row, indexed_fields, reference_row, unique_row};
use crate::config::{CollectionConfig, Config, ExpireConfig};
use crate::encoding::index;
use crate::engine::{ReadView, Store, TreeId};
use crate::expire::{LAST_WRITE, mark_at};
use crate::writes::{Wish, announced};

/// The wanted catalog, and the work to get there.
pub(crate) struct ResolvedCatalog {
    pub(crate) catalog: Catalog,
    /// The schemas in force.
    pub(crate) schemas: Vec<Option<Schema>>,
    /// New rules, by collection, that are checked while the database serves.
    pub(crate) wishes: Vec<Vec<(Wish, Readiness)>>,
    /// Work to be done before the opening, by collection; empty for most.
    pub(crate) work: Vec<Work>,
    /// Rows to be written in the step that makes the work visible.
    pub(crate) rows: Rows,
    /// Rows to be removed after it.
    pub(crate) obsolete: Vec<String>,
}

/// Work on one collection's stored documents.
pub(crate) struct Work {
    pub(crate) wanted: TreesToBuild,
    /// The schema differs from the one by which the documents were checked.
    pub(crate) recheck: bool,
}

impl Work {
    pub(crate) fn is_empty(&self) -> bool {
        let TreesToBuild { indexes, unique, references } = &self.wanted;
        !self.recheck && indexes.is_empty() && unique.is_empty() && references.is_empty()
    }
}

/// Compares the configuration with the stored rows.
pub(crate) fn resolve(
    store: &Store,
    view: &impl ReadView,
    config: &Config,
    stored: &Rows,
) -> Result<ResolvedCatalog, DatabaseOpenError> {
    let mut wanted: Vec<&CollectionConfig> = config.collections.iter().collect();
    wanted.sort_by(|a, b| a.name.cmp(&b.name));
    let names: Vec<&str> = wanted.iter().map(|collection| collection.name.as_str()).collect();
    // Entries of another format cannot serve while they are built again: writes would not find them.
    let is_index = |key: &str| indexed_fields(key).is_some_and(|(collection, _)| names.contains(&collection));
    let is_old = stored.iter().any(|(key, row)| is_index(key) && parsed(row)["format"] != index::FORMAT);
    let builds_later = config.builds_indexes_later && !is_old;
    let mut resolver =
        Resolver { store, view, config, stored, names: &names, builds_later, rows: Rows::new(), kept: BTreeSet::new() };
    let (mut catalog, mut schemas, mut work, mut wishes) = (Catalog::default(), Vec::new(), Vec::new(), Vec::new());
    catalog.plans = config.plans.clone();
    for collection in &wanted {
        let (info, schema, todo, wished) = resolver.collection(collection)?;
        catalog.collections.push(Arc::new(info));
        schemas.push(schema);
        work.push(todo);
        wishes.push(wished);
    }
    let Resolver { mut rows, kept, .. } = resolver;
    let obsolete = obsolete(stored, &kept, &names, &mut rows);
    for name in losses::undeclared(config, store, view, stored)? {
        let key = format!("collection/{name}");
        if let Some(mut row) = stored.get(&key).map(|row| parsed(row)) {
            row[UNDECLARED] = json!(true);
            rows.insert(key, row.to_string());
        }
    }
    rows.retain(|key, value| stored.get(key) != Some(value));
    Ok(ResolvedCatalog { catalog, schemas, wishes, work, rows, obsolete })
}

/// Rows of parts that are no longer declared. The trees of indexes and unique fields are emptied. The trees of an undeclared
/// collection stay, because nothing changes them. Its references are dropped, to be checked when it is declared again.
fn obsolete(stored: &Rows, kept: &BTreeSet<String>, names: &[&str], rows: &mut Rows) -> Vec<String> {
    let mut obsolete = Vec::new();
    for (key, value) in stored.iter().filter(|(key, _)| !kept.contains(*key)) {
        let Some((kind, rest)) = key.split_once('/') else { continue };
        let declared = names.contains(&rest.split('/').next().unwrap_or_default());
        match kind {
            "reference" => obsolete.push(key.clone()),
            "index" | "unique" | "standing" if declared || kind == "standing" => {
                if let Some(tree) = tree_of(value).filter(|tree| !rows.contains_key(&format!("{STANDING}{tree}"))) {
                    rows.insert(format!("{DROP}{tree}"), "{}".to_string());
                }
                obsolete.push(key.clone());
            }
            _ => {}
        }
    }
    obsolete
}

/// The catalog for a configuration, without a database. For preparing queries before a database is open. Its tree numbers are
/// not real.
pub fn outline(config: &Config) -> Result<Catalog, DatabaseOpenError> {
    let mut wanted: Vec<&CollectionConfig> = config.collections.iter().collect();
    wanted.sort_by(|a, b| a.name.cmp(&b.name));
    let names: Vec<&str> = wanted.iter().map(|collection| collection.name.as_str()).collect();
    let mut catalog = Catalog { plans: config.plans.clone(), ..Catalog::default() };
    for collection in &wanted {
        let schema =
            collection.schema.as_deref().map(Schema::compile).transpose().map_err(DatabaseOpenError::Mismatch)?;
        let mut info = described(collection, schema.as_ref(), NO_TREE);
        for fields in index_fields(collection, collection.expire.as_ref()) {
            let included = included(config, collection, &fields);
            let (tree, readiness) = (NO_TREE, Readiness::default());
            info.indexes.push(IndexInfo { fields, included, tree, readiness, is_standing: false });
        }
        let unique = collection.unique.iter().map(|fields| UniqueInfo {
            fields: fields.clone(),
            tree: NO_TREE,
            readiness: Readiness::default(),
        });
        info.unique = unique.collect();
        for (field, target) in &collection.references {
            if let Ok(place) = names.binary_search(&target.as_str()) {
                info.refer(field.clone(), place);
            }
        }
        info.expire(collection.expire.as_ref(), Some(0));
        catalog.collections.push(Arc::new(info));
    }
    catalog.views = crate::views::tables(config, &catalog)?;
    Ok(catalog)
}

const NO_TREE: TreeId = TreeId(u32::MAX);

/// A collection as its configuration determines it, without indexes, unique fields and references.
fn described(wanted: &CollectionConfig, schema: Option<&Schema>, tree: TreeId) -> CollectionInfo {
    CollectionInfo {
        name: wanted.name.clone(),
        tree,
        key: wanted.key.clone(),
        schema: wanted.schema.as_deref().map(Arc::from),
        fields: schema.into_iter().flat_map(Schema::fields).map(FieldInfo::from).collect(),
        closed: schema.is_some_and(Schema::is_closed),
        indexes: Vec::new(),
        unique: Vec::new(),
        references: Vec::new(),
        expire: None,
        identity: Some(vec![wanted.key.field.clone()]),
    }
}

impl CollectionInfo {
    /// The place of an index that starts with a field: of a complete one, unless it is still to be built for a new rule.
    fn index_of(&self, field: &str) -> usize {
        let all = || self.indexes.iter().enumerate().filter(|(_, index)| index.fields[0] == field);
        let found = all().find(|(_, index)| index.readiness.is_ready()).or_else(|| all().next());
        found.map_or(0, |(place, _)| place)
    }

    fn refer(&mut self, field: String, target: usize) {
        let index = self.index_of(&field);
        self.references.push(ReferenceInfo { field, target, index });
    }

    fn expire(&mut self, wanted: Option<&ExpireConfig>, since: Option<i64>) {
        self.expire = wanted.map(|expire| {
            let index = self.index_of(&expire.field);
            let since_seconds = since.filter(|_| expire.field == LAST_WRITE);
            ExpireInfo { field: expire.field.clone(), after_seconds: expire.after_seconds, since_seconds, index }
        });
    }
}

/// A collection as it is to be opened: its entry, its schema in force, work before the opening, new rules for afterwards.
type Planned = (CollectionInfo, Option<Schema>, Work, Vec<(Wish, Readiness)>);
/// Fields and the places of their targets.
type References = Vec<(String, usize)>;
/// A new reference: its field, its target's place, its row, and the place of the target that it replaces.
type NewReference = (String, usize, String, Option<usize>);

/// The state of a collection's own row, compared with the configuration.
struct Identity {
    /// The documents must be checked before the database serves.
    recheck: bool,
    /// Set if a new schema is announced: the schema in force until then, or none.
    before: Option<Option<(Schema, Arc<str>)>>,
    /// The expiry in force.
    expire: Option<ExpireConfig>,
    /// For expiry by last write: when recording began.
    since: Option<i64>,
    wishes: Vec<(Wish, Readiness)>,
}

impl Identity {
    /// Keeps the stored schema in force, unless the new one accepts every document that the stored one accepts.
    fn announce_schema(&mut self, stored: &Json, row: &mut Json) -> Result<(), DatabaseOpenError> {
        let text = stored["schema"].as_str();
        let before = text.map(Schema::compile).transpose().map_err(DatabaseOpenError::Mismatch)?;
        if !text.zip(row["schema"].as_str()).is_some_and(|(before, new)| schema::is_looser(new, before)) {
            row["schema"] = stored["schema"].clone();
            self.before = Some(before.zip(text.map(Arc::from)));
        }
        Ok(())
    }

    fn announce_expire(&mut self, wanted: &CollectionConfig, new: &ExpireConfig, stored: &Json, row: &mut Json) {
        let mut ready = json!({ "expire": new.field, "expire_after": new.after_seconds });
        if let Some(since) = self.since {
            ready["expire_since"] = json!(since);
        }
        let ready = ready.to_string();
        let readiness = Readiness::declared(collection_row(&wanted.name), ready, None);
        self.wishes.push((Wish::Expire(new.field.clone()), readiness));
        (row["expire"], row["expire_after"]) = (stored["expire"].clone(), stored["expire_after"].clone());
        let field = stored["expire"].as_str().map(str::to_string);
        // A row without a duration has an older format. Then nothing expires until the new rule is in force.
        let before = field.zip(stored["expire_after"].as_i64());
        self.expire = before.map(|(field, after_seconds)| ExpireConfig { field, after_seconds });
        self.since = stored["expire_since"].as_i64();
        row["expire_since"] = stored["expire_since"].clone();
    }
}

struct Resolver<'r, V> {
    store: &'r Store,
    view: &'r V,
    config: &'r Config,
    stored: &'r Rows,
    names: &'r [&'r str],
    builds_later: bool,
    rows: Rows,
    kept: BTreeSet<String>,
}

impl<V: ReadView> Resolver<'_, V> {
    fn collection(&mut self, wanted: &CollectionConfig) -> Result<Planned, DatabaseOpenError> {
        let tree = self.store.tree(&documents_tree(&wanted.name))?;
        let empty = is_empty(self.view, tree)?;
        let schema = wanted.schema.as_deref().map(Schema::compile).transpose().map_err(DatabaseOpenError::Mismatch)?;
        let Identity { recheck, before, expire, since, mut wishes } = self.identity(wanted, empty, schema.as_ref())?;
        let mut work =
            Work { wanted: TreesToBuild { indexes: Vec::new(), unique: Vec::new(), references: Vec::new() }, recheck };
        let (references, new_references) = self.references(wanted, empty, &mut work);
        let mut info = described(wanted, schema.as_ref(), tree);
        let schema = match before {
            None => schema,
            Some(in_force) => {
                let (in_force, text) = in_force.unzip();
                info.schema = text;
                info.fields =
                    schema.as_ref().map(|new| announced::weakened(new, in_force.as_ref())).unwrap_or_default();
                let row = json!({ "schema": wanted.schema }).to_string();
                let before = Readiness::of(RuleState::Ready);
                let readiness = Readiness::declared(collection_row(&wanted.name), row, Some(before.clone()));
                // Compiled for the general checker, because its fields do not have the row positions that the plain checker
                // needs.
                let new = wanted
                    .schema
                    .as_deref()
                    .map(Schema::compile_full)
                    .transpose()
                    .map_err(DatabaseOpenError::Mismatch)?;
                wishes.extend(new.map(|schema| (Wish::Schema { schema, before }, readiness)));
                in_force
            }
        };
        for fields in index_fields(wanted, expire.as_ref()) {
            let index = self.index(wanted, fields, empty, &mut work, info.indexes.len())?;
            info.indexes.push(index);
        }
        self.let_stand(&mut info)?;
        for fields in &wanted.unique {
            let name = unique_row(&wanted.name, fields);
            let (tree, new) = self.tree(&name, |tree| json!({ "tree": tree }), empty)?;
            let readiness = if new { self.later(&name) } else { Readiness::default() };
            if new && readiness.is_ready() {
                work.wanted.unique.push(info.unique.len());
            }
            info.unique.push(UniqueInfo { fields: fields.clone(), tree, readiness });
        }
        for (field, target) in references {
            info.refer(field, target);
        }
        info.expire(expire.as_ref(), since);
        for (field, target, row, before) in new_references {
            let (index, name) = (info.index_of(&field), reference_row(&wanted.name, &field));
            // A reference of the field to another collection stays in force until the new one replaces it.
            let before = before.map(|target| {
                let in_force = Readiness::of(RuleState::Ready);
                wishes.push((Wish::Reference { field: field.clone(), target, index }, in_force.clone()));
                in_force
            });
            wishes.push((Wish::Reference { field, target, index }, Readiness::declared(name, row, before)));
        }
        Ok((info, schema, work, wishes))
    }

    /// Checks the collection's own row; returns the rules in force and the new ones.
    fn identity(
        &mut self,
        wanted: &CollectionConfig,
        empty: bool,
        schema: Option<&Schema>,
    ) -> Result<Identity, DatabaseOpenError> {
        let key = collection_row(&wanted.name);
        let mut row = declared_row(wanted);
        let stored: Option<Json> = self.stored.get(&key).and_then(|row| serde_json::from_str(row).ok());
        let expire = wanted.expire.clone();
        let since = expire.as_ref().filter(|expire| expire.field == LAST_WRITE).map(|_| self.since(stored.as_ref()));
        if let Some(since) = since {
            row["expire_since"] = json!(since);
        }
        let mut identity = Identity { recheck: false, before: None, expire, since, wishes: Vec::new() };
        self.kept.insert(key.clone());
        let stored = match stored.filter(|_| !empty) {
            Some(stored) => stored,
            None if empty || !self.builds_later => {
                identity.recheck = !empty;
                self.rows.insert(key, row.to_string());
                return Ok(identity);
            }
            None => json!({ "key": row["key"], "type": row["type"], "schema": null }),
        };
        if stored["key"] != row["key"] || stored["type"] != row["type"] {
            return Err(DatabaseOpenError::Mismatch(format!(
                "the documents of {} were stored with the key {} of type {}; the configuration wants {} of type {}",
                wanted.name, stored["key"], stored["type"], row["key"], row["type"]
            )));
        }
        // Nothing has to be checked if expiry is removed.
        let has_schema = stored["schema"] != row["schema"];
        let has_expire = !row["expire"].is_null() && stored["expire"] != row["expire"];
        if self.builds_later {
            if has_schema && schema.is_some() {
                identity.announce_schema(&stored, &mut row)?;
            }
            if has_expire && let Some(expire) = &wanted.expire {
                identity.announce_expire(wanted, expire, &stored, &mut row);
            }
        } else {
            identity.recheck = has_schema || has_expire;
        }
        self.rows.insert(key, row.to_string());
        Ok(identity)
    }

    /// When recording of last writes began; now, if it was not recorded before.
    fn since(&self, stored: Option<&Json>) -> i64 {
        let noted = stored.filter(|row| row["expire"] == LAST_WRITE).and_then(|row| row["expire_since"].as_i64());
        noted.unwrap_or_else(|| mark_at(self.config.clock.now_ms()) as i64)
    }

    /// The references in force, and new ones with their rows.
    fn references(
        &mut self,
        wanted: &CollectionConfig,
        empty: bool,
        work: &mut Work,
    ) -> (References, Vec<NewReference>) {
        let (mut references, mut new) = (Vec::new(), Vec::new());
        for (field, target) in &wanted.references {
            let Ok(place) = self.names.binary_search(&target.as_str()) else { continue };
            let key = reference_row(&wanted.name, field);
            let row = json!({ "target": target }).to_string();
            let stored = self.stored.get(&key);
            let is_new = !empty && stored != Some(&row);
            self.kept.insert(key.clone());
            if is_new && self.builds_later {
                let before = stored.and_then(|row| self.names.binary_search(&parsed(row)["target"].as_str()?).ok());
                new.push((field.clone(), place, row, before));
                continue;
            }
            if is_new {
                work.wanted.references.push(references.len());
            }
            self.rows.insert(key, row);
            references.push((field.clone(), place));
        }
        (references, new)
    }

    fn index(
        &mut self,
        wanted: &CollectionConfig,
        fields: Vec<String>,
        empty: bool,
        work: &mut Work,
        number: usize,
    ) -> Result<IndexInfo, DatabaseOpenError> {
        let included = included(self.config, wanted, &fields);
        let name = index_row(&wanted.name, &fields);
        let (tree, new) =
            self.tree(&name, |tree| json!({ "tree": tree, "included": included, "format": index::FORMAT }), empty)?;
        let readiness = if new { self.later(&name) } else { Readiness::default() };
        if new && readiness.is_ready() {
            work.wanted.indexes.push(number);
        }
        Ok(IndexInfo { fields, included, tree, readiness, is_standing: false })
    }

    /// Adds the complete indexes of a collection that are no longer declared like this, if a declared index with the same first
    /// field is still to be built.
    fn let_stand(&mut self, info: &mut CollectionInfo) -> Result<(), DatabaseOpenError> {
        for (key, row) in self.stored {
            let standing = match indexed_fields(key) {
                Some((collection, fields)) if collection == info.name && !is_part(row) => {
                    let mut row = parsed(row);
                    (row["collection"], row["fields"]) = (json!(collection), json!(fields));
                    row
                }
                None if key.starts_with(STANDING) => parsed(row),
                _ => continue,
            };
            let texts = |name: &str| serde_json::from_value::<Vec<String>>(standing[name].clone()).unwrap_or_default();
            let (fields, included) = (texts("fields"), texts("included"));
            let (Some(name), Some(first)) = (standing["tree"].as_str(), fields.first()) else { continue };
            let tree = self.store.tree(name)?;
            let is_awaited = |index: &IndexInfo| index.readiness.is_pending() && index.fields[0] == *first;
            if standing["collection"] == info.name.as_str()
                && info.indexes.iter().any(is_awaited)
                && info.indexes.iter().all(|index| index.tree != tree)
            {
                self.rows.remove(&format!("{DROP}{name}"));
                self.kept.insert(format!("{STANDING}{name}"));
                self.rows.insert(format!("{STANDING}{name}"), standing.to_string());
                let readiness = Readiness::default();
                info.indexes.push(IndexInfo { fields, included, tree, readiness, is_standing: true });
            }
        }
        Ok(())
    }

    /// Whether a new part is built while the database serves: then its row is marked until it is complete.
    fn later(&mut self, name: &str) -> Readiness {
        let Some(row) = self.rows.get(name).filter(|_| self.builds_later).cloned() else { return Readiness::default() };
        let mut state = parsed(&row);
        state["state"] = json!("building");
        self.rows.insert(name.to_string(), state.to_string());
        Readiness::declared(name.to_string(), row, None)
    }

    /// The tree of an index or unique field, and whether it must be built: an unchanged row keeps its tree.
    fn tree(
        &mut self,
        name: &str,
        row: impl Fn(&str) -> Json,
        empty: bool,
    ) -> Result<(TreeId, bool), DatabaseOpenError> {
        let before = self.stored.get(name).and_then(|row| tree_of(row));
        let same = |tree: &str| self.stored.get(name) == Some(&row(tree).to_string());
        self.kept.insert(name.to_string());
        // A tree whose build was not finished, or refused, may hold entries that are not maintained.
        let is_part = self.stored.get(name).is_some_and(|row| is_part(row));
        let (tree, new) = match before.clone().filter(|tree| (empty && !is_part) || same(tree)) {
            Some(tree) => (tree, false),
            None => {
                self.rows.extend(before.map(|old| (format!("{DROP}{old}"), "{}".to_string())));
                (self.fresh(name)?, !empty)
            }
        };
        self.rows.insert(name.to_string(), row(&tree).to_string());
        Ok((self.store.tree(&tree)?, new))
    }

    /// An unused name for a tree: the first choice is the name of the row.
    fn fresh(&self, name: &str) -> Result<String, DatabaseOpenError> {
        let candidates = std::iter::once(name.to_string()).chain((2..).map(|number| format!("{name}#{number}")));
        for candidate in candidates {
            let used = self.stored.values().any(|row| tree_of(row).as_deref() == Some(&candidate))
                || self.stored.contains_key(&format!("{DROP}{candidate}"));
            if !used && !holds_any(self.store, self.view, &candidate)? {
                return Ok(candidate);
            }
        }
        Ok(name.to_string())
    }
}
