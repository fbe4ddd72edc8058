//! One life of a store under the scheduler under test: what a seed decides, its threads, and what is compared.

mod follow;

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use schedules::{mpsc, thread};
use store::{Abort, Commit, Durability, RetriableTransaction, Store, StoreError, StoreOptions, Submit, Tx};

use super::ledger::{Ledger, Must, Outcome, outcome_of};
use super::state::{ACCOUNTS, Adding, COUNTS, Deed, Row, RowId, State, Trees, check};
use crate::simulation::content::Files;
use crate::simulation::disk::{Fault, FaultPlan, Manner, SimulatedDisk};
use crate::simulation::platter::{Event, Note, Platter};

/// The client whose transactions are in the log at the beginning of some lives.
const FIRST: u8 = 9;
/// The client of the large transaction, and the one after the second start.
const LARGE: u8 = 10;
const LAST: u8 = 11;
/// Keys that are taken.
const KEYS: u8 = 3;
/// Operations of the disk among which a fault begins.
const FAULT_WITHIN: u64 = 220;
/// Long values at the beginning of some lives: nearly a memtable.
const FIRST_ROWS: u16 = 9;
const FIRST_LEN: u32 = 22_000;

/// What a seed decides.
#[derive(Debug)]
struct Plan {
    manner: Manner,
    options: StoreOptions,
    /// Begins with a memtable that is nearly full.
    is_filled: bool,
    clients: u8,
    transactions: u16,
    /// The most transactions that a client submits before it waits.
    in_flight: usize,
    checkpoints: u32,
    backups: u32,
    snapshots: u32,
    large_rows: u8,
    /// Snapshots with which a reader of changes compares what it was told.
    followed: u32,
    fault: Option<(Fault, u64, u64)>,
    /// The first handle is dropped while clients are at work.
    is_left: bool,
    /// The power fails before the store is closed.
    is_cut_open: bool,
}

fn one_of<T: Copy>(rng: &mut SmallRng, choices: &[T]) -> T {
    choices[rng.random_range(0..choices.len())]
}

fn options() -> StoreOptions {
    let mut options = StoreOptions::default();
    options.memtable_bytes = 256 << 10;
    options.log_segment_bytes = 64 << 10;
    options.map_bytes = 1 << 28;
    options.readers_max = 8;
    options.places_bytes = 0;
    options.checkpoint_interval = Duration::from_secs(3600);
    options
}

impl Plan {
    fn any(rng: &mut SmallRng) -> Plan {
        let mut options = options();
        options.changes_kept_bytes = one_of(rng, &[0, 64 << 10]);
        options.durability = match rng.random_range(0..12) {
            0 => Durability::Interval(Duration::from_millis(5)),
            _ => Durability::Commit,
        };
        // Lost acknowledged transactions are no fault without syncs, so such lives have no power failure.
        let is_durable = options.durability == Durability::Commit;
        let faults: &[_] = &[
            (Fault::Broken, u64::MAX),
            (Fault::Broken, u64::MAX),
            (Fault::Broken, 1),
            (Fault::Full, 1),
            (Fault::Full, 40),
            (Fault::Short, 40),
            (Fault::Interrupted, 3),
            (Fault::WriteBack, 1),
            (Fault::Told, 1),
        ];
        let (fault, count) = one_of(rng, faults);
        let at = if fault == Fault::Told { rng.random_range(0..4) } else { rng.random_range(0..FAULT_WITHIN) };
        Plan {
            manner: Manner {
                has_direct: rng.random_bool(0.5),
                free_bytes: one_of(rng, &[None, Some(1 << 40), Some(1 << 40), Some(8 << 20)]),
            },
            options,
            is_filled: rng.random_bool(0.4),
            clients: rng.random_range(1..=3),
            transactions: rng.random_range(1..=6),
            in_flight: one_of(rng, &[1, 1, 3]),
            checkpoints: one_of(rng, &[0, 0, 1, 2]),
            backups: one_of(rng, &[0, 0, 0, 1]),
            snapshots: one_of(rng, &[0, 1, 2]),
            large_rows: one_of(rng, &[0, 0, 0, 4]),
            followed: one_of(rng, &[0, 0, 1, 3]),
            fault: (is_durable && rng.random_bool(0.4)).then_some((fault, count, at)),
            is_left: rng.random_bool(0.3),
            is_cut_open: rng.random_bool(0.3),
        }
    }
}

/// The files at the beginning of a life, and what clients know of their content.
#[derive(Clone)]
pub(crate) struct Beginning {
    files: Files,
    ledger: Ledger,
}

static BEGINNINGS: OnceLock<[Beginning; 2]> = OnceLock::new();

/// Makes the files at the beginning of lives; to be run under the scheduler once.
pub(crate) fn begin() {
    let of = |is_filled: bool| {
        let disk =
            Arc::new(SimulatedDisk::start(&Platter::default(), Manner { has_direct: true, free_bytes: None }, None));
        let life = Life::open(&disk, options(), Ledger::default()).expect("a disk without faults");
        if is_filled {
            for number in 0..FIRST_ROWS {
                let row = Row { deed: Deed::Add { count: 0, by: 1 }, long: Some((number as u8, FIRST_LEN)) };
                life.commit((FIRST, number), row);
            }
        }
        drop(life.store());
        let ledger = life.ledger().clone();
        drop(life);
        let mut platter = Platter::default();
        disk.take_record().iter().for_each(|event| platter.advance(event));
        Beginning { files: platter.content(), ledger }
    };
    let _ = BEGINNINGS.set([of(false), of(true)]);
}

/// What the threads of a life share.
pub(crate) struct Life {
    disk: Arc<SimulatedDisk>,
    store: Mutex<Option<Store>>,
    trees: Trees,
    options: StoreOptions,
    ledger: Mutex<Ledger>,
    /// Errors of the disk are possible.
    has_faults: bool,
}

impl Life {
    fn open(disk: &Arc<SimulatedDisk>, options: StoreOptions, ledger: Ledger) -> Result<Life, StoreError> {
        let (store, _) = Store::open_on(Arc::clone(disk) as Arc<_>, options.clone())?;
        store.set_fold(Arc::new(Adding));
        let trees = Trees::of(&store)?;
        let (store, ledger) = (Mutex::new(Some(store)), Mutex::new(ledger));
        Ok(Life { disk: Arc::clone(disk), store, trees, options, ledger, has_faults: false })
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A handle, for a thread of its own.
    fn store(&self) -> Store {
        let store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        store.clone().expect("it is open while threads begin")
    }

    fn leave(&self) {
        let store = self.store.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(store);
    }

    fn wrong(&self, what: String) {
        self.ledger().wrong.push(what);
    }

    /// An error that a life without faults must not have.
    fn note_error(&self, doing: &str, error: &StoreError) {
        let is_wrong = match error {
            StoreError::Busy | StoreError::Claimed | StoreError::Pinned { .. } => false,
            StoreError::Full => self.options_are_ample(),
            StoreError::Unknown(_) | StoreError::Poisoned | StoreError::Io { .. } => !self.has_faults,
            _ => true,
        };
        if is_wrong {
            self.wrong(format!("{doing}: {error}"));
        }
    }

    fn options_are_ample(&self) -> bool {
        !self.has_faults && self.disk.free().is_none_or(|bytes| bytes > 1 << 30)
    }

    fn begin(&self, id: RowId, row: Row) {
        self.ledger().begin(id, row);
    }

    /// Records the outcome of a transaction.
    fn end(&self, id: RowId, row: Row, outcome: Result<Commit, StoreError>, taken: bool) {
        match (outcome, row.deed) {
            (Ok(commit), _) => {
                self.ledger().end(id, Outcome::Done(commit.version.0));
                self.disk.note(Note::Acknowledged(id.0, u64::from(id.1), commit.version.0));
            }
            (Err(StoreError::Aborted), Deed::Take { key }) if taken => {
                self.ledger().end(id, Outcome::Refused);
                self.disk.note(Note::Refused(key, 0));
            }
            (Err(StoreError::Aborted), _) => self.wrong(format!("{id:?} was aborted: {row:?}")),
            (Err(error), _) => {
                self.ledger().end(id, outcome_of(&error));
                self.note_error("committing", &error);
            }
        }
    }

    fn commit(&self, id: RowId, row: Row) {
        self.begin(id, row);
        let mut taken = false;
        let outcome = self.store().commit(&mut |tx| row.prepare(&self.trees, id, tx, &mut taken));
        self.end(id, row, outcome, taken);
    }

    /// Reads a state, and compares it.
    fn look(&self, store: &Store, must: &Must, is_live: bool) -> Result<State, String> {
        let reader = store.reader().map_err(|error| error.to_string())?;
        let snapshot = reader.snapshot();
        let state = check(&snapshot, &self.trees)?;
        let version = is_live.then(|| snapshot.version().0);
        self.ledger().compare(&state, must, version)?;
        Ok(state)
    }
}

/// A transaction that was submitted.
struct Submitted {
    life: Arc<Life>,
    id: RowId,
    row: Row,
    taken: bool,
    ended: mpsc::Sender<()>,
}

impl RetriableTransaction for Submitted {
    fn prepare(&mut self, tx: &mut Tx<'_>) -> Result<(), Abort> {
        self.row.prepare(&self.life.trees, self.id, tx, &mut self.taken)
    }

    fn finish(self: Box<Self>, outcome: Result<Commit, StoreError>) {
        self.life.end(self.id, self.row, outcome, self.taken);
        let _ = self.ended.send(());
    }
}

fn any_row(rng: &mut SmallRng) -> Row {
    let deed = match rng.random_range(0..10) {
        0..4 => Deed::Add { count: rng.random_range(0..COUNTS), by: rng.random_range(-2..=3) },
        4..7 => {
            let from = rng.random_range(0..ACCOUNTS);
            Deed::Move { from, to: (from + 1) % ACCOUNTS, amount: rng.random_range(1..9) }
        }
        7 => Deed::Clear,
        _ => Deed::Take { key: rng.random_range(0..KEYS) },
    };
    let len = one_of(rng, &[0, 0, 100, 6_000, 16_000, 30_000]);
    Row { deed, long: (len > 0).then(|| (rng.random_range(0..3), len)) }
}

/// A client: commits, or submits some and waits for them.
fn client(life: &Arc<Life>, store: &Store, client: u8, plan: &Plan, mut rng: SmallRng) {
    let reader = match store.reader() {
        Ok(reader) => reader,
        Err(error) => return life.note_error("a reader", &error),
    };
    let (ended, ends) = mpsc::channel();
    let mut number = 0;
    while number < plan.transactions {
        let count = rng.random_range(1..=plan.in_flight);
        if count == 1 {
            let (id, row) = ((client, number), any_row(&mut rng));
            life.begin(id, row);
            let mut taken = false;
            let outcome = store.commit(&mut |tx| row.prepare(&life.trees, id, tx, &mut taken));
            life.end(id, row, outcome, taken);
            number += 1;
            continue;
        }
        let mut waiting = 0;
        for _ in 0..count {
            let (id, row) = ((client, number), any_row(&mut rng));
            number += 1;
            life.begin(id, row);
            let submitted = Submitted { life: Arc::clone(life), id, row, taken: false, ended: ended.clone() };
            match store.submit(&reader, Box::new(submitted)) {
                Submit::Queued => waiting += 1,
                Submit::Busy(_) => life.ledger().end(id, Outcome::Refused),
            }
        }
        for _ in 0..waiting {
            if ends.recv().is_err() {
                return life.wrong("a submitted transaction was dropped".to_string());
            }
        }
    }
}

/// Reads the accounts and puts rows, all or none.
fn large(life: &Arc<Life>, store: &Store, rows: u8) {
    let ids: Vec<RowId> = (0..u16::from(rows)).map(|number| (LARGE, number)).collect();
    let row = |id: &RowId| Row { deed: Deed::Part { count: 0, by: i64::from(id.1) + 1, first: 0, rows }, long: None };
    ids.iter().for_each(|id| life.begin(*id, row(id)));
    let attempt = || -> Result<Commit, StoreError> {
        let mut large = store.large(1 << 16, &[])?;
        let mut sum = 0;
        large.scan(life.trees.accounts, store::KeyRange::ALL, store::Direction::Forward, &mut |_, value| {
            sum += super::state::number(value);
            ControlFlow::Continue(())
        })?;
        if sum != 0 {
            life.wrong(format!("a large transaction reads accounts whose sum is {sum}"));
        }
        for id in &ids {
            large.put(life.trees.rows, &super::state::key_of(*id), &row(id).bytes());
            let Deed::Part { count, by, .. } = row(id).deed else { continue };
            large.fold(life.trees.counts, &[count], &by.to_le_bytes());
            large.check()?;
        }
        large.commit(life.trees.rows)
    };
    match attempt() {
        Ok(commit) => ids.iter().for_each(|id| life.end(*id, row(id), Ok(commit), false)),
        Err(error) => {
            let outcome = outcome_of(&error);
            ids.iter().for_each(|id| life.ledger().end(*id, outcome));
            life.note_error("a large transaction", &error);
        }
    }
}

/// A copy holds what was acknowledged before it was begun, and is one state.
fn back_up(life: &Arc<Life>, store: &Store) {
    let must = life.ledger().must();
    let manner = Manner { has_direct: false, free_bytes: Some(1 << 40) };
    let to = Arc::new(SimulatedDisk::start(&Platter::default(), manner, None));
    if let Err(error) = store.backup_on(&*to, &mut |_| ControlFlow::Continue(())) {
        return life.note_error("a backup", &error);
    }
    let compared = Store::open_on(to as Arc<_>, life.options.clone())
        .map_err(|error| error.to_string())
        .and_then(|(copy, _)| life.look(&copy, &must, false).map(drop));
    if let Err(wrong) = compared {
        life.wrong(format!("a copy: {wrong}"));
    }
}

/// Lives the life of a seed. A panic says what is wrong.
pub(crate) fn live(seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let plan = Arc::new(Plan::any(&mut rng));
    if let Err(wrong) = lives(&plan, &mut rng) {
        panic!("{wrong}; {plan:?}");
    }
}

fn lives(plan: &Arc<Plan>, rng: &mut SmallRng) -> Result<(), String> {
    let beginnings = BEGINNINGS.get().expect("the beginnings are made");
    let Beginning { files, ledger } = beginnings[usize::from(plan.is_filled)].clone();
    let disk = Arc::new(SimulatedDisk::start(&Platter::of(files.clone()), plan.manner, None));
    let mut life = Life::open(&disk, plan.options.clone(), ledger).expect("a disk without faults");
    if let Some((fault, count, at)) = plan.fault {
        life.has_faults = true;
        let at = if fault == Fault::Told { at } else { at + disk.operations() };
        disk.set_plan(Some(FaultPlan { fault, at, count }));
    }
    let life = Arc::new(life);
    let threads = start(&life, plan, rng);
    if plan.is_left {
        life.leave();
    }
    threads.into_iter().for_each(|thread| thread.join().expect("a client's panic is told at once"));
    let take = || (disk.take_record(), disk.first_met());
    let open = plan.is_cut_open.then(take);
    life.leave();
    let (record, first_met) = open.unwrap_or_else(take);
    let ledger = life.ledger().clone();
    if !ledger.wrong.is_empty() {
        return Err(format!("{:?}", ledger.wrong));
    }
    let (files, must) = cut(plan, &files, (&record, first_met), &ledger, rng);
    let of_after = |wrong: String| format!("after the power failure: {wrong}");
    check_left(plan, files, ledger, &must).map_err(of_after)
}

/// Opens what is left after a power failure, compares it, and goes on with it.
fn check_left(plan: &Plan, files: Files, ledger: Ledger, must: &Must) -> Result<(), String> {
    let disk = Arc::new(SimulatedDisk::start(&Platter::of(files), plan.manner, None));
    let life = Life::open(&disk, plan.options.clone(), ledger).map_err(|error| format!("opening: {error}"))?;
    let store = life.store();
    let report = store.verify();
    if !report.is_clean() {
        return Err(format!("verify: {:?}", report.faults));
    }
    let before = life.look(&store, must, false)?.rows.len();
    life.commit((LAST, 0), Row { deed: Deed::Add { count: 1, by: 1 }, long: None });
    let must = Must { rows: [(LAST, 0)].into(), ..Must::default() };
    let after = life.look(&store, &must, false)?.rows.len();
    if after != before + 1 {
        return Err(format!("{before} rows, and {after} after one more"));
    }
    match life.ledger().wrong.first() {
        None => Ok(()),
        Some(wrong) => Err(wrong.clone()),
    }
}

fn start(life: &Arc<Life>, plan: &Arc<Plan>, rng: &mut SmallRng) -> Vec<thread::JoinHandle<()>> {
    type Work = Box<dyn FnOnce(&Arc<Life>, &Store) + Send>;
    let mut works: Vec<(&str, Work)> = Vec::new();
    for number in 0..plan.clients {
        let (plan, rng) = (Arc::clone(plan), SmallRng::seed_from_u64(rng.random()));
        works.push(("client", Box::new(move |life, store| client(life, store, number, &plan, rng))));
    }
    for _ in 0..plan.snapshots.min(1) {
        let snapshots = plan.snapshots;
        works.push((
            "reader",
            Box::new(move |life, store| {
                for _ in 0..snapshots {
                    let must = life.ledger().must();
                    if let Err(wrong) = life.look(store, &must, true) {
                        life.wrong(format!("a snapshot: {wrong}"));
                    }
                }
            }),
        ));
    }
    if plan.followed > 0 {
        let snapshots = plan.followed;
        works.push(("changes", Box::new(move |life, store| follow::follow(life, store, snapshots))));
    }
    if plan.checkpoints > 0 {
        let checkpoints = plan.checkpoints;
        works.push((
            "checkpoints",
            Box::new(move |life, store| {
                for _ in 0..checkpoints {
                    if let Err(error) = store.checkpoint() {
                        life.note_error("a checkpoint", &error);
                    }
                }
            }),
        ));
    }
    if plan.backups > 0 {
        works.push(("backup", Box::new(back_up)));
    }
    if plan.large_rows > 0 {
        let rows = plan.large_rows;
        works.push(("large", Box::new(move |life, store| large(life, store, rows))));
    }
    let start = |(name, work): (&str, Work)| {
        let (life, store) = (Arc::clone(life), life.store());
        thread::Builder::new().name(name.to_string()).spawn(move || work(&life, &store)).expect("a thread")
    };
    works.into_iter().map(start).collect()
}

/// What is left on the disk after a power failure somewhere in the life, and what must be in it.
fn cut(
    plan: &Plan,
    files: &Files,
    (record, first_met): (&[Event], Option<(usize, bool)>),
    ledger: &Ledger,
    rng: &mut SmallRng,
) -> (Files, Must) {
    let is_durable = plan.options.durability == Durability::Commit;
    let is_broken = matches!(plan.fault, Some((Fault::Broken, u64::MAX, _)));
    let end = match (is_durable, is_broken) {
        (false, _) => record.len(),
        // The power failed when the disk did.
        (true, true) => first_met.map_or(record.len(), |(at, _)| at),
        (true, false) if rng.random_bool(0.3) => record.len(),
        (true, false) => rng.random_range(0..=record.len()),
    };
    let mut platter = Platter::of(files.clone());
    record[..end].iter().for_each(|event| platter.advance(event));
    let left = match is_durable {
        true => platter.crash(record.get(end), rng).content(),
        false => platter.content(),
    };
    let mut must = Must::default();
    if !is_durable {
        return (left, ledger.must());
    }
    // Those of the beginning.
    must.rows.extend(ledger.must().rows.iter().filter(|id| id.0 == FIRST));
    // What is acknowledged after the disk has failed did not need it any more.
    let known = if is_broken { record.len() } else { end };
    for event in &record[..known] {
        match event {
            Event::Note(Note::Acknowledged(client, number, _)) => drop(must.rows.insert((*client, *number as u16))),
            Event::Note(Note::Refused(key, _)) => drop(must.taken.insert(*key)),
            _ => {}
        }
    }
    (left, must)
}
