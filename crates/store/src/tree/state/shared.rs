//! State shared by views, writers and builders of one tree file: the file, its map, and the allocation of pages.

use std::io;
use std::sync::Arc;

use super::checked::Checked;
use super::refused::Refused;
use super::space::{self, Bitmap, Space};
use super::sync_owner::SyncOwner;
use crate::base::error::StoreError;
use crate::base::fail_stop::FailStop;
use crate::base::limits::VALUE_BYTES_MAX;
use crate::base::prefetch::prefetch;
use crate::base::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::base::sync::{Mutex, MutexGuard, PoisonError};
use crate::disk::{DiskFile, Map};
use crate::tree::format::node::{Node, OverflowRef};
use crate::tree::format::page::{self, Damage, Extent, Kind, PAGE_BYTES, Page, PageNo};

/// Growth step of the file in pages. For a checkpoint: a 32nd of the file, at least 256 KB and at most 4 MB, because the zeros
/// are written at once, without pacing, and half of them are not needed on average. For a bulk build: an 8th of the file, at
/// least 256 KB and at most 16 MB. Its space is allocated and not written, which costs little, but each change of the length
/// waits for the write in progress.
const GROWTH_PAGES_MIN: u32 = 64;
pub(in crate::tree) const GROWTH_PAGES_MAX: u32 = 1024;
const GROWTH_PAGES_MAX_BUILD: u32 = 4096;
const GROWTH_FRACTION: u32 = 32;
const GROWTH_FRACTION_BUILD: u32 = 8;
const CACHE_LINE: usize = 64;

/// How the file grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tree) enum Growth {
    /// By writing zeros: a later write there changes no metadata of the file system.
    Zeroed,
    /// By allocating space: for bulk builds, which write everything at once in order. A build that is given up leaves free
    /// pages that were never written, and a checkpoint must be able to write them on a full disk; so there are no holes.
    Allocated,
}

impl Growth {
    /// Number of free pages it may take: a bulk build leaves those reserved for checkpoints.
    fn may_take(self, space: &Space) -> u32 {
        match self {
            Growth::Zeroed => u32::MAX,
            Growth::Allocated => space.unreserved(),
        }
    }

    /// Number of pages by which the file must grow so that `wanted` pages at its end are free and allowed.
    fn missing(self, space: &Space, wanted: u32) -> u32 {
        let at_end = wanted.saturating_sub(space.free_at_end());
        match self {
            Growth::Zeroed => at_end,
            Growth::Allocated => at_end.max(wanted.saturating_sub(space.unreserved())),
        }
    }
}

/// An opened file with its map and mode.
pub(in crate::tree) struct Opened {
    pub(in crate::tree) name: String,
    pub(in crate::tree) file: Arc<dyn DiskFile>,
    pub(in crate::tree) map: Map,
    /// It grows in small steps, so that it ends with few free pages.
    pub(in crate::tree) is_kept_small: bool,
    /// Read-ahead is disabled, because the data is larger than memory.
    pub(in crate::tree) is_read_alone: bool,
}

/// State shared by views, writers and builders of one file.
pub(in crate::tree) struct Shared {
    name: String,
    /// Once it has stopped, the content of the disk is unknown until the file is reopened: no page may be allocated.
    file: SyncOwner,
    map: Map,
    checked: Checked,
    space: Mutex<Space>,
    /// Number of pages that the newest state reaches.
    pub(in crate::tree) live_pages: AtomicU32,
    /// See [`Opened::is_kept_small`].
    is_kept_small: bool,
    /// See [`Opened::is_read_alone`].
    is_read_alone: bool,
    /// Opening could not allocate holes that the file has, so some of its free pages cannot be written on a full disk.
    has_holes: AtomicBool,
    /// Pages that reads past the page cache failed to read.
    pub(in crate::tree) refused: Refused,
}

impl Shared {
    /// A file whose space is not known yet: no page is taken, none is free.
    pub(in crate::tree) fn new(opened: Opened, fail_stop: Arc<FailStop>) -> Result<Shared, StoreError> {
        let Opened { name, file, map, is_kept_small, is_read_alone } = opened;
        let page_count = (map.len() / PAGE_BYTES as u64).min(u64::from(u32::MAX)) as u32;
        let space = Space::new(Bitmap::default(), Bitmap::default(), page_count, Default::default());
        let context = |error| StoreError::io(format!("allocate the checksum marks of {name}"), error);
        let checked = Checked::new(map.reserve()).map_err(context)?;
        Ok(Shared {
            name,
            file: SyncOwner::new(file, fail_stop),
            map,
            checked,
            space: Mutex::new(space),
            live_pages: AtomicU32::new(0),
            is_kept_small,
            is_read_alone,
            has_holes: AtomicBool::new(true),
            refused: Refused::default(),
        })
    }

    pub(in crate::tree) fn file(&self) -> &dyn DiskFile {
        &self.file
    }

    pub(in crate::tree) fn space(&self) -> MutexGuard<'_, Space> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes bytes written after the map's end readable.
    pub(in crate::tree) fn cover(&self) -> Result<(), StoreError> {
        self.map.cover().map_err(|error| self.io("map", error))?;
        Ok(())
    }

    /// Turns a page's fault into an error. The page is counted, and reads of it fail from now on. A page that the disk
    /// failed to read reads as zeros and is counted by the map.
    #[cold]
    pub(in crate::tree) fn damage(&self, place: PageNo, damage: Damage) -> StoreError {
        if self.is_lost(place) {
            return self.lost_error();
        }
        if self.checked.note_damaged(place, damage) {
            tracing::error!(
                file = self.name,
                offset = place.offset(),
                "a page is damaged: {}; reads that need it fail",
                damage.0
            );
        }
        StoreError::corrupt(&self.name, place.offset(), damage.0)
    }

    fn is_lost(&self, place: PageNo) -> bool {
        let is_inside = place.offset() + PAGE_BYTES as u64 <= self.map.len();
        self.lost() > 0 && is_inside && self.map.bytes(place.offset(), PAGE_BYTES).is_none()
    }

    /// Number of damaged pages that the newest state reaches, and the first one with its fault.
    pub(in crate::tree) fn damaged(&self) -> (u64, Option<StoreError>) {
        if !self.checked.has_damaged() {
            return (0, None);
        }
        let space = self.space();
        let (count, first) = self.checked.count_damaged(|place| space.live.get(place.0));
        (count, first.map(|(place, what)| StoreError::corrupt(&self.name, place.offset(), what)))
    }

    #[cold]
    pub(in crate::tree) fn io(&self, what: &str, error: io::Error) -> StoreError {
        StoreError::io(format!("{what}: {}", self.name), error)
    }

    /// The error of a failed sync, whatever the reason: even if the disk was full (delayed allocation, a quota) it is
    /// unknown what was written, so it must not become [`StoreError::Full`].
    #[cold]
    pub(in crate::tree) fn io_failure(&self, what: &str, source: io::Error) -> StoreError {
        StoreError::Io { context: format!("{what}: {}", self.name), source: source.into() }
    }

    #[inline]
    fn page(&self, place: PageNo) -> Result<&Page, Damage> {
        let bytes = self.map.bytes(place.offset(), PAGE_BYTES);
        bytes
            .and_then(|bytes| bytes.first_chunk())
            .ok_or(Damage("page beyond the end of the file, or one that could not be read"))
    }

    /// Bytes of the file, if it has them.
    #[inline]
    pub(in crate::tree) fn bytes(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.map.bytes(offset, len)
    }

    /// Number of pages that the disk has failed to read so far: see `disk/lost.rs`.
    #[inline]
    pub(in crate::tree) fn lost(&self) -> u64 {
        self.map.lost()
    }

    /// Whether these bytes are in memory.
    pub(in crate::tree) fn is_resident(&self, place: PageNo, len: usize) -> bool {
        self.map.is_resident(place.offset(), len)
    }

    /// Starts reading the children of a branch all at once: in an old file they are scattered, and one by one each
    /// would take the disk's full latency.
    pub(in crate::tree) fn read_ahead(&self, children: impl Iterator<Item = PageNo>) {
        let pages = space::join(children.map(Extent::one).collect());
        for extent in pages {
            self.map.will_need(extent.start.offset(), u64::from(extent.count) * PAGE_BYTES as u64);
        }
    }

    /// Whether read-ahead is disabled because the data is larger than memory.
    pub(in crate::tree) fn is_read_alone(&self) -> bool {
        self.is_read_alone
    }

    /// Whether the file should have little free space, and buffers should be small.
    pub(in crate::tree) fn is_kept_small(&self) -> bool {
        self.is_kept_small
    }

    /// Returns an error if pages were lost since `before`: reads since then may have returned zeros.
    #[inline]
    pub(in crate::tree) fn check_lost(&self, before: u64) -> Result<(), StoreError> {
        if self.lost() == before { Ok(()) } else { Err(self.lost_error()) }
    }

    #[cold]
    fn lost_error(&self) -> StoreError {
        let source = io::Error::from_raw_os_error(libc::EIO);
        StoreError::Io { context: format!("a page could not be read: {}", self.name), source: source.into() }
    }

    /// Prefetches the start of a page that will be read next: header, heads and slots of a leaf of documents.
    #[inline]
    pub(in crate::tree) fn prefetch(&self, place: PageNo) {
        if let Some(bytes) = self.map.bytes(place.offset(), PAGE_BYTES) {
            prefetch(bytes);
            prefetch(&bytes[CACHE_LINE..]);
            prefetch(&bytes[2 * CACHE_LINE..]);
            prefetch(&bytes[3 * CACHE_LINE..]);
        }
    }

    /// A node; its checksum is computed at the first read of its page.
    #[inline]
    pub(in crate::tree) fn node(&self, place: PageNo, level: u8) -> Result<Node<'_>, StoreError> {
        let page = self.page(place).and_then(|page| {
            if !self.checked.is_sound(place) {
                self.check(page, place)?;
            }
            Node::parse(page, place, level)
        });
        page.map_err(|damage| self.damage(place, damage))
    }

    /// A node of which only the offsets of the cells are used, for prefetching: its checksum is not computed.
    #[inline]
    pub(in crate::tree) fn node_to_fetch(&self, place: PageNo) -> Option<Node<'_>> {
        self.page(place).and_then(|page| Node::parse(page, place, 0)).ok()
    }

    /// A node whose checksum is computed at each read, for copying and examination.
    pub(in crate::tree) fn checked_node(&self, place: PageNo, level: u8) -> Result<Node<'_>, StoreError> {
        let checked =
            self.page(place).and_then(|page| self.check(page, place).and_then(|()| Node::parse(page, place, level)));
        checked.map_err(|damage| self.damage(place, damage))
    }

    /// Computes the checksum of a page, or of a whole overflow extent, and records that it is sound.
    #[cold]
    fn check(&self, extent: &[u8], place: PageNo) -> Result<(), Damage> {
        page::check(extent, place)?;
        self.checked.note_sound(place);
        Ok(())
    }

    /// Records that a page, or an overflow extent from its first page on, has its checksum and is about to be written.
    pub(in crate::tree) fn note_sealed(&self, place: PageNo) {
        self.checked.note_sound(place);
    }

    /// Computes the checksum of a page unless it was found sound before; for reads at a known offset.
    #[inline]
    pub(in crate::tree) fn check_once(&self, place: PageNo) -> Result<(), StoreError> {
        if self.checked.is_sound(place) { Ok(()) } else { self.checked_node(place, 0).map(drop) }
    }

    /// A page of the space map, with its checksum verified.
    pub(in crate::tree) fn checked_page(&self, place: PageNo, kind: Kind) -> Result<&Page, StoreError> {
        let page = self.page(place).and_then(|page| self.check(page, place).map(|()| page));
        let page = page.map_err(|damage| self.damage(place, damage))?;
        if page::kind_byte(page) != kind as u8 {
            return Err(self.damage(place, Damage("page has another kind than its reference says")));
        }
        Ok(page)
    }

    /// An overflow value, unless it has over `check_max` bytes and was not read yet: then [`StoreError::NotInMemory`].
    #[inline]
    pub(in crate::tree) fn overflow_unless_long(
        &self,
        place: OverflowRef,
        check_max: usize,
    ) -> Result<&[u8], StoreError> {
        if place.len as usize > check_max && !self.checked.is_sound(place.start) {
            return Err(StoreError::NotInMemory);
        }
        self.overflow(place, false)
    }

    /// An overflow value; its checksum is computed at its first read, or with `check`.
    pub(in crate::tree) fn overflow(&self, place: OverflowRef, check: bool) -> Result<&[u8], StoreError> {
        let damage = |what| self.damage(place.start, Damage(what));
        let len = place.len as usize;
        if len > VALUE_BYTES_MAX {
            return Err(damage("overflow value over its limit"));
        }
        let extent_bytes = page::overflow_pages(len) as usize * PAGE_BYTES;
        let Some(extent) = self.map.bytes(place.start.offset(), extent_bytes) else {
            // The disk failed to read one of its pages, not necessarily the first.
            return Err(if self.lost() > 0 { self.lost_error() } else { damage("page beyond the end of the file") });
        };
        let is_sound = !check && self.checked.is_sound(place.start);
        let value = self.overflow_in(place, extent, !is_sound)?;
        if !is_sound {
            self.checked.note_sound(place.start);
        }
        Ok(value)
    }

    /// Returns an error for an extent beyond the file: an undamaged leaf has no such reference.
    pub(in crate::tree) fn check_inside(&self, leaf: PageNo, extent: Extent) -> Result<(), StoreError> {
        let end = u64::from(extent.start.0) + u64::from(extent.count);
        if extent.start.0 >= page::META_PAGES && end * PAGE_BYTES as u64 <= self.map.len() {
            return Ok(());
        }
        Err(self.damage(leaf, Damage("overflow value beyond the end of the file")))
    }

    /// A run of pages up to the next multiple of `stretch`; the file grows if no page is free.
    pub(in crate::tree) fn take_some(&self, stretch: u32, growth: Growth) -> Result<Extent, StoreError> {
        let is_checkpoint = growth == Growth::Zeroed;
        self.take(1, growth, |space| space.take_some(stretch, growth.may_take(space), is_checkpoint))
    }

    /// A run of exactly `count` pages.
    pub(in crate::tree) fn take_run(&self, count: u32, growth: Growth) -> Result<Extent, StoreError> {
        let is_checkpoint = growth == Growth::Zeroed;
        let take = |space: &mut Space| match growth.may_take(space) < count {
            true => None,
            false => space.take_run(count, is_checkpoint),
        };
        self.take(count, growth, take)
    }

    fn take(
        &self,
        wanted: u32,
        growth: Growth,
        mut take: impl FnMut(&mut Space) -> Option<Extent>,
    ) -> Result<Extent, StoreError> {
        self.fail_stop().check()?;
        let mut space = self.space();
        let mut taken = take(&mut space);
        if taken.is_none() {
            self.grow(&mut space, wanted, growth)?;
            taken = take(&mut space);
        }
        let taken = taken.ok_or(StoreError::Full)?;
        self.checked.forget(taken);
        Ok(taken)
    }

    /// Syncs the pages that a meta page will reference, or that page: see [`SyncOwner::sync_all`].
    pub(in crate::tree) fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Stopped by a failed sync, or a panic.
    pub(in crate::tree) fn fail_stop(&self) -> &FailStop {
        self.file.fail_stop()
    }

    pub(in crate::tree) fn give_back(&self, extents: &[Extent]) {
        self.space().give_back(extents);
    }

    /// Grows the file so that it ends with at least `wanted` free pages; by a full step if the disk has room for one.
    fn grow(&self, space: &mut Space, wanted: u32, growth: Growth) -> Result<(), StoreError> {
        let (fraction, most) = match growth {
            Growth::Zeroed => (GROWTH_FRACTION, GROWTH_PAGES_MAX),
            Growth::Allocated => (GROWTH_FRACTION_BUILD, GROWTH_PAGES_MAX_BUILD),
        };
        let most = if self.is_kept_small { GROWTH_PAGES_MIN } else { most };
        let step = (space.page_count / fraction).clamp(GROWTH_PAGES_MIN, most);
        let missing = growth.missing(space, wanted);
        match self.grow_by(space, missing.max(step), growth) {
            // The part that did fit belongs to the file now, and may suffice.
            Err(StoreError::Full) if growth.missing(space, wanted) > 0 => {
                self.grow_by(space, growth.missing(space, wanted), growth)
            }
            Err(StoreError::Full) => Ok(()),
            grown => grown,
        }
    }

    /// Maximum length of the file: of its map, and of its page numbers.
    fn bytes_max(&self) -> u64 {
        self.map.reserve().min(PageNo(u32::MAX).offset())
    }

    /// Bytes by which the file may grow, if the disk has them.
    pub(in crate::tree) fn growth_bytes_max(&self, space: &Space) -> u64 {
        self.bytes_max().min(self.file.len_max()).saturating_sub(PageNo(space.page_count).offset())
    }

    /// Allocates the holes of a file that has some: one that an older version wrote, or that a copy made sparse. False if the
    /// disk has no room for them.
    pub(in crate::tree) fn fill_holes(&self, space: &Space) -> bool {
        if self.has_holes.load(Ordering::Relaxed) && self.file.allocate(0, PageNo(space.page_count).offset()).is_ok() {
            self.has_holes.store(false, Ordering::Relaxed);
        }
        !self.has_holes.load(Ordering::Relaxed)
    }

    /// Grows the file by this many pages, or by as many as fit on the disk.
    pub(in crate::tree) fn grow_by(&self, space: &mut Space, pages: u32, growth: Growth) -> Result<(), StoreError> {
        let old = PageNo(space.page_count).offset();
        let limit = self.bytes_max();
        let new = old + u64::from(pages) * PAGE_BYTES as u64;
        if new > limit {
            return Err(StoreError::Limit { what: "tree file", limit });
        }
        let grown = match growth {
            Growth::Zeroed => self.file.write_zeros(old, new - old),
            Growth::Allocated => self.file.allocate(old, new - old),
        };
        // Zeros written before the disk was full stay in the file as free pages. If the file were truncated, other
        // programs would take their space.
        let len = if grown.is_ok() { new } else { self.file.len().unwrap_or(old).clamp(old, new) };
        self.cover()?;
        space.grow((len / PAGE_BYTES as u64) as u32);
        grown.map_err(|error| self.io("grow", error))
    }
}
