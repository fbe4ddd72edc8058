//! What a checkpoint does to the log's syncs: each commit of a lone thread is one, and is timed.

use super::reads::fill_half;
use crate::commits::{Picks, Which};
use crate::engine::{Kind, Outcome};
use crate::stage::Stage;
use crate::table::Row;
use std::time::{Duration, Instant};

/// A percentile of fewer samples says nothing.
const SAMPLES_LEAST: usize = 1_000;
/// From a memtable that is almost half full over the checkpoint that follows to some time without one.
const CYCLE: Duration = Duration::from_millis(2_500);

/// See [`super::GROUPS`].
pub(crate) fn measure(stage: &mut Stage) -> Outcome<()> {
    stage.prepare()?;
    let Some(ours) = stage.shared().iter().find(|loaded| loaded.kind == Kind::Store) else { return Ok(()) };
    let Some(store) = ours.engine.as_store() else { return Ok(()) };
    let mut writer = ours.engine.writer()?;
    let (mut without, mut during) = (Vec::new(), Vec::new());
    let checkpoints = store.stats().checkpoints;
    let started = Instant::now();
    while started.elapsed() < stage.effort.syncs {
        // A lone thread would need many seconds to fill it so far that the next checkpoint is near.
        fill_half(stage, ours)?;
        let picks = Picks::for_time(Which::Update(stage.effort.records), CYCLE);
        let mut was_merging = store.stats().frozen_bytes > 0;
        while let Some((number, revision)) = picks.next() {
            let started = Instant::now();
            writer.commit(&[number], revision)?;
            let took = started.elapsed().as_secs_f64() * 1e6;
            let is_merging = store.stats().frozen_bytes > 0;
            // One during which a checkpoint started or ended belongs to neither.
            match (was_merging, is_merging) {
                (true, true) => during.push(took),
                (false, false) => without.push(took),
                _ => {}
            }
            was_merging = is_merging;
        }
    }
    let checkpoints = store.stats().checkpoints - checkpoints;
    let (quiet, busy) = (percentiles(&mut without), percentiles(&mut during));
    let ratio = busy[1] / quiet[1];
    let enough = without.len().min(during.len()) >= SAMPLES_LEAST;
    stage.tell(&[Row {
        work: format!("p99 of a log sync during a checkpoint (one thread, {checkpoints} checkpoints), beside without"),
        other: format!(
            "without: p50 {:.0}, p99 {:.0}, p99.9 {:.0} µs ({} syncs)",
            quiet[0],
            quiet[1],
            quiet[2],
            without.len()
        ),
        ours: format!(
            "during: p50 {:.0}, p99 {:.0}, p99.9 {:.0} µs ({} syncs)",
            busy[0],
            busy[1],
            busy[2],
            during.len()
        ),
        figure: if enough { format!("{ratio:.2} ×") } else { format!("{ratio:.2} ×, too few syncs") },
        bound: "≤ 1.50 ×".to_owned(),
        reached: enough && ratio <= 1.5,
        noise: "one run".to_owned(),
    }]);
    Ok(())
}

fn percentiles(values: &mut [f64]) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [0.5, 0.99, 0.999].map(|part| values.get((values.len() as f64 * part) as usize).copied().unwrap_or(f64::NAN))
}
