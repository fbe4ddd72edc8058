//! How fast a bulk build may write.
//!
//! It shares the disk with the log, whose syncs somebody waits for. Where commits go on it rests after each stretch as long
//! as that took, as a checkpoint does; where nobody commits, which is how most imports run, a rest would only make it
//! half as fast. Stretches are written out as they come also then: left to the last sync, hundreds of megabytes would
//! hold up whoever begins to commit meanwhile.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Engine;
use crate::disk::DiskFile;
use crate::tree::Pace;

/// A rest, at most: a disk that stalls is not helped by waiting still longer.
const REST_MAX: Duration = Duration::from_millis(5);
/// Bytes that go to the disk at once while nobody commits: each stretch is waited for, and larger ones wait less often.
const STRETCH_BYTES: u64 = 4 << 20;

/// The pace of a bulk build.
pub(super) fn of_bulk_build(engine: Arc<Engine>) -> Pace {
    let mut seen = engine.visible();
    let mut unwritten: Option<(u64, u64)> = None;
    Box::new(move |file: &dyn DiskFile, start, len| {
        if engine.is_closing.load(Ordering::Acquire) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the store is closing"));
        }
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
            std::thread::sleep(began.elapsed().min(REST_MAX));
        }
        Ok(())
    })
}
