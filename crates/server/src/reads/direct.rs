//! Documents read past the page cache, on the loop that answers them: instead of a thread, an entry in a queue waits for the
//! disk, and the event loop is notified of its completion.
//!
//! The reads of one tick of the loop go to the kernel together at its end, and completed reads are answered together. So a cold
//! GET costs about twice the CPU of one from memory. A thread that waits for a fault of the map costs four times as much, with
//! the hand-over in both directions, and each page loaded that way evicts another one from memory.
//!
//! This path serves `get` of declared endpoints and of the general API, for documents that fit an entry. Other reads that would
//! wait go to the threads of `cold`: queries, lists, large documents, and recently read data that should stay in memory.

use super::named::{self, Unread};
use crate::config::memory::DIRECT_PLACE_BYTES;
use crate::failure::ErrorRules;
use crate::failure::refusal;
use docs::direct::{DirectDocumentReads, DocumentOutcome};
use docs::key::Key;
use docs::{CollectionId, DocumentDatabase, Moment, Precondition, ReadError, Stored};
use http::LateReply;
use std::os::fd::RawFd;

/// One loop's reads past the page cache, and the requests that wait for them.
pub(crate) struct Direct {
    reads: DirectDocumentReads,
    /// By the number of the queue entry.
    waiting: Box<[Option<Waiting>]>,
}

/// A request whose document is being read.
pub(crate) struct Waiting {
    pub(crate) late: LateReply,
    pub(crate) document: Unread,
    pub(crate) kind: DirectAnswer,
}

/// How it is answered.
pub(crate) enum DirectAnswer {
    /// As a declared endpoint does.
    Declared(Precondition),
    /// As the general API does.
    General(Precondition),
}

impl Direct {
    /// `None` if the data fits into memory, or the system has no such reads.
    pub(crate) fn new(database: &DocumentDatabase, places: usize) -> Option<Direct> {
        let reads = database.direct_reads(places, DIRECT_PLACE_BYTES)?;
        Some(Direct { reads, waiting: (0..places).map(|_| None).collect() })
    }

    pub(crate) fn completions(&self) -> RawFd {
        self.reads.completions()
    }

    /// Submits the reads requested in this tick.
    pub(crate) fn begin(&mut self) {
        self.reads.begin();
    }

    /// Keeps a request until its read has completed.
    pub(crate) fn wait(&mut self, place: usize, waiting: Waiting) {
        if let Some(free) = self.waiting.get_mut(place) {
            *free = Some(waiting);
        }
    }

    /// The database is replaced: in the new one, collections may have other numbers. A request for a collection that no longer
    /// exists is answered.
    pub(crate) fn move_on(&mut self, (old, errors): (&DocumentDatabase, &ErrorRules), new: &DocumentDatabase) {
        for place in &mut self.waiting {
            let Some(mut waiting) = place.take() else { continue };
            match new.collection(&old.collection_at(waiting.document.collection).info.name) {
                Some(collection) => {
                    waiting.document.collection = collection;
                    *place = Some(waiting);
                }
                None => refusal::refuse(errors, waiting.late, &named::missing()),
            }
        }
    }

    /// Passes on completed reads: the waiting request, and the result.
    pub(crate) fn ended(&mut self, mut give: impl FnMut(Waiting, Result<DocumentOutcome<'_>, ReadError>)) {
        let Direct { reads, waiting } = self;
        reads.ended(&mut |place, outcome| {
            if let Some(waiting) = waiting.get_mut(place).and_then(Option::take) {
                give(waiting, outcome);
            }
        });
    }
}

/// A document for a loop. If it is not in memory, the error is of the kind `WouldWait`, and `slot` is the number of the queue entry that
/// reads it, if direct reads exist and have room.
#[inline]
pub(crate) fn get<'s>(
    direct: Option<&mut Direct>,
    now: &'s Moment<'_>,
    (collection, key): (CollectionId, &Key<'_>),
    slot: &mut Option<usize>,
) -> Result<Option<Stored<'s>>, ReadError> {
    match direct {
        Some(direct) => now.get_or_begin(&mut direct.reads, (collection, key), slot),
        None => now.get(collection, key),
    }
}
