//! `cargo xtask bench lab`: the best execution model compared with the optimum, the cost of a task, and blocking requests in a
//! server.
//!
//! `sapsan lab` itself measures the optimum and the models, in one process. Each server is measured under the same load twice, in
//! turns: once with one percent of requests that block for 10 ms, and once with as many that do not; the latency of the others
//! counts.

use super::setup::open_load::{Latency, OpenLoad, quantiles};
use super::setup::process::{Server, free_address};
use super::setup::results::{Row, record};
use super::{Cores, Effort, median, sapsan, spread};
use crate::tools;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// Rate of the judged requests per second. Odd ids neither wait nor yield.
const RATE: f64 = 4000.0;
const JUDGED: &str = "/{int:1..9999}{choice:1|3|5|7|9}";
/// Rate of the other requests: one percent.
const BLOCKING_RATE: f64 = RATE / 100.0;
/// A request that blocks for 10 ms, and one that does not.
const BLOCKING_PATH: &str = "/500";
const PLAIN_PATH: &str = "/501";
/// Connections of each of the two clients.
const CONNECTIONS: u32 = 32;
/// Models of the servers.
const SERVERS: [&str; 4] = ["pool:16", "io-aware", "event-loop", "hybrid"];
/// Experiments that do not run requests one after the other: those that can come near the optimum.
const FAST: &str = "2,12,13,15,16,17";
/// Numbers of cores that are judged; those beyond the machine's are skipped.
const CORES: [usize; 2] = [2, 4];

pub(super) fn run(effort: Effort) -> Result<(), String> {
    tools::require("taskset", "util-linux")?;
    let sapsan = sapsan()?;
    let mut rows = Vec::new();
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    for cores in CORES.into_iter().filter(|cores| *cores <= available) {
        rows.push(best_model(&sapsan, cores, effort)?);
    }
    rows.extend(overheads(&sapsan, effort)?);
    for model in SERVERS {
        rows.push(blocking_beside_others(&sapsan, model, effort)?);
    }
    rows.iter().for_each(Row::print);
    if effort.record { record("cargo xtask bench lab", &rows) } else { Ok(()) }
}

/// Runs `sapsan lab` on the first cores and returns its output.
fn lab(sapsan: &Path, cores: usize, arguments: &[&str]) -> Result<Value, String> {
    let output = Command::new("taskset")
        .args(["-c", &format!("0-{}", cores - 1)])
        .arg(sapsan)
        .arg("lab")
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot start {}: {error}", sapsan.display()))?;
    if !output.status.success() {
        return Err(format!("`sapsan lab {}` ended with {}", arguments.join(" "), output.status));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("`sapsan lab` printed no JSON: {error}"))
}

/// The classic experiment through all models once, then the fast ones again. A run with a wrong control value fails.
fn best_model(sapsan: &Path, cores: usize, effort: Effort) -> Result<Row, String> {
    if effort.record {
        print_all(&lab(sapsan, cores, &["--json"])?, cores);
    }
    let report = lab(sapsan, cores, &["--json", "--only", FAST, "--repeat", &effort.rounds.to_string()])?;
    print_all(&report, cores);
    let experiments = experiments(&report);
    let best = experiments.iter().min_by(|one, other| above(one).total_cmp(&above(other))).ok_or("no experiment")?;
    let walls: Vec<f64> = best["walls"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    let optimum = &report["optimum"];
    let bound = ["work", "chain", "arrival"].iter().filter_map(|name| optimum[*name].as_f64()).fold(0.0, f64::max);
    Ok(Row {
        work: format!("100,000 requests on {cores} cores, the best of {} models", experiments.len()),
        other: format!("optimum {bound:.3} s"),
        ours: format!("{}: {:.3} s", best["title"].as_str().unwrap_or_default(), median(walls.clone())),
        figure: format!("{:+.1} %", above(best) * 100.0),
        bound: "≤ 5 %".to_owned(),
        reached: above(best) <= 0.05,
        noise: format!("{:.1} %", spread(&walls) * 100.0),
    })
}

fn experiments(report: &Value) -> &[Value] {
    report["experiments"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Time above the optimum, relative to it.
fn above(experiment: &Value) -> f64 {
    experiment["above_optimum"].as_f64().unwrap_or(f64::INFINITY)
}

fn print_all(report: &Value, cores: usize) {
    for one in experiments(report) {
        println!("  {} on {cores} cores: {:+.1} %", one["title"].as_str().unwrap_or_default(), above(one) * 100.0);
    }
}

fn overheads(sapsan: &Path, effort: Effort) -> Result<Vec<Row>, String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(2);
    let tasks = if effort.record { "200000" } else { "40000" };
    let judged = [("pool", 1.0), ("io-aware", 2.0)];
    let mut rows = Vec::new();
    for (model, bound) in judged {
        let mut found = Vec::new();
        let mut task_us = 0.0;
        for _ in 0..effort.rounds {
            let all = lab(sapsan, cores, &["overhead", "--json", "--model", model, "--tasks", tasks])?;
            found.extend(all[0]["cpu_us"].as_f64());
            task_us = all[0]["task_us"].as_f64().unwrap_or(0.0);
        }
        let overhead = median(found.clone());
        rows.push(Row {
            work: format!("overhead of a task in model {model}"),
            other: format!("inline {task_us:.2} µs"),
            ours: format!("{:.2} µs", task_us + overhead),
            figure: format!("{overhead:.2} µs of processor time"),
            bound: format!("< {bound:.0} µs"),
            reached: overhead < bound,
            noise: format!("{:.0} %", spread(&found) * 100.0),
        });
    }
    Ok(rows)
}

/// The p99 of requests that do not block, with and without others that do.
fn blocking_beside_others(sapsan: &Path, model: &str, effort: Effort) -> Result<Row, String> {
    let cores = Cores::of_machine();
    let address = free_address()?;
    let words = ["lab", "serve", "--model", model, "--listen", &address.to_string()].map(str::to_owned);
    let server = Server::start(&cores.server, sapsan, &words, address)?;
    let load = OpenLoad::by(sapsan, &cores, effort).with_connections(CONNECTIONS);
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..effort.rounds {
        without.push(beside(&load, &server, PLAIN_PATH)?);
        with.push(beside(&load, &server, BLOCKING_PATH)?);
    }
    let p99 = |runs: &[Latency]| median(runs.iter().map(|run| run.p99).collect());
    let side = |runs: &[Latency]| {
        let of = |figure: fn(&Latency) -> f64| median(runs.iter().map(figure).collect());
        format!("p50 {:.0}, p99 {:.0} µs (client late p99 {:.0})", of(|run| run.p50), p99(runs), of(|run| run.late_p99))
    };
    let ratio = p99(&with) / p99(&without);
    Ok(Row {
        work: format!("lab serve --model {model}: one percent blocks 10 ms; p99 of the others"),
        other: side(&without),
        ours: side(&with),
        figure: format!("{ratio:.2} ×"),
        bound: "≤ 1.5 ×".to_owned(),
        reached: ratio <= 1.5,
        noise: format!("{:.0} %", spread(&without.iter().map(|run| run.p99).collect::<Vec<_>>()) * 100.0),
    })
}

/// Latency of requests that neither wait nor yield, while another load requests `path`.
fn beside(load: &OpenLoad, server: &Server, path: &str) -> Result<Latency, String> {
    let other = load.start(server, BLOCKING_RATE, path)?;
    let judged = load.measure(server, RATE, JUDGED);
    quantiles(other)?;
    judged
}
