//! Expressions: resolved, planned, and walked for each row.
//!
//! The resolver makes the tree and a plan specialises it; evaluation never changes it. A column is a number;
//! [`super::row::ColumnSource`] says where a plan reads its value.

use std::cmp::Ordering;

use crate::sql::functions::Function;
use crate::sql::values::OwnedValue;
use crate::sql::values::json::Step;

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

    /// The same comparison, but true for equal sides.
    pub(crate) fn or_equal(self) -> Self {
        match self {
            Comparison::Less => Comparison::LessOrEqual,
            Comparison::Greater => Comparison::GreaterOrEqual,
            same => same,
        }
    }

    /// The same comparison with its sides exchanged.
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

/// The conversion that a CAST on one side of a comparison causes on the other. Fields and all other expressions cause none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Affinity {
    None,
    Numeric,
    /// Like `Numeric`, except that IN with a subquery converts both sides to reals.
    Real,
    Text,
}

impl Affinity {
    /// The conversion in a comparison, from the affinity of each side and whether it is a computed value. A CAST to a number on
    /// one side converts the other side to a number. A CAST to text converts the other side to text if that is a computed
    /// value. A field causes no conversion and is not converted to text.
    pub(crate) fn between(a: (Affinity, bool), b: (Affinity, bool)) -> Affinity {
        use Affinity::{Numeric, Real};
        match (a, b) {
            ((Real, _), (Affinity::None, true)) | ((Affinity::None, true), (Real, _)) => Real,
            ((Numeric | Real, _), _) | (_, (Numeric | Real, _)) => Numeric,
            ((Affinity::Text, _), (_, true)) | ((_, true), (Affinity::Text, _)) => Affinity::Text,
            ((Affinity::Text, _), (Affinity::Text, _)) => Affinity::Text,
            _ => Affinity::None,
        }
    }
}

/// The target of a CAST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CastType {
    Integer,
    Real,
    Text,
    Numeric,
}

/// A use of a subquery: its number, and the values of the outer row that it takes, none if it is not correlated.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SubqueryUse {
    pub(crate) number: usize,
    pub(crate) outer: Vec<Expr>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expr {
    Literal(OwnedValue),
    /// A parameter by its slot.
    Parameter(usize),
    /// A value computed once for an execution.
    Constant(usize),
    /// A field of a collection, by its number in the query.
    Column(usize),
    /// A path into a field.
    Path(usize, Vec<Step>),
    /// A value of the outer row that a subquery takes, by its number.
    Outer(usize),
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
    /// `IS [NOT] TRUE` and `FALSE`: the wanted truth value, and the result if the operand has it.
    IsTruth(Box<Expr>, bool, bool),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    In(Box<Expr>, Affinity, Vec<Expr>),
    /// Whether a subquery has a row that equals these values.
    InInner(Vec<(Affinity, Expr)>, SubqueryUse),
    /// A value of a subquery's first row, by its place.
    ScalarInner(SubqueryUse, usize),
    ExistsInner(SubqueryUse),
    Between(Box<Expr>, Affinity, Box<Expr>, Affinity, Box<Expr>),
    Like(Box<Expr>, Box<Expr>, Option<Box<Expr>>),
    Glob(Box<Expr>, Box<Expr>),
    /// Conditions with their results, then ELSE.
    Case(Vec<(Expr, Expr)>, Box<Expr>),
    /// The same with an operand with which each condition is compared.
    CaseOf(Box<Expr>, Vec<(Affinity, Expr, Expr)>, Box<Expr>),
    Coalesce(Vec<Expr>),
    Cast(CastType, Box<Expr>),
    Arrow(bool, Box<Expr>, Box<Expr>),
    Call(Function, Vec<Expr>),
}

impl SubqueryUse {
    fn map(self, change: &mut dyn FnMut(Expr) -> Expr) -> SubqueryUse {
        SubqueryUse { number: self.number, outer: self.outer.into_iter().map(change).collect() }
    }
}

impl Expr {
    pub(crate) fn integer(integer: i64) -> Expr {
        Expr::Literal(OwnedValue::Integer(integer))
    }

    /// Its affinity in comparisons.
    pub(crate) fn affinity(&self) -> Affinity {
        match self {
            Expr::Cast(CastType::Text, _) => Affinity::Text,
            Expr::Cast(CastType::Real, _) => Affinity::Real,
            Expr::Cast(..) => Affinity::Numeric,
            _ => Affinity::None,
        }
    }

    /// Whether `test` is true for one of its direct parts.
    pub(crate) fn any_part(&self, test: impl Fn(&Expr) -> bool) -> bool {
        let mut holds = false;
        self.each_part(&mut |part| holds |= test(part));
        holds
    }

    /// Calls `visit` for each use of a column, by its number.
    pub(crate) fn each_column(&self, visit: &mut dyn FnMut(usize)) {
        self.walk(&mut |part| {
            if let Expr::Column(column) | Expr::Path(column, _) = part {
                visit(*column);
            }
        });
    }

    /// Whether it uses a column for which `test` is true.
    pub(crate) fn uses_column(&self, test: impl Fn(usize) -> bool) -> bool {
        let mut uses = false;
        self.each_column(&mut |column| uses |= test(column));
        uses
    }

    /// Calls `visit` on its direct parts, in the order of the text.
    fn each_part(&self, visit: &mut dyn FnMut(&Expr)) {
        match self {
            Expr::Literal(_)
            | Expr::Parameter(_)
            | Expr::Constant(_)
            | Expr::Column(_)
            | Expr::Path(..)
            | Expr::Outer(_)
            | Expr::Aggregate(_)
            | Expr::GroupKey(_) => {}
            Expr::ScalarInner(asked, _) | Expr::ExistsInner(asked) => asked.outer.iter().for_each(visit),
            Expr::InInner(values, asked) => values.iter().map(|(_, value)| value).chain(&asked.outer).for_each(visit),
            Expr::Not(e) | Expr::BitNot(e) | Expr::IsNull(e) | Expr::NotNull(e) | Expr::IsTruth(e, ..) => visit(e),
            Expr::Cast(_, e) => visit(e),
            Expr::Arithmetic(_, a, b) | Expr::Concat(a, b) | Expr::Compare(_, _, a, b) | Expr::Is(_, _, a, b) => {
                visit(a);
                visit(b);
            }
            Expr::Arrow(_, a, b) | Expr::Glob(a, b) => {
                visit(a);
                visit(b);
            }
            Expr::And(list) | Expr::Or(list) | Expr::Coalesce(list) | Expr::Call(_, list) => {
                list.iter().for_each(visit);
            }
            Expr::In(e, _, list) => {
                visit(e);
                list.iter().for_each(visit);
            }
            Expr::Between(e, _, low, _, high) => [e, low, high].into_iter().for_each(|e| visit(e)),
            Expr::Like(a, b, escape) => [a, b].into_iter().chain(escape).for_each(|e| visit(e)),
            Expr::Case(arms, last) => {
                for (when, then) in arms {
                    visit(when);
                    visit(then);
                }
                visit(last);
            }
            Expr::CaseOf(operand, arms, last) => {
                visit(operand);
                for (_, when, then) in arms {
                    visit(when);
                    visit(then);
                }
                visit(last);
            }
        }
    }

    /// The same expression with each direct part replaced by `change`.
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
            Expr::InInner(values, asked) => {
                let values = values.into_iter().map(|(affinity, value)| (affinity, change(value))).collect();
                Expr::InInner(values, asked.map(change))
            }
            Expr::ScalarInner(asked, place) => Expr::ScalarInner(asked.map(change), place),
            Expr::ExistsInner(asked) => Expr::ExistsInner(asked.map(change)),
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

    /// The same expression with the columns' numbers replaced by `number`.
    pub(crate) fn renumbered(self, number: &dyn Fn(usize) -> usize) -> Expr {
        match self {
            Expr::Column(column) => Expr::Column(number(column)),
            Expr::Path(column, steps) => Expr::Path(number(column), steps),
            other => other.map_children(&mut |child| child.renumbered(number)),
        }
    }

    /// Whether it uses a subquery.
    pub(crate) fn has_inner(&self) -> bool {
        let mut has = false;
        self.walk(&mut |part| has |= matches!(part, Expr::InInner(..) | Expr::ScalarInner(..) | Expr::ExistsInner(_)));
        has
    }

    /// Whether it uses a value of an enclosing query.
    pub(crate) fn has_outer(&self) -> bool {
        let mut has = false;
        self.walk(&mut |part| has |= matches!(part, Expr::Outer(_)));
        has
    }

    /// Estimate of its bytes in memory, with its parts.
    pub(crate) fn bytes(&self) -> usize {
        let mut bytes = 0;
        self.walk(&mut |part| {
            bytes += size_of::<Expr>()
                + match part {
                    Expr::Literal(OwnedValue::Text(text)) => text.len(),
                    Expr::Path(_, steps) => steps.len() * 2 * size_of::<Step>(),
                    _ => 0,
                };
        });
        bytes
    }

    /// Calls `visit` on it and on all its parts.
    pub(crate) fn walk(&self, visit: &mut dyn FnMut(&Expr)) {
        visit(self);
        self.each_part(&mut |part| part.walk(visit));
    }
}

/// Splits a predicate into terms that must all be true.
pub(crate) fn flatten(condition: Expr, into: &mut Vec<Expr>) {
    match condition {
        Expr::And(terms) => terms.into_iter().for_each(|term| flatten(term, into)),
        other => into.push(other),
    }
}
