//! Any JSON Schema, by the `jsonschema` crate. It works on a parsed value, so each check builds one.

use binjson::{Document, Kind, Value};
use jsonschema::paths::Location;
use jsonschema::{Keyword, ValidationError, Validator};
use serde_json::{Map, Number, Value as Json};

use super::Misfit;

#[derive(Debug)]
pub(crate) struct Full {
    validator: Validator,
}

impl Full {
    pub(crate) fn compile(schema: &Json) -> Result<Full, String> {
        let options = jsonschema::options().with_keyword("type", strict_type);
        let validator = options.build(schema).map_err(|error| error.to_string())?;
        Ok(Full { validator })
    }

    pub(crate) fn check(&self, document: Document<'_>) -> Result<(), Misfit> {
        let value = parsed(document.root());
        self.validator
            .validate(&value)
            .map_err(|error| Misfit { why: error.to_string(), pointer: error.instance_path().to_string() })
    }
}

/// A stored value as the library wants it. Integers outside 64 bits become reals, and reals beyond the largest become it.
fn parsed(value: Value<'_>) -> Json {
    match value.kind() {
        Kind::Null => Json::Null,
        Kind::Bool => Json::Bool(value.as_bool().unwrap_or_default()),
        Kind::Integer | Kind::Number => match value.as_i64() {
            Some(integer) => Json::from(integer),
            None => {
                let real = value.as_f64().unwrap_or_default().clamp(f64::MIN, f64::MAX);
                Number::from_f64(real).map_or(Json::Null, Json::Number)
            }
        },
        Kind::String => Json::String(value.as_str().unwrap_or_default().into_owned()),
        Kind::Array => Json::Array(value.elements().map(parsed).collect()),
        Kind::Object => {
            let fields =
                value.fields().map(|(name, value)| (name.as_str().unwrap_or_default().into_owned(), parsed(value)));
            Json::Object(fields.collect::<Map<_, _>>())
        }
    }
}

/// `type`, with `integer` meaning digits: the library follows the standard and takes 1.0 for an integer.
struct StrictType {
    types: Vec<String>,
}

impl StrictType {
    fn fits(&self, value: &Json) -> bool {
        self.types.iter().any(|kind| match (kind.as_str(), value) {
            ("null", Json::Null)
            | ("boolean", Json::Bool(_))
            | ("string", Json::String(_))
            | ("array", Json::Array(_))
            | ("object", Json::Object(_))
            | ("number", Json::Number(_)) => true,
            ("integer", Json::Number(number)) => number.is_i64(),
            _ => false,
        })
    }
}

impl<'i> Keyword<'i> for StrictType {
    fn validate(&self, instance: &'i Json) -> Result<(), ValidationError<'i>> {
        if self.fits(instance) {
            return Ok(());
        }
        Err(ValidationError::custom(format!("{instance} is not of type {}", self.types.join(" or "))))
    }

    fn is_valid(&self, instance: &'i Json) -> bool {
        self.fits(instance)
    }
}

fn strict_type<'a>(
    _parent: &'a Map<String, Json>,
    value: &'a Json,
    _path: Location,
) -> Result<Box<dyn for<'i> Keyword<'i>>, ValidationError<'a>> {
    let names = match value {
        Json::Array(names) => names.as_slice(),
        name => std::slice::from_ref(name),
    };
    let types = names.iter().map(|name| name.as_str().map(str::to_string)).collect::<Option<Vec<_>>>();
    types
        .map(|types| Box::new(StrictType { types }) as Box<dyn for<'i> Keyword<'i>>)
        .ok_or_else(|| ValidationError::custom("`type` is a name or a list of names"))
}
