//! Writes chunks of new pages to the file, with pacing, on the thread that fills them or on a second one.
//!
//! A checkpoint writes on its own thread, since it is paced anyway. A long bulk build has a second thread: encoding
//! pages and waiting for the disk take about the same time, which would add up on one thread. A build's first chunks
//! are written on its own thread, so that an application's many small trees start no threads.
//!
//! Chunks are written in the order in which they are passed. At most [`CHUNKS_WAITING`] wait, one is being written and
//! one is being filled, which bounds a build's memory. The writer must be finished before pages are freed: a chunk
//! still in flight would overwrite the pages' next content.

use std::io;
use std::sync::Arc;

use crate::base::error::StoreError;
use crate::base::sync::mpsc::{Receiver, SyncSender, sync_channel};
use crate::base::sync::thread::JoinHandle;
use crate::base::sync::{mpsc, thread};
use crate::disk::DiskFile;
use crate::tree::state::shared::Shared;

/// Chunks that wait for the second thread of a build.
const CHUNKS_WAITING: usize = 2;
/// Bytes that a build writes on its own thread.
const ALONE_BYTES: usize = 4 << 20;

/// Called after each write (a bulk build: each 256 KB) with the written range of the file. May call `sync_range`, and may
/// sleep.
pub type Pace = Box<dyn FnMut(&dyn DiskFile, u64, u64) -> io::Result<()> + Send>;

/// Adjacent pages, and the byte offset in the file where they begin.
struct Chunk {
    bytes: Vec<u8>,
    start: u64,
}

/// See the module's text.
pub(super) struct ChunkWriter {
    shared: Arc<Shared>,
    place: Place,
    /// Whether it may move to a second thread.
    may_move: bool,
    written: usize,
}

/// The writing thread.
enum Place {
    Here(Paced),
    Beside(Beside),
    /// A write failed: later chunks were never written.
    Failed,
}

impl ChunkWriter {
    /// Calls `pace` after each `pace_bytes`.
    pub(super) fn new(shared: Arc<Shared>, may_move: bool, pace_bytes: usize, pace: Pace) -> ChunkWriter {
        let place = Place::Here(Paced { shared: shared.clone(), pace, pace_bytes, unpaced: NOTHING });
        ChunkWriter { shared, place, may_move, written: 0 }
    }

    /// Writes a chunk, now or soon, and leaves an empty buffer in its place. An error may be returned by a later call.
    pub(super) fn write(&mut self, bytes: &mut Vec<u8>, start: u64) -> Result<(), StoreError> {
        if self.may_move && self.written >= ALONE_BYTES {
            self.move_beside();
        }
        self.written += bytes.len();
        let result = match &mut self.place {
            Place::Here(paced) => paced.write(bytes, start),
            Place::Beside(beside) => match beside.hand_over(bytes, start) {
                true => return Ok(()),
                false => return self.finish().and_then(|()| Err(self.failed())),
            },
            Place::Failed => return Err(self.failed()),
        };
        bytes.clear();
        if result.is_err() {
            self.place = Place::Failed;
        }
        result
    }

    /// Waits until all chunks are written. After that it accepts no more.
    pub(super) fn finish(&mut self) -> Result<(), StoreError> {
        match std::mem::replace(&mut self.place, Place::Failed) {
            Place::Beside(beside) => beside.join(),
            Place::Here(paced) => {
                self.place = Place::Here(paced);
                Ok(())
            }
            Place::Failed => Err(self.failed()),
        }
    }

    /// The same for a build whose pages are freed.
    pub(super) fn abandon(&mut self) {
        if let Place::Beside(_) = self.place
            && let Err(error) = self.finish()
        {
            tracing::debug!(%error, "an abandoned build");
        }
    }

    fn move_beside(&mut self) {
        match std::mem::replace(&mut self.place, Place::Failed) {
            Place::Here(paced) => self.place = Beside::start(paced),
            other => self.place = other,
        }
    }

    #[cold]
    fn failed(&self) -> StoreError {
        self.shared.io_failure("write pages", io::Error::other("an earlier write of this build failed"))
    }
}

/// Writes, and calls `pace`.
struct Paced {
    shared: Arc<Shared>,
    pace: Pace,
    /// Bytes between two calls of `pace`.
    pace_bytes: usize,
    /// Written since the last call of `pace`: range and bytes.
    unpaced: (u64, u64, usize),
}

const NOTHING: (u64, u64, usize) = (u64::MAX, 0, 0);

impl Paced {
    fn write(&mut self, bytes: &[u8], start: u64) -> Result<(), StoreError> {
        let file = self.shared.file();
        file.write_all_at(bytes, start).map_err(|error| self.shared.io("write pages", error))?;
        let (low, high, sum) = self.unpaced;
        let (low, high, sum) = (low.min(start), high.max(start + bytes.len() as u64), sum + bytes.len());
        self.unpaced = (low, high, sum);
        if sum >= self.pace_bytes {
            self.unpaced = NOTHING;
            (self.pace)(file, low, high - low).map_err(|error| self.shared.io_failure("pace writes", error))?;
        }
        Ok(())
    }
}

/// The second thread of a build, with the buffers that pass between the two.
struct Beside {
    full: SyncSender<Chunk>,
    empty: Receiver<Vec<u8>>,
    thread: JoinHandle<Result<(), StoreError>>,
    shared: Arc<Shared>,
}

impl Beside {
    /// If no thread can be started, the writer stays on its caller's thread.
    fn start(paced: Paced) -> Place {
        let shared = paced.shared.clone();
        let (full, chunks) = sync_channel::<Chunk>(CHUNKS_WAITING);
        let (used, empty) = sync_channel::<Vec<u8>>(CHUNKS_WAITING + 1);
        // The writer is sent to the thread only once it runs, so that the builder keeps it if the thread cannot be
        // started.
        let (hand, given) = sync_channel::<Paced>(1);
        let life = move || {
            let Ok(mut paced) = given.recv() else { return Ok(()) };
            for Chunk { mut bytes, start } in chunks {
                paced.write(&bytes, start)?;
                bytes.clear();
                // Surplus buffers are dropped.
                let _ = used.try_send(bytes);
            }
            Ok(())
        };
        match thread::Builder::new().name("bulk-write".to_string()).spawn(life) {
            Err(error) => {
                tracing::debug!(%error, "no thread to write a build's pages");
                Place::Here(paced)
            }
            Ok(thread) => match hand.send(paced) {
                Ok(()) => Place::Beside(Beside { full, empty, thread, shared }),
                Err(mpsc::SendError(paced)) => Place::Here(paced),
            },
        }
    }

    /// False if the thread has ended.
    fn hand_over(&mut self, bytes: &mut Vec<u8>, start: u64) -> bool {
        let next = self.empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(bytes.capacity()));
        self.full.send(Chunk { bytes: std::mem::replace(bytes, next), start }).is_ok()
    }

    fn join(self) -> Result<(), StoreError> {
        drop(self.full);
        self.thread.join().unwrap_or_else(|_| {
            let panicked = io::Error::other("the thread that writes them panicked");
            Err(self.shared.io_failure("write pages", panicked))
        })
    }
}
