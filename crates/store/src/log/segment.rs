//! A segment: one file of the log, written with zeros once, then recycled under new numbers.
//!
//! ```text
//!  0       8        12         16       24      32       36         4096          bytes
//!  +-------+--------+----------+--------+-------+--------+----------+-------------+
//!  | magic | format | reserved | number | bytes | crc32c | zeros    | batches     |
//!  | u64   | u32    | u32      | u64    | u64   | u32    |          |             |
//!  +-------+--------+----------+--------+-------+--------+----------+-------------+
//! ```
//!
//! Little-endian; `crc32c` covers the 32 bytes before it. `bytes` is the file's length.
//!
//! Names: `NUMBER.log` is part of the log or prepared for it; `NUMBER.new` is being written with zeros, and worthless
//! after a crash. A recycled segment gets its new header first and its new name after. So a file whose name differs
//! from its header was being recycled, and its content is no longer needed.

use std::sync::Arc;

use super::position::{LogPosition, u32_at, u64_at};
use crate::base::error::StoreError;
use crate::disk::{Access, DIRECT_ALIGN, Disk, DiskFile};

const MAGIC: u64 = u64::from_le_bytes(*b"SapsnLog");
/// Version of the log's format: raised if a build of the old one would misread the new one.
pub(crate) const FORMAT_VERSION: u32 = 2;
/// The oldest format that can be read. Format 1 has no deleted ranges; otherwise it is the same.
const FORMAT_VERSION_OLDEST: u32 = 1;
const HEADER_FIELDS_BYTES: usize = 36;
/// Offset of the first batch.
pub(crate) const DATA_AT: u32 = DIRECT_ALIGN as u32;

/// An open segment.
pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    pub(crate) file: Arc<dyn DiskFile>,
    /// A write is durable when it returns; otherwise `sync_data` is needed.
    pub(crate) is_direct: bool,
}

impl LogPosition {
    /// Damage of the log at this place.
    pub(crate) fn damage(&self, what: impl Into<String>) -> StoreError {
        StoreError::corrupt(&live_name(self.segment), u64::from(self.offset), what)
    }
}

pub(crate) fn live_name(number: u64) -> String {
    format!("{number:010}.log")
}

pub(crate) fn new_name(number: u64) -> String {
    format!("{number:010}.new")
}

/// The number in a segment's file name, if it is one.
pub(crate) fn number_of(name: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_suffix(suffix)?;
    if digits.len() < 10 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// The header block of a segment.
pub(crate) fn encode_header(number: u64, bytes: u64) -> Vec<u8> {
    let mut header = vec![0; DIRECT_ALIGN];
    header[0..8].copy_from_slice(&MAGIC.to_le_bytes());
    header[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    header[16..24].copy_from_slice(&number.to_le_bytes());
    header[24..32].copy_from_slice(&bytes.to_le_bytes());
    let crc = crc32c::crc32c(&header[..32]);
    header[32..36].copy_from_slice(&crc.to_le_bytes());
    header
}

/// The format in a header.
pub(crate) fn format_of(header: &[u8]) -> u32 {
    u32_at(header, 8)
}

/// Checks a segment's header.
pub(crate) fn check_header(header: &[u8], number: u64, name: &str) -> Result<(), StoreError> {
    if header.len() < HEADER_FIELDS_BYTES || u64_at(header, 0) != MAGIC {
        return Err(StoreError::corrupt(name, 0, "magic number of a log segment"));
    }
    if crc32c::crc32c(&header[..32]) != u32_at(header, 32) {
        return Err(StoreError::corrupt(name, 0, "checksum of a log segment's header"));
    }
    let found = format_of(header);
    if !(FORMAT_VERSION_OLDEST..=FORMAT_VERSION).contains(&found) {
        return Err(StoreError::Format { found, supported: FORMAT_VERSION });
    }
    if u64_at(header, 16) != number {
        return Err(StoreError::corrupt(name, 16, "number of a log segment"));
    }
    Ok(())
}

/// Returns an error for a truncated segment. A segment gets its name only at its full length, and the missing part may
/// have held the only proof of where the log ended.
pub(crate) fn check_length(header: &[u8], len: u64, name: &str) -> Result<(), StoreError> {
    if header.len() < HEADER_FIELDS_BYTES || u64_at(header, 24) > len {
        return Err(StoreError::corrupt(name, len, "a log segment that ends before its length"));
    }
    Ok(())
}

/// Opens a segment's file for writing batches: directly if requested and possible (then `true`).
pub(crate) fn open_for_writing(
    disk: &dyn Disk,
    name: &str,
    direct: bool,
) -> std::io::Result<(Arc<dyn DiskFile>, bool)> {
    if direct {
        match disk.open(name, false, Access::Direct) {
            Ok(file) => return Ok((file, true)),
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {}
            Err(error) => return Err(error),
        }
    }
    Ok((disk.open(name, false, Access::Buffered)?, false))
}

/// The numbers of all segments, in no order.
pub(super) fn numbers(disk: &dyn Disk) -> Result<Vec<u64>, StoreError> {
    let names = disk.list().map_err(|error| StoreError::io("list the store's directory", error))?;
    Ok(names.iter().filter_map(|name| number_of(name, ".log")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_refused_under_another_number_or_with_any_byte_changed() {
        let header = encode_header(5, 1 << 20);
        check_header(&header, 5, "x").unwrap();
        assert!(check_header(&header, 6, "x").is_err());
        for at in 0..HEADER_FIELDS_BYTES {
            let mut changed = header.clone();
            changed[at] ^= 1;
            assert!(check_header(&changed, 5, "x").is_err(), "byte {at}");
        }
        assert!(check_header(&header[..10], 5, "x").is_err());
    }

    #[test]
    fn formats_that_are_not_known_are_refused_by_their_number() {
        for (format, is_known) in [(0, false), (1, true), (2, true), (3, false)] {
            let mut header = encode_header(5, 1 << 20);
            header[8..12].copy_from_slice(&u32::to_le_bytes(format));
            let crc = crc32c::crc32c(&header[..32]);
            header[32..36].copy_from_slice(&crc.to_le_bytes());
            match check_header(&header, 5, "x") {
                Ok(()) => assert!(is_known, "{format}"),
                Err(StoreError::Format { found, supported: 2 }) => assert!(found == format && !is_known),
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn only_our_names_have_numbers() {
        assert_eq!(number_of("0000000012.log", ".log"), Some(12));
        for name in
            ["12.log", "0000000012.new", "000000001x.log", ".log", "+000000012.log", "99999999999999999999999.log"]
        {
            assert_eq!(number_of(name, ".log"), None, "{name}");
        }
    }
}
