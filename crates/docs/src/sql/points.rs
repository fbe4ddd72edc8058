//! Points: several values of a field, each looked up by itself in their order, none twice.
//!
//! What `IN` and equalities joined by OR ask of a key, a unique field, or the first fields of an index. Between and behind the
//! fields with several values stand fields with one, and behind them bounds of the next: each combination of values is a range
//! of its own. As the values of each field come in the order of the index, so do all entries.

use super::expr::Expr;
use crate::engine::{Direction, TreeId};

/// A bound of a range: the value, and whether it belongs to the range.
pub(crate) type Limit = (Expr, bool);

/// What a field is to be equal to.
#[derive(Clone, Debug)]
pub(crate) enum Sought {
    One(Expr),
    List(Vec<Expr>),
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
    /// For each first field of the index; one for a key.
    pub(crate) sought: Vec<Sought>,
    /// Bounds on the field behind them.
    pub(crate) from: Option<Limit>,
    pub(crate) to: Option<Limit>,
    pub(crate) direction: Direction,
}

impl Sought {
    pub(crate) fn expressions(&self) -> &[Expr] {
        match self {
            Sought::One(value) => std::slice::from_ref(value),
            Sought::List(list) => list,
            Sought::Rows(_) => &[],
        }
    }

    fn expressions_mut(&mut self) -> &mut [Expr] {
        match self {
            Sought::One(value) => std::slice::from_mut(value),
            Sought::List(list) => list,
            Sought::Rows(_) => &mut [],
        }
    }
}

impl Points {
    /// The values that it is told.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let limits = self.from.iter().chain(&self.to).map(|(value, _)| value);
        self.sought.iter().flat_map(Sought::expressions).chain(limits)
    }

    /// The same, to be changed.
    pub(crate) fn expressions_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        let limits = self.from.iter_mut().chain(&mut self.to).map(|(value, _)| value);
        self.sought.iter_mut().flat_map(Sought::expressions_mut).chain(limits)
    }
}
