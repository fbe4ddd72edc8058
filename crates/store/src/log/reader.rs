//! Reading a batch: its header, its transactions and their operations. No byte is trusted: see `batch.rs` for the layout.

use std::iter;

use super::batch::{
    CRC_AT, Edit, HEADER_BYTES, MAGIC, Operation, PIECE_HEADER_BYTES, PiecesInLog, RESERVED_AT,
    TRANSACTION_HEADER_BYTES, checksum,
};
use super::logged::{Logged, LoggedKind, LoggedOperations};
use super::position::{LogPosition, u32_at, u64_at};

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

    /// The operations of the transaction at an offset; `None` if its lengths lead out of the batch.
    fn operations_at(&self, at: usize) -> Option<Operations<'b>> {
        let (header, rest) = self.bytes.get(at..)?.split_at_checked(TRANSACTION_HEADER_BYTES)?;
        Some(Operations::new(rest.get(..u32_at(header, 4) as usize)?, u32_at(header, 0)))
    }

    /// The number and the changes of a piece of a large transaction; `None` if the batch is not a piece.
    pub(crate) fn piece(&self) -> Option<Result<(u32, Operations<'b>), &'static str>> {
        if self.transaction_count() > 0 || self.bytes.len() == HEADER_BYTES {
            return None;
        }
        let operations = self.operations_at(HEADER_BYTES + PIECE_HEADER_BYTES);
        // With a transaction behind the number it is there.
        let piece = operations.map(|operations| (u32_at(self.bytes, HEADER_BYTES), operations));
        Some(piece.ok_or("piece of a large transaction"))
    }

    /// The transactions with their versions.
    pub(crate) fn transactions(&self) -> impl Iterator<Item = Result<(u64, Operations<'b>), &'static str>> + use<'b> {
        let (batch, mut cursor) = (*self, TransactionCursor::of(self));
        iter::from_fn(move || cursor.next(&batch))
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

    /// The next transaction of this batch, with its version; the cursor moves after it. Invalid lengths in a batch with a valid
    /// checksum are reported as damage, without a panic.
    pub(crate) fn next<'b>(&mut self, batch: &Batch<'b>) -> Option<Result<(u64, Operations<'b>), &'static str>> {
        self.left = self.left.checked_sub(1)?;
        let Some(operations) = batch.operations_at(self.at) else { return Some(Err("transaction length")) };
        let version = self.version;
        self.at += TRANSACTION_HEADER_BYTES + operations.logged.rest.len();
        self.version += 1;
        Some(Ok((version, operations)))
    }
}

/// Iterator over a transaction's operations as replay takes them: a kind that it does not know is damage, and records of loads are
/// passed by.
pub(crate) struct Operations<'b> {
    logged: LoggedOperations<'b>,
    /// Ranges may still follow.
    is_start: bool,
}

impl<'b> Iterator for Operations<'b> {
    type Item = Result<Operation<'b>, &'static str>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let is_loaded = |read: &Result<Logged<'_>, _>| matches!(read, Ok(Logged { kind: LoggedKind::Loaded, .. }));
        let read = self.logged.by_ref().find(|read| !is_loaded(read))?;
        Some(read.ok().and_then(|logged| self.take(logged)).ok_or("operation"))
    }
}

impl<'b> Operations<'b> {
    pub(super) fn new(bytes: &'b [u8], count: u32) -> Operations<'b> {
        Operations { logged: LoggedOperations::new(bytes, count), is_start: true }
    }

    /// Operations left, including those that iteration skips.
    pub(crate) fn len(&self) -> usize {
        self.logged.len()
    }

    /// The pieces of the large transaction that this one commits, if it does.
    pub(crate) fn pieces(&self) -> Option<Result<PiecesInLog, &'static str>> {
        let first = self.logged.clone().next()?.ok()?;
        let is_it = first.kind == LoggedKind::Pieces;
        is_it.then(|| PiecesInLog::from_bytes(first.value).ok_or("record of a large transaction"))
    }

    /// The operations as stored in the log, each with its kind, for a reader of changes.
    pub(crate) fn logged(self) -> LoggedOperations<'b> {
        self.logged
    }

    #[inline]
    fn take(&mut self, Logged { kind, tree, key, value }: Logged<'b>) -> Option<Operation<'b>> {
        let edit = match kind {
            LoggedKind::Put => Edit::Put(value),
            LoggedKind::Delete if value.is_empty() => Edit::Delete,
            LoggedKind::DeleteRange if self.is_start && (value.is_empty() || key < value) => {
                Edit::DeleteRange { to: (!value.is_empty()).then_some(value) }
            }
            _ => return None,
        };
        self.is_start = matches!(edit, Edit::DeleteRange { .. });
        Some(Operation { tree, key, edit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::BatchBuilder;
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
}
