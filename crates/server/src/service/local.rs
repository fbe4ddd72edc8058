//! State of one loop: its reader of the store, its held writes, and reusable buffers.

use super::held_write::HeldWrites;
use super::long_write::LongWrites;
use super::shared::Service;
use crate::access::sender::Listener;
use crate::reads::cold::DiskWaits;
use crate::reads::direct::Direct;
use docs::{DocumentDatabase, ReaderSession};
use http::FileCache;
use reactor::Loop;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;

/// Bytes of buffers that a loop keeps between two requests; larger ones are freed.
const KEPT_BYTES_MAX: usize = 256 * 1024;

/// Limit of parameters of a declared route's path.
pub(crate) const PATH_PARAMETERS_MAX: usize = 8;

/// A buffer for each parameter of a path.
pub(crate) type PathTexts = [Vec<u8>; PATH_PARAMETERS_MAX];

/// State of one loop: its reader of the store, and reusable buffers.
pub(crate) struct Local {
    /// The listener of its requests.
    pub(crate) listener: Listener,
    /// Shared with large documents that are being sent.
    pub(crate) session: Rc<ReaderSession>,
    /// Whether this loop waits for the disk.
    pub(crate) cold: DiskWaits,
    /// Its reads past the page cache.
    pub(crate) direct: Option<Direct>,
    pub(crate) lp: Loop,
    /// Writes that are not submitted yet.
    pub(crate) held: HeldWrites,
    /// Takes writes that turn out to be too long for a loop.
    pub(crate) long_writes: Arc<LongWrites>,
    /// Decoded texts of the query.
    pub(crate) text: Vec<u8>,
    /// Decoded texts of the path.
    pub(crate) path_texts: PathTexts,
    /// Static files.
    pub(crate) files: FileCache,
    /// Work memory of queries.
    pub(crate) scratch: docs::sql::Scratch,
    /// Result rows.
    pub(crate) out: Vec<u8>,
}

impl Local {
    /// For a new loop.
    pub(crate) fn new(service: &Service, lp: &Loop, listener: Listener) -> Local {
        let session = session(&service.database, listener).expect("there are more reader slots than loops (see start)");
        // On the general API's own listener, reads that must wait go to threads.
        let places = Some(service.direct_places).filter(|_| listener == Listener::Public);
        Local {
            listener,
            session: Rc::new(session),
            cold: DiskWaits::default(),
            direct: places.and_then(|places| Direct::new(&service.database, places)),
            lp: lp.clone(),
            held: HeldWrites::default(),
            long_writes: LongWrites::new(&service.shared),
            text: Vec::new(),
            path_texts: PathTexts::default(),
            files: FileCache::new(lp, service.file_cache_bytes),
            scratch: docs::sql::Scratch::new(),
            out: Vec::new(),
        }
    }

    pub(crate) fn completions(&self) -> Option<RawFd> {
        self.direct.as_ref().map(Direct::completions)
    }

    /// Begins the reads requested in a tick of the loop, and continues held writes.
    #[inline]
    pub(crate) fn tick_ended(&mut self) {
        if let Some(direct) = &mut self.direct {
            direct.begin();
        }
        self.held.turn_ended(&self.session, &self.lp);
        if self.session.tick_ended(self.lp.now_ns()) {
            self.lp.poll_again();
        }
    }

    /// Continues with a session of another database.
    pub(crate) fn renew(&mut self, session: ReaderSession) {
        // Streams may keep the old session for long.
        self.session.stop_gathering();
        self.session = Rc::new(session);
    }

    /// Frees buffers that an unusual request enlarged. Path texts are no longer than a request's target, which has its own limit,
    /// and stay.
    #[inline]
    pub(crate) fn shrink(&mut self) {
        self.out.clear();
        let buffers = [&mut self.text, &mut self.out];
        let kept = buffers.iter().fold(0, |kept, buffer| kept | buffer.capacity());
        // Both are tested by one comparison: the bitwise OR of the capacities is less than twice the larger one.
        if kept > KEPT_BYTES_MAX {
            give_back(buffers);
        }
    }
}

/// A reader for a listener on one loop, whose ticks end by [`Local::tick_ended`]. The general API's own listener caches no document
/// places: the memory for them is the loops'.
pub(crate) fn session(
    database: &DocumentDatabase,
    listener: Listener,
) -> Result<ReaderSession, docs::engine::StoreError> {
    let session = database.session()?;
    session.gather_submissions();
    Ok(if listener == Listener::Admin { session.without_places() } else { session })
}

#[cold]
fn give_back(buffers: [&mut Vec<u8>; 2]) {
    for buffer in buffers {
        if buffer.capacity() > KEPT_BYTES_MAX {
            *buffer = Vec::new();
        }
    }
}
