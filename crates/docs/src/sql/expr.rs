//! Expressions: resolved, compiled once, walked for each row.
//!
//! The tree is what resolving a query's text gives and what a plan specialises; evaluating it never changes it. A
//! column is a number; where its value comes from in a given plan tells [`super::row::Source`].

use std::cmp::Ordering;

use bumpalo::collections::Vec as BumpVec;

use super::error::Fault;
use super::functions::{self, Function};
use super::json::{self, Step};
use super::json_calls;
use super::pattern;
use super::relation::{self, Relation};
use super::row::{Fixed, Scope};
use super::value::{self, TEXT_BYTES_MAX, Value, compare};

/// Longest pattern of LIKE and GLOB.
const PATTERN_BYTES_MAX: usize = 50_000;

/// A literal, owned.
#[derive(Clone, Debug)]
pub(crate) enum Literal {
    Null,
    Integer(i64),
    Real(f64),
    Text(Box<[u8]>),
}

impl PartialEq for Literal {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Literal::Null, Literal::Null) => true,
            (Literal::Integer(a), Literal::Integer(b)) => a == b,
            (Literal::Real(a), Literal::Real(b)) => a.to_bits() == b.to_bits(),
            (Literal::Text(a), Literal::Text(b)) => a == b,
            _ => false,
        }
    }
}

impl Literal {
    #[inline]
    pub(crate) fn value(&self) -> Value<'_> {
        match self {
            Literal::Null => Value::Null,
            Literal::Integer(integer) => Value::Integer(*integer),
            Literal::Real(real) => Value::Real(*real),
            Literal::Text(text) => Value::Text(text),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    And,
    Or,
    ShiftLeft,
    ShiftRight,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    #[inline]
    pub(crate) fn holds(self, order: Ordering) -> bool {
        match self {
            Comparison::Equal => order == Ordering::Equal,
            Comparison::NotEqual => order != Ordering::Equal,
            Comparison::Less => order == Ordering::Less,
            Comparison::LessOrEqual => order != Ordering::Greater,
            Comparison::Greater => order == Ordering::Greater,
            Comparison::GreaterOrEqual => order != Ordering::Less,
        }
    }

    /// The same with its sides exchanged.
    pub(crate) fn mirrored(self) -> Self {
        match self {
            Comparison::Less => Comparison::Greater,
            Comparison::LessOrEqual => Comparison::GreaterOrEqual,
            Comparison::Greater => Comparison::Less,
            Comparison::GreaterOrEqual => Comparison::LessOrEqual,
            same => same,
        }
    }
}

/// What a CAST beside a comparison does to the other side. Fields and all else convert nothing (rule 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Affinity {
    None,
    Numeric,
    /// As `Numeric`, but that IN with an inner query makes reals of both sides.
    Real,
    Text,
}

/// The target of a CAST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CastType {
    Integer,
    Real,
    Text,
    Numeric,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expr {
    Literal(Literal),
    /// A parameter by its slot.
    Parameter(usize),
    /// A value computed once for an execution.
    Constant(usize),
    /// A field of a collection, by its number in the query.
    Column(usize),
    /// What lies inside a field.
    Path(usize, Vec<Step>),
    /// A finished aggregate, by its number.
    Aggregate(usize),
    /// A value of the group's key, by its place in GROUP BY.
    GroupKey(usize),
    Not(Box<Expr>),
    BitNot(Box<Expr>),
    Arithmetic(Arithmetic, Box<Expr>, Box<Expr>),
    Concat(Box<Expr>, Box<Expr>),
    Compare(Comparison, Affinity, Box<Expr>, Box<Expr>),
    /// IS and IS NOT: NULL equals NULL.
    Is(bool, Affinity, Box<Expr>, Box<Expr>),
    IsNull(Box<Expr>),
    NotNull(Box<Expr>),
    /// `IS [NOT] TRUE` and `FALSE`: the value wanted, and what comes out when it is that.
    IsTruth(Box<Expr>, bool, bool),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    In(Box<Expr>, Affinity, Vec<Expr>),
    /// Whether the rows of an inner query, by its number, have one that equals these values.
    InInner(Vec<(Affinity, Expr)>, usize),
    /// The first value of an inner query's first row.
    ScalarInner(usize),
    ExistsInner(usize),
    Between(Box<Expr>, Affinity, Box<Expr>, Affinity, Box<Expr>),
    Like(Box<Expr>, Box<Expr>, Option<Box<Expr>>),
    Glob(Box<Expr>, Box<Expr>),
    /// Conditions with their results, then ELSE.
    Case(Vec<(Expr, Expr)>, Box<Expr>),
    /// The same with an operand that each condition is compared to.
    CaseOf(Box<Expr>, Vec<(Affinity, Expr, Expr)>, Box<Expr>),
    Coalesce(Vec<Expr>),
    Cast(CastType, Box<Expr>),
    Arrow(bool, Box<Expr>, Box<Expr>),
    Call(Function, Vec<Expr>),
}

impl Expr {
    pub(crate) fn integer(integer: i64) -> Expr {
        Expr::Literal(Literal::Integer(integer))
    }

    /// The affinity it brings to a comparison.
    pub(crate) fn affinity(&self) -> Affinity {
        match self {
            Expr::Cast(CastType::Text, _) => Affinity::Text,
            Expr::Cast(CastType::Real, _) => Affinity::Real,
            Expr::Cast(..) => Affinity::Numeric,
            _ => Affinity::None,
        }
    }

    /// Its parts, in the order written.
    pub(crate) fn children(&self) -> Vec<&Expr> {
        match self {
            Expr::Literal(_)
            | Expr::Parameter(_)
            | Expr::Constant(_)
            | Expr::Column(_)
            | Expr::Path(..)
            | Expr::Aggregate(_)
            | Expr::ScalarInner(_)
            | Expr::ExistsInner(_)
            | Expr::GroupKey(_) => Vec::new(),
            Expr::InInner(values, _) => values.iter().map(|(_, value)| value).collect(),
            Expr::Not(e) | Expr::BitNot(e) | Expr::IsNull(e) | Expr::NotNull(e) | Expr::IsTruth(e, ..) => vec![e],
            Expr::Cast(_, e) => vec![e],
            Expr::Arithmetic(_, a, b) | Expr::Concat(a, b) | Expr::Compare(_, _, a, b) | Expr::Is(_, _, a, b) => {
                vec![a, b]
            }
            Expr::Arrow(_, a, b) | Expr::Glob(a, b) => vec![a, b],
            Expr::And(list) | Expr::Or(list) | Expr::Coalesce(list) | Expr::Call(_, list) => list.iter().collect(),
            Expr::In(e, _, list) => std::iter::once(&**e).chain(list).collect(),
            Expr::Between(e, _, low, _, high) => vec![e, low, high],
            Expr::Like(a, b, escape) => [&**a, &**b].into_iter().chain(escape.as_deref()).collect(),
            Expr::Case(arms, last) => {
                arms.iter().flat_map(|(when, then)| [when, then]).chain(std::iter::once(&**last)).collect()
            }
            Expr::CaseOf(operand, arms, last) => std::iter::once(&**operand)
                .chain(arms.iter().flat_map(|(_, when, then)| [when, then]))
                .chain(std::iter::once(&**last))
                .collect(),
        }
    }

    /// The same expression with each part changed by `change`.
    pub(crate) fn map_children(self, change: &mut dyn FnMut(Expr) -> Expr) -> Expr {
        let mut boxed = |e: Box<Expr>| Box::new(change(*e));
        match self {
            Expr::Not(e) => Expr::Not(boxed(e)),
            Expr::BitNot(e) => Expr::BitNot(boxed(e)),
            Expr::IsNull(e) => Expr::IsNull(boxed(e)),
            Expr::NotNull(e) => Expr::NotNull(boxed(e)),
            Expr::IsTruth(e, wanted, then) => Expr::IsTruth(boxed(e), wanted, then),
            Expr::Cast(to, e) => Expr::Cast(to, boxed(e)),
            Expr::Arithmetic(op, a, b) => Expr::Arithmetic(op, boxed(a), boxed(b)),
            Expr::Concat(a, b) => Expr::Concat(boxed(a), boxed(b)),
            Expr::Compare(op, affinity, a, b) => Expr::Compare(op, affinity, boxed(a), boxed(b)),
            Expr::Is(same, affinity, a, b) => Expr::Is(same, affinity, boxed(a), boxed(b)),
            Expr::Arrow(text, a, b) => Expr::Arrow(text, boxed(a), boxed(b)),
            Expr::Glob(a, b) => Expr::Glob(boxed(a), boxed(b)),
            Expr::And(list) => Expr::And(list.into_iter().map(change).collect()),
            Expr::Or(list) => Expr::Or(list.into_iter().map(change).collect()),
            Expr::Coalesce(list) => Expr::Coalesce(list.into_iter().map(change).collect()),
            Expr::Call(function, list) => Expr::Call(function, list.into_iter().map(change).collect()),
            Expr::In(e, affinity, list) => {
                let e = boxed(e);
                Expr::In(e, affinity, list.into_iter().map(change).collect())
            }
            Expr::InInner(values, number) => {
                Expr::InInner(values.into_iter().map(|(affinity, value)| (affinity, change(value))).collect(), number)
            }
            Expr::Between(e, a, low, b, high) => Expr::Between(boxed(e), a, boxed(low), b, boxed(high)),
            Expr::Like(a, b, escape) => Expr::Like(boxed(a), boxed(b), escape.map(boxed)),
            Expr::Case(arms, last) => {
                let last = boxed(last);
                Expr::Case(arms.into_iter().map(|(when, then)| (change(when), change(then))).collect(), last)
            }
            Expr::CaseOf(operand, arms, last) => {
                let (operand, last) = (boxed(operand), boxed(last));
                let arms = arms.into_iter().map(|(a, when, then)| (a, change(when), change(then))).collect();
                Expr::CaseOf(operand, arms, last)
            }
            leaf => leaf,
        }
    }

    /// Whether it asks an inner query.
    pub(crate) fn has_inner(&self) -> bool {
        let mut has = false;
        self.walk(&mut |part| has |= matches!(part, Expr::InInner(..) | Expr::ScalarInner(_) | Expr::ExistsInner(_)));
        has
    }

    /// Calls `visit` on it and all its parts.
    pub(crate) fn walk(&self, visit: &mut dyn FnMut(&Expr)) {
        visit(self);
        for child in self.children() {
            child.walk(visit);
        }
    }

    /// The same as [`Self::evaluate`], where most often a column or a value known ahead stands: these without a call.
    #[inline(always)]
    pub(crate) fn operand<'a>(&'a self, scope: &Scope<'a>) -> Result<Value<'a>, Fault> {
        match self {
            Expr::Column(column) => scope.value(*column),
            Expr::Parameter(slot) => Ok(scope.fixed.parameters[*slot]),
            other => other.evaluate(scope),
        }
    }

    /// The value of an expression that is known before any row.
    pub(crate) fn evaluate_known<'a>(&'a self, fixed: &Fixed<'a>) -> Result<Value<'a>, Fault> {
        match self {
            Expr::Literal(literal) => Ok(literal.value()),
            Expr::Parameter(slot) => Ok(fixed.parameters[*slot]),
            Expr::Constant(slot) => fixed.constants[*slot],
            _ => Err(Fault::Damaged("a value known ahead")),
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
                Ok(compared(*op, *affinity, a, b, scope))
            }
            other => other.evaluate_rest(scope),
        }
    }

    fn evaluate_rest<'a>(&'a self, scope: &Scope<'a>) -> Result<Value<'a>, Fault> {
        match self {
            Expr::Path(column, steps) => path(*column, steps, scope),
            Expr::Aggregate(slot) | Expr::GroupKey(slot) => {
                let values =
                    if matches!(self, Expr::Aggregate(_)) { scope.fixed.aggregates } else { scope.fixed.group };
                Ok(values[*slot])
            }
            Expr::Not(e) => Ok(Value::of_truth(e.evaluate(scope)?.truth().map(|truth| !truth))),
            Expr::BitNot(e) => Ok(match e.evaluate(scope)? {
                Value::Null => Value::Null,
                value => Value::Integer(!value.to_integer()),
            }),
            Expr::Arithmetic(op, a, b) => Ok(arithmetic(*op, a.evaluate(scope)?, b.evaluate(scope)?)),
            Expr::Concat(a, b) => concat(a.evaluate(scope)?, b.evaluate(scope)?, scope),
            Expr::Is(same, affinity, a, b) => {
                let (a, b) = converted(*affinity, a.evaluate(scope)?, b.evaluate(scope)?, scope);
                Ok(Value::of_truth(Some((compare(a, b) == Ordering::Equal) == *same)))
            }
            Expr::IsNull(e) => Ok(Value::of_truth(Some(e.evaluate(scope)?.is_null()))),
            Expr::NotNull(e) => Ok(Value::of_truth(Some(!e.evaluate(scope)?.is_null()))),
            Expr::IsTruth(e, wanted, then) => {
                Ok(Value::of_truth(Some((e.evaluate(scope)?.truth() == Some(*wanted)) == *then)))
            }
            Expr::And(list) => connect(list, false, scope),
            Expr::Or(list) => connect(list, true, scope),
            Expr::In(e, affinity, list) => within(e.evaluate(scope)?, *affinity, list, scope),
            Expr::InInner(values, number) => within_inner(values, scope.relation(*number)?, scope),
            Expr::ScalarInner(number) => match scope.relation(*number)? {
                relation if relation.len() == 0 => Ok(Value::Null),
                relation => relation::of_row(relation.row(0), 0, scope.arena),
            },
            Expr::ExistsInner(number) => Ok(Value::of_truth(Some(scope.relation(*number)?.len() > 0))),
            Expr::Between(e, a, low, b, high) => {
                let value = e.evaluate(scope)?;
                let from = compared(Comparison::GreaterOrEqual, *a, value, low.evaluate(scope)?, scope).truth();
                let to = compared(Comparison::LessOrEqual, *b, value, high.evaluate(scope)?, scope).truth();
                Ok(Value::of_truth(and(from, to)))
            }
            Expr::Like(text, wanted, escape) => like(text, wanted, escape.as_deref(), scope),
            Expr::Glob(text, wanted) => {
                let (text, wanted) = (text.evaluate(scope)?, wanted.evaluate(scope)?);
                Ok(match (text.to_text(scope.arena), wanted.to_text(scope.arena)) {
                    (_, Some(wanted)) if wanted.len() > PATTERN_BYTES_MAX => return Err(Fault::TextTooLong),
                    (Some(text), Some(wanted)) => Value::of_truth(Some(pattern::glob(wanted, text))),
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
            Expr::CaseOf(operand, arms, last) => arm_of(operand, arms, last, scope)?.evaluate(scope),
            Expr::Coalesce(list) => {
                for e in list {
                    let value = e.evaluate(scope)?;
                    if !value.is_null() {
                        return Ok(value);
                    }
                }
                Ok(Value::Null)
            }
            Expr::Cast(to, e) => Ok(cast(*to, e.evaluate(scope)?, scope)),
            Expr::Arrow(text, a, b) => json::arrow(a.evaluate(scope)?, b.evaluate(scope)?, *text, scope.arena),
            Expr::Call(Function::Json(function), arguments) => {
                json_calls::call(*function, arguments, scope).map(|(value, _)| value)
            }
            Expr::Call(function, arguments) => {
                let mut values = BumpVec::with_capacity_in(arguments.len(), scope.arena);
                for argument in arguments {
                    values.push(argument.evaluate(scope)?);
                }
                functions::call(*function, &values, scope.arena, scope.fixed.now_ms)
            }
            _ => self.evaluate(scope),
        }
    }

    /// Whether a row passes it as a filter.
    #[inline]
    pub(crate) fn passes<'a>(&'a self, scope: &Scope<'a>) -> Result<bool, Fault> {
        if let Expr::Compare(op, Affinity::None, a, b) = self {
            let (a, b) = (a.operand(scope)?, b.operand(scope)?);
            return Ok(!a.is_null() && !b.is_null() && op.holds(compare(a, b)));
        }
        self.decides(scope, true)
    }

    /// Whether it is known to be true, or to be false. Terms behind the one that decides are not evaluated, as in SQLite's
    /// conditions; the value of AND and OR needs all of them, so an error in any of them is one of the whole.
    fn decides<'a>(&'a self, scope: &Scope<'a>, wanted: bool) -> Result<bool, Fault> {
        let (list, all) = match self {
            Expr::Not(inner) => return inner.decides(scope, !wanted),
            Expr::And(list) => (list, wanted),
            Expr::Or(list) => (list, !wanted),
            other => return Ok(other.evaluate(scope)?.truth() == Some(wanted)),
        };
        for term in list {
            if term.decides(scope, wanted)? != all {
                return Ok(!all);
            }
        }
        Ok(all)
    }
}

/// Takes a condition apart into terms that must all hold.
pub(crate) fn flatten(condition: Expr, into: &mut Vec<Expr>) {
    match condition {
        Expr::And(terms) => terms.into_iter().for_each(|term| flatten(term, into)),
        other => into.push(other),
    }
}

fn path<'a>(column: usize, steps: &'a [Step], scope: &Scope<'a>) -> Result<Value<'a>, Fault> {
    match scope.stored_path(column, steps)? {
        Some(json) => value::of_json(json, scope.arena),
        None => Ok(Value::Null),
    }
}

#[inline]
/// The arm of `CASE operand WHEN …` whose value it has.
pub(crate) fn arm_of<'a>(
    operand: &'a Expr,
    arms: &'a [(Affinity, Expr, Expr)],
    last: &'a Expr,
    scope: &Scope<'a>,
) -> Result<&'a Expr, Fault> {
    let value = operand.evaluate(scope)?;
    for (affinity, when, then) in arms {
        let when = when.evaluate(scope)?;
        if compared(Comparison::Equal, *affinity, value, when, scope).truth() == Some(true) {
            return Ok(then);
        }
    }
    Ok(last)
}

fn compared<'a>(op: Comparison, affinity: Affinity, a: Value<'a>, b: Value<'a>, scope: &Scope<'a>) -> Value<'a> {
    let (a, b) = if affinity == Affinity::None { (a, b) } else { converted(affinity, a, b, scope) };
    if a.is_null() || b.is_null() {
        return Value::Null;
    }
    Value::Integer(i64::from(op.holds(compare(a, b))))
}

fn converted<'a>(affinity: Affinity, a: Value<'a>, b: Value<'a>, scope: &Scope<'a>) -> (Value<'a>, Value<'a>) {
    let text = |value: Value<'a>| value.to_text(scope.arena).map_or(Value::Null, Value::Text);
    match affinity {
        Affinity::None => (a, b),
        Affinity::Numeric | Affinity::Real => (a.with_numeric_affinity(), b.with_numeric_affinity()),
        Affinity::Text => (text(a), text(b)),
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
    for e in list {
        match e.evaluate(scope)?.truth() {
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
    for e in list {
        match compared(Comparison::Equal, affinity, value, e.evaluate(scope)?, scope).truth() {
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

fn within_inner<'a>(
    values: &'a [(Affinity, Expr)],
    relation: &'a Relation,
    scope: &Scope<'a>,
) -> Result<Value<'a>, Fault> {
    let mut sought = BumpVec::with_capacity_in(values.len(), scope.arena);
    for (_, value) in values {
        sought.push(value.evaluate(scope)?);
    }
    if values.iter().all(|(affinity, _)| *affinity == Affinity::None) {
        return Ok(Value::of_truth(relation.contains(&sought, scope.arena)?));
    }
    // A conversion of both sides is not what the hash was made by.
    let mut unknown = false;
    for row in 0..relation.len() {
        let mut equal = Some(true);
        for (column, (value, (affinity, _))) in sought.iter().zip(values).enumerate() {
            let other = relation::of_row(relation.row(row), column, scope.arena)?;
            let (value, other) =
                if *affinity == Affinity::Real { (real(*value), real(other)) } else { (*value, other) };
            equal = and(equal, compared(Comparison::Equal, *affinity, value, other, scope).truth());
        }
        match equal {
            Some(true) => return Ok(Value::Integer(1)),
            Some(false) => {}
            None => unknown = true,
        }
    }
    Ok(if unknown { Value::Null } else { Value::Integer(0) })
}

fn like<'a>(text: &'a Expr, wanted: &'a Expr, escape: Option<&'a Expr>, scope: &Scope<'a>) -> Result<Value<'a>, Fault> {
    let (text, wanted) = (text.evaluate(scope)?, wanted.evaluate(scope)?);
    let escape = match escape {
        None => None,
        Some(escape) => match escape.evaluate(scope)?.to_text(scope.arena) {
            None => return Ok(Value::Null),
            Some(escape) => Some(escape),
        },
    };
    match (text.to_text(scope.arena), wanted.to_text(scope.arena)) {
        (_, Some(wanted)) if wanted.len() > PATTERN_BYTES_MAX => Err(Fault::TextTooLong),
        (Some(text), Some(wanted)) => Ok(Value::of_truth(Some(pattern::like(wanted, text, escape)))),
        _ => Ok(Value::Null),
    }
}

fn concat<'a>(a: Value<'a>, b: Value<'a>, scope: &Scope<'a>) -> Result<Value<'a>, Fault> {
    let (Some(a), Some(b)) = (a.to_text(scope.arena), b.to_text(scope.arena)) else { return Ok(Value::Null) };
    if a.len() + b.len() > TEXT_BYTES_MAX {
        return Err(Fault::TextTooLong);
    }
    let mut joined = BumpVec::with_capacity_in(a.len() + b.len(), scope.arena);
    joined.extend_from_slice(a);
    joined.extend_from_slice(b);
    Ok(Value::Text(joined.into_bump_slice()))
}

fn cast<'a>(to: CastType, value: Value<'a>, scope: &Scope<'a>) -> Value<'a> {
    match (to, value) {
        (_, Value::Null) => Value::Null,
        (CastType::Integer, value) => Value::Integer(value.to_integer()),
        (CastType::Real, value) => Value::Real(value.to_real()),
        (CastType::Text, value) => value.to_text(scope.arena).map_or(Value::Null, Value::Text),
        (CastType::Numeric, Value::Text(text)) => {
            let prefix = super::number::real_prefix(text);
            let (integer, kind) = super::number::integer_prefix(text);
            let truncated = super::number::real_to_integer(prefix.real);
            match () {
                () if !prefix.fraction && kind != super::number::IntegerText::Overflow => Value::Integer(integer),
                () if super::number::is_integer(prefix.real, truncated) => Value::Integer(truncated),
                () => Value::Real(prefix.real),
            }
        }
        (CastType::Numeric, number) => number,
    }
}

/// Arithmetic as rule 4 says: integers stay so unless the result does not fit.
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
