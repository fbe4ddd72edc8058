//! Loads of a million records, durable at the end, and the size of the file that comes of it.
//!
//! Peers get sorted input through the door that their documentation names for bulk loads. Unsorted input is sorted in
//! memory before that, sorting included in the time: an application of a log-structured engine would do the same, since
//! its ingestion is several times faster than its transactions. Ours sorts by itself, with a bound on memory.

use crate::data::{Records, Shape};
use crate::disk;
use crate::engine::{Kind, Outcome, Purpose};
use crate::engines::open;
use crate::stage::Stage;
use crate::table::{Better, Figures, Row, Unit};
use std::time::Instant;

/// Holds all records: the same condition as the peers have.
const MEMORY_LARGE: usize = 512 << 20;
/// An external sort.
const MEMORY_SMALL: usize = 64 << 20;

/// Where the input comes from.
#[derive(Clone, Copy)]
enum Input<'r> {
    Sorted(&'r [(&'r [u8], &'r [u8])]),
    Unsorted(&'r Records, usize),
}

/// See [`super::GROUPS`].
pub(crate) fn measure(stage: &mut Stage) -> Outcome<()> {
    let records = Records::make(Shape::Short, stage.effort.records);
    let sorted = records.sorted();
    let [mut in_order, mut unsorted, mut external, mut sizes] = [const { Figures::EMPTY }; 4];
    for _ in 0..stage.effort.rounds {
        for &kind in &stage.kinds {
            let mut size = 0;
            in_order.measure(kind, load(stage, kind, Input::Sorted(&sorted), &mut size))?;
            if kind.is_tree() {
                sizes.add(kind, size as f64);
            }
            unsorted.measure(kind, load(stage, kind, Input::Unsorted(&records, MEMORY_LARGE), &mut size))?;
            let bounded = match kind {
                Kind::Store => load(stage, kind, Input::Unsorted(&records, MEMORY_SMALL), &mut size),
                _ => unsorted.last(kind).ok_or_else(|| "see above".into()),
            };
            external.measure(kind, bounded)?;
        }
    }
    let unit = Unit::PerSecond;
    stage.tell(&[
        Row::against_peers("load of sorted records, durable at the end", &in_order, unit, Better::More, 1.0),
        Row::against_peers(
            "load of unsorted records, durable at the end (all sort in memory)",
            &unsorted,
            unit,
            Better::More,
            1.0,
        ),
        Row::against_peers(
            "the same, ours sorting with 64 MB, peers in memory as before",
            &external,
            unit,
            Better::More,
            1.0,
        ),
        Row::against_peers("file after the load of sorted records", &sizes, Unit::Megabytes, Better::Less, 1.0),
    ]);
    Ok(())
}

/// Loads a new database; records a second.
fn load(stage: &Stage, kind: Kind, input: Input<'_>, size: &mut u64) -> Outcome<f64> {
    let folder = stage.fresh(kind, "load")?;
    let engine = open(kind, &folder, Purpose::usual(Shape::Short))?;
    let started = Instant::now();
    match (input, engine.as_store()) {
        (Input::Sorted(records), _) => engine.load(&mut records.iter().copied())?,
        (Input::Unsorted(records, memory), Some(store)) => store.load_unsorted(records, memory)?,
        (Input::Unsorted(records, _), None) => engine.load(&mut records.sorted().into_iter())?,
    }
    let rate = stage.effort.records as f64 / started.elapsed().as_secs_f64();
    let count = engine.reader()?.scan()?;
    if count != stage.effort.records {
        return Err(format!("{} of {} records are there", count, stage.effort.records).into());
    }
    *size = disk::size(&folder)?.data;
    drop(engine);
    std::fs::remove_dir_all(folder)?;
    Ok(rate)
}
