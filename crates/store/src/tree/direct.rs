//! Lookups whose last pages are read past the page cache, into buffers of the reader's own.
//!
//! The way down to a leaf is looked for through the map, as far as it is in memory. What is missing then is a leaf, or the
//! extent of a long value: its bytes are read by the caller, and the lookup goes on in them. A branch that is missing is
//! left to the map: hundreds of leaves lie below it, so it belongs into memory.
//!
//! A page that is read so is fresh from the disk, so its checksum is computed, which is not done of a page of the map at
//! each look. It cannot have changed since its number was found as long as the view is kept.

use std::collections::HashSet;
use std::io;
use std::sync::{Mutex, PoisonError};

use super::node::{Node, OverflowRef, Stored};
use super::page::{self, Damage, Extent, HEADER_BYTES, Kind, PAGE_BYTES, PageNo};
use super::shared::Shared;
use super::view::TreeView;
use crate::Error;

/// What a lookup lacks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lack {
    /// Nothing: all its pages are in memory.
    Nothing,
    /// A page that is to be read through the map.
    Branch,
    /// Pages that can be read past the page cache.
    Part(Part),
}

/// The last pages of a lookup.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part(pub(super) Pages);

#[derive(Clone, Copy, Debug)]
pub(super) enum Pages {
    /// The leaf in which the key must be.
    Leaf(PageNo),
    /// The value's own pages.
    Value(OverflowRef),
}

/// What the bytes of a part tell.
pub(crate) enum Told<'b> {
    /// The key's value, or that there is none.
    Found(Option<&'b [u8]>),
    /// The value lies in pages of its own.
    Further(Part),
}

impl Part {
    fn extent(self) -> Extent {
        match self.0 {
            Pages::Leaf(page) => Extent::one(page),
            Pages::Value(value) => value.extent(),
        }
    }

    /// Where it begins in the file.
    pub(crate) fn offset(self) -> u64 {
        self.extent().start.offset()
    }

    /// Its whole pages.
    pub(crate) fn bytes(self) -> usize {
        self.extent().count as usize * PAGE_BYTES
    }

    /// The page that it begins with.
    pub(crate) fn first(self) -> PageNo {
        self.extent().start
    }
}

impl TreeView {
    /// Goes on with a lookup in the bytes of a part, which were read from the disk.
    pub(crate) fn go_on<'b>(&self, key: &[u8], part: Part, bytes: &'b [u8]) -> Result<Told<'b>, Error> {
        let shared = self.shared();
        match part.0 {
            Pages::Leaf(place) => {
                in_leaf(key, place, bytes).map_err(|damage| shared.damage(place, damage)).map(|stored| match stored {
                    None => Told::Found(None),
                    Some(Stored::Inline(value)) => Told::Found(Some(value)),
                    Some(Stored::Overflow(value)) => Told::Further(Part(Pages::Value(value))),
                })
            }
            Pages::Value(value) => {
                let found = shared.overflow_in(value, bytes, true)?;
                Ok(Told::Found(Some(found)))
            }
        }
    }

    /// A part that the disk did not give: its pages are counted.
    #[cold]
    pub(crate) fn read_failed(&self, part: Part, error: io::Error) -> Error {
        let shared = self.shared();
        shared.refused.note(part.extent());
        shared.io_failure("read", error)
    }
}

/// Pages that the disk did not give to reads past the page cache, each counted once. They are not those that the map has lost: another
/// read of one may succeed, and what is read through the map meanwhile is right.
#[derive(Default)]
pub(super) struct Refused {
    pages: Mutex<HashSet<PageNo>>,
}

impl Refused {
    /// More of them than this say nothing new.
    const PAGES_MAX: usize = 64 << 10;

    #[cold]
    fn note(&self, extent: Extent) {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let room = Refused::PAGES_MAX - pages.len();
        pages.extend((0..extent.count).map(|number| PageNo(extent.start.0 + number)).take(room));
    }

    pub(super) fn count(&self) -> u64 {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }
}

fn in_leaf<'b>(key: &[u8], place: PageNo, bytes: &'b [u8]) -> Result<Option<Stored<'b>>, Damage> {
    let page = bytes.first_chunk::<PAGE_BYTES>().ok_or(Damage("page beyond the end of the file"))?;
    page::check(page, place)?;
    let leaf = Node::parse(page, place, 0)?;
    let (index, is_there) = leaf.rank(key)?;
    if is_there { leaf.stored(index).map(Some) } else { Ok(None) }
}

impl Shared {
    /// A long value in the bytes of its extent; with `check` its checksum is computed.
    pub(super) fn overflow_in<'b>(&self, place: OverflowRef, extent: &'b [u8], check: bool) -> Result<&'b [u8], Error> {
        let damage = |what| self.damage(place.start, Damage(what));
        let first = extent.first_chunk::<PAGE_BYTES>().ok_or_else(|| damage("page beyond the end of the file"))?;
        if page::kind_byte(first) != Kind::Overflow as u8
            || page::number(first) != place.start
            || page::overflow_len(first) != place.len
        {
            return Err(damage("page is not the overflow value that its leaf names"));
        }
        if check {
            page::check(extent, place.start).map_err(|wrong| self.damage(place.start, wrong))?;
        }
        let len = place.len as usize;
        extent.get(HEADER_BYTES..HEADER_BYTES + len).ok_or_else(|| damage("overflow value over its extent"))
    }
}
