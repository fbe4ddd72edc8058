//! Points: several values of a field, each looked up once, in their order.
//!
//! `IN`, and equalities joined by OR, look up points of a key, a unique field, or the first fields of an index. Fields with one
//! value may stand between and after the fields with several, and a range of the next field after all of them: each combination
//! of values is a range of its own. The values of each field are sorted in the order of the index, and so are the entries.

use crate::engine::{Direction, TreeId};
use crate::sql::expressions::Expr;

/// A bound of a range: a value of a field, then values of the following fields, as in `(a, b) > (1, 2)`.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    pub(crate) value: Expr,
    /// Values of the following fields. At the first that is NULL the bound ends: only the values before it count.
    pub(crate) more: Vec<Expr>,
    /// Entries equal to all the values belong to the range.
    pub(crate) inclusive: bool,
}

impl Limit {
    /// The values, in the order of the fields.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Expr> {
        std::iter::once(&self.value).chain(&self.more)
    }

    /// The same, mutable.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        std::iter::once(&mut self.value).chain(&mut self.more)
    }
}

/// The values that a field must equal.
#[derive(Clone, Debug)]
pub(crate) enum Sought {
    One(Expr),
    List(Vec<Expr>),
    /// Row values of several fields together, one after the other; the number is that of the fields.
    Tuples(Vec<Expr>, usize),
    /// The first column of the subquery with this number in the plan.
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
        /// The index's place among the collection's indexes.
        number: usize,
        tree: TreeId,
    },
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub(crate) struct Points {
    pub(crate) of: PointsOf,
    /// One for each first field of the index, or for several of them together; exactly one for a key.
    pub(crate) sought: Vec<Sought>,
    /// Bounds of the field after them.
    pub(crate) from: Option<Limit>,
    pub(crate) to: Option<Limit>,
    pub(crate) direction: Direction,
}

impl Sought {
    /// The number of index fields that it covers.
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
    /// The expressions of its values.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let limits = self.from.iter().chain(&self.to).flat_map(Limit::values);
        self.sought.iter().flat_map(Sought::expressions).chain(limits)
    }

    /// The same, mutable.
    pub(crate) fn expressions_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        let limits = self.from.iter_mut().chain(&mut self.to).flat_map(Limit::values_mut);
        self.sought.iter_mut().flat_map(Sought::expressions_mut).chain(limits)
    }
}
