//! A request's body as parameters of statements: an object that fits a JSON Schema; each field that the schema names is one
//! parameter.
//!
//! A missing or null field is NULL, a boolean is 1 or 0, and an array or object is its minified text.

use binjson::{Encoder, StoredDocument};
use schema::{PromisedKind, Schema};

use crate::config::Item;
use crate::encoding::row::plain;
use crate::encoding::{FieldNumbers, NAMES_MAX, Names, Plain};
use crate::error::WriteError;
use crate::sql::OwnedValue;
use crate::writes::{LONG_CHECK_BYTES, SHORT_CHECK_STEPS};

/// The schema of a body, and the fields that are read from it.
#[derive(Debug)]
pub struct BodySchema {
    schema: Schema,
    names: Names,
    text: String,
}

impl BodySchema {
    /// Reads a schema from the configuration, inline or from a file; mistakes are recorded.
    pub fn read(item: &Item<'_>) -> Option<BodySchema> {
        let text = crate::config::schema_text(item)?;
        let made = Schema::declared(&text).and_then(|schema| {
            let mut names = Names::default();
            for field in schema.fields() {
                names.add(&field.name).ok_or_else(|| format!("it names more than {NAMES_MAX} fields"))?;
            }
            Ok((schema, names))
        });
        match made {
            Ok((schema, names)) => Some(BodySchema { schema, names, text }),
            Err(why) => {
                item.mistake(format!("`{}` is no JSON Schema of a body: {why}", item.path()), "");
                None
            }
        }
    }

    /// The schema's JSON text.
    pub fn schema_text(&self) -> &str {
        &self.text
    }

    /// The names of the values, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.schema.fields().iter().map(|field| field.name.as_str())
    }

    /// Checks a body and returns its values.
    pub fn values(&self, json: &[u8]) -> Result<Vec<OwnedValue>, WriteError> {
        let mut stored = Vec::new();
        Encoder::default().encode(json, &mut stored)?;
        let damaged = |_| WriteError::invalid("the body cannot be read", "");
        let document = StoredDocument::from_bytes(&stored).map_err(damaged)?;
        if !document.is_object() {
            return Err(WriteError::invalid("the body is a JSON object", ""));
        }
        self.names.with_row(document, &mut FieldNumbers::default(), |row| {
            let checked = self.schema.check(document, row, &self.names);
            checked.map_err(|misfit| WriteError::Invalid { why: misfit.why, pointer: misfit.pointer })?;
            let fields = self.schema.fields().iter().enumerate();
            Ok(fields.map(|(place, field)| owned(field.kind, &plain(row.get(place)))).collect())
        })
    }

    /// The same on an event loop; `None` if the check is too long for one.
    pub fn values_on_loop(&self, json: &[u8]) -> Result<Option<Vec<OwnedValue>>, WriteError> {
        if json.len() >= LONG_CHECK_BYTES && !self.schema.is_plain() {
            return Ok(None);
        }
        schema::within(SHORT_CHECK_STEPS, || self.values(json)).transpose()
    }
}

fn owned(kind: PromisedKind, value: &Plain<'_>) -> OwnedValue {
    match value {
        Plain::Null => OwnedValue::Null,
        Plain::Integer(integer) => OwnedValue::Integer(*integer),
        // An integer that is sent as 5.0.
        Plain::Real(real) if kind == PromisedKind::Integer => OwnedValue::Integer(*real as i64),
        Plain::Real(real) => OwnedValue::Real(*real),
        Plain::Text(text) => OwnedValue::Text(text.as_bytes().into()),
    }
}
