//! The world as it is after a number of transactions: all documents, with the sets that make operations on them quick to compute,
//! and the number of faults that each rule would find.

use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The collections of all files that a campaign makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Name {
    /// What items refer to, or nothing.
    Owners,
    /// Another target of the same reference.
    Others,
    /// The collection of the large statements.
    Items,
    /// Documents that expire.
    Sessions,
    /// What refers to documents that expire.
    Carts,
    /// Keys that the server generates.
    Logs,
}

impl Name {
    pub(crate) const ALL: [Name; 6] =
        [Name::Owners, Name::Others, Name::Items, Name::Sessions, Name::Carts, Name::Logs];

    pub(crate) fn text(self) -> &'static str {
        match self {
            Name::Owners => "owners",
            Name::Others => "others",
            Name::Items => "items",
            Name::Sessions => "sessions",
            Name::Carts => "carts",
            Name::Logs => "logs",
        }
    }

    pub(crate) fn of(text: &str) -> Option<Name> {
        Name::ALL.into_iter().find(|name| name.text() == text)
    }
}

/// The key of a document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    Number(i64),
    Text(String),
}

impl Key {
    pub(crate) fn of(value: &Value) -> Option<Key> {
        value.as_i64().map(Key::Number).or_else(|| Some(Key::Text(value.as_str()?.to_owned())))
    }

    pub(crate) fn number(&self) -> i64 {
        match self {
            Key::Number(number) => *number,
            Key::Text(_) => i64::MIN,
        }
    }

    pub(crate) fn json(&self) -> Value {
        match self {
            Key::Number(number) => (*number).into(),
            Key::Text(text) => text.as_str().into(),
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Key::Number(number) => write!(f, "{number}"),
            Key::Text(text) => write!(f, "{text}"),
        }
    }
}

/// A document; copies of the model share it.
pub(crate) type Document = Arc<Map<String, Value>>;

/// What a transaction leaves of each document that it touched.
pub(crate) type Changes = BTreeMap<(Name, Key), Option<Document>>;

/// A value by which at most one document is found if a rule says so: a code, or a tenant with a slug.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum UniqueValue {
    Code(Name, String),
    Slug(i64, String),
}

/// The unique values of a document, whether or not a rule makes them unique.
pub(crate) fn unique_values(name: Name, document: &Map<String, Value>) -> Vec<UniqueValue> {
    let mut values = Vec::new();
    if matches!(name, Name::Owners | Name::Items)
        && let Some(code) = text(document, "code")
    {
        values.push(UniqueValue::Code(name, code.to_owned()));
    }
    if name == Name::Items
        && let (Some(tenant), Some(slug)) = (number(document, "tenant"), text(document, "slug"))
    {
        values.push(UniqueValue::Slug(tenant, slug.to_owned()));
    }
    values
}

pub(crate) fn number(document: &Map<String, Value>, field: &str) -> Option<i64> {
    document.get(field)?.as_i64()
}

pub(crate) fn text<'d>(document: &'d Map<String, Value>, field: &str) -> Option<&'d str> {
    document.get(field)?.as_str()
}

/// How many faults each rule would find among the documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    pub(crate) owner_codes: usize,
    pub(crate) item_codes: usize,
    pub(crate) slugs: usize,
    pub(crate) without_owner: usize,
    pub(crate) without_other: usize,
    pub(crate) without_session: usize,
}

/// All documents.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    documents: BTreeMap<Name, BTreeMap<Key, Document>>,
    unique: HashMap<UniqueValue, BTreeSet<Key>>,
    groups: BTreeMap<i64, BTreeSet<Key>>,
    by_owner: BTreeMap<i64, BTreeSet<Key>>,
    by_session: HashMap<String, BTreeSet<Key>>,
    faults: Faults,
    sum: i64,
}

impl Model {
    pub(crate) fn get(&self, name: Name, key: &Key) -> Option<&Document> {
        self.documents.get(&name)?.get(key)
    }

    pub(crate) fn all(&self, name: Name) -> impl Iterator<Item = (&Key, &Document)> {
        self.documents.get(&name).into_iter().flatten()
    }

    pub(crate) fn count(&self, name: Name) -> usize {
        self.documents.get(&name).map_or(0, BTreeMap::len)
    }

    /// The sum of `n` of all items.
    pub(crate) fn sum(&self) -> i64 {
        self.sum
    }

    pub(crate) fn faults(&self) -> Faults {
        self.faults
    }

    /// The keys of the documents with a unique value.
    pub(crate) fn found_by(&self, value: &UniqueValue) -> impl Iterator<Item = &Key> {
        self.unique.get(value).into_iter().flatten()
    }

    /// Items of a group, in the order of their keys.
    pub(crate) fn group(&self, group: i64) -> impl Iterator<Item = (&Key, &Document)> {
        let keys = self.groups.get(&group).into_iter().flatten();
        keys.map(|key| (key, self.get(Name::Items, key).expect("the sets follow the documents")))
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = i64> {
        self.groups.keys().copied()
    }

    /// Whether an item refers to an owner (or other) of this key.
    pub(crate) fn is_referred_by_item(&self, owner: i64) -> bool {
        self.by_owner.contains_key(&owner)
    }

    /// Whether a cart refers to a session of this key.
    pub(crate) fn is_referred_by_cart(&self, session: &str) -> bool {
        self.by_session.contains_key(session)
    }

    /// Carries out a transaction.
    pub(crate) fn apply(&mut self, changes: &Changes) {
        for ((name, key), document) in changes {
            self.set(*name, key, document.clone());
        }
    }

    /// Removes all documents of a collection.
    pub(crate) fn empty(&mut self, name: Name) {
        let keys: Vec<Key> = self.all(name).map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| self.set(name, key, None));
    }

    fn set(&mut self, name: Name, key: &Key, document: Option<Document>) {
        let documents = self.documents.entry(name).or_default();
        let before = match &document {
            Some(document) => documents.insert(key.clone(), Arc::clone(document)),
            None => documents.remove(key),
        };
        self.count_targets(name, key, before.is_some(), document.is_some());
        if let Some(before) = before {
            self.enter(name, key, &before, false);
        }
        if let Some(document) = document {
            self.enter(name, key, &document, true);
        }
    }

    /// A document that others may refer to appears or goes.
    fn count_targets(&mut self, name: Name, key: &Key, was: bool, is: bool) {
        let references = match (name, key) {
            (Name::Owners | Name::Others, Key::Number(number)) => self.by_owner.get(number),
            (Name::Sessions, Key::Text(text)) => self.by_session.get(text),
            _ => None,
        };
        let count = references.map_or(0, BTreeSet::len);
        let faults = match name {
            Name::Owners => &mut self.faults.without_owner,
            Name::Others => &mut self.faults.without_other,
            _ => &mut self.faults.without_session,
        };
        match (was, is) {
            (false, true) => *faults -= count,
            (true, false) => *faults += count,
            _ => {}
        }
    }

    /// Enters a document into the sets, or takes it out of them.
    fn enter(&mut self, name: Name, key: &Key, document: &Map<String, Value>, is_there: bool) {
        for value in unique_values(name, document) {
            let faults = match &value {
                UniqueValue::Code(Name::Owners, _) => &mut self.faults.owner_codes,
                UniqueValue::Code(..) => &mut self.faults.item_codes,
                UniqueValue::Slug(..) => &mut self.faults.slugs,
            };
            let before = self.unique.get(&value).map_or(0, BTreeSet::len);
            let after = enter(&mut self.unique, value, key, is_there);
            *faults = *faults + after.saturating_sub(1) - before.saturating_sub(1);
        }
        match name {
            Name::Items => {
                let sign = if is_there { 1 } else { -1 };
                self.sum += sign * number(document, "n").unwrap_or(0);
                if let Some(group) = number(document, "grp") {
                    enter_ordered(&mut self.groups, group, key, is_there);
                }
                if let Some(owner) = number(document, "owner") {
                    enter_ordered(&mut self.by_owner, owner, key, is_there);
                    let target = Key::Number(owner);
                    let owners = usize::from(self.get(Name::Owners, &target).is_none());
                    let others = usize::from(self.get(Name::Others, &target).is_none());
                    count(&mut self.faults.without_owner, owners, is_there);
                    count(&mut self.faults.without_other, others, is_there);
                }
            }
            Name::Carts => {
                if let Some(session) = text(document, "session") {
                    enter(&mut self.by_session, session.to_owned(), key, is_there);
                    let absent = usize::from(self.get(Name::Sessions, &Key::Text(session.to_owned())).is_none());
                    count(&mut self.faults.without_session, absent, is_there);
                }
            }
            _ => {}
        }
    }
}

fn count(faults: &mut usize, by: usize, is_more: bool) {
    *faults = if is_more { *faults + by } else { *faults - by };
}

/// Adds a key to the set of a value, or removes it; returns the set's size.
fn enter<V: std::hash::Hash + Eq>(sets: &mut HashMap<V, BTreeSet<Key>>, value: V, key: &Key, is_there: bool) -> usize {
    if is_there {
        let keys = sets.entry(value).or_default();
        keys.insert(key.clone());
        return keys.len();
    }
    let Some(keys) = sets.get_mut(&value) else { return 0 };
    keys.remove(key);
    let left = keys.len();
    if left == 0 {
        sets.remove(&value);
    }
    left
}

fn enter_ordered(sets: &mut BTreeMap<i64, BTreeSet<Key>>, value: i64, key: &Key, is_there: bool) {
    if is_there {
        sets.entry(value).or_default().insert(key.clone());
    } else if let Some(keys) = sets.get_mut(&value) {
        keys.remove(key);
        if keys.is_empty() {
            sets.remove(&value);
        }
    }
}
