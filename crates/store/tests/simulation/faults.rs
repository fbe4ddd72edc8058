//! Faults: each operation of the disk in turn fails, finds the disk full, or transfers only a part of the bytes.
//!
//! A store is opened, works (commits, checkpoints, bulk builds, values in overflow) and is closed: on an empty disk, on
//! what a kill left, and while other threads build trees, write checkpoints and make backups all the time. What must
//! hold, whichever operation fails:
//!
//! - A failed call returns an error of the disk; nothing panics, and no damage is reported. The call has changed
//!   nothing, unless the error says that its outcome is unknown.
//! - Reads continue, and return everything acknowledged.
//! - A store that did not open does so once the disk works again, and accepts writes.
//! - After a failed sync nothing is acknowledged any more. After any other error writes succeed again once the disk works.
//! - When the store is opened again, after a restart and after a power failure, everything acknowledged is there; also
//!   where the power fails soon after a sync has failed, before the lost data is written again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use store::disk::Disk;
use store::{Store, StoreError};

use super::crash::recover;
use super::disk::{FaultPlan, SimulatedDisk};
use super::history::{self, Bounds, History, Writer};
use super::life::{self, Plan};
use super::platter::{Event, Note, Platter};
use super::sweep::Lives;

/// Maximum time until writes succeed after the disk works again.
const PATIENCE: Duration = Duration::from_secs(20);
/// The number of power failures after the first failed sync, and the number of events of the disk within which they happen.
const SOON_POWER_FAILURES: usize = 6;
const SOON_EVENTS: usize = 120;

/// The store with which a life begins.
pub(crate) struct Start {
    platter: Platter,
    history: History,
    count: u64,
    plan: Plan,
}

impl Start {
    /// An empty disk.
    pub(crate) fn empty(seed: u64) -> Start {
        Start::with(Plan::for_faults(seed))
    }

    fn with(plan: Plan) -> Start {
        Start { platter: Platter::default(), history: vec![Writer::default()], count: 0, plan }
    }

    /// The result of a kill of a store that has worked for a while.
    pub(crate) fn killed(seed: u64) -> Start {
        Start::empty(seed).kill()
    }

    /// The same while other threads build trees, write checkpoints and make backups beside the writer.
    pub(crate) fn busy(seed: u64) -> Start {
        Start::with(Plan::for_faults_beside_others(seed)).kill()
    }

    fn kill(self) -> Start {
        let mut start = self;
        let disk = Arc::new(SimulatedDisk::start(&start.platter, start.plan.manner, None));
        let opened = Store::open_on(Arc::clone(&disk) as Arc<dyn Disk>, start.plan.options.clone());
        let (store, _) = opened.unwrap();
        life::work(&disk, &store, &start.plan, &mut start.history).unwrap();
        disk.take_record().iter().for_each(|event| start.platter.advance(event));
        drop(store);
        start.count = start.history[0].begun;
        start
    }

    fn work(&self, disk: &Arc<SimulatedDisk>, store: Store, history: &mut History) -> Result<(), String> {
        let worked = life::work(disk, &store, &self.plan, history);
        let Err(error) = worked else { return Ok(()) };
        refuse_damage(&error, "working")?;
        let is_poisoned = store.stats().is_poisoned;
        let bounds = bounds_after(&error, history, self.count);
        let found = history::check(&store, history, &bounds).map_err(|wrong| format!("reads do not go on: {wrong}"))?;
        disk.set_plan(None);
        if is_poisoned || matches!(error, StoreError::Unknown(_)) {
            let mut as_shown = history.clone();
            as_shown[0].go_back_to(found[0]);
            if !matches!(error, StoreError::Unknown(_)) {
                *history = as_shown.clone();
            }
            let again = life::work(disk, &store, &self.plan, &mut as_shown);
            let is_refused = matches!(again, Err(StoreError::Poisoned | StoreError::Unknown(_)));
            return if is_refused { Ok(()) } else { Err(format!("after a failed sync it goes on: {again:?}")) };
        }
        history[0].go_back_to(found[0]);
        let (began, first) = (Instant::now(), error);
        while let Err(error) = life::work(disk, &store, &self.plan, history) {
            // The sync of another thread may have failed only after the check above; there has been no fault since.
            if matches!(error, StoreError::Poisoned | StoreError::Unknown(_)) {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("after `{first}` writes do not go on: {error}"));
            }
            refuse_damage(&error, "going on")?;
            let bounds = bounds_after(&error, history, found[0]);
            let found = history::check(&store, history, &bounds)?;
            history[0].go_back_to(found[0]);
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// The power fails soon after a failed sync, before the lost data is written again.
    fn check_after_failed_sync(&self, record: &[Event], history: &[Writer], seed: u64) -> Result<(), String> {
        let Some(failed) = record.iter().position(|event| matches!(event, Event::SyncFailed(..))) else {
            return Ok(());
        };
        let mut rng = SmallRng::seed_from_u64(seed);
        let window = failed + 1..=record.len().min(failed + SOON_EVENTS);
        let is_sync = |place: &usize| matches!(record[*place - 1], Event::Sync(_));
        let behind_syncs: Vec<usize> = window.clone().filter(is_sync).collect();
        let mut places: Vec<usize> = (0..SOON_POWER_FAILURES)
            .map(|turn| match behind_syncs.len() {
                // Just after a later sync, such as that of a meta page: the pages that it refers to must be durable.
                count if count > 0 && turn % 2 == 0 => behind_syncs[rng.random_range(0..count)],
                _ => rng.random_range(window.clone()),
            })
            .collect();
        places.sort_unstable();
        let (mut platter, mut at) = (self.platter.clone(), 0);
        let (mut low, mut high) = (self.count, self.count);
        for place in places {
            for event in &record[at..place] {
                platter.advance(event);
                match event {
                    Event::Note(Note::Acknowledged(_, number, _)) => low = low.max(*number),
                    Event::Note(Note::Begun(_, number)) => high = high.max(*number),
                    _ => {}
                }
            }
            at = place;
            // Transactions that were begun and refused are no longer in the history.
            let bounds = Bounds { low: vec![low], high: vec![high.min(history[0].begun)] };
            let lost = platter.crash(record.get(place), &mut rng);
            let after =
                |wrong| format!("after a power failure {} events behind a failed sync: {wrong}", place - failed);
            recover(&lost, &self.plan, history, &bounds).map_err(after)?;
        }
        Ok(())
    }

    /// After a restart, after a power failure, and after both.
    fn check_reopened(&self, platter: &Platter, history: &[Writer], bounds: &Bounds, seed: u64) -> Result<(), String> {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (found, record) =
            recover(platter, &self.plan, history, bounds).map_err(|wrong| format!("after a restart: {wrong}"))?;
        let lost = platter.crash(None, &mut rng);
        recover(&lost, &self.plan, history, bounds).map_err(|wrong| format!("after a power failure: {wrong}"))?;
        let mut restarted = platter.clone();
        let opened = record.iter().position(|event| matches!(event, Event::Note(Note::Opened))).unwrap_or(0);
        let end = rng.random_range(opened..=record.len());
        record[..end].iter().for_each(|event| restarted.advance(event));
        let lost = restarted.crash(record.get(end), &mut rng);
        recover(&lost, &self.plan, history, &Bounds::exact(&found))
            .map_err(|wrong| format!("after a restart and a power failure: {wrong}"))?;
        Ok(())
    }
}

/// The transactions that may be there: at least the acknowledged ones; with an unknown outcome up to all that were begun.
fn bounds_after(error: &StoreError, history: &History, count: u64) -> Bounds {
    let low = acknowledged(history, count);
    let high = if matches!(error, StoreError::Unknown(_)) { history[0].begun } else { low };
    Bounds { low: vec![low], high: vec![high] }
}

impl Lives for Start {
    fn live_with(&self, faults: FaultPlan) -> Result<bool, String> {
        let disk = Arc::new(SimulatedDisk::start(&self.platter, self.plan.manner, Some(faults)));
        let mut history = self.history.clone();
        let open = || Store::open_on(Arc::clone(&disk) as Arc<dyn Disk>, self.plan.options.clone());
        let mut is_reached = true;
        match open() {
            Err(error) => {
                refuse_damage(&error, "opening")?;
                disk.set_plan(None);
                let (store, _) = open().map_err(|error| format!("opening again: {error}"))?;
                self.work(&disk, store, &mut history)?;
            }
            Ok((store, _)) => {
                self.work(&disk, store, &mut history)?;
                is_reached = disk.has_reached(&faults);
            }
        }
        disk.set_plan(None);
        let record = disk.take_record();
        let acknowledged = record.iter().filter_map(|event| match event {
            Event::Note(Note::Acknowledged(_, number, _)) => Some(*number),
            _ => None,
        });
        let low = acknowledged.max().unwrap_or(0).max(self.count);
        let bounds = Bounds { low: vec![low], high: vec![history[0].begun] };
        let mut platter = self.platter.clone();
        record.iter().for_each(|event| platter.advance(event));
        self.check_after_failed_sync(&record, &history, faults.at)?;
        self.check_reopened(&platter, &history, &bounds, faults.at)?;
        Ok(is_reached)
    }
}

fn acknowledged(history: &[Writer], count: u64) -> u64 {
    history[0].acknowledged().max(count)
}

fn refuse_damage(error: &StoreError, doing: &str) -> Result<(), String> {
    match error {
        StoreError::Io { .. } | StoreError::Full | StoreError::Unknown(_) | StoreError::Poisoned => Ok(()),
        other => Err(format!("while {doing}: {other}")),
    }
}
