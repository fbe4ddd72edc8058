//! `cargo xtask bench latency`: GET under an open load of half the floor's rate, alone and together with
//! durable POSTs.

use super::http::body_bytes;
use super::setup::open_load::{Latency, OpenLoad, quantiles};
use super::setup::results::{Row, record};
use super::setup::stage::{Stage, TRAIN};
use super::setup::wrk;
use super::setup::wrk::Load;
use super::{Effort, median};

/// Connections of the closed load that determines the floor's rate.
const CONNECTIONS: u32 = 64;
const GETS: &str = "/users/{int:1..10057}";
/// Durable POSTs per second during the reads.
const POST_RATE: f64 = 20_000.0;
const POSTS: &str = concat!(
    r#"{"method": "POST", "path": "/visits/{int:1..100570}", "headers": {"Content-Type": "application/json"}, "#,
    r#""body": "{\"mark\":{int:0..5}}"}"#
);

pub(super) fn run(effort: Effort) -> Result<(), String> {
    let stage = Stage::set(effort)?;
    let load = OpenLoad::by(&stage.sapsan, &stage.cores, effort);
    let server = stage.serve(TRAIN)?;
    let floor = stage.floor(body_bytes(server.address, "/users/17")?, false)?;
    let make = "function make() return wrk.format('GET', '/users/' .. math.random(1, 10057)) end".to_owned();
    let closed = Load { connections: CONNECTIONS, pipeline: 1, make, fresh: false };
    let full = wrk::run(&floor, &closed, &stage.cores, effort, stage.folder.path(), 1)?.requests_per_second;
    let rate = full / 2.0;
    let (mut floors, mut alone, mut beside) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..effort.rounds {
        floors.push(load.measure(&floor, rate, GETS)?);
        alone.push(load.measure(&server, rate, GETS)?);
        let writer = load.start(&server, POST_RATE, POSTS)?;
        let during = load.measure(&server, rate, GETS);
        quantiles(writer)?;
        beside.push(during?);
        floors.push(load.measure(&floor, rate, GETS)?);
    }
    let rows = [
        judge(&format!("p99 of GET under open load of {:.0}k/s", rate / 1e3), &floors, &alone, 1.5),
        judge("the same beside 20,000 durable POSTs/s", &floors, &beside, 2.0),
    ];
    rows.iter().for_each(Row::print);
    if effort.record { record("cargo xtask bench latency", &rows) } else { Ok(()) }
}

fn judge(work: &str, floors: &[Latency], ours: &[Latency], most: f64) -> Row {
    let of = |runs: &[Latency], figure: fn(&Latency) -> f64| median(runs.iter().map(figure).collect());
    let (floor, our) = (of(floors, |run| run.p99), of(ours, |run| run.p99));
    let spread = |runs: &[Latency]| {
        let least = runs.iter().map(|run| run.p99).fold(f64::INFINITY, f64::min);
        runs.iter().map(|run| run.p99).fold(0.0, f64::max) / least
    };
    let side = |runs: &[Latency]| {
        let late = of(runs, |run| run.late_p99);
        format!("p50 {:.0}, p99 {:.0} µs (client late p99 {late:.0})", of(runs, |run| run.p50), of(runs, |run| run.p99))
    };
    Row {
        work: work.to_owned(),
        other: side(floors),
        ours: side(ours),
        figure: format!("{:.2} ×", our / floor),
        bound: format!("≤ {most:.1} ×"),
        reached: our / floor <= most,
        noise: format!("floor's p99 within {:.1} ×", spread(floors)),
    }
}
