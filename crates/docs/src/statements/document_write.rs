//! The write of one document by an INSERT, UPDATE or DELETE, and its RETURNING.

use bumpalo::Bump;

use super::applied::{ModifyError, StatementCounts};
use crate::catalog::FieldKind;
use crate::encoding::Key;
use crate::engine::{ReadView, STAMP_BYTES, Within, WriteTransaction};
use crate::error::WriteError;
use crate::expire::AtWrite;
use crate::sql::{
    Action, Assigned, Budget, Changing, Conversion, FieldValue, OnConflict, PreparedQuery, QueryError, RowList,
    Scratch, Upsert, Value, as_key, excluded_field, json_fields, of_scalar, take_field, write_field,
};
use crate::writes::{Collection, InTheWay, LongCheck, Op, Precondition, scratch, write};

/// The RETURNING of written documents.
pub(super) struct Returning<'t> {
    pub(super) returning: Option<&'t PreparedQuery>,
    /// Parameters of the statement, and the key of a document.
    pub(super) parameters: Vec<Value<'t>>,
    /// Memory for the texts of keys.
    pub(super) keys: &'t Bump,
    pub(super) budget: &'t Budget<'t>,
    pub(super) returned: &'t mut RowList,
    /// The statement's counts so far: RETURNING and DO UPDATE read within the remaining rows.
    pub(super) done: StatementCounts,
}

impl Returning<'_> {
    fn add_row(&mut self, view: &dyn ReadView, key: Value<'_>, scratch: &mut Scratch) -> Result<(), QueryError> {
        let (Some(returning), Some(last)) = (self.returning, self.parameters.last_mut()) else { return Ok(()) };
        *last = match key {
            Value::Text(text) => Value::Text(self.keys.alloc_slice_copy(text)),
            Value::Integer(integer) => Value::Integer(integer),
            Value::Null | Value::Real(_) => return Err(QueryError::Damaged("a key")),
        };
        self.done.execute((returning, view), &self.parameters, scratch, self.budget, self.returned)
    }
}

/// The names of the assigned fields, quoted as documents store them.
#[derive(Debug)]
pub(super) struct QuotedNames {
    fields: Vec<Vec<u8>>,
    /// The names of the fields that DO UPDATE assigns.
    upsert: Vec<Vec<u8>>,
}

impl QuotedNames {
    pub(super) fn of(changing: &Changing<PreparedQuery>) -> QuotedNames {
        let quoted = |name: &String| {
            let mut quoted = Vec::new();
            write_field(FieldValue::Value(Value::text(name)), &mut quoted);
            quoted
        };
        let upsert = changing.upsert.iter().flat_map(|upsert| &upsert.fields);
        QuotedNames { fields: changing.fields.iter().map(quoted).collect(), upsert: upsert.map(quoted).collect() }
    }
}

/// The write of one document.
pub(super) struct DocumentWrite<'o, C> {
    pub(super) changing: &'o Changing<PreparedQuery>,
    /// Parameters of the statement.
    pub(super) parameters: &'o [Value<'o>],
    pub(super) collection: &'o Collection,
    pub(super) change: &'o mut C,
    pub(super) forms: &'o [Conversion],
    pub(super) at: &'o AtWrite,
    pub(super) names: &'o QuotedNames,
}

impl<C: WriteTransaction> DocumentWrite<'_, C> {
    /// Returns whether a document was written: a new one may be skipped.
    pub(super) fn write(
        &mut self,
        mut row: &[u8],
        returning: &mut Returning<'_>,
        scratch: &mut Scratch,
    ) -> Result<bool, ModifyError> {
        if self.changing.action == Action::Insert {
            let Some(prepared) = self.insert(&mut row, (returning.budget, &mut returning.done), scratch)? else {
                return Ok(false);
            };
            let kind = self.collection.info.key.kind;
            let key = kind.of_bytes(&prepared).ok_or(QueryError::Damaged("a key"))?;
            returning.add_row(&Within::new(&mut *self.change), value_of(&key), scratch)?;
            return Ok(true);
        }
        // A subquery may have needed the key as stored JSON.
        let key = take_field(&mut row).decode_kept(returning.keys).map_err(QueryError::from)?;
        let stored = as_key(key, self.collection.info.key.kind).ok_or(QueryError::Damaged("a key"))?;
        if self.changing.action == Action::Delete {
            returning.add_row(&Within::new(&mut *self.change), key, scratch)?;
            self.apply(&Op::Delete { key: stored.as_bytes().to_vec() }, returning.budget)?;
            return Ok(true);
        }
        let text = self.text_of(stored.as_bytes())?;
        let body = laid_out(&text, &self.names.fields, &self.values(&mut row));
        self.apply(&Op::Replace { key: stored.as_bytes().to_vec(), body }, returning.budget)?;
        returning.add_row(&Within::new(&mut *self.change), key, scratch)?;
        Ok(true)
    }

    /// Stores a new document, resolving conflicts as [`OnConflict`] says. Returns its key, or `None` if it is skipped.
    fn insert(
        &mut self,
        row: &mut &[u8],
        (budget, done): (&Budget<'_>, &mut StatementCounts),
        scratch: &mut Scratch,
    ) -> Result<Option<Vec<u8>>, ModifyError> {
        let values = self.values(row);
        let op = Op::Insert { body: laid_out(b"{}", &self.names.fields, &values) };
        if self.changing.on_conflict == OnConflict::Refuse {
            return self.apply(&op, budget).map(Some);
        }
        let (collection, change, written) = (self.collection, &mut *self.change, (&op, self.at));
        let target = match &self.changing.on_conflict {
            OnConflict::LeaveOut(fields) | OnConflict::Update(fields) => Some(fields.as_deref()),
            OnConflict::Refuse | OnConflict::Replace => None,
        };
        let mut in_the_way = scratch::with(|scratch| {
            scratch.long_check = LongCheck::in_share();
            write::in_the_way(collection, written, target.flatten(), change, scratch)
        })?;
        if let Some(target) = target {
            let counts = |other: &&write::InTheWay| target.is_none_or(|fields| *fields == other.fields);
            return match (in_the_way.iter().find(counts), &self.changing.upsert) {
                (None, _) => self.apply(&op, budget).map(Some),
                (Some(_), None) => Ok(None),
                (Some(InTheWay { stuck: Some(why), .. }), Some(_)) => Err(why.clone().into()),
                (Some(other), Some(upsert)) => self.change_stored(&other.key, upsert, &values, (budget, done), scratch),
            };
        }
        if let Some(why) = in_the_way.iter_mut().find_map(|other| other.stuck.take()) {
            return Err(why.into());
        }
        let own = in_the_way.iter().find(|other| other.is_key).map(|other| other.key.clone());
        let mut gone: Vec<&[u8]> = Vec::new();
        for other in in_the_way.iter().filter(|other| own.as_ref() != Some(&other.key)) {
            // Two unique values may belong to one document.
            if !gone.contains(&&*other.key) {
                self.apply(&Op::Delete { key: other.key.clone() }, budget)?;
                gone.push(&other.key);
            }
        }
        match (own, op) {
            // It is replaced in place, so that references to it remain valid.
            (Some(key), Op::Insert { body }) => self.apply(&Op::Replace { key, body }, budget).map(Some),
            (_, op) => self.apply(&op, budget).map(Some),
        }
    }

    /// Updates a stored document by DO UPDATE. Returns its key, or `None` if WHERE is not true.
    fn change_stored(
        &mut self,
        stored: &[u8],
        upsert: &Upsert<PreparedQuery>,
        new: &[Option<Vec<u8>>],
        (budget, done): (&Budget<'_>, &mut StatementCounts),
        scratch: &mut Scratch,
    ) -> Result<Option<Vec<u8>>, ModifyError> {
        let key = self.collection.info.key.kind.of_bytes(stored).ok_or(QueryError::Damaged("a key"))?;
        let (arena, mut known) = (Bump::new(), self.parameters.iter());
        let mut given = Vec::new();
        for name in upsert.query.parameters() {
            given.push(match excluded_field(name) {
                Some((field, as_json)) => {
                    match self.changing.fields.iter().position(|known| known == field).map(|place| &new[place]) {
                        Some(Some(json)) if as_json => Value::Text(json),
                        Some(Some(json)) => FieldValue::Json(json).decode_kept(&arena).map_err(QueryError::from)?,
                        _ => Value::Null,
                    }
                }
                None if name.is_empty() => value_of(&key),
                None => known.next().copied().unwrap_or(Value::Null),
            });
        }
        let mut made = RowList::default();
        done.execute((&upsert.query, &Within::new(&mut *self.change)), &given, scratch, budget, &mut made)?;
        let Some(mut row) = made.rows().next() else { return Ok(None) };
        let row = &mut row;
        let values: Vec<Option<Vec<u8>>> = upsert
            .fields
            .iter()
            .zip(&upsert.values)
            .map(|(name, given)| match *given {
                Assigned::Made(form) => self.value(name, form, row),
                Assigned::New(place) => {
                    take_field(row);
                    place.and_then(|place| new[place].clone())
                }
            })
            .collect();
        let text = self.text_of(stored)?;
        let op = Op::Replace { key: stored.to_vec(), body: laid_out(&text, &self.names.upsert, &values) };
        self.apply(&op, budget).map(Some)
    }

    /// The text of the stored document with this key. Refused if other writers wait and the document is too long for that.
    fn text_of(&mut self, key: &[u8]) -> Result<Vec<u8>, ModifyError> {
        let old = self.change.get(self.collection.info.tree, key)?;
        let old = old.ok_or(QueryError::Damaged("a document"))?;
        LongCheck::in_share().bound_stored(old.len())?;
        let document = old.get(STAMP_BYTES..).and_then(|bytes| binjson::StoredDocument::from_bytes(bytes).ok());
        Ok(document.ok_or(QueryError::Damaged("a document"))?.text().to_vec())
    }

    fn apply(&mut self, op: &Op, budget: &Budget<'_>) -> Result<Vec<u8>, ModifyError> {
        let (collection, change, op) = (self.collection, &mut *self.change, (op, self.at));
        let prepared = scratch::with(|scratch| {
            scratch.long_check = LongCheck::in_share();
            write::apply(collection, op, &Precondition::None, change, scratch)
        });
        match prepared {
            Ok(prepared) => Ok(prepared.key),
            // The deadline may have ended the schema check: see `schema::with_cancel_check`.
            Err(WriteError::Invalid { .. }) if budget.deadline.is_some_and(|over| over()) => {
                Err(QueryError::Deadline.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The values of a row, each as JSON; `None` for NULL.
    fn values(&self, row: &mut &[u8]) -> Vec<Option<Vec<u8>>> {
        self.changing.fields.iter().zip(self.forms).map(|(name, form)| self.value(name, *form, row)).collect()
    }

    /// A field's value as JSON; `None` for NULL.
    fn value(&self, name: &str, form: Conversion, row: &mut &[u8]) -> Option<Vec<u8>> {
        let truths = self.collection.info.field(name).is_some_and(|field| field.kind == FieldKind::Boolean);
        let mut out = Vec::new();
        match (take_field(row), form) {
            (FieldValue::Value(Value::Null), _) => return None,
            (FieldValue::Json(b"null"), _) => return None,
            (FieldValue::Value(Value::Integer(integer)), _)
                if form == Conversion::Truth || (truths && (0..2).contains(&integer)) =>
            {
                out.extend_from_slice(if integer == 0 { b"false" } else { b"true" });
            }
            (FieldValue::Value(Value::Text(text)), Conversion::Json) => out.extend_from_slice(text),
            (FieldValue::Value(Value::Text(text)), Conversion::Extracted)
                if matches!(text.first(), Some(b'{' | b'[')) =>
            {
                out.extend_from_slice(text);
            }
            (field, _) => write_field(field, &mut out),
        }
        Some(out)
    }
}

/// A document's text with new values: each at its field's old place, or at the end. Fields whose new value is NULL are removed.
fn laid_out(old: &[u8], names: &[Vec<u8>], values: &[Option<Vec<u8>>]) -> Vec<u8> {
    let mut out = vec![b'{'];
    let mut push = |name: &[u8], value: &[u8]| {
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(name);
        out.push(b':');
        out.extend_from_slice(value);
    };
    let mut placed = vec![false; names.len()];
    for (name, value) in json_fields(old) {
        match names.iter().position(|new| new == name) {
            None => push(name, value),
            Some(place) => {
                placed[place] = true;
                if let Some(value) = &values[place] {
                    push(name, value);
                }
            }
        }
    }
    for (place, name) in names.iter().enumerate().filter(|(place, _)| !placed[*place]) {
        if let Some(value) = &values[place] {
            push(name, value);
        }
    }
    out.push(b'}');
    out
}

pub(super) fn value_of<'k>(key: &Key<'k>) -> Value<'k> {
    of_scalar(key.scalar())
}
