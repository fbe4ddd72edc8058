//! What one operation writes, document by document, on the state of its place in the order: each write is refused if it breaks
//! a rule at that moment.

use crate::model::{Changes, Document, Key, Model, Name, UniqueValue, number, text, unique_values};
use crate::settings::{Meaning, Rule};
use std::collections::{BTreeSet, HashMap};

/// Under which rules, at which time and by which meaning of a view an operation ran. If a file was read again meanwhile, there
/// are several possibilities.
#[derive(Clone, Debug)]
pub(crate) struct Conditions {
    pub(crate) obeyed: BTreeSet<Rule>,
    /// Seconds since 1970.
    pub(crate) now: i64,
    pub(crate) meaning: Option<Meaning>,
}

/// A write breaks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// The writes of an operation so far.
pub(crate) struct Draft<'m> {
    model: &'m Model,
    pub(crate) conditions: &'m Conditions,
    pub(crate) changes: Changes,
    values: HashMap<UniqueValue, BTreeSet<Key>>,
}

impl<'m> Draft<'m> {
    pub(crate) fn new(model: &'m Model, conditions: &'m Conditions) -> Draft<'m> {
        Draft { model, conditions, changes: Changes::new(), values: HashMap::new() }
    }

    pub(crate) fn obeys(&self, rule: Rule) -> bool {
        self.conditions.obeyed.contains(&rule)
    }

    fn stored(&self, name: Name, key: &Key) -> Option<&Document> {
        match self.changes.get(&(name, key.clone())) {
            Some(document) => document.as_ref(),
            None => self.model.get(name, key),
        }
    }

    fn has_expired(&self, name: Name, document: &Document) -> bool {
        let until = number(document, "until");
        name == Name::Sessions && self.obeys(Rule::Expiry) && until.is_some_and(|until| until <= self.conditions.now)
    }

    /// A document, unless it has expired.
    pub(crate) fn get(&self, name: Name, key: &Key) -> Option<&Document> {
        self.stored(name, key).filter(|document| !self.has_expired(name, document))
    }

    /// The documents that have a unique value at this moment.
    pub(crate) fn found_by(&self, value: &UniqueValue) -> Vec<Key> {
        let name = match value {
            UniqueValue::Code(name, _) => *name,
            UniqueValue::Slug(..) => Name::Items,
        };
        let drafted = self.values.get(value).into_iter().flatten().cloned();
        let stored = self.model.found_by(value).filter(|key| !self.changes.contains_key(&(name, (*key).clone())));
        stored.cloned().chain(drafted).collect()
    }

    fn is_unique(&self, value: &UniqueValue) -> bool {
        self.obeys(match value {
            UniqueValue::Code(Name::Owners, _) => Rule::OwnerCodes,
            UniqueValue::Code(..) => Rule::ItemCodes,
            UniqueValue::Slug(..) => Rule::Slugs,
        })
    }

    /// Other documents that have a value of this one which must be unique.
    pub(crate) fn conflicts(&self, name: Name, key: &Key, document: &Document) -> BTreeSet<Key> {
        let values = unique_values(name, document).into_iter().filter(|value| self.is_unique(value));
        values.flat_map(|value| self.found_by(&value)).filter(|other| other != key).collect()
    }

    /// Stores a document, whether or not there is one under its key.
    pub(crate) fn put(&mut self, name: Name, key: &Key, document: Document) -> Result<(), Broken> {
        let old = self.get(name, key);
        // A reference that it had already was checked before. Its target may have expired since.
        let is_as_before = |field: &str| old.is_some_and(|old| old.get(field) == document.get(field));
        let refers_as_before = is_as_before(if name == Name::Carts { "session" } else { "owner" });
        let breaks = !self.conflicts(name, key, &document).is_empty()
            || self.hides_a_target(name, key)
            || !refers_as_before && !self.has_targets(name, &document);
        if breaks {
            return Err(Broken);
        }
        self.set(name, key, Some(document));
        Ok(())
    }

    /// Whether a document of this key has expired, and stays because others refer to it.
    pub(crate) fn hides_a_target(&self, name: Name, key: &Key) -> bool {
        self.get(name, key).is_none() && self.stored(name, key).is_some() && self.is_referred(name, key)
    }

    /// Stores a document under a key that nothing has.
    pub(crate) fn insert(&mut self, name: Name, key: &Key, document: Document) -> Result<(), Broken> {
        if self.get(name, key).is_some() { Err(Broken) } else { self.put(name, key, document) }
    }

    pub(crate) fn remove(&mut self, name: Name, key: &Key) -> Result<(), Broken> {
        if self.is_referred(name, key) {
            return Err(Broken);
        }
        self.set(name, key, None);
        Ok(())
    }

    /// Whether what the document refers to is there.
    fn has_targets(&self, name: Name, document: &Document) -> bool {
        match name {
            Name::Items => number(document, "owner").is_none_or(|owner| {
                let is_there = |rule, target| !self.obeys(rule) || self.get(target, &Key::Number(owner)).is_some();
                is_there(Rule::ToOwners, Name::Owners) && is_there(Rule::ToOthers, Name::Others)
            }),
            Name::Carts => text(document, "session").is_none_or(|session| {
                !self.obeys(Rule::ToSessions) || self.get(Name::Sessions, &Key::Text(session.to_owned())).is_some()
            }),
            _ => true,
        }
    }

    /// Whether a document refers to this one. No operation changes both, so the model says it.
    fn is_referred(&self, name: Name, key: &Key) -> bool {
        match (name, key) {
            (Name::Owners, Key::Number(owner)) => self.obeys(Rule::ToOwners) && self.model.is_referred_by_item(*owner),
            (Name::Others, Key::Number(owner)) => self.obeys(Rule::ToOthers) && self.model.is_referred_by_item(*owner),
            (Name::Sessions, Key::Text(session)) => {
                self.obeys(Rule::ToSessions) && self.model.is_referred_by_cart(session)
            }
            _ => false,
        }
    }

    fn set(&mut self, name: Name, key: &Key, document: Option<Document>) {
        let before = self.changes.get(&(name, key.clone())).cloned().flatten();
        for value in before.iter().flat_map(|before| unique_values(name, before)) {
            if let Some(keys) = self.values.get_mut(&value) {
                keys.remove(key);
            }
        }
        for value in document.iter().flat_map(|document| unique_values(name, document)) {
            self.values.entry(value).or_default().insert(key.clone());
        }
        self.changes.insert((name, key.clone()), document);
    }
}
