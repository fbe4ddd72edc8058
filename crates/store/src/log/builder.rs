//! Building a batch: its transactions, or a piece of a large one, are collected in one buffer, which is then sealed for its place.

use super::batch::{
    CRC_AT, Edit, HEADER_BYTES, KIND_DELETE, KIND_DELETE_RANGE, KIND_LOADED, KIND_PIECES, KIND_PUT, MAGIC,
    OPERATION_HEADER_BYTES, Operation, PIECE_HEADER_BYTES, PiecesInLog, RESERVED_AT, TRANSACTION_HEADER_BYTES,
    checksum,
};
use super::buffer::AlignedBuffer;
use super::position::LogPosition;
use super::reader::Operations;

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
        let kind = match operation.edit {
            Edit::Put(_) => KIND_PUT,
            Edit::Delete => KIND_DELETE,
            Edit::DeleteRange { .. } => KIND_DELETE_RANGE,
        };
        self.begin_operation(kind, operation.tree, operation.key, value.len());
        match stamp {
            Some(version) if value.len() >= 8 => {
                self.buffer.extend(&version.to_le_bytes());
                self.buffer.extend(&value[8..]);
            }
            _ => self.buffer.extend(value),
        }
    }

    /// Adds the record that a tree was loaded to the open transaction.
    pub(crate) fn push_loaded(&mut self, tree: u32) {
        self.begin_operation(KIND_LOADED, tree, &[], 0);
    }

    /// Adds the record that commits a large transaction to the open transaction.
    pub(crate) fn push_pieces(&mut self, pieces: &PiecesInLog) {
        let value = pieces.to_bytes();
        self.begin_operation(KIND_PIECES, 0, &[], value.len());
        self.buffer.extend(&value);
    }

    /// Writes an operation up to its value.
    #[inline]
    fn begin_operation(&mut self, kind: u8, tree: u32, key: &[u8], value_len: usize) {
        let mut header = [0; OPERATION_HEADER_BYTES];
        header[0] = kind;
        header[2..4].copy_from_slice(&(key.len() as u16).to_le_bytes());
        header[4..8].copy_from_slice(&tree.to_le_bytes());
        header[8..12].copy_from_slice(&(value_len as u32).to_le_bytes());
        self.buffer.extend(&header);
        self.buffer.extend(key);
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

#[cfg(test)]
mod tests {
    use super::*;

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
