//! The traits of this room for the types of the engine of this build.

use std::borrow::Cow;
use std::ops::ControlFlow;

use super::binding::{Across, Direction, Entries, KeyRange, LargeTx, StoreError, StoreSnapshot, TreeId, Tx};
use super::error_kind::{Classified, ErrorKind};
use super::view::{ReadView, WriteTransaction};

impl Classified for StoreError {
    fn kind(&self) -> ErrorKind {
        match self {
            StoreError::Busy | StoreError::Claimed => ErrorKind::Busy,
            StoreError::Pinned { .. } => ErrorKind::OldStates,
            StoreError::Unknown(_) => ErrorKind::OutcomeUnknown,
            StoreError::Poisoned | StoreError::Deleted { .. } => ErrorKind::WritesStopped,
            StoreError::Full => ErrorKind::DiskFull,
            StoreError::Aborted => ErrorKind::Aborted,
            StoreError::Refused { .. } => ErrorKind::Refused,
            StoreError::Limit { .. } => ErrorKind::TooLarge,
            StoreError::Corrupt { .. } => ErrorKind::Damaged,
            StoreError::Locked => ErrorKind::InUse,
            StoreError::Format { .. } => ErrorKind::OtherFormat,
            StoreError::Io { source, .. } => ErrorKind::System(source.kind()),
            StoreError::NotInMemory => ErrorKind::WouldWait,
            StoreError::Gone { oldest } => ErrorKind::ChangesGone { oldest: oldest.0 },
            StoreError::Ahead { newest } => ErrorKind::ChangesAhead { newest: newest.0 },
            StoreError::Closed => ErrorKind::Closed,
            _ => ErrorKind::Other,
        }
    }
}

impl ReadView for StoreSnapshot<'_> {
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, StoreError> {
        StoreSnapshot::get(self, tree, key)
    }
    fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        StoreSnapshot::scan(self, tree, range, direction, visit)
    }
    fn scan_leaves<'v>(
        &'v self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&Entries<'v>) -> ControlFlow<()>,
    ) -> Result<bool, StoreError> {
        StoreSnapshot::scan_leaves(self, tree, range, direction, visit)
    }
    fn get_all<'v>(
        &'v self,
        tree: TreeId,
        keys: &[[u8; 4]],
        values: &mut [Option<&'v [u8]>],
    ) -> Result<bool, StoreError> {
        StoreSnapshot::get_all(self, tree, keys, values)
    }
    fn across(&self) -> Option<Box<dyn ReadView + Sync + '_>> {
        StoreSnapshot::across(self).map(|across| Box::new(across) as Box<dyn ReadView + Sync + '_>)
    }
    fn cuts(&self, tree: TreeId, range: KeyRange<'_>, count: usize) -> Result<Vec<Vec<u8>>, StoreError> {
        StoreSnapshot::cuts(self, tree, range, count)
    }
    fn entries_about(&self, tree: TreeId, range: KeyRange<'_>) -> Result<Option<u64>, StoreError> {
        StoreSnapshot::entries_about(self, tree, range).map(Some)
    }
}

impl ReadView for Across<'_> {
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, StoreError> {
        Across::get(self, tree, key)
    }
    fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        Across::scan(self, tree, range, direction, visit)
    }
    fn scan_leaves<'v>(
        &'v self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&Entries<'v>) -> ControlFlow<()>,
    ) -> Result<bool, StoreError> {
        Across::scan_leaves(self, tree, range, direction, &mut |entries| visit(entries))
    }
}

/// The methods of both kinds of transaction, each by the type's own method of that name.
macro_rules! own_methods {
    ($transaction:ident) => {
        fn get(&mut self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, StoreError> {
            $transaction::get(self, tree, key)
        }
        fn scan(
            &mut self,
            tree: TreeId,
            range: KeyRange<'_>,
            direction: Direction,
            visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
        ) -> Result<(), StoreError> {
            $transaction::scan(self, tree, range, direction, visit)
        }
        fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) {
            $transaction::put(self, tree, key, value);
        }
        fn put_stamped(&mut self, tree: TreeId, key: &[u8], value: &[u8]) {
            $transaction::put_stamped(self, tree, key, value);
        }
        fn delete(&mut self, tree: TreeId, key: &[u8]) {
            $transaction::delete(self, tree, key);
        }
        fn fold(&mut self, tree: TreeId, key: &[u8], operand: &[u8]) {
            $transaction::fold(self, tree, key, operand);
        }
    };
}

impl WriteTransaction for Tx<'_> {
    own_methods!(Tx);

    fn peek(&mut self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, StoreError> {
        Tx::peek(self, tree, key)
    }
    fn folds_count(&self) -> u64 {
        Tx::folds_count(self) as u64
    }
    fn bytes_max(&self) -> usize {
        Tx::bytes_max(self)
    }
}

impl WriteTransaction for LargeTx {
    own_methods!(LargeTx);

    fn bytes_max(&self) -> usize {
        self.change_bytes_max()
    }
}

#[cfg(test)]
mod tests {
    use super::super::binding::Version;
    use super::*;
    use std::io;

    #[track_caller]
    fn check(error: &StoreError, expected: ErrorKind) {
        assert_eq!(error.kind(), expected, "{error}");
    }

    #[test]
    fn each_error_has_the_kind_by_which_callers_decide() {
        let source = |kind| io::Error::new(kind, "a fault").into();
        let context = "opening the folder".to_owned();
        let damage = StoreError::Corrupt { file: "tree".to_owned(), offset: 4096, what: "its checksum".to_owned() };
        check(&StoreError::Busy, ErrorKind::Busy);
        check(&StoreError::Claimed, ErrorKind::Busy);
        check(&StoreError::Pinned { states: 64 }, ErrorKind::OldStates);
        check(&StoreError::Unknown(source(io::ErrorKind::Other)), ErrorKind::OutcomeUnknown);
        check(&StoreError::Poisoned, ErrorKind::WritesStopped);
        check(&StoreError::Full, ErrorKind::DiskFull);
        check(&StoreError::Aborted, ErrorKind::Aborted);
        check(&StoreError::Refused { why: "a range of ranges" }, ErrorKind::Refused);
        check(&StoreError::Limit { what: "key", limit: 1024 }, ErrorKind::TooLarge);
        check(&damage, ErrorKind::Damaged);
        check(&StoreError::Locked, ErrorKind::InUse);
        check(&StoreError::Format { found: 9, supported: 1 }, ErrorKind::OtherFormat);
        let denied = io::ErrorKind::PermissionDenied;
        check(&StoreError::Io { context, source: source(denied) }, ErrorKind::System(denied));
        check(&StoreError::NotInMemory, ErrorKind::WouldWait);
        check(&StoreError::Gone { oldest: Version(7) }, ErrorKind::ChangesGone { oldest: 7 });
        check(&StoreError::Ahead { newest: Version(8) }, ErrorKind::ChangesAhead { newest: 8 });
        check(&StoreError::Closed, ErrorKind::Closed);
    }
}
