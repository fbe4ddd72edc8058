//! Opening a tree file: its meta pages, the choice between them, and the free space of the chosen state.

use std::sync::Arc;

use super::build::space_map::Places;
use super::file::{Current, TreeFile};
use super::format::meta::{FORMAT_VERSION, Meta, MetaFault};
use super::format::page::{Damage, META_PAGES, PAGE_BYTES, PageNo};
use super::read::catalog;
use super::read::view::TreeView;
use super::state::held::Held;
use super::state::shared::{Opened, Shared};
use super::state::space::{Bitmap, Space, Waiting};
use crate::base::error::StoreError;
use crate::base::fail_stop::FailStop;
use crate::base::key::Version;
use crate::base::sync::atomic::Ordering;
use crate::disk::{Access, Disk};
use crate::log::LogPosition;

/// Appended to the name of a file under construction.
const NEW_SUFFIX: &str = ".new";

/// A file whose meta pages are read, and none is chosen yet.
pub struct Opening {
    opened: Opened,
    access: Access,
    metas: Vec<(PageNo, Meta)>,
    faults: Vec<StoreError>,
}

impl TreeFile {
    /// Creates an empty file. It gets its name only when it is complete.
    pub fn create(disk: &dyn Disk, name: &str, version: Version, log_start: LogPosition) -> Result<(), StoreError> {
        let new_name = format!("{name}{NEW_SUFFIX}");
        let context = |error| StoreError::io(format!("create {name}"), error);
        let file = disk.open(&new_name, true, Access::Buffered).map_err(context)?;
        file.set_len(0).map_err(context)?;
        let meta = Meta::empty(version, log_start);
        for place in (0..META_PAGES).map(PageNo) {
            // A new file has two meta pages of the same state, so that one bad page does not make it unreadable.
            let meta = Meta { sequence: meta.sequence + u64::from(place.0), ..meta.clone() };
            file.write_all_at(&meta.encode(place), place.offset()).map_err(context)?;
        }
        file.sync_data().map_err(context)?;
        drop(file);
        disk.rename(&new_name, name).map_err(context)?;
        disk.sync_dir().map_err(context)
    }

    /// Reads the meta pages of a file and maps it into `map_bytes` of address space.
    pub fn open(disk: &dyn Disk, name: &str, map_bytes: u64) -> Result<Opening, StoreError> {
        TreeFile::open_for(Access::Buffered, disk, name, map_bytes)
    }

    /// The same for an examination ([`Access::ReadOnly`]): nothing is written or made durable.
    pub(crate) fn open_for(access: Access, disk: &dyn Disk, name: &str, map_bytes: u64) -> Result<Opening, StoreError> {
        let context = |error| StoreError::io(format!("open {name}"), error);
        let file = disk.open(name, false, access).map_err(context)?;
        let len = file.len().map_err(context)?;
        if len > map_bytes {
            return Err(StoreError::Limit { what: "tree file", limit: map_bytes });
        }
        let map = file.map(map_bytes).map_err(context)?;
        let (mut metas, mut faults, mut format) = (Vec::new(), Vec::new(), None);
        for place in (0..META_PAGES).map(PageNo) {
            let page = map.bytes(place.offset(), PAGE_BYTES).and_then(|bytes| bytes.first_chunk());
            let short = MetaFault::Damage(Damage("file ends before its meta pages"));
            match page.ok_or(short).and_then(|page| Meta::decode(page, place)) {
                Ok(meta) if u64::from(meta.page_count) * PAGE_BYTES as u64 > len => {
                    faults.push(StoreError::corrupt(name, len, "file ends before the pages that its meta page counts"));
                }
                Ok(meta) => metas.push((place, meta)),
                Err(MetaFault::Damage(damage)) => faults.push(StoreError::corrupt(name, place.offset(), damage.0)),
                Err(MetaFault::Format(found)) => format = Some(StoreError::Format { found, supported: FORMAT_VERSION }),
            }
        }
        metas.sort_by_key(|(_, meta)| std::cmp::Reverse(meta.sequence));
        match (metas.is_empty(), format, faults.pop()) {
            // An error even if the other meta page is intact: that one is older or has an older format.
            (_, Some(error), _) | (true, None, Some(error)) => Err(error),
            (_, _, fault) => {
                faults.extend(fault);
                let name = name.to_string();
                let opened = Opened { name, file, map, is_kept_small: false, is_read_alone: false };
                Ok(Opening { opened, access, metas, faults })
            }
        }
    }
}

impl Opening {
    /// The intact meta pages, newest first: at least one.
    pub fn metas(&self) -> impl Iterator<Item = &Meta> {
        self.metas.iter().map(|(_, meta)| meta)
    }

    /// The arguments of [`TreeFile::create`], if nothing has been written to the file since.
    pub(crate) fn made_for(&self) -> Option<(Version, LogPosition)> {
        let newest = self.metas().next()?;
        let made = Meta::empty(newest.version, newest.log_start);
        let is_as_made = |meta: &Meta| *meta == Meta { sequence: meta.sequence, ..made.clone() };
        (self.faults.is_empty() && self.metas().all(is_as_made)).then_some((made.version, made.log_start))
    }

    /// Bytes of the file.
    pub(crate) fn bytes(&self) -> u64 {
        self.opened.map.len()
    }

    /// Disables read-ahead: a fault reads one page.
    pub(crate) fn read_alone(&mut self) -> Result<(), StoreError> {
        self.opened.is_read_alone = true;
        self.opened.map.advise_random().map_err(|error| StoreError::io(format!("map {}", self.opened.name), error))
    }

    /// For a file that is written once, as a copy: it grows in small steps, so that it ends with few free pages.
    pub(crate) fn kept_small(mut self) -> Opening {
        self.opened.is_kept_small = true;
        self
    }

    /// The fault of the damaged meta page.
    pub fn fault(&self) -> Option<&StoreError> {
        self.faults.first()
    }

    /// Continues from the meta page at this index in [`Opening::metas`].
    pub fn choose(self, index: usize) -> Result<TreeFile, StoreError> {
        self.choose_for(index, Arc::default())
    }

    /// The same for a file that accepts no changes once its store has stopped, and whose failed syncs stop the store.
    pub(crate) fn choose_for(self, index: usize, fail_stop: Arc<FailStop>) -> Result<TreeFile, StoreError> {
        let Opening { opened, access, metas, .. } = self;
        let newest = metas.first().map_or(0, |(_, meta)| meta.sequence);
        let (slot, meta) =
            metas.get(index).cloned().ok_or_else(|| StoreError::corrupt(&opened.name, 0, "no such meta page"))?;
        if access != Access::ReadOnly {
            // A process that was killed, or whose sync failed, leaves pages in the page cache that may not be on the
            // disk. Everything that this meta page reaches was synced before it was written; the meta page itself may
            // not be. Log segments that it makes unnecessary are reused soon, so it is made durable now. It is
            // rewritten, since after a failed sync the kernel considers its page clean.
            let file = &opened.file;
            let written = file.write_all_at(&meta.encode(slot), slot.offset()).and_then(|()| file.sync_data());
            written.map_err(|error| StoreError::io(format!("sync {}", opened.name), error))?;
        }
        let shared = Shared::new(opened, fail_stop)?;
        let page_count = shared.space().page_count;
        let (places, live) = Places::load(&shared, &meta.directories)?;
        let (mut taken, mut waiting) = (live.clone(), Default::default());
        for (_, other) in metas.iter().filter(|(place, _)| *place != slot) {
            // Until the next checkpoint overwrites it, the other meta page can be recovered too, if its map is readable.
            if let Ok((_, other_live)) = Places::load(&shared, &other.directories) {
                waiting = protect(&mut taken, &other_live, page_count, newest);
            }
        }
        shared.live_pages.store(live.count() as u32, Ordering::Release);
        *shared.space() = Space::new(live, taken, page_count, waiting);
        let shared = Arc::new(shared);
        let trees = catalog::load(&shared, meta.catalog)?;
        shared.check_lost(0)?;
        let mut views = Held::default();
        let hold = views.hold(meta.sequence, meta.directories.clone());
        let view = Arc::new(TreeView::new(shared.clone(), meta, trees, hold));
        Ok(TreeFile::new(shared, Current { view, places, slot, next_sequence: newest + 1, views }))
    }
}

/// Keeps the pages that only the other meta page reaches from being reused before a checkpoint after `newest`.
fn protect(taken: &mut Bitmap, other: &Bitmap, page_count: u32, newest: u64) -> std::collections::VecDeque<Waiting> {
    let mut only_other = Bitmap::default();
    for index in 0..other.words() {
        only_other.set_word(index, other.word(index) & !taken.word(index));
        taken.set_word(index, taken.word(index) | other.word(index));
    }
    let pages = only_other.extents(page_count).collect();
    std::collections::VecDeque::from([Waiting { sequence: newest, pages }])
}
