//! Rows in the columns of `bench/RESULTS.md`.

use crate::side::{Figure, Kind};
use crate::work::Work;

/// Least multiple of a side's rate that is asked for.
fn bound(work: Work, other: Kind) -> f64 {
    match (work, other) {
        (_, Kind::Bare) => 0.97,
        (Work::Pipeline, Kind::RedisRs) => 2.0,
        (_, Kind::Hiredis) => 1.15,
        _ => 1.0,
    }
}

/// One row for each other side.
pub(crate) fn print(work: Work, rounds: &[[Figure; Kind::ALL.len()]]) {
    let of = |kind: usize| rounds.iter().map(move |round| round[kind]);
    for (at, &other) in Kind::ALL.iter().enumerate().filter(|(_, kind)| **kind != Kind::Resp) {
        let ratio = median(rounds.iter().map(|round| round[0].rate / round[at].rate).collect());
        let cpu = median(rounds.iter().map(|round| round[0].cpu_us / round[at].cpu_us).collect());
        let least = bound(work, other);
        println!(
            "row\t{}\t{} {}\t{}\t{ratio:.2} × {}, CPU {cpu:.2} ×\t≥ {least:.2} ×\t{}\t{:.0} %",
            work.title(),
            other.name(),
            text(of(at)),
            text(of(0)),
            other.name(),
            if ratio >= least { "reached" } else { "short" },
            spread(of(0).map(|figure| figure.rate)) * 100.0,
        );
    }
}

/// Medians of some runs.
fn text(figures: impl Iterator<Item = Figure> + Clone) -> String {
    let rate = median(figures.clone().map(|figure| figure.rate).collect());
    let cpu = median(figures.map(|figure| figure.cpu_us).collect());
    format!("{:.1}k/s, {cpu:.2} µs CPU", rate / 1e3)
}

/// The middle value; of an even count the upper middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// How far equal runs differ.
fn spread(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let least = values.clone().fold(f64::INFINITY, f64::min);
    values.fold(0.0, f64::max) / least - 1.0
}
