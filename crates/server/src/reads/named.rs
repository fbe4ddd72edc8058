//! The document named by the path of a declared endpoint, and documents that must be read on another thread.

use crate::config::DocumentTarget;
use crate::failure::refusal;
use crate::failure::{Failure, FailureKind};
use docs::catalog::Catalog;
use docs::engine::ErrorKind;
use docs::key::{Key, KeyType};
use docs::{CollectionId, Moment, ReadError, ReaderSession, Required};
use http::Params;

/// A document named by the path.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) collection: CollectionId,
    pub(crate) kind: KeyType,
    parameter: String,
    /// The path has no other parameter.
    is_only: bool,
}

impl Named {
    /// A target of a route with this pattern.
    pub(crate) fn new(target: &DocumentTarget, pattern: &str, catalog: &Catalog) -> Option<Named> {
        let collection = catalog.number(&target.collection)?;
        let kind = catalog.collections.get(collection)?.key.kind;
        Some(Named {
            collection: CollectionId(collection),
            kind,
            parameter: target.parameter.clone(),
            is_only: pattern.matches('{').count() == 1,
        })
    }

    /// The key in the path. Text that is not a key of the collection's type names no document: 404, never 400.
    pub(crate) fn key<'k>(&self, params: &Params<'_, 'k>, text: &'k mut Vec<u8>) -> Option<Key<'k>> {
        if self.kind != KeyType::String
            && let Some(key) = self.kind.of_text(self.text_as_sent(params)?)
        {
            return Some(key); // digits as sent: there was nothing to unescape
        }
        let text = params.get(&self.parameter, text)?.ok()?;
        self.kind.of_text(text)
    }

    #[inline]
    fn text_as_sent<'k>(&self, params: &Params<'_, 'k>) -> Option<&'k str> {
        if self.is_only { params.first_raw() } else { params.get_raw(&self.parameter) }
    }

    /// The precondition of a transaction. `None`: the path names no document.
    pub(crate) fn required(&self, params: &Params<'_, '_>, text: &mut Vec<u8>) -> Option<Required> {
        Some(Required { collection: self.collection, key: self.key(params, text)?.as_bytes().to_vec() })
    }

    /// 404 unless the document exists; a returned value is still to be checked.
    pub(crate) fn check(
        &self,
        session: &ReaderSession,
        params: &Params<'_, '_>,
        text: &mut Vec<u8>,
    ) -> Result<Option<Unread>, Failure> {
        let key = self.key(params, text).ok_or_else(missing)?;
        match session.now().get(self.collection, &key) {
            Ok(Some(_)) => Ok(None),
            Ok(None) => Err(missing()),
            Err(error) if error.engine() == Some(ErrorKind::WouldWait) => Ok(Some(self.unread(&key))),
            Err(error) => Err(refusal::of_read(&error)),
        }
    }

    pub(crate) fn unread(&self, key: &Key<'_>) -> Unread {
        Unread { collection: self.collection, kind: self.kind, key: key.as_bytes().to_vec() }
    }
}

pub(crate) fn missing() -> Failure {
    Failure::new(FailureKind::NotFound, "there is no such document")
}

/// A document's change number and text.
pub(super) type Numbered = (u64, Vec<u8>);

/// A document whose existence is still to be checked: the check would have waited for the disk.
pub(crate) struct Unread {
    pub(crate) collection: CollectionId,
    pub(crate) kind: KeyType,
    pub(crate) key: Vec<u8>,
}

impl Unread {
    /// The document's change number and text, read on a thread that may wait; `None` if it is larger than this, 404 if it does
    /// not exist.
    pub(crate) fn read(&self, session: &ReaderSession, bytes_max: usize) -> Result<Option<Numbered>, Failure> {
        self.read_at(&session.now(), bytes_max)
    }

    /// The same as of a moment.
    pub(crate) fn read_at(&self, now: &Moment<'_>, bytes_max: usize) -> Result<Option<Numbered>, Failure> {
        let key = self.kind.of_bytes(&self.key).ok_or_else(missing)?;
        let found = || -> Result<Option<Option<Numbered>>, ReadError> {
            let Some(stored) = now.get(self.collection, &key)? else { return Ok(None) };
            let (number, text) = (stored.change_number()?, stored.text()?);
            let found = (text.len() <= bytes_max).then(|| (number, text.to_vec()));
            now.check()?;
            Ok(Some(found))
        };
        found().map_err(|error| refusal::of_read(&error))?.ok_or_else(missing)
    }

    /// 404 unless the document exists.
    pub(crate) fn check(&self, session: &ReaderSession) -> Result<(), Failure> {
        self.read(session, 0).map(drop)
    }
}
