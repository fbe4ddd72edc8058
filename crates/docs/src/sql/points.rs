//! Points: several values of a field, each looked up by itself in their order, none twice.
//!
//! What `IN` and equalities joined by OR ask of a key, a unique field, or the first fields of an index. Between and behind the
//! fields with several values stand fields with one, and behind them bounds of the next: each combination of values is a range
//! of its own. As the values of each field come in the order of the index, so do all entries.

use super::expr::Expr;
use crate::engine::{Direction, TreeId};

/// A bound of a range: a value of a field, then values of the fields behind it as in `(a, b) > (1, 2)`.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    pub(crate) value: Expr,
    /// Of the fields behind. The first that is NULL, and those behind it, say nothing: then the bound is what stands before.
    pub(crate) more: Vec<Expr>,
    /// What equals all of them belongs to the range.
    pub(crate) inclusive: bool,
}

impl Limit {
    /// The values, in the order of the fields.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Expr> {
        std::iter::once(&self.value).chain(&self.more)
    }

    /// The same, to be changed.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        std::iter::once(&mut self.value).chain(&mut self.more)
    }
}

/// What a field is to be equal to.
#[derive(Clone, Debug)]
pub(crate) enum Sought {
    One(Expr),
    List(Vec<Expr>),
    /// Several fields together: row values of so many fields, one behind the other.
    Tuples(Vec<Expr>, usize),
    /// The first column of the plan's inner query of that number.
    Rows(usize),
}

/// Where the values are looked up.
#[derive(Clone, Debug)]
pub(crate) enum PointsOf {
    Key,
    Unique {
        tree: TreeId,
        field: String,
    },
    Index {
        /// Its place among the collection's indexes.
        number: usize,
        tree: TreeId,
    },
}

/// See the module's text.
#[derive(Clone, Debug)]
pub(crate) struct Points {
    pub(crate) of: PointsOf,
    /// For each first field of the index, or for several of them together; one for a key.
    pub(crate) sought: Vec<Sought>,
    /// Bounds on the field behind them.
    pub(crate) from: Option<Limit>,
    pub(crate) to: Option<Limit>,
    pub(crate) direction: Direction,
}

impl Sought {
    /// How many fields of the index it is about.
    pub(crate) fn width(&self) -> usize {
        match self {
            Sought::Tuples(_, width) => *width,
            Sought::One(_) | Sought::List(_) | Sought::Rows(_) => 1,
        }
    }

    pub(crate) fn expressions(&self) -> &[Expr] {
        match self {
            Sought::One(value) => std::slice::from_ref(value),
            Sought::List(list) | Sought::Tuples(list, _) => list,
            Sought::Rows(_) => &[],
        }
    }

    fn expressions_mut(&mut self) -> &mut [Expr] {
        match self {
            Sought::One(value) => std::slice::from_mut(value),
            Sought::List(list) | Sought::Tuples(list, _) => list,
            Sought::Rows(_) => &mut [],
        }
    }
}

impl Points {
    /// The values that it is told.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let limits = self.from.iter().chain(&self.to).flat_map(Limit::values);
        self.sought.iter().flat_map(Sought::expressions).chain(limits)
    }

    /// The same, to be changed.
    pub(crate) fn expressions_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        let limits = self.from.iter_mut().chain(&mut self.to).flat_map(Limit::values_mut);
        self.sought.iter_mut().flat_map(Sought::expressions_mut).chain(limits)
    }
}
