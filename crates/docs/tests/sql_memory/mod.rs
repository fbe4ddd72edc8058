//! An in-memory database for tests of SQL: trees as B-tree maps, with the crate's key and index encodings.

#![allow(dead_code, reason = "each test file uses its part")]

use std::borrow::Cow;
use std::collections::{BTreeMap, btree_map};
use std::ops::{Bound, ControlFlow};

use docs::catalog::{Catalog, CollectionInfo, FieldInfo, FieldKind, IndexInfo, KeyInfo, ReferenceInfo};
use docs::engine::{Direction, KeyRange, ReadView, TreeId};
use docs::index;
use docs::key::KeyType;
use docs::order::{self, Scalar};
use serde_json::Value as Json;

/// Default number of entries of a part.
const PART_ENTRIES: usize = 3;

/// Called with each range before a thread reads it.
type OnScan = Box<dyn Fn(KeyRange<'_>) + Send + Sync>;
/// Called with each tree before it is read.
type OnScanOf = Box<dyn Fn(TreeId) + Send + Sync>;

#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) catalog: Catalog,
    trees: Vec<BTreeMap<Vec<u8>, Vec<u8>>>,
    /// Entries of a part that a thread reads; the last part has the remaining ones.
    pub(crate) part_entries: Option<usize>,
    pub(crate) on_scan: Option<OnScan>,
    pub(crate) on_scan_of: Option<OnScanOf>,
}

/// The description of a collection.
pub(crate) struct Shape<'a> {
    pub(crate) name: &'a str,
    pub(crate) key: &'a str,
    pub(crate) fields: &'a [(&'a str, FieldKind)],
    pub(crate) closed: bool,
    pub(crate) indexes: &'a [(&'a [&'a str], &'a [&'a str])],
    /// Field, target collection.
    pub(crate) references: &'a [(&'a str, &'a str)],
}

fn scalar<'a>(value: Option<&'a Json>, text: &'a mut String) -> Scalar<'a> {
    match value {
        None | Some(Json::Null) => Scalar::Null,
        Some(Json::Bool(truth)) => Scalar::Integer(i64::from(*truth)),
        Some(Json::Number(number)) => match number.as_i64() {
            Some(integer) => Scalar::Integer(integer),
            None => Scalar::Real(number.as_f64().unwrap()),
        },
        Some(Json::String(text)) => Scalar::Text(text),
        Some(nested) => {
            *text = nested.to_string();
            Scalar::Text(text)
        }
    }
}

impl Memory {
    fn tree(&mut self) -> TreeId {
        self.trees.push(BTreeMap::new());
        TreeId(self.trees.len() as u32 - 1)
    }

    /// Collections must be added in the order of their names.
    pub(crate) fn add(&mut self, shape: &Shape<'_>) {
        let fields = shape.fields.iter().map(|(name, kind)| FieldInfo {
            name: (*name).to_owned(),
            kind: *kind,
            required: shape.closed,
        });
        let indexes = shape.indexes.iter().map(|(fields, included)| IndexInfo {
            fields: fields.iter().map(|field| (*field).to_owned()).collect(),
            included: included.iter().map(|field| (*field).to_owned()).collect(),
            tree: self.tree(),
            readiness: docs::Readiness::default(),
            is_standing: false,
        });
        let indexes: Vec<IndexInfo> = indexes.collect();
        let references = shape.references.iter().map(|(field, target)| ReferenceInfo {
            field: (*field).to_owned(),
            target: self.catalog.number(target).unwrap(),
            index: indexes.iter().position(|index| index.fields[0] == *field).unwrap(),
        });
        let mut info = CollectionInfo {
            name: shape.name.to_owned(),
            tree: TreeId(0),
            key: KeyInfo { field: shape.key.to_owned(), kind: KeyType::U32, generate: None },
            schema: None,
            fields: fields.collect(),
            closed: shape.closed,
            expire: None,
            references: references.collect(),
            indexes,
            unique: Vec::new(),
            identity: Some(vec![shape.key.to_owned()]),
        };
        info.tree = self.tree();
        self.catalog.collections.push(info.into());
    }

    pub(crate) fn insert(&mut self, collection: &str, text: &str) {
        let info = self.catalog.collection(collection).unwrap().clone();
        let document: Json = serde_json::from_str(text).unwrap();
        let mut stored = vec![0; 8];
        binjson::encode(text.as_bytes(), &mut stored).unwrap();
        let binary = binjson::StoredDocument::from_bytes(&stored[8..]).unwrap();
        let id = document[&info.key.field].as_i64().unwrap();
        let key = info.key.kind.of_scalar(Scalar::Integer(id)).unwrap();
        for index in &info.indexes {
            let (mut entry, mut value) = (Vec::new(), Vec::new());
            for field in &index.fields {
                let mut text = String::new();
                order::lower(scalar(document.get(field), &mut text), &mut entry);
            }
            order::encode(Scalar::Integer(id), &mut entry);
            let raw = |field: &String| binary.field(field).map_or(&b""[..], |value| value.raw());
            index.included.iter().for_each(|field| index::include(raw(field), &mut value));
            index::include_written(index.fields.iter().map(raw), &mut value);
            self.trees[index.tree.0 as usize].insert(entry, value);
        }
        self.trees[info.tree.0 as usize].insert(key.as_bytes().to_vec(), stored);
    }

    /// None if the range is empty.
    fn entries(&self, tree: TreeId, range: KeyRange<'_>) -> Option<btree_map::Range<'_, Vec<u8>, Vec<u8>>> {
        let empty = match (range.from, range.to) {
            (Bound::Included(from), Bound::Included(to)) => from > to,
            (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from >= to,
            _ => false,
        };
        (!empty).then(|| self.trees[tree.0 as usize].range::<[u8], _>((range.from, range.to)))
    }
}

/// The view for other threads.
struct Across<'m>(&'m Memory);

#[allow(clippy::type_complexity, reason = "as for the trait")]
impl ReadView for Across<'_> {
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, docs::engine::StoreError> {
        self.0.get(tree, key)
    }
    fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), docs::engine::StoreError> {
        self.0.scan(tree, range, direction, visit)
    }
}

impl ReadView for Memory {
    fn across(&self) -> Option<Box<dyn ReadView + Sync + '_>> {
        Some(Box::new(Across(self)))
    }

    /// Cuts after each `part_entries` entries.
    fn cuts(&self, tree: TreeId, range: KeyRange<'_>, count: usize) -> Result<Vec<Vec<u8>>, docs::engine::StoreError> {
        let keys = self.entries(tree, range).into_iter().flatten().map(|(key, _)| key.clone());
        let entries = self.part_entries.unwrap_or(PART_ENTRIES);
        Ok(keys.skip(entries).step_by(entries).take(count - 1).collect())
    }

    fn entries_about(&self, tree: TreeId, _range: KeyRange<'_>) -> Result<Option<u64>, docs::engine::StoreError> {
        Ok(Some(self.trees[tree.0 as usize].len() as u64))
    }

    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, docs::engine::StoreError> {
        Ok(self.trees[tree.0 as usize].get(key).map(|value| Cow::Borrowed(&value[..])))
    }

    fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), docs::engine::StoreError> {
        if let Some(on_scan) = &self.on_scan {
            on_scan(range);
        }
        if let Some(on_scan_of) = &self.on_scan_of {
            on_scan_of(tree);
        }
        let Some(mut entries) = self.entries(tree, range) else { return Ok(()) };
        loop {
            let next = if direction == Direction::Forward { entries.next() } else { entries.next_back() };
            let Some((key, value)) = next else { return Ok(()) };
            if visit(key, value).is_break() {
                return Ok(());
            }
        }
    }
}

/// The three collections of the travels service, with the indexes and references of its configuration.
pub(crate) fn travels() -> Memory {
    use FieldKind::{Integer, Text};
    let mut memory = Memory::default();
    memory.add(&Shape {
        name: "locations",
        key: "id",
        fields: &[("id", Integer), ("place", Text), ("country", Text), ("city", Text), ("distance", Integer)],
        closed: true,
        indexes: &[],
        references: &[],
    });
    memory.add(&Shape {
        name: "users",
        key: "id",
        fields: &[
            ("id", Integer),
            ("email", Text),
            ("first_name", Text),
            ("last_name", Text),
            ("gender", Text),
            ("birth_date", Integer),
        ],
        closed: true,
        indexes: &[],
        references: &[],
    });
    memory.add(&Shape {
        name: "visits",
        key: "id",
        fields: &[
            ("id", Integer),
            ("location", Integer),
            ("user", Integer),
            ("visited_at", Integer),
            ("mark", Integer),
        ],
        closed: true,
        indexes: &[(&["user", "visited_at"], &["location", "mark"]), (&["location"], &["mark", "visited_at", "user"])],
        references: &[("user", "users"), ("location", "locations")],
    });
    memory
}

pub(crate) const VISITS: &str = "
  SELECT v.mark, v.visited_at, l.place
  FROM visits v JOIN locations l ON l.id = v.location
  WHERE v.user = :id
    AND (:fromDate   IS NULL OR v.visited_at > :fromDate)
    AND (:toDate     IS NULL OR v.visited_at < :toDate)
    AND (:country    IS NULL OR l.country = :country)
    AND (:toDistance IS NULL OR l.distance < :toDistance)
  ORDER BY v.visited_at, v.id";

pub(crate) const AVERAGE: &str = "
  SELECT COALESCE(ROUND(AVG(v.mark), 5), 0) AS avg
  FROM visits v JOIN users u ON u.id = v.user
  WHERE v.location = :id
    AND (:fromDate IS NULL OR v.visited_at > :fromDate)
    AND (:toDate   IS NULL OR v.visited_at < :toDate)
    AND (:gender   IS NULL OR u.gender = :gender)
    AND (:fromAge  IS NULL OR u.birth_date < unixepoch(:now, 'unixepoch', printf('%+d years', -:fromAge)))
    AND (:toAge    IS NULL OR u.birth_date > unixepoch(:now, 'unixepoch', printf('%+d years', -:toAge)))";
