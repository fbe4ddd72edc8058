//! Prepares segments in advance, off the commit path: writing a new one with zeros takes milliseconds.
//!
//! One thread reuses a recycled file if there is one, else writes a new one, until [`READY_SEGMENTS`] are ready. If the
//! disk refuses, requests for the next segment fail at once, and the thread retries each [`RETRY_AFTER`].
//!
//! Segments that are kept only for readers of changes yield their space first: if there is no room for a new segment, one
//! of them is recycled, and while the disk has little free space they are removed. The thread also expires kept segments
//! that are too old.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::retention::Retention;
use super::segment::{self, Segment};
use crate::base::error::StoreError;
use crate::base::fail_stop::FailStop;
use crate::base::sync::thread::JoinHandle;
use crate::base::sync::{Condvar, Mutex, MutexGuard, PoisonError, thread};
use crate::disk::{Access, DIRECT_ALIGN, Disk};

/// Number of prepared segments. One suffices at a low write rate; two cover a slow preparation.
const READY_SEGMENTS: usize = 2;
/// Delay before a refused preparation is retried.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// Interval at which kept segments are checked, while there are any.
const KEPT_TICK: Duration = Duration::from_millis(250);
/// Free disk space, in segments, below which kept ones are removed.
const FREE_SEGMENTS_MIN: u64 = 8;
/// Maximum number of recycled files; more are removed. A checkpoint of large memtables releases about as many at once,
/// so that they need not be removed and written anew each time.
const SPARES_MAX: usize = 16;
/// Recycled files kept on a full disk beside the prepared ones: deletions on a full disk may fill a segment before the
/// checkpoint ends that releases the previous one.
const SPARES_MIN: usize = 2;

/// See the module's text.
pub(crate) struct SegmentSupply {
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
    /// Numbers in the names of the recycled files.
    spares: Vec<u64>,
    next_number: u64,
    failure: Option<StoreError>,
    closing: bool,
    /// The thread has ended by a panic and prepares nothing more.
    has_panicked: bool,
}

impl State {
    /// A file for segment `number`. If a spare already has that name, it is chosen: otherwise the rename would
    /// overwrite that spare, and the segment would later be taken for a spare while in use.
    fn take_spare(&mut self, number: u64) -> Option<u64> {
        match self.spares.iter().position(|spare| *spare == number) {
            Some(place) => Some(self.spares.swap_remove(place)),
            None => self.spares.pop(),
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics under this lock, and a panic would leave the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SegmentSupply {
    /// Starts the thread. `next_number` is the first segment it will prepare; `spares` are files it may reuse.
    pub(crate) fn start(
        (disk, retention, fail_stop): (Arc<dyn Disk>, Arc<Retention>, Arc<FailStop>),
        direct: bool,
        segment_bytes: u64,
        next_number: u64,
        spares: Vec<u64>,
    ) -> Result<SegmentSupply, StoreError> {
        let ready = VecDeque::new();
        let state = State { ready, spares, next_number, failure: None, closing: false, has_panicked: false };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let shared = Arc::new(Shared { disk, retention, fail_stop, direct, segment_bytes, state, changed });
        let for_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("store-log".to_string())
            .spawn(move || {
                let _life = Life(&for_thread);
                keep(&for_thread);
            })
            .map_err(|error| StoreError::io("start the log's thread", error))?;
        Ok(SegmentSupply { shared, thread: Some(thread) })
    }

    /// The next segment; waits for it if no more than `kept` are ready.
    pub(crate) fn take(&self, kept: usize) -> Result<Arc<Segment>, StoreError> {
        let mut state = self.shared.state();
        loop {
            if state.ready.len() > kept
                && let Some(segment) = state.ready.pop_front()
            {
                self.shared.changed.notify_all();
                return Ok(segment);
            }
            if state.has_panicked {
                return Err(StoreError::Poisoned);
            }
            if let Some(error) = &state.failure {
                return Err(error.clone());
            }
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Why the next segment would currently be refused.
    pub(crate) fn failure(&self, kept: usize) -> Option<StoreError> {
        let state = self.shared.state();
        state.failure.as_ref().filter(|_| state.ready.len() <= kept).cloned()
    }

    /// Removes a recycled file beyond those that deletions will need, to free disk space; false if there is none.
    pub(crate) fn give_back(&self) -> bool {
        let mut state = self.shared.state();
        if state.ready.len() < READY_SEGMENTS || state.spares.len() <= SPARES_MIN {
            return false;
        }
        let spare = state.spares.pop();
        drop(state);
        spare.is_some_and(|number| remove_spare(&*self.shared.disk, number))
    }

    /// Ends the thread and removes all unused files: the log will not be written again.
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

    /// Takes back segments that recovery no longer needs.
    pub(crate) fn recycle(&self, numbers: impl IntoIterator<Item = u64>) {
        let mut state = self.shared.state();
        let before = state.spares.len();
        state.spares.extend(numbers);
        if state.spares.len() > before {
            // A preparation that failed for lack of space may succeed now.
            state.failure = None;
        }
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl Drop for SegmentSupply {
    fn drop(&mut self) {
        self.shared.state().closing = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported; the log is closed in either case.
            let _ = thread.join();
        }
    }
}

/// Owned by the thread: if the thread panics, the store stops, and no thread waits for the next segment.
struct Life<'s>(&'s Shared);

impl Drop for Life<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
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
                    let kept = if matches!(error, StoreError::Full) { shared.retention.give_back() } else { None };
                    match kept {
                        // Retried with the recycled file before the failure is reported.
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

/// Removes kept segments while the disk has little free space, before a needed write fails.
fn make_room(shared: &Shared) {
    let little = FREE_SEGMENTS_MIN * shared.segment_bytes;
    let is_short = || matches!(shared.disk.free_bytes(), Ok(Some(free)) if free < little);
    while is_short() && shared.retention.give_back().is_some_and(|number| remove_kept(&*shared.disk, number)) {}
}

/// Removes a segment that is no longer needed; false if the disk refuses.
fn remove_spare(disk: &dyn Disk, number: u64) -> bool {
    let removed = disk.remove(&segment::live_name(number));
    if let Err(error) = &removed {
        tracing::warn!(segment = number, %error, "cannot remove a log segment that is no longer needed");
    }
    removed.is_ok()
}

/// Removes a segment that was kept only for readers of changes; false if the disk refuses.
pub(super) fn remove_kept(disk: &dyn Disk, number: u64) -> bool {
    let is_removed = remove_spare(disk, number);
    if is_removed {
        tracing::info!(
            segment = number,
            "little disk space: removed a log segment that was kept for readers of changes"
        );
    }
    is_removed
}

/// Turns a spare or a new file into segment `number`; durable with header and name on return.
fn prepare(shared: &Shared, number: u64, spare: Option<u64>) -> Result<Segment, StoreError> {
    let live = segment::live_name(number);
    let source = match spare {
        Some(old) => segment::live_name(old),
        None => segment::new_name(number),
    };
    let context = |error| StoreError::io(format!("prepare log segment {live}"), error);
    if spare.is_none()
        && let Ok(Some(free_bytes)) = shared.disk.free_bytes()
        && free_bytes < shared.segment_bytes
    {
        // Not begun, because its blocks would be taken from other writes.
        return Err(StoreError::Full);
    }
    let written = write_segment(shared, &source, number, spare.is_none());
    written.inspect_err(|_| give_up(shared, &source, spare)).map_err(context)?;
    shared.disk.rename(&source, &live).map_err(context)?;
    shared.disk.sync_dir().map_err(context)?;
    let (file, is_direct) = segment::open_for_writing(&*shared.disk, &live, shared.direct).map_err(context)?;
    Ok(Segment { number, bytes: shared.segment_bytes, file, is_direct })
}

/// Removes a file that could not be filled: checkpoints need its space.
fn give_up(shared: &Shared, source: &str, spare: Option<u64>) {
    if spare.is_none()
        && let Err(error) = shared.disk.remove(source)
    {
        tracing::warn!(name = source, %error, "cannot remove a log segment that the disk has no room for");
    }
}

/// After a failed sync the written data is in the page cache, marked clean: it can be read, but may not be on the disk,
/// and no later sync writes it. So a new file that an earlier attempt has left is truncated and written again. In a
/// recycled file at least the last block is written again, and with it the length that the header states.
fn write_segment(shared: &Shared, name: &str, number: u64, is_new: bool) -> std::io::Result<()> {
    let file = shared.disk.open(name, true, Access::Buffered)?;
    let mut len = file.len()?;
    if is_new && len > 0 {
        file.set_len(0)?;
        len = 0;
    }
    if len > shared.segment_bytes {
        // The header first: a header with more bytes than the file would look like a truncated segment.
        file.write_all_at(&segment::encode_header(number, shared.segment_bytes), 0)?;
        file.sync_data()?;
        file.set_len(shared.segment_bytes)?;
    }
    let zeros_from = len.min(shared.segment_bytes - DIRECT_ALIGN as u64);
    file.write_zeros(zeros_from, shared.segment_bytes - zeros_from)?;
    file.write_all_at(&segment::encode_header(number, shared.segment_bytes), 0)?;
    file.sync_data()
}
