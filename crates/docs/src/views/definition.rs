//! A view's definition: its query, split into the data stored for each group and the computation of the result columns from it.
//!
//! A definition computes a document's [`Contribution`]: the group's key, the state of one row, and the values that are counted
//! individually. Writes, builds, imports and verification use the same code.
//!
//! Trees of a view:
//!
//! ```text
//!  view/N         key: the group's values (order::lower, one after another)           value: a state (state.rs)
//!                   with ROLLUP or without GROUP BY: NULL for rolled-up values, and at the end the number of the others
//!                   (1 byte); so the row of a view without GROUP BY has the key 00, and a grand total sorts first
//!  view-values/N  key: the group's key | number of the facet (1 byte) | the value      value: occurrences (fold.rs)
//! ```
//!
//! A facet is an argument whose values are counted. For MIN and MAX they are stored exactly (`order::encode`), so that the
//! first and the last are the results; COUNT(DISTINCT) treats 5 and 5.0 as one value (`order::lower`).

use binjson::StoredDocument;

use crate::catalog::{Catalog, view_trees};
use crate::encoding::{KEY_BYTES_MAX, Scalar, order};
use crate::error::WriteError;
use crate::sql::grouping::{GROUP_MAX, GroupAggregate, GroupColumn, GroupValue, Grouping, Memory, Reads};
use crate::sql::{SqlError, Value, summand};
use crate::views::state::{Number, OneRow, WrittenForm};

/// How a result column is computed from the stored data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// A value of the group's key.
    Group(usize),
    Rows,
    Count(usize),
    Sum(usize),
    Avg(usize),
    Total(usize),
    Distinct(usize),
    /// The first or the last value of a facet.
    Min(usize),
    Max(usize),
}

/// An argument whose values are counted individually.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facet {
    pub(crate) argument: usize,
    /// The slot of its COUNT(DISTINCT), or `None` for MIN and MAX.
    pub(crate) distinct: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Count(usize),
    Sum(usize),
    Distinct(usize),
}

/// A view's compiled query.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) grouping: Grouping,
    pub(crate) columns: Vec<(String, Shown)>,
    /// For each column its name as the text of a JSON object has it, with the colon.
    pub(crate) labels: Vec<Vec<u8>>,
    pub(crate) facets: Vec<Facet>,
    slots: Vec<Slot>,
}

/// The contribution of one document to a view. Reused, so that a steady stream of writes allocates nothing.
#[derive(Default)]
pub(crate) struct Contribution {
    /// Whether the document contributes anything.
    pub(crate) is_any: bool,
    /// The keys of its groups, one after another, and the end of each.
    keys: Vec<u8>,
    key_ends: Vec<usize>,
    pub(crate) state: Vec<u8>,
    /// The end of each facet's value; an empty value is NULL and not counted.
    ends: Vec<usize>,
    values: Vec<u8>,
}

impl Contribution {
    /// The key of one of its groups, of which there are [`Definition::levels`].
    pub(crate) fn key(&self, level: usize) -> &[u8] {
        let from = if level == 0 { 0 } else { self.key_ends[level - 1] };
        &self.keys[from..self.key_ends[level]]
    }

    /// The bytes of a facet's value, if it is counted.
    pub(crate) fn value(&self, facet: usize) -> Option<&[u8]> {
        let from = if facet == 0 { 0 } else { self.ends[facet - 1] };
        Some(&self.values[from..self.ends[facet]]).filter(|value| !value.is_empty())
    }

    fn clear(&mut self) {
        self.is_any = false;
        self.keys.clear();
        self.key_ends.clear();
        self.state.clear();
        self.ends.clear();
        self.values.clear();
    }
}

impl Definition {
    /// Compiles a view's query over the collections and views of a catalog.
    pub(crate) fn compile(sql: &str, catalog: &Catalog) -> Result<Definition, SqlError> {
        let grouping = Grouping::compile(sql, catalog)?;
        let mut definition =
            Definition { grouping, columns: Vec::new(), labels: Vec::new(), facets: Vec::new(), slots: Vec::new() };
        for number in 0..definition.grouping.outputs.len() {
            let (name, output) = definition.grouping.outputs[number].clone();
            let shown = match output {
                GroupColumn::Group(place) => Shown::Group(place),
                GroupColumn::Aggregate(kind, argument) => definition.aggregate(kind, argument.unwrap_or(0)),
            };
            let mut label = Vec::new();
            binjson::append_string(&mut label, &name);
            label.push(b':');
            definition.labels.push(label);
            definition.columns.push((name, shown));
        }
        Ok(definition)
    }

    /// The collection that the view reads, by its position in the catalog.
    pub(crate) fn collection(&self) -> Option<usize> {
        match self.grouping.reads {
            Reads::Collection(place) => Some(place),
            Reads::View(_) => None,
        }
    }

    /// The view that the view reads, by its position among the views.
    pub(crate) fn lower(&self) -> Option<usize> {
        match self.grouping.reads {
            Reads::Collection(_) => None,
            Reads::View(tree) => Some(view_trees::place(tree)),
        }
    }

    /// The columns of a view that it reads.
    pub(crate) fn wanted_of(&self, lower: &Definition) -> Vec<bool> {
        lower.columns.iter().map(|(name, _)| self.grouping.columns.contains(name)).collect()
    }

    /// The key of the row that exists without any document, if there is one: the grand total of ROLLUP, or the only row of a
    /// query without GROUP BY.
    pub(crate) fn always(&self) -> Option<Vec<u8>> {
        let mut key = Vec::new();
        (0..self.grouping.group_len()).for_each(|_| order::lower(Scalar::Null, &mut key));
        key.push(0);
        self.has_level_in_key().then_some(key)
    }

    /// The group's key at the front of a counted value's key. `None`: damaged.
    pub(crate) fn group_of<'k>(&self, value_key: &'k [u8]) -> Option<&'k [u8]> {
        let mut rest = value_key;
        for _ in 0..self.grouping.group_len() {
            order::skip(&mut rest)?;
        }
        value_key.get(..value_key.len() - rest.len() + usize::from(self.has_level_in_key()))
    }

    /// Whether both have the same columns for queries: the same names, of which the same are group values.
    pub(crate) fn looks_like(&self, other: &Definition) -> bool {
        let group = |shown: &Shown| if let Shown::Group(place) = shown { Some(*place) } else { None };
        let columns = |definition: &Definition| -> Vec<(String, Option<usize>)> {
            definition.columns.iter().map(|(name, shown)| (name.clone(), group(shown))).collect()
        };
        columns(self) == columns(other)
    }

    fn aggregate(&mut self, kind: GroupAggregate, argument: usize) -> Shown {
        match kind {
            GroupAggregate::Rows => Shown::Rows,
            GroupAggregate::Count => Shown::Count(self.slot(Slot::Count(argument))),
            GroupAggregate::Sum => Shown::Sum(self.slot(Slot::Sum(argument))),
            GroupAggregate::Avg => Shown::Avg(self.slot(Slot::Sum(argument))),
            GroupAggregate::Total => Shown::Total(self.slot(Slot::Sum(argument))),
            GroupAggregate::Distinct => {
                let slot = self.slot(Slot::Distinct(argument));
                self.facet(Facet { argument, distinct: Some(slot) });
                Shown::Distinct(slot)
            }
            GroupAggregate::Min => Shown::Min(self.facet(Facet { argument, distinct: None })),
            GroupAggregate::Max => Shown::Max(self.facet(Facet { argument, distinct: None })),
        }
    }

    fn slot(&mut self, wanted: Slot) -> usize {
        place(&mut self.slots, wanted)
    }

    fn facet(&mut self, wanted: Facet) -> usize {
        place(&mut self.facets, wanted)
    }

    /// The contribution of a document to the view of this name and number. An error concerns the document: the view cannot represent
    /// it.
    pub(super) fn contribution(
        &self,
        (name, number): (&str, u64),
        document: StoredDocument<'_>,
        memory: &mut Memory,
        out: &mut Contribution,
    ) -> Result<(), WriteError> {
        out.clear();
        let write = |group: &[GroupValue<'_>], arguments: &[Value<'_>]| self.write(group, arguments, out);
        let found = self.grouping.evaluate(number, document, memory, write);
        match found {
            Ok(None) => Ok(()),
            Ok(Some(Some(()))) if self.longest(out) <= KEY_BYTES_MAX => {
                out.is_any = true;
                Ok(())
            }
            Ok(Some(Some(()))) => {
                Err(WriteError::TooLarge { what: format!("a key of view {name}"), limit: KEY_BYTES_MAX as u64 })
            }
            Ok(Some(None)) => Err(refused(name, &"a computed text is not UTF-8")),
            Err(fault) => Err(refused(name, &crate::sql::QueryError::from(fault))),
        }
    }

    /// The number of groups that a document belongs to.
    pub(crate) fn levels(&self) -> usize {
        if self.grouping.rolls_up { self.grouping.group_len() + 1 } else { 1 }
    }

    /// Whether keys end with the number of values that are not rolled up.
    pub(crate) fn has_level_in_key(&self) -> bool {
        self.grouping.rolls_up || self.grouping.group_len() == 0
    }

    /// The length of the longest key in the trees.
    fn longest(&self, contribution: &Contribution) -> usize {
        let values = (0..self.facets.len()).filter_map(|facet| contribution.value(facet));
        let keys = (0..self.levels()).map(|level| contribution.key(level).len());
        keys.max().unwrap_or(0) + 1 + values.map(<[u8]>::len).max().unwrap_or(0)
    }

    /// The full key first, then with ROLLUP each shorter prefix, down to none.
    fn write_keys(&self, group: &[GroupValue<'_>], out: &mut Contribution) -> Option<()> {
        let Contribution { keys, key_ends, .. } = out;
        let mut value_ends = [0; GROUP_MAX];
        for (value, end) in group.iter().zip(&mut value_ends) {
            order::lower(value.value.scalar()?, keys);
            *end = keys.len();
        }
        if self.has_level_in_key() {
            keys.push(group.len() as u8);
        }
        key_ends.push(keys.len());
        for level in (0..group.len()).rev().filter(|_| self.grouping.rolls_up) {
            let end = if level == 0 { 0 } else { value_ends[level - 1] };
            keys.extend_from_within(..end);
            (level..group.len()).for_each(|_| order::lower(Scalar::Null, keys));
            keys.push(level as u8);
            key_ends.push(keys.len());
        }
        Some(())
    }

    fn write(&self, group: &[GroupValue<'_>], arguments: &[Value<'_>], out: &mut Contribution) -> Option<()> {
        self.write_keys(group, out)?;
        let mut row = OneRow::begin(&mut out.state);
        for (number, slot) in self.slots.iter().enumerate() {
            match slot {
                Slot::Count(argument) if !arguments[*argument].is_null() => row.count(number),
                Slot::Sum(argument) if !arguments[*argument].is_null() => {
                    row.sum(number, number_of(arguments[*argument]))
                }
                _ => {}
            }
        }
        for (place, value) in group.iter().enumerate() {
            if let Some(form) = form(value) {
                row.form(place, form);
            }
        }
        for facet in &self.facets {
            let value = arguments[facet.argument];
            if !value.is_null() {
                match facet.distinct {
                    Some(_) => order::lower(value.scalar()?, &mut out.values),
                    None => order::encode(value.scalar()?, &mut out.values),
                }
            }
            out.ends.push(out.values.len());
        }
        Some(())
    }
}

/// The error for a document that has no place in a view.
#[cold]
fn refused(view: &str, why: &dyn std::fmt::Display) -> WriteError {
    WriteError::invalid(format!("view {view} cannot take it: {why}"), "")
}

fn place<T: PartialEq>(list: &mut Vec<T>, wanted: T) -> usize {
    list.iter().position(|known| *known == wanted).unwrap_or_else(|| {
        list.push(wanted);
        list.len() - 1
    })
}

fn number_of(value: Value<'_>) -> Number {
    match summand(value) {
        Value::Integer(integer) => Number::Integer(integer),
        Value::Real(real) => Number::Real(real),
        Value::Null | Value::Text(_) => Number::Integer(0),
    }
}

/// How a group's value is displayed, if the key does not determine it.
fn form(value: &GroupValue<'_>) -> Option<WrittenForm> {
    match value.json.and_then(|json| json.first()) {
        Some(b't' | b'f') => return Some(WrittenForm::Boolean),
        Some(b'{' | b'[') => return Some(WrittenForm::Json),
        _ => {}
    }
    match value.value {
        Value::Real(real) if real == 0.0 && real.is_sign_negative() => Some(WrittenForm::NegativeZero),
        Value::Real(real) => {
            let (mut exact, mut lower) = (Vec::new(), Vec::new());
            order::encode(Scalar::Real(real), &mut exact);
            order::lower(Scalar::Real(real), &mut lower);
            (exact != lower).then_some(WrittenForm::Real)
        }
        _ => None,
    }
}
