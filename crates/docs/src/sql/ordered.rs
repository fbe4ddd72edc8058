//! Rows of parts that several threads read, taken in the order of the parts: a bounded window over them.
//!
//! Parts are claimed in their order. Rows of the first part that is not given yet are taken as they come; those of later ones
//! wait, up to a bound, and then whoever finds more of them waits for room. What holds:
//!
//! - Whoever reads the first part never waits for room as long as none of its rows wait: so there is always a row to take, or
//!   a thread that looks for it.
//! - Nobody waits for long: a helper for whose rows there is no room gives its part back, unless it is the first, of which rows may
//!   be taken already. Who takes the rows, and stands still with a client that does not take them, reads it later.
//! - A panic of a helper ends the taking.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::error::QueryError;

/// How long a helper waits for room before it leaves: longer than all that is no client takes.
const PATIENCE: Duration = Duration::from_millis(200);
/// How often who takes the rows, and finds none, looks whether its time is over.
const LOOK: Duration = Duration::from_millis(20);

/// How a part came to its end.
#[derive(Debug)]
pub(super) enum End {
    /// All its rows were found, of so many that were read.
    Complete(u64),
    /// They end with an error, after so many that were read.
    Failed(u64, QueryError),
    /// Given back: nobody reads it, none of its rows were taken.
    Left,
}

/// What there is to take.
#[derive(Debug)]
pub(super) enum Next {
    Rows(Vec<u8>),
    /// A part is given, of which so many rows were read.
    Ended(u64),
    /// The first part ends with an error, after so many rows that were read.
    Failed(u64, QueryError),
    /// Nothing now.
    Nothing,
}

/// What who takes the rows does when there is nothing to take.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// Reads that part.
    Read(usize),
    /// Looks again.
    Look,
    /// All parts are given, or a helper is lost.
    Done,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Ordered {
    state: Mutex<State>,
    /// Rows of the first part came, or its end.
    came: Condvar,
    /// Rows were taken, or a part is given.
    taken: Condvar,
    parts: usize,
    /// Parts that may be claimed beyond the first one.
    ahead_max: usize,
    /// Bytes of rows that may wait.
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct State {
    /// The first part that is not given.
    first: usize,
    /// Those that are claimed, from the first on.
    claimed: VecDeque<Claimed>,
    bytes: usize,
    /// Nobody takes rows any more.
    is_over: bool,
}

#[derive(Debug, Default)]
struct Claimed {
    rows: VecDeque<Vec<u8>>,
    end: Option<End>,
}

impl State {
    fn part(&mut self, number: usize) -> Option<&mut Claimed> {
        self.claimed.get_mut(number.checked_sub(self.first)?)
    }

    /// Gives a part back, with its rows.
    fn leave(&mut self, number: usize) {
        if let Some(part) = self.part(number) {
            let rows = std::mem::take(&mut part.rows);
            part.end = Some(End::Left);
            self.bytes -= rows.iter().map(Vec::len).sum::<usize>();
        }
    }

    fn has_next(&self) -> bool {
        self.claimed.front().is_some_and(|part| !part.rows.is_empty() || part.end.is_some())
    }
}

impl Ordered {
    /// For so many parts, of which `ahead_max` are read ahead, with up to `bytes_max` of rows.
    pub(super) fn new(parts: usize, ahead_max: usize, bytes_max: usize) -> Ordered {
        Ordered { state: Mutex::default(), came: Condvar::new(), taken: Condvar::new(), parts, ahead_max, bytes_max }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that may panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn claim_of(&self, state: &mut State) -> Option<usize> {
        let number = state.first + state.claimed.len();
        if number >= self.parts || state.claimed.len() > self.ahead_max {
            return None;
        }
        state.claimed.push_back(Claimed::default());
        Some(number)
    }

    /// A helper's next part. `None`: there is none for it any more.
    pub(super) fn claim(&self) -> Option<usize> {
        let (mut state, since) = (self.lock(), Instant::now());
        loop {
            if state.is_over || state.first + state.claimed.len() >= self.parts {
                return None;
            }
            if let Some(number) = self.claim_of(&mut state) {
                return Some(number);
            }
            let left = PATIENCE.checked_sub(since.elapsed())?;
            state = self.taken.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A helper's rows of a part. False: it is to stop, the part is not its any more.
    pub(super) fn put(&self, number: usize, rows: Vec<u8>) -> bool {
        let (mut state, since) = (self.lock(), Instant::now());
        loop {
            if state.is_over {
                return false;
            }
            let is_first = number == state.first;
            let is_next = is_first && state.part(number).is_some_and(|part| part.rows.is_empty());
            if is_next || state.bytes + rows.len() <= self.bytes_max {
                self.add(&mut state, number, rows);
                return true;
            }
            let Some(left) = PATIENCE.checked_sub(since.elapsed()).or(is_first.then_some(PATIENCE)) else {
                state.leave(number);
                self.taken.notify_all();
                return false;
            };
            state = self.taken.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The same of who takes the rows, which never waits: it is to take what there is then, and ask [`Self::goes_on`].
    pub(super) fn put_own(&self, number: usize, rows: Vec<u8>) {
        self.add(&mut self.lock(), number, rows);
    }

    fn add(&self, state: &mut State, number: usize, rows: Vec<u8>) {
        state.bytes += rows.len();
        if let Some(part) = state.part(number) {
            part.rows.push_back(rows);
        }
        if number == state.first {
            self.came.notify_all();
        }
    }

    /// Whether who takes the rows goes on with its own part: `None`, it is to take rows first; false, the part is given back,
    /// for nobody makes room but itself.
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

    /// A part is at its end.
    pub(super) fn end(&self, number: usize, end: End) {
        let mut state = self.lock();
        if let Some(part) = state.part(number) {
            part.end = Some(end);
        }
        if number == state.first {
            self.came.notify_all();
        }
    }

    /// What is next in the order.
    pub(super) fn next(&self) -> Next {
        let mut state = self.lock();
        let Some(part) = state.claimed.front_mut() else { return Next::Nothing };
        if let Some(rows) = part.rows.pop_front() {
            state.bytes -= rows.len();
            self.taken.notify_all();
            return Next::Rows(rows);
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

    /// What who takes the rows does when it has taken all that there is.
    pub(super) fn own(&self) -> Own {
        let mut state = self.lock();
        if state.is_over || state.first >= self.parts {
            return Own::Done;
        }
        let first = state.first;
        if let Some(part) = state.claimed.front_mut().filter(|part| matches!(part.end, Some(End::Left))) {
            part.end = None;
            return Own::Read(first);
        }
        if state.has_next() {
            return Own::Look;
        }
        if (state.claimed.is_empty() || state.bytes <= self.bytes_max)
            && let Some(number) = self.claim_of(&mut state)
        {
            return Own::Read(number);
        }
        drop(self.came.wait_timeout(state, LOOK));
        Own::Look
    }

    /// How many parts are given.
    pub(super) fn given(&self) -> usize {
        self.lock().first
    }

    /// Nobody takes rows any more.
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

    /// Rows of a part are its number and their own.
    fn rows(number: usize, row: usize) -> Vec<u8> {
        vec![number as u8, row as u8, 0, 0]
    }

    fn bytes(ordered: &Ordered) -> usize {
        ordered.lock().bytes
    }

    #[test]
    fn rows_come_in_the_order_of_parts_and_few_wait() {
        let ordered = Ordered::new(PARTS, PARTS, BYTES_MAX);
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
                    Next::Rows(rows) => found.push(rows),
                    Next::Ended(rows) => read += rows as usize,
                    Next::Failed(_, error) => panic!("{error}"),
                    // What a helper has given back, under load.
                    Next::Nothing => match ordered.own() {
                        Own::Read(number) => {
                            (0..ROWS).for_each(|row| ordered.put_own(number, rows(number, row)));
                            ordered.end(number, End::Complete(1));
                        }
                        Own::Look | Own::Done => {}
                    },
                }
            }
        });
        let expected: Vec<_> = (0..PARTS).flat_map(|number| (0..ROWS).map(move |row| rows(number, row))).collect();
        assert!(found == expected, "{} of {} rows", found.len(), expected.len());
    }

    #[test]
    fn who_finds_no_room_gives_its_part_back_unless_it_is_the_first() {
        let ordered = Ordered::new(PARTS, PARTS, BYTES_MAX);
        assert_eq!((ordered.claim(), ordered.claim()), (Some(0), Some(1)));
        let put = (0..).take_while(|row| ordered.put(1, rows(1, *row))).count();
        assert_eq!((put, bytes(&ordered)), (BYTES_MAX / 4, 0), "it keeps nothing");
        assert!(ordered.put(0, vec![0; 2 * BYTES_MAX]), "a row that is larger than the room goes where there is none");
        assert_eq!(ordered.claim(), Some(2));
        assert!(!ordered.put(2, rows(2, 0)));
        // The first one waits: rows of it may be taken already.
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| ordered.put(0, rows(0, 1)));
            std::thread::sleep(2 * PATIENCE);
            assert!(matches!(ordered.next(), Next::Rows(rows) if rows.len() == 2 * BYTES_MAX));
            assert!(waits.join().unwrap());
        });
        assert!(matches!(ordered.next(), Next::Rows(found) if found == rows(0, 1)));
        ordered.end(0, End::Complete(0));
        assert!(matches!((ordered.next(), ordered.next()), (Next::Ended(0), Next::Nothing)));
        assert_eq!(ordered.own(), Own::Read(1));
        ordered.put_own(1, rows(1, 0));
        assert!(matches!(ordered.next(), Next::Rows(rows) if rows[..2] == [1, 0]));
    }

    #[test]
    fn who_takes_gives_its_own_part_back_where_nobody_else_makes_room() {
        let ordered = Ordered::new(PARTS, PARTS, BYTES_MAX);
        assert_eq!((ordered.claim(), ordered.own()), (Some(0), Own::Read(1)));
        ordered.put_own(1, vec![0; BYTES_MAX]);
        assert_eq!(ordered.goes_on(1), Some(true));
        ordered.put_own(1, vec![0; 1]);
        assert_eq!(ordered.goes_on(1), None, "the first part is read by another");
        ordered.lock().leave(0);
        assert_eq!((ordered.goes_on(1), bytes(&ordered)), (Some(false), 0));
        assert_eq!(ordered.own(), Own::Read(0));
    }

    #[test]
    fn few_parts_are_read_ahead() {
        let ordered = Ordered::new(PARTS, 2, BYTES_MAX);
        assert_eq!(
            (ordered.claim(), ordered.claim(), ordered.claim(), ordered.claim()),
            (Some(0), Some(1), Some(2), None)
        );
        ordered.end(0, End::Complete(7));
        assert!(matches!(ordered.next(), Next::Ended(7)));
        assert_eq!(ordered.claim(), Some(3));
        ordered.stop();
        assert_eq!((ordered.claim(), ordered.own()), (None, Own::Done));
        assert!(!ordered.put(1, rows(1, 0)));
    }
}
