//! Rules that a collection with documents is to get while the database serves: another schema, a reference, a field of times.
//!
//! From the moment a rule is announced every write obeys it, beside those that are in force, and a thread looks at what is
//! stored (`index_build.rs`). If all documents hold to it the catalog's row says so and the rule takes the place of the one
//! before; a single one that breaks it refuses the rule, and writes obey the old ones alone from then on. The rows on disk
//! have the old rules all the time, so an opening after a stop at any moment finds the same difference and begins again.
//!
//! What queries are prepared from ([`crate::catalog`]) promises no more than both schemas do, and knows neither an announced
//! reference nor an announced expiry: those are in it when the database is opened again ([`crate::Database::reopen`]).

use binjson::Document;

use crate::catalog::{Catalog, FieldInfo, FieldKind};
use crate::collection::{Collection, ReferencePlace, Referrer};
use crate::engine::Change;
use crate::error::WriteError;
use crate::expire;
use crate::readiness::{Readiness, ReadinessState};
use crate::row::{NAMES_MAX, Row};
use crate::schema::Schema;

/// A rule that is to be, as the catalog's comparison finds it.
#[derive(Debug)]
pub(crate) enum Wish {
    Schema(Schema),
    Reference {
        field: String,
        /// Places in the catalog, and in the collection's indexes.
        target: usize,
        index: usize,
    },
    Expire(String),
}

/// A rule that was announced, at work.
#[derive(Debug)]
pub(crate) struct Announced {
    pub(crate) rule: Rule,
    pub(crate) readiness: Readiness,
}

#[derive(Debug)]
pub(crate) enum Rule {
    /// Checked by the general checker: the plain one counts on places in the row that the schema in force has.
    Schema(Schema),
    Reference(ReferencePlace),
    Expire {
        field: String,
        place: usize,
    },
}

/// Which rules are held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// By writes: those that are announced too.
    All,
    /// By what is stored.
    InForce,
}

impl Held {
    fn is(self, readiness: &Readiness) -> bool {
        if self == Held::All { !readiness.is_refused() } else { readiness.is_ready() }
    }
}

/// What is told of an announced rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleStatus {
    /// The collection.
    pub collection: String,
    /// The rule: `schema`, `reference`, `expire`.
    pub kind: &'static str,
    /// Its field; none for a schema, and for the time of the last write.
    pub field: Option<String>,
    /// How far it is.
    pub state: ReadinessState,
}

/// Has the collections obey what is wished for each of them. `Err`: more fields than a row has places.
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
                Wish::Schema(schema) => Rule::Schema(schema),
                Wish::Expire(field) => Rule::Expire { place: number(&field)?, field },
                Wish::Reference { field, target, index } => {
                    let (info, own) = (&catalog.collections[target], &catalog.collections[place]);
                    let reference = ReferencePlace {
                        field: number(&field)?,
                        target: info.tree,
                        target_kind: info.key.kind,
                        target_name: info.name.clone(),
                        target_expires: info.expire.clone(),
                    };
                    collections[place].refers_to_expiring |= info.expire.is_some();
                    let referrer = Referrer::new(own, field, index, readiness.clone());
                    collections[target].referrers.push(referrer);
                    Rule::Reference(reference)
                }
            };
            collections[place].marks |= marks;
            collections[place].announced.push(Announced { rule, readiness });
        }
    }
    Ok(())
}

/// What of a schema's promises holds as long as documents may fit the one before.
pub(crate) fn weakened(new: &Schema, before: Option<&Schema>) -> Vec<FieldInfo> {
    let known = |name: &str| before.and_then(|schema| schema.fields().iter().find(|field| field.name == name));
    let fields = new.fields().iter().map(|field| {
        let before = known(&field.name);
        let kind = before.map(|before| before.kind).filter(|kind| *kind == field.kind).unwrap_or(FieldKind::Any);
        let required = field.required && before.is_some_and(|before| before.required);
        FieldInfo { name: field.name.clone(), kind, required }
    });
    fields.collect()
}

impl Announced {
    /// Whether a document that is there holds to the rule.
    pub(crate) fn check<C: Change>(
        &self,
        collection: &Collection,
        document: Document<'_>,
        row: &Row<'_, '_>,
        change: &mut C,
    ) -> Result<Result<(), WriteError>, store::Error> {
        Ok(match &self.rule {
            Rule::Reference(reference) => match reference.named(row) {
                None => Ok(()),
                Some(value) => {
                    let target = reference.target_kind.of_scalar(value.scalar());
                    let is_there = match &target {
                        None => false,
                        Some(target) => change.get(reference.target, target.as_bytes())?.is_some(),
                    };
                    if is_there { Ok(()) } else { Err(reference.dangling(collection, &value)) }
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
    document: Document<'_>,
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

    /// The check of a document against the schema in force and those that were announced, where any were.
    #[inline(never)]
    pub(crate) fn check_announced(
        &self,
        held: Held,
        document: Document<'_>,
        row: &Row<'_, '_>,
    ) -> Result<(), WriteError> {
        let mut is_replaced = false;
        for announced in self.announced.iter().filter(|announced| held.is(&announced.readiness)) {
            match &announced.rule {
                Rule::Schema(schema) => {
                    check_schema(schema, self, document, row)?;
                    is_replaced = announced.readiness.is_ready();
                }
                Rule::Expire { field, place } => expire::check(field, *place, row)?,
                Rule::Reference(_) => {}
            }
        }
        match &self.schema {
            Some(schema) if !is_replaced => check_schema(schema, self, document, row),
            _ => Ok(()),
        }
    }

    /// The references that a document must hold to.
    pub(crate) fn references_held(&self, held: Held) -> impl Iterator<Item = &ReferencePlace> {
        let announced = move || {
            let those = self.announced.iter().filter(move |announced| held.is(&announced.readiness));
            those.filter_map(|announced| match &announced.rule {
                Rule::Reference(reference) => Some((reference, announced.readiness.is_ready())),
                _ => None,
            })
        };
        let is_replaced =
            move |field: usize| announced().any(|(reference, is_ready)| is_ready && reference.field == field);
        let in_force = self.references.iter().filter(move |reference| !is_replaced(reference.field));
        in_force.chain(announced().map(|(reference, _)| reference))
    }

    /// What is told of its announced rules.
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
