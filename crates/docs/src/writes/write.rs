//! Writes: insert, update (merge patch), replace, put, delete; each is one transaction with all its checks.
//!
//! The checks run in this order: existence of the target, the precondition, the body (JSON, schema, key, references), conflicts
//! with other stored documents (key in use, unique values). The first failure is returned, and the write changes nothing.
//!
//! Invariants that a write maintains, in the same transaction:
//!
//! - Each index has exactly one entry for the document. Each unique tree has one if its fields are present and not null.
//! - Each view of the collection includes the document's contribution ([`crate::views`]).
//! - Each reference that is not null names a stored document that had not expired when the reference was written, and a
//!   referenced document cannot be deleted.
//! - A write that leaves the document byte for byte the same changes nothing, not even the change number. Exception: if
//!   documents expire by their last write, a write in a later second updates the mark.

use binjson::{Encoder, StoredDocument};

use super::collection::Collection;
use super::long_check::LongCheck;
use super::made_keys::Keys;
use super::scratch::{WriteBuffers, WriteScratch};
use super::{entries, integrity};
use crate::catalog::ReadinessState;
use crate::encoding::Key;
use crate::encoding::row::key_value;
use crate::engine::{STAMP_BYTES, WriteTransaction};
use crate::error::WriteError;
use crate::expire::{AtWrite, ExpiryLimit};
use crate::views;

/// An operation on a document.
#[derive(Clone, Debug)]
pub enum Op {
    /// Store a new document; the key is in the body, unless the collection generates keys.
    Insert {
        /** JSON. */
        body: Vec<u8>,
    },
    /// Change fields by a merge patch (RFC 7396) that does not name the key.
    Update {
        /** The key's stored bytes. */
        key: Vec<u8>,
        /** JSON. */
        patch: Vec<u8>,
    },
    /// The same, but the patch may repeat the unchanged key, as when a client sends back a document that it read.
    Patch {
        /** The key's stored bytes. */
        key: Vec<u8>,
        /** JSON. */
        patch: Vec<u8>,
    },
    /// Replace an existing document.
    Replace {
        /** The key's stored bytes. */
        key: Vec<u8>,
        /** JSON. */
        body: Vec<u8>,
    },
    /// Store a document under a key, whether or not one exists.
    Put {
        /** The key's stored bytes. */
        key: Vec<u8>,
        /** JSON. */
        body: Vec<u8>,
    },
    /// Remove a document.
    Delete {
        /** The key's stored bytes. */
        key: Vec<u8>,
    },
}

impl Op {
    /// Size of its JSON in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Op::Insert { body } | Op::Replace { body, .. } | Op::Put { body, .. } => body.len(),
            Op::Update { patch, .. } | Op::Patch { patch, .. } => patch.len(),
            Op::Delete { .. } => 0,
        }
    }
}

/// A condition on the stored document that is checked first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Precondition {
    /// No condition.
    #[default]
    None,
    /// It exists (`If-Match: *`).
    Exists,
    /// It does not exist (`If-None-Match: *`).
    Absent,
    /// Its change number is one of these (`If-Match`).
    Matches(Vec<u64>),
    /// Its change number is none of these (`If-None-Match`).
    Differs(Vec<u64>),
}

/// Result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The new change number of the document (after a delete: that of the deletion).
    pub change_number: u64,
    /// Whether the document is new.
    pub created: bool,
    /// The key's stored bytes.
    pub key: Vec<u8>,
}

/// Result of a prepared write, without its change number.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// The old change number, if nothing changes.
    pub(crate) unchanged: Option<u64>,
    pub(crate) created: bool,
    pub(crate) key: Vec<u8>,
}

/// Checks one write and puts its changes into the transaction. An expired target is removed first, as if it did not exist.
#[inline]
pub(crate) fn apply<C: WriteTransaction>(
    collection: &Collection,
    (op, at): (&Op, &AtWrite),
    precondition: &Precondition,
    change: &mut C,
    scratch: &mut WriteScratch,
) -> Result<Prepared, WriteError> {
    scratch.long_check.bound_again(op.bytes())?;
    if let Some(due) = &at.due {
        clear_due(collection, op, due, change, scratch)?;
    }
    apply_to_all(collection, (op, at), precondition, change, scratch)
}

/// Removes the target of a write if it has expired.
#[inline(never)]
fn clear_due<C: WriteTransaction>(
    collection: &Collection,
    op: &Op,
    due: &ExpiryLimit,
    change: &mut C,
    scratch: &mut WriteScratch,
) -> Result<(), WriteError> {
    let key = match op {
        Op::Insert { body } => {
            // The insert itself reports an invalid body.
            let buffers = &mut scratch.buffers;
            if encode(&mut scratch.encoder, body, &mut buffers.new, &scratch.long_check).is_err() {
                return Ok(());
            }
            let key = collection.with_row(document(&buffers.new)?, &mut scratch.shape, |row| {
                let plain = collection.key_of(row)?;
                collection.info.key.kind.of_scalar(plain.scalar()).map(|key| key.as_bytes().to_vec())
            });
            match key {
                Some(key) => key,
                None => return Ok(()),
            }
        }
        Op::Update { key, .. }
        | Op::Patch { key, .. }
        | Op::Replace { key, .. }
        | Op::Put { key, .. }
        | Op::Delete { key } => key.clone(),
    };
    if is_due(collection, due, &key, change, scratch)? {
        let delete = (&Op::Delete { key }, &AtWrite::default());
        let cleared = apply_to_all(collection, delete, &Precondition::None, change, scratch);
        // If other documents refer to the expired one, it stays hidden and the write fails.
        cleared.map(drop)?;
    }
    Ok(())
}

/// A stored document that prevents an insert: the fields that have the same values, and its key.
pub(crate) struct InTheWay {
    pub(crate) fields: Vec<String>,
    pub(crate) key: Vec<u8>,
    /// The field is the primary key.
    pub(crate) is_key: bool,
    /// It has expired but cannot be removed, for this reason.
    pub(crate) stuck: Option<WriteError>,
}

/// The documents that would make an insert fail: by its key, and by its unique values. If the new document is itself invalid
/// the list may be empty; the insert reports that. Changes nothing except that expired documents are removed.
///
/// `target` has the fields that the caller asks for; without it the caller asks for the key and all unique fields. If one of
/// those unique fields is not ready, its index lacks stored documents, so an insert with a value of it is refused.
pub(crate) fn in_the_way<C: WriteTransaction>(
    collection: &Collection,
    (op, at): (&Op, &AtWrite),
    target: Option<&[String]>,
    change: &mut C,
    scratch: &mut WriteScratch,
) -> Result<Vec<InTheWay>, WriteError> {
    let Op::Insert { body } = op else { return Ok(Vec::new()) };
    scratch.long_check.bound_again(op.bytes())?;
    let mut found = alike(collection, (body, target), change, scratch)?;
    let Some(due) = &at.due else { return Ok(found) };
    let mut gone: Vec<Vec<u8>> = Vec::new();
    for other in &mut found {
        if gone.contains(&other.key) || !is_due(collection, due, &other.key, change, scratch)? {
            continue;
        }
        let delete = (&Op::Delete { key: other.key.clone() }, &AtWrite::default());
        match apply_to_all(collection, delete, &Precondition::None, change, scratch) {
            Ok(_) => gone.push(other.key.clone()),
            // Another document refers to it.
            Err(error @ WriteError::Conflict { .. }) => other.stuck = Some(error),
            Err(error) => return Err(error),
        }
    }
    found.retain(|other| !gone.contains(&other.key));
    Ok(found)
}

/// The stored documents that have the new document's key, or one of its unique values.
fn alike<C: WriteTransaction>(
    collection: &Collection,
    (body, target): (&[u8], Option<&[String]>),
    change: &mut C,
    scratch: &mut WriteScratch,
) -> Result<Vec<InTheWay>, WriteError> {
    let WriteScratch { encoder, buffers, shape, long_check, .. } = scratch;
    if encode(encoder, body, &mut buffers.new, long_check).is_err() {
        return Ok(Vec::new());
    }
    let (new, entry) = (document(&buffers.new)?, &mut buffers.entries.new_key);
    collection.with_row(new, shape, |row| {
        let mut found = Vec::new();
        let mut put = |fields: &[String], key: &[u8], is_key| {
            found.push(InTheWay { fields: fields.to_vec(), key: key.to_vec(), is_key, stuck: None });
        };
        let plain = collection.key_of(row);
        if let Some(key) = plain.as_ref().and_then(|plain| collection.info.key.kind.of_scalar(plain.scalar()))
            && change.get(collection.info.tree, key.as_bytes())?.is_some()
        {
            put(std::slice::from_ref(&collection.info.key.field), key.as_bytes(), true);
        }
        for (number, unique) in collection.unique.iter().enumerate() {
            let readiness = &unique.readiness;
            let is_asked =
                target.map_or(readiness.is_obeyed(), |fields| *fields == collection.info.unique[number].fields);
            // Without a value it is like no other document. The insert reports a value that is too long.
            if !matches!(collection.unique_key(number, row, entry), Ok(true)) {
                continue;
            }
            if is_asked && !readiness.is_ready() {
                return Err(cannot_tell(collection, number));
            }
            if !readiness.is_maintained() {
                continue;
            }
            if let Some(key) = change.get(unique.tree, entry)? {
                put(&collection.info.unique[number].fields, &key, false);
            }
        }
        Ok(found)
    })
}

/// The error for an insert that asks for the documents with its value of a unique field that is not ready.
#[cold]
fn cannot_tell(collection: &Collection, number: usize) -> WriteError {
    let (info, readiness) = (&collection.info, &collection.unique[number].readiness);
    let fields = info.unique[number].shown();
    let what = match readiness.state() {
        ReadinessState::Refused(why) => format!("{fields} of {} did not become unique: {why}", info.name),
        _ => format!("{fields} of {} is still being made unique: try again when it is", info.name),
    };
    WriteError::Conflict { what }
}

/// Whether the document of this key exists and has expired.
pub(crate) fn is_due<C: WriteTransaction>(
    collection: &Collection,
    due: &ExpiryLimit,
    key: &[u8],
    change: &mut C,
    scratch: &mut WriteScratch,
) -> Result<bool, WriteError> {
    let old = &mut scratch.buffers.old;
    old.clear();
    match change.get(collection.info.tree, key)? {
        None => return Ok(false),
        Some(value) => {
            scratch.long_check.bound_stored(value.len())?;
            old.extend_from_slice(&value);
        }
    }
    Ok(collection.has_come(due, document(old)?))
}

/// Like [`apply`], but without the removal of an expired document. The stored document gets the mark of its last write.
pub(crate) fn apply_to_all<C: WriteTransaction>(
    collection: &Collection,
    (op, at): (&Op, &AtWrite),
    precondition: &Precondition,
    change: &mut C,
    scratch: &mut WriteScratch,
) -> Result<Prepared, WriteError> {
    let mut work = Work { collection, mark: at.mark, now_ms: at.now_ms, change };
    match op {
        Op::Insert { body } => work.insert(body, scratch),
        Op::Update { key, patch } | Op::Patch { key, patch } => {
            let key = work.key(key)?;
            let old = work.target(&key, precondition, scratch)?;
            let naming = if matches!(op, Op::Patch { .. }) { Naming::TheSame } else { Naming::Never };
            work.update(&key, old, (patch, naming), scratch)
        }
        Op::Replace { key, body } => {
            let key = work.key(key)?;
            let old = work.target(&key, precondition, scratch)?;
            work.replace(&key, Some(old), body, scratch)
        }
        Op::Put { key, body } => {
            let key = work.key(key)?;
            let old = work.find(&key, precondition, scratch)?;
            work.replace(&key, old, body, scratch)
        }
        Op::Delete { key } => {
            let key = work.key(key)?;
            work.target(&key, precondition, scratch)?;
            work.delete(&key, scratch)
        }
    }
}

/// Whether a patch may name the key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Naming {
    Never,
    /// Only with the same value.
    TheSame,
}

struct Work<'w, C> {
    collection: &'w Collection,
    mark: Option<u64>,
    now_ms: i64,
    change: &'w mut C,
}

impl<C: WriteTransaction> Work<'_, C> {
    fn key<'k>(&self, bytes: &'k [u8]) -> Result<Key<'k>, WriteError> {
        self.collection.info.key.kind.of_bytes(bytes).ok_or(WriteError::NotFound)
    }

    /// Reads the document into `scratch.old` and checks the precondition; returns its change number.
    fn find(
        &mut self,
        key: &Key<'_>,
        precondition: &Precondition,
        scratch: &mut WriteScratch,
    ) -> Result<Option<u64>, WriteError> {
        let old = &mut scratch.buffers.old;
        old.clear();
        let found = match self.change.get(self.collection.info.tree, key.as_bytes())? {
            None => None,
            Some(value) => {
                let stamp = value.first_chunk::<STAMP_BYTES>().ok_or_else(damaged)?;
                let number = u64::from_le_bytes(*stamp);
                scratch.long_check.bound_stored(value.len())?;
                scratch.long_check.go_on()?;
                old.extend_from_slice(&value);
                Some(number)
            }
        };
        let holds = match precondition {
            Precondition::None => true,
            Precondition::Exists => found.is_some(),
            Precondition::Absent => found.is_none(),
            Precondition::Matches(numbers) => found.is_some_and(|number| numbers.contains(&number)),
            Precondition::Differs(numbers) => found.is_none_or(|number| !numbers.contains(&number)),
        };
        if holds { Ok(found) } else { Err(WriteError::PreconditionFailed) }
    }

    /// The same for a document that must exist: existence is checked before the precondition.
    fn target(
        &mut self,
        key: &Key<'_>,
        precondition: &Precondition,
        scratch: &mut WriteScratch,
    ) -> Result<u64, WriteError> {
        match self.find(key, precondition, scratch) {
            Ok(Some(number)) => Ok(number),
            Ok(None) => Err(WriteError::NotFound),
            Err(WriteError::PreconditionFailed) if scratch.buffers.old.is_empty() => Err(WriteError::NotFound),
            Err(error) => Err(error),
        }
    }

    fn insert(&mut self, body: &[u8], scratch: &mut WriteScratch) -> Result<Prepared, WriteError> {
        let WriteScratch { encoder, buffers, shape, views, long_check, .. } = scratch;
        let has_new_key = match &self.collection.keys {
            Some(keys) => self.encode_keyed(keys, body, (encoder, buffers), long_check)?,
            None => encode(encoder, body, &mut buffers.new, long_check).map(|()| false)?,
        };
        self.mark(&mut buffers.new);
        let document = document(&buffers.new)?;
        self.collection.with_row(document, shape, |row| {
            let plain = self.collection.check_write(document, row, long_check)?;
            let key = self.collection.info.key.kind.of_scalar(plain.scalar()).ok_or_else(damaged)?;
            integrity::check_references((self.collection, &key), row, None, self.now_ms, self.change)?;
            if !has_new_key && self.change.get(self.collection.info.tree, key.as_bytes())?.is_some() {
                let Collection { info, .. } = self.collection;
                let what = format!("the key {} is in use in {}", plain.shown(), info.name);
                return Err(WriteError::Conflict { what });
            }
            entries::replace((self.collection, &key), None, Some(row), self.change, &mut buffers.entries)?;
            views::write::apply((self.collection, &key), None, Some((document, row)), self.change, views)?;
            self.change.put_stamped(self.collection.info.tree, key.as_bytes(), &buffers.new);
            if let Some(keys) = &self.collection.keys {
                keys.met(&key);
            }
            Ok(Prepared { unchanged: None, created: true, key: key.as_bytes().to_vec() })
        })
    }

    #[inline]
    fn mark(&self, new: &mut Vec<u8>) {
        if let Some(mark) = self.mark {
            binjson::set_mark(new, STAMP_BYTES, mark);
        }
    }

    /// Encodes a new document of a collection that generates keys. `true`: it has a counter's number that no document has.
    ///
    /// A document that seems to have no key gets one in its text and is encoded once. If that fails, it is encoded as it was
    /// sent: it has a key after all, it is no valid document, or the generated key is in use.
    fn encode_keyed(
        &mut self,
        keys: &Keys,
        body: &[u8],
        (encoder, buffers): (&mut Encoder, &mut WriteBuffers),
        long_check: &mut LongCheck,
    ) -> Result<bool, WriteError> {
        let WriteBuffers { new, keyed, .. } = buffers;
        let info = &self.collection.info;
        if may_lack(body, &info.key.field, keyed)
            && let Some(key) = keys.propose(info, &mut long_check.number)
        {
            keyed.extend_from_slice(key.as_bytes());
            keyed.push(b',');
            keyed.extend_from_slice(&body[1..]);
            if encode(encoder, keyed, new, long_check).is_ok()
                && keys.claim(info, long_check.number, &mut *self.change)?
            {
                return Ok(matches!(keys, Keys::Counter(_)));
            }
        }
        encode(encoder, body, new, long_check)?;
        self.complete(keys, encoder, new, long_check)?;
        Ok(false)
    }

    /// Adds a generated key as the first field of a document without one.
    fn complete(
        &mut self,
        keys: &Keys,
        encoder: &mut Encoder,
        new: &mut Vec<u8>,
        long_check: &mut LongCheck,
    ) -> Result<(), WriteError> {
        let info = &self.collection.info;
        let document = document(new)?;
        if !document.is_object() || document.field(&info.key.field).is_some() {
            return Ok(());
        }
        let mut text = b"{".to_vec();
        binjson::append_string(&mut text, &info.key.field);
        text.push(b':');
        text.extend_from_slice(keys.make(info, &mut long_check.number, &mut *self.change)?.as_bytes());
        match document.text() {
            b"{}" => text.push(b'}'),
            fields => {
                text.push(b',');
                text.extend_from_slice(&fields[1..]);
            }
        }
        encode(encoder, &text, new, long_check)
    }

    fn update(
        &mut self,
        key: &Key<'_>,
        number: u64,
        (patch, naming): (&[u8], Naming),
        scratch: &mut WriteScratch,
    ) -> Result<Prepared, WriteError> {
        let WriteScratch { encoder, buffers, long_check, .. } = scratch;
        encode(encoder, patch, &mut buffers.patch, long_check)?;
        let patch = document(&buffers.patch)?;
        if !patch.is_object() {
            return Err(WriteError::invalid("a merge patch is a JSON object", ""));
        }
        let info = &self.collection.info.key;
        if let Some(named) = patch.field(&info.field) {
            let named = key_value(info.kind, named);
            let named = named.as_ref().and_then(|named| info.kind.of_scalar(named.scalar()));
            let is_same = named.is_some_and(|named| named.as_bytes() == key.as_bytes());
            if naming == Naming::Never || !is_same {
                let field = &info.field;
                return Err(WriteError::invalid(format!("the key \"{field}\" cannot be changed"), format!("/{field}")));
            }
        }
        self.check_patch(patch)?;
        let old = document(&buffers.old)?;
        buffers.new.clear();
        buffers.new.extend_from_slice(&[0; STAMP_BYTES]);
        encoder.merge_patch(old, patch, &mut buffers.new)?;
        self.store(key, Some(number), scratch)
    }

    /// Refuses a patch that names a field which the schema forbids, even to remove it. By RFC 7396 `{"nobody": null}` changes
    /// nothing, but it shows that the client expects a field that cannot exist.
    fn check_patch(&self, patch: StoredDocument<'_>) -> Result<(), WriteError> {
        let info = &self.collection.info;
        if !info.closed {
            return Ok(());
        }
        match patch.fields().find(|(name, _)| !info.fields.iter().any(|field| *name == field.name.as_str())) {
            Some((name, _)) => {
                let name = name.as_str().unwrap_or_default();
                Err(WriteError::invalid(format!("the field \"{name}\" is not allowed"), format!("/{name}")))
            }
            None => Ok(()),
        }
    }

    fn replace(
        &mut self,
        key: &Key<'_>,
        number: Option<u64>,
        body: &[u8],
        scratch: &mut WriteScratch,
    ) -> Result<Prepared, WriteError> {
        encode(&mut scratch.encoder, body, &mut scratch.buffers.new, &scratch.long_check)?;
        self.store(key, number, scratch)
    }

    /// Stores `scratch.new` under the key, replacing `scratch.old` if there is one.
    fn store(
        &mut self,
        key: &Key<'_>,
        number: Option<u64>,
        scratch: &mut WriteScratch,
    ) -> Result<Prepared, WriteError> {
        let WriteScratch { buffers, shape, old_shape, views, long_check, .. } = scratch;
        self.mark(&mut buffers.new);
        let new = document(&buffers.new)?;
        let prepared = |unchanged| Prepared { unchanged, created: number.is_none(), key: key.as_bytes().to_vec() };
        if number.is_some() && is_same(&buffers.old, &buffers.new)? {
            return Ok(prepared(number));
        }
        let collection = self.collection;
        collection.with_row(new, shape, |row| {
            let found = collection.check_write(new, row, long_check)?;
            if collection.info.key.kind.of_scalar(found.scalar()).is_none_or(|k| k.as_bytes() != key.as_bytes()) {
                let field = &collection.info.key.field;
                let why = format!("\"{field}\" is {}, but the document's key is another", found.shown());
                return Err(WriteError::invalid(why, format!("/{field}")));
            }
            match number {
                None => {
                    integrity::check_references((collection, key), row, None, self.now_ms, self.change)?;
                    entries::replace((collection, key), None, Some(row), self.change, &mut buffers.entries)?;
                    views::write::apply((collection, key), None, Some((new, row)), self.change, views)?;
                }
                Some(_) => {
                    let before = document(&buffers.old)?;
                    collection.with_row(before, old_shape, |old| {
                        integrity::check_references((collection, key), row, Some(old), self.now_ms, self.change)?;
                        entries::replace((collection, key), Some(old), Some(row), self.change, &mut buffers.entries)?;
                        let (before, now) = (Some((before, old)), Some((new, row)));
                        views::write::apply((collection, key), before, now, self.change, views)
                    })?;
                }
            }
            self.change.put_stamped(collection.info.tree, key.as_bytes(), &buffers.new);
            Ok(prepared(None))
        })
    }

    fn delete(&mut self, key: &Key<'_>, scratch: &mut WriteScratch) -> Result<Prepared, WriteError> {
        integrity::check_referrers((self.collection, key), self.change)?;
        let WriteScratch { buffers, old_shape, views, .. } = scratch;
        let old = document(&buffers.old)?;
        self.collection.with_row(old, old_shape, |row| {
            entries::replace((self.collection, key), Some(row), None, self.change, &mut buffers.entries)?;
            views::write::apply((self.collection, key), Some((old, row)), None, self.change, views)
        })?;
        self.change.delete(self.collection.info.tree, key.as_bytes());
        Ok(Prepared { unchanged: None, created: false, key: key.as_bytes().to_vec() })
    }
}

/// Whether a JSON text seems to be an object with fields, but without this one. Then `keyed` is the beginning of an object with
/// this field as its first.
fn may_lack(body: &[u8], field: &str, keyed: &mut Vec<u8>) -> bool {
    keyed.clear();
    keyed.push(b'{');
    binjson::append_string(keyed, field);
    let first = body.iter().skip(1).find(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    let has_fields = body.first() == Some(&b'{') && first == Some(&b'"');
    let may_lack = has_fields && memchr::memmem::find(body, &keyed[1..]).is_none();
    keyed.push(b':');
    may_lack
}

fn encode(encoder: &mut Encoder, json: &[u8], out: &mut Vec<u8>, long_check: &LongCheck) -> Result<(), WriteError> {
    out.clear();
    out.extend_from_slice(&[0; STAMP_BYTES]);
    match &long_check.over {
        Some(over) => encoder.encode_while(json, out, &|| !over())?,
        None => encoder.encode(json, out)?,
    }
    long_check.go_on()
}

/// Whether a write leaves a document unchanged, except for a mark that is no longer maintained.
#[inline]
fn is_same(old: &[u8], new: &[u8]) -> Result<bool, WriteError> {
    if old[STAMP_BYTES..] == new[STAMP_BYTES..] {
        return Ok(true);
    }
    let (old, new) = (document(old)?, document(new)?);
    Ok(old.mark().is_some() && new.mark().is_none() && old.text() == new.text())
}

/// The document after its stamp.
fn document(stored: &[u8]) -> Result<StoredDocument<'_>, WriteError> {
    let bytes = stored.get(STAMP_BYTES..).ok_or_else(damaged)?;
    StoredDocument::from_bytes(bytes).map_err(|_| damaged())
}

#[cold]
fn damaged() -> WriteError {
    WriteError::Unavailable { why: "a stored document is damaged".to_string() }
}
