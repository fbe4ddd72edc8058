//! The row on which an expression is evaluated: one frame for each joined table, and the source of each field.
//!
//! Frames link to the frame of the outer level, on the stack of the nested loops, so a row needs no allocation, and each
//! entry's bytes stay where the engine has them. A field is decoded when it is used, from the cheapest source that has it: the
//! index entry's key, its included fields, then the document.

use std::cell::Cell;

use binjson::{FieldCache, FieldName, StoredDocument};
use bumpalo::Bump;

use crate::encoding::row::key_value;
use crate::encoding::{IncludedValues, Key, KeyType, Plain, Scalar, index, key, order};
use crate::sql::limits::{Fault, Meter};
use crate::sql::rows::{Relation, Relations, relation};
use crate::sql::values::json::{self, Step};
use crate::sql::values::{FieldValue, OuterValue, Value, Workspace, value};

/// Where a field is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldPlace {
    /// A value of the index entry's key.
    IndexKey {
        /// Its place there.
        place: usize,
        /// Number of the index's included fields.
        included: usize,
    },
    /// An included field of the index entry, by its place there.
    Included(usize),
    /// The document's key.
    Key(KeyType),
    /// The document.
    Document,
    /// The document, which may spell its key 5 as 5.0.
    DocumentKey(KeyType),
    /// A field of a kept row, by its place there.
    Row(usize),
}

/// Where one plan reads a column's value.
#[derive(Clone, Debug)]
pub(crate) struct ColumnSource {
    /// The nesting level of its collection.
    pub(crate) level: usize,
    pub(crate) place: FieldPlace,
    /// The field's name, ready for lookups.
    pub(crate) name: FieldName,
}

/// One table's part of the row.
pub(crate) struct Frame<'a> {
    pub(crate) level: usize,
    /// The entry's key: of an index, or of the document's tree.
    pub(crate) key: &'a [u8],
    /// The index entry's value, or a kept row; empty for a document.
    pub(crate) value: &'a [u8],
    pub(crate) document: Option<StoredDocument<'a>>,
    /// The padding row of a left join: all its fields are NULL.
    pub(crate) absent: bool,
    pub(crate) outer: Option<&'a Frame<'a>>,
}

impl<'a> Frame<'a> {
    /// The frame of a kept row.
    pub(crate) fn kept(level: usize, row: &'a [u8], outer: Option<&'a Frame<'a>>) -> Frame<'a> {
        Frame { level, key: &[], value: row, document: None, absent: false, outer }
    }
}

/// The context of expressions besides the row: constant for an execution, except for a group's results.
#[derive(Clone, Copy)]
pub(crate) struct Fixed<'a> {
    pub(crate) sources: &'a [ColumnSource],
    pub(crate) caches: &'a [Cell<FieldCache>],
    pub(crate) parameters: &'a [Value<'a>],
    pub(crate) constants: &'a [Result<Value<'a>, Fault>],
    pub(crate) aggregates: &'a [Value<'a>],
    pub(crate) group: &'a [Value<'a>],
    /// Values of the enclosing query's row.
    pub(crate) outer: &'a [OuterValue<'a>],
    /// The rows of the plan's subqueries, if it has any.
    pub(crate) relations: Option<&'a dyn Relations>,
    pub(crate) now_ms: i64,
    /// The meter of work and memory.
    pub(crate) meter: &'a Meter<'a>,
}

/// The context of an expression. It has only three words, because one is made for each row.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(crate) frame: Option<&'a Frame<'a>>,
    pub(crate) fixed: &'a Fixed<'a>,
    pub(crate) arena: &'a Bump,
}

const INDEX: Fault = Fault::Damaged("an index entry");

impl<'a> Scope<'a> {
    /// Memory for computed values.
    #[inline(always)]
    pub(crate) fn workspace(&self) -> Workspace<'a> {
        Workspace::new(self.arena, self.fixed.meter)
    }

    /// The same with other memory for computed values.
    pub(crate) fn within<'b>(&'b self, workspace: Workspace<'b>) -> Scope<'b> {
        Scope { arena: workspace.arena(), ..*self }
    }

    #[inline]
    fn frame(&self, level: usize) -> Option<&'a Frame<'a>> {
        let mut frame = self.frame?;
        while frame.level != level {
            frame = frame.outer?;
        }
        Some(frame)
    }

    /// A column in its stored form.
    #[inline]
    pub(crate) fn cell(&self, column: usize) -> Result<FieldValue<'a>, Fault> {
        let source = &self.fixed.sources[column];
        let Some(frame) = self.frame(source.level).filter(|frame| !frame.absent) else {
            return Ok(FieldValue::Value(Value::Null));
        };
        match source.place {
            FieldPlace::Document | FieldPlace::DocumentKey(_) => {
                let Some(document) = frame.document else { return Err(Fault::Plan) };
                let place = &self.fixed.caches[column];
                let mut cache = place.get();
                let found = document.field_named(&source.name, &mut cache);
                place.set(cache);
                let Some(value) = found else { return Ok(FieldValue::Value(Value::Null)) };
                if let FieldPlace::DocumentKey(kind) = source.place
                    && let Some(Plain::Integer(key)) = key_value(kind, value)
                {
                    return Ok(FieldValue::Value(Value::Integer(key)));
                }
                Ok(FieldValue::Json(value.raw()))
            }
            FieldPlace::Included(place) => {
                let mut included = IncludedValues::new(frame.value);
                for _ in 0..place {
                    included.next().map_err(|_| INDEX)?;
                }
                Ok(included.next().map_err(|_| INDEX)?.map_or(FieldValue::Value(Value::Null), FieldValue::Json))
            }
            FieldPlace::IndexKey { place, included } => {
                if let Some(written) = IncludedValues::new(frame.value).written(included).map_err(|_| INDEX)?
                    && let Some(number) = written.at(place).and_then(index::written_number)
                {
                    return Ok(FieldValue::Json(number));
                }
                let mut key = frame.key;
                for _ in 0..place {
                    order::skip(&mut key).ok_or(INDEX)?;
                }
                index_value(key, self.workspace()).map(FieldValue::Value)
            }
            FieldPlace::Row(place) => Ok(relation::field(frame.value, place)),
            FieldPlace::Key(kind) => {
                let key = kind.of_bytes(frame.key).ok_or(Fault::Damaged("a key"))?;
                Ok(FieldValue::Value(of_scalar(key.scalar())))
            }
        }
    }

    /// The rows of a subquery.
    pub(crate) fn relation(&self, number: usize) -> Result<&'a Relation, Fault> {
        self.fixed.relations.ok_or(Fault::Plan)?.get(number)
    }

    /// A column as a value.
    #[inline]
    pub(crate) fn value(&self, column: usize) -> Result<Value<'a>, Fault> {
        self.cell(column)?.decode(self.workspace())
    }

    /// The JSON at a path in a column.
    pub(crate) fn stored_path(&self, column: usize, steps: &[Step]) -> Result<Option<&'a [u8]>, Fault> {
        match self.cell(column)? {
            FieldValue::Json(json) => Ok(steps.iter().try_fold(json, |json, step| json::step(json, step))),
            FieldValue::Value(_) => Ok(None),
        }
    }
}

/// The integer that a value equals, if any: 5.0 equals 5.
#[inline]
pub(in crate::sql) fn whole(value: Value<'_>) -> Option<i64> {
    match value {
        Value::Integer(integer) => Some(integer),
        Value::Real(real) => key::whole(real),
        _ => None,
    }
}

/// The key that a value equals, if any.
#[inline]
pub(crate) fn as_key(value: Value<'_>, kind: KeyType) -> Option<Key<'_>> {
    kind.of_scalar(value.scalar()?)
}

pub(crate) fn of_scalar(scalar: Scalar<'_>) -> Value<'_> {
    match scalar {
        Scalar::Null => Value::Null,
        Scalar::Integer(integer) => Value::Integer(integer),
        Scalar::Real(real) => Value::Real(real),
        Scalar::Text(text) => Value::text(text),
    }
}

/// The value at the beginning of an index key, or of a number as written that stands for it.
#[inline]
pub(crate) fn index_value<'a>(key: &'a [u8], workspace: Workspace<'a>) -> Result<Value<'a>, Fault> {
    match order::decode_integer(key) {
        Some(integer) => Ok(Value::Integer(integer)),
        None => other_index_value(key, workspace),
    }
}

fn other_index_value<'a>(key: &'a [u8], workspace: Workspace<'a>) -> Result<Value<'a>, Fault> {
    if let Some(number) = index::written_number(key) {
        return value::of_json(number, workspace);
    }
    let mut rest = key;
    let mut unescaped = Vec::new(); // Allocates only for a text that contains NUL, which no document has.
    let value = match order::decode(&mut rest, &mut unescaped).ok_or(INDEX)? {
        Scalar::Null => Value::Null,
        Scalar::Integer(integer) => Value::Integer(integer),
        Scalar::Real(real) => Value::Real(real),
        Scalar::Text(text) => match key.get(1..=text.len()) {
            Some(stored) if stored == text.as_bytes() => Value::Text(stored),
            _ => Value::Text(workspace.copy(text.as_bytes())?),
        },
    };
    Ok(value)
}
