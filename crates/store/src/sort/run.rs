//! A sorted run in a temporary file: written once in order, read in order.
//!
//! ```text
//!  block: | bytes u32 | crc32c u32 | records … |      record: | key length u16 | value length u32 | key | value |
//! ```
//!
//! A block holds whole records; `bytes` counts them, the checksum covers them. Nothing is synced: a run does not
//! outlive its process. The file is unlinked as soon as it is open, so nothing remains however the process ends. A
//! crash between the two leaves an empty file, which is removed at the next start.

use std::sync::Arc;

use crate::base::error::StoreError;
use crate::base::head::common_prefix;
use crate::base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX, check_limits};
use crate::disk::{Access, Disk, DiskFile};

/// Bytes of records after which a block ends.
pub(super) const BLOCK_BYTES: usize = 64 * 1024;
const BLOCK_HEADER: usize = 8;
/// A block ends with the record that fills it.
const BLOCK_BYTES_MAX: usize = BLOCK_BYTES + RecordHeader::BYTES + KEY_BYTES_MAX + VALUE_BYTES_MAX;

/// The header before a record's key.
pub(super) struct RecordHeader {
    key_len: u16,
    value_len: u32,
}

impl RecordHeader {
    pub(super) const BYTES: usize = 6;

    /// Key and value must be within their limits.
    pub(super) fn new(key: &[u8], value: &[u8]) -> RecordHeader {
        RecordHeader { key_len: key.len() as u16, value_len: value.len() as u32 }
    }

    pub(super) fn encode(&self) -> [u8; Self::BYTES] {
        let ([a, b], [c, d, e, f]) = (self.key_len.to_le_bytes(), self.value_len.to_le_bytes());
        [a, b, c, d, e, f]
    }
}

/// One record's bytes.
#[derive(Clone, Copy)]
pub(super) struct Record<'b> {
    bytes: &'b [u8],
    value_start: usize,
}

impl<'b> Record<'b> {
    /// The record at the start of these bytes, if it is complete.
    #[inline]
    pub(super) fn first_of(bytes: &'b [u8]) -> Option<Record<'b>> {
        let [a, b, c, d, e, f] = *bytes.first_chunk::<{ RecordHeader::BYTES }>()?;
        let value_start = RecordHeader::BYTES + usize::from(u16::from_le_bytes([a, b]));
        let end = value_start.checked_add(u32::from_le_bytes([c, d, e, f]) as usize)?;
        Some(Record { bytes: bytes.get(..end)?, value_start })
    }

    #[inline]
    pub(super) fn key(self) -> &'b [u8] {
        &self.bytes[RecordHeader::BYTES..self.value_start]
    }

    #[inline]
    pub(super) fn value(self) -> &'b [u8] {
        &self.bytes[self.value_start..]
    }

    /// The whole record, in the format of a run.
    #[inline]
    pub(super) fn bytes(self) -> &'b [u8] {
        self.bytes
    }
}

/// Suffix of the names of temporary files.
pub(super) const SUFFIX: &str = ".sort";

/// An unlinked file: its space is freed when it is dropped.
struct RunFile {
    /// For error messages.
    name: String,
    file: Arc<dyn DiskFile>,
}

/// Writes sorted entries into a temporary file.
pub struct SortedRunWriter {
    run: RunFile,
    block: Vec<u8>,
    at: u64,
    /// The common prefix of all keys; `None` before the first.
    common: Option<Vec<u8>>,
}

impl SortedRunWriter {
    /// A run whose file's name begins with `name`.
    pub fn new(disk: &dyn Disk, name: &str) -> Result<SortedRunWriter, StoreError> {
        let name = format!("{name}{SUFFIX}");
        let file = disk
            .open(&name, true, Access::Buffered)
            .map_err(|error| StoreError::io(format!("create {name}"), error))?;
        file.set_len(0).map_err(|error| StoreError::io(format!("empty {name}"), error))?;
        disk.remove(&name).map_err(|error| StoreError::io(format!("remove {name}"), error))?;
        let run = RunFile { name, file };
        Ok(SortedRunWriter { run, block: vec![0; BLOCK_HEADER], at: 0, common: None })
    }

    /// Adds an entry, which must not be below the previous one.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        check_limits(key, value)?;
        let start = self.block.len();
        self.block.extend_from_slice(&RecordHeader::new(key, value).encode());
        self.block.extend_from_slice(key);
        self.block.extend_from_slice(value);
        self.added(start)
    }

    /// Adds a record, which must not be below the previous one.
    pub(super) fn push_record(&mut self, record: Record<'_>) -> Result<(), StoreError> {
        let start = self.block.len();
        self.block.extend_from_slice(record.bytes());
        self.added(start)
    }

    fn added(&mut self, start: usize) -> Result<(), StoreError> {
        let key = Record::first_of(&self.block[start..]).map_or(&[][..], Record::key);
        match &mut self.common {
            None => self.common = Some(key.to_vec()),
            Some(common) if key.starts_with(common) => {}
            Some(common) => common.truncate(common_prefix(common, key)),
        }
        if self.block.len() >= BLOCK_HEADER + BLOCK_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        let (header, records) = self.block.split_at_mut(BLOCK_HEADER);
        if records.is_empty() {
            return Ok(());
        }
        header[..4].copy_from_slice(&(records.len() as u32).to_le_bytes());
        header[4..].copy_from_slice(&crc32c::crc32c(records).to_le_bytes());
        let written = self.run.file.write_all_at(&self.block, self.at);
        written.map_err(|error| StoreError::io(format!("write {}", self.run.name), error))?;
        self.at += self.block.len() as u64;
        self.block.truncate(BLOCK_HEADER);
        Ok(())
    }

    /// Ends the run and makes it readable.
    pub fn finish(mut self) -> Result<SortedRun, StoreError> {
        self.flush()?;
        Ok(SortedRun { file: Arc::new(self.run), end: self.at, common: self.common.unwrap_or_default() })
    }
}

/// Sorted entries in a temporary file, to be read any number of times. It holds no memory until it is read.
pub struct SortedRun {
    file: Arc<RunFile>,
    end: u64,
    common: Vec<u8>,
}

impl SortedRun {
    /// The common prefix of all keys.
    pub(super) fn common(&self) -> &[u8] {
        &self.common
    }

    /// Reads it from its start, positioned on the first record unless it is empty.
    pub(super) fn reader(&self) -> Result<RunReader, StoreError> {
        let mut reader =
            RunReader { file: Arc::clone(&self.file), end: self.end, at: 0, block: Vec::new(), record: 0..0 };
        reader.advance()?;
        Ok(reader)
    }
}

/// A run being read, positioned on a record until its end. The file lives as long as the run or a reader.
pub(super) struct RunReader {
    file: Arc<RunFile>,
    end: u64,
    at: u64,
    block: Vec<u8>,
    /// Range of the record in the block; empty at the end.
    record: std::ops::Range<usize>,
}

impl RunReader {
    /// The current record; `None` at the end.
    #[inline]
    pub(super) fn record(&self) -> Option<Record<'_>> {
        Record::first_of(&self.block[self.record.clone()])
    }

    /// Length of the file.
    pub(super) fn file_bytes(&self) -> usize {
        self.end as usize
    }

    /// Moves to the next record, if there is one.
    pub(super) fn advance(&mut self) -> Result<(), StoreError> {
        let mut start = self.record.end;
        if start == self.block.len() {
            self.record = start..start;
            if !self.next_block()? {
                return Ok(());
            }
            start = 0;
        }
        let record = Record::first_of(&self.block[start..]).ok_or_else(|| self.damage("record beyond its block"))?;
        self.record = start..start + record.bytes().len();
        Ok(())
    }

    fn next_block(&mut self) -> Result<bool, StoreError> {
        if self.at >= self.end {
            return Ok(false);
        }
        let RunFile { file, name, .. } = &*self.file;
        let context = |error| StoreError::io(format!("read {name}"), error);
        let mut header = [0; BLOCK_HEADER];
        file.read_exact_at(&mut header, self.at).map_err(context)?;
        let [a, b, c, d, e, f, g, h] = header;
        let bytes = u32::from_le_bytes([a, b, c, d]) as usize;
        if bytes > BLOCK_BYTES_MAX {
            return Err(self.damage("block over its limit"));
        }
        self.block.resize(bytes, 0);
        file.read_exact_at(&mut self.block, self.at + BLOCK_HEADER as u64).map_err(context)?;
        if crc32c::crc32c(&self.block) != u32::from_le_bytes([e, f, g, h]) {
            return Err(self.damage("checksum differs"));
        }
        self.at += (BLOCK_HEADER + bytes) as u64;
        Ok(true)
    }

    #[cold]
    fn damage(&self, what: &str) -> StoreError {
        StoreError::corrupt(&self.file.name, self.at, what)
    }
}
