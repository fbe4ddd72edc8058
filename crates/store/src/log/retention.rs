//! The segments available to readers of changes, and the versions in them.
//!
//! ```text
//!   given up     │  kept: only for readers of changes       │  live: needed by recovery    │ tail
//!                │  oldest ◄──── bounds, a full disk        │  ◄──── checkpoints           │ ◄──── writer
//! ```
//!
//! The segments have consecutive numbers. Each has marks: positions where a batch begins, with the last version before it. A
//! reader of the changes after version N starts at the last mark not above N and skips at most the batches between two marks.
//!
//! Guarantees:
//!
//! 1. Only the oldest segment is given up, and only when recovery does not need it. A reader with a position in it must
//!    call [`Retention::follow`], and must not rely on the file's content, because a recycled file holds other batches.
//! 2. Kept segments stay within [`RetentionLimits`] and [`KEPT_SEGMENTS_MAX`]. Bytes count whole files; the age of a segment is
//!    that of its last change. After a restart ages count from the opening.
//! 3. No reader retains a segment. A reader that is too slow gets an error with the oldest version that is still available.
//!
//! This module touches no file: the segment supply recycles or removes the segments that it gives up.

use std::collections::VecDeque;
use std::time::Duration;

use super::position::LogPosition;
use crate::base::clock::Clock;
use crate::base::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of kept segments, regardless of bytes: this many are read when a store is opened.
pub(crate) const KEPT_SEGMENTS_MAX: usize = 4096;
/// Maximum number of marks of one segment, evenly spread over its bytes.
const MARKS_PER_SEGMENT: u64 = 16;

/// Bounds of what is kept for readers of changes, beyond what recovery needs.
#[derive(Clone, Debug)]
pub(crate) struct RetentionLimits {
    /// Bytes of whole segments. 0 keeps none.
    pub(crate) bytes: u64,
    /// Time since a segment's last change.
    pub(crate) time: Duration,
    pub(crate) clock: Clock,
}

/// A position where a batch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) at: LogPosition,
    /// The last version before it.
    pub(crate) version: u64,
}

/// See the module's text.
pub(crate) struct Retention {
    kept: RetentionLimits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Consecutive numbers; each segment has at least one mark.
    segments: VecDeque<Held>,
    /// Number of the first segment that recovery needs.
    live_from: u64,
}

struct Held {
    bytes: u64,
    /// Time when it became the tail, which is the age of the previous segment's last change.
    began: Duration,
    marks: Vec<Mark>,
}

/// What a reader does if there is no batch of its chain at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follow {
    /// The segment ends there; the next one begins here.
    Next(LogPosition),
    /// The segment was given up, but everything that the reader needs is available from this mark on.
    Later(Mark),
    /// Some of what the reader needs was given up; changes after this version are available.
    Gone(u64),
    /// A batch must be there: the disk has lost it.
    Damaged,
}

impl Held {
    fn number(&self) -> u64 {
        self.marks[0].at.segment
    }
}

impl State {
    fn kept_count(&self) -> usize {
        self.segments.iter().take_while(|held| held.number() < self.live_from).count()
    }

    fn has_kept(&self) -> bool {
        self.segments.front().is_some_and(|held| held.number() < self.live_from)
    }

    fn oldest(&self) -> u64 {
        self.segments.front().map_or(0, |held| held.marks[0].version)
    }

    /// The last mark not above a version.
    fn place(&self, version: u64) -> Option<Mark> {
        let index = self.segments.partition_point(|held| held.marks[0].version <= version).checked_sub(1)?;
        let marks = &self.segments[index].marks;
        Some(marks[marks.partition_point(|mark| mark.version <= version) - 1])
    }

    fn get(&self, number: u64) -> Option<&Held> {
        let first = self.segments.front()?.number();
        self.segments.get(usize::try_from(number.checked_sub(first)?).ok()?)
    }

    /// Removes the oldest segment if it is kept only for readers of changes.
    fn pop(&mut self) -> Option<u64> {
        if self.has_kept() { self.segments.pop_front().map(|held| held.number()) } else { None }
    }
}

impl Retention {
    pub(crate) fn new(kept: RetentionLimits) -> Retention {
        Retention { kept, state: Mutex::default() }
    }

    /// A retention that keeps nothing.
    pub(crate) fn none() -> Retention {
        Retention::new(RetentionLimits { bytes: 0, time: Duration::ZERO, clock: Clock::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics under this lock, and a panic would leave the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anything is ever kept.
    pub(crate) fn keeps(&self) -> bool {
        self.kept.bytes > 0 && !self.kept.time.is_zero()
    }

    /// Bytes of a segment between two marks.
    pub(crate) fn mark_every(segment_bytes: u64) -> u32 {
        // A segment's bytes fit into 32 bits.
        u32::try_from(segment_bytes / MARKS_PER_SEGMENT).unwrap_or(u32::MAX)
    }

    /// Adds the segment after the last one.
    pub(crate) fn began(&self, mark: Mark, bytes: u64) {
        let began = self.kept.clock.now();
        let mut state = self.state();
        if state.segments.back().is_some_and(|last| last.number() + 1 != mark.at.segment) {
            // Not expected. Segments before a gap would be useless.
            state.segments.clear();
        }
        state.segments.push_back(Held { bytes, began, marks: vec![mark] });
    }

    /// Adds a mark of the last segment.
    pub(crate) fn mark(&self, mark: Mark) {
        let mut state = self.state();
        if let Some(last) = state.segments.back_mut()
            && last.number() == mark.at.segment
        {
            last.marks.push(mark);
        }
    }

    /// Recovery needs nothing before this segment. Returns the segments that are not kept, oldest first, to be recycled.
    pub(crate) fn released_before(&self, number: u64) -> Vec<u64> {
        self.state().live_from = number;
        self.expire()
    }

    /// Gives up the segments beyond the bounds.
    pub(crate) fn expire(&self) -> Vec<u64> {
        let now = self.kept.clock.now();
        let mut state = self.state();
        let mut count = state.kept_count();
        let mut bytes: u64 = state.segments.iter().take(count).map(|held| held.bytes).sum();
        let mut given_back = Vec::new();
        while count > 0 {
            // A kept segment always has a successor; the last segment is the tail.
            let age = now.saturating_sub(state.segments.get(1).map_or(now, |next| next.began));
            if bytes <= self.kept.bytes && age < self.kept.time && count <= KEPT_SEGMENTS_MAX {
                break;
            }
            bytes -= state.segments[0].bytes;
            count -= 1;
            given_back.extend(state.pop());
        }
        given_back
    }

    /// Gives up the oldest kept segment regardless of the bounds, since the disk is full.
    pub(crate) fn give_back(&self) -> Option<u64> {
        self.state().pop()
    }

    pub(crate) fn has_kept(&self) -> bool {
        self.state().has_kept()
    }

    /// The mark from which to read the changes after a version; `Err`: the oldest version after which changes are available.
    pub(crate) fn place(&self, version: u64) -> Result<Mark, u64> {
        let state = self.state();
        state.place(version).ok_or_else(|| state.oldest())
    }

    /// For a reader that has all versions up to `version` and has found no valid batch at `at`.
    pub(crate) fn follow(&self, at: &LogPosition, version: u64) -> Follow {
        let state = self.state();
        if state.get(at.segment).is_none() {
            return state.place(version).map_or_else(|| Follow::Gone(state.oldest()), Follow::Later);
        }
        match state.get(at.segment + 1).map(|next| next.marks[0].at) {
            Some(next) if (next.sequence, next.previous) == (at.sequence, at.previous) => Follow::Next(next),
            _ => Follow::Damaged,
        }
    }

    /// Number of the first segment.
    pub(crate) fn first(&self) -> Option<u64> {
        self.state().segments.front().map(Held::number)
    }

    /// The oldest version after which all changes are available.
    pub(crate) fn oldest(&self) -> u64 {
        self.state().oldest()
    }

    /// Bytes of all segments kept only for readers of changes.
    pub(crate) fn kept_bytes(&self) -> u64 {
        let state = self.state();
        state.segments.iter().take(state.kept_count()).map(|held| held.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    const BYTES: u64 = 100;

    fn mark(segment: u64, offset: u32, version: u64) -> Mark {
        let at = LogPosition { segment, offset, previous: version as u32, sequence: version, epoch: 1 };
        Mark { at, version }
    }

    /// Ten segments with ten versions each and a mark in the middle of each; the clock shows 10 when the last one begins.
    fn ten(bytes: u64, time: u64) -> (Retention, Arc<AtomicU64>) {
        let seconds = Arc::new(AtomicU64::new(0));
        let clock = Clock::shows(Arc::clone(&seconds));
        let retention = Retention::new(RetentionLimits { bytes, time: Duration::from_secs(time), clock });
        for number in 1..=10 {
            seconds.store(number, Ordering::Release);
            retention.began(mark(number, 4096, 10 * (number - 1)), BYTES);
            retention.mark(mark(number, 8192, 10 * (number - 1) + 5));
        }
        (retention, seconds)
    }

    #[test]
    fn what_recovery_needs_stays_whatever_the_bounds() {
        let (retention, _) = ten(0, 0);
        assert_eq!(retention.expire(), []);
        assert_eq!(retention.give_back(), None);
        assert_eq!(retention.released_before(4), [1, 2, 3]);
        assert_eq!((retention.oldest(), retention.kept_bytes()), (30, 0));
    }

    #[test]
    fn the_newest_segments_within_the_bytes_are_kept() {
        let (retention, _) = ten(3 * BYTES + 50, 1000);
        assert_eq!(retention.released_before(2), []);
        assert_eq!(retention.released_before(6), [1, 2]);
        assert_eq!((retention.oldest(), retention.kept_bytes()), (20, 300));
        assert_eq!(retention.released_before(9), [3, 4, 5]);
        assert_eq!(retention.give_back(), Some(6));
        assert_eq!((retention.oldest(), retention.kept_bytes()), (60, 200));
    }

    #[test]
    fn a_segment_is_as_old_as_its_last_change() {
        let (retention, seconds) = ten(u64::MAX, 5);
        assert_eq!(retention.released_before(9), [1, 2, 3, 4], "segment 5 ended at six o'clock");
        seconds.store(11, Ordering::Release);
        assert_eq!(retention.expire(), [5]);
        seconds.store(1000, Ordering::Release);
        assert_eq!(retention.expire(), [6, 7, 8]);
        assert_eq!(retention.expire(), []);
    }

    #[test]
    fn a_place_is_the_last_mark_not_above_the_version() {
        let (retention, _) = ten(u64::MAX, 1000);
        assert_eq!(retention.place(0), Ok(mark(1, 4096, 0)));
        assert_eq!(retention.place(4), Ok(mark(1, 4096, 0)));
        assert_eq!(retention.place(5), Ok(mark(1, 8192, 5)));
        assert_eq!(retention.place(9), Ok(mark(1, 8192, 5)));
        assert_eq!(retention.place(10), Ok(mark(2, 4096, 10)));
        assert_eq!(retention.place(4000), Ok(mark(10, 8192, 95)));
        retention.released_before(4);
        while retention.give_back().is_some() {}
        assert_eq!(retention.place(29), Err(30));
        assert_eq!(retention.place(30), Ok(mark(4, 4096, 30)));
    }

    #[test]
    fn who_finds_no_batch_is_told_why() {
        let (retention, _) = ten(0, 1000);
        retention.released_before(4);
        let end = |segment, version| LogPosition { offset: 90_000, ..mark(segment, 0, version).at };
        assert_eq!(retention.follow(&end(4, 40), 40), Follow::Next(mark(5, 4096, 40).at));
        assert_eq!(retention.follow(&end(4, 39), 39), Follow::Damaged, "the segment has one batch more");
        assert_eq!(retention.follow(&end(10, 100), 100), Follow::Damaged, "there is no segment behind it");
        assert_eq!(retention.follow(&end(3, 29), 29), Follow::Gone(30));
        assert_eq!(retention.follow(&end(3, 30), 30), Follow::Later(mark(4, 4096, 30)));
    }
}
