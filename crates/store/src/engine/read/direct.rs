//! Point reads past the page cache: many at once, by one thread that never waits for the disk.
//!
//! If the data is much larger than memory, most pages are read once. Read through the map, each such page evicts
//! another: the reader waits while the kernel reclaims memory, and eventually hot pages are evicted too. So a page that
//! was not read lately is read past the page cache into a buffer, used once and forgotten. A page that was read lately
//! is read through the map, which keeps it in memory ([`Lately`]).
//!
//! Bounds: one read in flight for each slot (`place`), each slot with a buffer. A read that finds no slot, or is larger than the
//! buffer, is left to the caller ([`Got::Elsewhere`]). Each read holds the tree state in which it began, so its pages
//! are not reused.

use std::borrow::Cow;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::base::error::StoreError;
use crate::base::limits::KEY_BYTES_MAX;
use crate::disk::ReadQueue;
use crate::engine::Engine;
use crate::tree::{LastPages, PageNo, SearchOutcome, TreeView};

/// Number of pages remembered as lately read past the page cache; a power of two. A page that an event loop reads again
/// within its next 16,384 cold reads is worth keeping in memory. With uniformly distributed reads this is rare. A
/// larger number would load pages that are soon evicted again.
const LATELY_PAGES: usize = 16 << 10;
const _: () = assert!(LATELY_PAGES.is_power_of_two());

/// Result of a read that may be asynchronous, see [`crate::StoreSnapshot::get_or_begin`].
#[derive(Debug)]
pub enum Got<'s> {
    /// The value, without waiting.
    Now(Option<Cow<'s, [u8]>>),
    /// The read is in flight in this slot; [`DirectReads::ended`] reports its result.
    Later(usize),
    /// The read would have to wait; the caller must repeat it on a thread that may block. Reasons: the page should stay
    /// in memory, the value is long, or too many reads are in flight.
    Elsewhere,
}

/// How a read ended.
#[derive(Debug)]
pub enum ReadOutcome<'r> {
    /// The key's value, or `None`, as of the snapshot in which the read began.
    Found(Option<&'r [u8]>),
    /// See [`Got::Elsewhere`].
    Elsewhere,
}

/// See the module's text. Keeps the files open, as a [`crate::Reader`] does.
pub struct DirectReads {
    queue: Box<dyn ReadQueue>,
    place_bytes: usize,
    places: Box<[Option<Lookup>]>,
    idle: Vec<usize>,
    lately: Lately,
    /// Dropped after the views in `places`.
    _engine: Arc<Engine>,
}

/// A lookup in flight.
struct Lookup {
    view: Arc<TreeView>,
    key: Vec<u8>,
    part: LastPages,
}

impl DirectReads {
    pub(crate) fn new(engine: &Arc<Engine>, queue: Box<dyn ReadQueue>, places: usize, place_bytes: usize) -> Self {
        DirectReads {
            queue,
            place_bytes,
            places: (0..places).map(|_| None).collect(),
            idle: (0..places).rev().collect(),
            lately: Lately::new(),
            _engine: Arc::clone(engine),
        }
    }

    /// Bytes of memory for this many slots with buffers of this size.
    pub const fn memory_bytes(places: usize, place_bytes: usize) -> usize {
        places * (place_bytes + size_of::<Option<Lookup>>() + KEY_BYTES_MAX) + LATELY_PAGES * size_of::<PageNo>()
    }

    /// An edge-triggered descriptor that becomes readable when reads have ended.
    pub fn completions(&self) -> RawFd {
        self.queue.completions()
    }

    /// Accepts a lookup, unless it should go through the map.
    pub(crate) fn note(&mut self, view: &Arc<TreeView>, key: &[u8], part: LastPages) -> Option<usize> {
        if part.bytes() > self.place_bytes || self.idle.is_empty() || self.lately.was_there(part.first()) {
            return None;
        }
        let place = self.idle.pop()?;
        if !self.queue.note(place, part.offset(), part.bytes()) {
            self.idle.push(place);
            return None;
        }
        self.places[place] = Some(Lookup { view: Arc::clone(view), key: key.to_vec(), part });
        Some(place)
    }

    /// Submits the lookups accepted since the last call to the kernel, all at once.
    pub fn begin(&mut self) {
        self.queue.begin();
    }

    /// Calls `report` for each read that has ended, with its slot (see [`Got::Later`]) and its result. A lookup that
    /// needs further pages is submitted by the next [`DirectReads::begin`].
    pub fn ended(&mut self, report: &mut dyn FnMut(usize, Result<ReadOutcome<'_>, StoreError>)) {
        self.queue.gather();
        while let Some((place, result)) = self.queue.next_ended() {
            let Some(lookup) = self.places.get_mut(place).and_then(Option::take) else { continue };
            let outcome = match lookup.outcome_of(result, self.queue.bytes(place)) {
                Ok(SearchOutcome::Found(value)) => Ok(ReadOutcome::Found(value)),
                Ok(SearchOutcome::Further(part)) => {
                    if part.first() != lookup.part.first() && self.goes_on(place, part) {
                        self.places[place] = Some(Lookup { part, ..lookup });
                        continue;
                    }
                    Ok(ReadOutcome::Elsewhere)
                }
                Err(error) => Err(error),
            };
            report(place, outcome);
            self.idle.push(place);
        }
    }

    fn goes_on(&mut self, place: usize, part: LastPages) -> bool {
        part.bytes() <= self.place_bytes
            && !self.lately.was_there(part.first())
            && self.queue.note(place, part.offset(), part.bytes())
    }
}

impl Lookup {
    /// The result found in the bytes. If the read failed but a read through the map may succeed, returns the same part
    /// again.
    fn outcome_of<'b>(&self, result: io::Result<usize>, bytes: &'b [u8]) -> Result<SearchOutcome<'b>, StoreError> {
        match result {
            Ok(count) if count == self.part.bytes() => {
                self.view.go_on(&self.key, self.part, bytes.get(..count).unwrap_or_default())
            }
            // The error concerns only this read, and is counted. Through the map the page would count as lost for all
            // readers until the store is reopened.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Err(self.view.read_failed(self.part, error)),
            // Not supported by the file system, or the kernel is short of memory: reading through the map may succeed.
            _ => Ok(SearchOutcome::Further(self.part)),
        }
    }
}

/// Pages lately read past the page cache: a direct-mapped table in which a page is replaced by the next one with the
/// same hash. A page that is read again before that is worth its memory (as in 2Q; Johnson and Shasha, 1994).
struct Lately {
    pages: Box<[PageNo]>,
}

impl Lately {
    fn new() -> Lately {
        Lately { pages: vec![PageNo::default(); LATELY_PAGES].into() }
    }

    /// Whether the page is in the table; inserts it.
    fn was_there(&mut self, page: PageNo) -> bool {
        // Multiplied by 2^32 divided by the golden ratio, which spreads neighbouring page numbers.
        let hash = page.0.wrapping_mul(0x9E37_79B9) >> (u32::BITS - LATELY_PAGES.ilog2());
        std::mem::replace(&mut self.pages[hash as usize], page) == page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_was_there_lately_until_many_others_were() {
        let mut lately = Lately::new();
        assert!(!lately.was_there(PageNo(7)));
        assert!(lately.was_there(PageNo(7)));
        let others = 100..100 + LATELY_PAGES as u32 / 4;
        assert!(!others.clone().any(|page| lately.was_there(PageNo(page))));
        let kept = others.filter(|page| lately.was_there(PageNo(*page))).count();
        assert!(kept > LATELY_PAGES / 5, "{kept} of a quarter as many as there is room for");
        (1_000_000..1_000_000 + 8 * LATELY_PAGES as u32).for_each(|page| _ = lately.was_there(PageNo(page)));
        assert!(!lately.was_there(PageNo(7)));
    }
}
