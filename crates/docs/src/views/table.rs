//! Views as tables for queries.
//!
//! Queries are planned over a view as over a collection with a closed list of fields, and with an index over the values of
//! GROUP BY that includes all fields. Both have virtual tree numbers (`catalog/view_trees.rs`). The engine view given to
//! queries ([`WithViews`]) makes documents and index entries from the view's rows as they are read. So ranges, order and
//! covering indexes are planned as usual, and stored rows stay small.

use std::borrow::Cow;
use std::ops::{Bound, ControlFlow};

use binjson::Encoder;

use super::Views;
use super::definition::{Definition, Shown};
use super::state::{DecodedState, Sum, WrittenForm};
use super::view::View;
use crate::catalog::view_trees::{document_tree, index_tree, is_index, is_table, place, wants};
use crate::catalog::{CollectionInfo, FieldInfo, FieldKind, IndexInfo, KeyInfo, Readiness};
use crate::encoding::{KeyType, Scalar, index, order};
use crate::engine::{self, Direction, Entries, KeyRange, STAMP_BYTES, TreeId};
use crate::sql::{FieldValue, IntegerOverflow, Value, write_field};

/// A view as a catalog entry for queries.
pub(crate) fn info(name: &str, definition: &Definition, place: usize) -> CollectionInfo {
    let all: Vec<String> = definition.columns.iter().map(|(name, _)| name.clone()).collect();
    let group_field = |group: usize| {
        let column = definition.columns.iter().find(|(_, shown)| *shown == Shown::Group(group));
        column.map(|(name, _)| name.clone())
    };
    let grouping = &definition.grouping;
    let fields = all.iter().zip(&grouping.types).map(|(name, types)| FieldInfo {
        name: name.clone(),
        kind: FieldKind::Computed(*types),
        required: false,
    });
    CollectionInfo {
        name: name.to_string(),
        tree: document_tree(place),
        // No field has an empty name, so no query finds rows by this key.
        key: KeyInfo { field: String::new(), kind: KeyType::String, generate: None },
        schema: None,
        fields: fields.collect(),
        closed: true,
        indexes: match grouping.group_len() {
            0 => Vec::new(),
            groups => vec![IndexInfo {
                fields: (0..groups).filter_map(group_field).collect(),
                included: all.clone(),
                tree: index_tree(place),
                readiness: Readiness::default(),
                is_standing: false,
            }],
        },
        unique: Vec::new(),
        references: Vec::new(),
        expire: None,
        // A subtotal has NULL for the columns that it sums over, and NULL may also be a group's value.
        identity: (!grouping.rolls_up).then(|| (0..grouping.group_len()).filter_map(group_field).collect()),
    }
}

/// An engine's view that includes the tables of views.
pub(crate) struct WithViews<'v, V> {
    pub(crate) inner: V,
    pub(crate) views: &'v Views,
    /// See [`engine::ReadView::ready_by`].
    pub(crate) ready_by: u64,
}

#[allow(clippy::type_complexity, reason = "as for the trait")]
impl<V: engine::ReadView> engine::ReadView for WithViews<'_, V> {
    #[inline]
    fn ready_by(&self) -> u64 {
        self.ready_by
    }
    #[inline]
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, engine::StoreError> {
        if is_table(tree) { Ok(None) } else { self.inner.get(tree, key) }
    }

    #[inline]
    fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), engine::StoreError> {
        if is_table(tree) {
            return self.scan_table(tree, range, direction, visit);
        }
        self.inner.scan(tree, range, direction, visit)
    }

    fn visit_first(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), engine::StoreError> {
        if !is_table(tree) {
            return self.inner.visit_first(tree, range, direction, visit);
        }
        self.scan_table(tree, range, direction, &mut |key, value| {
            visit(key, value);
            ControlFlow::Break(())
        })
    }

    #[inline]
    fn scan_leaves<'s>(
        &'s self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&Entries<'s>) -> ControlFlow<()>,
    ) -> Result<bool, engine::StoreError> {
        if is_table(tree) { Ok(false) } else { self.inner.scan_leaves(tree, range, direction, visit) }
    }

    #[inline]
    fn get_all<'s>(
        &'s self,
        tree: TreeId,
        keys: &[[u8; 4]],
        values: &mut [Option<&'s [u8]>],
    ) -> Result<bool, engine::StoreError> {
        if is_table(tree) { Ok(false) } else { self.inner.get_all(tree, keys, values) }
    }

    fn across(&self) -> Option<Box<dyn engine::ReadView + Sync + '_>> {
        let inner = self.inner.across()?;
        Some(Box::new(WithViews { inner, views: self.views, ready_by: self.ready_by }))
    }

    fn cuts(&self, tree: TreeId, range: KeyRange<'_>, count: usize) -> Result<Vec<Vec<u8>>, engine::StoreError> {
        if is_table(tree) { Ok(Vec::new()) } else { self.inner.cuts(tree, range, count) }
    }

    fn entries_about(&self, tree: TreeId, range: KeyRange<'_>) -> Result<Option<u64>, engine::StoreError> {
        if is_table(tree) { Ok(None) } else { self.inner.entries_about(tree, range) }
    }
}

#[allow(clippy::type_complexity, reason = "as for the trait")]
impl<V: engine::ReadView> WithViews<'_, V> {
    fn scan_table(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), engine::StoreError> {
        let view = self.views.serving(place(tree), &self.inner)?;
        let as_entry = is_index(tree);
        let wanted: Vec<bool> = (0..view.definition.columns.len()).map(|column| wants(tree, column)).collect();
        each_row(view, &self.inner, &wanted, (range, direction), &mut |key, row| {
            match as_entry {
                true => row.entry(),
                false => row.document(view)?,
            }
            Ok(visit(if row.key.is_empty() { key } else { &row.key }, &row.value))
        })
    }
}

/// Visits a view's row; the first argument is the key of its group.
type VisitRow<'v> = dyn FnMut(&[u8], &mut Rendered) -> Result<ControlFlow<()>, engine::StoreError> + 'v;

/// Visits a view's rows in the order of their groups. Unwanted columns are NULL.
fn each_row(
    view: &View,
    engine: &impl engine::ReadView,
    wanted: &[bool],
    (range, direction): (KeyRange<'_>, Direction),
    visit: &mut VisitRow<'_>,
) -> Result<(), engine::StoreError> {
    let mut row = Rendered::default();
    let mut show = |key: &[u8], state: &[u8]| {
        row.render(view, engine, &|column| wanted[column], key, state)?;
        visit(key, &mut row)
    };
    let always = match view.definition.always().filter(|key| is_within(range, key)) {
        Some(key) if engine.get(view.groups, &key)?.is_none() => Some(key),
        _ => None,
    };
    // The key of the row that always exists is the first in the tree.
    if direction == Direction::Forward
        && let Some(key) = &always
        && show(key, &[])?.is_break()
    {
        return Ok(());
    }
    let (mut failure, mut is_ended) = (None, false);
    engine.scan(view.groups, range, direction, &mut |key, state| {
        let flow = show(key, state).unwrap_or_else(|error| {
            failure = Some(error);
            ControlFlow::Break(())
        });
        is_ended = flow.is_break();
        flow
    })?;
    if let Some(error) = failure {
        return Err(error);
    }
    if direction == Direction::Backward
        && !is_ended
        && let Some(key) = &always
    {
        let _ = show(key, &[])?;
    }
    Ok(())
}

pub(crate) fn is_within(range: KeyRange<'_>, key: &[u8]) -> bool {
    let above = match range.from {
        Bound::Unbounded => true,
        Bound::Included(from) => key >= from,
        Bound::Excluded(from) => key > from,
    };
    let below = match range.to {
        Bound::Unbounded => true,
        Bound::Included(to) => key <= to,
        Bound::Excluded(to) => key < to,
    };
    above && below
}

/// Visits a view's row as a stored document; the first argument is the key of its group.
pub(crate) type VisitStored<'v> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'v;

/// Visits a view's rows after the given key as stored documents, in order of their groups' keys. Used to build and verify upper
/// views.
pub(crate) fn each_document(
    view: &View,
    engine: &impl engine::ReadView,
    wanted: &[bool],
    behind: Option<&[u8]>,
    visit: &mut VisitStored<'_>,
) -> Result<(), engine::StoreError> {
    let range = KeyRange { from: behind.map_or(Bound::Unbounded, Bound::Excluded), to: Bound::Unbounded };
    each_row(view, engine, wanted, (range, Direction::Forward), &mut |key, row| {
        row.document(view)?;
        Ok(visit(key, &row.value))
    })
}

/// One of these rows, by the key of its group.
pub(crate) fn document(
    view: &View,
    engine: &impl engine::ReadView,
    wanted: &[bool],
    key: &[u8],
    row: &mut Rendered,
    out: &mut Vec<u8>,
) -> Result<(), engine::StoreError> {
    let state = engine.get(view.groups, key)?;
    if state.is_none() && view.definition.always().is_none_or(|always| always != key) {
        return Ok(());
    }
    row.render(view, engine, &|column| wanted[column], key, &state.unwrap_or_default())?;
    row.document(view)?;
    out.extend_from_slice(&row.value);
    Ok(())
}

/// A row of a view as JSON, column by column, and its form for a query.
#[derive(Default)]
pub(crate) struct Rendered {
    json: Vec<u8>,
    ends: Vec<usize>,
    /// The group's values with their forms; empty if the row's own key is the same.
    key: Vec<u8>,
    value: Vec<u8>,
    /// The group's values as they are displayed.
    group: Vec<(usize, usize)>,
    encoder: Encoder,
}

impl Rendered {
    /// Bytes of memory that grow with rows.
    pub(super) fn held_bytes(&self) -> usize {
        let numbers = self.ends.capacity() * size_of::<usize>() + self.group.capacity() * size_of::<(usize, usize)>();
        self.json.capacity() + self.key.capacity() + self.value.capacity() + numbers
    }

    pub(super) fn render(
        &mut self,
        view: &View,
        engine: &impl engine::ReadView,
        wanted: &dyn Fn(usize) -> bool,
        key: &[u8],
        state: &[u8],
    ) -> Result<(), engine::StoreError> {
        self.json.clear();
        self.ends.clear();
        self.key.clear();
        let state = DecodedState::read(state).ok_or_else(|| damaged(view))?;
        self.render_group(view, &state, key).ok_or_else(|| damaged(view))?;
        let group_end = self.json.len();
        for (number, (_, shown)) in view.definition.columns.iter().enumerate() {
            match *shown {
                _ if !wanted(number) => write_value(Value::Null, &mut self.json),
                Shown::Group(place) => {
                    let (from, to) = self.group[place];
                    self.json.extend_from_within(from..to);
                }
                Shown::Min(facet) => self.extreme(view, engine, key, facet, Direction::Forward)?,
                Shown::Max(facet) => self.extreme(view, engine, key, facet, Direction::Backward)?,
                other => write_value(aggregate(other, &state).ok_or_else(|| overflow(view))?, &mut self.json),
            }
            self.ends.push(self.json.len() - group_end);
        }
        self.json.drain(..group_end);
        Ok(())
    }

    /// Writes the group's values to the front of `json`, and the key that includes their forms.
    fn render_group(&mut self, view: &View, state: &DecodedState, key: &[u8]) -> Option<()> {
        self.group.clear();
        let mut rest = key;
        for place in 0..view.definition.grouping.group_len() {
            let mut text = Vec::new();
            let mut next = rest;
            let scalar = order::decode(&mut next, &mut text)?;
            let from = self.json.len();
            let (shown, form) = (shown(scalar, state.form(place)), state.form(place));
            match (form, shown) {
                (Some(WrittenForm::Boolean), Value::Integer(truth)) => {
                    self.json.extend_from_slice(if truth == 0 { b"false" } else { b"true" });
                }
                (Some(WrittenForm::Json), Value::Text(json)) => self.json.extend_from_slice(json),
                (_, value) => write_value(value, &mut self.json),
            }
            if state.has_forms() {
                order::encode(shown.scalar()?, &mut self.key);
            }
            self.group.push((from, self.json.len()));
            order::skip(&mut rest)?;
        }
        if !self.key.is_empty() {
            self.key.extend_from_slice(rest);
        }
        (rest.len() == usize::from(view.definition.has_level_in_key())).then_some(())
    }

    /// The first or the last value of a facet.
    fn extreme(
        &mut self,
        view: &View,
        engine: &impl engine::ReadView,
        group: &[u8],
        facet: usize,
        direction: Direction,
    ) -> Result<(), engine::StoreError> {
        let bound = |after: u8| [group, &[after]].concat();
        let (from, to) = (bound(facet as u8), bound(facet as u8 + 1));
        let range = KeyRange { from: Bound::Included(&from), to: Bound::Excluded(&to) };
        let mut found = Some(false);
        engine.visit_first(view.values, range, direction, &mut |key, _| {
            let mut text = Vec::new();
            let mut rest = key.get(from.len()..).unwrap_or_default();
            found = order::decode(&mut rest, &mut text).map(|scalar| {
                write_value(shown(scalar, None), &mut self.json);
                true
            });
        })?;
        match found {
            None => return Err(damaged(view)),
            Some(true) => {}
            Some(false) => write_value(Value::Null, &mut self.json),
        }
        Ok(())
    }

    fn columns(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(from, to)| &self.json[from..*to])
    }

    /// Encodes an entry of the index over GROUP BY.
    fn entry(&mut self) {
        let mut value = std::mem::take(&mut self.value);
        value.clear();
        self.columns().for_each(|json| index::include(json, &mut value));
        self.value = value;
    }

    /// Encodes a stored document.
    fn document(&mut self, view: &View) -> Result<(), engine::StoreError> {
        let mut text = Vec::new();
        self.object(&view.definition, &mut text);
        self.value.clear();
        self.value.extend_from_slice(&[0; STAMP_BYTES]);
        self.encoder.encode(&text, &mut self.value).map_err(|_| damaged(view))?;
        self.key.clear();
        Ok(())
    }

    /// Writes the text of a JSON object.
    pub(super) fn object(&self, definition: &Definition, out: &mut Vec<u8>) {
        out.push(b'{');
        for (number, (json, label)) in self.columns().zip(&definition.labels).enumerate() {
            if number > 0 {
                out.push(b',');
            }
            out.extend_from_slice(label);
            out.extend_from_slice(json);
        }
        out.push(b'}');
    }
}

/// The value in a group's key, in the form that its rows had.
fn shown(scalar: Scalar<'_>, form: Option<WrittenForm>) -> Value<'_> {
    match (scalar, form) {
        (Scalar::Integer(_), Some(WrittenForm::NegativeZero)) => Value::Real(-0.0),
        (Scalar::Integer(integer), Some(WrittenForm::Real)) => Value::Real(integer as f64),
        (Scalar::Integer(integer), _) => Value::Integer(integer),
        (Scalar::Real(real), _) => Value::Real(real),
        (Scalar::Text(text), _) => Value::text(text),
        (Scalar::Null, _) => Value::Null,
    }
}

/// `None`: a sum of integers outside 64 bits, which is an error in any query.
fn aggregate(shown: Shown, state: &DecodedState) -> Option<Value<'static>> {
    let nan_is_null = |real: f64| if real.is_nan() { Value::Null } else { Value::Real(real) };
    let some = |slot: usize| state.sum(slot).filter(|sum| sum.count() != 0);
    Some(match shown {
        Shown::Rows => Value::Integer(state.rows),
        Shown::Count(slot) => Value::Integer(state.count(slot)),
        Shown::Distinct(slot) => Value::Integer(state.distinct(slot)),
        Shown::Sum(slot) => match some(slot).map(|sum| (sum, sum.integer())) {
            None => Value::Null,
            Some((_, Some(integer))) => Value::Integer(i64::try_from(integer).ok()?),
            Some((sum, None)) => nan_is_null(sum.real()),
        },
        Shown::Avg(slot) => some(slot).map_or(Value::Null, |sum| nan_is_null(sum.real() / sum.count() as f64)),
        Shown::Total(slot) => nan_is_null(some(slot).map_or(0.0, Sum::real)),
        Shown::Group(_) | Shown::Min(_) | Shown::Max(_) => Value::Null,
    })
}

/// As JSON; an infinity as a number that is read back as one.
fn write_value(value: Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Real(real) if real.is_infinite() => out.extend_from_slice(if real > 0.0 { b"9e999" } else { b"-9e999" }),
        value => write_field(FieldValue::Value(value), out),
    }
}

#[cold]
fn damaged(view: &View) -> engine::StoreError {
    let source = std::io::Error::other("a row is damaged");
    engine::StoreError::Io { context: format!("view {}", view.name), source: source.into() }
}

#[cold]
fn overflow(view: &View) -> engine::StoreError {
    let source = std::io::Error::other(IntegerOverflow);
    engine::StoreError::Io { context: format!("view {}", view.name), source: source.into() }
}
