//! The database on an event loop: its reader, and the writes that wait for room in the committer's queue.

use super::Database;
use super::failure::DatabaseError;
use super::reading::{Bounds, Reading, Snapshot, TIME_MAX_WHILE_OTHERS_WAIT};
use super::transaction::Ended;
use docs::{Elsewhere, RunDone, TransactionBody};
use reactor::Loop;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Rows that a query on an event loop may scan. The loop's other connections wait meanwhile; a query that takes longer than 50 ms fails.
pub const LOOP_ROWS_MAX: u64 = 20_000;
const BOUNDS: Bounds = Bounds { rows_max: LOOP_ROWS_MAX, time_max: Some(TIME_MAX_WHILE_OTHERS_WAIT) };
/// Transactions that a loop holds while the database admits no writes, which lasts some milliseconds.
const HELD_MAX: usize = 10_000;
/// Time until a loop submits held transactions again.
const TRY_AGAIN: Duration = Duration::from_millis(5);

/// A loop's access to the database.
pub(crate) struct LoopDatabase {
    database: Database,
    reading: Reading,
    /// Takes transactions that would hold the loop for too long.
    elsewhere: Elsewhere,
    held: RefCell<VecDeque<Held>>,
}

/// A transaction that was not admitted. Calling it submits it again; if it is still not admitted, it returns itself.
struct Held(Box<TryHeld>);

type TryHeld = dyn FnOnce(&LoopDatabase) -> Option<Held>;

impl LoopDatabase {
    /// Panics if the store has no reader left: see [`Database::loops_max`].
    pub(crate) fn new(database: &Database) -> LoopDatabase {
        let reading = Reading::new(&database.inner.docs).expect("the store has more readers than there are loops");
        reading.session.gather_submissions();
        let (queue, docs) = (Arc::clone(&database.inner.long), database.inner.docs.clone());
        let elsewhere: Elsewhere = Arc::new(move |job| queue.push(&docs, job));
        LoopDatabase { database: database.clone(), reading, elsewhere, held: RefCell::default() }
    }

    /// Submits a transaction. If it is not admitted, it is held, and so are all later ones, in their order.
    pub(crate) fn submit<T, E>(&self, run: TransactionBody<T, Ended<E>>, done: RunDone<T, Ended<E>>)
    where
        T: Send + 'static,
        E: From<DatabaseError> + Send + 'static,
    {
        if self.held.borrow().is_empty() {
            if let Some(held) = self.try_submit(run, done) {
                self.held.borrow_mut().push_back(held);
            }
        } else if self.held.borrow().len() < HELD_MAX {
            self.held.borrow_mut().push_back(Held(Box::new(move |database| database.try_submit(run, done))));
        } else {
            done(Err(Ended::from(docs::WriteError::Busy)));
        }
    }

    pub(crate) fn read<T, E: From<DatabaseError>>(
        &self,
        read: impl FnOnce(&Snapshot<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.reading.read(&self.database, BOUNDS, read)
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    /// Whether transactions wait for room in the committer's queue.
    pub(crate) fn has_held(&self) -> bool {
        !self.held.borrow().is_empty()
    }

    fn try_submit<T, E>(&self, run: TransactionBody<T, Ended<E>>, done: RunDone<T, Ended<E>>) -> Option<Held>
    where
        T: Send + 'static,
        E: From<DatabaseError> + Send + 'static,
    {
        let docs = &self.database.inner.docs;
        match docs.try_transact(&self.reading.session, run, done, &self.elsewhere) {
            Ok(()) => None,
            Err((run, done)) => Some(Held(Box::new(move |database| database.try_submit(run, done)))),
        }
    }

    /// Submits the held transactions again, and passes on those that the loop's ticks have gathered.
    #[inline]
    pub(crate) fn tick_ended(&self, lp: &Loop) {
        if !self.held.borrow().is_empty() {
            self.try_again(lp);
        }
        if self.reading.session.tick_ended(lp.now_ns()) {
            lp.poll_again();
        }
    }

    #[cold]
    fn try_again(&self, lp: &Loop) {
        while let Some(held) = self.pop() {
            if let Some(held) = (held.0)(self) {
                self.held.borrow_mut().push_front(held);
                // The empty timer wakes the loop; the end of that turn calls this function again.
                return lp.after(TRY_AGAIN, Box::new(|_| {}));
            }
        }
    }

    fn pop(&self) -> Option<Held> {
        self.held.borrow_mut().pop_front()
    }
}
