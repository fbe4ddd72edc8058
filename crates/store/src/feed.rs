//! The feed of changes: all transactions since a version, whole, in order, and then those that come.
//!
//! ```text
//!   changes_since(N) ──► N+1, N+2, … what is in the log, live or kept ──► up to date ──► woken by the next commit
//!                   └──► Gone { oldest }: start again from a snapshot, changes are there from `oldest` on
//! ```
//!
//! What it promises:
//!
//! - Each transaction once, none left out, none in part; only what would survive a crash now. With a durability that syncs
//!   later, changes are seen later.
//! - Reading holds nothing back: neither a segment of the log, nor pages, nor a commit. A reader that is slower than what
//!   is kept for it hears [`Error::Gone`].
//! - What a bulk build loaded is not in the log. The version in which it appeared resets the trees concerned
//!   ([`Change::Reset`]): what they hold is to be read anew. One whose load failed at the last moment is reset too,
//!   though nothing changed.
//! - A bounded memory: one batch of the log, and 256 KB at least once something was read.
//!
//! To follow a store from its beginning: take a snapshot, read what it holds, then go on with what came since its version.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::engine::{Engine, Wake, lock};
use crate::error::Error;
use crate::key::{TreeId, Version};
use crate::log::{Batch, Follower, Logged, LoggedKind, LoggedOperations, TransactionCursor};

/// One change of a committed transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change<'r> {
    /// A key has this value.
    Put {
        /** Where. */
        tree: TreeId,
        /** The key. */
        key: &'r [u8],
        /** Its value, stamped if it was put so. */
        value: &'r [u8],
    },
    /// A key is gone; it need not have been there.
    Delete {
        /** Where. */
        tree: TreeId,
        /** The key. */
        key: &'r [u8],
    },
    /// All keys of a range are gone, whichever were there. Comes before the transaction's other changes, so that what it puts stays.
    DeleteRange {
        /** Where. */
        tree: TreeId,
        /** The first key that is gone. */
        from: &'r [u8],
        /** The first above it that is not; `None`: to the end of the tree. */
        to: Option<&'r [u8]>,
    },
    /// The tree's content came from a bulk build: it is to be read anew, from a snapshot.
    Reset {
        /** Which. */
        tree: TreeId,
    },
}

/// A committed transaction.
#[derive(Clone, Copy)]
pub struct Changeset<'r> {
    version: u64,
    operations: LoggedOperations<'r>,
}

impl<'r> Changeset<'r> {
    /// Its number; each is one above the one before.
    pub fn version(&self) -> Version {
        Version(self.version)
    }

    /// What it changed: ranges first, then each key once.
    pub fn changes(&self) -> impl Iterator<Item = Change<'r>> + use<'r> {
        // `of` has looked at all of them: none is left out here.
        self.operations.map_while(|operation| change(operation.ok()?))
    }

    /// Checks all operations before any is given out: a transaction is seen whole or not at all.
    fn of(version: u64, operations: LoggedOperations<'r>) -> Result<Changeset<'r>, String> {
        for operation in operations {
            let operation = operation?;
            if let LoggedKind::Other(kind) = operation.kind {
                return Err(format!("operation of kind {kind}, which this build does not know"));
            }
        }
        Ok(Changeset { version, operations })
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
        LoggedKind::Other(_) => return None,
    })
}

/// See the module's text. It keeps the files open: a store can be opened again only after its readers are dropped.
pub struct ChangeReader {
    engine: Arc<Engine>,
    seat: u64,
    follower: Follower,
    /// Where the reader is in the follower's batch.
    cursor: TransactionCursor,
    /// All up to this one was given out.
    version: u64,
    /// Who is told when there is more.
    wake: Option<Wake>,
    bell: Arc<Bell>,
}

impl ChangeReader {
    pub(crate) fn new(engine: &Arc<Engine>, since: Version) -> Result<ChangeReader, Error> {
        let newest = engine.visible();
        if since.0 > newest {
            return Err(Error::Ahead { newest: Version(newest) });
        }
        let follower = engine.follow(since.0)?;
        let seat = engine.alarm.register().ok_or(Error::Busy)?;
        Ok(ChangeReader {
            engine: Arc::clone(engine),
            seat,
            follower,
            cursor: TransactionCursor::default(),
            version: since.0,
            wake: None,
            bell: Arc::default(),
        })
    }

    /// The last version that was given out: all up to it are known to the caller. To go on after a restart.
    pub fn version(&self) -> Version {
        Version(self.version)
    }

    /// What is called once, from any thread, when [`ChangeReader::next`] has said that there is nothing more and then there
    /// is, or the store closes. It must not block: commits wait for it. For an event loop: let it wake the loop.
    pub fn wake_by(&mut self, wake: impl Fn() + Send + Sync + 'static) {
        self.wake = Some(Arc::new(wake));
    }

    /// The next transaction; `None` when all is read. An error stays: whatever is asked again.
    #[allow(clippy::should_implement_trait, reason = "an iterator cannot lend what it gives")]
    pub fn next(&mut self) -> Result<Option<Changeset<'_>>, Error> {
        while self.cursor.is_at_end() {
            if self.version < self.engine.changes_shown() {
                self.read_batch()?;
                continue;
            }
            if let Some(wake) = &self.wake {
                self.engine.alarm.arm(self.seat, wake);
            }
            if self.version < self.engine.changes_shown() {
                continue;
            }
            return if self.engine.is_closed() { Err(Error::Closed) } else { Ok(None) };
        }
        let batch = self.follower.batch().ok_or(Error::Closed)?;
        let mut cursor = self.cursor;
        let changeset = match cursor.next(&batch) {
            Some(Ok((version, operations))) => Changeset::of(version, operations.logged()),
            Some(Err(what)) => Err(what.to_string()),
            None => Err("number of transactions".to_string()),
        };
        // The cursor moves only past what was good, so that nothing is left out by who asks again.
        let changeset = changeset.map_err(|what| {
            let (file, offset) = self.follower.batch_place();
            Error::corrupt(&file, offset, what)
        })?;
        self.cursor = cursor;
        self.version = changeset.version;
        Ok(Some(changeset))
    }

    /// Waits until there is something to read; false when the time is over before.
    pub fn wait(&mut self, time: Duration) -> Result<bool, Error> {
        let until = Instant::now().checked_add(time);
        let ring: Wake = {
            let bell = Arc::clone(&self.bell);
            Arc::new(move || bell.ring())
        };
        loop {
            self.bell.silence();
            self.engine.alarm.arm(self.seat, &ring);
            if !self.cursor.is_at_end() || self.version < self.engine.changes_shown() {
                return Ok(true);
            }
            if self.engine.is_closed() {
                return Err(Error::Closed);
            }
            if !self.bell.wait(until) {
                return Ok(false);
            }
        }
    }

    /// The next batch, when it holds something that is not known yet; then the cursor stands before it.
    fn read_batch(&mut self) -> Result<(), Error> {
        self.follower.advance(self.version, self.engine.log_end())?;
        let Some(batch) = self.follower.batch() else { return Ok(()) };
        let (first, last) = versions(&batch);
        if last <= self.version {
            return Ok(());
        }
        if first > self.version + 1 {
            // A log of an older build tells nothing of what was loaded.
            return Err(Error::Gone { oldest: Version(first - 1) });
        }
        let mut cursor = TransactionCursor::of(&batch);
        for _ in first..=self.version {
            if !matches!(cursor.next(&batch), Some(Ok(_))) {
                let (file, offset) = self.follower.batch_place();
                return Err(Error::corrupt(&file, offset, "transaction length"));
            }
        }
        self.cursor = cursor;
        Ok(())
    }
}

/// The first version in a batch, and the last; the last is below the first in an empty one.
fn versions(batch: &Batch<'_>) -> (u64, u64) {
    let first = batch.first_version();
    (first, first.saturating_add(u64::from(batch.transaction_count())).saturating_sub(1))
}

impl Drop for ChangeReader {
    fn drop(&mut self) {
        self.engine.alarm.unregister(self.seat);
    }
}

/// On which a thread waits.
#[derive(Default)]
struct Bell {
    has_rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn silence(&self) {
        *lock(&self.has_rung) = false;
    }

    fn ring(&self) {
        *lock(&self.has_rung) = true;
        self.changed.notify_all();
    }

    /// False when it did not ring until then.
    fn wait(&self, until: Option<Instant>) -> bool {
        let mut has_rung = lock(&self.has_rung);
        while !*has_rung {
            has_rung = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => self.changed.wait(has_rung).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => return false,
                Some(left) => self.changed.wait_timeout(has_rung, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        true
    }
}
