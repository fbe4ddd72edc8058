//! Reads of single keys past the page cache, many at once, by one thread that does not wait.
//!
//! Where the data is much larger than memory most reads of it are of pages that nobody will ask for soon again. Through the
//! map each of them drives another page out, which the kernel looks for while the reader waits; after a while hot pages go
//! too, and are read again. So a page that was not asked for lately is read past the page cache into a buffer
//! here, looked at once, and forgotten. One that was goes through the map, and is in memory from then on ([`Lately`]).
//!
//! Bounds: as many reads at once as there are places, each with a buffer; what finds none, or is longer, is read elsewhere.
//! Each keeps the state of the tree that it began in, so that its pages stay what they are.

use std::borrow::Cow;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::disk::ReadQueue;
use crate::engine::Engine;
use crate::error::Error;
use crate::tree::{PageNo, Part, Told, TreeView};

/// Pages that were read past the page cache lately and are remembered; a power of two. What is asked for again among the next
/// sixteen thousand cold reads of a loop is kept in memory. Of data that is read evenly that is hardly a page: more of them would
/// bring in pages that are soon driven out again.
const LATELY_PAGES: usize = 16 << 10;
const _: () = assert!(LATELY_PAGES.is_power_of_two());

/// What became of a read that may begin, see [`crate::Snapshot::get_or_begin`].
#[derive(Debug)]
pub enum Got<'s> {
    /// It did not have to wait.
    Now(Option<Cow<'s, [u8]>>),
    /// It is under way at this place, and [`DirectReads::ended`] will tell.
    Later(usize),
    /// It has to wait, and should do so on a thread that may: what it reads should stay in memory, or is long, or too many
    /// reads are under way.
    Elsewhere,
}

/// How a read ended.
#[derive(Debug)]
pub enum Outcome<'r> {
    /// With the key's value, or that there is none, as of the snapshot in which it began.
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
    /// After the views in `places`.
    _engine: Arc<Engine>,
}

/// A lookup under way.
struct Lookup {
    view: Arc<TreeView>,
    key: Vec<u8>,
    part: Part,
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

    /// Bytes of memory for so many places of so many bytes.
    pub const fn memory_bytes(places: usize, place_bytes: usize) -> usize {
        places * (place_bytes + size_of::<Option<Lookup>>() + crate::tree::KEY_BYTES_MAX)
            + LATELY_PAGES * size_of::<PageNo>()
    }

    /// Becomes readable, an edge each time, when reads have ended.
    pub fn completions(&self) -> RawFd {
        self.queue.completions()
    }

    /// Takes on a lookup, unless that should go through the map.
    pub(crate) fn note(&mut self, view: &Arc<TreeView>, key: &[u8], part: Part) -> Option<usize> {
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

    /// Hands what was taken on since to the kernel, all at once.
    pub fn begin(&mut self) {
        self.queue.begin();
    }

    /// Tells of the reads that have ended: the place that [`Got::Later`] named, and how. What is found to lie in further
    /// pages waits for the next [`DirectReads::begin`].
    pub fn ended(&mut self, tell: &mut dyn FnMut(usize, Result<Outcome<'_>, Error>)) {
        self.queue.gather();
        while let Some((place, result)) = self.queue.next_ended() {
            let Some(lookup) = self.places.get_mut(place).and_then(Option::take) else { continue };
            let outcome = match lookup.told(result, self.queue.bytes(place)) {
                Ok(Told::Found(value)) => Ok(Outcome::Found(value)),
                Ok(Told::Further(part)) => {
                    if part.first() != lookup.part.first() && self.goes_on(place, part) {
                        self.places[place] = Some(Lookup { part, ..lookup });
                        continue;
                    }
                    Ok(Outcome::Elsewhere)
                }
                Err(error) => Err(error),
            };
            tell(place, outcome);
            self.idle.push(place);
        }
    }

    fn goes_on(&mut self, place: usize, part: Part) -> bool {
        part.bytes() <= self.place_bytes
            && !self.lately.was_there(part.first())
            && self.queue.note(place, part.offset(), part.bytes())
    }
}

impl Lookup {
    /// What the bytes tell; the same part again where they are not there.
    fn told<'b>(&self, result: io::Result<usize>, bytes: &'b [u8]) -> Result<Told<'b>, Error> {
        match result {
            Ok(count) if count == self.part.bytes() => {
                self.view.go_on(&self.key, self.part, bytes.get(..count).unwrap_or_default())
            }
            // This read's error alone, and counted. Through the map the page would be lost to all until the store is opened anew.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Err(self.view.read_failed(self.part, error)),
            // What a file system does not support, or a kernel that is short of memory: the map may do better.
            _ => Ok(Told::Further(self.part)),
        }
    }
}

/// The pages that were read past the page cache lately: each in its set of one, where the next one drives it out. A page
/// that is asked for again before that is worth its memory (as in 2Q; Johnson and Shasha, 1994).
struct Lately {
    pages: Box<[PageNo]>,
}

impl Lately {
    fn new() -> Lately {
        Lately { pages: vec![PageNo::default(); LATELY_PAGES].into() }
    }

    /// Whether it is one of them; from now on it is.
    fn was_there(&mut self, page: PageNo) -> bool {
        // Multiplied by 2^32 divided by the golden ratio: neighbours are spread.
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
