//! A reader of the log that runs beside its writer. It reads batch after batch from a mark on, in segments that may be
//! recycled meanwhile.
//!
//! It reads files, never the writer's memory, and takes no lock that a commit waits for. So it may read a file that is
//! just being recycled. The same checks protect it as in replay: a batch is accepted only if its checksum is valid and
//! the chain (segment, sequence, epoch, previous checksum) leads to it. If the chain breaks, [`Retention`] knows
//! whether the segment ends there, was released, or is damaged.
//!
//! The caller reads only while it knows that a later version is on the disk. So a torn tail, or a batch that is being
//! written, is never read.
//!
//! Memory: a window of [`WINDOW_BYTES`], or one batch if that is larger; none while its caller waits for new changes. Near the log's end only written bytes are
//! read. If segments are written past the page cache, they are also read past it: so a reader does not evict the tree's
//! pages, and a write need not wait for read-ahead pages to be invalidated.

use std::io;
use std::sync::Arc;

use super::batch::HEADER_BYTES;
use super::buffer::AlignedBuffer;
use super::position::LogPosition;
use super::reader::Batch;
use super::retention::{Follow, Retention};
use super::segment;
use crate::base::error::StoreError;
use crate::base::key::Version;
use crate::disk::{DIRECT_ALIGN, Disk, DiskFile};

/// Bytes read at once.
const WINDOW_BYTES: usize = 256 * 1024;

/// See the module's text.
pub(crate) struct Follower {
    disk: Arc<dyn Disk>,
    retention: Arc<Retention>,
    is_direct: bool,
    /// Position of the next batch.
    at: LogPosition,
    /// The file of that segment, once opened.
    file: Option<OpenSegment>,
    window: AlignedBuffer,
    /// Offset of the window in the segment.
    start: u32,
    /// The last batch read, in the window.
    batch: std::ops::Range<usize>,
}

struct OpenSegment {
    number: u64,
    file: Arc<dyn DiskFile>,
    len: u64,
}

/// The end of the written log: a segment, and an offset in it. Only a hint of how much is worth reading.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WrittenEnd {
    pub(crate) segment: u64,
    pub(crate) offset: u32,
}

impl Follower {
    pub(crate) fn new(disk: Arc<dyn Disk>, retention: Arc<Retention>, is_direct: bool, at: LogPosition) -> Follower {
        // Its memory is allocated with the first read.
        let window = AlignedBuffer::with_capacity(0);
        Follower { disk, retention, is_direct, at, file: None, window, start: 0, batch: 0..0 }
    }

    /// Bytes of memory of the window.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.window.memory_bytes()
    }

    /// Frees the window: everything in it was used.
    pub(crate) fn free_window(&mut self) {
        (self.window, self.batch) = (AlignedBuffer::with_capacity(0), 0..0);
    }

    /// The batch that [`Follower::advance`] read last.
    pub(crate) fn batch(&self) -> Option<Batch<'_>> {
        let bytes = self.window.as_slice().get(self.batch.clone())?;
        // Its checksum was valid when it was read, and no other code writes to these bytes.
        Batch::checked(bytes)
    }

    /// Damage of that batch.
    pub(crate) fn damage(&self, what: impl Into<String>) -> StoreError {
        LogPosition { offset: self.start + self.batch.start as u32, ..self.at }.damage(what)
    }

    /// Reads the next batch. The caller, which has all versions up to `version`, knows that there is one.
    pub(crate) fn advance(&mut self, version: u64, end: WrittenEnd) -> Result<(), StoreError> {
        self.advance_from(version, None, end)
    }

    /// The same, but the next batch must be the one behind the last: where a part of the log was released, the changes up to
    /// `needed` are gone.
    pub(crate) fn advance_in_chain(&mut self, version: u64, needed: u64, end: WrittenEnd) -> Result<(), StoreError> {
        self.advance_from(version, Some(needed), end)
    }

    fn advance_from(&mut self, version: u64, needed: Option<u64>, end: WrittenEnd) -> Result<(), StoreError> {
        self.batch = 0..0;
        loop {
            if self.read(end)? {
                return Ok(());
            }
            match (self.retention.follow(&self.at, version), needed) {
                (Follow::Next(at), _) => self.at = at,
                (Follow::Later(mark), None) => self.at = mark.at,
                (Follow::Later(_), Some(needed)) => return Err(StoreError::Gone { oldest: Version(needed) }),
                (Follow::Gone(oldest), _) => return Err(StoreError::Gone { oldest: Version(oldest) }),
                (Follow::Damaged, _) => return Err(self.at.damage("a batch that was durable is lost")),
            }
        }
    }

    /// Reads the batch at `at`, if it exists.
    fn read(&mut self, end: WrittenEnd) -> Result<bool, StoreError> {
        let written = if end.segment == self.at.segment { end.offset } else { u32::MAX };
        if self.take(written)? {
            return Ok(true);
        }
        // The window may have been read before the batch was written.
        self.window.clear();
        self.take(written)
    }

    fn take(&mut self, written: u32) -> Result<bool, StoreError> {
        let at = self.at;
        let Some(header) = self.bytes(HEADER_BYTES, written)? else { return Ok(false) };
        let Some(len) = Batch::claimed_bytes_at(header, &at) else { return Ok(false) };
        let Some(bytes) = self.bytes(len, written)? else { return Ok(false) };
        let Ok(batch) = Batch::read(bytes) else { return Ok(false) };
        self.at = batch.next(&at);
        let from = (at.offset - self.start) as usize;
        self.batch = from..from + len;
        Ok(true)
    }

    /// At least `len` bytes from `at` on, more if the window has them; `None` if the segment ends before, or does not exist.
    fn bytes(&mut self, len: usize, written: u32) -> Result<Option<&[u8]>, StoreError> {
        if !self.open()? {
            return Ok(None);
        }
        let Some(segment) = &self.file else { return Ok(None) };
        let offset = self.at.offset;
        if u64::from(offset) + len as u64 > segment.len {
            return Ok(None);
        }
        let is_inside = offset >= self.start && offset as usize + len <= self.start as usize + self.window.len();
        if !is_inside {
            let rest = usize::try_from(segment.len - u64::from(offset)).unwrap_or(usize::MAX);
            let new = (written.saturating_sub(offset) as usize).min(WINDOW_BYTES);
            // Whole blocks, as direct reads require; a segment's length is a multiple of them.
            let wanted = len.max(new).next_multiple_of(DIRECT_ALIGN).min(rest);
            let read = segment.file.read_exact_at(self.window.restart_with(wanted), u64::from(offset));
            self.start = offset;
            if let Err(error) = read {
                self.window.clear();
                let is_cut = error.kind() == io::ErrorKind::UnexpectedEof;
                return if is_cut { Ok(None) } else { Err(self.failure("read", error)) };
            }
        }
        Ok(self.window.as_slice().get((offset - self.start) as usize..))
    }

    /// Opens the segment's file; false if it does not exist.
    fn open(&mut self) -> Result<bool, StoreError> {
        let number = self.at.segment;
        if self.file.as_ref().is_some_and(|open| open.number == number) {
            return Ok(true);
        }
        self.file = None;
        self.window.clear();
        let opened = segment::open_for_writing(&*self.disk, &segment::live_name(number), self.is_direct);
        match opened.and_then(|(file, _)| Ok(OpenSegment { number, len: file.len()?, file })) {
            Ok(open) => self.file = Some(open),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(self.failure("open", error)),
        }
        Ok(true)
    }

    fn failure(&self, what: &str, error: io::Error) -> StoreError {
        StoreError::Io { context: format!("{what} {}", segment::live_name(self.at.segment)), source: error.into() }
    }
}
