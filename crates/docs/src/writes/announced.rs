//! Announced rules: a new schema, reference or expiry of a collection that has documents, applied while the database serves.
//!
//! From its announcement every write obeys a rule in addition to the rules in force, and a thread checks the stored documents
//! (`opening/index_build.rs`). If all documents satisfy the rule, it is written to the catalog's row and replaces the old
//! rule. If any document breaks it, the rule is refused, and from then on writes obey only the old rules. Until the
//! replacement the rows on disk hold the old rule. So after a stop at any moment, the next opening finds the same difference
//! and begins again.
//!
//! The catalog for queries ([`crate::catalog`]) promises only what both schemas promise, and contains neither an announced
//! reference, nor a reference that an announced one replaces, nor an announced expiry. The new ones appear when the database is opened again ([`crate::DocumentDatabase::reopen`]).

use binjson::StoredDocument;
use schema::{PromisedKind, Schema};

use super::collection::Collection;
use super::reference::{ReferencePlace, Referrer};
use super::rule::{Announced, Rule, RuleScope};
use crate::catalog::{Catalog, FieldInfo, Readiness, ReadinessState};
use crate::encoding::{NAMES_MAX, Row};
use crate::engine::{self, WriteTransaction};
use crate::error::WriteError;
use crate::expire;

/// A new rule, as found by comparing the configuration with the catalog.
#[derive(Debug)]
pub(crate) enum Wish {
    Schema {
        schema: Schema,
        /// State of the schema in force until then.
        before: Readiness,
    },
    /// If it is ready, it is the reference in force of a field until a reference to another collection replaces it.
    Reference {
        field: String,
        /// Places in the catalog, and among the collection's indexes.
        target: usize,
        index: usize,
    },
    Expire(String),
}

/// The status of an announced rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleStatus {
    /// The collection.
    pub collection: String,
    /// The rule: `schema`, `reference`, `expire`.
    pub kind: &'static str,
    /// Its field; none for a schema, and for expiry by the time of the last write.
    pub field: Option<String>,
    /// Its state.
    pub state: ReadinessState,
}

/// Adds the announced rules to their collections. `Err`: more fields than a row has places.
pub(crate) fn announce(
    collections: &mut [Collection],
    catalog: &Catalog,
    wishes: Vec<Vec<(Wish, Readiness)>>,
) -> Result<(), String> {
    for (place, wishes) in wishes.into_iter().enumerate() {
        for (wish, readiness) in wishes {
            let collection = &mut collections[place];
            let name = collection.info.name.clone();
            let mut number = |field: &str| {
                collection.names.add(field).ok_or(format!("collection {name} uses over {NAMES_MAX} fields"))
            };
            let marks = matches!(&wish, Wish::Expire(field) if field == expire::LAST_WRITE);
            let rule = match wish {
                Wish::Schema { schema, before } => {
                    collections[place].schema_readiness = before;
                    Rule::Schema(schema)
                }
                Wish::Expire(field) => Rule::Expire { place: number(&field)?, field },
                Wish::Reference { field, target, index } => {
                    let (info, own) = (&catalog.collections[target], &catalog.collections[place]);
                    let reference = ReferencePlace::new(number(&field)?, index, info, readiness.clone());
                    collections[place].refers_to_expiring |= info.expire.is_some();
                    let referrer = Referrer::new(own, field, index, readiness.clone());
                    collections[target].referrers.push(referrer);
                    if readiness.is_ready() {
                        collections[place].references.push(reference);
                        continue;
                    }
                    Rule::Reference(reference)
                }
            };
            collections[place].marks |= marks;
            collections[place].announced.push(Announced { rule, readiness });
        }
    }
    Ok(())
}

/// The guarantees of a new schema that hold even while stored documents may fit only the old one.
pub(crate) fn weakened(new: &Schema, before: Option<&Schema>) -> Vec<FieldInfo> {
    let known = |name: &str| before.and_then(|schema| schema.fields().iter().find(|field| field.name == name));
    let fields = new.fields().iter().map(|field| {
        let before = known(&field.name);
        let kind = before.map(|before| before.kind).filter(|kind| *kind == field.kind).unwrap_or(PromisedKind::Any);
        let required = field.required && before.is_some_and(|before| before.required);
        FieldInfo { name: field.name.clone(), kind: kind.into(), required }
    });
    fields.collect()
}

impl Announced {
    /// Whether a stored document satisfies the rule.
    pub(crate) fn check<C: WriteTransaction>(
        &self,
        collection: &Collection,
        document: StoredDocument<'_>,
        row: &Row<'_, '_>,
        change: &mut C,
    ) -> Result<Result<(), WriteError>, engine::StoreError> {
        Ok(match &self.rule {
            Rule::Reference(reference) => match reference.named(row) {
                None => Ok(()),
                Some(value) => {
                    let is_there = match value.key() {
                        None => false,
                        Some(target) => change.get(reference.target, target.as_bytes())?.is_some(),
                    };
                    if is_there { Ok(()) } else { Err(reference.dangling(&collection.names, &value)) }
                }
            },
            Rule::Schema(schema) => check_schema(schema, collection, document, row),
            Rule::Expire { field, place } => expire::check(field, *place, row),
        })
    }
}

fn check_schema(
    schema: &Schema,
    collection: &Collection,
    document: StoredDocument<'_>,
    row: &Row<'_, '_>,
) -> Result<(), WriteError> {
    let checked = schema.check(document, row, &collection.names);
    checked.map_err(|misfit| WriteError::Invalid { why: misfit.why, pointer: misfit.pointer })
}

impl Collection {
    /// Whether another schema was announced.
    pub(crate) fn announces_schema(&self) -> bool {
        self.announced.iter().any(|announced| matches!(announced.rule, Rule::Schema(_)))
    }

    /// Checks a document against the schema in force and the announced ones.
    #[inline(never)]
    pub(crate) fn check_announced(
        &self,
        held: RuleScope,
        document: StoredDocument<'_>,
        row: &Row<'_, '_>,
    ) -> Result<(), WriteError> {
        for announced in self.announced.iter().filter(|announced| held.is(&announced.readiness)) {
            match &announced.rule {
                Rule::Schema(schema) => check_schema(schema, self, document, row)?,
                Rule::Expire { field, place } => expire::check(field, *place, row)?,
                Rule::Reference(_) => {}
            }
        }
        match &self.schema {
            Some(schema) if held.is(&self.schema_readiness) => {
                check_schema(schema, self, document, row).map_err(|refused| self.with_announcement(refused))
            }
            _ => Ok(()),
        }
    }

    /// Adds to a misfit of the schema in force that another schema is about to replace it.
    #[cold]
    fn with_announcement(&self, refused: WriteError) -> WriteError {
        let is_coming = |one: &Announced| matches!(one.rule, Rule::Schema(_)) && one.readiness.is_pending();
        match refused {
            WriteError::Invalid { mut why, pointer } if self.announced.iter().any(is_coming) => {
                why += " (by the schema in force; the new one replaces it when all stored documents are found to fit)";
                WriteError::Invalid { why, pointer }
            }
            refused => refused,
        }
    }

    /// The references that a document must satisfy.
    pub(crate) fn references_held(&self, held: RuleScope) -> impl Iterator<Item = &ReferencePlace> {
        let announced = self.announced.iter().filter_map(|announced| match &announced.rule {
            Rule::Reference(reference) => Some(reference),
            _ => None,
        });
        self.references.iter().chain(announced).filter(move |reference| held.is(&reference.readiness))
    }

    /// The status of its announced rules.
    pub(crate) fn rules(&self) -> impl Iterator<Item = RuleStatus> {
        self.announced.iter().map(|announced| {
            let (kind, field) = match &announced.rule {
                Rule::Schema(_) => ("schema", None),
                Rule::Reference(reference) => ("reference", Some(self.names.name(reference.field).to_string())),
                Rule::Expire { field, .. } => ("expire", Some(field.clone()).filter(|f| f != expire::LAST_WRITE)),
            };
            RuleStatus { collection: self.info.name.clone(), kind, field, state: announced.readiness.state() }
        })
    }
}
