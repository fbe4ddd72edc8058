//! Random point reads and full scans: memtable empty, memtable half full, beside a writer.

use crate::commits::{self, Picks, Way, Which};
use crate::data::Dice;
use crate::engine::{Engine, Kind, Outcome};
use crate::stage::{Loaded, Stage};
use crate::table::{Better, Figures, Row, Unit};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Reads from one snapshot, or read transaction: as many as a request of some size would make.
const READS_PER_SNAPSHOT: usize = 64;
/// Threads that read.
const THREADS: [usize; 3] = [1, 2, 4];
/// "Half full": checkpoints start at half, so stay below.
const HALF: f64 = 0.47;
/// What is in flight beside the readers: the writer at full speed.
const IN_FLIGHT: u64 = 1024;
/// The writer has come up to speed.
const WARM_UP: Duration = Duration::from_millis(300);
/// Which seeds were used.
static SEEDS: AtomicU64 = AtomicU64::new(0);

/// Random reads a second of so many threads.
pub(crate) fn read_rate(engine: &dyn Engine, threads: usize, records: u64, time: Duration) -> Outcome<f64> {
    let stop = AtomicBool::new(false);
    let started = Instant::now();
    let reads = std::thread::scope(|scope| {
        let read = || -> Outcome<u64> {
            let mut reader = engine.reader()?;
            let mut dice = Dice::new(SEEDS.fetch_add(1, Ordering::Relaxed));
            let (mut numbers, mut reads, mut sum) = ([0; READS_PER_SNAPSHOT], 0, 0);
            while !stop.load(Ordering::Relaxed) {
                numbers.fill_with(|| dice.below(records));
                sum += reader.read(&numbers)?;
                reads += READS_PER_SNAPSHOT as u64;
            }
            std::hint::black_box(sum);
            Ok(reads)
        };
        let readers: Vec<_> = (0..threads).map(|_| scope.spawn(read)).collect();
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().map(|reader| reader.join().map_err(|_| "a reader panicked")?).sum::<Outcome<u64>>()
    })?;
    Ok(reads as f64 / started.elapsed().as_secs_f64())
}

/// Rows a second of a full scan.
pub(crate) fn scan_rate(engine: &dyn Engine, records: u64) -> Outcome<f64> {
    let mut reader = engine.reader()?;
    let started = Instant::now();
    let count = reader.scan()?;
    let rate = count as f64 / started.elapsed().as_secs_f64();
    if count == records { Ok(rate) } else { Err(format!("a scan saw {count} of {records}").into()) }
}

/// Reads by each number of threads, and scans.
#[derive(Default)]
pub(crate) struct ReadFigures {
    /// As many as [`THREADS`].
    pub(crate) reads: [Figures; 3],
    /// Full scans.
    pub(crate) scans: Figures,
}

impl ReadFigures {
    /// Measures some databases in alternation.
    pub(crate) fn of(stage: &Stage, databases: &[&Loaded]) -> Outcome<ReadFigures> {
        let mut figures = ReadFigures::default();
        let records = stage.effort.records;
        for round in 0..=stage.effort.rounds {
            for Loaded { kind, engine, .. } in databases.iter().copied() {
                if round == 0 {
                    // Caches are filled and pages mapped before anything counts.
                    engine.reader()?.scan()?;
                    read_rate(engine.as_ref(), 1, records, stage.effort.time)?;
                    continue;
                }
                for (threads, figures) in THREADS.into_iter().zip(&mut figures.reads) {
                    figures.measure(*kind, read_rate(engine.as_ref(), threads, records, stage.effort.time))?;
                }
                figures.scans.measure(*kind, scan_rate(engine.as_ref(), records))?;
            }
        }
        Ok(figures)
    }

    /// Rows that demand these ratios.
    pub(crate) fn rows(&self, what: &str, reads_least: f64, scans_least: f64) -> Vec<Row> {
        let mut rows: Vec<_> = THREADS
            .into_iter()
            .zip(&self.reads)
            .map(|(threads, figures)| {
                let work = format!("random point reads, {what}, {threads} {}", noun(threads));
                Row::against_peers(&work, figures, Unit::PerSecond, Better::More, reads_least)
            })
            .collect();
        let work = format!("full scan, {what}");
        rows.push(Row::against_peers(&work, &self.scans, Unit::PerSecond, Better::More, scans_least));
        rows
    }
}

fn noun(threads: usize) -> &'static str {
    if threads == 1 { "thread" } else { "threads" }
}

/// See [`super::GROUPS`].
pub(crate) fn measure(stage: &mut Stage) -> Outcome<()> {
    stage.prepare()?;
    let all: Vec<&Loaded> = stage.shared().iter().collect();
    let empty = ReadFigures::of(stage, &all)?;
    stage.tell(&empty.rows("memtable empty", 1.5, 2.0));
    let Some(ours) = all.iter().find(|loaded| loaded.kind == Kind::Store) else { return Ok(()) };
    fill_half(stage, ours)?;
    // The best peers of each row only: the others have no second state.
    let best: Vec<Kind> = empty
        .reads
        .iter()
        .chain([&empty.scans])
        .filter_map(|figures| figures.best_peer(Better::More, |_| true).map(|(kind, _)| kind))
        .collect();
    let some: Vec<&Loaded> =
        all.iter().copied().filter(|loaded| loaded.kind == Kind::Store || best.contains(&loaded.kind)).collect();
    let half = ReadFigures::of(stage, &some)?;
    let share = ours
        .engine
        .as_store()
        .map_or(0.0, |store| store.stats().memtable_bytes as f64 / store.memtable_bytes() as f64 * 100.0);
    stage.tell(&half.rows(&format!("memtable half full ({share:.0} % at the end)"), 1.3, 1.0));
    Ok(())
}

/// Updates random records until the memtable is just not half full.
pub(crate) fn fill_half(stage: &Stage, ours: &Loaded) -> Outcome<()> {
    let Some(store) = ours.engine.as_store() else { return Ok(()) };
    // So that the next one by time is far away.
    ours.engine.settle()?;
    while (store.stats().memtable_bytes as f64) < HALF * store.memtable_bytes() as f64 {
        let some = Picks::new(Which::Update(stage.effort.records), 500, Duration::from_secs(1));
        commits::run(ours.engine.as_ref(), Way::InFlight(IN_FLIGHT), &some)?;
    }
    Ok(())
}

/// See [`super::GROUPS`].
pub(crate) fn measure_beside_writes(stage: &mut Stage) -> Outcome<()> {
    stage.prepare()?;
    let mut alone = [Figures::EMPTY, Figures::EMPTY];
    let mut beside = [Figures::EMPTY, Figures::EMPTY];
    let mut writes = [Figures::EMPTY, Figures::EMPTY];
    for _ in 0..stage.effort.rounds {
        for Loaded { kind, engine, .. } in stage.shared() {
            for (index, threads) in [1, 2].into_iter().enumerate() {
                let engine = engine.as_ref();
                let rate = || read_rate(engine, threads, stage.effort.records, stage.effort.time);
                alone[index].measure(*kind, rate())?;
                let (reads, commits) = while_writing(engine, stage.effort.records, rate)?;
                beside[index].measure(*kind, reads)?;
                writes[index].add(*kind, commits);
            }
        }
    }
    for (index, threads) in [1, 2].into_iter().enumerate() {
        let kinds = stage.kinds.iter().copied();
        let of_peer = |kind: Kind| -> Option<String> {
            let ratio = beside[index].median(kind)? / alone[index].median(kind)?;
            let reads = Unit::PerSecond.text(beside[index].median(kind)?);
            let commits = Unit::PerSecond.text(writes[index].median(kind)?);
            Some(format!("{} {reads} = {ratio:.2} ×, {commits} commits", kind.name()))
        };
        let peers: Vec<_> = kinds.filter(|&kind| kind != Kind::Store).filter_map(of_peer).collect();
        let ratio = beside[index].ours() / alone[index].ours();
        stage.tell(&[Row {
            work: format!(
                "random point reads while {IN_FLIGHT} commits are in flight, {threads} {}, beside without",
                noun(threads)
            ),
            other: peers.join("; "),
            ours: format!(
                "{} without, {} with, {} commits",
                Unit::PerSecond.text(alone[index].ours()),
                Unit::PerSecond.text(beside[index].ours()),
                Unit::PerSecond.text(writes[index].ours()),
            ),
            figure: format!("{ratio:.2} ×"),
            bound: "≥ 0.80 × of it without".to_owned(),
            reached: ratio >= 0.8,
            noise: beside[index].noise(),
        }]);
    }
    Ok(())
}

/// What `work` gives while random updates go on, and their rate.
fn while_writing<T: Send>(engine: &dyn Engine, records: u64, work: impl FnOnce() -> T) -> Outcome<(T, f64)> {
    let picks = Picks::for_time(Which::Update(records), Duration::from_secs(60));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| commits::rate(engine, Way::InFlight(IN_FLIGHT), &picks));
        std::thread::sleep(WARM_UP);
        let result = work();
        picks.stop();
        let rate = writer.join().map_err(|_| "the writer panicked")??;
        Ok((result, rate))
    })
}
