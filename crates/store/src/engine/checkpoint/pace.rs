//! Write rate of checkpoints and bulk builds, which share the disk with the syncs of the log.
//!
//! A checkpoint writes slowly and evenly, in small slices, and waits for each slice. Its rate is the lowest at which it
//! ends before the next memtable is full or the log too long ([`Pacer::rate`]). A sync of the log waits for at most one
//! slice, and most syncs for none. If commits come too fast for that, they will have to wait for the checkpoint's end,
//! so it runs at full speed, in larger stretches. It also runs at full speed if there are no commits.
//!
//! While commits run, a bulk build pauses after each stretch for as long as the stretch took. Without commits, as in
//! most imports, it does not pause. It writes out each stretch even then: otherwise the last sync would write hundreds
//! of megabytes and delay the next commits.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::throttle::Throttle;
use crate::base::fail_stop::lock;
use crate::base::limits::LOG_BYTES_MAX;
use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::base::sync::{Instant, Mutex, thread};
use crate::disk::DiskFile;
use crate::engine::Engine;
use crate::log::Log;
use crate::memtable::Memtable;
use crate::tree::Pace;

/// Maximum pause: a longer one does not help a disk that stalls.
const REST_MAX: Duration = Duration::from_millis(5);
/// Bytes written out at once while there are no commits: each stretch is waited for, and larger ones wait less often.
const STRETCH_BYTES: u64 = 4 << 20;

/// Minimum write rate of a checkpoint in bytes a second: even slices at this rate hardly slow a sync of the log.
const GENTLE_RATE: f64 = 64e6;
/// A rate above this takes the whole disk.
const EVEN_RATE_MAX: f64 = 256e6;
/// Duration of a slice: at the gentle rate one page. A sync of the log makes the disk finish everything submitted
/// before, and scattered pages take long. With four pages in a slice, the 99th percentile of sync latency was 1.9 to
/// 2.5 times that without a checkpoint, with one page 1.5 times. Slices of 2 MB, which few syncs meet, did as well
/// there, but the 99.9th percentile was ten times as high.
const SLICE_SECONDS: f64 = 62.5e-6;
/// Bytes written out at once at full speed.
const FAST_STRETCH_BYTES: u64 = 256 << 10;
/// Maximum lost time that is caught up after a pause that took too long.
const CATCH_UP_MAX: Duration = Duration::from_millis(1);
/// After this time without a commit, writers count as idle.
const IDLE_AFTER: Duration = Duration::from_millis(20);
/// Before this time the rate of commits is unknown.
const LEARNING: Duration = Duration::from_millis(5);
/// Bytes that the log may grow by during a checkpoint. Each lone commit takes a page of the log, so the memtable fills
/// slowly, but such a log is replayed quickly.
const LOG_GROWTH_MAX: u64 = 3 * LOG_BYTES_MAX;
/// A checkpoint should end when this share of the next memtable is full, or of the log's growth is used.
const DONE_AT: f64 = 0.75;

/// Progress of a merge, and growth of the log meanwhile.
pub(super) struct Progress {
    total: u64,
    done: AtomicU64,
    log_before: u64,
    log_now: AtomicU64,
}

/// Records between two checks of the log's length.
const LOOK_EVERY: u64 = 64;

impl Progress {
    /// For a merge of `total` records that begins when the log has written `log_bytes` bytes.
    pub(super) fn of(total: u64, log_bytes: u64) -> Progress {
        Progress { total, done: AtomicU64::new(0), log_before: log_bytes, log_now: AtomicU64::new(log_bytes) }
    }

    /// Counts one merged record.
    pub(super) fn note(&self, log: &Log, throttle: &Throttle) {
        if self.done.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK_EVERY) {
            self.log_now.store(log.bytes_written(), Ordering::Relaxed);
            throttle.note(self.share_done());
        }
    }

    fn share_done(&self) -> f64 {
        self.done.load(Ordering::Relaxed) as f64 / self.total.max(1) as f64
    }

    /// Growth of the log as a share of its bound.
    fn log_growth(&self) -> f64 {
        (self.log_now.load(Ordering::Relaxed) - self.log_before) as f64 / LOG_GROWTH_MAX as f64
    }
}

/// The pace of one checkpoint, over all its pieces.
pub(super) struct Pacer {
    progress: Arc<Progress>,
    throttle: Arc<Throttle>,
    /// The active memtable, which fills up meanwhile.
    active: Arc<Memtable>,
    capacity: usize,
    used_before: usize,
    is_closing: Arc<AtomicBool>,
    began: Instant,
    /// Bytes written so far.
    written: u64,
    /// The stretch not yet written out: start, end, and bytes of it.
    unwritten: Option<(u64, u64, u64)>,
    /// Earliest time of the next slice.
    due: Instant,
    /// Bytes in the memtable when it last grew, and the time.
    seen: (usize, Instant),
}

impl Engine {
    /// The pace of a checkpoint that begins now.
    pub(super) fn pacer(&self, progress: &Arc<Progress>) -> Arc<Mutex<Pacer>> {
        let active = Arc::clone(&lock(&self.current).active);
        let used_before = active.used_bytes();
        let now = Instant::now();
        Arc::new(Mutex::new(Pacer {
            progress: Arc::clone(progress),
            throttle: Arc::clone(&self.throttle),
            active,
            capacity: self.options.memtable_bytes,
            used_before,
            is_closing: Arc::clone(&self.is_closing),
            began: now,
            written: 0,
            unwritten: None,
            due: now,
            seen: (used_before, now),
        }))
    }
}

/// The pace of one piece.
pub(super) fn of_checkpoint(pacer: &Arc<Mutex<Pacer>>) -> Pace {
    let pacer = Arc::clone(pacer);
    Box::new(move |file: &dyn DiskFile, start, len| lock(&pacer).step(file, start, len))
}

impl Pacer {
    fn step(&mut self, file: &dyn DiskFile, start: u64, len: u64) -> io::Result<()> {
        check_open(&self.is_closing)?;
        let (low, high, bytes) = self.unwritten.take().unwrap_or((start, start, 0));
        // Each call reports one write. A stretch of several writes may have gaps, whose pages are clean.
        let bytes = bytes + len;
        let (low, high) = (low.min(start), high.max(start + len));
        let rate = self.rate(Instant::now());
        let slice = rate.map_or(FAST_STRETCH_BYTES, |rate| (rate * SLICE_SECONDS) as u64);
        if bytes < slice {
            self.unwritten = Some((low, high, bytes));
            return Ok(());
        }
        self.written += bytes;
        file.sync_range(low, high - low)?;
        if let Some(rate) = rate {
            let now = Instant::now();
            // At most `CATCH_UP_MAX` of lost time is caught up, because more would be a burst.
            let earliest = now.checked_sub(CATCH_UP_MAX).unwrap_or(now);
            self.due = self.due.max(earliest) + Duration::from_secs_f64(bytes as f64 / rate);
            thread::sleep(self.due.saturating_duration_since(now).min(REST_MAX));
        }
        Ok(())
    }

    /// The current write rate in bytes a second; `None`: full speed.
    fn rate(&mut self, now: Instant) -> Option<f64> {
        if self.throttle.is_slowing() {
            return None;
        }
        let used = self.active.used_bytes();
        if used > self.seen.0 {
            self.seen = (used, now);
        } else if now - self.seen.1 > IDLE_AFTER {
            return None;
        }
        let memtable = (used - self.used_before) as f64 / self.capacity.saturating_sub(self.used_before).max(1) as f64;
        rate_for(self.progress.share_done(), memtable.max(self.progress.log_growth()), self.written, now - self.began)
    }
}

/// The rate for a merge of which the share `done` has taken `written` bytes in `elapsed`, while the share `pressure` of
/// memtable or log growth is used.
fn rate_for(done: f64, pressure: f64, written: u64, elapsed: Duration) -> Option<f64> {
    if pressure >= DONE_AT {
        return None;
    }
    if elapsed < LEARNING || done <= 0.0 {
        return Some(GENTLE_RATE);
    }
    let left_bytes = written as f64 * (1.0 - done).max(0.0) / done;
    let left_seconds = elapsed.as_secs_f64() * (DONE_AT - pressure) / pressure.max(f64::MIN_POSITIVE);
    let needed = left_bytes / left_seconds;
    (needed <= EVEN_RATE_MAX).then_some(needed.max(GENTLE_RATE))
}

/// No pace, for work that blocks all writers.
pub(in crate::engine) fn unhindered(is_closing: Arc<AtomicBool>) -> Pace {
    let mut unwritten: Option<(u64, u64)> = None;
    Box::new(move |file: &dyn DiskFile, start, len| {
        check_open(&is_closing)?;
        let (low, high) = unwritten.take().unwrap_or((start, start));
        let (low, high) = (low.min(start), high.max(start + len));
        if high - low < FAST_STRETCH_BYTES {
            unwritten = Some((low, high));
            return Ok(());
        }
        file.sync_range(low, high - low)
    })
}

fn check_open(is_closing: &AtomicBool) -> io::Result<()> {
    if is_closing.load(Ordering::Acquire) {
        return Err(io::Error::new(io::ErrorKind::Interrupted, "the store is closing"));
    }
    Ok(())
}

/// The pace of a bulk build.
pub(crate) fn of_bulk_build(engine: Arc<Engine>) -> Pace {
    let mut seen = engine.visible();
    let mut unwritten: Option<(u64, u64)> = None;
    Box::new(move |file: &dyn DiskFile, start, len| {
        check_open(&engine.is_closing)?;
        let now = engine.visible();
        let is_alone = std::mem::replace(&mut seen, now) == now;
        let (low, high) = unwritten.take().unwrap_or((start, start));
        let (low, high) = (low.min(start), high.max(start + len));
        if is_alone && high - low < STRETCH_BYTES {
            unwritten = Some((low, high));
            return Ok(());
        }
        let began = Instant::now();
        file.sync_range(low, high - low)?;
        if !is_alone {
            thread::sleep(began.elapsed().min(REST_MAX));
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_checkpoint_is_gentle_while_it_is_ahead_and_hurries_when_it_falls_behind() {
        assert_eq!(rate_for(0.0, 0.1, 0, Duration::ZERO), Some(GENTLE_RATE));
        assert_eq!(rate_for(0.5, 0.1, 60 << 20, SECOND), Some(GENTLE_RATE));
        // A quarter done, half of the time used: as much again in each third of a second.
        let rate = rate_for(0.25, 0.5, 10_000_000, SECOND).unwrap();
        assert!((50e6..70e6).contains(&rate), "{rate}");
        let rate = rate_for(0.25, 0.5, 20_000_000, SECOND).unwrap();
        assert!((115e6..125e6).contains(&rate), "{rate}");
        assert_eq!(rate_for(0.25, 0.7, 20_000_000, SECOND), None);
        assert_eq!(rate_for(0.99, 0.76, 1, SECOND), None);
    }
}
