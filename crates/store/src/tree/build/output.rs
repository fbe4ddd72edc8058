//! Output of new pages: allocation, and buffered writes in chunks with pacing.
//!
//! Adjacent pages are written together, at most a chunk at once. After each write of a checkpoint the caller's [`Pace`] may
//! wait until the kernel has written it to the disk: if hundreds of megabytes were left to one fdatasync, every sync of the
//! log would be delayed meanwhile. The pace decides how much is written out at once. It is called for each write, because
//! most writes are of a single page, wherever one was free, and the disk serves a sync after all earlier writes.
//!
//! Bulk builds write chunks of [`BULK_CHUNK_BYTES`] at multiples of that size. For such a write the kernel allocates
//! one huge page of its cache, if the file system supports it, and maps it as one. A million documents then need a
//! hundred TLB entries instead of fifty thousand, for which the TLB has no room.

use std::sync::Arc;

use super::chunk_writer::{ChunkWriter, Pace};
use crate::base::error::StoreError;
use crate::tree::format::node::{self, OverflowRef, Payload};
use crate::tree::format::page::{
    self, Extent, HEADER_BYTES, Header, Kind, PAGE_BYTES, Page, PageNo, put_crc, put_overflow_len,
};
use crate::tree::state::shared::{Growth, Shared};

/// Bytes of one write of a checkpoint: a page. A sync of the log waits for earlier writes, and larger writes increased
/// its highest latencies (`engine/checkpoint/pace.rs`).
const CHECKPOINT_CHUNK_BYTES: usize = PAGE_BYTES;
/// Bytes of the stretch of the file from which a checkpoint takes pages at once.
const RESERVE_BYTES: usize = 256 * 1024;
/// Bytes between two calls of a bulk build's [`Pace`].
const BULK_PACE_BYTES: usize = 256 * 1024;
/// Bytes of one write of a bulk build: a huge page of the processor (x86-64, and arm64 with pages of 4 KB).
const BULK_CHUNK_BYTES: usize = 2 << 20;

/// See the module's text.
pub(in crate::tree) struct Output {
    shared: Arc<Shared>,
    sequence: u64,
    growth: Growth,
    /// Maximum bytes of one write. Writes end at multiples of it.
    chunk_bytes: usize,
    /// Bytes of the stretch from which pages are taken at once.
    reserve_bytes: usize,
    /// Taken from the file, not yet used.
    reserve: Extent,
    allocated: Vec<Extent>,
    buffer: Vec<u8>,
    buffer_start: PageNo,
    writer: ChunkWriter,
}

impl Output {
    pub(in crate::tree) fn new(shared: Arc<Shared>, sequence: u64, growth: Growth, pace: Pace) -> Output {
        let (chunk_bytes, pace_bytes, reserve_bytes) = match growth {
            Growth::Zeroed => (CHECKPOINT_CHUNK_BYTES, PAGE_BYTES, RESERVE_BYTES),
            Growth::Allocated if shared.is_kept_small() => (BULK_PACE_BYTES, BULK_PACE_BYTES, BULK_PACE_BYTES),
            Growth::Allocated => (BULK_CHUNK_BYTES, BULK_PACE_BYTES, BULK_CHUNK_BYTES),
        };
        let writer = ChunkWriter::new(Arc::clone(&shared), growth == Growth::Allocated, pace_bytes, pace);
        Output {
            shared,
            sequence,
            growth,
            chunk_bytes,
            reserve_bytes,
            reserve: Extent { start: PageNo::NONE, count: 0 },
            allocated: Vec::new(),
            buffer: Vec::with_capacity(chunk_bytes),
            buffer_start: PageNo::NONE,
            writer,
        }
    }

    pub(in crate::tree) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// All pages used so far.
    pub(super) fn allocated(&self) -> &[Extent] {
        &self.allocated
    }

    /// Takes over pages that another output has written.
    pub(in crate::tree) fn adopt(&mut self, pages: Vec<Extent>) {
        self.allocated.extend(pages);
    }

    /// Returns the used pages, which now belong to the caller, and frees those that were only reserved.
    pub(in crate::tree) fn release(&mut self) -> Vec<Extent> {
        self.shared.give_back(&[std::mem::replace(&mut self.reserve, Extent { start: PageNo::NONE, count: 0 })]);
        std::mem::take(&mut self.allocated)
    }

    /// A page for the caller to fill with [`Output::put`].
    pub(super) fn allocate(&mut self) -> Result<PageNo, StoreError> {
        if self.reserve.count == 0 {
            self.reserve = self.shared.take_some((self.reserve_bytes / PAGE_BYTES) as u32, self.growth)?;
        }
        Ok(self.use_reserve(1).start)
    }

    fn allocate_run(&mut self, count: u32) -> Result<Extent, StoreError> {
        if self.reserve.count >= count {
            return Ok(self.use_reserve(count));
        }
        let extent = self.shared.take_run(count, self.growth)?;
        self.allocated.push(extent);
        Ok(extent)
    }

    fn use_reserve(&mut self, count: u32) -> Extent {
        let extent = Extent { start: self.reserve.start, count };
        self.reserve = Extent { start: PageNo(extent.start.0 + count), count: self.reserve.count - count };
        match self.allocated.last_mut() {
            Some(last) if last.start.0 + last.count == extent.start.0 => last.count += count,
            _ => self.allocated.push(extent),
        }
        extent
    }

    /// Writes an allocated page, with its checksum.
    pub(super) fn put(&mut self, place: PageNo, fill: impl FnOnce(&mut Page)) -> Result<(), StoreError> {
        let page = self.next_page(place)?;
        fill(page);
        page::seal(page);
        self.shared.note_sealed(place);
        Ok(())
    }

    /// Writes a node at a new place.
    pub(super) fn write_node<'k>(
        &mut self,
        level: u8,
        entries: impl Iterator<Item = (&'k [u8], Payload<'k>)> + Clone,
    ) -> Result<PageNo, StoreError> {
        let place = self.allocate()?;
        let sequence = self.sequence;
        self.put(place, |page| node::encode(page, place, level, sequence, entries))?;
        Ok(place)
    }

    /// Writes a value into an extent of its own: a header, then the bytes without a gap, so that it can be read as one slice.
    pub(in crate::tree) fn write_overflow(&mut self, value: &[u8]) -> Result<OverflowRef, StoreError> {
        let extent = self.allocate_run(page::overflow_pages(value.len()))?;
        let (start, rest) = value.split_at(value.len().min(PAGE_BYTES - HEADER_BYTES));
        let mut first = [0; PAGE_BYTES];
        Header::plain(Kind::Overflow, extent.start, self.sequence).write(&mut first);
        put_overflow_len(&mut first, value.len() as u32);
        first[HEADER_BYTES..HEADER_BYTES + start.len()].copy_from_slice(start);
        let zeros = [0; PAGE_BYTES];
        let padding = rest.len().next_multiple_of(PAGE_BYTES) - rest.len();
        let mut crc = crc32c::crc32c(page::checked_part(&first));
        crc = crc32c::crc32c_append(crc, rest);
        crc = crc32c::crc32c_append(crc, &zeros[..padding]);
        put_crc(&mut first, crc);
        let mut pages = extent.pages();
        if let Some(place) = pages.next() {
            *self.next_page(place)? = first;
            self.shared.note_sealed(place);
        }
        for (place, bytes) in pages.zip(rest.chunks(PAGE_BYTES)) {
            self.next_page(place)?[..bytes.len()].copy_from_slice(bytes);
        }
        Ok(OverflowRef { start: extent.start, len: value.len() as u32 })
    }

    /// A zeroed page in the buffer.
    fn next_page(&mut self, place: PageNo) -> Result<&mut Page, StoreError> {
        let buffered = self.buffer.len();
        let is_next = self.buffer_start.offset() + buffered as u64 == place.offset();
        let begins_chunk = place.offset().is_multiple_of(self.chunk_bytes as u64);
        if buffered > 0 && (begins_chunk || !is_next) {
            self.flush()?;
        }
        if self.buffer.is_empty() {
            self.buffer_start = place;
        }
        let start = self.buffer.len();
        self.buffer.resize(start + PAGE_BYTES, 0);
        let page = self.buffer.last_chunk_mut::<PAGE_BYTES>();
        page.ok_or_else(|| self.shared.damage(place, page::Damage("no room in the write buffer")))
    }

    /// Writes all buffered pages, or passes them to the writing thread.
    pub(in crate::tree) fn flush(&mut self) -> Result<(), StoreError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let start = self.buffer_start.offset();
        self.writer.write(&mut self.buffer, start)
    }

    /// The same, and waits until all are written. Nothing can be written afterwards.
    pub(in crate::tree) fn settle(&mut self) -> Result<(), StoreError> {
        self.flush()?;
        self.writer.finish()
    }
}

impl Drop for Output {
    /// Frees pages that were not released.
    fn drop(&mut self) {
        self.writer.abandon();
        let pages = self.release();
        self.shared.give_back(&pages);
    }
}
