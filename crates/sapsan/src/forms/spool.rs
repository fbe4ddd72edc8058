//! Writes the files of an arriving form, on an executor's threads.
//!
//! A write into a file usually ends in the page cache. But when too many dirty pages wait for the disk, a write waits too,
//! for hundreds of milliseconds, in which an event loop would serve no connection. So the loop only queues the bytes, and a
//! job of the executor writes them, one job at a time for each form. The queue is bounded: while it is full, the connection
//! is not read.

use crate::dispatch::{Pools, Responder};
use http::Nudge;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most bytes of one form that wait to be written.
const QUEUE_BYTES_MAX: usize = 256 << 10;
/// A connection that is held back is read again when at most this many bytes wait.
const QUEUE_BYTES_LOW: usize = QUEUE_BYTES_MAX / 2;
/// Bytes up to which writes are joined into one step.
const WRITE_BYTES: usize = 64 << 10;

/// Creates the next file.
pub(super) type Create = Box<dyn Fn() -> io::Result<File> + Send + Sync>;
/// Called when everything is written, or when writing has failed.
pub(super) type Then = Box<dyn FnOnce(Responder, io::Result<Vec<File>>) + Send>;

/// A step of the queue.
enum FileStep {
    /// Create another file.
    Create,
    /// Write into the last file.
    Write(Vec<u8>),
}

/// The files of one form.
pub(super) struct Spool {
    backlog: Mutex<Backlog>,
    /// Used only by the job that runs.
    files: Mutex<Vec<File>>,
    create: Create,
}

#[derive(Default)]
struct Backlog {
    steps: VecDeque<FileStep>,
    bytes: usize,
    /// A job runs, or waits for a thread.
    is_running: bool,
    /// The connection is not read; the job has to wake it.
    held_back: bool,
    nudge: Option<Nudge>,
    failure: Option<io::Error>,
    last: Option<(Responder, Then)>,
}

impl Spool {
    /// `create` creates a file without a name.
    pub(super) fn new(create: Create) -> Arc<Spool> {
        Arc::new(Spool { backlog: Mutex::default(), files: Mutex::default(), create })
    }

    /// Sets how the connection is woken.
    pub(super) fn set_nudge(&self, nudge: Nudge) {
        self.backlog().nudge = Some(nudge);
    }

    /// Bytes that wait to be written.
    pub(super) fn queued_bytes(&self) -> usize {
        self.backlog().bytes
    }

    /// Bytes that may be queued. If there is no room, the connection will be woken.
    pub(super) fn room(&self) -> usize {
        let mut backlog = self.backlog();
        let room = QUEUE_BYTES_MAX.saturating_sub(backlog.bytes);
        backlog.held_back |= room == 0;
        room
    }

    /// Queues the creation of a file.
    pub(super) fn create(&self) {
        self.backlog().steps.push_back(FileStep::Create);
    }

    /// Queues bytes for the last file.
    pub(super) fn write(&self, bytes: &[u8]) {
        let mut backlog = self.backlog();
        backlog.bytes += bytes.len();
        match backlog.steps.back_mut() {
            Some(FileStep::Write(last)) if last.len() < WRITE_BYTES => last.extend_from_slice(bytes),
            _ => backlog.steps.push_back(FileStep::Write(bytes.to_vec())),
        }
    }

    /// The error by which writing failed, if it did. It is returned once.
    pub(super) fn failure(&self) -> Option<io::Error> {
        self.backlog().failure.take()
    }

    /// Nothing more will be queued: after the last step, the job calls `then`.
    pub(super) fn finish(&self, responder: Responder, then: Then) {
        self.backlog().last = Some((responder, then));
    }

    /// Submits a job to an executor, if steps are queued. If the executor refuses it, the error has the responder that
    /// [`Spool::finish`] was given, if any.
    pub(super) fn run(self: &Arc<Self>, pools: &Pools, executor: &str) -> Result<(), Refused> {
        {
            let mut backlog = self.backlog();
            let is_idle = backlog.steps.is_empty() && backlog.last.is_none();
            if backlog.is_running || is_idle {
                return Ok(());
            }
            backlog.is_running = true;
        }
        let spool = Arc::clone(self);
        let submitted = pools.submit(executor, move || spool.work());
        submitted.map_err(|why| {
            self.cancel();
            Refused { why, responder: self.backlog().last.take().map(|(responder, _)| Box::new(responder)) }
        })
    }

    /// Drops the queued steps.
    pub(super) fn cancel(&self) {
        let mut backlog = self.backlog();
        backlog.steps.clear();
        backlog.bytes = 0;
    }

    /// The job, on a thread of the executor.
    fn work(&self) {
        loop {
            let mut backlog = self.backlog();
            let Some(step) = backlog.steps.pop_front() else {
                backlog.is_running = false;
                let Some((responder, then)) = backlog.last.take() else { return };
                let failure = backlog.failure.take();
                drop(backlog);
                let files = std::mem::take(&mut *self.files());
                return then(responder, failure.map_or(Ok(files), Err));
            };
            drop(backlog);
            let done = self.do_step(&step);
            self.after(step, done);
        }
    }

    fn do_step(&self, step: &FileStep) -> io::Result<()> {
        let mut files = self.files();
        match step {
            FileStep::Create => {
                files.push((self.create)()?);
                Ok(())
            }
            FileStep::Write(bytes) => match files.last_mut() {
                Some(file) => file.write_all(bytes),
                None => Err(io::Error::other("bytes of a file that was not made")),
            },
        }
    }

    fn after(&self, step: FileStep, done: io::Result<()>) {
        let mut backlog = self.backlog();
        if let FileStep::Write(bytes) = step {
            backlog.bytes = backlog.bytes.saturating_sub(bytes.len());
        }
        if let Err(error) = done {
            backlog.steps.clear();
            backlog.bytes = 0;
            backlog.failure = Some(error);
        }
        if backlog.held_back && backlog.bytes <= QUEUE_BYTES_LOW {
            backlog.held_back = false;
            if let Some(nudge) = &backlog.nudge {
                nudge.send();
            }
        }
    }

    fn backlog(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn files(&self) -> MutexGuard<'_, Vec<File>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An executor refused the job.
pub(super) struct Refused {
    pub(super) why: &'static str,
    /// The responder, if the spool had it and not the intake.
    pub(super) responder: Option<Box<Responder>>,
}

/// Bytes on disk that one form takes, counted against those of all forms of the handler. Freed when dropped.
#[derive(Debug)]
pub(super) struct DiskRoom {
    used: Arc<AtomicU64>,
    bytes: u64,
}

impl DiskRoom {
    pub(super) fn new(used: &Arc<AtomicU64>) -> DiskRoom {
        DiskRoom { used: Arc::clone(used), bytes: 0 }
    }

    /// Takes more bytes. `false` if the forms of the handler now exceed `bytes_max` together.
    pub(super) fn take(&mut self, bytes: u64, bytes_max: u64) -> bool {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        before.saturating_add(bytes) <= bytes_max
    }
}

impl Drop for DiskRoom {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read, Seek};

    /// What the files hold once everything is written.
    fn written(spool: &Spool) -> Vec<String> {
        spool.work();
        let mut files = spool.files();
        let read = |file: &mut File| {
            let mut text = String::new();
            file.rewind().unwrap();
            file.read_to_string(&mut text).unwrap();
            text
        };
        files.iter_mut().map(read).collect()
    }

    #[test]
    fn bytes_are_written_in_their_order_into_the_file_begun_last() {
        let spool = Spool::new(Box::new(tempfile::tempfile));
        spool.create();
        spool.write(b"one ");
        spool.write(b"two");
        spool.create();
        spool.create();
        spool.write(&vec![b'x'; 3 * WRITE_BYTES]);
        spool.write(b"end");
        assert_eq!(spool.queued_bytes(), 7 + 3 * WRITE_BYTES + 3);
        let large = "x".repeat(3 * WRITE_BYTES) + "end";
        assert_eq!(written(&spool), ["one two", "", &large]);
        assert_eq!((spool.queued_bytes(), spool.room()), (0, QUEUE_BYTES_MAX));
        assert!(spool.failure().is_none());
    }

    #[test]
    fn a_full_disk_is_told_and_nothing_more_is_written() {
        let spool = Spool::new(Box::new(|| File::options().write(true).open("/dev/full")));
        spool.create();
        spool.write(b"bytes");
        spool.create();
        spool.work();
        assert_eq!(spool.failure().map(|error| error.kind()), Some(ErrorKind::StorageFull));
        assert_eq!((spool.files().len(), spool.queued_bytes()), (1, 0));
    }

    #[test]
    fn there_is_room_until_the_queue_is_full() {
        let spool = Spool::new(Box::new(tempfile::tempfile));
        spool.create();
        spool.write(&vec![b'x'; QUEUE_BYTES_MAX - 1]);
        assert_eq!((spool.room(), spool.backlog().held_back), (1, false));
        spool.write(b"xx");
        assert_eq!((spool.room(), spool.backlog().held_back), (0, true));
        spool.work();
        assert_eq!((spool.room(), spool.backlog().held_back), (QUEUE_BYTES_MAX, false));
    }

    #[test]
    fn room_on_disk_has_a_bound_and_is_given_back() {
        let used = Arc::default();
        let mut first = DiskRoom::new(&used);
        assert!(first.take(6, 10) && first.take(4, 10));
        let mut second = DiskRoom::new(&used);
        assert!(!second.take(1, 10));
        drop(second);
        drop(first);
        assert!(DiskRoom::new(&used).take(10, 10));
    }
}
