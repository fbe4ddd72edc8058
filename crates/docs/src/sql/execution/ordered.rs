//! A bounded window that restores the order: batches of rows from several threads reach the consumer in the order of their parts.
//!
//! Parts are claimed in their order. The consumer takes rows of the first undelivered part as they are found. Rows of later
//! parts wait, up to a limit in bytes; beyond it their thread waits for room. Invariants:
//!
//! - The thread that scans the first part never waits for room while none of that part's rows wait. So the consumer always has
//!   a row to take, or a thread scans for one.
//! - A helper waits for room only for a limited time (its patience, which is short if the consumer delivers to a client) and then
//!   returns its part. It keeps the first part, because rows of that part may have been taken already. The consumer scans a
//!   returned part later; it may be blocked by a slow client until then.
//! - A panic of a helper ends the execution.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::sql::limits::QueryError;

/// How long a helper waits for a consumer that delivers to a client, before it returns its part. Only a client that does not
/// read blocks the consumer for longer.
pub(super) const PATIENCE: Duration = Duration::from_millis(200);
/// How often a consumer that finds no rows checks its deadline.
const LOOK: Duration = Duration::from_millis(20);

/// What is found in a part.
pub(super) trait Waits {
    /// Its bytes that count while it waits.
    fn bytes(&self) -> usize;
}

/// The end of a part.
#[derive(Debug)]
pub(super) enum End {
    /// All its rows were found. The number is the count of rows read.
    Complete(u64),
    /// It ends with an error, after this number of rows read.
    Failed(u64, QueryError),
    /// Returned: no thread scans it, and none of its rows were taken.
    Left,
}

/// The next item for the consumer.
#[derive(Debug)]
pub(super) enum Next<F> {
    Found(F),
    /// A part is delivered completely. The number is the count of rows read in it.
    Ended(u64),
    /// The first part ends with an error, after this number of rows read.
    Failed(u64, QueryError),
    /// Nothing is ready.
    Nothing,
}

/// What the consumer does when nothing is ready.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ConsumerStep {
    /// Scan this part.
    Read(usize),
    /// Try again.
    Retry,
    /// Stop: all parts are delivered, or a helper has panicked.
    Done,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Ordered<F> {
    state: Mutex<State<F>>,
    /// Signals rows, or the end, of the first part.
    came: Condvar,
    /// Signals that rows were taken, or that a part is delivered.
    taken: Condvar,
    parts: usize,
    /// Parts that may be claimed beyond the first one.
    ahead_max: usize,
    /// Limit of the bytes of waiting rows.
    bytes_max: usize,
    /// How long a helper waits for the consumer.
    patience: Duration,
}

#[derive(Debug)]
struct State<F> {
    /// The first undelivered part.
    first: usize,
    /// The claimed parts, from the first on.
    claimed: VecDeque<Claimed<F>>,
    bytes: usize,
    /// The consumer takes no more rows.
    is_over: bool,
}

#[derive(Debug)]
struct Claimed<F> {
    rows: VecDeque<F>,
    end: Option<End>,
}

impl<F: Waits> State<F> {
    fn part(&mut self, number: usize) -> Option<&mut Claimed<F>> {
        self.claimed.get_mut(number.checked_sub(self.first)?)
    }

    /// Returns a part, dropping its rows.
    fn leave(&mut self, number: usize) {
        if let Some(part) = self.part(number) {
            let rows = std::mem::take(&mut part.rows);
            part.end = Some(End::Left);
            self.bytes -= rows.iter().map(Waits::bytes).sum::<usize>();
        }
    }

    fn has_next(&self) -> bool {
        self.claimed.front().is_some_and(|part| !part.rows.is_empty() || part.end.is_some())
    }
}

impl<F: Waits> Ordered<F> {
    /// For `parts` parts, of which `ahead_max` may be scanned ahead, with up to `bytes_max` bytes of waiting rows. Helpers wait
    /// for the consumer as long as `patience`.
    pub(super) fn new(parts: usize, ahead_max: usize, bytes_max: usize, patience: Duration) -> Ordered<F> {
        let state = Mutex::new(State { first: 0, claimed: VecDeque::new(), bytes: 0, is_over: false });
        Ordered { state, came: Condvar::new(), taken: Condvar::new(), parts, ahead_max, bytes_max, patience }
    }

    fn lock(&self) -> MutexGuard<'_, State<F>> {
        // No code that may panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn claim_of(&self, state: &mut State<F>) -> Option<usize> {
        let number = state.first + state.claimed.len();
        if number >= self.parts || state.claimed.len() > self.ahead_max {
            return None;
        }
        state.claimed.push_back(Claimed { rows: VecDeque::new(), end: None });
        Some(number)
    }

    /// Claims the next part for a helper. `None`: there is none left, or none was available within the patience.
    pub(super) fn claim(&self) -> Option<usize> {
        let (mut state, since) = (self.lock(), Instant::now());
        loop {
            if state.is_over || state.first + state.claimed.len() >= self.parts {
                return None;
            }
            if let Some(number) = self.claim_of(&mut state) {
                return Some(number);
            }
            let left = self.patience.checked_sub(since.elapsed())?;
            state = self.taken.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Adds what a helper has found in a part. False: it must stop, because the part is no longer its own.
    pub(super) fn put(&self, number: usize, found: F) -> bool {
        let (mut state, since) = (self.lock(), Instant::now());
        loop {
            if state.is_over {
                return false;
            }
            let is_first = number == state.first;
            let is_next = is_first && state.part(number).is_some_and(|part| part.rows.is_empty());
            if is_next || state.bytes + found.bytes() <= self.bytes_max {
                self.add(&mut state, number, found);
                return true;
            }
            let Some(left) = self.patience.checked_sub(since.elapsed()).or(is_first.then_some(self.patience)) else {
                state.leave(number);
                self.taken.notify_all();
                return false;
            };
            state = self.taken.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Adds rows that the consumer itself has scanned, without waiting. Then the consumer must take the rows that are ready,
    /// and call [`Self::goes_on`].
    pub(super) fn put_own(&self, number: usize, found: F) {
        self.add(&mut self.lock(), number, found);
    }

    fn add(&self, state: &mut State<F>, number: usize, found: F) {
        state.bytes += found.bytes();
        if let Some(part) = state.part(number) {
            part.rows.push_back(found);
        }
        if number == state.first {
            self.came.notify_all();
        }
    }

    /// Whether the consumer continues its own part. `None`: it must take rows first. False: the part was returned, because only
    /// the consumer itself can make room.
    pub(super) fn goes_on(&self, number: usize) -> Option<bool> {
        let mut state = self.lock();
        if number == state.first || state.bytes <= self.bytes_max {
            return Some(true);
        }
        if !state.has_next() {
            state = self.came.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.is_over || state.claimed.front().is_some_and(|part| matches!(part.end, Some(End::Left))) {
            state.leave(number);
            return Some(false);
        }
        None
    }

    /// Records the end of a part.
    pub(super) fn end(&self, number: usize, end: End) {
        let mut state = self.lock();
        if let Some(part) = state.part(number) {
            part.end = Some(end);
        }
        if number == state.first {
            self.came.notify_all();
        }
    }

    /// Takes the next item in order.
    pub(super) fn next(&self) -> Next<F> {
        let mut state = self.lock();
        let Some(part) = state.claimed.front_mut() else { return Next::Nothing };
        if let Some(found) = part.rows.pop_front() {
            state.bytes -= found.bytes();
            self.taken.notify_all();
            return Next::Found(found);
        }
        match part.end.take() {
            Some(End::Complete(read)) => {
                state.first += 1;
                state.claimed.pop_front();
                self.taken.notify_all();
                Next::Ended(read)
            }
            Some(End::Failed(read, error)) => Next::Failed(read, error),
            left => {
                part.end = left;
                Next::Nothing
            }
        }
    }

    /// What the consumer must do when it has taken all that is ready.
    pub(super) fn consumer_step(&self) -> ConsumerStep {
        let mut state = self.lock();
        if state.is_over || state.first >= self.parts {
            return ConsumerStep::Done;
        }
        let first = state.first;
        if let Some(part) = state.claimed.front_mut().filter(|part| matches!(part.end, Some(End::Left))) {
            part.end = None;
            return ConsumerStep::Read(first);
        }
        if state.has_next() {
            return ConsumerStep::Retry;
        }
        if (state.claimed.is_empty() || state.bytes <= self.bytes_max)
            && let Some(number) = self.claim_of(&mut state)
        {
            return ConsumerStep::Read(number);
        }
        drop(self.came.wait_timeout(state, LOOK));
        ConsumerStep::Retry
    }

    /// The number of delivered parts.
    pub(super) fn given(&self) -> usize {
        self.lock().first
    }

    /// Stops all threads: no more rows are taken.
    pub(super) fn stop(&self) {
        self.lock().is_over = true;
        self.came.notify_all();
        self.taken.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: usize = 12;
    const ROWS: usize = 50;
    const BYTES_MAX: usize = 64;

    /// A row contains the numbers of its part and of the row.
    fn rows(number: usize, row: usize) -> Vec<u8> {
        vec![number as u8, row as u8, 0, 0]
    }

    fn bytes(ordered: &Ordered<Vec<u8>>) -> usize {
        ordered.lock().bytes
    }

    #[test]
    fn rows_come_in_the_order_of_parts_and_few_wait() {
        let ordered = Ordered::new(PARTS, PARTS, BYTES_MAX, PATIENCE);
        let mut found = Vec::new();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while let Some(number) = ordered.claim() {
                        if (0..ROWS).all(|row| ordered.put(number, rows(number, row))) {
                            ordered.end(number, End::Complete(1));
                        }
                    }
                });
            }
            let mut read = 0;
            while read < PARTS {
                match ordered.next() {
                    Next::Found(rows) => found.push(rows),
                    Next::Ended(rows) => read += rows as usize,
                    Next::Failed(_, error) => panic!("{error}"),
                    // A part that a helper has returned, under load.
                    Next::Nothing => match ordered.consumer_step() {
                        ConsumerStep::Read(number) => {
                            (0..ROWS).for_each(|row| ordered.put_own(number, rows(number, row)));
                            ordered.end(number, End::Complete(1));
                        }
                        ConsumerStep::Retry | ConsumerStep::Done => {}
                    },
                }
            }
        });
        let expected: Vec<_> = (0..PARTS).flat_map(|number| (0..ROWS).map(move |row| rows(number, row))).collect();
        assert!(found == expected, "{} of {} rows", found.len(), expected.len());
    }

    #[test]
    fn who_finds_no_room_gives_its_part_back_unless_it_is_the_first() {
        let ordered = Ordered::new(PARTS, PARTS, BYTES_MAX, PATIENCE);
        assert_eq!((ordered.claim(), ordered.claim()), (Some(0), Some(1)));
        let put = (0..).take_while(|row| ordered.put(1, rows(1, *row))).count();
        assert_eq!((put, bytes(&ordered)), (BYTES_MAX / 4, 0), "it keeps nothing");
        assert!(ordered.put(0, vec![0; 2 * BYTES_MAX]), "a row that is larger than the room goes where there is none");
        assert_eq!(ordered.claim(), Some(2));
        assert!(!ordered.put(2, rows(2, 0)));
        // The first part's thread waits: rows of the part may have been taken already.
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| ordered.put(0, rows(0, 1)));
            std::thread::sleep(2 * PATIENCE);
            assert!(matches!(ordered.next(), Next::Found(rows) if rows.len() == 2 * BYTES_MAX));
            assert!(waits.join().unwrap());
        });
        assert!(matches!(ordered.next(), Next::Found(found) if found == rows(0, 1)));
        ordered.end(0, End::Complete(0));
        assert!(matches!((ordered.next(), ordered.next()), (Next::Ended(0), Next::Nothing)));
        assert_eq!(ordered.consumer_step(), ConsumerStep::Read(1));
        ordered.put_own(1, rows(1, 0));
        assert!(matches!(ordered.next(), Next::Found(rows) if rows[..2] == [1, 0]));
    }

    #[test]
    fn who_takes_gives_its_own_part_back_where_nobody_else_makes_room() {
        let ordered = Ordered::new(PARTS, PARTS, BYTES_MAX, PATIENCE);
        assert_eq!((ordered.claim(), ordered.consumer_step()), (Some(0), ConsumerStep::Read(1)));
        ordered.put_own(1, vec![0; BYTES_MAX]);
        assert_eq!(ordered.goes_on(1), Some(true));
        ordered.put_own(1, vec![0; 1]);
        assert_eq!(ordered.goes_on(1), None, "the first part is read by another");
        ordered.lock().leave(0);
        assert_eq!((ordered.goes_on(1), bytes(&ordered)), (Some(false), 0));
        assert_eq!(ordered.consumer_step(), ConsumerStep::Read(0));
    }

    #[test]
    fn few_parts_are_read_ahead() {
        let ordered = Ordered::new(PARTS, 2, BYTES_MAX, PATIENCE);
        assert_eq!(
            (ordered.claim(), ordered.claim(), ordered.claim(), ordered.claim()),
            (Some(0), Some(1), Some(2), None)
        );
        ordered.end(0, End::Complete(7));
        assert!(matches!(ordered.next(), Next::Ended(7)));
        assert_eq!(ordered.claim(), Some(3));
        ordered.stop();
        assert_eq!((ordered.claim(), ordered.consumer_step()), (None, ConsumerStep::Done));
        assert!(!ordered.put(1, rows(1, 0)));
    }
}
