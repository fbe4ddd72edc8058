//! Crashes: at any operation of a store's disk the power fails or the process is killed.
//!
//! A chain is a sequence of lives of one store, all from one seed. The disk operations of each life are recorded. At
//! many places of the record the test computes what the disk would hold, opens a store on it, and compares its content
//! with what was acknowledged until then. Some of these recoveries crash in the same way at any of their own
//! operations, and so on. The next life begins with the result of one of the crashes.
//!
//! What must hold:
//!
//! - With `Durability::Commit`, every acknowledged transaction is there. Without it, a power failure must preserve what
//!   was acknowledged before a completed checkpoint was requested, and what an opened store contained; of later
//!   transactions a prefix in the order of versions is there. After a kill, where the kernel holds all that was
//!   written, every acknowledged transaction is there.
//! - Each transaction is there whole or not at all, and there is nothing else ([`history::check`]).
//! - `verify` is clean and its counts are right, the readers of changes return what the transactions did ([`follow`]),
//!   and the store opens.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use store::disk::Disk;
use store::{Durability, Store};

use super::content::Content;
use super::disk::SimulatedDisk;
use super::follow;
use super::history::{self, Bounds, History, Writer};
use super::life::{self, Plan};
use super::platter::{Event, Note, Platter};
use super::sweep::text_of;

/// Maximum number of lives of one store.
const LIVES_MAX: u32 = 5;
/// Number of crashes that are computed from one life.
const CRASHES_PER_LIFE: usize = 150;
/// Percentage of recoveries that crash, and the maximum depth.
const NESTED_SHARE: u32 = 15;
const NESTED_MAX: u32 = 3;
/// The percentage after a kill, which leaves more unsynced data.
const NESTED_SHARE_OF_KILLS: u32 = 60;
/// Percentage of crashes that are kills instead of power failures.
const KILL_SHARE: u32 = 15;

/// One recovery in this many, by the number of its files, has its changes followed and its pages counted.
const FOLLOWED_EVERY: usize = 3;

/// What a campaign has done so far.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) crashes: AtomicU64,
    pub(crate) kills: AtomicU64,
    pub(crate) nested: AtomicU64,
    pub(crate) lives: AtomicU64,
    /// Events of the disk in all lives.
    pub(crate) events: AtomicU64,
}

/// A store that did not recover correctly.
pub(crate) struct Failure {
    pub(crate) seed: u64,
    pub(crate) what: String,
    /// The files before the recovery that failed, and the expected content.
    pub(crate) files: BTreeMap<String, Content>,
    pub(crate) history: History,
    pub(crate) bounds: Bounds,
    pub(crate) plan: Plan,
}

/// The state of the writers at a place of the record.
struct Progress {
    found: Vec<u64>,
    is_opened: bool,
    begun: Vec<u64>,
    acknowledged: Vec<u64>,
    /// The acknowledged transactions when each running checkpoint was requested.
    asked: BTreeMap<u64, Vec<u64>>,
    durable: Vec<u64>,
}

impl Progress {
    /// For a life that begins with `wreck`, whose store contained `found` when it was opened.
    fn new(wreck: &Wreck, found: &[u64]) -> Progress {
        Progress {
            found: found.to_vec(),
            is_opened: false,
            begun: found.to_vec(),
            acknowledged: wreck.bounds.low.clone(),
            asked: BTreeMap::new(),
            durable: wreck.durable.clone(),
        }
    }

    fn advance(&mut self, note: &Note) {
        match *note {
            Note::Opened => {
                self.is_opened = true;
                self.acknowledged = self.found.clone();
                self.durable = self.found.clone();
            }
            Note::Begun(writer, number) => self.begun[usize::from(writer)] = number,
            Note::Acknowledged(writer, number, _) => {
                let last = &mut self.acknowledged[usize::from(writer)];
                *last = number.max(*last);
            }
            Note::Refused(..) => {}
            Note::CheckpointBegun(id) => drop(self.asked.insert(id, self.acknowledged.clone())),
            Note::CheckpointDone(id) => {
                let asked = self.asked.remove(&id).unwrap_or_default();
                self.durable.iter_mut().zip(asked).for_each(|(last, number)| *last = number.max(*last));
            }
        }
    }

    /// The transactions that must be there after a power failure.
    fn low(&self, durability: Durability) -> &Vec<u64> {
        // Until the store is open, only what the wreck had to preserve counts as acknowledged.
        if durability == Durability::Commit && self.is_opened { &self.acknowledged } else { &self.durable }
    }
}

/// The disk after a crash at one place of a record.
struct Wreck {
    platter: Platter,
    bounds: Bounds,
    /// What must be there if the power fails next, before a store is opened on it. After a kill that may be less than the bounds.
    durable: Vec<u64>,
    is_killed: bool,
}

impl Wreck {
    fn at(platter: &Platter, under_way: Option<&Event>, progress: &Progress, plan: &Plan, rng: &mut SmallRng) -> Wreck {
        let is_killed = rng.random_range(0..100) < KILL_SHARE;
        let platter = if is_killed { platter.clone() } else { platter.crash(under_way, rng) };
        let durable = progress.low(plan.options.durability);
        let low = if is_killed { &progress.acknowledged } else { durable };
        let bounds = Bounds { low: low.clone(), high: progress.begun.clone() };
        Wreck { platter, bounds, durable: durable.clone(), is_killed }
    }
}

/// The result of a checked recovery, and the operations of its disk.
struct Recovered {
    found: Vec<u64>,
    record: Vec<Event>,
}

fn open(wreck: &Platter, plan: &Plan) -> Result<(Arc<SimulatedDisk>, Store), String> {
    let disk = Arc::new(SimulatedDisk::start(wreck, plan.manner, None));
    let opened = Store::open_on(Arc::clone(&disk) as Arc<dyn Disk>, plan.options.clone());
    let (store, _) = opened.map_err(|error| format!("it does not open: {error}"))?;
    disk.note(Note::Opened);
    Ok((disk, store))
}

/// Opens a store on the disk and compares its content.
pub(crate) fn recover(
    platter: &Platter,
    plan: &Plan,
    history: &[Writer],
    bounds: &Bounds,
) -> Result<(Vec<u64>, Vec<Event>), String> {
    let recovered = catch_unwind(AssertUnwindSafe(|| {
        let (disk, store) = open(platter, plan)?;
        let found = history::check(&store, history, bounds)?;
        // Not always: this takes as long as the rest of a recovery.
        if platter.files().is_multiple_of(FOLLOWED_EVERY) {
            follow::check_changes(&store, history, &found)?;
            follow::check_counts(&store, history, &found)?;
        }
        let abandoned = if plan.is_closed { None } else { Some(disk.take_record()) };
        drop(store);
        Ok(Recovered { found, record: abandoned.unwrap_or_else(|| disk.take_record()) })
    }));
    let recovered = recovered.unwrap_or_else(|panic| Err(format!("panic: {}", text_of(&*panic))))?;
    Ok((recovered.found, recovered.record))
}

/// One chain of lives.
pub(crate) struct Chain<'c> {
    seed: u64,
    rng: SmallRng,
    durability: Durability,
    history: History,
    /// Lives run so far.
    life: u32,
    tally: &'c Tally,
}

impl<'c> Chain<'c> {
    pub(crate) fn new(seed: u64, tally: &'c Tally) -> Chain<'c> {
        let mut rng = SmallRng::seed_from_u64(seed);
        let durability = match rng.random_range(0..4) {
            0 => Durability::None,
            1 => Durability::Interval(Duration::from_micros(200)),
            _ => Durability::Commit,
        };
        let writers = if rng.random_bool(0.7) { 1 } else { 3 };
        Chain { seed, rng, durability, history: vec![Writer::default(); writers], life: 0, tally }
    }

    /// Runs lives and crashes until the end of the chain or the first failure.
    pub(crate) fn run(mut self) -> Result<(), Box<Failure>> {
        let zero = vec![0; self.history.len()];
        let mut wreck =
            Wreck { platter: Platter::default(), bounds: Bounds::exact(&zero), durable: zero, is_killed: false };
        for _ in 0..self.rng.random_range(1..=LIVES_MAX) {
            let plan = Plan::any(self.rng.random(), self.durability);
            let lived = catch_unwind(AssertUnwindSafe(|| self.live(&wreck, &plan)));
            let lived = lived.unwrap_or_else(|panic| Err(format!("panic: {}", text_of(&*panic))));
            let (record, found) = lived.map_err(|what| self.failure(what, &wreck, &plan))?;
            wreck = self.crash_all_over(wreck, &plan, &record, &found)?;
            self.life += 1;
        }
        Ok(())
    }

    fn failure(&self, what: String, wreck: &Wreck, plan: &Plan) -> Box<Failure> {
        Box::new(Failure {
            seed: self.seed,
            what,
            files: wreck.platter.content(),
            history: self.history.clone(),
            bounds: wreck.bounds.clone(),
            plan: plan.clone(),
        })
    }

    /// Runs one life; returns the disk's record and the content at the beginning.
    fn live(&mut self, wreck: &Wreck, plan: &Plan) -> Result<(Vec<Event>, Vec<u64>), String> {
        let (disk, store) = open(&wreck.platter, plan)?;
        let found = history::check(&store, &self.history, &wreck.bounds)?;
        for (writer, (count, low)) in self.history.iter_mut().zip(found.iter().zip(&wreck.durable)) {
            writer.go_back_to(*count);
            writer.forget_before(*low);
        }
        life::work(&disk, &store, plan, &mut self.history).map_err(|error| format!("in a life: {error}"))?;
        let abandoned = if plan.is_closed { None } else { Some(disk.take_record()) };
        drop(store);
        self.tally.lives.fetch_add(1, Ordering::Relaxed);
        let record = abandoned.unwrap_or_else(|| disk.take_record());
        self.tally.events.fetch_add(record.len() as u64, Ordering::Relaxed);
        Ok((record, found))
    }

    /// Computes crashes at many places of a life; returns one of them for the next life.
    fn crash_all_over(
        &mut self,
        began: Wreck,
        plan: &Plan,
        record: &[Event],
        found: &[u64],
    ) -> Result<Wreck, Box<Failure>> {
        let places = self.places(record);
        let next_life = self.rng.random_range(0..places.len());
        let mut progress = Progress::new(&began, found);
        let (mut platter, mut at, mut next) = (began.platter, 0, None);
        for (number, place) in places.into_iter().enumerate() {
            for event in &record[at..place] {
                platter.advance(event);
                if let Event::Note(note) = event {
                    progress.advance(note);
                }
            }
            at = place;
            let wreck = Wreck::at(&platter, record.get(place), &progress, plan, &mut self.rng);
            self.crash_at(&wreck, plan, 0)?;
            if number == next_life {
                next = Some(wreck);
            }
        }
        Ok(next.expect("it is one of the places"))
    }

    /// Places of a record in ascending order; all of a short record. Half of them are just before a sync, where the
    /// most data is unsynced.
    fn places(&mut self, record: &[Event]) -> Vec<usize> {
        if record.len() < CRASHES_PER_LIFE {
            return (0..=record.len()).collect();
        }
        let is_sync = |event: &Event| matches!(event, Event::Sync(_) | Event::SyncNames);
        let syncs: Vec<usize> = (0..record.len()).filter(|place| is_sync(&record[*place])).collect();
        let mut places: Vec<usize> = (0..CRASHES_PER_LIFE)
            .map(|turn| match syncs.len() {
                count if count > 0 && turn % 2 == 0 => syncs[self.rng.random_range(0..count)],
                _ => self.rng.random_range(0..=record.len()),
            })
            .collect();
        places.sort_unstable();
        places
    }

    fn crash_at(&mut self, wreck: &Wreck, plan: &Plan, depth: u32) -> Result<(), Box<Failure>> {
        let recovered = recover(&wreck.platter, plan, &self.history, &wreck.bounds);
        let (found, record) = recovered.map_err(|what| {
            let cause = if wreck.is_killed { "kill" } else { "power failure" };
            let of = if depth > 0 { format!(" of recovery {depth}") } else { String::new() };
            self.failure(format!("after a {cause}{of} in life {}: {what}", self.life), wreck, plan)
        })?;
        self.tally.crashes.fetch_add(1, Ordering::Relaxed);
        self.tally.kills.fetch_add(u64::from(wreck.is_killed), Ordering::Relaxed);
        if depth > 0 {
            self.tally.nested.fetch_add(1, Ordering::Relaxed);
        }
        let share = if wreck.is_killed { NESTED_SHARE_OF_KILLS } else { NESTED_SHARE };
        if depth < NESTED_MAX && self.rng.random_range(0..100) < share {
            let place = self.rng.random_range(0..=record.len());
            let mut platter = wreck.platter.clone();
            let mut progress = Progress::new(wreck, &found);
            for event in &record[..place] {
                platter.advance(event);
                if let Event::Note(note) = event {
                    progress.advance(note);
                }
            }
            let nested = Wreck::at(&platter, record.get(place), &progress, plan, &mut self.rng);
            self.crash_at(&nested, plan, depth + 1)?;
        }
        Ok(())
    }
}
