//! The stored space map: which pages the newest meta page reaches.
//!
//! ```text
//!  meta page: directories u32 x n      directory page: places u32 x 1018       bits page: 32,576 bits
//!                     |                                  |                     bit p set: page p is reachable
//!                     +--> directory 0                   +--> bits page 0      (from its chunk's first page on)
//! ```
//!
//! A chunk is the part of the file that one bits page covers: 127 MB. Map pages are copied on write like all others: a
//! checkpoint rewrites the chunks in which it took or freed pages, and their directories. In a chunk without a bits page all
//! pages are free.

use std::collections::BTreeMap;

use super::output::Output;
use crate::base::error::StoreError;
use crate::tree::format::meta::{CHUNK_PAGES, DIRECTORY_CHUNKS};
use crate::tree::format::page::{self, BODY_BYTES, Extent, HEADER_BYTES, Header, Kind, PAGE_BYTES, PageNo};
use crate::tree::state::shared::Shared;
use crate::tree::state::space::Bitmap;

const WORDS: usize = BODY_BYTES / 8;
const _: () = assert!(BODY_BYTES.is_multiple_of(8) && CHUNK_PAGES.is_multiple_of(64));

/// The pages of the space map.
#[derive(Clone, Default)]
pub(in crate::tree) struct Places {
    pub(in crate::tree) directories: Vec<PageNo>,
    /// The bits page of each chunk; `PageNo::NONE` if all of it is free.
    pub(super) chunks: Vec<PageNo>,
}

impl Places {
    /// Pages of the map itself.
    pub(in crate::tree) fn pages(&self) -> impl Iterator<Item = PageNo> + '_ {
        self.directories.iter().chain(&self.chunks).copied().filter(|page| *page != PageNo::NONE)
    }

    /// Reads the map of a meta page; every page is checked.
    pub(in crate::tree) fn load(shared: &Shared, directories: &[PageNo]) -> Result<(Places, Bitmap), StoreError> {
        let mut places = Places { directories: directories.to_vec(), chunks: Vec::new() };
        let mut bits = Bitmap::default();
        for &directory in directories {
            if directory == PageNo::NONE {
                places.chunks.resize(places.chunks.len() + DIRECTORY_CHUNKS, PageNo::NONE);
                continue;
            }
            let page = shared.checked_page(directory, Kind::SpaceDirectory)?;
            places.chunks.extend((0..DIRECTORY_CHUNKS).map(|i| PageNo(page::get_u32(page, HEADER_BYTES + 4 * i))));
        }
        while places.chunks.last() == Some(&PageNo::NONE) {
            places.chunks.pop();
        }
        for (index, &chunk) in places.chunks.iter().enumerate().filter(|(_, chunk)| **chunk != PageNo::NONE) {
            let page = shared.checked_page(chunk, Kind::SpaceBits)?;
            for (word, bytes) in page[HEADER_BYTES..].as_chunks::<8>().0.iter().enumerate() {
                let word_bits = u64::from_le_bytes(*bytes);
                if word_bits != 0 {
                    bits.set_word(index * WORDS + word, word_bits);
                }
            }
        }
        Ok((places, bits))
    }
}

/// The map pages that a checkpoint rewrites.
#[derive(Default)]
struct Rewrite {
    chunks: BTreeMap<usize, PageNo>,
    directories: BTreeMap<usize, PageNo>,
}

impl Rewrite {
    /// Marks the chunks of some extents for writing.
    fn touch(&mut self, extents: &[Extent]) {
        for extent in extents {
            let last = extent.start.0.saturating_add(extent.count.saturating_sub(1));
            for chunk in extent.start.0 / CHUNK_PAGES..=last / CHUNK_PAGES {
                self.chunks.entry(chunk as usize).or_insert(PageNo::NONE);
                self.directories.entry(chunk as usize / DIRECTORY_CHUNKS).or_insert(PageNo::NONE);
            }
        }
    }

    /// A map page without a new place.
    fn unplaced(&mut self) -> Option<(bool, usize)> {
        let unplaced = |pages: &BTreeMap<usize, PageNo>| {
            pages.iter().find(|(_, page)| **page == PageNo::NONE).map(|(index, _)| *index)
        };
        unplaced(&self.chunks).map(|i| (false, i)).or_else(|| unplaced(&self.directories).map(|i| (true, i)))
    }
}

/// Writes the map for `live` with the output's allocations added and `freed` removed; returns both. New places of map
/// pages are allocations, and old ones are freed, which may touch further chunks: this is repeated until none is new.
pub(in crate::tree) fn store(
    output: &mut Output,
    mut live: Bitmap,
    old: &Places,
    freed: &mut Vec<Extent>,
) -> Result<(Places, Bitmap), StoreError> {
    let mut rewrite = Rewrite::default();
    rewrite.touch(output.allocated());
    rewrite.touch(freed);
    while let Some((is_directory, index)) = rewrite.unplaced() {
        let (old_places, new) = if is_directory {
            (&old.directories, &mut rewrite.directories)
        } else {
            (&old.chunks, &mut rewrite.chunks)
        };
        let page = output.allocate()?;
        new.insert(index, page);
        rewrite.touch(&[Extent::one(page)]);
        if let Some(&old_page) = old_places.get(index).filter(|page| **page != PageNo::NONE) {
            freed.push(Extent::one(old_page));
            rewrite.touch(&[Extent::one(old_page)]);
        }
    }
    for page in output.allocated().iter().flat_map(|extent| extent.pages()) {
        live.insert(page.0);
    }
    for page in freed.iter().flat_map(|extent| extent.pages()) {
        live.remove(page.0);
    }
    let places = write(output, &live, old, &rewrite)?;
    Ok((places, live))
}

fn write(output: &mut Output, live: &Bitmap, old: &Places, rewrite: &Rewrite) -> Result<Places, StoreError> {
    let mut places = old.clone();
    for (&index, &place) in &rewrite.chunks {
        if places.chunks.len() <= index {
            places.chunks.resize(index + 1, PageNo::NONE);
        }
        places.chunks[index] = place;
    }
    let sequence = output.sequence();
    for (&index, &place) in &rewrite.chunks {
        output.put(place, |page| {
            Header::plain(Kind::SpaceBits, place, sequence).write(page);
            for word in 0..WORDS {
                page::put_u64(page, HEADER_BYTES + 8 * word, live.word(index * WORDS + word));
            }
        })?;
    }
    for (&index, &place) in &rewrite.directories {
        if places.directories.len() <= index {
            places.directories.resize(index + 1, PageNo::NONE);
        }
        places.directories[index] = place;
        let chunks = places.chunks.iter().skip(index * DIRECTORY_CHUNKS).take(DIRECTORY_CHUNKS);
        output.put(place, |page| {
            Header::plain(Kind::SpaceDirectory, place, sequence).write(page);
            for (slot, chunk) in chunks.enumerate() {
                page::put_u32(page, HEADER_BYTES + 4 * slot, chunk.0);
            }
        })?;
    }
    Ok(places)
}

const _: () = assert!(HEADER_BYTES + 4 * DIRECTORY_CHUNKS <= PAGE_BYTES);
