//! Access paths: how a collection's entries are found.

use super::expr::Expr;
pub(crate) use super::points::Limit;
use super::points::{Points, PointsOf};
use crate::engine::{Direction, TreeId};

/// How a level finds its entries.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// One document by its key.
    Key(Expr),
    /// One document by a unique field, or by fields that are unique together.
    Unique { tree: TreeId, fields: Vec<String>, values: Vec<Expr> },
    /// A range of an index: equal first fields, then bounds on the next.
    Index {
        /// Its place among the collection's indexes.
        number: usize,
        tree: TreeId,
        equal: Vec<Expr>,
        from: Option<Limit>,
        to: Option<Limit>,
        direction: Direction,
    },
    /// Several values of a key or of an index's first fields.
    Points(Box<Points>),
    /// Rows kept of the plan's inner query of that number: all, or by a hash those with these values. `outer`: what it is
    /// told of the query around.
    Kept { inner: usize, hash: Option<usize>, keys: Vec<Expr>, outer: Vec<Expr> },
    /// `json_each`: the elements of an array, the fields of an object, or one value.
    Each { json: Expr, path: Option<Expr> },
    /// Documents in key order; the bounds only narrow, the conditions are checked as well.
    Scan { from: Option<Expr>, to: Option<Expr>, direction: Direction },
}

impl Access {
    /// The values that it is told.
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

    /// The same, to be changed.
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

    /// Finds at most one entry.
    pub(crate) fn is_single(&self) -> bool {
        matches!(self, Access::Key(_) | Access::Unique { .. })
    }

    /// Has it read a range in this direction, if it reads one.
    pub(crate) fn turn(&mut self, to: Direction) {
        match self {
            Access::Index { direction, .. } | Access::Scan { direction, .. } => *direction = to,
            Access::Points(points) => points.direction = to,
            _ => {}
        }
    }

    /// Reads all documents.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self, Access::Scan { from: None, to: None, .. })
    }

    /// The place of the index that it reads among the collection's.
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

/// A way to find a table's entries, how good it is (less is better), and the conditions that it fulfils.
pub(super) struct Candidate {
    pub(super) score: u32,
    pub(super) access: Access,
    pub(super) fulfilled: Vec<usize>,
    /// Rows are read once and kept ([`Access::Kept`]): hashed by one side of the conditions fulfilled, or where there are none all
    /// gone through. What they are hashed by, and the keys, are put in when the way is taken.
    pub(super) keeps: bool,
    /// What it costs, where counts tell.
    pub(super) weight: Weight,
}

/// What a way costs, in entries of an index looked at one behind the other.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weight {
    /// Before the first row.
    pub(super) once: f64,
    /// For each row outside.
    pub(super) each: f64,
    /// Entries that it finds for each row outside.
    pub(super) read: f64,
}
