//! Lookups whose last pages are read past the page cache, into the reader's own buffers.
//!
//! The descent to a leaf goes through the map while its pages are in memory. If the leaf is not in memory, or the
//! extent of a long value is not, the caller reads its bytes, and the lookup continues in them. A branch that is not in
//! memory is read through the map: it leads to hundreds of leaves, so it belongs in memory.
//!
//! The checksum of pages read this way is computed at each read; for pages of the map it is computed once. While the
//! view is held, a page does not change after its number was found.

use std::io;

use super::view::TreeView;
use crate::base::error::StoreError;
use crate::tree::format::node::{Node, OverflowRef, Stored};
use crate::tree::format::page::{self, Damage, Extent, HEADER_BYTES, Kind, PAGE_BYTES, PageNo};
use crate::tree::state::shared::Shared;

/// What a lookup would have to wait for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lack {
    /// Nothing: all its pages are in memory.
    Nothing,
    /// A page that should be read through the map.
    Branch,
    /// Pages that can be read past the page cache.
    LastPages(LastPages),
}

/// The last pages of a lookup.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastPages(pub(super) Pages);

#[derive(Clone, Copy, Debug)]
pub(super) enum Pages {
    /// The leaf in which the key must be.
    Leaf(PageNo),
    /// The value's overflow pages.
    Value(OverflowRef),
}

/// Result of searching the bytes of a part.
pub(crate) enum SearchOutcome<'b> {
    /// The key's value, or `None`.
    Found(Option<&'b [u8]>),
    /// The value is in overflow pages.
    Further(LastPages),
}

impl LastPages {
    fn extent(self) -> Extent {
        match self.0 {
            Pages::Leaf(page) => Extent::one(page),
            Pages::Value(value) => value.extent(),
        }
    }

    /// Its offset in the file.
    pub(crate) fn offset(self) -> u64 {
        self.extent().start.offset()
    }

    /// Bytes of its whole pages.
    pub(crate) fn bytes(self) -> usize {
        self.extent().count as usize * PAGE_BYTES
    }

    /// Its first page.
    pub(crate) fn first(self) -> PageNo {
        self.extent().start
    }
}

impl TreeView {
    /// Continues a lookup in the bytes of a part, which were read from the disk.
    pub(crate) fn go_on<'b>(
        &self,
        key: &[u8],
        part: LastPages,
        bytes: &'b [u8],
    ) -> Result<SearchOutcome<'b>, StoreError> {
        let shared = self.shared();
        match part.0 {
            Pages::Leaf(place) => {
                in_leaf(key, place, bytes).map_err(|damage| shared.damage(place, damage)).map(|stored| match stored {
                    None => SearchOutcome::Found(None),
                    Some(Stored::Inline(value)) => SearchOutcome::Found(Some(value)),
                    Some(Stored::Overflow(value)) => SearchOutcome::Further(LastPages(Pages::Value(value))),
                })
            }
            Pages::Value(value) => {
                let found = shared.overflow_in(value, bytes, true)?;
                Ok(SearchOutcome::Found(Some(found)))
            }
        }
    }

    /// Counts the pages of a part that the disk failed to read, and makes the error.
    #[cold]
    pub(crate) fn read_failed(&self, part: LastPages, error: io::Error) -> StoreError {
        let shared = self.shared();
        shared.refused.note(part.extent());
        shared.io_failure("read", error)
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
    pub(in crate::tree) fn overflow_in<'b>(
        &self,
        place: OverflowRef,
        extent: &'b [u8],
        check: bool,
    ) -> Result<&'b [u8], StoreError> {
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
