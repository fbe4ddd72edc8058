//! A batch: the transactions that one sync makes durable together. It is replayed whole or not at all.
//!
//! ```text
//!  0       4        8          16        24      32              40
//!  +-------+--------+----------+---------+-------+---------------+---------+
//!  | magic | length | sequence | segment | epoch | first_version | durable |
//!  | u32   | u32    | u64      | u64     | u64   | u64           | u64     |
//!  +-------+--------+----------+---------+-------+---------------+---------+
//!  48             52         56         60       64              length    multiple of 4096
//!  +--------------+----------+----------+--------+---------------+---------+
//!  | transactions | previous | reserved | crc32c | transactions  | zeros   |
//!  | u32          | u32      | u32      | u32    | bytes         |         |
//!  +--------------+----------+----------+--------+---------------+---------+
//!
//!  transaction:  operations u32 | bytes u32 | operations
//!  operation:    kind u8 | zero u8 | key_len u16 | tree u32 | value_len u32 | key | value
//!                1 puts, 2 deletes (no value), 3 deletes from the key on and below the value (none: to the end),
//!                4 records that the tree was loaded (no key, no value),
//!                5 commits a large transaction (no key; the value names its pieces: `PiecesInLog`)
//!
//!  piece:        number u32 | zeros u32 | transaction
//! ```
//!
//! A batch without transactions that is longer than its header is a piece of a large transaction, numbered from 0. It has
//! no effect of its own: a transaction with an operation of kind 5 commits all its pieces with its own version.
//!
//! Little-endian. `length` counts header and transactions, not the zeros after them. `crc32c` covers these bytes except
//! itself; the zeros are neither covered nor read. `previous` is the checksum of the batch before. `durable` is the
//! last sequence known to be synced when this batch was written: an unreadable batch at or below a later batch's
//! `durable` is damage, not a torn tail. `reserved` is written as zero and checked.
//!
//! Transaction `i` of a batch has the version `first_version + i`. Stamped values are stored with their stamp. An empty
//! batch (no transactions) marks a recovery's new epoch, or a clean close.
//!
//! Batches begin at multiples of 4096: direct writes need that, and no write then touches a block that holds durable bytes.

use super::position::{LogPosition, u32_at, u64_at};

/// "SLOG" as it lies on disk.
pub(super) const MAGIC: u32 = u32::from_le_bytes(*b"SLOG");
pub(crate) const HEADER_BYTES: usize = 64;
pub(super) const RESERVED_AT: usize = 56;
pub(super) const CRC_AT: usize = 60;
pub(crate) const TRANSACTION_HEADER_BYTES: usize = 8;
pub(crate) const OPERATION_HEADER_BYTES: usize = 12;

pub(super) const KIND_PUT: u8 = 1;
pub(super) const KIND_DELETE: u8 = 2;
pub(super) const KIND_DELETE_RANGE: u8 = 3;
/// A bulk load changed the tree; its changes are not in the log. Only readers of changes use
/// this; replay skips it, since the load is in the tree file or never completed.
pub(super) const KIND_LOADED: u8 = 4;

/// Commits a large transaction whose changes are in the log as pieces. The value names them ([`PiecesInLog`]).
pub(super) const KIND_PIECES: u8 = 5;
/// Bytes of a piece before its operations: its number, and zeros.
pub(super) const PIECE_HEADER_BYTES: usize = 8;

/// The pieces of a large transaction, as the record that commits it names them.
///
/// ```text
///  0                     32      36      44
///  +---------------------+-------+-------+
///  | first (LogPosition) | count | bytes |
///  | 32 bytes            | u32   | u64   |
///  +---------------------+-------+-------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PiecesInLog {
    /// The position of the first one.
    pub(crate) first: LogPosition,
    /// Their number.
    pub(crate) count: u32,
    /// Bytes that their changes take in a memtable.
    pub(crate) bytes: u64,
}

impl PiecesInLog {
    const BYTES: usize = LogPosition::ENCODED_BYTES + 12;

    pub(super) fn to_bytes(self) -> Vec<u8> {
        [&self.first.encode()[..], &self.count.to_le_bytes(), &self.bytes.to_le_bytes()].concat()
    }

    /// `None` if these are not the bytes of such a value.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<PiecesInLog> {
        let (first, rest) = bytes.split_first_chunk()?;
        let is_it = bytes.len() == PiecesInLog::BYTES;
        is_it.then(|| PiecesInLog { first: LogPosition::decode(first), count: u32_at(rest, 0), bytes: u64_at(rest, 4) })
    }
}

/// One change of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation<'b> {
    pub(crate) tree: u32,
    /// The key; of a range the first possible key.
    pub(crate) key: &'b [u8],
    pub(crate) edit: Edit<'b>,
}

/// The effect of an operation on its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edit<'b> {
    /// Inserts or replaces.
    Put(&'b [u8]),
    /// Deletes.
    Delete,
    /// Deletes all keys from this one on and below `to`, or to the end. Comes before the transaction's other
    /// operations, so that it does not delete the transaction's own puts.
    DeleteRange {
        /// The end of the range, excluded.
        to: Option<&'b [u8]>,
    },
}

impl<'b> Edit<'b> {
    /// The bytes after the key in the log: the value, or the end of a range. No range ends at the empty key, so empty means "to the end".
    pub(crate) fn bytes(self) -> &'b [u8] {
        match self {
            Edit::Put(bytes) => bytes,
            Edit::Delete => &[],
            Edit::DeleteRange { to } => to.unwrap_or_default(),
        }
    }
}

/// Checksum of a whole batch, without its own field.
pub(super) fn checksum(batch: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&batch[..CRC_AT]), &batch[HEADER_BYTES..])
}
