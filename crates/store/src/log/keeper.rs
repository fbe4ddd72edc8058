//! Keeps prepared segments at hand, off the commit path: writing a new one with zeros takes milliseconds.
//!
//! One thread. It takes a recycled file if there is one, else writes a new one, until [`READY_SEGMENTS`] are ready. While
//! the disk refuses, so is whoever needs the next segment, at once; and it tries again each [`RETRY_AFTER`].
//!
//! Segments that are only kept for readers of changes give way first: one is recycled where a new one finds no room, and
//! they are removed while the disk has little room left. The thread also sees to it that none gets older than it may.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::retention::Retention;
use super::segment::{self, Segment};
use crate::disk::{Access, DIRECT_ALIGN, Disk};
use crate::error::Error;
use crate::fail_stop::FailStop;

/// Prepared ahead: one would do at a low rate; two ride out a slow preparation.
const READY_SEGMENTS: usize = 2;
/// When a refused preparation is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// How often kept segments are looked at, while there are any.
const KEPT_TICK: Duration = Duration::from_millis(250);
/// Free space on the disk, in segments, below which kept ones are removed.
const FREE_SEGMENTS_MIN: u64 = 8;
/// Recycled files kept at most; more are removed. As many as a checkpoint of large memtables gives back at once: else some
/// would be removed and written anew each time.
const SPARES_MAX: usize = 16;
/// Recycled files kept on a full disk, beside those that are ready: on it deletions make a segment full before the checkpoint ends
/// that gives the one before back.
const SPARES_MIN: usize = 2;

/// See the module's text.
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    disk: Arc<dyn Disk>,
    retention: Arc<Retention>,
    fail_stop: Arc<FailStop>,
    direct: bool,
    segment_bytes: u64,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    ready: VecDeque<Arc<Segment>>,
    /// Numbers under whose names recycled files lie.
    spares: Vec<u64>,
    next_number: u64,
    failure: Option<Error>,
    closing: bool,
    /// The thread has ended by a panic: it prepares nothing any more.
    has_panicked: bool,
}

impl State {
    /// A file to make segment `number` of: the one that has its name, if there is one. Else that one would be overwritten by
    /// the renaming, and once more taken for a spare when it is in use.
    fn take_spare(&mut self, number: u64) -> Option<u64> {
        match self.spares.iter().position(|spare| *spare == number) {
            Some(place) => Some(self.spares.swap_remove(place)),
            None => self.spares.pop(),
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock; were it so, the state would still be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keeper {
    /// Starts the thread. `next_number` is the first it will prepare; `spares` are files it may take for it.
    pub(crate) fn start(
        (disk, retention, fail_stop): (Arc<dyn Disk>, Arc<Retention>, Arc<FailStop>),
        direct: bool,
        segment_bytes: u64,
        next_number: u64,
        spares: Vec<u64>,
    ) -> Result<Keeper, Error> {
        let ready = VecDeque::new();
        let state = State { ready, spares, next_number, failure: None, closing: false, has_panicked: false };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let shared = Arc::new(Shared { disk, retention, fail_stop, direct, segment_bytes, state, changed });
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("store-log".to_string())
            .spawn(move || {
                let _life = Life(&for_thread);
                keep(&for_thread);
            })
            .map_err(|error| Error::io("start the log's thread", error))?;
        Ok(Keeper { shared, thread: Some(thread) })
    }

    /// The next segment, waiting for it when no more than `kept` are ready.
    pub(crate) fn take(&self, kept: usize) -> Result<Arc<Segment>, Error> {
        let mut state = self.shared.state();
        loop {
            if state.ready.len() > kept
                && let Some(segment) = state.ready.pop_front()
            {
                self.shared.changed.notify_all();
                return Ok(segment);
            }
            if state.has_panicked {
                return Err(Error::Poisoned);
            }
            if let Some(error) = &state.failure {
                return Err(error.copy());
            }
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether the next one will be refused, for now.
    pub(crate) fn is_failing(&self, kept: usize) -> bool {
        let state = self.shared.state();
        state.failure.is_some() && state.ready.len() <= kept
    }

    /// Removes a recycled file beyond those that deletions will need, so that the disk has its space; false when there is none.
    pub(crate) fn give_back(&self) -> bool {
        let mut state = self.shared.state();
        if state.ready.len() < READY_SEGMENTS || state.spares.len() <= SPARES_MIN {
            return false;
        }
        let spare = state.spares.pop();
        drop(state);
        spare.is_some_and(|number| remove_spare(&*self.shared.disk, number))
    }

    /// Ends the thread and removes all files that hold nothing: nobody writes to the log any more.
    pub(crate) fn give_all_back(&self) {
        let mut state = self.shared.state();
        state.closing = true;
        let ready: Vec<u64> = state.ready.drain(..).map(|segment| segment.number).collect();
        let spares = std::mem::take(&mut state.spares);
        drop(state);
        self.shared.changed.notify_all();
        for number in ready.into_iter().chain(spares) {
            remove_spare(&*self.shared.disk, number);
        }
    }

    /// Takes back segments that no recovery needs any more.
    pub(crate) fn recycle(&self, numbers: impl IntoIterator<Item = u64>) {
        let mut state = self.shared.state();
        let before = state.spares.len();
        state.spares.extend(numbers);
        if state.spares.len() > before {
            // What failed for want of room is worth a try.
            state.failure = None;
        }
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.state().closing = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there was printed there; the log is closed either way.
            let _ = thread.join();
        }
    }
}

/// The thread's: where it ends by a panic, the store stops and nobody waits for the next segment.
struct Life<'s>(&'s Shared);

impl Drop for Life<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail_stop.stop_after_panic("a segment of the log was prepared");
            self.0.state().has_panicked = true;
            self.0.changed.notify_all();
        }
    }
}

fn keep(shared: &Shared) {
    let mut state = shared.state();
    let mut is_retry = false;
    while !state.closing {
        if state.ready.len() < READY_SEGMENTS && (state.failure.is_none() || is_retry) {
            is_retry = false;
            let number = state.next_number;
            let spare = state.take_spare(number);
            drop(state);
            let prepared = prepare(shared, number, spare);
            state = shared.state();
            match prepared {
                Ok(segment) => {
                    state.next_number += 1;
                    state.failure = None;
                    state.ready.push_back(Arc::new(segment));
                }
                Err(error) => {
                    state.spares.extend(spare);
                    let kept = if matches!(error, Error::Full) { shared.retention.give_back() } else { None };
                    match kept {
                        // Tried again with its file, before anybody hears of the failure.
                        Some(kept) => state.spares.push(kept),
                        None => state.failure = Some(error),
                    }
                }
            }
            shared.changed.notify_all();
        } else if state.spares.len() > SPARES_MAX {
            let spare = state.spares.pop();
            drop(state);
            if let Some(number) = spare {
                remove_spare(&*shared.disk, number);
            }
            state = shared.state();
        } else if state.failure.is_some() && state.ready.len() < READY_SEGMENTS {
            let (after, timeout) =
                shared.changed.wait_timeout(state, RETRY_AFTER).unwrap_or_else(PoisonError::into_inner);
            (state, is_retry) = (after, timeout.timed_out());
        } else if shared.retention.has_kept() {
            state = shared.changed.wait_timeout(state, KEPT_TICK).unwrap_or_else(PoisonError::into_inner).0;
            state.spares.extend(shared.retention.expire());
            drop(state);
            make_room(shared);
            state = shared.state();
        } else {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Removes kept segments while the disk has little room: before anything that is needed finds none.
fn make_room(shared: &Shared) {
    let little = FREE_SEGMENTS_MIN * shared.segment_bytes;
    let is_short = || matches!(shared.disk.free_bytes(), Ok(Some(free)) if free < little);
    while is_short() && shared.retention.give_back().is_some_and(|number| remove_kept(&*shared.disk, number)) {}
}

/// Removes a segment that is no longer needed; false when the disk refuses.
fn remove_spare(disk: &dyn Disk, number: u64) -> bool {
    let removed = disk.remove(&segment::live_name(number));
    if let Err(error) = &removed {
        tracing::warn!(segment = number, %error, "cannot remove a log segment that is no longer needed");
    }
    removed.is_ok()
}

/// Removes a segment that was only kept for readers of changes; false when the disk refuses.
pub(super) fn remove_kept(disk: &dyn Disk, number: u64) -> bool {
    let removed = disk.remove(&segment::live_name(number));
    match &removed {
        Ok(()) => tracing::info!(segment = number, "the disk is short of room: changes are kept no longer"),
        Err(error) => tracing::warn!(segment = number, %error, "cannot remove a log segment that is kept for changes"),
    }
    removed.is_ok()
}

/// Makes the file `number` out of a spare or a new one; durable with its header and name when this returns.
fn prepare(shared: &Shared, number: u64, spare: Option<u64>) -> Result<Segment, Error> {
    let live = segment::live_name(number);
    let source = match spare {
        Some(old) => segment::live_name(old),
        None => segment::new_name(number),
    };
    let context = |error| Error::io(format!("prepare log segment {live}"), error);
    if spare.is_none()
        && let Ok(Some(free_bytes)) = shared.disk.free_bytes()
        && free_bytes < shared.segment_bytes
    {
        // Not even begun: what it took would be wanting elsewhere.
        return Err(Error::Full);
    }
    let written = write_segment(shared, &source, number, spare.is_none());
    written.inspect_err(|_| give_up(shared, &source, spare)).map_err(context)?;
    shared.disk.rename(&source, &live).map_err(context)?;
    shared.disk.sync_dir().map_err(context)?;
    let (file, is_direct) = segment::open_for_writing(&*shared.disk, &live, shared.direct).map_err(context)?;
    Ok(Segment { number, bytes: shared.segment_bytes, file, is_direct })
}

/// A file that could not be filled is removed: its space is wanted for checkpoints.
fn give_up(shared: &Shared, source: &str, spare: Option<u64>) {
    if spare.is_none()
        && let Err(error) = shared.disk.remove(source)
    {
        tracing::warn!(name = source, %error, "cannot remove a log segment that the disk has no room for");
    }
}

/// A sync that failed leaves what was written in the kernel's cache, where it is taken for clean: read, but perhaps not on the
/// disk, and no later sync would write it. So of what an earlier attempt left of a new file nothing counts, and of a
/// recycled one not its length: its last block is written again, and with it the length that the header says.
fn write_segment(shared: &Shared, name: &str, number: u64, is_new: bool) -> std::io::Result<()> {
    let file = shared.disk.open(name, true, Access::Buffered)?;
    let mut len = file.len()?;
    if is_new && len > 0 {
        file.set_len(0)?;
        len = 0;
    }
    if len > shared.segment_bytes {
        // The header first: one that says more than there is would be taken for a segment that was cut.
        file.write_all_at(&segment::encode_header(number, shared.segment_bytes), 0)?;
        file.sync_data()?;
        file.set_len(shared.segment_bytes)?;
    }
    let zeros_from = len.min(shared.segment_bytes - DIRECT_ALIGN as u64);
    file.write_zeros(zeros_from, shared.segment_bytes - zeros_from)?;
    file.write_all_at(&segment::encode_header(number, shared.segment_bytes), 0)?;
    file.sync_data()
}
