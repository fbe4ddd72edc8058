//! The check of stored documents against JSON Schemas.
//!
//! A [`Schema`] is compiled from its text. [`Schema::check`] receives the document and its row ([`Names::with_row`]: the values
//! of its fields by number), and returns a [`Misfit`] if the document does not fit. [`Schema::fields`] lists what a schema
//! promises about every document that fits it.
//!
//! A plain schema (an object whose fields have types, enums, bounds and lengths) is checked by [`plain`] on the stored
//! document, without building anything, as this is on the path of every write. Any other schema is checked by the `jsonschema`
//! crate ([`full`]), which reads the stored document too, within limits of steps, memory and stack. For a plain schema both
//! give the same result; a property test compares them.
//!
//! One rule is stricter than JSON Schema: an `integer` fits into 64 bits, and no real rounds it (9007199254740993.0 is none; the misfit
//! says how to write it). `1.0` and `1e3` are integers.

mod equality;
mod estimate;
mod format;
mod full;
mod integer;
mod keywords;
mod lint;
mod looser;
mod meter;
mod pattern;
mod plain;
mod promise;
mod row;
mod stored;
pub mod types;
mod unfolding;

pub use integer::{exact_integer, integer_of};
pub use lint::LINTS_MAX;
pub use meter::{CANCEL_CHECK_STEPS, CancelCheck, with_cancel_check, within};
pub use plain::{pointer, shown};
pub use promise::{FieldPromise, PromisedKind};
pub use row::{FieldNumbers, NAMES_MAX, Names, Row};

use binjson::StoredDocument;
use serde_json::Value as Json;

/// Deepest nesting of a schema's text (serde_json's own limit).
pub const SCHEMA_DEPTH_MAX: usize = 127;
/// Longest message that includes values.
const MESSAGE_BYTES_MAX: usize = 1024;

/// A compiled schema.
#[derive(Debug)]
pub struct Schema {
    fields: Vec<FieldPromise>,
    closed: bool,
    rules: Rules,
}

#[derive(Debug)]
enum Rules {
    Plain(plain::PlainRules),
    Full(Box<full::Full>),
}

/// Why a document does not fit, and the place in it (a JSON pointer; empty for the document itself).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// What is wrong, in words.
    pub why: String,
    /// The place.
    pub pointer: String,
}

impl Schema {
    /// Compiles a schema of a configuration file. Unlike for [`Schema::compile`], unknown formats and defaults are mistakes.
    /// JSON Schema applies no `default` (2020-12, validation, section 9.2), so its author would expect values that no document has.
    pub fn declared(text: &str) -> Result<Schema, String> {
        let json = parse(text)?;
        format::check(&json, "")?;
        if let Some(place) = keywords::default(&json) {
            return Err(format!(
                "{place} would be ignored: a document is stored as it is sent, without values of its schema. Leave it out, and send \
                 the value or choose it where it is read, as in coalesce(FIELD, VALUE)"
            ));
        }
        Schema::compile(text)
    }

    /// Compiles a schema's JSON text. The error says in words what is wrong with it.
    pub fn compile(text: &str) -> Result<Schema, String> {
        let json = parse(text)?;
        // The general compiler also checks the schema against its own rules.
        let full = full::Full::compile(&json)?;
        let promise = promise::of(text, &json);
        let rules = match plain::PlainRules::compile(&json, &promise) {
            Some(plain) => Rules::Plain(plain),
            None => Rules::Full(Box::new(full)),
        };
        Ok(Schema { fields: promise.fields, closed: promise.closed, rules })
    }

    /// The same, always for the general checker. Tests use it as the reference.
    pub fn compile_full(text: &str) -> Result<Schema, String> {
        let json = parse(text)?;
        let promise = promise::of(text, &json);
        let full = full::Full::compile(&json)?;
        Ok(Schema { fields: promise.fields, closed: promise.closed, rules: Rules::Full(Box::new(full)) })
    }

    /// What it promises about the top-level fields that it names, in its order.
    pub fn fields(&self) -> &[FieldPromise] {
        &self.fields
    }

    /// Whether it forbids other top-level fields.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether documents are checked by the plain checker.
    pub fn is_plain(&self) -> bool {
        matches!(self.rules, Rules::Plain(_))
    }

    /// Checks a document, given its row over `names`, which must begin with this schema's fields in their order.
    /// Panics if the row has fewer fields.
    #[inline]
    pub fn check(&self, document: StoredDocument<'_>, row: &Row<'_, '_>, names: &Names) -> Result<(), Misfit> {
        match &self.rules {
            Rules::Plain(plain) => plain.check(row, names),
            Rules::Full(full) => full.check(document),
        }
    }
}

/// Whether every document that fits the schema `before` fits `new` too; both are JSON texts. `false` if unknown.
pub fn is_looser(new: &str, before: &str) -> bool {
    parse(new).ok().zip(parse(before).ok()).is_some_and(|(new, before)| looser::is_looser(&new, &before))
}

/// The parts of a schema that are valid but probably mistakes, each with its JSON pointer and in words: unknown keywords, which
/// check nothing, and rules that no value fits. At most [`LINTS_MAX`]; empty for a text that is no schema.
pub fn lints(text: &str) -> Vec<String> {
    parse(text).map_or_else(|_| Vec::new(), |schema| lint::of(&schema))
}

fn parse(text: &str) -> Result<Json, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}
