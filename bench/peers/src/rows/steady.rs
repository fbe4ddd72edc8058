//! Steady updates: does the data file stay in proportion to its data, and the log within its setting? Ours alone.
//!
//! Random updates of all records at full speed, then the same beside a reader that never ends, which may cost what has
//! changed since it began, once, and no more.

use crate::commits::{self, Picks, Way, Which};
use crate::disk::{self, Size};
use crate::engine::{Kind, Outcome};
use crate::engines::sapsan::Sapsan;
use crate::stage::{Loaded, Stage};
use crate::table::Row;
use std::path::Path;
use std::time::Duration;

const IN_FLIGHT: u64 = 1024;
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The data file beside its live data, at most; with a reader that never ends, beyond what that one holds.
const TIMES_LIVE: f64 = 2.0;
/// Files of the log that are kept ready, beside what two full memtables take of it.
const READY_SEGMENTS: u64 = 4;
/// Time beside the reader, as a part of the time without.
const HELD_PART: u32 = 5;

/// What was seen of one load, looked at once a second.
#[derive(Default)]
struct Seen {
    updates: u64,
    seconds: f64,
    most: Size,
    /// Data file without the pages that only the reader holds, at most.
    most_beside_held: u64,
    held: u64,
}

fn watch(store: &Sapsan, loaded: &Loaded, records: u64, time: Duration) -> Outcome<Seen> {
    let picks = Picks::for_time(Which::Update(records), time);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| commits::run(loaded.engine.as_ref(), Way::InFlight(IN_FLIGHT), &picks));
        let mut seen = Seen { seconds: time.as_secs_f64(), ..Seen::default() };
        while !load.is_finished() {
            look(store, &loaded.folder, &mut seen)?;
            std::thread::sleep(LOOK_EVERY);
        }
        seen.updates = load.join().map_err(|_| "the load panicked")??;
        Ok(seen)
    })
}

fn look(store: &Sapsan, folder: &Path, seen: &mut Seen) -> Outcome<()> {
    // What is held before the size: it may only grow meanwhile.
    let held = store.stats().pinned_pages * 4096;
    let now = disk::size(folder)?;
    seen.most = Size { data: seen.most.data.max(now.data), log: seen.most.log.max(now.log) };
    seen.most_beside_held = seen.most_beside_held.max(now.data.saturating_sub(held));
    seen.held = seen.held.max(held);
    Ok(())
}

/// See [`super::GROUPS`].
pub(crate) fn measure(stage: &mut Stage) -> Outcome<()> {
    stage.clear();
    stage.prepare()?;
    let (records, time) = (stage.effort.records, stage.effort.steady);
    let Some(loaded) = stage.shared().iter().find(|loaded| loaded.kind == Kind::Store) else { return Ok(()) };
    let Some(store) = loaded.engine.as_store() else { return Ok(()) };
    let live = disk::size(&loaded.folder)?.data as f64;
    let free = watch(store, loaded, records, time)?;
    eprintln!("{} updates, then beside a reader", free.updates);
    let (held_time, reader) = (time / HELD_PART, store.reader()?);
    let snapshot = reader.snapshot();
    let held = watch(store, loaded, records, held_time)?;
    drop(snapshot);
    let log_most = 2 * store.memtable_bytes() + READY_SEGMENTS * store.segment_bytes();
    let megabytes = |bytes: f64| format!("{:.0} MB", bytes / 1e6);
    let minutes = |time: Duration| format!("{:.1} minutes", time.as_secs_f64() / 60.0);
    let size = |work: String, seen: &Seen, most: f64| Row {
        work,
        other: format!("{} after the load", megabytes(live)),
        ours: format!("{} at most, at {:.0}k updates/s", megabytes(most), seen.updates as f64 / seen.seconds / 1e3),
        figure: format!("{:.2} × the live data", most / live),
        bound: format!("< {TIMES_LIVE:.2} ×"),
        reached: most < TIMES_LIVE * live,
        noise: "one run".to_owned(),
    };
    let rows = [
        size(
            format!("data file under {} of random updates of {records} documents, 1,024 in flight", minutes(time)),
            &free,
            free.most.data as f64,
        ),
        Row {
            work: "the log meanwhile, files that are ready included".to_owned(),
            other: format!("two memtables and {READY_SEGMENTS} segments: {}", megabytes(log_most as f64)),
            ours: megabytes(free.most.log as f64),
            figure: format!("{:.2} ×", free.most.log as f64 / log_most as f64),
            bound: "≤ 1.00 ×".to_owned(),
            reached: free.most.log <= log_most,
            noise: "one run".to_owned(),
        },
        Row {
            ours: format!(
                "{} at most, at {:.0}k updates/s, of which a reader that never ends holds up to {}",
                megabytes(held.most.data as f64),
                held.updates as f64 / held.seconds / 1e3,
                megabytes(held.held as f64)
            ),
            ..size(
                format!(
                    "the same for {} more beside a reader that never ends, what it holds left out",
                    minutes(held_time)
                ),
                &held,
                held.most_beside_held as f64,
            )
        },
    ];
    stage.tell(&rows);
    Ok(())
}
