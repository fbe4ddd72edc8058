//! Does comparing answers change the timing? The same load with and without an answers file, in turns.
//!
//! `comparing URL PROFILE AMMO ANSWERS TURNS` prints, for each side, the medians of its runs: sending error (p50, p99) and
//! latency (p50, p99), and the ratios. Answers come from the contest's files or a file of the same form. The figures are
//! meaningful only on a quiet machine. They show whether the comparing thread disturbs the generator's loops, not how fast the
//! server is.

mod open_load;

use loadtest::ammo::{Ammo, AmmoOptions, Defaults};
use loadtest::answers::Comparison;
use loadtest::engine::{LoadSettings, Stop, Watchers, run};
use loadtest::target::TargetUrl;
use loadtest::{Percentiles, Recording};
use std::path::Path;
use std::sync::Arc;

/// Sending error p50 and p99, latency p50 and p99, nanoseconds.
type Figures = [u64; 4];

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, profile, ammo, answers, turns] = arguments.as_slice() else {
        return Err("comparing URL PROFILE AMMO ANSWERS TURNS".to_owned());
    };
    let turns: usize = turns.parse().map_err(|_| "TURNS is a number".to_owned())?;
    let target = TargetUrl::parse(url).map_err(|error| error.to_string())?;
    let settings = open_load::settings(&target, profile)?;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for turn in 0..turns * 2 {
        let answers = (turn % 2 == 1).then_some(Path::new(answers));
        let figures = measure(&settings, Path::new(ammo), answers)?;
        if answers.is_some() { with.push(figures) } else { without.push(figures) }
    }
    let (without, with) = (medians(&without), medians(&with));
    for (index, name) in ["sending error p50", "sending error p99", "latency p50", "latency p99"].iter().enumerate() {
        let ratio = with[index] as f64 / without[index].max(1) as f64;
        println!("{name:<18} without {:>9} ns, with {:>9} ns, ratio {ratio:.3}", without[index], with[index]);
    }
    Ok(())
}

fn measure(settings: &LoadSettings, ammo: &Path, answers: Option<&Path>) -> Result<Figures, String> {
    let comparison = Arc::new(Comparison::default());
    let options = AmmoOptions {
        defaults: Defaults { host: settings.address.to_string(), headers: Vec::new() },
        ..AmmoOptions::default()
    };
    let source = match answers {
        Some(answers) => Ammo::open_with_answers(ammo, answers, Arc::clone(&comparison), options),
        None => Ammo::open(ammo, options),
    };
    let mut watchers = Watchers::default();
    if answers.is_some() {
        watchers.observer = Some(Box::new(comparison.comparer()));
    }
    let source = Box::new(source.map_err(|error| error.to_string())?);
    let finished = run(settings, source, watchers, &Stop::default()).map_err(|error| error.to_string())?;
    if let Some(failure) = finished.failure {
        return Err(failure.to_string());
    }
    let Recording { latencies, outcome, unchecked, .. } = finished.recording;
    eprintln!(
        "right {} wrong {} lost {} unchecked {unchecked}",
        outcome.right,
        outcome.wrong,
        outcome.failures.total()
    );
    let (sending, latency) = (Percentiles::of(&latencies.sending_error), Percentiles::of(&latencies.latency));
    Ok([sending.p50, sending.p99, latency.p50, latency.p99])
}

fn medians(runs: &[Figures]) -> Figures {
    std::array::from_fn(|figure| {
        let mut values: Vec<u64> = runs.iter().map(|run| run[figure]).collect();
        values.sort_unstable();
        values.get(values.len() / 2).copied().unwrap_or_default()
    })
}
