//! Access paths: how a collection's entries are found.

use super::points::{Limit, Points, PointsOf};
use crate::engine::{Direction, TreeId};
use crate::sql::expressions::Expr;

/// The access path of a level.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// One document by its key.
    Key(Expr),
    /// One document by a unique field, or by fields that are unique together.
    Unique { tree: TreeId, fields: Vec<String>, values: Vec<Expr> },
    /// An index range: equal leading fields, then bounds on the next one.
    Index {
        /// The index's place among the collection's indexes.
        number: usize,
        tree: TreeId,
        equal: Vec<Expr>,
        from: Option<Limit>,
        to: Option<Limit>,
        direction: Direction,
    },
    /// Several values of a key or of an index's first fields.
    Points(Box<Points>),
    /// Kept rows of the plan's subquery with this number: all rows, or by a hash the rows with the values `keys`. `outer`:
    /// the values that the subquery takes from the outer one.
    Kept { inner: usize, hash: Option<usize>, keys: Vec<Expr>, outer: Vec<Expr> },
    /// `json_each`: the elements of an array, the fields of an object, or one value.
    Each { json: Expr, path: Option<Expr> },
    /// Documents in key order. The bounds only narrow the range: their predicates are evaluated as well.
    Scan { from: Option<Expr>, to: Option<Expr>, direction: Direction },
}

impl Access {
    /// The expressions of its values.
    pub(crate) fn expressions(&self) -> Vec<&Expr> {
        match self {
            Access::Key(value) => vec![value],
            Access::Unique { values, .. } => values.iter().collect(),
            Access::Index { equal, from, to, .. } => {
                equal.iter().chain(from.iter().chain(to).flat_map(Limit::values)).collect()
            }
            Access::Points(points) => points.expressions().collect(),
            Access::Kept { keys, outer, .. } => keys.iter().chain(outer).collect(),
            Access::Each { json, path } => std::iter::once(json).chain(path).collect(),
            Access::Scan { from, to, .. } => from.iter().chain(to).collect(),
        }
    }

    /// The same, mutable.
    pub(crate) fn expressions_mut(&mut self) -> Vec<&mut Expr> {
        match self {
            Access::Key(value) => vec![value],
            Access::Unique { values, .. } => values.iter_mut().collect(),
            Access::Index { equal, from, to, .. } => {
                equal.iter_mut().chain(from.iter_mut().chain(to).flat_map(Limit::values_mut)).collect()
            }
            Access::Points(points) => points.expressions_mut().collect(),
            Access::Kept { keys, outer, .. } => keys.iter_mut().chain(outer).collect(),
            Access::Each { json, path } => std::iter::once(json).chain(path).collect(),
            Access::Scan { from, to, .. } => from.iter_mut().chain(to).collect(),
        }
    }

    /// Whether it finds at most one entry.
    pub(crate) fn is_single(&self) -> bool {
        matches!(self, Access::Key(_) | Access::Unique { .. })
    }

    /// Sets the direction, if it scans a range.
    pub(crate) fn turn(&mut self, to: Direction) {
        match self {
            Access::Index { direction, .. } | Access::Scan { direction, .. } => *direction = to,
            Access::Points(points) => points.direction = to,
            _ => {}
        }
    }

    /// Whether it scans all documents.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self, Access::Scan { from: None, to: None, .. })
    }

    /// The place of the scanned index among the collection's.
    pub(crate) fn index(&self) -> Option<usize> {
        match self {
            Access::Index { number, .. } => Some(*number),
            Access::Points(points) => match points.of {
                PointsOf::Index { number, .. } => Some(number),
                _ => None,
            },
            _ => None,
        }
    }
}

/// A possible access path of a table, its score (less is better), and the predicates that it fulfils.
pub(super) struct Candidate {
    pub(super) score: u32,
    pub(super) access: Access,
    pub(super) fulfilled: Vec<usize>,
    /// The rows are read once and kept ([`Access::Kept`]), hashed by one side of the fulfilled predicates, or as a list if
    /// there are none. The hash and its keys are filled in when the candidate is chosen.
    pub(super) keeps: bool,
    /// Its cost, if counts are kept.
    pub(super) weight: Weight,
}

/// The cost of an access path, in units of one index entry of a sequential scan.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weight {
    /// Before the first outer row.
    pub(super) once: f64,
    /// For each outer row.
    pub(super) each: f64,
    /// Entries found for each outer row.
    pub(super) read: f64,
}
