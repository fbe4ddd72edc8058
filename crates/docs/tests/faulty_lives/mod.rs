//! Lives of a database on a disk that fails, is full or stutters from one operation on. A life includes documents, an import,
//! an index, unique fields, a reference, a rule, views, and changed configurations. Invariants, whichever operation the fault
//! hits:
//!
//! - Every failure is reported as an error of the disk; nothing panics or is reported as damaged.
//! - Reads continue and return everything acknowledged. Refused writes have changed nothing.
//! - After a failed sync nothing is acknowledged any more; after any other fault writes continue once the disk is sound, and a
//!   refused or aborted change of the configuration can be repeated.
//! - When the database is opened again, after a restart or a power failure at any moment, everything acknowledged exists,
//!   transactions are complete, indexes, unique fields and references are consistent, and every view equals its query from
//!   scratch.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod declared;
mod model;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use docs::RuleState;
use docs::engine::{Store, StoreOptions};
use docs::{DatabaseOpenError, DocumentDatabase, ReadError, ReadinessState};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use store::disk::Disk;

use self::declared::Declared;
use self::model::{BUSY, State, Step, Told, of_open, of_store};
use crate::declared_views::try_rows;
use crate::simulation::disk::{FaultPlan, Manner, SimulatedDisk};
use crate::simulation::platter::{Event, Note, Platter};
use crate::simulation::sweep::Lives;

/// Time limit for writes, openings and builds to succeed after the disk is sound again.
const PATIENCE: Duration = Duration::from_secs(20);
/// Failures after which the disk becomes sound.
const FAILURES: u32 = 3;
/// Power failures that are tested in each life.
const POWER_FAILURES: usize = 2;

/// The error with which the publisher refuses a new database.
const REFUSED: &str = "it is not wanted";

/// The initial state of a life.
pub(crate) struct Start {
    seed: u64,
    manner: Manner,
    platter: Platter,
    state: State,
}

/// Why a life ends early.
enum End {
    /// A sync has failed.
    Poisoned,
    Wrong(String),
}

type Lived<T = ()> = Result<T, End>;

fn wrong<T>(what: impl Into<String>) -> Lived<T> {
    Err(End::Wrong(what.into()))
}

fn open(disk: &Arc<SimulatedDisk>, declared: Declared, is_later: bool) -> Result<DocumentDatabase, DatabaseOpenError> {
    let mut options = StoreOptions::default();
    options.memtable_bytes = 256 << 10;
    options.log_segment_bytes = 64 << 10;
    options.map_bytes = 1 << 30;
    options.places_bytes = 64 << 10;
    let (store, _) = Store::open_on(Arc::clone(disk) as Arc<dyn Disk>, options)?;
    DocumentDatabase::with_store(&declared.config(is_later), Path::new("nowhere"), store)
}

/// The parts that are not complete yet, or have failed.
fn unsettled(database: &DocumentDatabase) -> Vec<String> {
    let mut left = Vec::new();
    let mut add = |what: String, state: ReadinessState| {
        if state != ReadinessState::Ready {
            left.push(format!("{what}: {state:?}"));
        }
    };
    for info in &database.catalog().collections {
        info.indexes.iter().for_each(|index| add(format!("index {:?}", index.fields), index.readiness.state()));
        info.unique.iter().for_each(|unique| add(format!("unique {}", unique.shown()), unique.readiness.state()));
    }
    database.rules().into_iter().for_each(|rule| add(format!("{} {:?}", rule.kind, rule.field), rule.state));
    let views = database.views().into_iter();
    let views = views.filter(|view| !matches!(view.state, RuleState::Ready | RuleState::Dropped));
    left.extend(views.map(|view| format!("view {}: {:?} {:?}", view.name, view.state, view.failure)));
    left
}

fn settle(database: &DocumentDatabase) -> Vec<String> {
    database.wait_for_indexes();
    database.wait_for_views();
    unsettled(database)
}

/// Checks everything that answers queries, even after a failed change or build: indexes are consistent, and views, including
/// old ones that still serve, equal their queries.
fn check_answers(database: &DocumentDatabase) -> Result<(), String> {
    if !database.is_settled() {
        return Ok(());
    }
    let report = docs::verify::database(database).map_err(|error| error.to_string())?;
    if !report.is_clean() {
        return Err(format!("verification: {:?}", report.faults));
    }
    for view in database.views().into_iter().filter(|view| view.state == RuleState::Ready) {
        let (name, query) = (view.name, view.query);
        let (kept, fresh) = (try_rows(database, &format!("SELECT * FROM {name}"))?, try_rows(database, &query)?);
        if kept != fresh {
            return Err(format!("view {name} answers {kept:?}; `{query}` from scratch {fresh:?}"));
        }
    }
    Ok(())
}

/// Checks that documents, indexes and views are consistent. `Ok(Some)`: the disk prevented the check, as verifying a view sorts
/// on disk.
fn check_whole(database: &DocumentDatabase, declared: Declared) -> Result<Option<String>, String> {
    let report = docs::verify::database(database).map_err(|error| error.to_string())?;
    if !report.is_clean() {
        return Err(format!("verification: {:?}", report.faults));
    }
    for (name, query) in declared.views() {
        let (kept, fresh) = (try_rows(database, &format!("SELECT * FROM {name}"))?, try_rows(database, query)?);
        if kept != fresh {
            return Err(format!("view {name} has {kept:?}; from scratch {fresh:?}"));
        }
        match database.verify_view(name) {
            Ok(Some(report)) if report.is_clean() => {}
            Err(ReadError::Store(error)) if matches!(of_store(&error), Told::Nothing(_)) => {
                return Ok(Some(error.to_string()));
            }
            other => return Err(format!("view {name}: {other:?}")),
        }
    }
    Ok(None)
}

/// A life in progress.
struct Life {
    rng: SmallRng,
    manner: Manner,
    /// The disk's content at the start of the process, and the simulated disk since.
    platter: Platter,
    disk: Arc<SimulatedDisk>,
    /// The same for earlier processes.
    passed: Vec<(Platter, Vec<Event>)>,
    /// The scheduled fault, counted from this process's first operation.
    plan: Option<FaultPlan>,
    met: u64,
    /// Operations of earlier processes.
    operations: u64,
    /// The state after each transaction, by its number.
    states: Vec<State>,
    /// The current state.
    state: State,
    declared: Declared,
    is_later: bool,
    database: Option<DocumentDatabase>,
    failures: u32,
    sound_since: Option<(Instant, String)>,
}

impl Life {
    fn new(start: &Start, plan: Option<FaultPlan>) -> Life {
        let platter = start.platter.clone();
        let disk = Arc::new(SimulatedDisk::start(&platter, start.manner, plan));
        Life {
            rng: SmallRng::seed_from_u64(start.seed),
            manner: start.manner,
            platter,
            disk,
            passed: Vec::new(),
            plan,
            met: 0,
            operations: 0,
            states: vec![start.state.clone()],
            state: start.state.clone(),
            declared: Declared::First,
            is_later: start.seed.is_multiple_of(3),
            database: None,
            failures: 0,
            sound_since: None,
        }
    }

    fn database(&self) -> &DocumentDatabase {
        self.database.as_ref().unwrap()
    }

    /// Runs the whole life.
    fn live(&mut self, seed: u64) -> Lived {
        self.open(Declared::First)?;
        if self.state == State::default() {
            self.step(|rng, _| Step::first(rng))?;
        }
        self.steps(8)?;
        self.checkpoint();
        self.steps(2)?;
        self.refused_change(Declared::Third)?;
        self.steps(2)?;
        self.change(Declared::Second, seed.is_multiple_of(2))?;
        self.steps(3)?;
        self.settle()?;
        self.steps(4)?;
        self.step(Step::more)?;
        self.checkpoint();
        self.steps(3)?;
        self.change(Declared::Third, !seed.is_multiple_of(2))?;
        self.steps(2)?;
        self.settle()?;
        self.change(Declared::First, true)?;
        self.steps(2)?;
        self.settle()
    }

    /// Ends the process; the next one starts with the disk's content.
    fn restart(&mut self) {
        self.database = None;
        self.met += self.disk.met();
        let record = self.disk.take_record();
        let mut platter = self.platter.clone();
        record.iter().for_each(|event| platter.advance(event));
        self.passed.push((std::mem::replace(&mut self.platter, platter), record));
        let operations = self.disk.operations();
        self.operations += operations;
        self.plan = self.plan.map(|plan| {
            let passed = operations.saturating_sub(plan.at);
            FaultPlan { at: plan.at.saturating_sub(operations), count: plan.count.saturating_sub(passed), ..plan }
        });
        self.disk = Arc::new(SimulatedDisk::start(&self.platter, self.manner, self.plan));
    }

    fn make_sound(&mut self, why: &str) {
        self.plan = None;
        self.disk.set_plan(None);
        if self.sound_since.is_none() {
            self.sound_since = Some((Instant::now(), why.to_string()));
        }
    }

    /// Records a failure without consequences: the operation may be retried.
    fn failed(&mut self, doing: &str, why: &str) -> Lived {
        if self.met + self.disk.met() == 0 {
            return wrong(format!("{doing} failed without a fault: {why}"));
        }
        self.failures += 1;
        self.look(&[])?;
        if self.is_poisoned() {
            return self.poisoned(&[]);
        }
        if let Some((since, first)) = &self.sound_since {
            if since.elapsed() > PATIENCE {
                return wrong(format!("after `{first}` {doing} does not go on: {why}"));
            }
            std::thread::sleep(Duration::from_millis(2));
        } else if self.failures >= FAILURES {
            self.make_sound(why);
        }
        Ok(())
    }

    fn is_poisoned(&self) -> bool {
        self.database.as_ref().is_some_and(|database| database.store().stats().is_poisoned)
    }

    /// Checks that reads continue, and return the acknowledged state or one of `others`.
    fn look(&self, others: &[State]) -> Lived {
        let Some(database) = &self.database else { return Ok(()) };
        match State::of(database) {
            Err(why) => wrong(format!("reads do not go on: {why}")),
            Ok(found) if found == self.state || others.contains(&found) => check_answers(database).or_else(wrong),
            Ok(found) => wrong(format!("reads show another state: {}", self.state.difference(&found))),
        }
    }

    /// After a failed sync: acknowledged data is still readable, and nothing is acknowledged any more.
    fn poisoned(&mut self, others: &[State]) -> Lived {
        self.look(others)?;
        self.disk.set_plan(None);
        match Step::any(&mut self.rng, &self.state).run(self.database()) {
            Err(Told::Nothing(_) | Told::Unknown(_)) => {}
            other => return wrong(format!("after a failed sync a write is answered by {other:?}")),
        }
        self.look(others)?;
        Err(End::Poisoned)
    }

    fn open(&mut self, declared: Declared) -> Lived {
        self.declared = declared;
        loop {
            match open(&self.disk, declared, self.is_later) {
                Ok(database) => {
                    self.database = Some(database);
                    return self.look(&[]);
                }
                Err(error) => match of_open(&error) {
                    Told::Wrong(why) => return wrong(format!("opening: {why}")),
                    Told::Nothing(why) | Told::Unknown(why) => {
                        self.failed("opening", &why)?;
                        self.restart();
                    }
                },
            }
        }
    }

    /// Runs a transaction, retrying until it succeeds. Each attempt may be another transaction.
    fn step(&mut self, make: impl Fn(&mut SmallRng, &State) -> Step) -> Lived {
        loop {
            let step = make(&mut self.rng, &self.state);
            let (next, number) = (self.state.after(&step), self.states.len() as u64);
            self.states.push(next.clone());
            self.disk.note(Note::Begun(0, number));
            match step.run(self.database()) {
                Ok(()) => {
                    self.disk.note(Note::Acknowledged(0, number, 0));
                    self.state = next;
                    return Ok(());
                }
                Err(Told::Wrong(why)) => return wrong(format!("writing: {why}")),
                Err(Told::Unknown(_)) => return self.poisoned(&[next]),
                Err(Told::Nothing(why)) => {
                    self.disk.note(Note::Refused(0, number));
                    self.failed("writing", &why)?;
                    if why == BUSY {
                        // The catalog could not be restored after a refused change: a successful change lets writes continue.
                        self.change(self.declared, true)?;
                    }
                }
            }
        }
    }

    fn steps(&mut self, count: u32) -> Lived {
        (0..count).try_for_each(|_| self.step(Step::any))
    }

    /// The store itself retries failed parts.
    fn checkpoint(&self) {
        let _ = self.database().store().checkpoint();
    }

    /// Changes the configuration: beside reads and writes, or by a restart.
    fn change(&mut self, declared: Declared, is_beside: bool) -> Lived {
        if !is_beside {
            self.restart();
            return self.open(declared);
        }
        loop {
            match self.database().reopen::<DatabaseOpenError>(&declared.config(true), |_| Ok(())) {
                Ok((next, _)) => {
                    (self.database, self.declared) = (Some(next), declared);
                    return Ok(());
                }
                Err(error) => match of_open(&error) {
                    Told::Wrong(why) => return wrong(format!("another configuration: {why}")),
                    Told::Nothing(why) | Told::Unknown(why) => self.failed("another configuration", &why)?,
                },
            }
        }
    }

    /// A change of the configuration that is refused by the publisher: everything continues as before.
    fn refused_change(&mut self, declared: Declared) -> Lived {
        let refuse = |_: &DocumentDatabase| Err(DatabaseOpenError::Mismatch(REFUSED.to_string()));
        match self.database().reopen::<DatabaseOpenError>(&declared.config(true), refuse) {
            Err(DatabaseOpenError::Mismatch(why)) if why == REFUSED => self.look(&[]),
            Err(error) => match of_open(&error) {
                Told::Wrong(why) => wrong(format!("a refused configuration: {why}")),
                Told::Nothing(why) | Told::Unknown(why) => self.failed("a refused configuration", &why),
            },
            Ok(_) => wrong("a refused configuration has taken over"),
        }
    }

    /// Waits until everything is built; builds that the fault stopped are restarted with the same configuration.
    fn settle(&mut self) -> Lived {
        loop {
            let left = settle(self.database());
            if self.is_poisoned() {
                return self.poisoned(&[]);
            }
            if left.is_empty() {
                self.look(&[])?;
                match check_whole(self.database(), self.declared) {
                    Ok(None) => return Ok(()),
                    Ok(Some(why)) => self.failed("verifying", &why)?,
                    Err(why) => return wrong(why),
                }
                continue;
            }
            if left.iter().any(|what| what.contains("damaged")) {
                return wrong(format!("called damaged: {left:?}"));
            }
            if left.iter().any(|what| what.contains("Building")) {
                return wrong(format!("a build has ended without a word: {left:?}"));
            }
            self.failed("building", &format!("{left:?}"))?;
            self.change(self.declared, true)?;
        }
    }

    /// The allowed states after `end` operations of a process's record, preceded by the earlier processes.
    fn allowed(&self, passed: usize, end: usize) -> Vec<State> {
        let (mut last, mut open) = (0, None);
        let before = self.passed[..passed].iter().flat_map(|(_, record)| record);
        for event in before.chain(&self.passed[passed].1[..end]) {
            match event {
                Event::Note(Note::Begun(_, number)) => open = Some(*number),
                Event::Note(Note::Refused(..)) => open = None,
                Event::Note(Note::Acknowledged(_, number, _)) => (last, open) = (*number, None),
                _ => {}
            }
        }
        let numbers = std::iter::once(last).chain(open);
        numbers.map(|number| self.states[number as usize].clone()).collect()
    }

    /// Checks the database after a restart, and after power failures: at the end, at other moments, and during recovery.
    fn check_reopened(&mut self) -> Result<(), String> {
        self.restart();
        let (last, end) = (self.passed.len() - 1, self.passed[self.passed.len() - 1].1.len());
        let allowed = self.allowed(last, end);
        let told = |when: &'static str| move |wrong: String| format!("after {when}: {wrong}");
        let platter = self.platter.clone();
        let (found, record) =
            recover(&platter, self.manner, &allowed, &mut self.rng, true).map_err(told("a restart"))?;
        let lost = platter.crash(None, &mut self.rng);
        recover(&lost, self.manner, &allowed, &mut self.rng, false).map_err(told("a power failure"))?;
        for _ in 0..POWER_FAILURES {
            let passed = self.rng.random_range(0..self.passed.len());
            let end = self.rng.random_range(0..=self.passed[passed].1.len());
            let (mut platter, record) = self.passed[passed].clone();
            record[..end].iter().for_each(|event| platter.advance(event));
            let lost = platter.crash(record.get(end), &mut self.rng);
            let allowed = self.allowed(passed, end);
            recover(&lost, self.manner, &allowed, &mut self.rng, false).map_err(told("a power failure in between"))?;
        }
        let mut restarted = platter;
        let end = self.rng.random_range(0..=record.len());
        record[..end].iter().for_each(|event| restarted.advance(event));
        let lost = restarted.crash(record.get(end), &mut self.rng);
        // A transaction with an unknown outcome may be lost until the opening has shown it.
        let is_shown = record[..end].iter().any(|event| matches!(event, Event::Note(Note::Opened)));
        let allowed = if is_shown { vec![found] } else { allowed };
        recover(&lost, self.manner, &allowed, &mut self.rng, false)
            .map_err(told("a restart and a power failure"))
            .map(drop)
    }
}

/// Opens the remaining data with any configuration and checks it. If `goes_on`, the database then changes to another
/// configuration. Returns the state found, and the record up to that point.
fn recover(
    platter: &Platter,
    manner: Manner,
    allowed: &[State],
    rng: &mut SmallRng,
    goes_on: bool,
) -> Result<(State, Vec<Event>), String> {
    let disk = Arc::new(SimulatedDisk::start(platter, manner, None));
    let declared = Declared::any(rng);
    let mut database = open(&disk, declared, rng.random_bool(0.5)).map_err(|error| format!("opening: {error}"))?;
    disk.note(Note::Opened);
    let found = State::of(&database)?;
    if !allowed.contains(&found) {
        let differences: Vec<String> = allowed.iter().map(|state| state.difference(&found)).collect();
        return Err(format!("another state is found; from those that may be it differs: {differences:?}"));
    }
    let check = |database: &DocumentDatabase, declared: Declared| match &settle(database)[..] {
        [] => check_whole(database, declared).and_then(|hindered| hindered.map_or(Ok(()), Err)),
        left => Err(format!("not built: {left:?}")),
    };
    check(&database, declared)?;
    let record = disk.take_record();
    let mut state = found.clone();
    for step in 0..if goes_on { 6 } else { 2 } {
        if goes_on && step == 3 {
            let next = Declared::any(rng);
            let opened = database.reopen::<DatabaseOpenError>(&next.config(true), |_| Ok(()));
            (database, _) = opened.map_err(|error| format!("another configuration: {error}"))?;
            check(&database, next)?;
        }
        let step = Step::any(rng, &state);
        step.run(&database).map_err(|told| format!("it does not go on: {told:?}"))?;
        state = state.after(&step);
    }
    let shown = State::of(&database)?;
    if shown != state {
        return Err(format!("after it went on: {}", state.difference(&shown)));
    }
    docs::verify::database(&database).map_err(|error| error.to_string()).and_then(|report| {
        if report.is_clean() { Ok(()) } else { Err(format!("after it went on: {:?}", report.faults)) }
    })?;
    Ok((found, record))
}

impl Start {
    /// An empty disk.
    pub(crate) fn empty(seed: u64) -> Start {
        let manner = Manner { has_direct: seed.is_multiple_of(2), free_bytes: Some(1 << 40) };
        Start { seed, manner, platter: Platter::default(), state: State::default() }
    }

    /// The disk after a database that has worked for a while was killed.
    pub(crate) fn killed(seed: u64) -> Start {
        let start = Start::empty(seed);
        let mut life = Life::new(&start, None);
        let lived = life.open(Declared::First).and_then(|()| {
            life.step(|rng, _| Step::first(rng))?;
            life.steps(20)
        });
        assert!(lived.is_ok());
        life.restart();
        Start { platter: life.platter, state: life.state, ..start }
    }
}

impl Lives for Start {
    fn live_with(&self, faults: FaultPlan) -> Result<bool, String> {
        let mut life = Life::new(self, Some(faults));
        if let Err(End::Wrong(what)) = life.live(self.seed) {
            return Err(what);
        }
        life.disk.set_plan(None);
        life.plan = None;
        let operations = life.disk.operations() + life.operations;
        life.check_reopened()?;
        Ok(operations > faults.at)
    }
}
