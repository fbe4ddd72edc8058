//! The traits of this room for the types of the engine of this build.

use std::borrow::Cow;
use std::ops::ControlFlow;

use super::binding::{Across, Direction, Entries, Error, KeyRange, Snapshot, TreeId, Tx};
use super::error_kind::{Classified, ErrorKind};
use super::view::{Change, View};

impl Classified for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Error::Busy => ErrorKind::Busy,
            Error::Pinned { .. } => ErrorKind::OldStates,
            Error::Unknown(_) => ErrorKind::OutcomeUnknown,
            Error::Poisoned => ErrorKind::WritesStopped,
            Error::Full => ErrorKind::DiskFull,
            Error::Aborted => ErrorKind::Aborted,
            Error::Refused { .. } => ErrorKind::Refused,
            Error::Limit { .. } => ErrorKind::TooLarge,
            Error::Corrupt { .. } => ErrorKind::Damaged,
            Error::Locked => ErrorKind::InUse,
            Error::Format { .. } => ErrorKind::OtherFormat,
            Error::Io { source, .. } => ErrorKind::System(source.kind()),
            Error::NotInMemory => ErrorKind::WouldWait,
            Error::Gone { oldest } => ErrorKind::ChangesGone { oldest: oldest.0 },
            Error::Ahead { newest } => ErrorKind::ChangesAhead { newest: newest.0 },
            Error::Closed => ErrorKind::Closed,
            _ => ErrorKind::Other,
        }
    }
}

impl View for Snapshot<'_> {
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, Error> {
        Snapshot::get(self, tree, key)
    }
    fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        Snapshot::scan(self, tree, range, direction, visit)
    }
    fn scan_leaves<'v>(
        &'v self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&Entries<'v>) -> ControlFlow<()>,
    ) -> Result<bool, Error> {
        Snapshot::scan_leaves(self, tree, range, direction, visit)
    }
    fn get_all<'v>(&'v self, tree: TreeId, keys: &[[u8; 4]], values: &mut [Option<&'v [u8]>]) -> Result<bool, Error> {
        Snapshot::get_all(self, tree, keys, values)
    }
    fn across(&self) -> Option<Box<dyn View + Sync + '_>> {
        Snapshot::across(self).map(|across| Box::new(across) as Box<dyn View + Sync + '_>)
    }
    fn cuts(&self, tree: TreeId, range: KeyRange<'_>, count: usize) -> Result<Vec<Vec<u8>>, Error> {
        Snapshot::cuts(self, tree, range, count)
    }
    fn entries_about(&self, tree: TreeId, range: KeyRange<'_>) -> Result<Option<u64>, Error> {
        Snapshot::entries_about(self, tree, range).map(Some)
    }
    #[inline]
    fn fetch_place(&self, tree: TreeId, key: &[u8]) {
        Snapshot::fetch_place(self, tree, key);
    }
    #[inline]
    fn fetch_value(&self, tree: TreeId, key: &[u8]) {
        Snapshot::fetch_value(self, tree, key);
    }
}

impl View for Across<'_> {
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, Error> {
        Across::get(self, tree, key)
    }
    fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        Across::scan(self, tree, range, direction, visit)
    }
    fn scan_leaves<'v>(
        &'v self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&Entries<'v>) -> ControlFlow<()>,
    ) -> Result<bool, Error> {
        Across::scan_leaves(self, tree, range, direction, &mut |entries| visit(entries))
    }
}

impl Change for Tx<'_> {
    fn get(&mut self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, Error> {
        Tx::get(self, tree, key)
    }
    fn peek(&mut self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, Error> {
        Tx::peek(self, tree, key)
    }
    fn scan(
        &mut self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        Tx::scan(self, tree, range, direction, visit)
    }
    fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) {
        Tx::put(self, tree, key, value);
    }
    fn put_stamped(&mut self, tree: TreeId, key: &[u8], value: &[u8]) {
        Tx::put_stamped(self, tree, key, value);
    }
    fn delete(&mut self, tree: TreeId, key: &[u8]) {
        Tx::delete(self, tree, key);
    }
    fn fold(&mut self, tree: TreeId, key: &[u8], operand: &[u8]) {
        Tx::fold(self, tree, key, operand);
    }
}

#[cfg(test)]
mod tests {
    use super::super::binding::Version;
    use super::*;
    use std::io;

    #[track_caller]
    fn check(error: &Error, expected: ErrorKind) {
        assert_eq!(error.kind(), expected, "{error}");
    }

    #[test]
    fn each_error_has_the_kind_by_which_callers_decide() {
        let source = |kind| io::Error::new(kind, "a fault");
        let context = "opening the folder".to_owned();
        let damage = Error::Corrupt { file: "tree".to_owned(), offset: 4096, what: "its checksum".to_owned() };
        check(&Error::Busy, ErrorKind::Busy);
        check(&Error::Pinned { states: 64 }, ErrorKind::OldStates);
        check(&Error::Unknown(source(io::ErrorKind::Other)), ErrorKind::OutcomeUnknown);
        check(&Error::Poisoned, ErrorKind::WritesStopped);
        check(&Error::Full, ErrorKind::DiskFull);
        check(&Error::Aborted, ErrorKind::Aborted);
        check(&Error::Refused { why: "a range of ranges" }, ErrorKind::Refused);
        check(&Error::Limit { what: "key", limit: 1024 }, ErrorKind::TooLarge);
        check(&damage, ErrorKind::Damaged);
        check(&Error::Locked, ErrorKind::InUse);
        check(&Error::Format { found: 9, supported: 1 }, ErrorKind::OtherFormat);
        let denied = io::ErrorKind::PermissionDenied;
        check(&Error::Io { context, source: source(denied) }, ErrorKind::System(denied));
        check(&Error::NotInMemory, ErrorKind::WouldWait);
        check(&Error::Gone { oldest: Version(7) }, ErrorKind::ChangesGone { oldest: 7 });
        check(&Error::Ahead { newest: Version(8) }, ErrorKind::ChangesAhead { newest: 8 });
        check(&Error::Closed, ErrorKind::Closed);
    }
}
