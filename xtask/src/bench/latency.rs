//! `cargo xtask bench latency`: GET under open load at half the floor's rate, alone and beside durable POSTs.

use super::http::body_bytes;
use super::process::Server;
use super::results::{Row, record};
use super::stage::{Stage, TRAIN};
use super::wrk::Load;
use super::{Effort, median, wrk};
use crate::tools;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const CONNECTIONS: u32 = 64;
/// Durable POSTs a second beside the reads.
const POST_RATE: f64 = 20_000.0;

/// Quantiles of one run, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latency {
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) late_p99: f64,
}

pub(super) fn run(effort: Effort) -> Result<(), String> {
    let stage = Stage::set(effort)?;
    let client = client()?;
    let server = stage.serve(TRAIN)?;
    let floor = stage.floor(body_bytes(server.address, "/users/17")?, false)?;
    let make = "function make() return wrk.format('GET', '/users/' .. math.random(1, 10057)) end".to_owned();
    let load = Load { connections: CONNECTIONS, pipeline: 1, make, fresh: false };
    let full = wrk::run(&floor, &load, &stage.cores, effort, stage.folder.path(), 1)?.requests_per_second;
    let rate = full / 2.0;
    let (mut floors, mut alone, mut beside) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..effort.rounds {
        floors.push(gets(&stage, &client, &floor, rate)?);
        alone.push(gets(&stage, &client, &server, rate)?);
        let mut writer = open_load(&stage, &client, &server, POST_RATE, &["--post-visits", "--max-id", "100570"])?;
        let during = gets(&stage, &client, &server, rate);
        let _ = writer.wait();
        beside.push(during?);
        floors.push(gets(&stage, &client, &floor, rate)?);
    }
    let rows = [
        judge(&format!("p99 of GET under open load of {:.0}k/s", rate / 1e3), &floors, &alone, 1.5),
        judge("the same beside 20,000 durable POSTs/s", &floors, &beside, 2.0),
    ];
    rows.iter().for_each(Row::print);
    if effort.record { record("cargo xtask bench latency", &rows) } else { Ok(()) }
}

/// Builds the open-model client of the `bench` crate.
pub(super) fn client() -> Result<PathBuf, String> {
    tools::run("cargo", &["build", "--release", "--locked", "--quiet", "--package", "bench"])?;
    Ok(tools::root().join("target/release/bench"))
}

/// Starts open load on a server.
pub(super) fn open_load<S: AsRef<std::ffi::OsStr>>(
    stage: &Stage,
    client: &Path,
    server: &Server,
    rate: f64,
    more: &[S],
) -> Result<Child, String> {
    Command::new("taskset")
        .args(["-c", &stage.cores.load])
        .arg(client)
        .arg(server.address.to_string())
        .args(["--rate", &rate.to_string(), "--seconds", &(stage.effort.seconds * 2).to_string()])
        .args(["--connections", &CONNECTIONS.to_string(), "--threads", &stage.cores.threads.to_string()])
        .args(more)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", client.display()))
}

fn gets(stage: &Stage, client: &Path, server: &Server, rate: f64) -> Result<Latency, String> {
    quantiles(open_load(stage, client, server, rate, &["--path", "/users/{id}", "--max-id", "10057"])?)
}

/// Waits for the client and reads what it measured.
pub(super) fn quantiles(child: Child) -> Result<Latency, String> {
    let output = child.wait_with_output().map_err(|error| format!("the load client: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let field = |name: &str| {
        let value = text.split_once(&format!("\"{name}\":"))?.1.split([',', '}']).next()?;
        value.parse::<f64>().ok()
    };
    match (field("failed"), field("p50_us"), field("p99_us"), field("late_p99_us")) {
        (Some(0.0), Some(p50), Some(p99), Some(late_p99)) => Ok(Latency { p50, p99, late_p99 }),
        _ => Err(format!("the load client failed: {text}")),
    }
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
