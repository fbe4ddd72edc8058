//! The log's transactions for a reader of changes: one at a time, with every kind of operation distinguished.
//!
//! Replay knows what it puts into memtables and reports other operations as damage (`batch.rs`). A reader of changes
//! also needs the operations that replay skips, and must report a kind that only a newer build can have written.

use super::batch::{
    HEADER_BYTES, KIND_DELETE, KIND_DELETE_RANGE, KIND_LOADED, KIND_PIECES, KIND_PUT, OPERATION_HEADER_BYTES,
    PiecesInLog,
};
use super::position::u32_at;
use super::reader::{Batch, Operations};

/// An operation of any kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Logged<'b> {
    pub(crate) kind: LoggedKind,
    pub(crate) tree: u32,
    pub(crate) key: &'b [u8],
    /// The bytes after the key.
    pub(crate) value: &'b [u8],
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoggedKind {
    Put,
    Delete,
    /// The value is the range's end, empty for none.
    DeleteRange,
    /// The tree was changed by a bulk load; the changes are not in the log.
    Loaded,
    /// The changes of a large transaction, which are in earlier batches ([`PiecesInLog`]).
    Pieces,
    /// A kind that this build does not know.
    Other(u8),
}

/// Iterator over a transaction's operations.
#[derive(Clone, Copy)]
pub(crate) struct LoggedOperations<'b> {
    rest: &'b [u8],
    left: u32,
}

impl<'b> Operations<'b> {
    /// The pieces of the large transaction that this one commits, if it does.
    pub(crate) fn pieces(&self) -> Option<Result<PiecesInLog, &'static str>> {
        let first = LoggedOperations::new(self.rest, self.left).next()?.ok()?;
        let is_it = first.kind == LoggedKind::Pieces;
        is_it.then(|| PiecesInLog::from_bytes(first.value).ok_or("record of a large transaction"))
    }

    /// The operations as stored in the log, each with its kind, for a reader of changes.
    pub(crate) fn logged(self) -> LoggedOperations<'b> {
        LoggedOperations::new(self.rest, self.left)
    }
}

impl<'b> LoggedOperations<'b> {
    fn new(rest: &'b [u8], left: u32) -> LoggedOperations<'b> {
        LoggedOperations { rest, left }
    }

    fn take(&mut self) -> Option<Logged<'b>> {
        let (header, rest) = self.rest.split_at_checked(OPERATION_HEADER_BYTES)?;
        let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([header[2], header[3]])))?;
        let (value, rest) = rest.split_at_checked(u32_at(header, 8) as usize)?;
        self.rest = rest;
        let kind = match header[0] {
            KIND_PUT => LoggedKind::Put,
            KIND_DELETE => LoggedKind::Delete,
            KIND_DELETE_RANGE => LoggedKind::DeleteRange,
            KIND_LOADED => LoggedKind::Loaded,
            KIND_PIECES => LoggedKind::Pieces,
            other => LoggedKind::Other(other),
        };
        Some(Logged { kind, tree: u32_at(header, 4), key, value })
    }
}

impl<'b> Iterator for LoggedOperations<'b> {
    type Item = Result<Logged<'b>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        Some(LoggedOperations::take(self).ok_or("operation length"))
    }
}

/// A position between two transactions of a batch, for a reader that keeps the batch's bytes elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TransactionCursor {
    /// Offset in the batch.
    at: usize,
    version: u64,
    left: u32,
}

impl TransactionCursor {
    /// Before a batch's first transaction.
    pub(crate) fn of(batch: &Batch<'_>) -> TransactionCursor {
        TransactionCursor { at: HEADER_BYTES, version: batch.first_version(), left: batch.transaction_count() }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.left == 0
    }

    /// The next transaction of this batch, with its version; the cursor moves after it.
    pub(crate) fn next<'b>(&mut self, batch: &Batch<'b>) -> Option<Result<(u64, Operations<'b>), &'static str>> {
        let mut transactions = batch.transactions_from(self.at, self.version, self.left);
        let before = transactions.rest_bytes();
        let taken = transactions.next()?;
        self.at += before - transactions.rest_bytes();
        (self.version, self.left) = (self.version + 1, self.left - 1);
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{BatchBuilder, Edit, LogPosition, Operation};

    fn operation(kind: u8, tree: u32, key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind, 0];
        bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&tree.to_le_bytes());
        bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        bytes
    }

    #[test]
    fn a_kind_that_is_not_known_keeps_its_number_and_hides_nothing_behind_it() {
        let bytes = [operation(99, 7, b"key", b"what for"), operation(KIND_PUT, 1, b"k", b"v")].concat();
        let all: Vec<_> = LoggedOperations::new(&bytes, 2).map(Result::unwrap).collect();
        assert_eq!(all[0], Logged { kind: LoggedKind::Other(99), tree: 7, key: b"key", value: b"what for" });
        assert_eq!(all[1], Logged { kind: LoggedKind::Put, tree: 1, key: b"k", value: b"v" });
    }

    #[test]
    fn lengths_beyond_the_transaction_are_errors() {
        let bytes = operation(KIND_PUT, 1, b"key", b"value");
        for len in 0..bytes.len() {
            assert_eq!(LoggedOperations::new(&bytes[..len], 1).next(), Some(Err("operation length")), "{len}");
        }
    }

    #[test]
    fn replay_passes_by_what_was_loaded_and_a_reader_hears_of_it() {
        let mut builder = BatchBuilder::new(64);
        builder.restart(5);
        builder.begin_transaction();
        builder.push_loaded(8);
        builder.push_loaded(9);
        builder.end_transaction();
        builder.begin_transaction();
        builder.push_loaded(7);
        builder.push(Operation { tree: 1, key: b"k", edit: Edit::Put(b"v") }, None);
        builder.push_loaded(3);
        builder.end_transaction();
        let (bytes, _) = builder.seal(&LogPosition::default(), 0);
        let batch = Batch::read(bytes).unwrap();
        let replayed: Vec<_> = batch
            .transactions()
            .map(Result::unwrap)
            .map(|(version, operations)| {
                (version, operations.map(|operation| operation.unwrap().tree).collect::<Vec<_>>())
            })
            .collect();
        assert_eq!(replayed, [(5, vec![]), (6, vec![1])]);
        let mut cursor = TransactionCursor::of(&batch);
        let mut logged = Vec::new();
        while let Some(transaction) = cursor.next(&batch) {
            let (version, operations) = transaction.unwrap();
            logged.push((version, operations.logged().map(|operation| operation.unwrap().tree).collect::<Vec<_>>()));
        }
        assert_eq!(logged, [(5, vec![8, 9]), (6, vec![7, 1, 3])]);
        assert!(cursor.is_at_end());
    }
}
