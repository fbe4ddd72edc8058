//! `cargo xtask bench writes`: durable POSTs compared with redis-server's SET with `appendfsync always`, in one run.

use super::setup::process::{Server, free_address};
use super::setup::results::{Row, record};
use super::setup::stage::{Stage, TRAIN};
use super::setup::wrk;
use super::setup::wrk::Load;
use super::{Effort, median, spread};
use crate::{redis as redis_programs, tools};
use std::process::Command;

/// SETs of one redis-benchmark run, for each requested second.
const SETS_PER_SECOND: u32 = 60_000;

const CHANGE: &str = r#"
wrk.headers["Content-Type"] = "application/json"
function make()
  return wrk.format('POST', '/visits/' .. math.random(1, 100570), nil, '{"mark":' .. math.random(0, 5) .. '}')
end"#;
/// Ids are never reused: each thread of each run has two million of its own.
const CREATE: &str = r#"
wrk.headers["Content-Type"] = "application/json"
function make()
  made = (made or 0) + 1
  local id = 1000000 + seed * 2000000 + made
  return wrk.format('POST', '/visits/new', nil, '{"id":' .. id .. ',"user":' .. math.random(1, 10057) .. ',"location":' ..
    math.random(1, 7628) .. ',"visited_at":' .. math.random(946684800, 1420070400) .. ',"mark":' .. math.random(0, 5) .. '}')
end"#;

/// The loads: name, code that makes a request, requests in flight on each connection, and the smallest permitted multiple of
/// redis-server's rate.
const SHAPES: [(&str, &str, u32, f64); 4] = [
    ("durable POST /visits/ID, 64 connections", CHANGE, 1, 1.0),
    ("durable POST /visits/new, 64 connections", CREATE, 1, 1.0),
    ("durable POST /visits/ID, 16 pipelined", CHANGE, 16, 0.5),
    ("durable POST /visits/new, 16 pipelined", CREATE, 16, 0.5),
];

fn load(make: &str, pipeline: u32) -> Load {
    Load { connections: 64, pipeline, make: make.to_owned(), fresh: make == CREATE }
}

/// The loads with their names.
pub(super) fn loads() -> impl Iterator<Item = (&'static str, Load)> {
    SHAPES.iter().map(|&(name, make, pipeline, _)| (name, load(make, pipeline)))
}

pub(super) fn run(effort: Effort) -> Result<(), String> {
    redis_programs::install(&[])?;
    tools::require("redis-benchmark", "redis-tools")?;
    let stage = Stage::set(effort)?;
    let server = stage.serve(TRAIN)?;
    let redis = redis(&stage)?;
    let mut rows = Vec::new();
    let mut seed = 0;
    for (name, make, pipeline, least) in SHAPES {
        let load = load(make, pipeline);
        let (mut sets, mut ours, mut failures) = (Vec::new(), Vec::new(), 0);
        for _ in 0..effort.rounds {
            seed += 1;
            let before = set_rate(&stage, &redis, pipeline)?;
            let outcome = wrk::run(&server, &load, &stage.cores, effort, stage.folder.path(), seed)?;
            let after = set_rate(&stage, &redis, pipeline)?;
            sets.extend([before, after]);
            failures += outcome.failures;
            ours.push((
                outcome.requests_per_second,
                outcome.cpu_microseconds,
                2.0 * outcome.requests_per_second / (before + after),
            ));
        }
        let ratio = median(ours.iter().map(|run| run.2).collect());
        let row = Row {
            work: if failures == 0 { name.to_owned() } else { format!("{name} ({failures} failed)") },
            other: format!("redis SET always {:.0}k/s", median(sets.clone()) / 1e3),
            ours: format!(
                "{:.0}k/s, {:.1} µs CPU",
                median(ours.iter().map(|run| run.0).collect()) / 1e3,
                median(ours.iter().map(|run| run.1).collect())
            ),
            figure: format!("{ratio:.2} ×"),
            bound: format!("≥ {least:.1} ×"),
            reached: ratio >= least && failures == 0,
            noise: format!("{:.0} %", spread(&sets) * 100.0),
        };
        row.print();
        rows.push(row);
    }
    if effort.record { record("cargo xtask bench writes", &rows) } else { Ok(()) }
}

fn redis(stage: &Stage) -> Result<Server, String> {
    let address = free_address()?;
    let folder = stage.folder.path().join("redis");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let port = address.port().to_string();
    let folder = folder.display().to_string();
    let arguments = [
        "--port",
        &port,
        "--bind",
        "127.0.0.1",
        "--dir",
        &folder,
        "--save",
        "",
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
    ];
    Server::start(&stage.cores.server, &redis_programs::program()?, &arguments.map(str::to_owned), address)
}

fn set_rate(stage: &Stage, redis: &Server, pipeline: u32) -> Result<f64, String> {
    let count = SETS_PER_SECOND * stage.effort.seconds * if pipeline == 1 { 1 } else { 4 };
    let output = Command::new("taskset")
        .args(["-c", &stage.cores.load, "redis-benchmark", "-q", "-t", "set", "-c", "64", "-d", "132", "-r", "100000"])
        .args(["-p", &redis.address.port().to_string(), "-n", &count.to_string(), "-P", &pipeline.to_string()])
        .args(["--threads", &stage.cores.threads.to_string()])
        .output()
        .map_err(|error| format!("cannot start redis-benchmark: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rate = text.rsplit("SET: ").next().and_then(|tail| tail.split_whitespace().next()?.parse::<f64>().ok());
    rate.ok_or_else(|| format!("redis-benchmark said no rate:\n{text}"))
}
