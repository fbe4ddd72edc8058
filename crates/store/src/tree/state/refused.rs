//! Pages that could not be read past the page cache.

use std::collections::HashSet;

use crate::base::sync::{Mutex, PoisonError};
use crate::tree::format::page::{Extent, PageNo};

/// Pages that the disk failed to read past the page cache, each counted once. The map has not lost them: another read
/// may succeed, and reads through the map are correct.
#[derive(Default)]
pub(in crate::tree) struct Refused {
    pages: Mutex<HashSet<PageNo>>,
}

impl Refused {
    /// Further ones are not counted.
    const PAGES_MAX: usize = 64 << 10;

    #[cold]
    pub(in crate::tree) fn note(&self, extent: Extent) {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let room = Refused::PAGES_MAX - pages.len();
        pages.extend((0..extent.count).map(|number| PageNo(extent.start.0 + number)).take(room));
    }

    pub(in crate::tree) fn count(&self) -> u64 {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }
}
