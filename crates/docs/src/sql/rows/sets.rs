//! UNION, EXCEPT and INTERSECT: the rows of several SELECTs, combined from left to right.
//!
//! Rows are equal as for DISTINCT: if their values compare as equal, and NULL equals NULL. Of equal rows on one side of an
//! operator, the first is kept as it was selected. Of equal rows on both sides of UNION, the right one is kept: `SELECT 1 UNION
//! SELECT 1.0` is 1.0, as in SQLite. Rows on the right of EXCEPT and INTERSECT are compared one by one and not kept; on the
//! left only distinct rows are kept.

use hashbrown::HashMap;

use super::relation::{ROW_OVERHEAD_BYTES, Relation, of_row};
use super::sink::RowSink;
use crate::sql::limits::{Budget, Fault, Meter, QueryError};
use crate::sql::values::{FieldValue, RowArena, sort};

/// How a SELECT's rows are combined with those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Combine {
    /// They are appended: the first SELECT, and UNION ALL.
    Append,
    Union,
    Except,
    Intersect,
}

impl Combine {
    /// Its name in SQL.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Combine::Append => "UNION ALL",
            Combine::Union => "UNION",
            Combine::Except => "EXCEPT",
            Combine::Intersect => "INTERSECT",
        }
    }
}

/// The rows so far; a sink for the rows of the next SELECT.
pub(crate) struct Combined<'m> {
    relation: Relation,
    /// How the current SELECT is combined with the rows before it, which end at `start`; `None` if neither this operator nor a
    /// later one compares rows.
    combine: Option<Combine>,
    start: usize,
    /// The distinct rows by their keys.
    distinct: HashMap<Box<[u8]>, usize>,
    key_bytes: usize,
    /// For each row, whether the right SELECT has an equal one; for UNION, whether an equal but differently written one
    /// replaces it.
    met: Vec<bool>,
    key: Vec<u8>,
    arena: RowArena<'m>,
    meter: &'m Meter<'m>,
    failure: Option<Fault>,
}

impl<'m> Combined<'m> {
    pub(crate) fn new(meter: &'m Meter<'m>) -> Combined<'m> {
        Combined {
            relation: Relation::default(),
            combine: None,
            start: 0,
            distinct: HashMap::new(),
            key_bytes: 0,
            met: Vec::new(),
            key: Vec::new(),
            arena: RowArena::new(meter),
            meter,
            failure: None,
        }
    }

    /// Begins the rows of a SELECT. `is_compared`: this operator or a later one compares rows.
    pub(crate) fn begin(&mut self, combine: Combine, is_compared: bool) {
        self.combine = is_compared.then_some(combine);
        self.start = self.relation.len();
        if is_compared {
            self.met = vec![false; self.start];
        } else {
            (self.distinct, self.key_bytes) = (HashMap::new(), 0);
        }
    }

    /// Ends the rows of that SELECT.
    pub(crate) fn end(&mut self) -> Result<(), Fault> {
        if let Some(fault) = self.failure.take() {
            return Err(fault);
        }
        let met = std::mem::take(&mut self.met);
        let wanted = self.combine == Some(Combine::Intersect);
        if wanted || met.contains(&true) {
            self.keep(|row| met.get(row).copied().unwrap_or(false) == wanted)?;
        }
        Ok(())
    }

    /// Spills the rows if they take too much memory; only rows that are not compared.
    pub(crate) fn make_room(&mut self, budget: &Budget<'_>) -> Result<(), QueryError> {
        self.relation.make_room(budget)
    }

    /// Bytes in memory.
    pub(crate) fn size(&self) -> usize {
        self.relation.size() + self.key_bytes
    }

    pub(crate) fn into_relation(self) -> Relation {
        self.relation
    }

    /// Keeps only the rows for which `stays` returns true.
    fn keep(&mut self, stays: impl Fn(usize) -> bool) -> Result<(), Fault> {
        let (mut places, mut kept) = (Vec::with_capacity(self.relation.len()), 0);
        for row in 0..self.relation.len() {
            self.meter.tick(1)?;
            places.push(kept);
            kept += usize::from(stays(row));
        }
        let mut ended = Ok(());
        self.distinct.retain(|_, row| {
            if ended.is_ok() {
                ended = self.meter.tick(1);
            }
            let stays = ended.is_err() || stays(*row);
            *row = places[*row];
            stays
        });
        ended?;
        self.key_bytes = self.distinct.keys().map(|key| key.len() + ROW_OVERHEAD_BYTES).sum();
        self.relation.rows().retain(stays, self.meter)
    }

    /// Makes the comparison key of a row.
    fn make_key(&mut self, row: usize) -> Result<(), Fault> {
        self.key.clear();
        let (workspace, mut fields) = (self.arena.next(), self.relation.row(row));
        while !fields.is_empty() {
            let value = of_row(fields, 0, workspace)?;
            workspace.meter.weigh(value)?;
            sort::take_field(&mut fields);
            sort::push_key(value, false, &mut self.key)?;
        }
        Ok(())
    }

    /// Compares the last row with those before.
    fn compare_last(&mut self, combine: Combine) -> Result<(), Fault> {
        let last = self.relation.len() - 1;
        self.make_key(last)?;
        let adds = matches!(combine, Combine::Append | Combine::Union);
        let Some(found) = self.distinct.get_mut(&self.key[..]) else {
            if adds {
                self.key_bytes += self.key.len() + ROW_OVERHEAD_BYTES;
                self.distinct.insert(self.key.as_slice().into(), last);
            } else {
                self.relation.rows().truncate(last);
            }
            return Ok(());
        };
        let is_same = *found >= self.start || self.relation.row(*found) == self.relation.row(last);
        let replaces = combine == Combine::Union && !is_same;
        if let Some(met) = self.met.get_mut(*found) {
            *met = replaces || !adds;
        }
        if replaces {
            *found = last;
        } else {
            self.relation.rows().truncate(last);
        }
        Ok(())
    }
}

impl RowSink for Combined<'_> {
    fn field(&mut self, column: usize, field: FieldValue<'_>) {
        self.relation.rows().field(column, field);
    }
    fn end_row(&mut self) {
        self.relation.rows().end_row();
        if let Some(combine) = self.combine
            && let Err(fault) = self.compare_last(combine)
        {
            self.failure.get_or_insert(fault);
        }
    }
    fn bytes(&self) -> usize {
        self.size() + ROW_OVERHEAD_BYTES
    }
    fn takes_infinite(&self) -> bool {
        true
    }
}
