//! The nested loops: each level finds its entries for the row of the outer levels, evaluates its predicates, and calls the next
//! level.
//!
//! Invariant: a row is passed to inner levels as borrowed bytes and one [`Frame`] on the stack, so a level copies nothing.

use std::ops::ControlFlow;

use binjson::StoredDocument;

use super::run::{Flow, LevelKeys, Run};
use crate::encoding::{Key, KeyType, Scalar, order};
use crate::engine::{Direction, KeyRange, STAMP_BYTES, TreeId};
use crate::sql::expressions::row::{as_key, of_scalar, whole};
use crate::sql::expressions::{Expr, Frame, Scope, each, evaluate};
use crate::sql::limits::{Fault, QueryError};
use crate::sql::planning::{Access, Level, Limit};
use crate::sql::rows::RowSink;
use crate::sql::values::{FieldValue, RowRoom, Value, sort, workspace};

impl<'e, S: RowSink + ?Sized> Run<'e, S> {
    /// Finds the level's entries for the outer row, and calls the next level for each.
    pub(super) fn level(&mut self, number: usize, outer: Option<&Frame<'_>>) -> Flow {
        let plan = self.plan;
        let Some(level) = plan.levels.get(number) else { return self.emit(outer) };
        if let Access::Key(value) = &level.access
            && level.key != KeyType::String
            && !level.left
        {
            return self.lookup(number, level, value, outer);
        }
        self.entries_or_absent(number, level, outer)
    }

    /// The common join: one document by an integer key, which needs no buffer.
    #[inline]
    fn lookup(&mut self, number: usize, level: &Level, value: &Expr, outer: Option<&Frame<'_>>) -> Flow {
        let Some(integer) = whole(value.operand(&self.scope(outer))?) else { return Ok(()) };
        let Some(key) = level.key.of_scalar(Scalar::Integer(integer)) else { return Ok(()) };
        self.document(number, level, key.as_bytes(), outer, &mut false)
    }

    fn entries_or_absent(&mut self, number: usize, level: &Level, outer: Option<&Frame<'_>>) -> Flow {
        let mut found = false;
        // The buffers are moved out while the level runs, because deeper levels use the run too.
        let mut keys = std::mem::take(&mut self.levels[number]);
        let flow = self.entries(number, level, outer, &mut keys, &mut found);
        self.levels[number] = keys;
        flow?;
        if !level.left || found {
            return Ok(());
        }
        let frame = Frame { level: number, key: &[], value: &[], document: None, absent: true, outer };
        if !self.passes(&level.beyond, &frame)? {
            return Ok(());
        }
        self.note_row(number);
        self.level(number + 1, Some(&frame))
    }

    fn entries(
        &mut self,
        number: usize,
        level: &Level,
        outer: Option<&Frame<'_>>,
        keys: &mut LevelKeys,
        found: &mut bool,
    ) -> Flow {
        match &level.access {
            Access::Kept { inner, hash, keys: sought, outer: outer_values } => {
                self.kept_rows(number, level, (*inner, *hash, sought, outer_values), outer, keys, found)
            }
            Access::Each { json, path } => self.elements(number, level, (json, path.as_ref()), outer, keys, found),
            Access::Key(value) => {
                if !self.key_bytes(value, level.key, outer, &mut keys.key)? {
                    return Ok(());
                }
                self.document(number, level, &keys.key, outer, found)
            }
            Access::Unique { tree, values, .. } => {
                keys.from.clear();
                for value in values {
                    match value.evaluate(&self.scope(outer))? {
                        Value::Null => return Ok(()),
                        value => order::lower(value.scalar().ok_or(Fault::NotUtf8)?, &mut keys.from),
                    }
                }
                match self.view.get(*tree, &keys.from)? {
                    Some(key) => self.document(number, level, &key, outer, found),
                    None => Ok(()),
                }
            }
            Access::Index { tree, equal, from, to, direction, .. } => {
                if !self.index_bounds(equal, from.as_ref(), to.as_ref(), outer, keys)? {
                    return Ok(());
                }
                let held = self.fixed.meter.hold_keys(keys.from.len() + keys.to.len())?;
                let flow = self.index_entries(number, level, (*tree, *direction), outer, keys, found);
                self.fixed.meter.set_levels(held);
                keys.shrink();
                flow
            }
            Access::Points(points) => {
                let flow = self.points(number, level, points, outer, keys, found);
                keys.points.clear();
                keys.shrink();
                flow
            }
            Access::Scan { from, to, direction } => {
                let low = self.scan_bound(from.as_ref(), level.key, outer, &mut keys.from)?;
                let high = self.scan_bound(to.as_ref(), level.key, outer, &mut keys.to)?;
                let range = self.within(number, keys.document_range(low, high));
                self.scan(level.tree, range, *direction, |run, key, value| {
                    let document = parse_document(value)?;
                    let frame =
                        Frame { level: number, key, value: &[], document: Some(document), absent: false, outer };
                    run.row(number, level, &frame, found)
                })
            }
        }
    }

    /// The entries of an index between the bounds in `keys`.
    #[inline]
    pub(super) fn index_entries(
        &mut self,
        number: usize,
        level: &Level,
        (tree, direction): (TreeId, Direction),
        outer: Option<&Frame<'_>>,
        keys: &mut LevelKeys,
        found: &mut bool,
    ) -> Flow {
        let mut key = std::mem::take(&mut keys.key);
        let flow = self.scan(tree, self.within(number, keys.index_range()), direction, |run, entry, value| {
            run.index_entry(number, level, (entry, value), outer, &mut key, found)
        });
        keys.key = key;
        flow
    }

    /// A level's range; for the outermost level only the part of this thread.
    #[inline(always)]
    pub(super) fn within<'k>(&self, number: usize, range: KeyRange<'k>) -> KeyRange<'k>
    where
        'e: 'k,
    {
        match self.part {
            Some(part) if number == 0 => part.of(range),
            _ => range,
        }
    }

    /// The kept rows of a subquery: all of them, or those that match by a hash.
    fn kept_rows(
        &mut self,
        number: usize,
        level: &Level,
        (inner, hash, sought, outer_values): (usize, Option<usize>, &[Expr], &[Expr]),
        outer: Option<&Frame<'_>>,
        keys: &mut LevelKeys,
        found: &mut bool,
    ) -> Flow {
        let frame = |row| Frame::kept(number, row, outer);
        if hash.is_some() && !self.hash_key(sought, outer, &mut keys.key)? {
            return Ok(());
        }
        let relations = self.fixed.relations.ok_or(Fault::Plan)?;
        let asked;
        let relation = if outer_values.is_empty() {
            relations.get(inner)?
        } else {
            asked = evaluate::ask(inner, outer_values, &self.scope(outer))?;
            &*asked
        };
        if let Some(disk) = relation.on_disk() {
            let each = |row: &[u8]| self.row(number, level, &Frame::kept(number, row, outer), found);
            return match hash {
                None => disk.each(&mut keys.from, each),
                Some(hash) => disk.each_with((hash, &keys.key[..]), &mut keys.from, each),
            };
        }
        match hash {
            None => (0..relation.len()).try_for_each(|row| self.row(number, level, &frame(relation.row(row)), found)),
            Some(hash) => {
                relation.matching(hash, &keys.key).try_for_each(|row| self.row(number, level, &frame(row), found))
            }
        }
    }

    /// Makes the hash key of these values. Returns false if one is NULL, which equals no value.
    fn hash_key(&self, sought: &[Expr], outer: Option<&Frame<'_>>, key: &mut Vec<u8>) -> Result<bool, QueryError> {
        key.clear();
        let mut room = self.fixed.meter.row_room();
        for value in sought {
            let value = value.evaluate(&self.scope(outer))?;
            if value.is_null() {
                return Ok(false);
            }
            room.take(FieldValue::Value(value))?;
            sort::push_key(value, false, key)?;
        }
        Ok(true)
    }

    /// The elements of an array or the fields of an object.
    fn elements(
        &mut self,
        number: usize,
        level: &Level,
        (json, path): (&Expr, Option<&Expr>),
        outer: Option<&Frame<'_>>,
        keys: &mut LevelKeys,
        found: &mut bool,
    ) -> Flow {
        let (rows, ends) = (&mut keys.from, &mut keys.ends);
        let meter = self.fixed.meter;
        let before = meter.levels();
        each::rows(json, path, &self.scope(outer), (before, self.budget.memory_bytes_max), rows, ends)?;
        meter.set_levels(before + rows.len());
        let mut start = 0;
        let flow = ends.iter().try_for_each(|&end| {
            let row = &rows[start..end];
            start = end;
            let frame = Frame { level: number, key: &[], value: row, document: None, absent: false, outer };
            self.row(number, level, &frame, found)
        });
        meter.set_levels(before);
        keys.shrink();
        flow
    }

    /// Visits a range. If `visit` returns an end, the scan ends and returns it.
    #[inline]
    pub(super) fn scan(
        &mut self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        mut visit: impl FnMut(&mut Self, &[u8], &[u8]) -> Flow,
    ) -> Flow {
        let (mut flow, view) = (Ok(()), self.view);
        view.scan(tree, range, direction, &mut |key, value| match visit(self, key, value) {
            Ok(()) => ControlFlow::Continue(()),
            Err(end) => {
                flow = Err(end);
                ControlFlow::Break(())
            }
        })?;
        flow
    }

    /// Puts the key for a value into `out`. False if the value is no key.
    #[inline]
    fn key_bytes(
        &self,
        value: &Expr,
        kind: KeyType,
        outer: Option<&Frame<'_>>,
        out: &mut Vec<u8>,
    ) -> Result<bool, QueryError> {
        let value = value.evaluate(&self.scope(outer))?;
        out.clear();
        let Some(key) = as_key(value, kind) else { return Ok(false) };
        out.extend_from_slice(key.as_bytes());
        Ok(true)
    }

    /// One document by its key.
    #[inline]
    pub(super) fn document(
        &mut self,
        number: usize,
        level: &Level,
        key: &[u8],
        outer: Option<&Frame<'_>>,
        found: &mut bool,
    ) -> Flow {
        let view = self.view;
        let Some(stored) = view.get(level.tree, key)? else { return Ok(()) };
        let document = Some(parse_document(&stored)?);
        let frame = Frame { level: number, key, value: &[], document, absent: false, outer };
        self.row(number, level, &frame, found)
    }

    #[inline]
    fn index_entry(
        &mut self,
        number: usize,
        level: &Level,
        (entry, value): (&[u8], &[u8]),
        outer: Option<&Frame<'_>>,
        unescaped: &mut Vec<u8>,
        found: &mut bool,
    ) -> Flow {
        let frame = Frame { level: number, key: entry, value, document: None, absent: false, outer };
        if !level.fetch {
            return self.row(number, level, &frame, found);
        }
        if !self.passes(&level.before, &frame)? {
            self.note_read(number);
            workspace::empty(self.arena, self.fixed.meter);
            return self.count_row();
        }
        let key = primary_key(entry, level, unescaped)?;
        let view = self.view;
        let stored = view.get(level.tree, key.as_bytes())?;
        let stored = stored.ok_or(QueryError::Damaged("an index entry without its document"))?;
        let frame = Frame { document: Some(parse_document(&stored)?), ..frame };
        self.row(number, level, &frame, found)
    }

    /// A candidate row of the level. Afterwards the values computed for it are dropped, whether it passed or not; kept values
    /// were copied.
    #[inline(always)]
    fn row(&mut self, number: usize, level: &Level, frame: &Frame<'_>, found: &mut bool) -> Flow {
        let flow = self.candidate(number, level, frame, found);
        workspace::empty(self.arena, self.fixed.meter);
        flow
    }

    /// Evaluates the row's predicates and calls the next level.
    #[inline(always)]
    fn candidate(&mut self, number: usize, level: &Level, frame: &Frame<'_>, found: &mut bool) -> Flow {
        self.count_row()?;
        self.note_read(number);
        if !level.fetch && !self.passes(&level.before, frame)? {
            return Ok(());
        }
        if !self.passes(&level.after, frame)? {
            return Ok(());
        }
        *found = true;
        if level.left && !self.passes(&level.beyond, frame)? {
            return Ok(());
        }
        self.note_row(number);
        self.level(number + 1, Some(frame))
    }

    /// Makes the bounds of an index range; empty means unbounded. Returns false if no entry can match.
    pub(super) fn index_bounds(
        &self,
        equal: &[Expr],
        from: Option<&Limit>,
        to: Option<&Limit>,
        outer: Option<&Frame<'_>>,
        keys: &mut LevelKeys,
    ) -> Result<bool, QueryError> {
        let scope = self.scope(outer);
        let (mut room, low, high) = (self.fixed.meter.row_room(), &mut keys.from, &mut keys.to);
        low.clear();
        high.clear();
        for (place, value) in equal.iter().enumerate() {
            let Some(value) = bound_value(value, &scope, &mut room)? else { return Ok(false) };
            if place + 1 == equal.len() {
                high.extend_from_slice(low);
                if to.is_some() { order::lower(value, high) } else { order::upper(value, high) }
            }
            order::lower(value, low);
        }
        if let Some(limit) = to
            && !push_limit(limit, true, &scope, &mut room, high)?
        {
            return Ok(false);
        }
        let may_match = match (from, to) {
            (Some(limit), _) => push_limit(limit, false, &scope, &mut room, low)?,
            (None, Some(_)) => {
                // NULL sorts below every bound, but satisfies none.
                order::upper(Scalar::Null, low);
                true
            }
            (None, None) => true,
        };
        Ok(may_match && (high.is_empty() || low.as_slice() < high.as_slice()))
    }

    /// Makes one bound of a scan in key order. False if there is none: a value that is no key does not narrow the scan.
    pub(super) fn scan_bound(
        &self,
        value: Option<&Expr>,
        kind: KeyType,
        outer: Option<&Frame<'_>>,
        out: &mut Vec<u8>,
    ) -> Result<bool, QueryError> {
        match value {
            Some(value) => self.key_bytes(value, kind, outer, out),
            None => Ok(false),
        }
    }
}

/// Appends the bytes of a bound to `out`. They sort after all entries with the bound's values if `inclusive` equals `upper_if`,
/// and before all of them otherwise. False: a value is NULL, so no entry matches.
pub(super) fn push_limit<'a>(
    limit: &'a Limit,
    upper_if: bool,
    scope: &Scope<'a>,
    room: &mut RowRoom<'_>,
    out: &mut Vec<u8>,
) -> Result<bool, Fault> {
    let Some(mut last) = bound_value(&limit.value, scope, room)? else { return Ok(false) };
    let mut inclusive = limit.inclusive;
    for value in &limit.more {
        let Some(value) = bound_value(value, scope, room)? else {
            // Because of the NULL, entries equal to the values so far may match or not. They stay in the range, and the
            // predicate decides.
            inclusive = true;
            break;
        };
        order::lower(last, out);
        last = value;
    }
    if inclusive == upper_if {
        order::upper(last, out)
    } else {
        order::lower(last, out)
    }
    Ok(true)
}

/// The value of a bound; `None` for NULL, which equals no value.
#[inline]
fn bound_value<'a>(expr: &'a Expr, scope: &Scope<'a>, room: &mut RowRoom<'_>) -> Result<Option<Scalar<'a>>, Fault> {
    match expr.evaluate(scope)? {
        Value::Null => Ok(None),
        value => {
            room.take(FieldValue::Value(value))?;
            value.scalar().map(Some).ok_or(Fault::NotUtf8)
        }
    }
}

/// Inlined so that the document is built in place in the frame.
#[inline(always)]
pub(super) fn parse_document(stored: &[u8]) -> Result<StoredDocument<'_>, Fault> {
    match stored.get(STAMP_BYTES..).map(StoredDocument::from_bytes) {
        Some(Ok(document)) => Ok(document),
        _ => Err(Fault::Damaged("a document")),
    }
}

/// The document key in an index entry.
#[inline]
fn primary_key<'k>(entry: &'k [u8], level: &Level, unescaped: &'k mut Vec<u8>) -> Result<Key<'k>, QueryError> {
    const ENTRY: QueryError = QueryError::Damaged("an index entry");
    let mut rest = entry;
    for _ in 0..level.key_place {
        order::skip(&mut rest).ok_or(ENTRY)?;
    }
    let scalar = match order::decode_integer(rest) {
        Some(integer) => Scalar::Integer(integer),
        None => order::decode(&mut rest, unescaped).ok_or(ENTRY)?,
    };
    as_key(of_scalar(scalar), level.key).ok_or(ENTRY)
}
