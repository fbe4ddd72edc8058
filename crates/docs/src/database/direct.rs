//! Direct reads of documents, bypassing the page cache: see [`engine::DirectReads`].

use std::os::fd::RawFd;

use super::session::{Moment, Stored};
use crate::database::{CollectionId, Database};
use crate::encoding::Key;
use crate::engine;
use crate::error::ReadError;

/// Direct reads of documents, bypassing the page cache: several at once, on one thread that does not block.
pub struct DirectReads {
    pub(crate) inner: engine::DirectReads,
}

/// Result of starting a read.
#[derive(Debug)]
pub enum Got<'s> {
    /// The read completed without waiting.
    Now(Option<Stored<'s>>),
    /// It is in flight in this slot: see [`DirectReads::ended`].
    Later(usize),
    /// It would block: repeat it on a thread that may wait.
    Elsewhere,
}

/// Result of a completed read.
#[derive(Debug)]
pub enum Outcome<'r> {
    /// The document, or none, as of the moment when the read began.
    Found(Option<Stored<'r>>),
    /// See [`Got::Elsewhere`].
    Elsewhere,
}

impl Database {
    /// Direct reads for the calling thread, with `places` slots of `place_bytes` each. `None` if they are unavailable or not
    /// needed.
    pub fn direct_reads(&self, places: usize, place_bytes: usize) -> Option<DirectReads> {
        Some(DirectReads { inner: self.store().direct_reads(places, place_bytes)? })
    }
}

impl DirectReads {
    /// A file descriptor that becomes readable, edge-triggered, when reads have completed.
    pub fn completions(&self) -> RawFd {
        self.inner.completions()
    }

    /// Submits the reads requested since the last call.
    pub fn begin(&mut self) {
        self.inner.begin();
    }

    /// Reports the completed reads.
    pub fn ended(&mut self, tell: &mut dyn FnMut(usize, Result<Outcome<'_>, ReadError>)) {
        self.inner.ended(&mut |place, outcome| {
            let outcome = outcome.map(|outcome| match outcome {
                engine::Outcome::Found(value) => Outcome::Found(value.map(Stored::of)),
                engine::Outcome::Elsewhere => Outcome::Elsewhere,
            });
            tell(place, outcome.map_err(ReadError::Store));
        });
    }
}

impl Moment<'_> {
    /// A document by its key. If the session must not block and the document is not in memory, `reads` may start a direct read.
    #[inline]
    pub fn get_or_begin(
        &self,
        reads: &mut DirectReads,
        collection: CollectionId,
        key: &Key<'_>,
    ) -> Result<Got<'_>, ReadError> {
        if self.expires(collection) {
            // A direct read does not check whether the document has expired.
            return match self.get(collection, key) {
                Err(ReadError::Store(engine::Error::NotInMemory)) => Ok(Got::Elsewhere),
                found => found.map(Got::Now),
            };
        }
        Ok(match self.snapshot().get_or_begin(&mut reads.inner, self.tree(collection), key.as_bytes())? {
            engine::Got::Now(value) => Got::Now(value.map(Stored::of)),
            engine::Got::Later(place) => Got::Later(place),
            engine::Got::Elsewhere => Got::Elsewhere,
        })
    }
}
