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

use super::buffer::AlignedBuffer;
use super::position::{LogPosition, u32_at, u64_at};

/// "SLOG" as it lies on disk.
const MAGIC: u32 = u32::from_le_bytes(*b"SLOG");
pub(crate) const HEADER_BYTES: usize = 64;
const RESERVED_AT: usize = 56;
const CRC_AT: usize = 60;
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
const PIECE_HEADER_BYTES: usize = 8;

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

    fn to_bytes(self) -> Vec<u8> {
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

/// Collects the transactions of one batch. The buffer is reused.
pub(crate) struct BatchBuilder {
    buffer: AlignedBuffer,
    first_version: u64,
    transactions: u32,
    /// Offset of the open transaction's header, and its number of operations so far.
    open_at: usize,
    open_operations: u32,
}

impl BatchBuilder {
    pub(crate) fn new(capacity: usize) -> BatchBuilder {
        let mut builder = BatchBuilder {
            buffer: AlignedBuffer::with_capacity(capacity),
            first_version: 0,
            transactions: 0,
            open_at: 0,
            open_operations: 0,
        };
        builder.restart(0);
        builder
    }

    /// Clears it for the next batch.
    pub(crate) fn restart(&mut self, first_version: u64) {
        self.buffer.clear();
        self.buffer.extend(&[0; HEADER_BYTES]);
        self.first_version = first_version;
        self.transactions = 0;
    }

    /// Bytes so far, header included.
    pub(crate) fn len(&self) -> usize {
        self.buffer.len()
    }

    pub(crate) fn transactions(&self) -> u32 {
        self.transactions
    }

    /// Version of the last transaction in it; if it has none, the last version before it.
    pub(crate) fn last_version(&self) -> u64 {
        (self.first_version + u64::from(self.transactions)).saturating_sub(1)
    }

    /// Starts the transaction with the next version.
    pub(crate) fn begin_transaction(&mut self) {
        self.open_at = self.buffer.len();
        self.open_operations = 0;
        self.buffer.extend(&[0; TRANSACTION_HEADER_BYTES]);
    }

    /// Adds a change to the open transaction; a stamp replaces the value's first 8 bytes.
    pub(crate) fn push(&mut self, operation: Operation<'_>, stamp: Option<u64>) {
        let value = operation.edit.bytes();
        let mut header = [0; OPERATION_HEADER_BYTES];
        header[0] = match operation.edit {
            Edit::Put(_) => KIND_PUT,
            Edit::Delete => KIND_DELETE,
            Edit::DeleteRange { .. } => KIND_DELETE_RANGE,
        };
        header[2..4].copy_from_slice(&(operation.key.len() as u16).to_le_bytes());
        header[4..8].copy_from_slice(&operation.tree.to_le_bytes());
        header[8..12].copy_from_slice(&(value.len() as u32).to_le_bytes());
        self.buffer.extend(&header);
        self.buffer.extend(operation.key);
        match stamp {
            Some(version) if value.len() >= 8 => {
                self.buffer.extend(&version.to_le_bytes());
                self.buffer.extend(&value[8..]);
            }
            _ => self.buffer.extend(value),
        }
        self.open_operations += 1;
    }

    /// Adds the record that a tree was loaded to the open transaction.
    pub(crate) fn push_loaded(&mut self, tree: u32) {
        let mut header = [0; OPERATION_HEADER_BYTES];
        header[0] = KIND_LOADED;
        header[4..8].copy_from_slice(&tree.to_le_bytes());
        self.buffer.extend(&header);
        self.open_operations += 1;
    }

    /// Adds the record that commits a large transaction to the open transaction.
    pub(crate) fn push_pieces(&mut self, pieces: &PiecesInLog) {
        let value = pieces.to_bytes();
        let mut header = [0; OPERATION_HEADER_BYTES];
        header[0] = KIND_PIECES;
        header[8..12].copy_from_slice(&(value.len() as u32).to_le_bytes());
        self.buffer.extend(&header);
        self.buffer.extend(&value);
        self.open_operations += 1;
    }

    /// Starts a batch that is a piece of a large transaction; its changes are pushed like those of a transaction.
    pub(crate) fn begin_piece(&mut self, number: u32) {
        self.restart(0);
        self.buffer.extend(&number.to_le_bytes());
        self.buffer.extend(&[0; PIECE_HEADER_BYTES - 4]);
        self.begin_transaction();
    }

    /// Ends the piece.
    pub(crate) fn end_piece(&mut self) {
        self.end_transaction();
        self.transactions = 0;
    }

    /// Sets the version of the first transaction; a piece belongs to none.
    pub(crate) fn set_first_version(&mut self, version: u64) {
        self.first_version = version;
    }

    /// Ends the open transaction; returns its operations as they will be replayed.
    pub(crate) fn end_transaction(&mut self) -> Operations<'_> {
        let bytes = (self.buffer.len() - self.open_at - TRANSACTION_HEADER_BYTES) as u32;
        let (at, count) = (self.open_at, self.open_operations);
        let all = self.buffer.as_mut_slice();
        all[at..at + 4].copy_from_slice(&count.to_le_bytes());
        all[at + 4..at + 8].copy_from_slice(&bytes.to_le_bytes());
        self.transactions += 1;
        Operations::new(&self.buffer.as_slice()[at + TRANSACTION_HEADER_BYTES..], count)
    }

    /// Writes the header for this position. Returns the bytes to write, with padding, and the position of the next batch.
    pub(crate) fn seal(&mut self, at: &LogPosition, durable: u64) -> (&[u8], LogPosition) {
        let length = self.buffer.len();
        let all = self.buffer.as_mut_slice();
        all[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        all[4..8].copy_from_slice(&(length as u32).to_le_bytes());
        all[8..16].copy_from_slice(&at.sequence.to_le_bytes());
        all[16..24].copy_from_slice(&at.segment.to_le_bytes());
        all[24..32].copy_from_slice(&at.epoch.to_le_bytes());
        all[32..40].copy_from_slice(&self.first_version.to_le_bytes());
        all[40..48].copy_from_slice(&durable.to_le_bytes());
        all[48..52].copy_from_slice(&self.transactions.to_le_bytes());
        all[52..56].copy_from_slice(&at.previous.to_le_bytes());
        all[RESERVED_AT..CRC_AT].fill(0);
        let crc = checksum(all);
        all[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
        self.buffer.pad_to_block();
        let next = LogPosition {
            offset: at.offset + self.buffer.len() as u32,
            previous: crc,
            sequence: at.sequence + 1,
            ..*at
        };
        (self.buffer.as_slice(), next)
    }
}

/// Checksum of a whole batch, without its own field.
fn checksum(batch: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&batch[..CRC_AT]), &batch[HEADER_BYTES..])
}

/// A header in a stretch of bytes, whose batch is checked by checksums of the whole stretch: each byte is read once, however many
/// headers there are, one inside the other's batch or wrong about its length.
pub(crate) struct Claim {
    /// Offset behind the batch.
    pub(crate) end: usize,
    /// Bytes of the batch after its header.
    rest: usize,
    /// Checksum of the header, combined with that of all bytes before the rest.
    before: u32,
    crc: u32,
}

impl Claim {
    /// The header at `offset`; `before` is the checksum of the stretch up to there. `None` if it is not one that `is_wanted`.
    pub(crate) fn read(
        header: &[u8],
        offset: usize,
        before: u32,
        is_wanted: impl Fn(&Batch<'_>) -> bool,
    ) -> Option<Claim> {
        let rest = Batch::claimed_bytes(header)?.checked_sub(HEADER_BYTES)?;
        let header = &header[..HEADER_BYTES];
        if u32_at(header, RESERVED_AT) != 0 || !is_wanted(&Batch { bytes: header }) {
            return None;
        }
        let before = checksum(header) ^ crc32c::crc32c_append(before, header);
        Some(Claim { end: offset + HEADER_BYTES + rest, rest, before, crc: u32_at(header, CRC_AT) })
    }

    /// Whether the batch is intact; `all` is the checksum of the stretch up to the batch's end.
    pub(crate) fn is_intact(&self, all: u32) -> bool {
        // The checksum of A and B is that of A, moved over as many zeros as B is long, and that of B.
        crc32c::crc32c_combine(self.before, 0, self.rest) ^ all == self.crc
    }
}

/// A batch that was read back and has a valid checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch<'b> {
    bytes: &'b [u8],
}

impl<'b> Batch<'b> {
    /// The batch length in a header, if it has the magic number.
    pub(crate) fn claimed_bytes(header: &[u8]) -> Option<usize> {
        (header.len() >= HEADER_BYTES && u32_at(header, 0) == MAGIC).then(|| u32_at(header, 4) as usize)
    }

    /// The batch at the start of `bytes`, if it is complete. Magic number, length and checksum are checked; its place
    /// in the chain is not (see [`Batch::follows`]).
    pub(crate) fn read(bytes: &'b [u8]) -> Result<Batch<'b>, &'static str> {
        if bytes.len() < HEADER_BYTES || u32_at(bytes, 0) != MAGIC {
            return Err("no batch");
        }
        let length = u32_at(bytes, 4) as usize;
        if length < HEADER_BYTES || length > bytes.len() {
            return Err("batch length");
        }
        let bytes = &bytes[..length];
        if checksum(bytes) != u32_at(bytes, CRC_AT) {
            return Err("batch checksum");
        }
        if u32_at(bytes, RESERVED_AT) != 0 {
            return Err("reserved field of a batch");
        }
        Ok(Batch { bytes })
    }

    /// The batch length in a header that belongs at `at`; the rest of the batch is not checked.
    pub(crate) fn claimed_bytes_at(header: &[u8], at: &LogPosition) -> Option<usize> {
        let bytes = Batch::claimed_bytes(header)?;
        (Batch { bytes: header }.follows(at) && bytes >= HEADER_BYTES).then_some(bytes)
    }

    /// A batch that [`Batch::read`] has accepted before; its checksum is not computed again.
    pub(crate) fn checked(bytes: &'b [u8]) -> Option<Batch<'b>> {
        (bytes.len() >= HEADER_BYTES).then_some(Batch { bytes })
    }

    /// Whether this is the batch that belongs at `at`. A higher epoch is valid: a recovery lies between.
    pub(crate) fn follows(&self, at: &LogPosition) -> bool {
        self.sequence() == at.sequence
            && self.segment() == at.segment
            && self.epoch() >= at.epoch
            && self.previous() == at.previous
    }

    /// Checksum of the batch before.
    pub(crate) fn previous(&self) -> u32 {
        u32_at(self.bytes, 52)
    }

    /// The position of the next batch, if it fits into the same segment.
    pub(crate) fn next(&self, at: &LogPosition) -> LogPosition {
        LogPosition {
            segment: at.segment,
            offset: at.offset + (self.bytes.len() as u32).next_multiple_of(crate::disk::DIRECT_ALIGN as u32),
            previous: u32_at(self.bytes, CRC_AT),
            sequence: self.sequence() + 1,
            epoch: self.epoch(),
        }
    }

    pub(crate) fn sequence(&self) -> u64 {
        u64_at(self.bytes, 8)
    }

    pub(crate) fn segment(&self) -> u64 {
        u64_at(self.bytes, 16)
    }

    pub(crate) fn epoch(&self) -> u64 {
        u64_at(self.bytes, 24)
    }

    pub(crate) fn first_version(&self) -> u64 {
        u64_at(self.bytes, 32)
    }

    pub(crate) fn durable(&self) -> u64 {
        u64_at(self.bytes, 40)
    }

    pub(crate) fn transaction_count(&self) -> u32 {
        u32_at(self.bytes, 48)
    }

    /// The transactions from an offset on; `version` is the first one's, `left` their number.
    pub(crate) fn transactions_from(&self, at: usize, version: u64, left: u32) -> Transactions<'b> {
        Transactions { rest: self.bytes.get(at..).unwrap_or_default(), version, left }
    }

    /// The number and the changes of a piece of a large transaction; `None` if the batch is not a piece.
    pub(crate) fn piece(&self) -> Option<Result<(u32, Operations<'b>), &'static str>> {
        if self.transaction_count() > 0 || self.bytes.len() == HEADER_BYTES {
            return None;
        }
        let operations = self.transactions_from(HEADER_BYTES + PIECE_HEADER_BYTES, 0, 1).next();
        let number = self.bytes.get(HEADER_BYTES..HEADER_BYTES + 4).map(|bytes| u32_at(bytes, 0));
        Some(match (number, operations) {
            (Some(number), Some(Ok((_, operations)))) => Ok((number, operations)),
            _ => Err("piece of a large transaction"),
        })
    }

    /// The transactions with their versions. Invalid lengths in a batch with a valid checksum are reported as damage, without a panic.
    pub(crate) fn transactions(&self) -> Transactions<'b> {
        Transactions {
            rest: &self.bytes[HEADER_BYTES..],
            version: self.first_version(),
            left: self.transaction_count(),
        }
    }
}

/// Bytes of an unreadable batch at `at`, as far as its header says; 0 if it does not look like the batch that belongs at `at`.
pub(crate) fn torn_bytes(bytes: &[u8], at: &LogPosition) -> u64 {
    let is_ours = bytes.len() >= HEADER_BYTES
        && u32_at(bytes, 0) == MAGIC
        && u64_at(bytes, 8) == at.sequence
        && u64_at(bytes, 16) == at.segment;
    if is_ours { u64::from(u32_at(bytes, 4)).min(bytes.len() as u64).max(1) } else { 0 }
}

/// Iterator over a batch's transactions: version and operations.
pub(crate) struct Transactions<'b> {
    rest: &'b [u8],
    version: u64,
    left: u32,
}

impl<'b> Iterator for Transactions<'b> {
    type Item = Result<(u64, Operations<'b>), &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let version = self.version;
        self.version += 1;
        Some(self.take().map(|operations| (version, operations)).ok_or("transaction length"))
    }
}

impl<'b> Transactions<'b> {
    /// Bytes of the batch from here on.
    pub(crate) fn rest_bytes(&self) -> usize {
        self.rest.len()
    }

    fn take(&mut self) -> Option<Operations<'b>> {
        let (header, rest) = self.rest.split_at_checked(TRANSACTION_HEADER_BYTES)?;
        let (operations, rest) = rest.split_at_checked(u32_at(header, 4) as usize)?;
        self.rest = rest;
        Some(Operations::new(operations, u32_at(header, 0)))
    }
}

/// Iterator over a transaction's operations.
pub(crate) struct Operations<'b> {
    pub(super) rest: &'b [u8],
    pub(super) left: u32,
    /// Ranges may still follow.
    is_start: bool,
}

impl<'b> Iterator for Operations<'b> {
    type Item = Result<Operation<'b>, &'static str>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while self.left > 0 && self.rest.first() == Some(&KIND_LOADED) {
            self.left -= 1;
            self.rest = self.rest.get(OPERATION_HEADER_BYTES..).unwrap_or_default();
        }
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        Some(Operations::take(self).ok_or("operation"))
    }
}

impl<'b> Operations<'b> {
    fn new(rest: &'b [u8], left: u32) -> Operations<'b> {
        Operations { rest, left, is_start: true }
    }

    /// Operations left, including those that iteration skips.
    pub(crate) fn len(&self) -> usize {
        self.left as usize
    }

    #[inline]
    fn take(&mut self) -> Option<Operation<'b>> {
        let (header, rest) = self.rest.split_at_checked(OPERATION_HEADER_BYTES)?;
        let key_len = usize::from(u16::from_le_bytes([header[2], header[3]]));
        let (key, rest) = rest.split_at_checked(key_len)?;
        let (value, rest) = rest.split_at_checked(u32_at(header, 8) as usize)?;
        self.rest = rest;
        let edit = match header[0] {
            KIND_PUT => Edit::Put(value),
            KIND_DELETE if value.is_empty() => Edit::Delete,
            KIND_DELETE_RANGE if self.is_start && (value.is_empty() || key < value) => {
                Edit::DeleteRange { to: (!value.is_empty()).then_some(value) }
            }
            _ => return None,
        };
        self.is_start = matches!(edit, Edit::DeleteRange { .. });
        Some(Operation { tree: u32_at(header, 4), key, edit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn position() -> LogPosition {
        LogPosition { segment: 3, offset: 4096, previous: 77, sequence: 12, epoch: 2 }
    }

    type Owned = (u32, Vec<u8>, Option<Vec<u8>>);

    fn edit(value: Option<&[u8]>) -> Edit<'_> {
        value.map_or(Edit::Delete, Edit::Put)
    }

    fn value(edit: Edit<'_>) -> Option<&[u8]> {
        match edit {
            Edit::Put(value) => Some(value),
            _ => None,
        }
    }

    fn sealed(transactions: &[Vec<Owned>]) -> (Vec<u8>, LogPosition) {
        let mut builder = BatchBuilder::new(64);
        builder.restart(100);
        for operations in transactions {
            builder.begin_transaction();
            for (tree, key, value) in operations {
                builder.push(Operation { tree: *tree, key, edit: edit(value.as_deref()) }, None);
            }
            builder.end_transaction();
        }
        let (bytes, next) = builder.seal(&position(), 11);
        (bytes.to_vec(), next)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_was_put_in_comes_out(transactions in proptest::collection::vec(proptest::collection::vec(
            (any::<u32>(), proptest::collection::vec(any::<u8>(), 0..40),
             proptest::option::of(proptest::collection::vec(any::<u8>(), 0..300))), 0..5), 0..6)) {
            let (bytes, next) = sealed(&transactions);
            prop_assert_eq!(bytes.len() % 4096, 0);
            let batch = Batch::read(&bytes).unwrap();
            prop_assert!(batch.follows(&position()));
            let mut stretch = vec![7; 4096];
            stretch.extend_from_slice(&bytes);
            let claim = Claim::read(&bytes, 4096, crc32c::crc32c(&stretch[..4096]), |_| true).unwrap();
            prop_assert!(claim.is_intact(crc32c::crc32c(&stretch[..claim.end])));
            for at in [4096 + 40, 4096 + CRC_AT, claim.end - 1] {
                stretch[at] ^= 1;
                let claim = Claim::read(&stretch[4096..], 4096, crc32c::crc32c(&stretch[..4096]), |_| true).unwrap();
                prop_assert!(!claim.is_intact(crc32c::crc32c(&stretch[..claim.end])));
                stretch[at] ^= 1;
            }
            prop_assert_eq!(batch.next(&position()), next);
            let read: Vec<(u64, Vec<_>)> = batch.transactions().map(|transaction| {
                let (version, operations) = transaction.unwrap();
                let operations = operations.map(Result::unwrap)
                    .map(|op| (op.tree, op.key.to_vec(), value(op.edit).map(<[u8]>::to_vec))).collect();
                (version, operations)
            }).collect();
            let expected: Vec<_> = transactions.into_iter().enumerate().map(|(i, ops)| (100 + i as u64, ops)).collect();
            prop_assert_eq!(read, expected);
        }

        #[test]
        fn a_flipped_bit_is_noticed(bit in 0usize..8 * 180) {
            let (mut bytes, _) = sealed(&[vec![(1, vec![5; 30], Some(vec![6; 100]))]]);
            let length = u32_at(&bytes, 4) as usize;
            prop_assume!(bit < length * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Batch::read(&bytes).is_err());
        }

        #[test]
        fn random_lengths_inside_are_errors_and_never_panics(payload in proptest::collection::vec(any::<u8>(), 0..200), count in 0u32..9) {
            let mut bytes = vec![0; HEADER_BYTES];
            bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
            bytes[4..8].copy_from_slice(&((HEADER_BYTES + payload.len()) as u32).to_le_bytes());
            bytes[48..52].copy_from_slice(&count.to_le_bytes());
            bytes.extend_from_slice(&payload);
            let crc = checksum(&bytes);
            bytes[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
            for (_, operations) in Batch::read(&bytes).unwrap().transactions().flatten() {
                operations.for_each(drop);
            }
        }
    }

    #[test]
    fn a_batch_follows_only_at_its_own_place() {
        let (bytes, _) = sealed(&[]);
        let batch = Batch::read(&bytes).unwrap();
        let here = position();
        assert!(batch.follows(&here));
        assert!(batch.follows(&LogPosition { epoch: here.epoch - 1, ..here }), "a recovery may lie between");
        assert!(!batch.follows(&LogPosition { epoch: here.epoch + 1, ..here }));
        assert!(!batch.follows(&LogPosition { previous: here.previous + 1, ..here }));
        assert!(!batch.follows(&LogPosition { segment: here.segment - 1, ..here }));
        for sequence in [here.sequence - 1, here.sequence + 1] {
            assert!(!batch.follows(&LogPosition { sequence, ..here }));
        }
    }

    #[test]
    fn a_stamp_replaces_the_first_eight_bytes_only() {
        let mut builder = BatchBuilder::new(64);
        builder.restart(9);
        builder.begin_transaction();
        builder.push(Operation { tree: 1, key: b"k", edit: Edit::Put(b"________rest") }, Some(9));
        let operations: Vec<_> = builder.end_transaction().map(Result::unwrap).collect();
        assert_eq!(operations[0].edit, Edit::Put(b"\x09\0\0\0\0\0\0\0rest"));
    }

    #[test]
    fn a_stamp_leaves_what_is_too_short_for_it() {
        for edit in [Edit::Delete, Edit::Put(b""), Edit::Put(b"_______")] {
            let mut builder = BatchBuilder::new(64);
            builder.restart(9);
            builder.begin_transaction();
            builder.push(Operation { tree: 1, key: b"k", edit }, Some(9));
            let operations: Vec<_> = builder.end_transaction().map(Result::unwrap).collect();
            assert_eq!(operations[0].edit, edit);
        }
    }

    /// The operations of one transaction as they are read back, up to the first unreadable one.
    fn read_back(operations: &[(&'static [u8], Edit<'static>)]) -> Vec<Option<Edit<'static>>> {
        let mut builder = BatchBuilder::new(64);
        builder.begin_transaction();
        for (key, edit) in operations {
            builder.push(Operation { tree: 1, key, edit: *edit }, None);
        }
        let known = |edit: Edit<'_>| operations.iter().map(|(_, known)| *known).find(|known| *known == edit);
        builder.end_transaction().map(|read| read.ok().and_then(|operation| known(operation.edit))).collect()
    }

    #[test]
    fn a_deleted_range_is_one_operation_with_or_without_an_end() {
        for to in [None, Some(&b"z"[..])] {
            let edit = Edit::DeleteRange { to };
            assert_eq!(
                read_back(&[(b"", edit), (b"a", edit), (b"b", Edit::Delete)]),
                [Some(edit), Some(edit), Some(Edit::Delete)]
            );
        }
    }

    #[test]
    fn a_range_that_is_empty_or_stands_behind_other_operations_is_damage() {
        let range = Edit::DeleteRange { to: Some(b"b") };
        assert_eq!(read_back(&[(b"b", range)]), [None]);
        assert_eq!(read_back(&[(b"c", range)]), [None]);
        assert_eq!(read_back(&[(b"a", Edit::Put(b"1")), (b"a", range)]), [Some(Edit::Put(b"1")), None]);
        assert_eq!(read_back(&[(b"a", Edit::Delete), (b"a", range)]), [Some(Edit::Delete), None]);
    }

    #[test]
    fn transactions_are_counted_from_the_first_version() {
        let mut builder = BatchBuilder::new(64);
        builder.restart(9);
        for version in 9..12 {
            builder.begin_transaction();
            builder.end_transaction();
            assert_eq!((builder.transactions(), builder.last_version()), (version as u32 - 8, version));
        }
    }
}
