//! The JSON types of a query's result columns, inferred from its text and the catalog, for API descriptions.
//!
//! Each column gets a set of types that contains the types of all rows, as small as the text allows. A field selected by itself
//! is the stored JSON. Any other expression is an SQL value: a boolean becomes 1 or 0, an object or array its text. If the
//! inference cannot decide, every type is possible. Integers that overflow 64 bits become reals without a fraction, which are
//! integers in JSON Schema too.

use std::cell::Cell;

use super::query::PreparedQuery;
use crate::catalog::{Catalog, FieldInfo, FieldKind};
use crate::encoding::KeyType;
use crate::sql::expressions::{AggregateCall, AggregateKind, Arithmetic, CastType, Expr};
use crate::sql::functions::dates::DateFunction;
use crate::sql::functions::{Function, JsonFunction, Mathematics};
use crate::sql::resolve::{Column, Logical, RowSource};
use crate::sql::values::{JsonTypes, OwnedValue};

/// A result column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnType {
    /// The column's name.
    pub name: String,
    /// The types of its values.
    pub types: JsonTypes,
    /// If the column is a field of a collection: the collection and the field.
    pub field: Option<(String, String)>,
}

impl FieldKind {
    /// The types of a field that is present.
    fn types(self) -> JsonTypes {
        match self {
            FieldKind::Integer => JsonTypes::INTEGER,
            FieldKind::Number => JsonTypes::NUMBER,
            FieldKind::Text => JsonTypes::STRING,
            FieldKind::Boolean => JsonTypes::BOOLEAN,
            FieldKind::Any => JsonTypes::ANY,
            FieldKind::Computed(types) => types,
        }
    }
}

impl PreparedQuery {
    /// The types of the result columns; `parameter` returns those of a parameter by its slot.
    pub(crate) fn column_types_with(&self, parameter: &dyn Fn(usize) -> JsonTypes) -> Vec<ColumnType> {
        let inference = Inference::new(&self.catalog, parameter);
        self.logical.outputs.iter().map(|output| inference.column(&self.logical, &output.name, &output.expr)).collect()
    }

    /// The types of the result columns; `parameter` returns those of a parameter by its name.
    pub fn column_types(&self, parameter: &dyn Fn(&str) -> JsonTypes) -> Vec<ColumnType> {
        let names = self.parameters();
        self.column_types_with(&|slot| names.get(slot).map_or(JsonTypes::VALUE, |name| parameter(name)))
    }
}

/// Most expressions that one inference visits. Nested queries in FROM that use each column twice double the work at each level.
/// Beyond the limit, the types are those of any SQL value, which is never wrong.
const STEPS_MAX: u32 = 100_000;

/// The context of a type inference.
pub(crate) struct Inference<'i> {
    catalog: &'i Catalog,
    /// The types of a parameter, by its slot.
    parameter: &'i dyn Fn(usize) -> JsonTypes,
    /// Expressions that may still be visited, see [`STEPS_MAX`].
    steps: Cell<u32>,
}

impl<'i> Inference<'i> {
    pub(crate) fn new(catalog: &'i Catalog, parameter: &'i dyn Fn(usize) -> JsonTypes) -> Inference<'i> {
        Inference { catalog, parameter, steps: Cell::new(STEPS_MAX) }
    }
}

impl Inference<'_> {
    fn column(&self, query: &Logical, name: &str, expr: &Expr) -> ColumnType {
        let field = match expr {
            Expr::Column(column) => {
                let Column { table, name, .. } = &query.columns[*column];
                let table = query.tables[*table].collection();
                table.map(|collection| (self.catalog.collections[collection].name.clone(), name.clone()))
            }
            _ => None,
        };
        ColumnType { name: name.to_owned(), types: self.output(query, expr), field }
    }

    /// The types of a result column: a plain field is returned as it is stored.
    pub(crate) fn output(&self, query: &Logical, expr: &Expr) -> JsonTypes {
        match expr {
            Expr::Column(column) => self.stored(query, &query.columns[*column]),
            Expr::Path(..) | Expr::Outer(_) | Expr::Call(Function::Json(JsonFunction::AsStored), _) => JsonTypes::ANY,
            other => self.value(query, other),
        }
    }

    /// The types of a column of a table.
    fn stored(&self, query: &Logical, column: &Column) -> JsonTypes {
        let table = &query.tables[column.table];
        let info = table.info(self.catalog);
        let types = match &table.origin {
            RowSource::Collection(_) if info.key.field == column.name => match info.key.kind {
                KeyType::U32 | KeyType::I64 => JsonTypes::INTEGER,
                KeyType::String => JsonTypes::STRING,
            },
            RowSource::Collection(_) => match info.field(&column.name) {
                Some(FieldInfo { kind: FieldKind::Computed(types), .. }) => *types,
                Some(field) => field.kind.types().null_if(!field.required),
                None => JsonTypes::ANY,
            },
            RowSource::Inner { number, .. } => {
                let named = |(_, field): &(usize, &FieldInfo)| field.name == column.name;
                let places = info.fields.iter().enumerate().filter(named).map(|(place, _)| place);
                let members = &query.inner[*number].members;
                let outputs = places.flat_map(|place| members.iter().map(move |member| (member, place)));
                let types = outputs.map(|(member, place)| match member.outputs.get(place) {
                    Some(output) => self.output(member, &output.expr),
                    None => JsonTypes::ANY,
                });
                types.reduce(JsonTypes::or).unwrap_or(JsonTypes::ANY)
            }
            RowSource::Each { .. } => JsonTypes::ANY,
        };
        types.null_if(table.left_on.is_some())
    }

    /// The types of an expression's value.
    fn value(&self, query: &Logical, expr: &Expr) -> JsonTypes {
        let Some(left) = self.steps.get().checked_sub(1) else { return JsonTypes::VALUE };
        self.steps.set(left);
        let of = |expr: &Expr| self.value(query, expr);
        let is_null = |expr: &Expr| of(expr).has(JsonTypes::NULL);
        match expr {
            Expr::Literal(OwnedValue::Null) => JsonTypes::NULL,
            Expr::Literal(OwnedValue::Integer(_)) => JsonTypes::INTEGER,
            Expr::Literal(OwnedValue::Real(_)) => JsonTypes::NUMBER,
            Expr::Literal(OwnedValue::Text(_)) => JsonTypes::STRING,
            Expr::Parameter(slot) => (self.parameter)(*slot).as_value(),
            Expr::Column(column) => self.stored(query, &query.columns[*column]).as_value(),
            Expr::Aggregate(number) => self.aggregate(query, &query.aggregates[*number], !query.group.is_empty()),
            Expr::GroupKey(place) => of(&query.group[*place]),
            Expr::IsNull(_) | Expr::NotNull(_) | Expr::Is(..) | Expr::IsTruth(..) | Expr::ExistsInner(_) => {
                JsonTypes::INTEGER
            }
            Expr::Not(_)
            | Expr::BitNot(_)
            | Expr::Compare(..)
            | Expr::And(_)
            | Expr::Or(_)
            | Expr::In(..)
            | Expr::Between(..)
            | Expr::Like(..)
            | Expr::Glob(..) => JsonTypes::INTEGER.null_if(expr.any_part(is_null)),
            Expr::InInner(..) => JsonTypes::INTEGER.or(JsonTypes::NULL),
            Expr::Concat(a, b) => JsonTypes::STRING.null_if(is_null(a) || is_null(b)),
            Expr::Arithmetic(op, a, b) => self.arithmetic(query, *op, a, b),
            Expr::Case(arms, last) => arms.iter().map(|(_, then)| of(then)).fold(of(last), JsonTypes::or),
            Expr::CaseOf(_, arms, last) => arms.iter().map(|(_, _, then)| of(then)).fold(of(last), JsonTypes::or),
            Expr::Coalesce(list) => {
                let types: Vec<JsonTypes> = list.iter().map(of).collect();
                let all = types.iter().copied().fold(JsonTypes::NONE, JsonTypes::or);
                let may_be_null = types.iter().all(|types| types.has(JsonTypes::NULL));
                if may_be_null { all } else { all.without(JsonTypes::NULL) }
            }
            Expr::Cast(to, value) => {
                let types = match to {
                    CastType::Integer => JsonTypes::INTEGER,
                    CastType::Real | CastType::Numeric => JsonTypes::NUMBER,
                    CastType::Text => JsonTypes::STRING,
                };
                types.null_if(is_null(value))
            }
            Expr::Arrow(false, ..) => JsonTypes::STRING.or(JsonTypes::NULL),
            Expr::ScalarInner(asked, place) => {
                let members = query.inner.get(asked.number).map_or(&[][..], |inner| &inner.members);
                let outputs = members.iter().filter_map(|member| Some((member, member.outputs.get(*place)?)));
                let types = outputs.map(|(member, output)| self.output(member, &output.expr).as_value());
                types.fold(JsonTypes::NULL, JsonTypes::or)
            }
            Expr::Call(function, arguments) => self.call(query, *function, arguments),
            _ => JsonTypes::VALUE,
        }
    }

    /// The types of an aggregate's result. If all rows form one group (`has_rows` is false), the group may be empty.
    pub(crate) fn aggregate(&self, query: &Logical, call: &AggregateCall, has_rows: bool) -> JsonTypes {
        let argument = call.argument.as_ref().map_or(JsonTypes::INTEGER, |argument| self.value(query, argument));
        let may_be_empty = !has_rows || call.filter.is_some() || argument.has(JsonTypes::NULL);
        let is_integer = argument.within(JsonTypes::INTEGER.or(JsonTypes::NULL));
        match call.kind {
            AggregateKind::CountRows | AggregateKind::Count => JsonTypes::INTEGER,
            AggregateKind::Sum if is_integer => JsonTypes::INTEGER.null_if(may_be_empty),
            // A sum of infinite values, which texts can denote, is NULL.
            AggregateKind::Sum | AggregateKind::Avg => {
                JsonTypes::NUMBER.null_if(may_be_empty || !argument.within(JsonTypes::NUMBER.or(JsonTypes::NULL)))
            }
            AggregateKind::Total => JsonTypes::NUMBER.null_if(!argument.within(JsonTypes::NUMBER.or(JsonTypes::NULL))),
            AggregateKind::Min | AggregateKind::Max => argument.null_if(may_be_empty),
            AggregateKind::GroupConcat => JsonTypes::STRING.or(JsonTypes::NULL),
            AggregateKind::JsonArray | AggregateKind::JsonObject => JsonTypes::STRING,
        }
    }

    fn arithmetic(&self, query: &Logical, op: Arithmetic, a: &Expr, b: &Expr) -> JsonTypes {
        let (left, right) = (self.value(query, a), self.value(query, b));
        let both = left.or(right);
        let is_integer = both.within(JsonTypes::INTEGER.or(JsonTypes::NULL));
        let is_zero = !matches!(b, Expr::Literal(OwnedValue::Integer(1..)));
        let types = match op {
            Arithmetic::And | Arithmetic::Or | Arithmetic::ShiftLeft | Arithmetic::ShiftRight => JsonTypes::INTEGER,
            Arithmetic::Divide if is_integer && !self.divides_wholly(query, a, b) => JsonTypes::NUMBER,
            _ if is_integer => JsonTypes::INTEGER,
            // The difference of infinite numbers, and infinity times zero, are NULL.
            Arithmetic::Add | Arithmetic::Subtract | Arithmetic::Multiply => JsonTypes::NUMBER
                .null_if(!(is_finite(a) && is_finite(b) && both.within(JsonTypes::NUMBER.or(JsonTypes::NULL)))),
            Arithmetic::Divide | Arithmetic::Remainder => JsonTypes::NUMBER.null_if(!is_finite(a)),
        };
        let divides = matches!(op, Arithmetic::Divide | Arithmetic::Remainder);
        types.null_if(both.has(JsonTypes::NULL) || (divides && is_zero))
    }

    /// Whether the quotient of two integers is an integer. A field's integer may be a real, 5.0, and so is an integer outside 64 bits. A
    /// quotient of reals may have a fraction: 5.0 / 2, and -2 / (-3 - 9223372036854775807). A real from 2^63 on, divided by up to
    /// 2^10, is at least 2^53, and so has none.
    fn divides_wholly(&self, query: &Logical, a: &Expr, b: &Expr) -> bool {
        const DIVISOR_MAX: i64 = 1 << 10;
        let is_few = matches!(b, Expr::Literal(OwnedValue::Integer(1..=DIVISOR_MAX)));
        (is_few && self.is_of_integers(query, a)) || (self.is_no_real(query, a) && self.is_no_real(query, b))
    }

    /// Whether an integer is computed from integers that are no reals, so that it is a real only outside 64 bits.
    fn is_of_integers(&self, query: &Logical, expr: &Expr) -> bool {
        match expr {
            Expr::Arithmetic(_, a, b) => self.is_of_integers(query, a) && self.is_of_integers(query, b),
            _ => self.is_no_real(query, expr),
        }
    }

    /// Whether an expression whose value is an integer or NULL is surely no real.
    fn is_no_real(&self, query: &Logical, expr: &Expr) -> bool {
        match expr {
            Expr::Literal(_) | Expr::Parameter(_) | Expr::Cast(CastType::Integer, _) => true,
            Expr::Column(column) => {
                let column = &query.columns[*column];
                let table = &query.tables[column.table];
                table.collection().is_some() && table.info(self.catalog).key.field == column.name
            }
            Expr::Aggregate(number) => {
                matches!(query.aggregates[*number].kind, AggregateKind::CountRows | AggregateKind::Count)
            }
            Expr::Call(Function::Length | Function::OctetLength | Function::Instr | Function::Unicode, _) => true,
            _ => false,
        }
    }

    fn call(&self, query: &Logical, function: Function, arguments: &[Expr]) -> JsonTypes {
        let types: Vec<JsonTypes> = arguments.iter().map(|argument| self.value(query, argument)).collect();
        let all = types.iter().copied().fold(JsonTypes::NONE, JsonTypes::or);
        let (any_null, first) = (all.has(JsonTypes::NULL), types.first().copied().unwrap_or(JsonTypes::NULL));
        let is_integer = first.within(JsonTypes::INTEGER.or(JsonTypes::NULL));
        let number = if is_integer { JsonTypes::INTEGER } else { JsonTypes::NUMBER };
        match function {
            Function::Char | Function::Concat | Function::Hex | Function::Quote | Function::TypeOf => JsonTypes::STRING,
            Function::ConcatWith | Function::Printf => JsonTypes::STRING.null_if(first.has(JsonTypes::NULL)),
            Function::Lower
            | Function::Upper
            | Function::Trim
            | Function::Ltrim
            | Function::Rtrim
            | Function::Replace
            | Function::Substr => JsonTypes::STRING.null_if(any_null),
            Function::Instr | Function::Length | Function::OctetLength => JsonTypes::INTEGER.null_if(any_null),
            Function::Unicode => JsonTypes::INTEGER.or(JsonTypes::NULL),
            Function::Abs => number.null_if(any_null),
            Function::Sign => JsonTypes::INTEGER.null_if(!first.within(JsonTypes::NUMBER)),
            Function::Round => JsonTypes::NUMBER.null_if(any_null),
            Function::Max | Function::Min => all,
            Function::NullIf => first.or(JsonTypes::NULL),
            Function::Date(DateFunction::JulianDay) => JsonTypes::NUMBER.or(JsonTypes::NULL),
            Function::Date(DateFunction::UnixEpoch) if arguments.len() < 2 => JsonTypes::INTEGER.or(JsonTypes::NULL),
            Function::Date(DateFunction::UnixEpoch) => JsonTypes::NUMBER.or(JsonTypes::NULL),
            Function::Date(_) => JsonTypes::STRING.or(JsonTypes::NULL),
            Function::Mathematics(Mathematics::Pi) => JsonTypes::NUMBER,
            Function::Mathematics(Mathematics::Ceil | Mathematics::Floor | Mathematics::Trunc) => {
                number.null_if(!first.within(JsonTypes::NUMBER))
            }
            Function::Mathematics(_) => JsonTypes::NUMBER.or(JsonTypes::NULL),
            Function::Json(JsonFunction::ArrayLength | JsonFunction::Valid) => JsonTypes::INTEGER.or(JsonTypes::NULL),
            Function::Json(
                JsonFunction::Array
                | JsonFunction::Minify
                | JsonFunction::Object
                | JsonFunction::Patch
                | JsonFunction::Put(_)
                | JsonFunction::Quote
                | JsonFunction::Remove
                | JsonFunction::Type,
            ) => JsonTypes::STRING.or(JsonTypes::NULL),
            Function::Json(_) => JsonTypes::VALUE,
        }
    }
}

/// Whether a number is certainly finite, as stored ones and parameters are.
fn is_finite(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(OwnedValue::Real(real)) => real.is_finite(),
        Expr::Literal(_) | Expr::Column(_) | Expr::Parameter(_) => true,
        _ => false,
    }
}
