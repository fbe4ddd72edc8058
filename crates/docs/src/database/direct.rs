//! Direct reads of documents, bypassing the page cache: see [`engine::DirectReads`].

use std::os::fd::RawFd;

use super::session::{Moment, Stored};
use crate::database::{CollectionId, DocumentDatabase};
use crate::encoding::Key;
use crate::engine;
use crate::error::ReadError;

/// Direct reads of documents, bypassing the page cache: several at once, on one thread that does not block.
pub struct DirectDocumentReads {
    pub(crate) inner: engine::DirectReads,
}

/// Result of a completed read.
#[derive(Debug)]
pub enum DocumentOutcome<'r> {
    /// The document, or none, as of the moment when the read began.
    Found(Option<Stored<'r>>),
    /// The read would block: repeat it on a thread that may wait.
    Elsewhere,
}

impl DocumentDatabase {
    /// Direct reads for the calling thread, with `places` slots of `place_bytes` each. `None` if they are unavailable or not
    /// needed.
    pub fn direct_reads(&self, places: usize, place_bytes: usize) -> Option<DirectDocumentReads> {
        Some(DirectDocumentReads { inner: self.store().direct_reads(places, place_bytes)? })
    }
}

impl DirectDocumentReads {
    /// A file descriptor that becomes readable, edge-triggered, when reads have completed.
    pub fn completions(&self) -> RawFd {
        self.inner.completions()
    }

    /// Submits the reads requested since the last call.
    pub fn begin(&mut self) {
        self.inner.begin();
    }

    /// Reports the completed reads.
    pub fn ended(&mut self, report: &mut dyn FnMut(usize, Result<DocumentOutcome<'_>, ReadError>)) {
        self.inner.ended(&mut |place, outcome| {
            let outcome = outcome.map(|outcome| match outcome {
                engine::ReadOutcome::Found(value) => DocumentOutcome::Found(value.map(Stored::of)),
                engine::ReadOutcome::Elsewhere => DocumentOutcome::Elsewhere,
            });
            report(place, outcome.map_err(ReadError::Store));
        });
    }
}

impl Moment<'_> {
    /// A document by its key. If the session must not block and the document is not in memory, the error is of the kind
    /// [`ErrorKind::WouldWait`](engine::ErrorKind::WouldWait). Then `slot` says whether `reads` has started a direct read, and in which
    /// queue entry: see [`DirectDocumentReads::ended`]. Without one, repeat the read on a thread that may wait.
    #[inline]
    pub fn get_or_begin(
        &self,
        reads: &mut DirectDocumentReads,
        (collection, key): (CollectionId, &Key<'_>),
        slot: &mut Option<usize>,
    ) -> Result<Option<Stored<'_>>, ReadError> {
        if self.expires(collection) {
            // A direct read does not check whether the document has expired.
            return self.get(collection, key);
        }
        *slot = match self.snapshot().get_or_begin(&mut reads.inner, self.tree(collection), key.as_bytes())? {
            engine::Got::Now(value) => return Ok(value.map(Stored::of)),
            engine::Got::Later(number) => Some(number),
            engine::Got::Elsewhere => None,
        };
        Err(ReadError::Store(engine::StoreError::NotInMemory))
    }
}
