//! How chunks of new pages reach the file: written, and paced, by the thread that fills them or by one beside it.
//!
//! A checkpoint writes on its own thread: it is meant to be gentle. A long bulk build has a thread beside it: to encode pages and to wait for the
//! disk take about as long, and one after the other a load took the sum. A build's first chunks are written by its own
//! thread, so that the many small trees of an application start none.
//!
//! Chunks are written in the order in which they were given. At most [`CHUNKS_WAITING`] wait, one is being written and one is being
//! filled: that bounds a build's memory. Whoever gives pages back must have ended the writer before, for a chunk that is
//! still on its way would be written over the pages' next content.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::shared::Shared;
use crate::Error;
use crate::disk::DiskFile;

/// Chunks that wait for the thread beside a build.
const CHUNKS_WAITING: usize = 2;
/// Bytes that a build writes by itself.
const ALONE_BYTES: usize = 4 << 20;

/// Called after each write (a bulk build: each 256 KB) with the range of the file that it lies in; may call `sync_range`,
/// may sleep.
pub type Pace = Box<dyn FnMut(&dyn DiskFile, u64, u64) -> io::Result<()> + Send>;

/// Pages that lie behind one another, and the byte of the file where they begin.
struct Chunk {
    bytes: Vec<u8>,
    start: u64,
}

/// See the module's text.
pub(super) struct ChunkWriter {
    shared: Arc<Shared>,
    place: Place,
    /// Whether it may go on beside its caller.
    may_move: bool,
    written: usize,
}

/// Which thread writes.
enum Place {
    Here(Paced),
    Beside(Beside),
    /// A write failed: what is behind it was never written.
    Failed,
}

impl ChunkWriter {
    /// Asks `pace` after each `pace_bytes`.
    pub(super) fn new(shared: Arc<Shared>, may_move: bool, pace_bytes: usize, pace: Pace) -> ChunkWriter {
        let place = Place::Here(Paced { shared: shared.clone(), pace, pace_bytes, unpaced: NOTHING });
        ChunkWriter { shared, place, may_move, written: 0 }
    }

    /// Writes a chunk, now or soon, and leaves an empty buffer in its place. A failure may be told later.
    pub(super) fn write(&mut self, bytes: &mut Vec<u8>, start: u64) -> Result<(), Error> {
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

    /// Waits until all chunks are written. It takes no more.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        match std::mem::replace(&mut self.place, Place::Failed) {
            Place::Beside(beside) => beside.join(),
            Place::Here(paced) => {
                self.place = Place::Here(paced);
                Ok(())
            }
            Place::Failed => Err(self.failed()),
        }
    }

    /// The same for one whose pages are given up.
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
    fn failed(&self) -> Error {
        self.shared.io_failure("write pages", io::Error::other("an earlier write of this build failed"))
    }
}

/// Writes, and asks to wait.
struct Paced {
    shared: Arc<Shared>,
    pace: Pace,
    /// Bytes between two calls of it.
    pace_bytes: usize,
    /// Written since the last call of `pace`: range and bytes.
    unpaced: (u64, u64, usize),
}

const NOTHING: (u64, u64, usize) = (u64::MAX, 0, 0);

impl Paced {
    fn write(&mut self, bytes: &[u8], start: u64) -> Result<(), Error> {
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

/// The thread beside a build, and the buffers that go to and fro.
struct Beside {
    full: SyncSender<Chunk>,
    empty: Receiver<Vec<u8>>,
    thread: JoinHandle<Result<(), Error>>,
    shared: Arc<Shared>,
}

impl Beside {
    /// Where no thread is to be had the writer goes on where it is.
    fn start(paced: Paced) -> Place {
        let shared = paced.shared.clone();
        let (full, chunks) = sync_channel::<Chunk>(CHUNKS_WAITING);
        let (used, empty) = sync_channel::<Vec<u8>>(CHUNKS_WAITING + 1);
        // The thread gets its writer only once it is there: a builder that could not start it still has one.
        let (hand, given) = sync_channel::<Paced>(1);
        let life = move || {
            let Ok(mut paced) = given.recv() else { return Ok(()) };
            for Chunk { mut bytes, start } in chunks {
                paced.write(&bytes, start)?;
                bytes.clear();
                // More buffers than are in use are not kept.
                let _ = used.try_send(bytes);
            }
            Ok(())
        };
        match std::thread::Builder::new().name("bulk-write".to_string()).spawn(life) {
            Err(error) => {
                tracing::debug!(%error, "no thread to write a build's pages");
                Place::Here(paced)
            }
            Ok(thread) => match hand.send(paced) {
                Ok(()) => Place::Beside(Beside { full, empty, thread, shared }),
                Err(std::sync::mpsc::SendError(paced)) => Place::Here(paced),
            },
        }
    }

    /// False where the thread has ended.
    fn hand_over(&mut self, bytes: &mut Vec<u8>, start: u64) -> bool {
        let next = self.empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(bytes.capacity()));
        self.full.send(Chunk { bytes: std::mem::replace(bytes, next), start }).is_ok()
    }

    fn join(self) -> Result<(), Error> {
        drop(self.full);
        self.thread.join().unwrap_or_else(|_| {
            let panicked = io::Error::other("the thread that writes them panicked");
            Err(self.shared.io_failure("write pages", panicked))
        })
    }
}
