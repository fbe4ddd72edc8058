//! The feed of changes: all transactions since a version, whole and in order, then the new ones as they are committed.
//!
//! ```text
//!   changes_since(N) ──► N+1, N+2, … from the log's live and kept segments ──► up to date ──► woken by the next commit
//!                   └──► Gone { oldest }: start again from a snapshot; changes after `oldest` are available
//! ```
//!
//! Guarantees:
//!
//! - Each transaction is delivered once, whole, and none is left out. Only changes that would survive a crash are
//!   delivered: with a durability that syncs later, changes are delivered later.
//! - A reader of changes retains neither log segments nor pages, and no commit waits for it. If the segments that it
//!   needs are recycled before it reads them, it gets [`StoreError::Gone`].
//! - A large transaction is delivered in parts, changesets of one version ([`Changeset::is_last`]). Its pieces are read when
//!   the record that commits them is reached. A reader that is dropped after some of the parts starts again before all of them.
//! - The content of a bulk build is not in the log. Its version contains a [`Change::Reset`] for each tree concerned: the
//!   reader must read the tree again from a snapshot. A load that fails at the last moment also resets its trees,
//!   although nothing has changed.
//! - Memory is bounded: 256 KB from the first read on, or one batch of the log if that is larger; the same again for a large
//!   transaction's pieces.
//!
//! To follow a store from its beginning, take a snapshot, read it, then follow the changes since its version.

use std::sync::Arc;
use std::time::Duration;

use super::alarm::Wake;
use crate::base::error::StoreError;
use crate::base::key::{TreeId, Version};
use crate::base::monitor::Monitor;
use crate::base::sync::Instant;
use crate::base::sync::atomic::Ordering;
use crate::engine::Engine;
use crate::log::{Batch, Follower, Logged, LoggedKind, LoggedOperations, PiecesInLog, TransactionCursor, WrittenEnd};

/// One change of a committed transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change<'r> {
    /// A key was inserted or has a new value.
    Put {
        /** The tree. */
        tree: TreeId,
        /** The key. */
        key: &'r [u8],
        /** The value. If it was put as stamped, it contains the version. */
        value: &'r [u8],
    },
    /// A key is deleted; it need not have existed.
    Delete {
        /** The tree. */
        tree: TreeId,
        /** The key. */
        key: &'r [u8],
    },
    /// All keys of a range are deleted. Comes before the transaction's other changes, so keys that it puts into the range stay.
    DeleteRange {
        /** The tree. */
        tree: TreeId,
        /** The first key of the range. */
        from: &'r [u8],
        /** The first key after the range; `None`: the range extends to the end of the tree. */
        to: Option<&'r [u8]>,
    },
    /// A bulk build changed the tree: the reader must read it again from a snapshot.
    Reset {
        /** The tree. */
        tree: TreeId,
    },
}

/// A committed transaction.
#[derive(Clone, Copy)]
pub struct Changeset<'r> {
    version: u64,
    is_last: bool,
    operations: LoggedOperations<'r>,
}

impl<'r> Changeset<'r> {
    /// Its version: one above the previous one's, or the same if that one was not the last part of its transaction.
    pub fn version(&self) -> Version {
        Version(self.version)
    }

    /// False if the next changeset has further changes of the same transaction. Only a large transaction has several.
    pub fn is_last(&self) -> bool {
        self.is_last
    }

    /// Its changes: deleted ranges first, then each key once.
    pub fn changes(&self) -> impl Iterator<Item = Change<'r>> + use<'r> {
        // `of` has checked all operations, so this never ends early.
        self.operations.map_while(|operation| change(operation.ok()?))
    }

    /// Checks all operations before it returns any: a transaction is delivered whole or not at all.
    fn of(version: u64, is_last: bool, operations: LoggedOperations<'r>) -> Result<Changeset<'r>, String> {
        for operation in operations {
            let operation = operation?;
            if let LoggedKind::Other(kind) = operation.kind {
                return Err(format!("operation of kind {kind}, which this build does not know"));
            }
        }
        Ok(Changeset { version, is_last, operations })
    }
}

fn change(operation: Logged<'_>) -> Option<Change<'_>> {
    let Logged { kind, tree, key, value } = operation;
    let tree = TreeId(tree);
    Some(match kind {
        LoggedKind::Put => Change::Put { tree, key, value },
        LoggedKind::Delete => Change::Delete { tree, key },
        LoggedKind::DeleteRange => Change::DeleteRange { tree, from: key, to: (!value.is_empty()).then_some(value) },
        LoggedKind::Loaded => Change::Reset { tree },
        LoggedKind::Pieces | LoggedKind::Other(_) => return None,
    })
}

/// See the module's text. It keeps the files open: the store cannot be opened again before its readers are dropped.
pub struct ChangeReader {
    engine: Arc<Engine>,
    seat: u64,
    follower: Follower,
    /// Position of the reader in the follower's batch.
    cursor: TransactionCursor,
    /// The large transaction whose pieces are being delivered.
    pieces: Option<Pieces>,
    /// The one whose last piece was delivered: it holds the piece's bytes.
    past: Option<Pieces>,
    /// All versions up to this one were delivered.
    version: u64,
    /// Called when there is more to read.
    wake: Option<Wake>,
    /// Set when there is more to read than [`ChangeReader::wait`] knew of.
    has_rung: Arc<Monitor<bool>>,
}

impl ChangeReader {
    pub(crate) fn new(engine: &Arc<Engine>, since: Version) -> Result<ChangeReader, StoreError> {
        let newest = engine.visible();
        if since.0 > newest {
            return Err(StoreError::Ahead { newest: Version(newest) });
        }
        let follower = engine.log.follow(since.0).map_err(|oldest| StoreError::Gone { oldest: Version(oldest) })?;
        let seat = engine.alarm.register().ok_or(StoreError::Busy)?;
        Ok(ChangeReader {
            engine: Arc::clone(engine),
            seat,
            follower,
            cursor: TransactionCursor::default(),
            pieces: None,
            past: None,
            version: since.0,
            wake: None,
            has_rung: Arc::default(),
        })
    }

    /// The last version that was delivered. A caller can store it and continue from it after a restart.
    pub fn version(&self) -> Version {
        Version(self.version)
    }

    /// Bytes of memory that it holds now: almost none after [`ChangeReader::next`] has returned `None`.
    pub fn memory_bytes(&self) -> usize {
        let pieces = self.pieces.iter().chain(&self.past).map(|pieces| pieces.follower.memory_bytes());
        self.follower.memory_bytes() + pieces.sum::<usize>()
    }

    /// Sets a callback. After [`ChangeReader::next`] has returned `None`, it is called once, from any thread, when there is
    /// more to read or the store closes. It must not block, since commits wait for it. An event loop is woken this way.
    pub fn wake_by(&mut self, wake: impl Fn() + Send + Sync + 'static) {
        self.wake = Some(Arc::new(wake));
    }

    /// The next transaction; `None` if there is none yet. An error is permanent: every further call returns it again.
    #[allow(clippy::should_implement_trait, reason = "an iterator cannot lend what it gives")]
    pub fn next(&mut self) -> Result<Option<Changeset<'_>>, StoreError> {
        if self.pieces.is_some() {
            return self.next_piece().map(Some);
        }
        while self.cursor.is_at_end() {
            if self.version < self.shown() {
                self.read_batch()?;
                continue;
            }
            if let Some(wake) = &self.wake {
                self.engine.alarm.arm(self.seat, wake);
            }
            if self.version < self.shown() {
                continue;
            }
            self.follower.free_window();
            self.past = None;
            return if self.is_closed() { Err(StoreError::Closed) } else { Ok(None) };
        }
        if self.meets_pieces()? {
            return self.next_piece().map(Some);
        }
        let batch = self.follower.batch().ok_or(StoreError::Closed)?;
        let mut cursor = self.cursor;
        let changeset = match cursor.next(&batch) {
            Some(Ok((version, operations))) => Changeset::of(version, true, operations.logged()),
            Some(Err(what)) => Err(what.to_string()),
            None => Err("number of transactions".to_string()),
        };
        // The cursor moves only past a valid transaction, so that a repeated call skips nothing.
        let changeset = changeset.map_err(|what| self.follower.damage(what))?;
        self.cursor = cursor;
        self.version = changeset.version;
        Ok(Some(changeset))
    }

    /// If the next transaction is the record of a large one: moves behind it, and begins with its pieces.
    fn meets_pieces(&mut self) -> Result<bool, StoreError> {
        let batch = self.follower.batch().ok_or(StoreError::Closed)?;
        let mut cursor = self.cursor;
        let Some(Ok((version, operations))) = cursor.next(&batch) else { return Ok(false) };
        let Some(pieces) = operations.pieces() else { return Ok(false) };
        let pieces = pieces.map_err(|what| self.follower.damage(what))?;
        self.pieces = Some(Pieces::new(&self.engine, version, &pieces));
        self.cursor = cursor;
        Ok(true)
    }

    /// The next piece of the large transaction that is being delivered. After an error the same piece is tried again.
    fn next_piece(&mut self) -> Result<Changeset<'_>, StoreError> {
        let end = self.engine.log.end();
        let pieces = self.pieces.as_mut().ok_or(StoreError::Closed)?;
        pieces.advance(self.version, end)?;
        let is_last = pieces.next == pieces.count;
        if is_last {
            self.version = pieces.version;
            self.past = self.pieces.take();
        }
        let Some(pieces) = self.pieces.as_ref().or(self.past.as_ref()) else { return Err(StoreError::Closed) };
        pieces.changeset(is_last)
    }

    /// Waits until there is something to read; false after the timeout.
    pub fn wait(&mut self, time: Duration) -> Result<bool, StoreError> {
        let until = Instant::now().checked_add(time);
        let ring: Wake = {
            let has_rung = Arc::clone(&self.has_rung);
            Arc::new(move || has_rung.change(|has_rung| *has_rung = true))
        };
        loop {
            *self.has_rung.lock() = false;
            self.engine.alarm.arm(self.seat, &ring);
            if self.pieces.is_some() || !self.cursor.is_at_end() || self.version < self.shown() {
                return Ok(true);
            }
            if self.is_closed() {
                return Err(StoreError::Closed);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if self.has_rung.wait(left, |has_rung| has_rung.then_some(())).is_none() {
                return Ok(false);
            }
        }
    }

    /// The last version shown to readers of changes: visible, and certain to survive a crash.
    #[inline]
    fn shown(&self) -> u64 {
        let visible = self.engine.visible();
        self.engine.log.version_synced().map_or(visible, |synced| synced.min(visible))
    }

    fn is_closed(&self) -> bool {
        self.engine.is_closing.load(Ordering::Acquire)
    }

    /// Reads the next batch. If it holds versions not yet delivered, the cursor then stands before the first of them.
    fn read_batch(&mut self) -> Result<(), StoreError> {
        self.follower.advance(self.version, self.engine.log.end())?;
        let Some(batch) = self.follower.batch() else { return Ok(()) };
        let (first, last) = versions(&batch);
        if last <= self.version {
            return Ok(());
        }
        if first > self.version + 1 {
            // The log of an older build says nothing about bulk loads.
            return Err(StoreError::Gone { oldest: Version(first - 1) });
        }
        let mut cursor = TransactionCursor::of(&batch);
        for _ in first..=self.version {
            if !matches!(cursor.next(&batch), Some(Ok(_))) {
                return Err(self.follower.damage("transaction length"));
            }
        }
        self.cursor = cursor;
        Ok(())
    }
}

/// The pieces of a large transaction, read from the log a second time.
struct Pieces {
    follower: Follower,
    version: u64,
    count: u32,
    /// Number of the next piece to read.
    next: u32,
}

impl Pieces {
    fn new(engine: &Engine, version: u64, pieces: &PiecesInLog) -> Pieces {
        Pieces { follower: engine.log.follow_from(pieces.first), version, count: pieces.count, next: 0 }
    }

    /// Reads the next piece. `before` is the last version that was delivered.
    fn advance(&mut self, before: u64, end: WrittenEnd) -> Result<(), StoreError> {
        let gone = StoreError::Gone { oldest: Version(self.version) };
        loop {
            self.follower.advance_in_chain(before, self.version, end)?;
            let batch = self.follower.batch().ok_or(StoreError::Closed)?;
            match batch.piece() {
                Some(Ok((number, operations))) if number == self.next => {
                    Changeset::of(self.version, false, operations.logged())
                        .map_err(|what| self.follower.damage(what))?;
                    self.next += 1;
                    return Ok(());
                }
                Some(Ok(_)) => return Err(gone),
                Some(Err(what)) => return Err(self.follower.damage(what)),
                // The record itself: the pieces before it are no longer there.
                None if batch.transaction_count() > 0 && batch.first_version() >= self.version => return Err(gone),
                None => {}
            }
        }
    }

    fn changeset(&self, is_last: bool) -> Result<Changeset<'_>, StoreError> {
        let batch = self.follower.batch().ok_or(StoreError::Closed)?;
        match batch.piece() {
            Some(Ok((_, operations))) => {
                Changeset::of(self.version, is_last, operations.logged()).map_err(|what| self.follower.damage(what))
            }
            _ => Err(StoreError::Closed),
        }
    }
}

/// The first and the last version of a batch; in an empty batch the last is below the first.
fn versions(batch: &Batch<'_>) -> (u64, u64) {
    let first = batch.first_version();
    (first, first.saturating_add(u64::from(batch.transaction_count())).saturating_sub(1))
}

impl Drop for ChangeReader {
    fn drop(&mut self) {
        self.engine.alarm.unregister(self.seat);
    }
}
