//! Documents read past the page cache, on the loop that answers them: what waits for the disk is not a thread but a place
//! in a queue, and the event loop hears when it has ended.
//!
//! The reads of one turn of the loop go to the kernel together when it ends, and those that have ended since are answered
//! together. So a cold GET costs about twice the CPU of one from memory; a thread that waits for a fault of the map, and is
//! handed the request and hands it back, costs four times as much, and each such page drives another one out of memory.
//!
//! Taken on are `get` of declared endpoints and of the general API, of documents that fit a place. All else that would wait
//! goes to the threads of `cold`: queries, lists, large documents, what was asked for lately and should stay in memory.

use crate::failure::ErrorRules;
use crate::memory::DIRECT_PLACE_BYTES;
use crate::named::{self, Unread};
use crate::refusal;
use docs::direct::{DirectReads, Got, Outcome};
use docs::key::Key;
use docs::{CollectionId, Database, Moment, Precondition, ReadError};
use http::LateReply;
use std::os::fd::RawFd;

/// One loop's reads past the page cache, and whom they answer.
pub(crate) struct Direct {
    reads: DirectReads,
    /// By place.
    waiting: Box<[Option<Waiting>]>,
}

/// A request whose document is being read.
pub(crate) struct Waiting {
    pub(crate) late: LateReply,
    pub(crate) document: Unread,
    pub(crate) kind: Kind,
}

/// How it is answered.
pub(crate) enum Kind {
    /// As a declared endpoint does.
    Declared(Precondition),
    /// As the general API does.
    General(Precondition),
}

impl Direct {
    /// None where the data fits into memory, or the system has no such reads.
    pub(crate) fn new(database: &Database, places: usize) -> Option<Direct> {
        let reads = database.direct_reads(places, DIRECT_PLACE_BYTES)?;
        Some(Direct { reads, waiting: (0..places).map(|_| None).collect() })
    }

    pub(crate) fn completions(&self) -> RawFd {
        self.reads.completions()
    }

    /// Begins what was asked for in this turn.
    pub(crate) fn begin(&mut self) {
        self.reads.begin();
    }

    /// Keeps a request until the read at this place has ended.
    pub(crate) fn wait(&mut self, place: usize, waiting: Waiting) {
        if let Some(free) = self.waiting.get_mut(place) {
            *free = Some(waiting);
        }
    }

    /// The database is another one from now on: what waits is of collections that may have other numbers there. A request for
    /// one that is not there any more has ended.
    pub(crate) fn move_on(&mut self, (old, errors): (&Database, &ErrorRules), new: &Database) {
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

    /// Gives out what has ended: who waits, and what was read.
    pub(crate) fn ended(&mut self, mut give: impl FnMut(Waiting, Result<Outcome<'_>, ReadError>)) {
        let Direct { reads, waiting } = self;
        reads.ended(&mut |place, outcome| {
            if let Some(waiting) = waiting.get_mut(place).and_then(Option::take) {
                give(waiting, outcome);
            }
        });
    }
}

/// A document, where its loop may have it: now, or later if there are such reads and they take it on.
#[inline]
pub(crate) fn get<'s>(
    direct: &mut Option<Direct>,
    now: &'s Moment<'_>,
    collection: CollectionId,
    key: &Key<'_>,
) -> Result<Got<'s>, ReadError> {
    match direct {
        Some(direct) => now.get_or_begin(&mut direct.reads, collection, key),
        None => match now.get(collection, key) {
            Err(ReadError::Store(store::Error::NotInMemory)) => Ok(Got::Elsewhere),
            found => found.map(Got::Now),
        },
    }
}
