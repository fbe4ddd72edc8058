//! Records which pages were found sound since the file was opened, and which were found damaged.
//!
//! A page's checksum is computed at its first read, by any kind of reader: a lookup, a scan, a transaction, a
//! checkpoint or a backup. A bit records this, so every later read costs one load of the bit. Computing the checksum at
//! each read would take several times as long as the read.
//!
//! - The bit of an overflow extent is that of its first page, and holds for the whole extent.
//! - A page that this process writes gets its bit with its checksum. The next read gets the kernel's copy of the written
//!   bytes, and to compute the checksum again after each checkpoint made scans during writes an eighth slower. A write
//!   that the disk lost is found at the first read after the next start. An allocated page has no bit until it is written.
//! - A checkpoint, a backup and `verify` compute the checksum of every page that they read, regardless of the bit, because
//!   a copied page must not get a new checksum over damage. A damaged page loses its bit, so that readers do not get it
//!   either.
//! - Memory: a bit for each page, 32 KB for each GB of the file, allocated as the file is read.
//!
//! Bits are changed with relaxed ordering. Each one is about bytes that do not change while a reader uses them.

use std::collections::BTreeMap;
use std::io;

use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::base::sync::{Mutex, MutexGuard, PoisonError};
use crate::disk::Bits;
use crate::tree::format::page::{Damage, Extent, PAGE_BYTES, PageNo};

/// Maximum number of damaged pages recorded; further ones are ignored.
const DAMAGED_MAX: usize = 4096;

/// See the module's text.
pub(super) struct Checked {
    sound: Bits,
    /// Whether `damaged` holds anything.
    has_damaged: AtomicBool,
    /// The fault of each page.
    damaged: Mutex<BTreeMap<PageNo, &'static str>>,
}

impl Checked {
    /// For a file of at most `bytes_max` bytes, of which no page has been read.
    pub(super) fn new(bytes_max: u64) -> io::Result<Checked> {
        let pages_max = (bytes_max / PAGE_BYTES as u64).min(u64::from(u32::MAX));
        Ok(Checked { sound: Bits::new(pages_max)?, has_damaged: AtomicBool::new(false), damaged: Mutex::default() })
    }

    /// Whether the page, or the overflow extent that begins with it, was found sound.
    #[inline]
    pub(super) fn is_sound(&self, place: PageNo) -> bool {
        self.sound.get(place.0)
    }

    pub(super) fn note_sound(&self, place: PageNo) {
        self.sound.set(place.0);
    }

    /// Records a damaged page; true if it was not recorded before.
    pub(super) fn note_damaged(&self, place: PageNo, damage: Damage) -> bool {
        self.sound.clear(place.0, 1);
        let mut damaged = self.damaged();
        let is_new = damaged.len() < DAMAGED_MAX && damaged.insert(place, damage.0).is_none();
        self.has_damaged.store(true, Ordering::Release);
        is_new
    }

    pub(super) fn has_damaged(&self) -> bool {
        self.has_damaged.load(Ordering::Acquire)
    }

    /// Clears the marks of pages that are about to be written.
    pub(super) fn forget(&self, extent: Extent) {
        self.sound.clear(extent.start.0, extent.count);
        if self.has_damaged() {
            let mut damaged = self.damaged();
            damaged.retain(|place, _| !extent.holds(*place));
            self.has_damaged.store(!damaged.is_empty(), Ordering::Release);
        }
    }

    /// Number of the damaged pages for which `is_wanted`, and the first one with its fault.
    pub(super) fn count_damaged(&self, is_wanted: impl Fn(PageNo) -> bool) -> (u64, Option<(PageNo, &'static str)>) {
        let damaged = self.damaged();
        let mut wanted = damaged.iter().filter(|(place, _)| is_wanted(**place)).map(|(place, what)| (*place, *what));
        let first = wanted.next();
        (u64::from(first.is_some()) + wanted.count() as u64, first)
    }

    fn damaged(&self) -> MutexGuard<'_, BTreeMap<PageNo, &'static str>> {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_page_is_not_sound_and_counts_until_it_is_written_again() {
        let checked = Checked::new(1 << 20).unwrap();
        let all = |_| true;
        (2..6).for_each(|page| checked.note_sound(PageNo(page)));
        assert!(checked.is_sound(PageNo(3)) && checked.count_damaged(all) == (0, None));
        assert!(checked.note_damaged(PageNo(5), Damage("one")) && checked.note_damaged(PageNo(3), Damage("other")));
        assert!(!checked.note_damaged(PageNo(3), Damage("other")));
        assert!(!checked.is_sound(PageNo(3)) && checked.is_sound(PageNo(4)));
        assert_eq!(checked.count_damaged(all), (2, Some((PageNo(3), "other"))));
        assert_eq!(checked.count_damaged(|place| place > PageNo(3)), (1, Some((PageNo(5), "one"))));
        checked.forget(Extent { start: PageNo(2), count: 3 });
        assert_eq!(checked.count_damaged(all), (1, Some((PageNo(5), "one"))));
        assert!(!checked.is_sound(PageNo(2)) && !checked.is_sound(PageNo(4)));
        checked.forget(Extent::one(PageNo(5)));
        assert_eq!(checked.count_damaged(all), (0, None));
    }
}
