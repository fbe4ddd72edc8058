//! The operations of a transaction as they lie in the log, with every kind distinguished.
//!
//! Replay knows what it puts into memtables and reports other operations as damage (`reader.rs`). A reader of changes
//! also needs the operations that replay skips, and must report a kind that only a newer build can have written.

use super::batch::{KIND_DELETE, KIND_DELETE_RANGE, KIND_LOADED, KIND_PIECES, KIND_PUT, OPERATION_HEADER_BYTES};
use super::position::u32_at;

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
    /// The changes of a large transaction, which are in earlier batches ([`PiecesInLog`](super::PiecesInLog)).
    Pieces,
    /// A kind that this build does not know.
    Other(u8),
}

/// Iterator over a transaction's operations.
#[derive(Clone, Copy)]
pub(crate) struct LoggedOperations<'b> {
    pub(super) rest: &'b [u8],
    left: u32,
}

impl<'b> LoggedOperations<'b> {
    pub(super) fn new(rest: &'b [u8], left: u32) -> LoggedOperations<'b> {
        LoggedOperations { rest, left }
    }

    /// Operations left.
    pub(super) fn len(&self) -> usize {
        self.left as usize
    }

    #[inline]
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

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        Some(LoggedOperations::take(self).ok_or("operation length"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Batch, BatchBuilder, Edit, LogPosition, Operation, TransactionCursor};

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
