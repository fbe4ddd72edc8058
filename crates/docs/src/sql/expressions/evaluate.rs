//! Evaluates expressions on a row, with SQLite's semantics.

use std::cmp::Ordering;
use std::rc::Rc;

use super::expr::{Affinity, Arithmetic, CastType, Comparison, Expr};
use super::json_calls;
use super::row::{Fixed, Scope};
use crate::sql::functions::{Function, JsonFunction, pattern, scalar};
use crate::sql::limits::{Fault, PATTERN_BYTES_MAX};
use crate::sql::rows::{Relation, relation};
use crate::sql::values::json::{self, Step};
use crate::sql::values::value::{self, compare};
use crate::sql::values::{FieldValue, IntegerText, OuterValue, RowArena, Value, Workspace, number};

impl Expr {
    /// The same as [`Self::evaluate`], inlined for columns and parameters.
    #[inline(always)]
    pub(crate) fn operand<'a>(&'a self, scope: &Scope<'a>) -> Result<Value<'a>, Fault> {
        match self {
            Expr::Column(column) => scope.value(*column),
            Expr::Parameter(slot) => Ok(scope.fixed.parameters[*slot]),
            other => other.evaluate(scope),
        }
    }

    /// The value of an expression that is constant during the execution.
    pub(crate) fn evaluate_known<'a>(&'a self, fixed: &Fixed<'a>) -> Result<Value<'a>, Fault> {
        match self {
            Expr::Literal(literal) => Ok(literal.value()),
            Expr::Parameter(slot) => Ok(fixed.parameters[*slot]),
            Expr::Constant(slot) => fixed.constants[*slot],
            Expr::Outer(place) => Ok(fixed.outer[*place].value),
            _ => Err(Fault::Plan),
        }
    }

    /// Its value on the row in scope.
    pub(crate) fn evaluate<'a>(&'a self, scope: &Scope<'a>) -> Result<Value<'a>, Fault> {
        match self {
            Expr::Literal(literal) => Ok(literal.value()),
            Expr::Parameter(slot) => Ok(scope.fixed.parameters[*slot]),
            Expr::Constant(slot) => scope.fixed.constants[*slot],
            Expr::Column(column) => scope.value(*column),
            Expr::Compare(op, affinity, a, b) => {
                let (a, b) = (a.evaluate(scope)?, b.evaluate(scope)?);
                compared(*op, *affinity, a, b, scope)
            }
            other => other.evaluate_rest(scope),
        }
    }

    /// A field as it is stored; any other expression as its value.
    #[inline]
    pub(crate) fn field<'a>(&'a self, scope: &Scope<'a>) -> Result<FieldValue<'a>, Fault> {
        match self {
            Expr::Column(column) => scope.cell(*column),
            Expr::Path(column, steps) => {
                Ok(scope.stored_path(*column, steps)?.map_or(FieldValue::Value(Value::Null), FieldValue::Json))
            }
            Expr::Outer(place) => Ok(scope.fixed.outer[*place].field),
            Expr::Call(Function::Json(JsonFunction::AsStored), arguments) => json_calls::stored(&arguments[0], scope),
            other => other.evaluate(scope).map(FieldValue::Value),
        }
    }

    fn evaluate_rest<'a>(&'a self, scope: &Scope<'a>) -> Result<Value<'a>, Fault> {
        let meter = scope.fixed.meter;
        meter.tick(1)?;
        match self {
            Expr::Path(column, steps) => path(*column, steps, scope),
            Expr::Aggregate(slot) | Expr::GroupKey(slot) => {
                let values =
                    if matches!(self, Expr::Aggregate(_)) { scope.fixed.aggregates } else { scope.fixed.group };
                Ok(values[*slot])
            }
            Expr::Not(e) => Ok(Value::of_truth(truth(e, scope)?.map(|truth| !truth))),
            Expr::BitNot(e) => Ok(match e.evaluate(scope)? {
                Value::Null => Value::Null,
                value => {
                    meter.weigh(value)?;
                    Value::Integer(!value.to_integer())
                }
            }),
            Expr::Arithmetic(op, a, b) => {
                let (a, b) = (a.evaluate(scope)?, b.evaluate(scope)?);
                meter.weigh(a)?;
                meter.weigh(b)?;
                Ok(arithmetic(*op, a, b))
            }
            Expr::Concat(a, b) => concat(a.evaluate(scope)?, b.evaluate(scope)?, scope),
            Expr::Is(same, affinity, a, b) => {
                let (a, b) = converted(*affinity, a.evaluate(scope)?, b.evaluate(scope)?, scope)?;
                weigh_both(a, b, scope)?;
                Ok(Value::of_truth(Some((compare(a, b) == Ordering::Equal) == *same)))
            }
            Expr::IsNull(e) => Ok(Value::of_truth(Some(e.evaluate(scope)?.is_null()))),
            Expr::NotNull(e) => Ok(Value::of_truth(Some(!e.evaluate(scope)?.is_null()))),
            Expr::IsTruth(e, wanted, then) => Ok(Value::of_truth(Some((truth(e, scope)? == Some(*wanted)) == *then))),
            Expr::And(list) => connect(list, false, scope),
            Expr::Or(list) => connect(list, true, scope),
            Expr::In(e, affinity, list) => within(e.evaluate(scope)?, *affinity, list, scope),
            Expr::Outer(place) => Ok(scope.fixed.outer[*place].value),
            Expr::InInner(values, asked) if asked.outer.is_empty() => {
                within_inner(values, scope.relation(asked.number)?, scope)
            }
            Expr::InInner(values, asked) => within_inner(values, &*ask(asked.number, &asked.outer, scope)?, scope),
            Expr::ScalarInner(asked, place) if asked.outer.is_empty() => {
                first_value(scope.relation(asked.number)?, *place, scope.workspace())
            }
            Expr::ScalarInner(asked, place) => {
                let relation = ask(asked.number, &asked.outer, scope)?;
                // The cached rows may be dropped before the value is used.
                Ok(match first_value(&relation, *place, scope.workspace())? {
                    Value::Null => Value::Null,
                    Value::Integer(integer) => Value::Integer(integer),
                    Value::Real(real) => Value::Real(real),
                    Value::Text(text) => Value::Text(scope.workspace().copy(text)?),
                })
            }
            Expr::ExistsInner(asked) if asked.outer.is_empty() => {
                Ok(Value::of_truth(Some(scope.relation(asked.number)?.len() > 0)))
            }
            Expr::ExistsInner(asked) => Ok(Value::of_truth(Some(ask(asked.number, &asked.outer, scope)?.len() > 0))),
            Expr::Between(e, a, low, b, high) => {
                let value = e.evaluate(scope)?;
                let from = compared(Comparison::GreaterOrEqual, *a, value, low.evaluate(scope)?, scope)?.truth();
                let to = compared(Comparison::LessOrEqual, *b, value, high.evaluate(scope)?, scope)?.truth();
                Ok(Value::of_truth(and(from, to)))
            }
            Expr::Like(text, wanted, escape) => like(text, wanted, escape.as_deref(), scope),
            Expr::Glob(text, wanted) => {
                let (text, wanted) = (text.evaluate(scope)?, wanted.evaluate(scope)?);
                let workspace = scope.workspace();
                Ok(match (text.to_text(workspace)?, wanted.to_text(workspace)?) {
                    (_, Some(wanted)) if wanted.len() > PATTERN_BYTES_MAX => return Err(Fault::PatternTooLong),
                    (Some(text), Some(wanted)) => Value::of_truth(Some(pattern::glob(wanted, text, meter)?)),
                    _ => Value::Null,
                })
            }
            Expr::Case(arms, last) => {
                for (when, then) in arms {
                    if when.passes(scope)? {
                        return then.evaluate(scope);
                    }
                }
                last.evaluate(scope)
            }
            Expr::CaseOf(operand, arms, last) => Expr::arm_of(operand, arms, last, scope)?.evaluate(scope),
            Expr::Coalesce(list) => {
                for e in list {
                    let value = e.evaluate(scope)?;
                    if !value.is_null() {
                        return Ok(value);
                    }
                }
                Ok(Value::Null)
            }
            Expr::Cast(to, e) => cast(*to, e.evaluate(scope)?, scope),
            Expr::Arrow(text, a, b) => json::arrow(a.evaluate(scope)?, b.evaluate(scope)?, *text, scope.workspace()),
            Expr::Call(Function::Json(function), arguments) => {
                json_calls::call(*function, arguments, scope).map(|(value, _)| value)
            }
            Expr::Call(function, arguments) => {
                let mut values = scope.workspace().list(arguments.len())?;
                for argument in arguments {
                    values.push(argument.evaluate(scope)?);
                }
                scalar::call(*function, &values, scope.workspace(), scope.fixed.now_ms)
            }
            _ => self.evaluate(scope),
        }
    }

    /// Whether a row passes it as a filter.
    #[inline]
    pub(crate) fn passes<'a>(&'a self, scope: &Scope<'a>) -> Result<bool, Fault> {
        if let Expr::Compare(op, Affinity::None, a, b) = self {
            let (a, b) = (a.operand(scope)?, b.operand(scope)?);
            weigh_both(a, b, scope)?;
            return Ok(!a.is_null() && !b.is_null() && op.holds(compare(a, b)));
        }
        self.decides(scope, true)
    }

    /// Whether the expression certainly has the truth value `wanted`. Terms after the deciding one are not evaluated, as in
    /// SQLite's WHERE. In contrast, the value of AND and OR needs all terms, so an error in any term is an error of the whole.
    fn decides<'a>(&'a self, scope: &Scope<'a>, wanted: bool) -> Result<bool, Fault> {
        let (list, all) = match self {
            Expr::Not(inner) => return inner.decides(scope, !wanted),
            Expr::And(list) => (list, wanted),
            Expr::Or(list) => (list, !wanted),
            other => return Ok(truth(other, scope)? == Some(wanted)),
        };
        scope.fixed.meter.tick(list.len() as u64)?;
        for term in list {
            if term.decides(scope, wanted)? != all {
                return Ok(!all);
            }
        }
        Ok(all)
    }

    /// The arm of `CASE operand WHEN …` that is chosen.
    pub(crate) fn arm_of<'a>(
        operand: &'a Expr,
        arms: &'a [(Affinity, Expr, Expr)],
        last: &'a Expr,
        scope: &Scope<'a>,
    ) -> Result<&'a Expr, Fault> {
        let value = operand.evaluate(scope)?;
        for (affinity, when, then) in arms {
            let when = when.evaluate(scope)?;
            scope.fixed.meter.tick(1)?;
            if compared(Comparison::Equal, *affinity, value, when, scope)?.truth() == Some(true) {
                return Ok(then);
            }
        }
        Ok(last)
    }
}

fn path<'a>(column: usize, steps: &'a [Step], scope: &Scope<'a>) -> Result<Value<'a>, Fault> {
    match scope.stored_path(column, steps)? {
        Some(json) => value::of_json(json, scope.workspace()),
        None => Ok(Value::Null),
    }
}

/// The truth of an expression's value.
fn truth<'a>(e: &'a Expr, scope: &Scope<'a>) -> Result<Option<bool>, Fault> {
    let value = e.evaluate(scope)?;
    scope.fixed.meter.weigh(value)?;
    Ok(value.truth())
}

/// Counts a comparison: of two texts, up to the length of the shorter.
#[inline]
fn weigh_both(a: Value<'_>, b: Value<'_>, scope: &Scope<'_>) -> Result<(), Fault> {
    match (a, b) {
        (Value::Text(a), Value::Text(b)) => scope.fixed.meter.tick_bytes(a.len().min(b.len())),
        _ => Ok(()),
    }
}

fn compared<'a>(
    op: Comparison,
    affinity: Affinity,
    a: Value<'a>,
    b: Value<'a>,
    scope: &Scope<'a>,
) -> Result<Value<'a>, Fault> {
    let (a, b) = if affinity == Affinity::None { (a, b) } else { converted(affinity, a, b, scope)? };
    if a.is_null() || b.is_null() {
        return Ok(Value::Null);
    }
    weigh_both(a, b, scope)?;
    Ok(Value::Integer(i64::from(op.holds(compare(a, b)))))
}

fn converted<'a>(
    affinity: Affinity,
    a: Value<'a>,
    b: Value<'a>,
    scope: &Scope<'a>,
) -> Result<(Value<'a>, Value<'a>), Fault> {
    let text = |value: Value<'a>| Ok(value.to_text(scope.workspace())?.map_or(Value::Null, Value::Text));
    match affinity {
        Affinity::None => Ok((a, b)),
        Affinity::Numeric | Affinity::Real => {
            scope.fixed.meter.weigh(a)?;
            scope.fixed.meter.weigh(b)?;
            Ok((a.with_numeric_affinity(), b.with_numeric_affinity()))
        }
        Affinity::Text => Ok((text(a)?, text(b)?)),
    }
}

fn and(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

/// The value of AND (`stop` false) or OR (`stop` true) over a list.
fn connect<'a>(list: &'a [Expr], stop: bool, scope: &Scope<'a>) -> Result<Value<'a>, Fault> {
    let (mut stopped, mut unknown) = (false, false);
    scope.fixed.meter.tick(list.len() as u64)?;
    for e in list {
        match truth(e, scope)? {
            Some(truth) => stopped |= truth == stop,
            None => unknown = true,
        }
    }
    Ok(match (stopped, unknown) {
        (true, _) => Value::Integer(i64::from(stop)),
        (false, true) => Value::Null,
        (false, false) => Value::Integer(i64::from(!stop)),
    })
}

fn within<'a>(value: Value<'a>, affinity: Affinity, list: &'a [Expr], scope: &Scope<'a>) -> Result<Value<'a>, Fault> {
    let mut unknown = false;
    scope.fixed.meter.tick(list.len() as u64)?;
    for e in list {
        match compared(Comparison::Equal, affinity, value, e.evaluate(scope)?, scope)?.truth() {
            Some(true) => return Ok(Value::Integer(1)),
            Some(false) => {}
            None => unknown = true,
        }
    }
    Ok(if unknown { Value::Null } else { Value::Integer(0) })
}

/// A number, or text that is one, as a real.
fn real(value: Value<'_>) -> Value<'_> {
    match value.with_numeric_affinity() {
        Value::Integer(integer) => Value::Real(integer as f64),
        other => other,
    }
}

/// The rows of a correlated query for the row in scope.
pub(crate) fn ask<'a>(number: usize, outer: &'a [Expr], scope: &Scope<'a>) -> Result<Rc<Relation>, Fault> {
    let mut values_of_outer = scope.workspace().list(outer.len())?;
    for expr in outer {
        let field = expr.field(scope)?;
        let value = field.decode(scope.workspace())?;
        values_of_outer.push(OuterValue { field, value });
    }
    scope.fixed.relations.ok_or(Fault::Plan)?.ask(number, &values_of_outer)
}

fn first_value<'a>(relation: &'a Relation, place: usize, workspace: Workspace<'a>) -> Result<Value<'a>, Fault> {
    if relation.len() == 0 { Ok(Value::Null) } else { relation::of_row(relation.row(0), place, workspace) }
}

fn within_inner<'a>(
    values: &'a [(Affinity, Expr)],
    relation: &Relation,
    scope: &Scope<'a>,
) -> Result<Value<'a>, Fault> {
    let mut sought = scope.workspace().list(values.len())?;
    for (_, value) in values {
        sought.push(value.evaluate(scope)?);
    }
    if values.iter().all(|(affinity, _)| *affinity == Affinity::None) {
        return Ok(Value::of_truth(relation.contains(&sought, scope.fixed.meter)?));
    }
    // The hash cannot be used, because its keys are not converted by affinity.
    let (mut unknown, mut arena) = (false, RowArena::new(scope.fixed.meter));
    for row in 0..relation.len() {
        scope.fixed.meter.tick(values.len() as u64)?;
        match equals_row(&sought, values, relation.row(row), &scope.within(arena.next()))? {
            Some(true) => return Ok(Value::Integer(1)),
            Some(false) => {}
            None => unknown = true,
        }
    }
    Ok(if unknown { Value::Null } else { Value::Integer(0) })
}

/// Whether the values equal those of a row, each compared with its affinity.
fn equals_row<'a>(
    sought: &[Value<'a>],
    values: &[(Affinity, Expr)],
    row: &'a [u8],
    scope: &Scope<'a>,
) -> Result<Option<bool>, Fault> {
    let mut equal = Some(true);
    for (column, (value, (affinity, _))) in sought.iter().zip(values).enumerate() {
        let other = relation::of_row(row, column, scope.workspace())?;
        let (value, other) = if *affinity == Affinity::Real { (real(*value), real(other)) } else { (*value, other) };
        equal = and(equal, compared(Comparison::Equal, *affinity, value, other, scope)?.truth());
    }
    Ok(equal)
}

fn like<'a>(text: &'a Expr, wanted: &'a Expr, escape: Option<&'a Expr>, scope: &Scope<'a>) -> Result<Value<'a>, Fault> {
    let workspace = scope.workspace();
    let (text, wanted) = (text.evaluate(scope)?, wanted.evaluate(scope)?);
    let escape = match escape {
        None => None,
        Some(escape) => match escape.evaluate(scope)?.to_text(workspace)? {
            None => return Ok(Value::Null),
            Some(escape) => Some(escape),
        },
    };
    match (text.to_text(workspace)?, wanted.to_text(workspace)?) {
        (_, Some(wanted)) if wanted.len() > PATTERN_BYTES_MAX => Err(Fault::PatternTooLong),
        (Some(text), Some(wanted)) => {
            Ok(Value::of_truth(Some(pattern::like(wanted, text, escape, scope.fixed.meter)?)))
        }
        _ => Ok(Value::Null),
    }
}

fn concat<'a>(a: Value<'a>, b: Value<'a>, scope: &Scope<'a>) -> Result<Value<'a>, Fault> {
    let workspace = scope.workspace();
    let (Some(a), Some(b)) = (a.to_text(workspace)?, b.to_text(workspace)?) else { return Ok(Value::Null) };
    let mut joined = workspace.text_of(a.len() + b.len())?;
    joined.extend(a)?;
    joined.extend(b)?;
    Ok(joined.value())
}

fn cast<'a>(to: CastType, value: Value<'a>, scope: &Scope<'a>) -> Result<Value<'a>, Fault> {
    scope.fixed.meter.weigh(value)?;
    Ok(match (to, value) {
        (_, Value::Null) => Value::Null,
        (CastType::Integer, value) => Value::Integer(value.to_integer()),
        (CastType::Real, value) => Value::Real(value.to_real()),
        (CastType::Text, value) => value.to_text(scope.workspace())?.map_or(Value::Null, Value::Text),
        (CastType::Numeric, Value::Text(text)) => {
            let prefix = number::real_prefix(text);
            let (integer, kind) = number::integer_prefix(text);
            let truncated = number::real_to_integer(prefix.real);
            match () {
                () if !prefix.fraction && kind != IntegerText::Overflow => Value::Integer(integer),
                () if number::is_integer(prefix.real, truncated) => Value::Integer(truncated),
                () => Value::Real(prefix.real),
            }
        }
        (CastType::Numeric, number) => number,
    })
}

/// Integer arithmetic has an integer result if it fits, otherwise a real.
pub(crate) fn arithmetic<'a>(op: Arithmetic, a: Value<'a>, b: Value<'a>) -> Value<'a> {
    if a.is_null() || b.is_null() {
        return Value::Null;
    }
    if matches!(op, Arithmetic::And | Arithmetic::Or | Arithmetic::ShiftLeft | Arithmetic::ShiftRight) {
        return bits(op, a.to_integer(), b.to_integer());
    }
    let (left, right) = (a.to_number(), b.to_number());
    if let (Value::Integer(left), Value::Integer(right)) = (left, right) {
        let exact = match op {
            Arithmetic::Add => left.checked_add(right),
            Arithmetic::Subtract => left.checked_sub(right),
            Arithmetic::Multiply => left.checked_mul(right),
            _ if right == 0 => return Value::Null,
            Arithmetic::Divide => left.checked_div(right),
            _ => Some(left.wrapping_rem(right)),
        };
        if let Some(exact) = exact {
            return Value::Integer(exact);
        }
    }
    let (left, right) = (left.to_real(), right.to_real());
    Value::real(match op {
        Arithmetic::Add => left + right,
        Arithmetic::Subtract => left - right,
        Arithmetic::Multiply => left * right,
        Arithmetic::Divide if right == 0.0 => return Value::Null,
        Arithmetic::Divide => left / right,
        _ => match (a.to_integer(), b.to_integer()) {
            (_, 0) => return Value::Null,
            (left, right) => left.wrapping_rem(right) as f64,
        },
    })
}

fn bits<'a>(op: Arithmetic, a: i64, b: i64) -> Value<'a> {
    Value::Integer(match op {
        Arithmetic::And => a & b,
        Arithmetic::Or => a | b,
        _ => {
            let left = (op == Arithmetic::ShiftLeft) == (b >= 0);
            match (b.unsigned_abs(), left) {
                (64.., true) => 0,
                (64.., false) => a >> 63,
                (by, true) => ((a as u64) << by) as i64,
                (by, false) => a >> by,
            }
        }
    })
}
