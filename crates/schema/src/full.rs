//! General JSON Schemas, checked by the `jsonschema` crate. It reads stored documents in place ([`super::stored`]).
//!
//! The library has no limits: a schema may require any amount of work for a small document, and each error copies the values
//! that it concerns. So a check is limited in proportion to the document's size ([`super::meter`]), and the unfolding of a
//! schema is limited when it is compiled ([`super::unfolding`]).

use binjson::{JsonKind, JsonValue, StoredDocument};
use jsonschema::json::Node;
use jsonschema::paths::Location;
use jsonschema::{JsonType, Keyword, PatternOptions, ValidationError, Validator};
use serde_json::{Map, Value as Json};

use super::estimate::{BACKTRACKS, Estimate};
use super::integer::integer_of;
use super::meter::{self, Limits, Stop};
use super::pattern::{self, PATTERN_MEMORY_BYTES};
use super::plain::{shown, spelling};
use super::stored::{Stored, StoredNode};
use super::unfolding::{self, Unfolding};
use super::{MESSAGE_BYTES_MAX, Misfit};

/// Steps of a check: accesses to values, and bytes read.
const STEPS: u64 = 500_000;
/// Further steps for each byte of the document.
const STEPS_PER_BYTE: u64 = 4;
/// Memory that a check may take, plus a share for each byte of the document: sets of names, hashes of elements, errors.
const BYTES: u64 = 1 << 20;
const BYTES_PER_BYTE: u64 = 8;
/// Stack that a check may take: threads have 2 MiB.
const STACK_BYTES: usize = 768 << 10;
/// Number of subschemas that count as one step. It concerns subschemas that do not access the value and so are not counted
/// elsewhere.
const SUBSCHEMAS_PER_STEP: u64 = 16;
/// Size of a name in the library's sets, without its text.
const NAME_BYTES: usize = 64;
/// Results of recursive schemas that are cached; some 100 bytes each.
const MEMORIES: usize = 8192;

/// Longest document for which the misfit is explained: an error may copy all of it.
const EXPLAINED_BYTES_MAX: usize = 64 << 10;

pub(crate) struct Full {
    validator: Validator<Stored>,
    unfolding: Unfolding,
    /// What matching a name against `patternProperties` costs.
    names: Estimate,
}

impl std::fmt::Debug for Full {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Full").field("unfolding", &self.unfolding).finish_non_exhaustive()
    }
}

impl Full {
    pub(crate) fn compile(schema: &Json) -> Result<Full, String> {
        let unfolding = unfolding::of(schema)?;
        let linear = PatternOptions::regex().dfa_size_limit(PATTERN_MEMORY_BYTES);
        if let Ok(validator) = build(schema, linear) {
            return Ok(Full { validator, unfolding, names: Estimate::of_names(schema, false) });
        }
        let backtracking =
            PatternOptions::fancy_regex().backtrack_limit(BACKTRACKS).dfa_size_limit(PATTERN_MEMORY_BYTES);
        let validator = build(schema, backtracking)?;
        Ok(Full { validator, unfolding, names: Estimate::of_names(schema, true) })
    }

    pub(crate) fn check(&self, document: StoredDocument<'_>) -> Result<(), Misfit> {
        let root = StoredNode::Value(document.root());
        let limits = self.limits(document);
        match meter::bounded(&limits, || self.validator.is_valid(root)) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(stop) => return Err(stopped(stop)),
        }
        let unexplained = || Misfit { why: "it does not fit the JSON Schema".to_string(), pointer: String::new() };
        if document.text().len() > EXPLAINED_BYTES_MAX {
            return Err(unexplained());
        }
        let explained =
            meter::bounded(&limits, || self.validator.validate(root).map_err(|error| misfit(&error, document)));
        // `is_valid` has refused the document. If `validate` disagrees or reaches a limit, the misfit stays unexplained.
        explained.unwrap_or_else(|_| Err(unexplained())).and_then(|()| Err(unexplained()))
    }

    fn limits(&self, document: StoredDocument<'_>) -> Limits {
        let bytes = document.text().len() as u64;
        Limits {
            steps: STEPS + STEPS_PER_BYTE * bytes,
            bytes: BYTES + BYTES_PER_BYTE * bytes,
            stack_bytes: STACK_BYTES,
            visit_steps: 1 + self.unfolding.idle / SUBSCHEMAS_PER_STEP,
            names: self.names,
            name_bytes: if self.unfolding.has_unevaluated { NAME_BYTES } else { 0 },
            memories: MEMORIES,
            document: (document.text().as_ptr() as usize, document.text().len()),
        }
    }
}

fn build<E>(schema: &Json, patterns: PatternOptions<E>) -> Result<Validator<Stored>, String> {
    let options = jsonschema::options_for::<Stored>().with_keyword("type", strict_type);
    let options = options.with_keyword("pattern", pattern::keyword).with_pattern_options(patterns);
    options.build(schema).map_err(|error| error.to_string())
}

fn misfit(error: &ValidationError<'_>, document: StoredDocument<'_>) -> Misfit {
    let pointer = error.instance_path().to_string();
    let number =
        at(document.root(), &pointer).filter(|value| matches!(value.kind(), JsonKind::Integer | JsonKind::Number));
    let mut why = match number {
        // The library shows a number as it computes with it: 100.0 for 1e2.
        Some(number) => error.masked_with(shown(number)).to_string(),
        None => error.to_string(),
    };
    if why.len() > MESSAGE_BYTES_MAX {
        why = error.masked().to_string();
    }
    if why.len() > MESSAGE_BYTES_MAX {
        why = format!("it does not fit `{}` of the JSON Schema", error.schema_path());
    }
    Misfit { why, pointer }
}

/// The value at a JSON pointer.
fn at<'d>(root: JsonValue<'d>, pointer: &str) -> Option<JsonValue<'d>> {
    pointer.split('/').skip(1).try_fold(root, |value, step| match value.kind() {
        JsonKind::Object => value.field(&step.replace("~1", "/").replace("~0", "~")),
        JsonKind::Array => value.elements().nth(step.parse().ok()?),
        _ => None,
    })
}

fn stopped(stop: Stop) -> Misfit {
    let why = match stop {
        Stop::Steps => {
            format!(
                "to check it against the JSON Schema takes over {STEPS} steps and {STEPS_PER_BYTE} for each byte of it"
            )
        }
        Stop::PatternSteps => {
            format!(
                "to check it against the JSON Schema takes over {STEPS} steps and {STEPS_PER_BYTE} for each byte of it, and ended at \
                 a `pattern`"
            )
        }
        Stop::Bytes => {
            format!(
                "to check it against the JSON Schema takes over {BYTES} bytes and {BYTES_PER_BYTE} for each byte of it"
            )
        }
        Stop::Depth => format!("to check it against the JSON Schema takes over {STACK_BYTES} bytes of stack"),
        Stop::Over => "the check against the JSON Schema was cancelled".to_string(),
        Stop::Panic => {
            tracing::error!("a check against a JSON Schema panicked");
            "it cannot be checked against the JSON Schema: the check failed".to_string()
        }
    };
    Misfit { why, pointer: String::new() }
}

/// `type` with the strict meaning of `integer`: the library follows the standard and accepts integers of any size.
struct StrictType {
    types: Vec<String>,
}

impl StrictType {
    fn fits(&self, value: StoredNode<'_>) -> bool {
        let kind = value.json_type();
        self.types.iter().any(|name| match (name.as_str(), kind) {
            ("null", JsonType::Null)
            | ("boolean", JsonType::Boolean)
            | ("string", JsonType::String)
            | ("array", JsonType::Array)
            | ("object", JsonType::Object)
            | ("number", JsonType::Number) => true,
            ("integer", JsonType::Number) => matches!(value, StoredNode::Value(value) if integer_of(value).is_some()),
            _ => false,
        })
    }
}

impl<'i> Keyword<'i, Stored> for StrictType {
    fn validate(&self, instance: StoredNode<'i>) -> Result<(), ValidationError<'i>> {
        if self.fits(instance) {
            return Ok(());
        }
        let types = self.types.join(" or ");
        let shown = match instance {
            StoredNode::Value(value) if instance.is_number() => shown(value),
            other => other.to_value().to_string(),
        };
        let shown = if shown.len() > MESSAGE_BYTES_MAX { "value" } else { &shown };
        let is_integer = self.types.iter().any(|name| name == "integer");
        let hint = match instance {
            StoredNode::Value(value) if is_integer && instance.is_number() => spelling(value),
            _ => String::new(),
        };
        Err(ValidationError::custom(format!("{shown} is not of type {types}{hint}")))
    }

    fn is_valid(&self, instance: StoredNode<'i>) -> bool {
        self.fits(instance)
    }
}

fn strict_type<'a>(
    _parent: &'a Map<String, Json>,
    value: &'a Json,
    _path: Location,
) -> Result<Box<dyn for<'i> Keyword<'i, Stored>>, ValidationError<'a>> {
    let names = match value {
        Json::Array(names) => names.as_slice(),
        name => std::slice::from_ref(name),
    };
    let types = names.iter().map(|name| name.as_str().map(str::to_string)).collect::<Option<Vec<_>>>();
    types
        .map(|types| Box::new(StrictType { types }) as Box<dyn for<'i> Keyword<'i, Stored>>)
        .ok_or_else(|| ValidationError::custom("`type` is a name or a list of names"))
}
