//! Durable commits of one document each: random updates of the loaded million.

use crate::commits::{self, Picks, Way, Which};
use crate::data::{Records, Shape};
use crate::disk;
use crate::engine::{Engine, Kind, Outcome, Purpose};
use crate::engines::open;
use crate::engines::sapsan::Sapsan;
use crate::stage::{Loaded, Stage};
use crate::table::{Better, Figures, Row, Unit, spread};
use std::time::Duration;

const IN_FLIGHT: u64 = 1024;
const WAITING: usize = 64;
/// 64 threads, at least, whatever the peers do.
const WAITING_LEAST: f64 = 150_000.0;
const BURST_LEAST: f64 = 800_000.0;
const SUSTAINED_LEAST: f64 = 100_000.0;
const CHECKPOINTS_LEAST: u64 = 5;
/// Takes a whole burst, so that no checkpoint falls into it.
const BURST_MEMTABLE_BYTES: usize = 2 << 30;
/// A disk's speed may change within a second, so the lone thread and its floor take turns this often in their time.
const LONE_SLICES: u32 = 8;
/// A lone commit's log bytes are a multiple of this: direct writes are aligned.
const LOG_UNIT: u64 = 512;

/// See [`super::GROUPS`].
pub(crate) fn measure(stage: &mut Stage) -> Outcome<()> {
    stage.prepare()?;
    let which = Which::Update(stage.effort.records);
    let time = stage.effort.time;
    let [mut alone, mut floor, mut native, mut grouped] = [const { Figures::EMPTY }; 4];
    let mut bytes_per_commit = 4096;
    for _ in 0..stage.effort.rounds {
        for Loaded { kind, engine, .. } in stage.shared() {
            let engine = engine.as_ref();
            match engine.as_store() {
                Some(store) => {
                    bytes_per_commit = bytes_of_lone_commits(engine, store, which, time / LONE_SLICES)?;
                    let overwrites = disk::Overwrites::new(stage.folder(), bytes_per_commit)?;
                    let (ours, least) = in_turns(engine, which, overwrites, time)?;
                    alone.add(*kind, ours);
                    floor.add(*kind, least);
                }
                None => alone.measure(*kind, commits::rate(engine, Way::Threads(1), &Picks::for_time(which, time)))?,
            }
            let picks = || Picks::for_time(which, time);
            native.measure(*kind, commits::rate(engine, Way::Threads(WAITING), &picks()))?;
            if *kind != Kind::Store {
                grouped.measure(*kind, commits::rate(engine, Way::GroupedThreads(WAITING), &picks()))?;
            }
        }
    }
    stage.tell(&[lone_row(&alone, &floor, bytes_per_commit), waiting_row(native, &grouped)]);
    Ok(())
}

/// What one of them writes to the log, in units of [`LOG_UNIT`].
fn bytes_of_lone_commits(engine: &dyn Engine, store: &Sapsan, which: Which, time: Duration) -> Outcome<usize> {
    let before = store.stats();
    commits::rate(engine, Way::Threads(1), &Picks::for_time(which, time))?;
    let now = store.stats();
    let bytes = (now.log_bytes_written - before.log_bytes_written) / (now.commits - before.commits).max(1);
    Ok((bytes.next_multiple_of(LOG_UNIT) as usize).max(LOG_UNIT as usize))
}

/// Commits and overwrites a second, in alternation.
fn in_turns(
    engine: &dyn Engine,
    which: Which,
    mut overwrites: disk::Overwrites,
    time: Duration,
) -> Outcome<(f64, f64)> {
    let (mut ours, mut least) = (0.0, 0.0);
    for _ in 0..LONE_SLICES {
        let slice = time / LONE_SLICES;
        ours += commits::rate(engine, Way::Threads(1), &Picks::for_time(which, slice))?;
        least += overwrites.rate(slice)?;
    }
    Ok((ours / f64::from(LONE_SLICES), least / f64::from(LONE_SLICES)))
}

fn lone_row(alone: &Figures, floor: &Figures, bytes: usize) -> Row {
    let ratio = alone.ours() / floor.ours();
    Row {
        work: "durable commits, one thread".to_owned(),
        other: format!(
            "overwrite of {bytes} bytes + fdatasync {}; {}",
            Unit::PerSecond.text(floor.ours()),
            alone.peers(Unit::PerSecond)
        ),
        ours: Unit::PerSecond.text(alone.ours()),
        figure: format!("{ratio:.2} × overwrite"),
        bound: "≥ 0.95 ×".to_owned(),
        reached: ratio >= 0.95,
        noise: format!("{}, floor {}", alone.noise(), floor.noise()),
    }
}

/// 150,000 or twice the best peer, where that is more.
fn waiting_row(native: Figures, grouped: &Figures) -> Row {
    let best = native.best_of(grouped);
    let mut row = Row::against_peers(
        "durable commits of one document each, 64 threads waiting for theirs (peers: own commit or one group writer, the better)",
        &best,
        Unit::PerSecond,
        Better::More,
        2.0,
    );
    row.figure = format!("{}, {}", row.ours, row.figure);
    row.bound = "≥ 150k/s and 2 × the best peer".to_owned();
    row.reached &= best.ours() >= WAITING_LEAST;
    row
}

/// See [`super::GROUPS`].
pub(crate) fn measure_in_flight(stage: &mut Stage) -> Outcome<()> {
    stage.prepare()?;
    let which = Which::Update(stage.effort.records);
    let time = stage.effort.time;
    let burst = burst_engine(stage)?;
    let [mut bursts, mut sustained] = [const { Figures::EMPTY }; 2];
    for _ in 0..stage.effort.rounds {
        for Loaded { kind, engine, .. } in stage.shared() {
            let engine = if *kind == Kind::Store { burst.as_ref() } else { engine.as_ref() };
            bursts.measure(*kind, commits::rate(engine, Way::InFlight(IN_FLIGHT), &Picks::for_time(which, time)))?;
        }
    }
    drop(burst);
    let mut checkpoints = 0;
    let mut slices = Vec::new();
    for Loaded { kind, engine, .. } in stage.shared() {
        let time = if *kind == Kind::Store { stage.effort.sustained } else { stage.effort.sustained / 10 };
        let before = engine.as_store().map_or(0, |store| store.stats().checkpoints);
        let picks = Picks::for_time(which, time);
        let (rate, parts) = std::thread::scope(|scope| -> Outcome<(f64, Vec<f64>)> {
            let load = scope.spawn(|| commits::rate(engine.as_ref(), Way::InFlight(IN_FLIGHT), &picks));
            let parts = by_second(&picks);
            Ok((load.join().map_err(|_| "the load panicked")??, parts))
        })?;
        sustained.add(*kind, rate);
        if let Some(store) = engine.as_store() {
            checkpoints = store.stats().checkpoints - before;
            slices = parts;
        }
    }
    let row = |work: String, figures: &Figures, least: f64, noise: String| Row {
        work,
        other: format!("one group writer: {}", figures.peers(Unit::PerSecond)),
        ours: Unit::PerSecond.text(figures.ours()),
        figure: Unit::PerSecond.text(figures.ours()),
        bound: format!("≥ {}", Unit::PerSecond.text(least)),
        reached: figures.ours() >= least,
        noise,
    };
    let work = "durable commits, 1,024 in flight, burst without a checkpoint (memtable of 2 GB)".to_owned();
    let burst_row = row(work, &bursts, BURST_LEAST, bursts.noise());
    let seconds = stage.effort.sustained.as_secs();
    let work = format!("durable commits, 1,024 in flight, sustained for {seconds} s over {checkpoints} checkpoints");
    let mut sustained_row = row(work, &sustained, SUSTAINED_LEAST, format!("seconds differ by {}", spread(&slices)));
    sustained_row.reached &= checkpoints >= CHECKPOINTS_LEAST;
    stage.tell(&[burst_row, sustained_row]);
    Ok(())
}

/// The rate of each full second until the picks are over.
fn by_second(picks: &Picks) -> Vec<f64> {
    let (mut parts, mut before) = (Vec::new(), 0);
    loop {
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(100));
            if picks.is_over() {
                return parts;
            }
        }
        parts.push((picks.given() - before) as f64);
        before = picks.given();
    }
}

/// Ours, loaded, with a memtable that takes the whole burst.
fn burst_engine(stage: &Stage) -> Outcome<Box<dyn Engine>> {
    let folder = stage.fresh(Kind::Store, "burst")?;
    let purpose = Purpose { shape: Shape::Short, memtable_bytes: Some(BURST_MEMTABLE_BYTES) };
    let engine = open(Kind::Store, &folder, purpose)?;
    engine.load(&mut Records::make(Shape::Short, stage.effort.records).sorted().into_iter())?;
    engine.settle()?;
    Ok(engine)
}
