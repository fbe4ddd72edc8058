//! Replay: reads the log at start, batch after batch from a checkpoint's position, until the chain ends.
//!
//! The end of the log is found, not stored. After the last batch there is one of:
//!
//! 1. zeros, or an old batch of a recycled segment: the chain (sequence, segment number, epoch, previous checksum) does
//!    not continue there. Nothing was lost.
//! 2. a batch that was written in part: it was never acknowledged. It is dropped and reported.
//! 3. an acknowledged batch that is unreadable. A later intact batch proves this, since it holds the sequence known to
//!    be durable when it was written. This is damage: an error with file and offset.
//!
//! A clean close and each recovery write an empty batch, so that the last batch with data has a later batch too.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use super::batch::HEADER_BYTES;
use super::position::LogPosition;
use super::reader::{Batch, Claim, torn_bytes};
use super::segment::{self, DATA_AT};
use crate::base::error::StoreError;
use crate::disk::{Access, DIRECT_ALIGN, Disk, DiskFile};

/// Maximum size of a segment: an offset in it has 32 bits.
pub(crate) const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// Result of a replay.
#[derive(Debug)]
pub(crate) struct Replayed {
    /// Position of the next batch, if the segment has room.
    pub(crate) tail: LogPosition,
    pub(crate) batches: u64,
    pub(crate) torn_bytes: u64,
    /// The format of the last segment.
    pub(crate) format: u32,
}

/// Bytes of a segment read at once; a larger batch enlarges the window until the replay ends.
const WINDOW_BYTES: usize = 1 << 20;

/// A segment with a window of it in memory. A whole segment would be the largest allocation of a server with small settings.
struct Image {
    name: String,
    number: u64,
    file: Arc<dyn DiskFile>,
    len: usize,
    window: Vec<u8>,
    /// Offset of the window in the segment.
    start: usize,
}

impl Image {
    fn load(disk: &dyn Disk, number: u64, access: Access) -> Result<Option<Image>, StoreError> {
        let name = segment::live_name(number);
        let file = match disk.open(&name, false, access) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::io(format!("open {name}"), error)),
        };
        let len = file.len().map_err(|error| StoreError::io(format!("length of {name}"), error))?;
        if len > SEGMENT_BYTES_MAX {
            return Err(StoreError::corrupt(&name, 0, "length of a log segment"));
        }
        let image = Image { name, number, file, len: len as usize, window: Vec::new(), start: 0 };
        if access != Access::ReadOnly {
            // After a kill (unlike a power failure) unsynced bytes are still in the page cache. Replayed bytes must be
            // durable.
            image.sync()?;
        }
        Ok(Some(image))
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.file.sync_data().map_err(|error| StoreError::io(format!("sync {}", self.name), error))
    }

    /// Rewrites the batch at this position as it was read.
    fn write_again(&mut self, at: &LogPosition) -> Result<(), StoreError> {
        let bytes = self.at(at)?;
        let len = Batch::claimed_bytes(bytes).unwrap_or(0).min(bytes.len());
        let batch = bytes[..len].to_vec();
        let written = self.file.write_all_at(&batch, at.offset.into());
        written.map_err(|error| StoreError::io(format!("write {}", self.name), error))
    }

    /// The bytes from this position on: the whole batch that belongs there, if its header is there; empty after the segment's end.
    fn at(&mut self, at: &LogPosition) -> Result<&[u8], StoreError> {
        let offset = at.offset as usize;
        let header = self.bytes(offset, HEADER_BYTES)?;
        let batch = Batch::claimed_bytes_at(header, at).unwrap_or(HEADER_BYTES);
        self.bytes(offset, batch)
    }

    /// The header block.
    fn header(&mut self) -> Result<&[u8], StoreError> {
        self.bytes(0, DIRECT_ALIGN)
    }

    fn check_length(&mut self) -> Result<(), StoreError> {
        let (name, len) = (self.name.clone(), self.len as u64);
        segment::check_length(self.header()?, len, &name)
    }

    /// At least this many bytes from here on, fewer only at the segment's end.
    fn bytes(&mut self, offset: usize, bytes: usize) -> Result<&[u8], StoreError> {
        let offset = offset.min(self.len);
        let end = self.len.min(offset.saturating_add(bytes));
        if offset < self.start || end > self.start + self.window.len() {
            self.window.resize(WINDOW_BYTES.max(end - offset).min(self.len - offset), 0);
            self.start = offset;
            let read = self.file.read_exact_at(&mut self.window, offset as u64);
            read.map_err(|error| StoreError::io(format!("read {}", self.name), error))?;
        }
        Ok(&self.window[offset - self.start..])
    }
}

/// Whether the log can be replayed from here: the segment exists with its number. A disk error is returned: if it
/// counted as a missing log, recovery would use an older state.
pub(crate) fn start_exists(disk: &dyn Disk, start: &LogPosition) -> Result<bool, StoreError> {
    let name = segment::live_name(start.segment);
    let context = |error| StoreError::io(format!("open {name}"), error);
    let file = match disk.open(&name, false, Access::ReadOnly) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(context(error)),
    };
    let mut header = vec![0; DIRECT_ALIGN];
    match file.read_exact_at(&mut header, 0) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        Err(error) => return Err(context(error)),
    }
    // A segment of another format exists; replay will refuse it with that reason.
    let checked = segment::check_header(&header, start.segment, &name);
    Ok(matches!(checked, Ok(()) | Err(StoreError::Format { .. })))
}

/// The error for a log that cannot be replayed from here: what is wrong with the segment, and what to do.
pub(crate) fn start_is_gone(disk: &dyn Disk, start: &LogPosition) -> StoreError {
    let name = segment::live_name(start.segment);
    let len = disk.open(&name, false, Access::ReadOnly).and_then(|file| file.len());
    let fault = match len {
        Err(error) if error.kind() == io::ErrorKind::NotFound => "is missing".to_string(),
        Err(error) => format!("cannot be read ({error})"),
        Ok(0) => "is empty".to_string(),
        Ok(len) if len < DIRECT_ALIGN as u64 => format!("has only {len} bytes"),
        Ok(_) => "has another header than its own".to_string(),
    };
    let what =
        format!("the tree file needs this segment of the log, which {fault}: put the file back, or restore a backup");
    StoreError::corrupt(&name, 0, what)
}

/// Passes every batch from `start` on to `visit`. On return all of them are durable.
pub(crate) fn replay(
    disk: &dyn Disk,
    start: &LogPosition,
    visit: &mut dyn FnMut(&LogPosition, &Batch<'_>) -> Result<(), StoreError>,
) -> Result<Replayed, StoreError> {
    let (replayed, doubtful) = walk(disk, start, Access::Buffered, visit)?;
    write_again(disk, &doubtful)?;
    Ok(replayed)
}

/// The same without writing or syncing anything, for an examination.
pub(crate) fn look_through(
    disk: &dyn Disk,
    start: &LogPosition,
    visit: &mut dyn FnMut(&LogPosition, &Batch<'_>) -> Result<(), StoreError>,
) -> Result<Replayed, StoreError> {
    walk(disk, start, Access::ReadOnly, visit).map(|(replayed, _)| replayed)
}

/// Also returns the positions of the batches that no later batch proves durable.
fn walk(
    disk: &dyn Disk,
    start: &LogPosition,
    access: Access,
    visit: &mut dyn FnMut(&LogPosition, &Batch<'_>) -> Result<(), StoreError>,
) -> Result<(Replayed, VecDeque<LogPosition>), StoreError> {
    let mut image = Image::load(disk, start.segment, access)?.ok_or_else(|| start_is_gone(disk, start))?;
    let name = image.name.clone();
    segment::check_header(image.header()?, start.segment, &name)?;
    image.check_length()?;
    let mut at = *start;
    let mut batches = 0;
    let mut doubtful = VecDeque::new();
    loop {
        let found = Batch::read(image.at(&at)?).ok().filter(|batch| batch.follows(&at));
        if let Some(batch) = found {
            batches += 1;
            doubtful.push_back(at);
            let durable = batch.durable();
            while doubtful.front().is_some_and(|earlier| earlier.sequence <= durable) {
                doubtful.pop_front();
            }
            visit(&at, &batch)?;
            at = batch.next(&at);
            continue;
        }
        let after = LogPosition { segment: at.segment + 1, offset: DATA_AT, ..at };
        match next_segment(disk, &after, access)? {
            Some(next) => (image, at) = (next, after),
            None => break,
        }
    }
    refuse_if_damaged(disk, &mut image, &at, access)?;
    let format = segment::format_of(image.header()?);
    Ok((Replayed { tail: at, batches, torn_bytes: torn_bytes(image.at(&at)?, &at), format }, doubtful))
}

/// Rewrites and syncs the batches that no later batch proves durable: few of them, or all since the last sync if
/// batches are not synced one by one. A process whose sync failed has left them in the page cache, marked clean: they
/// can be read, but may be lost in the next power failure, and no sync would write them.
fn write_again(disk: &dyn Disk, doubtful: &VecDeque<LogPosition>) -> Result<(), StoreError> {
    let mut places = doubtful.iter().peekable();
    let mut image: Option<Image> = None;
    while let Some(at) = places.next() {
        let image = match image.take() {
            Some(open) if open.number == at.segment => image.insert(open),
            _ => match Image::load(disk, at.segment, Access::Buffered)? {
                Some(opened) => image.insert(opened),
                None => return Err(StoreError::corrupt(&segment::live_name(at.segment), 0, "the segment is gone")),
            },
        };
        image.write_again(at)?;
        if places.peek().is_none_or(|next| next.segment != at.segment) {
            image.sync()?;
        }
    }
    Ok(())
}

/// The next segment, if its first batch continues the chain.
fn next_segment(disk: &dyn Disk, at: &LogPosition, access: Access) -> Result<Option<Image>, StoreError> {
    let Some(mut next) = Image::load(disk, at.segment, access)? else { return Ok(None) };
    let name = next.name.clone();
    let header_ok = segment::check_header(next.header()?, at.segment, &name).is_ok();
    if header_ok || next.len < DIRECT_ALIGN {
        next.check_length()?;
    }
    let follows = Batch::read(next.at(at)?).is_ok_and(|batch| batch.follows(at));
    match (header_ok, follows) {
        (true, true) => Ok(Some(next)),
        // The batch proves that the header was once valid.
        (false, true) => Err(StoreError::corrupt(&next.name, 0, "header of a log segment")),
        (_, false) => Ok(None),
    }
}

/// Case 3 of the module's text: looks for a later batch that proves durability.
fn refuse_if_damaged(disk: &dyn Disk, image: &mut Image, end: &LogPosition, access: Access) -> Result<(), StoreError> {
    let what = Batch::read(image.at(end)?).err().unwrap_or("batch out of sequence");
    let name = image.name.clone();
    let damage = || Err(StoreError::corrupt(&name, u64::from(end.offset), format!("{what}, below a durable batch")));
    if has_witness(image, end.offset, end.segment, end)? {
        return damage();
    }
    // Reads all later segments: even if several in the middle are missing, a later one proves durability.
    for number in segment::numbers(disk)?.into_iter().filter(|number| *number > end.segment) {
        let Some(mut later) = Image::load(disk, number, access)? else { continue };
        if has_witness(&mut later, DATA_AT, number, end)? {
            return damage();
        }
    }
    Ok(())
}

/// Whether the segment has a batch from here on that was written when the batch at `end` was durable. The bytes may be anything, also
/// what clients have stored: one pass over them.
fn has_witness(image: &mut Image, from: u32, number: u64, end: &LogPosition) -> Result<bool, StoreError> {
    // Headers before their batches are read, by the end of the batch.
    let mut claims: BTreeMap<usize, Vec<Claim>> = BTreeMap::new();
    let mut all = 0;
    for offset in (from as usize..image.len).step_by(DIRECT_ALIGN) {
        let len = image.len;
        let bytes = image.bytes(offset, DIRECT_ALIGN)?;
        let block = &bytes[..bytes.len().min(DIRECT_ALIGN)];
        let claim = Claim::read(block, offset, all, |batch| {
            batch.segment() == number
                && batch.epoch() >= end.epoch
                && batch.sequence() > end.sequence
                && batch.durable() >= end.sequence
        });
        if let Some(claim) = claim.filter(|claim| claim.end <= len) {
            claims.entry(claim.end).or_default().push(claim);
        }
        while let Some(ended) = claims.first_entry().filter(|first| *first.key() <= offset + block.len()) {
            let all = crc32c::crc32c_append(all, &block[..ended.key() - offset]);
            if ended.remove().iter().any(|claim| claim.is_intact(all)) {
                return Ok(true);
            }
        }
        all = crc32c::crc32c_append(all, block);
    }
    Ok(false)
}
