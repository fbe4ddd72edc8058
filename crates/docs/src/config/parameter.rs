//! A declared parameter of a query: its type and its limits, for `[params.NAME]` and for an endpoint's `params`.
//!
//! Written as a type alone (`fromDate = "integer"`) or as a table with `enum`, `min`, `max`, `default`, `required`.

use super::table::{ConfigTable, Item};

/// Header fields that frame the message or identify the client: no parameter is read from them.
const OWN_FIELDS: [&str; 5] = ["connection", "content-length", "cookie", "host", "transfer-encoding"];

/// Most values in an `enum`.
pub const ENUM_VALUES_MAX: usize = 256;

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// `-?[0-9]+` within 64 bits.
    Integer,
    /// Any JSON number.
    Number,
    /// Text.
    Text,
    /// `true` or `false`.
    Boolean,
}

/// The names of the types.
pub const PARAMETER_KINDS: [(&str, ParameterKind); 4] = [
    ("integer", ParameterKind::Integer),
    ("number", ParameterKind::Number),
    ("string", ParameterKind::Text),
    ("boolean", ParameterKind::Boolean),
];

/// A parameter's value.
#[derive(Clone, Debug, PartialEq)]
pub enum ParameterValue {
    /// An integer.
    Integer(i64),
    /// Another number.
    Number(f64),
    /// Text.
    Text(String),
    /// True or false.
    Boolean(bool),
}

/// The value of a parameter that is not given.
#[derive(Clone, Debug, PartialEq)]
pub enum Default {
    /// NULL (in an endpoint), or an error if the parameter is required.
    Missing,
    /// This value.
    Value(ParameterValue),
    /// The wall clock in Unix seconds, read once for each request.
    Clock,
}

/// The place of a parameter in a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ParameterPlace {
    /// In the query string.
    #[default]
    Query,
    /// In the header field of this name.
    Header(String),
    /// In the cookie of this name.
    Cookie(String),
}

/// One declared parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its name, without the colon.
    pub name: String,
    /// Its type.
    pub kind: ParameterKind,
    /// The only values allowed; empty: all of the type.
    pub values: Vec<ParameterValue>,
    /// The smallest number allowed.
    pub min: Option<f64>,
    /// The greatest number allowed.
    pub max: Option<f64>,
    /// The value if it is not given.
    pub default: Default,
    /// Whether a request must give it.
    pub required: bool,
    /// Its place in a request.
    pub from: ParameterPlace,
}

const KEYS: [&str; 7] = ["type", "enum", "min", "max", "default", "required", "from"];

/// `header:NAME` or `cookie:NAME`.
fn place(item: &Item<'_>) -> Option<ParameterPlace> {
    let text = item.text()?;
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let named = |name: &str| !name.is_empty() && name.bytes().all(token);
    let place = match text.split_once(':') {
        Some(("header", name)) if named(name) && !OWN_FIELDS.contains(&name.to_ascii_lowercase().as_str()) => {
            Some(ParameterPlace::Header(name.to_owned()))
        }
        Some(("cookie", name)) if named(name) => Some(ParameterPlace::Cookie(name.to_owned())),
        _ => None,
    };
    if place.is_none() {
        let allowed = "\"header:NAME\" or \"cookie:NAME\"";
        item.mistake(format!("`{}` is {text:?}", item.path()), allowed);
    }
    place
}

impl Parameter {
    /// Reads a parameter's declaration. After mistakes it returns a parameter of that name, so that its uses can be checked.
    pub fn read(item: &Item<'_>) -> Parameter {
        let mut parameter = Parameter {
            name: item.name().to_string(),
            kind: ParameterKind::Text,
            values: Vec::new(),
            min: None,
            max: None,
            default: Default::Missing,
            required: false,
            from: ParameterPlace::Query,
        };
        if item.value().is_str() {
            parameter.kind = item.word(&PARAMETER_KINDS).unwrap_or(parameter.kind);
            return parameter;
        }
        if !item.value().is_table() {
            item.mismatch("a type (\"integer\", \"number\", \"string\", \"boolean\"), or a table with `type`");
            return parameter;
        }
        let Some(table) = item.table() else { return parameter };
        table.check_keys(&KEYS, &[]);
        if let Some(kind) = table.require("type").and_then(|item| item.word(&PARAMETER_KINDS)) {
            parameter.kind = kind;
            parameter.read_bounds(&table);
        }
        parameter.from = table.get("from").and_then(|item| place(&item)).unwrap_or_default();
        parameter
    }

    fn read_bounds(&mut self, table: &ConfigTable<'_>) {
        if let Some(mut values) = table.get("enum").and_then(|item| item.list()) {
            if values.is_empty() || values.len() > ENUM_VALUES_MAX {
                table.mistake(format!("{} values in `enum`", values.len()), format!("1 to {ENUM_VALUES_MAX}"));
                values.truncate(ENUM_VALUES_MAX);
            }
            self.values = values.iter().filter_map(|value| self.value(value)).collect();
        }
        for (name, bound) in [("min", &mut self.min), ("max", &mut self.max)] {
            let Some(item) = table.get(name) else { continue };
            if !matches!(self.kind, ParameterKind::Integer | ParameterKind::Number) {
                item.mistake(format!("`{name}` bounds numbers only"), "type = \"integer\" or \"number\"");
            }
            *bound = number(&item);
        }
        if let (Some(min), Some(max)) = (self.min, self.max)
            && min > max
        {
            table.mistake(format!("`min` is {min} and `max` is {max}: no value is between them"), "");
        }
        if let Some(item) = table.get("default") {
            let clock = self.kind == ParameterKind::Integer && item.value().as_str() == Some("clock");
            self.default = match clock {
                true => Default::Clock,
                false => self.value(&item).map_or(Default::Missing, Default::Value),
            };
            if let Default::Value(value) = &self.default
                && !self.permits(value)
            {
                item.mistake(format!("the default of `{}` is none of its own values", self.name), "enum, min, max");
            }
        }
        self.required = table.get("required").and_then(|item| item.boolean()).unwrap_or(false);
    }

    /// Whether a request may give this value.
    fn permits(&self, value: &ParameterValue) -> bool {
        let number = match value {
            ParameterValue::Integer(integer) => Some(*integer as f64),
            ParameterValue::Number(number) => Some(*number),
            ParameterValue::Text(_) | ParameterValue::Boolean(_) => None,
        };
        let within =
            |number: f64| !(self.min.is_some_and(|min| number < min) || self.max.is_some_and(|max| number > max));
        (self.values.is_empty() || self.values.contains(value)) && number.is_none_or(within)
    }

    fn value(&self, item: &Item<'_>) -> Option<ParameterValue> {
        Some(match self.kind {
            ParameterKind::Integer => ParameterValue::Integer(item.integer(i64::MIN..=i64::MAX)?),
            ParameterKind::Number => ParameterValue::Number(number(item)?),
            ParameterKind::Text => ParameterValue::Text(item.text()?.to_string()),
            ParameterKind::Boolean => ParameterValue::Boolean(item.boolean()?),
        })
    }
}

fn number(item: &Item<'_>) -> Option<f64> {
    if let Some(float) = item.value().as_float() {
        return float.as_str().parse().ok().filter(|number: &f64| number.is_finite()).or_else(|| {
            item.mismatch("a finite number");
            None
        });
    }
    if item.value().is_integer() {
        return item.integer(i64::MIN..=i64::MAX).map(|integer| integer as f64);
    }
    item.mismatch("a number");
    None
}
