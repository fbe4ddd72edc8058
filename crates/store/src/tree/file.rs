//! The tree file: opening, space, the current view.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::catalog;
use super::chunk_writer::Pace;
use super::held::Held;
use super::meta::{FORMAT_VERSION, Meta, MetaFault};
use super::node::{Node, OverflowRef};
use super::output::Output;
use super::page::{self, Damage, Extent, Kind, META_PAGES, PAGE_BYTES, Page, PageNo};
use super::pinned;
use super::prefetch::prefetch;
use super::space::{self, Bitmap, Space, Waiting};
use super::space_map::Places;
use super::view::TreeView;
use super::writer::TreeWriter;
use super::{BulkBuilder, VALUE_BYTES_MAX};
use crate::disk::{Access, Disk, DiskFile, Map, ReadQueue};
use crate::log::LogPosition;
use crate::{Error, Version};

/// A file under construction has this after its name.
const NEW_SUFFIX: &str = ".new";
/// Pages by which the file grows at least (256 KB) and at most, for a checkpoint 4 MB, for a bulk build 16 MB; between them
/// by a 32nd of itself, a bulk build by an 8th: holes cost nothing, and each change of the length waits until the write
/// that is under way has ended. Zeros are written at once, unpaced, and half of them lie idle on average: 4 MB.
const GROWTH_PAGES_MIN: u32 = 64;
const GROWTH_PAGES_MAX: u32 = 1024;
const GROWTH_PAGES_MAX_SPARSE: u32 = 4096;
const GROWTH_FRACTION: u32 = 32;
const GROWTH_FRACTION_SPARSE: u32 = 8;
const CACHE_LINE: usize = 64;

/// How the file grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// By zeros written: a later write there changes no metadata of the file system.
    Zeroed,
    /// By its length: for bulk builds, which write all of it at once in order.
    Sparse,
}

impl Growth {
    /// How many of the free pages are there for it: a bulk build leaves what is promised to checkpoints.
    fn may_take(self, space: &Space) -> u32 {
        match self {
            Growth::Zeroed => u32::MAX,
            Growth::Sparse => space.unpromised(),
        }
    }

    /// By how much the file must grow to have `wanted` free pages at its end that it may take. Of what is promised a part may
    /// not be free yet (the next checkpoint frees it): then a bulk build has to make up for it.
    fn missing(self, space: &Space, wanted: u32) -> u32 {
        let at_end = wanted.saturating_sub(space.free_at_end());
        match self {
            Growth::Zeroed => at_end,
            Growth::Sparse => at_end.max(space.shortfall(wanted)),
        }
    }
}

/// What views, writers and builders of one file share.
pub(super) struct Shared {
    name: String,
    file: Arc<dyn DiskFile>,
    map: Map,
    space: Mutex<Space>,
    /// A sync failed: what the disk holds is unknown until the file is opened again, so no page may be given out.
    is_poisoned: AtomicBool,
    /// Pages that the newest state reaches.
    pub(super) live_pages: AtomicU32,
    /// See [`Opening::kept_small`].
    is_kept_small: bool,
    /// See [`Opening::read_alone`].
    is_read_alone: bool,
    /// Pages that finished checkpoints have taken since it was opened.
    pub(super) merged_pages: AtomicU64,
}

impl Shared {
    pub(super) fn file(&self) -> &dyn DiskFile {
        self.file.as_ref()
    }

    pub(super) fn space(&self) -> MutexGuard<'_, Space> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes what was written behind the map's end readable.
    pub(super) fn cover(&self) -> Result<(), Error> {
        self.map.cover().map_err(|error| self.io("map", error))?;
        Ok(())
    }

    #[cold]
    pub(super) fn damage(&self, place: PageNo, damage: Damage) -> Error {
        Error::corrupt(&self.name, place.offset(), damage.0)
    }

    #[cold]
    pub(super) fn io(&self, what: &str, error: io::Error) -> Error {
        Error::io(format!("{what}: {}", self.name), error)
    }

    /// A failed sync, whatever its reason: also where the disk was full (delayed allocation, a quota) nobody knows what
    /// reached it, so it must not pass for [`Error::Full`].
    #[cold]
    pub(super) fn io_failure(&self, what: &str, source: io::Error) -> Error {
        Error::Io { context: format!("{what}: {}", self.name), source }
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
    pub(super) fn bytes(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.map.bytes(offset, len)
    }

    /// Pages that the disk did not give, so far: see `disk/lost.rs`.
    #[inline]
    pub(super) fn lost(&self) -> u64 {
        self.map.lost()
    }

    /// Whether these bytes are in memory.
    pub(super) fn is_resident(&self, place: PageNo, len: usize) -> bool {
        self.map.is_resident(place.offset(), len)
    }

    /// Has the children of a branch read all at once: in an old file each lies elsewhere, and one after the other they would
    /// take as long as the disk's answer to each.
    pub(super) fn read_ahead(&self, children: impl Iterator<Item = PageNo>) {
        let pages = space::join(children.map(Extent::one).collect());
        for extent in pages {
            self.map.will_need(extent.start.offset(), u64::from(extent.count) * PAGE_BYTES as u64);
        }
    }

    /// Whether it is to have as little free space as may be, and buffers to be small.
    pub(super) fn is_kept_small(&self) -> bool {
        self.is_kept_small
    }

    /// What was read since `before` was taken may be zeros.
    #[inline]
    pub(super) fn check_lost(&self, before: u64) -> Result<(), Error> {
        if self.lost() == before { Ok(()) } else { Err(self.lost_error()) }
    }

    #[cold]
    fn lost_error(&self) -> Error {
        let source = io::Error::from_raw_os_error(libc::EIO);
        Error::Io { context: format!("a page could not be read: {}", self.name), source }
    }

    /// Has the start of a page fetched that will be read next: header, heads and slots of a leaf of documents.
    #[inline]
    pub(super) fn prefetch(&self, place: PageNo) {
        if let Some(bytes) = self.map.bytes(place.offset(), PAGE_BYTES) {
            prefetch(bytes);
            prefetch(&bytes[CACHE_LINE..]);
            prefetch(&bytes[2 * CACHE_LINE..]);
            prefetch(&bytes[3 * CACHE_LINE..]);
        }
    }

    /// A node, its checksum not computed.
    #[inline]
    pub(super) fn node(&self, place: PageNo, level: u8) -> Result<Node<'_>, Error> {
        self.page(place).and_then(|page| Node::parse(page, place, level)).map_err(|damage| self.damage(place, damage))
    }

    /// A node whose checksum is right.
    pub(super) fn checked_node(&self, place: PageNo, level: u8) -> Result<Node<'_>, Error> {
        let checked =
            self.page(place).and_then(|page| page::check(page, place).and_then(|()| Node::parse(page, place, level)));
        checked.map_err(|damage| self.damage(place, damage))
    }

    /// A page of the space map whose checksum is right.
    pub(super) fn checked_page(&self, place: PageNo, kind: Kind) -> Result<&Page, Error> {
        let page = self.page(place).and_then(|page| page::check(page, place).map(|()| page));
        let page = page.map_err(|damage| self.damage(place, damage))?;
        if page::kind_byte(page) != kind as u8 {
            return Err(self.damage(place, Damage("page of another kind than the one that names it says")));
        }
        Ok(page)
    }

    /// A value in overflow; with `check` its checksum is computed.
    pub(super) fn overflow(&self, place: OverflowRef, check: bool) -> Result<&[u8], Error> {
        let damage = |what| self.damage(place.start, Damage(what));
        let len = place.len as usize;
        if len > VALUE_BYTES_MAX {
            return Err(damage("overflow value over its limit"));
        }
        let extent_bytes = page::overflow_pages(len) as usize * PAGE_BYTES;
        let extent = self.map.bytes(place.start.offset(), extent_bytes);
        self.overflow_in(place, extent.ok_or_else(|| damage("page beyond the end of the file"))?, check)
    }

    /// A run of pages up to the next multiple of `stretch`; the file grows when none is free.
    pub(super) fn take_some(&self, stretch: u32, growth: Growth) -> Result<Extent, Error> {
        self.take(1, growth, |space| space.take_some(stretch, growth.may_take(space)))
    }

    /// A run of exactly `count` pages.
    pub(super) fn take_run(&self, count: u32, growth: Growth) -> Result<Extent, Error> {
        self.take(count, growth, |space| if growth.may_take(space) < count { None } else { space.take_run(count) })
    }

    fn take(
        &self,
        wanted: u32,
        growth: Growth,
        mut take: impl FnMut(&mut Space) -> Option<Extent>,
    ) -> Result<Extent, Error> {
        self.check_sound()?;
        let mut space = self.space();
        let mut taken = take(&mut space);
        if taken.is_none() {
            self.grow(&mut space, wanted, growth)?;
            taken = take(&mut space);
        }
        if let (Growth::Zeroed, Some(extent)) = (growth, taken) {
            space.merging += extent.count;
        }
        taken.ok_or(Error::Full)
    }

    /// A checkpoint under way has ended, or given up: so many pages are not its own any more.
    pub(super) fn settle(&self, pages: u32) {
        let mut space = self.space();
        space.merging = space.merging.saturating_sub(pages);
    }

    pub(super) fn poison(&self) {
        self.is_poisoned.store(true, Ordering::Release);
    }

    fn check_sound(&self) -> Result<(), Error> {
        if self.is_poisoned.load(Ordering::Acquire) { Err(Error::Poisoned) } else { Ok(()) }
    }

    pub(super) fn give_back(&self, extents: &[Extent]) {
        self.space().give_back(extents);
    }

    /// Makes the file longer, so that it ends with at least `wanted` free pages; by a step where the disk has room for one.
    fn grow(&self, space: &mut Space, wanted: u32, growth: Growth) -> Result<(), Error> {
        let (fraction, most) = match growth {
            Growth::Zeroed => (GROWTH_FRACTION, GROWTH_PAGES_MAX),
            Growth::Sparse => (GROWTH_FRACTION_SPARSE, GROWTH_PAGES_MAX_SPARSE),
        };
        let most = if self.is_kept_small { GROWTH_PAGES_MIN } else { most };
        let step = (space.page_count / fraction).clamp(GROWTH_PAGES_MIN, most);
        let missing = growth.missing(space, wanted);
        match self.grow_by(space, missing.max(step), growth) {
            // What did fit is the file's now, and may be all that is missing.
            Err(Error::Full) if growth.missing(space, wanted) > 0 => {
                self.grow_by(space, growth.missing(space, wanted), growth)
            }
            Err(Error::Full) => Ok(()),
            grown => grown,
        }
    }

    fn grow_by(&self, space: &mut Space, pages: u32, growth: Growth) -> Result<(), Error> {
        let old = PageNo(space.page_count).offset();
        let limit = self.map.reserve().min(PageNo(u32::MAX).offset());
        let new = old + u64::from(pages) * PAGE_BYTES as u64;
        if new > limit {
            return Err(Error::Limit { what: "tree file", limit });
        }
        let grown = match growth {
            Growth::Zeroed => self.file.write_zeros(old, new - old),
            Growth::Sparse => self.file.set_len(new),
        };
        // Zeros that were written before the disk was full are pages too. Given back they would be taken by others.
        let len = if grown.is_ok() { new } else { self.file.len().unwrap_or(old).clamp(old, new) };
        self.cover()?;
        space.grow((len / PAGE_BYTES as u64) as u32);
        grown.map_err(|error| self.io("grow", error))
    }
}

/// What checkpoints will find without the file's growing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promised {
    /// Pages in all.
    pub(crate) pages: u32,
    /// Free pages at the end of the file, behind one another.
    pub(crate) stretch: u32,
}

/// What a writer needs of the state it starts from, and replaces.
pub(super) struct Current {
    pub(super) view: Arc<TreeView>,
    pub(super) places: Places,
    /// Which meta page says so; the other one is written next.
    pub(super) slot: PageNo,
    /// Sequence of the next checkpoint.
    pub(super) next_sequence: u64,
    /// Views that may still be read.
    pub(super) views: Held,
}

/// An open tree file.
pub struct TreeFile {
    pub(super) shared: Arc<Shared>,
    current: Mutex<Current>,
    /// One writer at a time.
    pub(super) is_writing: AtomicBool,
}

/// A file whose meta pages are read, and none chosen yet.
pub struct Opening {
    name: String,
    file: Arc<dyn DiskFile>,
    access: Access,
    map: Map,
    metas: Vec<(PageNo, Meta)>,
    faults: Vec<Error>,
    is_kept_small: bool,
    is_read_alone: bool,
}

impl TreeFile {
    /// Makes an empty file. It has its name only when it is whole.
    pub fn create(disk: &dyn Disk, name: &str, version: Version, log_start: LogPosition) -> Result<(), Error> {
        let new_name = format!("{name}{NEW_SUFFIX}");
        let context = |error| Error::io(format!("create {name}"), error);
        let file = disk.open(&new_name, true, Access::Buffered).map_err(context)?;
        file.set_len(0).map_err(context)?;
        let meta = Meta::empty(version, log_start);
        for place in (0..META_PAGES).map(PageNo) {
            // The first one too has a twin, so that one bad page does not make a new file unreadable.
            let meta = Meta { sequence: meta.sequence + u64::from(place.0), ..meta.clone() };
            file.write_all_at(&meta.encode(place), place.offset()).map_err(context)?;
        }
        file.sync_data().map_err(context)?;
        drop(file);
        disk.rename(&new_name, name).map_err(context)?;
        disk.sync_dir().map_err(context)
    }

    /// Reads the meta pages of a file and maps it into `map_bytes` of address space.
    pub fn open(disk: &dyn Disk, name: &str, map_bytes: u64) -> Result<Opening, Error> {
        TreeFile::open_for(Access::Buffered, disk, name, map_bytes)
    }

    /// The same for one who only looks ([`Access::ReadOnly`]): nothing is written, nor made durable.
    pub(crate) fn open_for(access: Access, disk: &dyn Disk, name: &str, map_bytes: u64) -> Result<Opening, Error> {
        let context = |error| Error::io(format!("open {name}"), error);
        let file = disk.open(name, false, access).map_err(context)?;
        let len = file.len().map_err(context)?;
        if len > map_bytes {
            return Err(Error::Limit { what: "tree file", limit: map_bytes });
        }
        let map = file.map(map_bytes).map_err(context)?;
        let (mut metas, mut faults, mut format) = (Vec::new(), Vec::new(), None);
        for place in (0..META_PAGES).map(PageNo) {
            let page = map.bytes(place.offset(), PAGE_BYTES).and_then(|bytes| bytes.first_chunk());
            let short = MetaFault::Damage(Damage("file ends before its meta pages"));
            match page.ok_or(short).and_then(|page| Meta::decode(page, place)) {
                Ok(meta) if u64::from(meta.page_count) * PAGE_BYTES as u64 > len => {
                    faults.push(Error::corrupt(name, len, "file ends before the pages that its meta page counts"));
                }
                Ok(meta) => metas.push((place, meta)),
                Err(MetaFault::Damage(damage)) => faults.push(Error::corrupt(name, place.offset(), damage.0)),
                Err(MetaFault::Format(found)) => format = Some(Error::Format { found, supported: FORMAT_VERSION }),
            }
        }
        metas.sort_by_key(|(_, meta)| std::cmp::Reverse(meta.sequence));
        match (metas.is_empty(), format, faults.pop()) {
            (true, Some(error), _) | (true, None, Some(error)) => Err(error),
            (_, _, fault) => {
                faults.extend(fault);
                Ok(Opening {
                    name: name.to_string(),
                    file,
                    access,
                    map,
                    metas,
                    faults,
                    is_kept_small: false,
                    is_read_alone: false,
                })
            }
        }
    }

    /// The newest view.
    pub fn view(&self) -> Arc<TreeView> {
        self.current().view.clone()
    }

    /// Starts a checkpoint on the newest view.
    pub fn begin(&self, pace: Pace) -> Result<TreeWriter<'_>, Error> {
        self.shared.check_sound()?;
        if self.is_writing.swap(true, Ordering::AcqRel) {
            return Err(Error::Busy);
        }
        let mut current = self.current();
        current.views.forget_gone();
        let newest = current.view.meta().sequence;
        let oldest = current.views.oldest().unwrap_or(newest);
        self.shared.space().release(oldest, newest);
        pinned::release_unreached(&self.shared, &current, newest);
        let output = Output::new(self.shared.clone(), current.next_sequence, Growth::Zeroed, pace);
        Ok(TreeWriter::new(self, current.view.clone(), output))
    }

    /// Reads of this file past the page cache, where the data is larger than memory and the system has such reads.
    pub(crate) fn read_queue(&self, places: usize, place_bytes: usize) -> Option<Box<dyn ReadQueue>> {
        let shared = &self.shared;
        // What fits into memory gets there sooner if nothing goes past it.
        if !shared.is_read_alone {
            return None;
        }
        let queue = shared.file.read_queue(places, place_bytes);
        queue.inspect_err(|error| tracing::info!(%error, "no reads past the page cache")).ok()
    }

    /// Starts a bottom-up build; any number may be under way beside a checkpoint.
    pub fn bulk(&self, pace: Pace) -> BulkBuilder {
        let sequence = self.current().next_sequence;
        BulkBuilder::new(self.shared.clone(), Output::new(self.shared.clone(), sequence, Growth::Sparse, pace))
    }

    /// Pages that the disk did not give, so far.
    pub(crate) fn lost_pages(&self) -> u64 {
        self.shared.lost()
    }

    /// Pages that the newest state reaches.
    pub(crate) fn live_pages(&self) -> u32 {
        self.shared.live_pages.load(Ordering::Acquire)
    }

    /// Pages that finished checkpoints have taken since the file was opened.
    pub(crate) fn merged_pages(&self) -> u64 {
        self.shared.merged_pages.load(Ordering::Acquire)
    }

    /// After a failed sync no checkpoint is possible until the file is opened again.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.shared.is_poisoned.load(Ordering::Acquire)
    }

    /// Promises free pages to checkpoints, and `runs` of them in one stretch, the file growing where it must; says how
    /// many there are, which may be fewer than `wanted` where the disk is full. They are in the file, durably: nobody
    /// else can take them, and they are there after a crash.
    ///
    /// With `may_grow` false it only looks. Bulk builds leave alone what is promised.
    pub(crate) fn promise(&self, wanted: u32, runs: u32, may_grow: bool) -> Result<Promised, Error> {
        let shared = &self.shared;
        let (mut has_grown, mut is_full) = (false, !may_grow);
        let outcome = loop {
            let (oldest, newest) = (self.oldest_view(), self.view().meta().sequence);
            let mut space = shared.space();
            // What is under way will be durable before the next one begins. Were it published since `newest` was read,
            // it would have no pages any more, and this would only count too few.
            let durable = newest + u64::from(space.merging > 0);
            let pages = space.available(oldest, durable);
            let stretch = space.free_at_end();
            let missing = wanted.saturating_sub(pages).max(runs.saturating_sub(stretch));
            if missing == 0 || is_full {
                space.promised = pages.min(wanted);
                space.keep_for_runs(runs.min(stretch));
                break Ok(Promised { pages, stretch });
            }
            has_grown = true;
            // In steps, so that a checkpoint that wants pages does not wait for all of it.
            match shared.grow_by(&mut space, missing.min(GROWTH_PAGES_MAX), Growth::Zeroed) {
                Ok(()) => {}
                Err(Error::Full) => is_full = true,
                Err(error) => break Err(error),
            }
        };
        if has_grown {
            shared.file().sync_data().map_err(|error| {
                shared.poison();
                shared.io_failure("sync", error)
            })?;
        }
        outcome
    }

    /// Sequence of the oldest view that is still held: pages freed since cannot be used again.
    pub fn oldest_view(&self) -> u64 {
        let current = self.current();
        current.views.oldest().unwrap_or(current.view.meta().sequence)
    }

    pub(super) fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Opening {
    /// The meta pages that are whole, the newest first: at least one.
    pub fn metas(&self) -> impl Iterator<Item = &Meta> {
        self.metas.iter().map(|(_, meta)| meta)
    }

    /// Bytes of the file.
    pub(crate) fn bytes(&self) -> u64 {
        self.map.len()
    }

    /// From now on a page that is touched is read alone.
    pub(crate) fn read_alone(&mut self) -> Result<(), Error> {
        self.is_read_alone = true;
        self.map.advise_random().map_err(|error| Error::io(format!("map {}", self.name), error))
    }

    /// A file that is written once, as a copy: it grows by small steps, so that it ends with few free pages.
    pub(super) fn kept_small(self) -> Opening {
        Opening { is_kept_small: true, ..self }
    }

    /// What was wrong with the meta page that is not whole.
    pub fn fault(&self) -> Option<&Error> {
        self.faults.first()
    }

    /// Goes on from the meta page at this place in [`Opening::metas`].
    pub fn choose(self, index: usize) -> Result<TreeFile, Error> {
        let Opening { name, file, access, map, metas, is_kept_small, is_read_alone, .. } = self;
        let newest = metas.first().map_or(0, |(_, meta)| meta.sequence);
        let (slot, meta) = metas.get(index).cloned().ok_or_else(|| Error::corrupt(&name, 0, "no such meta page"))?;
        if access != Access::ReadOnly {
            // A process that was killed, or whose sync failed, leaves pages that the kernel has and the disk may not have.
            // All that this meta page reaches was synced before it was written; it itself may not be. Log segments that it
            // makes needless are used again soon, so it is made durable now: written once more, since after a failed sync
            // the kernel takes its page for clean.
            let written = file.write_all_at(&meta.encode(slot), slot.offset()).and_then(|()| file.sync_data());
            written.map_err(|error| Error::io(format!("sync {name}"), error))?;
        }
        let page_count = (map.len() / PAGE_BYTES as u64).min(u64::from(u32::MAX)) as u32;
        let space = Space::new(Bitmap::default(), Bitmap::default(), page_count, Default::default());
        let is_poisoned = AtomicBool::new(false);
        let mut shared = Shared {
            name,
            file,
            map,
            space: Mutex::new(space),
            is_poisoned,
            live_pages: AtomicU32::new(0),
            is_kept_small,
            is_read_alone,
            merged_pages: AtomicU64::new(0),
        };
        let (places, live) = Places::load(&shared, &meta.directories)?;
        let (mut taken, mut waiting) = (live.clone(), Default::default());
        for (_, other) in metas.iter().filter(|(place, _)| *place != slot) {
            // Until the next checkpoint overwrites it the other meta page can be recovered too, if its map is readable.
            if let Ok((_, other_live)) = Places::load(&shared, &other.directories) {
                waiting = protect(&mut taken, &other_live, page_count, newest);
            }
        }
        shared.live_pages = AtomicU32::new(live.count() as u32);
        shared.space = Mutex::new(Space::new(live, taken, page_count, waiting));
        let shared = Arc::new(shared);
        let trees = catalog::load(&shared, meta.catalog)?;
        shared.check_lost(0)?;
        let mut views = Held::default();
        let hold = views.hold(meta.sequence, meta.directories.clone());
        let view = Arc::new(TreeView::new(shared.clone(), meta, trees, hold));
        let current = Mutex::new(Current { view, places, slot, next_sequence: newest + 1, views });
        Ok(TreeFile { shared, current, is_writing: AtomicBool::new(false) })
    }
}

/// Keeps the pages that only the other meta page reaches from being taken, until a checkpoint after `newest`.
fn protect(taken: &mut Bitmap, other: &Bitmap, page_count: u32, newest: u64) -> std::collections::VecDeque<Waiting> {
    let mut only_other = Bitmap::default();
    for index in 0..other.words() {
        only_other.set_word(index, other.word(index) & !taken.word(index));
        taken.set_word(index, taken.word(index) | other.word(index));
    }
    let pages = only_other.extents(page_count).collect();
    std::collections::VecDeque::from([Waiting { sequence: newest, pages }])
}
