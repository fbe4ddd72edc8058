//! The segments before the log start that an opened store still holds for readers of changes.
//!
//! Of each segment only the header and the header of its first batch are read, newest segment first. The first unexpected
//! one (half recycled at a power failure, truncated, or of another format) and all before it are not kept. Readers of
//! changes check the batches inside: a damaged batch is an error with its position, never a missing change.

use super::batch::HEADER_BYTES;
use super::position::LogPosition;
use super::reader::Batch;
use super::retention::{KEPT_SEGMENTS_MAX, Mark, Retention};
use super::segment::{self, DATA_AT};
use crate::disk::{Access, DIRECT_ALIGN, Disk};

/// See the module's text.
pub(super) struct KeptSegments {
    /// A mark for each segment, oldest first, and its length if it is not known otherwise.
    segments: Vec<(Mark, Option<u64>)>,
    /// The last version in the log so far.
    version: u64,
}

impl KeptSegments {
    /// The segments before `start`, if the tree contains all versions up to `version`. The segment of `start` is always included.
    pub(super) fn before(disk: &dyn Disk, start: &LogPosition, version: u64, all: bool) -> KeptSegments {
        let whole = first_mark(disk, start.segment).filter(|(mark, _)| is_before(mark, start, version));
        let is_at_start = start.offset == DATA_AT;
        let mut next = whole.map_or(Mark { at: *start, version }, |(mark, _)| mark);
        let mut segments = vec![(next, None)];
        let mut number = start.segment;
        while all && (whole.is_some() || is_at_start) && segments.len() <= KEPT_SEGMENTS_MAX {
            number = number.saturating_sub(1);
            match first_mark(disk, number) {
                Some((mark, bytes)) if number > 0 && is_before(&mark, &next.at, next.version) => {
                    next = mark;
                    segments.push((mark, Some(bytes)));
                }
                _ => break,
            }
        }
        segments.reverse();
        KeptSegments { segments, version }
    }

    /// Adds a replayed batch.
    pub(super) fn take(&mut self, at: &LogPosition, batch: &Batch<'_>) {
        let is_new = self.segments.last().is_none_or(|(mark, _)| mark.at.segment < at.segment);
        if is_new {
            let before = batch.first_version().checked_sub(1).unwrap_or(self.version);
            self.segments.push((Mark { at: *at, version: before.min(self.version) }, None));
        }
        if let Some(last) = u64::from(batch.transaction_count()).checked_sub(1) {
            self.version = self.version.max(batch.first_version().saturating_add(last));
        }
    }

    /// The last version in the log, or in the tree.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Registers all segments with `retention`.
    pub(super) fn hand_over(self, retention: &Retention, bytes_of: impl Fn(u64) -> u64) {
        for (mark, bytes) in self.segments {
            retention.began(mark, bytes.unwrap_or_else(|| bytes_of(mark.at.segment)));
        }
    }
}

/// Whether a segment with this first batch can precede the position, or begin there.
fn is_before(mark: &Mark, next: &LogPosition, version: u64) -> bool {
    let at = mark.at;
    let is_same =
        (at.segment, at.offset, at.sequence, at.previous) == (next.segment, next.offset, next.sequence, next.previous);
    // A batch that begins there may have a later epoch: the store was reopened with nothing after the position.
    mark.version <= version && (is_same || (at.sequence < next.sequence && at.epoch <= next.epoch))
}

/// The position of a segment's first batch, and the file's length; `None` if the segment is not as expected.
fn first_mark(disk: &dyn Disk, number: u64) -> Option<(Mark, u64)> {
    let name = segment::live_name(number);
    let file = disk.open(&name, false, Access::Buffered).ok()?;
    let len = file.len().ok()?;
    let mut block = vec![0; DIRECT_ALIGN];
    file.read_exact_at(&mut block, 0).ok()?;
    segment::check_header(&block, number, &name).ok()?;
    file.read_exact_at(&mut block, u64::from(DATA_AT)).ok()?;
    let claimed = Batch::claimed_bytes(&block).filter(|bytes| *bytes >= HEADER_BYTES)?;
    let batch = if claimed <= block.len() { Batch::read(&block).ok()? } else { Batch::checked(&block)? };
    let is_ours = batch.segment() == number && u64::from(DATA_AT) + claimed as u64 <= len;
    let version = batch.first_version().checked_sub(1).filter(|_| is_ours)?;
    let at = LogPosition {
        segment: number,
        offset: DATA_AT,
        previous: batch.previous(),
        sequence: batch.sequence(),
        epoch: batch.epoch(),
    };
    Some((Mark { at, version }, len))
}
