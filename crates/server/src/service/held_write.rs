//! Writes that a loop has taken and not passed to the database yet.
//!
//! A loop never waits, and spends at most [`TURN_MAX`] of a tick on held writes:
//!
//! - While another configuration takes over, the database accepts no writes for some milliseconds. Writes that arrive meanwhile
//!   are held, and so are later ones until all are passed on: writes of one connection keep their order.
//! - The lines of a bulk come from its body, as it arrives ([`LineSource`]). Bulks take turns, a few lines each. A bulk is alone
//!   among the requests of its connection, so no other request must keep its order relative to it.
//!
//! Bound: each write, and each line, was counted as waiting when it was taken (`write::admit`, `general::bulk`).

use docs::{
    CancelCheck, CollectionId, DocumentDatabase, Op, Precondition, ReaderSession, StepsCall, StepsDone, Submission,
    Write, WriteCallback,
};
use reactor::Loop;
use std::collections::VecDeque;
use std::time::Duration;

/// Time of a tick for held writes: all connections of the loop wait meanwhile.
const TURN_MAX: Duration = Duration::from_millis(1);
/// Lines of a bulk between two reads of the clock, and between two bulks.
const LINES_AT_A_TIME: usize = 8;
/// Interval of a loop without other work to try again while the database accepts no writes.
const TRY_AGAIN: Duration = Duration::from_millis(10);

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct HeldWrites {
    waiting: VecDeque<Held>,
    bulks: VecDeque<Bulk>,
    /// When the last timer fires, by the loop's clock.
    tries_again_ns: u64,
}

/// A write, and the database to which its collection numbers belong.
struct Held {
    database: DocumentDatabase,
    what: Call,
}

enum Call {
    Write(Box<Submission>),
    Steps(StepsCall, StepsDone),
}

/// Takes a write that is not for a loop, and returns any other.
pub(super) type TakeLarge = Box<dyn Fn(&DocumentDatabase, &ReaderSession, Submission) -> Option<Submission>>;

/// A bulk in progress.
pub(crate) struct Bulk {
    pub(crate) database: DocumentDatabase,
    pub(crate) collection: CollectionId,
    /// Takes the lines that are too large for a loop.
    pub(crate) take_large: TakeLarge,
    pub(crate) lines: Box<dyn LineSource>,
    /// Called while a line's document is checked: see [`Submission::over`].
    pub(crate) over: Option<CancelCheck>,
    /// A line that the database did not accept.
    pub(crate) given_back: Option<Box<Submission>>,
}

/// Source of a bulk's lines. If it has none at present, it wakes the loop when there is one.
pub(crate) trait LineSource {
    /// The next line, for this database.
    fn next(&mut self, database: &DocumentDatabase) -> NextLine;
}

/// The next line of a bulk.
pub(crate) enum NextLine {
    Line {
        text: Vec<u8>,
        /// Called when the line is durable or refused.
        done: WriteCallback,
    },
    /// There is no line yet.
    Wait,
    /// There is a line, but no room for it: others use all.
    WaitForOthers,
    End,
}

/// Progress of held writes, or of a bulk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Went {
    /// There is more work at once.
    On,
    /// There is no work until a wake-up.
    Waits,
    /// There will be work shortly.
    WaitsForOthers,
    /// The database accepts no writes at present.
    Shut,
    Ended,
}

impl Bulk {
    /// Submits a few lines.
    fn go_on(&mut self, session: &ReaderSession) -> Went {
        // A bulk may outlast many configurations: it keeps none of the old ones.
        if self.given_back.is_none() && self.database.is_superseded() {
            self.move_on();
        }
        for _ in 0..LINES_AT_A_TIME {
            let submission = match self.given_back.take() {
                Some(given_back) => *given_back,
                None => {
                    let (text, done) = match self.lines.next(&self.database) {
                        NextLine::Line { text, done } => (text, done),
                        NextLine::Wait => return Went::Waits,
                        NextLine::WaitForOthers => return Went::WaitsForOthers,
                        NextLine::End => return Went::Ended,
                    };
                    let op = Op::Insert { body: text };
                    let write = Write { collection: self.collection, op, precondition: Precondition::None };
                    let over = self.over.clone();
                    let submission = Submission { write, guard: None, required: None, over, long: None, done };
                    let Some(submission) = (self.take_large)(&self.database, session, submission) else { continue };
                    submission
                }
            };
            if let Err(given_back) = self.database.try_write(session, submission) {
                self.given_back = Some(given_back);
                return Went::Shut;
            }
        }
        Went::On
    }

    /// Continues with the newest database. If that has no such collection any more, the old one refuses each line.
    #[cold]
    fn move_on(&mut self) {
        let newest = self.database.newest();
        if let Some(collection) = newest.collection(&self.database.collection_at(self.collection).info.name) {
            (self.collection, self.database) = (collection, newest);
        }
    }
}

impl Held {
    /// Submits the write; returns it if the database accepts no writes.
    fn try_hand_over(self, session: &ReaderSession) -> Option<Held> {
        let Held { database, what } = self;
        let given_back = match what {
            Call::Write(submission) => database.try_write(session, *submission).map_err(Call::Write),
            Call::Steps(call, done) => {
                database.try_submit_steps(session, call, done).map_err(|(call, done)| Call::Steps(call, done))
            }
        };
        given_back.err().map(|what| Held { database, what })
    }
}

impl HeldWrites {
    /// Submits a write, now or as soon as the database accepts it.
    #[inline]
    pub(crate) fn write(&mut self, database: &DocumentDatabase, session: &ReaderSession, submission: Submission) {
        if !self.waiting.is_empty() {
            return self.hold(database, Call::Write(Box::new(submission)));
        }
        if let Err(submission) = database.try_write(session, submission) {
            self.hold(database, Call::Write(submission));
        }
    }

    /// The same for steps.
    #[inline]
    pub(crate) fn steps(
        &mut self,
        database: &DocumentDatabase,
        session: &ReaderSession,
        call: StepsCall,
        done: StepsDone,
    ) {
        if !self.waiting.is_empty() {
            return self.hold(database, Call::Steps(call, done));
        }
        if let Err((call, done)) = database.try_submit_steps(session, call, done) {
            self.hold(database, Call::Steps(call, done));
        }
    }

    /// Adds a bulk.
    pub(crate) fn bulk(&mut self, bulk: Bulk) {
        self.bulks.push_back(bulk);
    }

    #[cold]
    fn hold(&mut self, database: &DocumentDatabase, mut what: Call) {
        if let Call::Write(submission) = &mut what {
            // Its connection continues, so later writes would overtake it on another thread.
            submission.long = None;
        }
        self.waiting.push_back(Held { database: database.clone(), what });
    }

    /// Submits as much as one tick allows. Called once at the end of each tick; requests another tick if there is more.
    #[inline]
    pub(super) fn turn_ended(&mut self, session: &ReaderSession, lp: &Loop) {
        if !self.waiting.is_empty() || !self.bulks.is_empty() {
            self.go_on(session, lp);
        }
    }

    #[cold]
    fn go_on(&mut self, session: &ReaderSession, lp: &Loop) {
        let until_ns = lp.precise_now_ns() + TURN_MAX.as_nanos() as u64;
        match self.hand_over(session, lp, until_ns) {
            Went::Ended | Went::Waits => {}
            // The loop polls its connections, and does not sleep.
            Went::On => lp.run(Box::new(|_| {})),
            Went::Shut | Went::WaitsForOthers => {
                let now_ns = lp.now_ns();
                if now_ns >= self.tries_again_ns {
                    self.tries_again_ns = now_ns + TRY_AGAIN.as_nanos() as u64;
                    lp.after(TRY_AGAIN, Box::new(|_| {}));
                }
            }
        }
    }

    /// Submits while there is time, and returns the progress.
    fn hand_over(&mut self, session: &ReaderSession, lp: &Loop, until_ns: u64) -> Went {
        while let Some(held) = self.waiting.pop_front() {
            if let Some(held) = held.try_hand_over(session) {
                self.waiting.push_front(held);
                return Went::Shut;
            }
            if lp.precise_now_ns() >= until_ns {
                return self.left();
            }
        }
        // Consecutive bulks without a line to submit.
        let (mut idle, mut outcome) = (0, Went::Waits);
        while idle < self.bulks.len()
            && let Some(mut bulk) = self.bulks.pop_front()
        {
            match bulk.go_on(session) {
                Went::Ended => drop(bulk),
                Went::Shut => {
                    self.bulks.push_front(bulk);
                    return Went::Shut;
                }
                went => {
                    idle = if went == Went::On { 0 } else { idle + 1 };
                    outcome = if went == Went::WaitsForOthers { went } else { outcome };
                    self.bulks.push_back(bulk);
                }
            }
            if lp.precise_now_ns() >= until_ns {
                return self.left();
            }
        }
        outcome
    }

    fn left(&self) -> Went {
        if self.waiting.is_empty() && self.bulks.is_empty() { Went::Ended } else { Went::On }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use docs::config::Config;
    use docs::{DatabaseOpenError, WriteError};
    use reactor::{Reactor, ReactorSettings};
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::sync::mpsc::{Receiver, Sender, channel};

    const ITEMS: &str = "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n";

    /// A loop without connections, and the database to which it writes.
    struct Side {
        _folder: tempfile::TempDir,
        database: DocumentDatabase,
        lp: Loop,
        sender: Sender<(u32, bool)>,
        outcomes: Receiver<(u32, bool)>,
    }

    impl Side {
        fn new() -> Side {
            let folder = tempfile::tempdir().unwrap();
            let mut options = docs::engine::StoreOptions::default();
            options.durability = docs::engine::Durability::None;
            let (database, _) = DocumentDatabase::open(&config(), folder.path(), options).unwrap();
            let lp =
                Reactor::new(ReactorSettings { loops: 1, ..ReactorSettings::default() }).unwrap().loops().remove(0);
            let (sender, outcomes) = channel();
            Side { _folder: folder, database, lp, sender, outcomes }
        }

        fn done(&self, id: u32) -> WriteCallback {
            let sender = self.sender.clone();
            Box::new(move |outcome: Result<_, WriteError>| sender.send((id, outcome.is_ok())).unwrap())
        }

        /// A write of document 1; its outcome is reported with this number.
        fn write(&self, held: &mut HeldWrites, session: &ReaderSession, number: u32) {
            let op = Op::Insert { body: b"{\"id\":1}".to_vec() };
            let write = Write { collection: CollectionId(0), op, precondition: Precondition::None };
            let submission =
                Submission { write, guard: None, required: None, over: None, long: None, done: self.done(number) };
            held.write(&self.database, session, submission);
        }

        fn bulk(&self, held: &mut HeldWrites, ids: std::ops::Range<u32>) {
            self.bulk_of(held, Ids { left: Rc::new(RefCell::new(ids)), ends: true, sender: self.sender.clone() });
        }

        fn bulk_of(&self, held: &mut HeldWrites, lines: Ids) {
            let take_large = Box::new(|_: &DocumentDatabase, _: &ReaderSession, submission| Some(submission));
            let (database, collection) = (self.database.clone(), CollectionId(0));
            held.bulk(Bulk { database, collection, take_large, lines: Box::new(lines), over: None, given_back: None });
        }

        /// The numbers of the first outcomes: of the successful and of the refused ones.
        fn outcomes(&self, count: usize) -> (Vec<u32>, Vec<u32>) {
            let mut outcomes: Vec<(u32, bool)> = (0..count).map(|_| self.outcomes.recv().unwrap()).collect();
            outcomes.sort_unstable();
            let (done, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(|(_, is_done)| *is_done);
            [done, refused].map(|of_kind| of_kind.into_iter().map(|(number, _)| number).collect()).into()
        }
    }

    /// A line for each of these documents.
    struct Ids {
        left: Rc<RefCell<std::ops::Range<u32>>>,
        /// No more lines will come.
        ends: bool,
        sender: Sender<(u32, bool)>,
    }

    impl LineSource for Ids {
        fn next(&mut self, _: &DocumentDatabase) -> NextLine {
            let Some(id) = self.left.borrow_mut().next() else {
                return if self.ends { NextLine::End } else { NextLine::Wait };
            };
            let sender = self.sender.clone();
            let done: WriteCallback =
                Box::new(move |outcome: Result<_, WriteError>| sender.send((id, outcome.is_ok())).unwrap());
            NextLine::Line { text: format!("{{\"id\":{id}}}").into_bytes(), done }
        }
    }

    fn config() -> Config {
        Config::parse("c.toml".as_ref(), ITEMS).unwrap()
    }

    #[test]
    fn writes_that_come_while_a_configuration_takes_over_keep_their_order_and_no_loop_waits() {
        let (side, mut held) = (Side::new(), HeldWrites::default());
        let session = side.database.session().unwrap();
        let publish = |_: &DocumentDatabase| {
            // On the thread that would accept them: waiting here would never end.
            side.write(&mut held, &session, 1);
            held.turn_ended(&session, &side.lp);
            side.bulk(&mut held, 10..20);
            side.write(&mut held, &session, 2);
            held.turn_ended(&session, &side.lp);
            assert_eq!((held.waiting.len(), held.bulks.len()), (2, 1));
            Ok::<(), DatabaseOpenError>(())
        };
        let (new, _) = side.database.reopen(&config(), publish).unwrap();
        assert!(side.outcomes.try_recv().is_err());
        // A later write does not overtake those that wait.
        side.write(&mut held, &session, 3);
        while !held.waiting.is_empty() || !held.bulks.is_empty() {
            held.turn_ended(&session, &side.lp);
        }
        assert_eq!(side.outcomes(13), ([1].into_iter().chain(10..20).collect(), vec![2, 3]), "the first has the key");
        assert!(new.is_same(&side.database.newest()));
    }

    #[test]
    fn a_turn_ends_in_time_and_bulks_take_turns_and_no_single_write_waits_for_them() {
        let (side, mut held) = (Side::new(), HeldWrites::default());
        let session = side.database.session().unwrap();
        let [first, second] = [100..120, 200..210].map(|ids| Rc::new(RefCell::new(ids)));
        for left in [&first, &second] {
            side.bulk_of(&mut held, Ids { left: Rc::clone(left), ends: true, sender: side.sender.clone() });
        }
        let left = || (first.borrow().len(), second.borrow().len());
        // The tick's time is over at once.
        assert_eq!(held.hand_over(&session, &side.lp, 0), Went::On);
        assert_eq!(left(), (12, 10));
        side.write(&mut held, &session, 1);
        assert!(held.waiting.is_empty(), "no write waits for bulks");
        for expected in [(12, 2), (4, 2), (4, 0), (0, 0)] {
            let went = held.hand_over(&session, &side.lp, 0);
            assert_eq!((left(), went), (expected, if expected == (0, 0) { Went::Ended } else { Went::On }));
        }
        assert_eq!(side.outcomes(31), ([1].into_iter().chain(100..120).chain(200..210).collect(), vec![]));
    }

    #[test]
    fn bulks_without_lines_keep_no_loop_awake_and_hold_up_none_that_has_some() {
        let (side, mut held) = (Side::new(), HeldWrites::default());
        let session = side.database.session().unwrap();
        let open = Rc::new(RefCell::new(0..0));
        for _ in 0..3 {
            side.bulk_of(&mut held, Ids { left: Rc::clone(&open), ends: false, sender: side.sender.clone() });
        }
        side.bulk(&mut held, 100..120);
        assert_eq!(held.hand_over(&session, &side.lp, u64::MAX), Went::Waits);
        assert_eq!((side.outcomes(20).0.len(), held.bulks.len()), (20, 3));
        *open.borrow_mut() = 200..210;
        assert_eq!(held.hand_over(&session, &side.lp, u64::MAX), Went::Waits);
        assert_eq!((side.outcomes(10).0.len(), held.bulks.len()), (10, 3));
    }
}
