//! Space: bytes written for an update, and files under random updates and random inserts.

use crate::commits::{self, Picks, Way, Which};
use crate::data::Shape;
use crate::disk::{self, Size};
use crate::engine::{Engine, Kind, Outcome, Purpose};
use crate::engines::open;
use crate::stage::{Loaded, Stage};
use crate::table::{Better, Figures, Row, Unit};
use std::path::Path;
use std::time::Duration;

const IN_FLIGHT: u64 = 1024;
const LOOK_EVERY: Duration = Duration::from_millis(20);
const BYTES_MOST: f64 = 3_000.0;
/// Peers that need longer than [`crate::stage::Effort::bulk_most`] are measured on what they have done; ours does all.
const OURS_MOST: Duration = Duration::from_secs(120);

/// A load of commits and what it did to the disk.
struct Written {
    count: u64,
    bytes: u64,
    peak: Size,
    rest: Size,
}

/// Runs commits in flight to the end, with the file sizes watched, then lets the engine settle.
fn write(engine: &dyn Engine, folder: &Path, picks: &Picks) -> Outcome<Written> {
    let before = disk::bytes_written(folder)?;
    let (count, peak) = std::thread::scope(|scope| -> Outcome<(u64, Size)> {
        let load = scope.spawn(|| commits::run(engine, Way::InFlight(IN_FLIGHT), picks));
        let mut peak = Size::default();
        while !load.is_finished() {
            let now = disk::size(folder)?;
            peak = Size { data: peak.data.max(now.data), log: peak.log.max(now.log) };
            std::thread::sleep(LOOK_EVERY);
        }
        Ok((load.join().map_err(|_| "the load panicked")??, peak))
    })?;
    engine.settle()?;
    let bytes = disk::bytes_written(folder)? - before;
    Ok(Written { count, bytes, peak, rest: disk::size(folder)? })
}

fn most(stage: &Stage, kind: Kind) -> Duration {
    if kind == Kind::Store { OURS_MOST } else { stage.effort.bulk_most }
}

/// See [`super::GROUPS`].
pub(crate) fn measure_updates(stage: &mut Stage) -> Outcome<()> {
    // Loaded anew: what other rows have written before would count into the sizes.
    stage.clear();
    stage.prepare()?;
    let records = stage.effort.records;
    let [mut bytes, mut rest, mut peak] = [const { Figures::EMPTY }; 3];
    let mut log_peak = 0;
    for Loaded { kind, folder, engine } in stage.shared() {
        eprintln!("updates of {}", kind.name());
        let loaded = disk::size(folder)?;
        let picks = Picks::new(Which::Update(records), records, most(stage, *kind));
        let written = write(engine.as_ref(), folder, &picks)?;
        eprintln!("{}: {} updates", kind.name(), written.count);
        bytes.add(*kind, written.bytes as f64 / written.count as f64);
        rest.add(*kind, written.rest.data as f64 / loaded.data as f64);
        peak.add(*kind, written.peak.data as f64 / loaded.data as f64);
        if *kind == Kind::Store {
            log_peak = written.peak.log;
        }
    }
    let size_row = |work: &str, figures: &Figures, most: f64| Row {
        work: format!("{work}, beside its size after the load"),
        other: figures.peers(Unit::Times),
        ours: Unit::Times.text(figures.ours()),
        figure: Unit::Times.text(figures.ours()),
        bound: format!("≤ {most:.2} ×"),
        reached: figures.ours() <= most,
        noise: figures.noise(),
    };
    let log =
        format!("peak of the data file under a million random updates (log beside it: {} MB)", log_peak / 1_000_000);
    stage.tell(&[
        Row {
            work: "bytes written to disk for a random update of 400 bytes, log included, 1,024 in flight".to_owned(),
            other: bytes.peers(Unit::Bytes),
            ours: Unit::Bytes.text(bytes.ours()),
            figure: Unit::Bytes.text(bytes.ours()),
            bound: "< 3000 B".to_owned(),
            reached: bytes.ours() < BYTES_MOST,
            noise: bytes.noise(),
        },
        size_row("the data file at rest after a million random updates", &rest, 1.5),
        size_row(&log, &peak, 2.1),
    ]);
    Ok(())
}

/// See [`super::GROUPS`].
pub(crate) fn measure_inserts(stage: &mut Stage) -> Outcome<()> {
    stage.clear();
    let records = stage.effort.records;
    let mut sizes = Figures::EMPTY;
    let mut rates = Figures::EMPTY;
    for &kind in stage.kinds.iter().filter(|kind| kind.is_tree()) {
        eprintln!("inserts into {}", kind.name());
        let folder = stage.fresh(kind, "inserts")?;
        let engine = open(kind, &folder, Purpose::usual(Shape::Short))?;
        let picks = Picks::new(Which::Insert(0), records, most(stage, kind));
        let started = std::time::Instant::now();
        let written = write(engine.as_ref(), &folder, &picks)?;
        rates.add(kind, written.count as f64 / started.elapsed().as_secs_f64());
        // A peer that did not get through is judged by what it has.
        sizes.add(kind, written.rest.data as f64 / written.count as f64 * records as f64);
        drop(engine);
        std::fs::remove_dir_all(folder)?;
    }
    let mut row = Row::against(
        "data file after as many random committed inserts, 1,024 in flight (peers' extrapolated where too slow)",
        &sizes,
        Unit::Megabytes,
        Better::Less,
        1.15,
        Kind::is_tree,
    );
    row.ours = format!("{}, at {} inserts", row.ours, Unit::PerSecond.text(rates.ours()));
    row.other = format!("{} (at {})", row.other, rates.peers(Unit::PerSecond));
    stage.tell(&[row]);
    Ok(())
}
