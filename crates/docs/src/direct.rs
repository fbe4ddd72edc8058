//! Documents read past the page cache: see [`store::DirectReads`].

use std::os::fd::RawFd;

use crate::database::{CollectionId, Database};
use crate::error::ReadError;
use crate::key::Key;
use crate::session::{Moment, Stored};

/// Reads of documents past the page cache, several at once, on one thread that does not wait.
pub struct DirectReads {
    pub(crate) inner: store::DirectReads,
}

/// What became of a read that may begin.
#[derive(Debug)]
pub enum Got<'s> {
    /// It did not have to wait.
    Now(Option<Stored<'s>>),
    /// It is under way at this place: see [`DirectReads::ended`].
    Later(usize),
    /// It has to wait, on a thread that may.
    Elsewhere,
}

/// How a read ended.
#[derive(Debug)]
pub enum Outcome<'r> {
    /// With the document, or that there is none, as of the moment in which it began.
    Found(Option<Stored<'r>>),
    /// See [`Got::Elsewhere`].
    Elsewhere,
}

impl Database {
    /// Such reads for the calling thread: so many places of so many bytes. None where there are no such reads, or no need.
    pub fn direct_reads(&self, places: usize, place_bytes: usize) -> Option<DirectReads> {
        Some(DirectReads { inner: self.store().direct_reads(places, place_bytes)? })
    }
}

impl DirectReads {
    /// Becomes readable, an edge each time, when reads have ended.
    pub fn completions(&self) -> RawFd {
        self.inner.completions()
    }

    /// Begins what was asked for since the last call.
    pub fn begin(&mut self) {
        self.inner.begin();
    }

    /// Tells of the reads that have ended.
    pub fn ended(&mut self, tell: &mut dyn FnMut(usize, Result<Outcome<'_>, ReadError>)) {
        self.inner.ended(&mut |place, outcome| {
            let outcome = outcome.map(|outcome| match outcome {
                store::Outcome::Found(value) => Outcome::Found(value.map(Stored::of)),
                store::Outcome::Elsewhere => Outcome::Elsewhere,
            });
            tell(place, outcome.map_err(ReadError::Store));
        });
    }
}

impl Moment<'_> {
    /// A document by its key; where the session asks before it waits and the document is not in memory, `reads` may take
    /// that on.
    #[inline]
    pub fn get_or_begin(
        &self,
        reads: &mut DirectReads,
        collection: CollectionId,
        key: &Key<'_>,
    ) -> Result<Got<'_>, ReadError> {
        if self.expires(collection) {
            // What has been read would have to be judged by its time once more.
            return match self.get(collection, key) {
                Err(ReadError::Store(store::Error::NotInMemory)) => Ok(Got::Elsewhere),
                found => found.map(Got::Now),
            };
        }
        Ok(match self.snapshot().get_or_begin(&mut reads.inner, self.tree(collection), key.as_bytes())? {
            store::Got::Now(value) => Got::Now(value.map(Stored::of)),
            store::Got::Later(place) => Got::Later(place),
            store::Got::Elsewhere => Got::Elsewhere,
        })
    }
}
