//! A sorted run in a temporary file: written once in order, read once in order.
//!
//! ```text
//!  block: | bytes u32 | crc32c u32 | records … |      record: | key length u16 | value length u32 | key | value |
//! ```
//!
//! A block holds whole records; `bytes` counts them, the checksum covers them. Nothing is synced: a run does not outlive its
//! process, and what a crash leaves behind is removed at the next start.

use std::sync::Arc;

use super::page::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::Error;
use crate::disk::{Access, Disk, DiskFile};

/// Records of a block, before the one that passes it.
pub(super) const BLOCK_BYTES: usize = 256 * 1024;
const BLOCK_HEADER: usize = 8;
const RECORD_HEADER: usize = 6;
/// A block ends with the record that fills it.
const BLOCK_BYTES_MAX: usize = BLOCK_BYTES + RECORD_HEADER + KEY_BYTES_MAX + VALUE_BYTES_MAX;

/// A temporary file, removed when it is dropped.
struct RunFile {
    disk: Arc<dyn Disk>,
    name: String,
    file: Arc<dyn DiskFile>,
}

impl Drop for RunFile {
    fn drop(&mut self) {
        // If it cannot be removed now, the next start removes it.
        if let Err(error) = self.disk.remove(&self.name) {
            tracing::debug!(name = self.name, %error, "temporary file stays until the next start");
        }
    }
}

/// A run being written.
pub(super) struct RunWriter {
    run: RunFile,
    block: Vec<u8>,
    at: u64,
}

impl RunWriter {
    pub(super) fn create(disk: Arc<dyn Disk>, name: String) -> Result<RunWriter, Error> {
        let file =
            disk.open(&name, true, Access::Buffered).map_err(|error| Error::io(format!("create {name}"), error))?;
        let run = RunFile { disk, name, file };
        run.file.set_len(0).map_err(|error| Error::io(format!("empty {}", run.name), error))?;
        Ok(RunWriter { run, block: vec![0; BLOCK_HEADER], at: 0 })
    }

    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.block.extend_from_slice(&(key.len() as u16).to_le_bytes());
        self.block.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.block.extend_from_slice(key);
        self.block.extend_from_slice(value);
        if self.block.len() >= BLOCK_HEADER + BLOCK_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Error> {
        let (header, records) = self.block.split_at_mut(BLOCK_HEADER);
        if records.is_empty() {
            return Ok(());
        }
        header[..4].copy_from_slice(&(records.len() as u32).to_le_bytes());
        header[4..].copy_from_slice(&crc32c::crc32c(records).to_le_bytes());
        let written = self.run.file.write_all_at(&self.block, self.at);
        written.map_err(|error| Error::io(format!("write {}", self.run.name), error))?;
        self.at += self.block.len() as u64;
        self.block.truncate(BLOCK_HEADER);
        Ok(())
    }

    /// The run, to be read from its start.
    pub(super) fn finish(mut self) -> Result<RunReader, Error> {
        self.flush()?;
        let mut reader =
            RunReader { run: self.run, end: self.at, at: 0, block: Vec::new(), position: 0, key: 0..0, value: 0..0 };
        reader.advance()?;
        Ok(reader)
    }
}

/// A run being read; it stands on a record until it is at its end.
pub(super) struct RunReader {
    run: RunFile,
    end: u64,
    at: u64,
    block: Vec<u8>,
    position: usize,
    key: std::ops::Range<usize>,
    value: std::ops::Range<usize>,
}

impl RunReader {
    pub(super) fn key(&self) -> &[u8] {
        &self.block[self.key.clone()]
    }

    pub(super) fn value(&self) -> &[u8] {
        &self.block[self.value.clone()]
    }

    /// To the next record; false at the end.
    pub(super) fn advance(&mut self) -> Result<bool, Error> {
        if self.position == self.block.len() && !self.next_block()? {
            return Ok(false);
        }
        let record = self.record().ok_or_else(|| self.damage("record beyond its block"))?;
        (self.key, self.value) = record;
        self.position = self.value.end;
        Ok(true)
    }

    fn record(&self) -> Option<(std::ops::Range<usize>, std::ops::Range<usize>)> {
        let (key_len, rest) = self.block.get(self.position..)?.split_first_chunk()?;
        let (value_len, _) = rest.split_first_chunk()?;
        let key_start = self.position + RECORD_HEADER;
        let value_start = key_start + usize::from(u16::from_le_bytes(*key_len));
        let end = value_start.checked_add(u32::from_le_bytes(*value_len) as usize)?;
        (end <= self.block.len()).then_some((key_start..value_start, value_start..end))
    }

    fn next_block(&mut self) -> Result<bool, Error> {
        if self.at >= self.end {
            return Ok(false);
        }
        let context = |error| Error::io(format!("read {}", self.run.name), error);
        let mut header = [0; BLOCK_HEADER];
        self.run.file.read_exact_at(&mut header, self.at).map_err(context)?;
        let [a, b, c, d, e, f, g, h] = header;
        let bytes = u32::from_le_bytes([a, b, c, d]) as usize;
        if bytes > BLOCK_BYTES_MAX {
            return Err(self.damage("block over its limit"));
        }
        self.block.resize(bytes, 0);
        self.run.file.read_exact_at(&mut self.block, self.at + BLOCK_HEADER as u64).map_err(context)?;
        if crc32c::crc32c(&self.block) != u32::from_le_bytes([e, f, g, h]) {
            return Err(self.damage("checksum differs"));
        }
        self.at += (BLOCK_HEADER + bytes) as u64;
        self.position = 0;
        Ok(true)
    }

    #[cold]
    fn damage(&self, what: &str) -> Error {
        Error::corrupt(&self.run.name, self.at, what)
    }
}
