//! Reading the log back at start: batch after batch from a checkpoint's place, until one does not follow.
//!
//! The end of the log is found, not stored. What lies behind the last batch is one of:
//!
//! 1. zeros, or an old batch of a recycled segment: the chain (sequence, segment number, epoch, previous checksum) does
//!    not continue there. Nothing was lost.
//! 2. a batch that reached the disk in part: it was never acknowledged. Dropped and reported.
//! 3. a batch that was acknowledged and cannot be read any more. A later batch that is whole says so, for it carries the
//!    sequence known to be durable when it was written: then it is damage, an error with file and offset.
//!
//! A clean close and each recovery write an empty batch, so that the last batch with data has a witness too.

use std::io;

use super::batch::{Batch, torn_bytes};
use super::position::LogPosition;
use super::segment::{self, DATA_AT};
use crate::disk::{Access, DIRECT_ALIGN, Disk};
use crate::error::Error;

/// A segment may not be larger: an offset in it is 32 bits.
pub(crate) const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// What a replay found.
#[derive(Debug)]
pub(crate) struct Replayed {
    /// Where the next batch belongs, as far as the segment has room.
    pub(crate) tail: LogPosition,
    pub(crate) batches: u64,
    pub(crate) torn_bytes: u64,
}

/// A segment in memory.
struct Image {
    name: String,
    bytes: Vec<u8>,
}

impl Image {
    fn load(disk: &dyn Disk, number: u64) -> Result<Option<Image>, Error> {
        let name = segment::live_name(number);
        let file = match disk.open(&name, false, Access::Buffered) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(format!("open {name}"), error)),
        };
        let len = file.len().map_err(|error| Error::io(format!("length of {name}"), error))?;
        if len > SEGMENT_BYTES_MAX {
            return Err(Error::corrupt(&name, 0, "length of a log segment"));
        }
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, 0).map_err(|error| Error::io(format!("read {name}"), error))?;
        // A kill (not a power cut) leaves written, unsynced bytes in the page cache: replayed means durable.
        file.sync_data().map_err(|error| Error::io(format!("sync {name}"), error))?;
        Ok(Some(Image { name, bytes }))
    }

    fn at(&self, offset: u32) -> &[u8] {
        self.bytes.get(offset as usize..).unwrap_or_default()
    }
}

/// Whether the log can be replayed from here: the segment is there under its number.
pub(crate) fn start_exists(disk: &dyn Disk, start: &LogPosition) -> bool {
    let name = segment::live_name(start.segment);
    let Ok(file) = disk.open(&name, false, Access::Buffered) else { return false };
    let mut header = vec![0; DIRECT_ALIGN];
    file.read_exact_at(&mut header, 0).is_ok() && segment::check_header(&header, start.segment, &name).is_ok()
}

/// Gives every batch from `start` on to `visit`.
pub(crate) fn replay(
    disk: &dyn Disk,
    start: &LogPosition,
    visit: &mut dyn FnMut(&LogPosition, &Batch<'_>) -> Result<(), Error>,
) -> Result<Replayed, Error> {
    let missing = || Error::corrupt(&segment::live_name(start.segment), 0, "the segment where the log starts is gone");
    let mut image = Image::load(disk, start.segment)?.ok_or_else(missing)?;
    segment::check_header(&image.bytes, start.segment, &image.name)?;
    let mut at = *start;
    let mut batches = 0;
    loop {
        let found = Batch::read(image.at(at.offset)).ok().filter(|batch| batch.follows(&at));
        if let Some(batch) = found {
            batches += 1;
            visit(&at, &batch)?;
            at = batch.next(&at);
            continue;
        }
        let after = LogPosition { segment: at.segment + 1, offset: DATA_AT, ..at };
        match next_segment(disk, &after)? {
            Some(next) => (image, at) = (next, after),
            None => break,
        }
    }
    refuse_if_damaged(disk, &image, &at)?;
    Ok(Replayed { tail: at, batches, torn_bytes: torn_bytes(image.at(at.offset), &at) })
}

/// The segment whose first batch goes on with the chain, if it does.
fn next_segment(disk: &dyn Disk, at: &LogPosition) -> Result<Option<Image>, Error> {
    let Some(next) = Image::load(disk, at.segment)? else { return Ok(None) };
    let header_ok = segment::check_header(&next.bytes, at.segment, &next.name).is_ok();
    let follows = Batch::read(next.at(at.offset)).is_ok_and(|batch| batch.follows(at));
    match (header_ok, follows) {
        (true, true) => Ok(Some(next)),
        // The batch proves that the header was once right.
        (false, true) => Err(Error::corrupt(&next.name, 0, "header of a log segment")),
        (_, false) => Ok(None),
    }
}

/// Case 3 of the module's text: looks for a witness behind the end.
fn refuse_if_damaged(disk: &dyn Disk, image: &Image, end: &LogPosition) -> Result<(), Error> {
    let damage = || {
        let what = Batch::read(image.at(end.offset)).err().unwrap_or("batch out of sequence");
        Err(Error::corrupt(&image.name, u64::from(end.offset), format!("{what}, below a durable batch")))
    };
    if has_witness(image, end.offset, end.segment, end) {
        return damage();
    }
    let mut number = end.segment + 1;
    while let Some(later) = Image::load(disk, number)? {
        if has_witness(&later, DATA_AT, number, end) {
            return damage();
        }
        number += 1;
    }
    Ok(())
}

fn has_witness(image: &Image, from: u32, number: u64, end: &LogPosition) -> bool {
    let mut offset = from as usize;
    while offset < image.bytes.len() {
        if let Ok(batch) = Batch::read(&image.bytes[offset..])
            && batch.segment() == number
            && batch.epoch() >= end.epoch
            && batch.sequence() > end.sequence
            && batch.durable() >= end.sequence
        {
            return true;
        }
        offset += DIRECT_ALIGN;
    }
    false
}
