//! `cargo xtask bench adhoc [--docs=N] [--quick]`: undeclared queries over generated users.
//!
//! - Registrations by month, over HTTP, with all cores; compared with SQLite with JSON in a column and with DuckDB over the
//!   NDJSON file (`bench/peers/adhoc.py`; `pip install duckdb`).
//! - GETs of single documents, alone and during ten such queries at a time: the server has half the cores, the client the
//!   others.

use super::setup::open_load::{Latency, OpenLoad, gets_of_ids};
use super::setup::process::{Server, exchange, free_address};
use super::setup::results::{Row, record};
use super::setup::stage::{Stage, require_room};
use super::{Effort, median};
use crate::tools;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

const DOCUMENTS: u64 = 5_900_000;
const QUICK_DOCUMENTS: u64 = 590_000;
/// Turns of GETs alone and during scans: on a shared machine a few are disturbed.
const TURNS: usize = 7;
/// Disk space per document: the NDJSON, the imported tree, SQLite's file, and temporary space.
const ROOM_PER_DOCUMENT: u64 = 4_000;
const CONFIG: &str =
    "[server]\nscan_rows_max = 1000000000\n\n[collections.users]\nkey = { field = \"Id\", type = \"u32\" }\n";
const BY_MONTH: &str = "SELECT strftime('%Y-%m', CreationDate) AS month, COUNT(*) AS n FROM users GROUP BY month";
/// Concurrent queries during the GETs.
const SCANS: usize = 10;
/// The generator omits every twelfth id.
const ID_STEP: u64 = 12;
/// GETs per second.
const RATE: f64 = 20_000.0;
const SQLITE_LEAST: f64 = 5.0;
const DUCKDB_LEAST: f64 = 1.0;
const P99_MOST: f64 = 2.0;

pub(super) fn run(arguments: &[String]) -> Result<(), String> {
    let (mut documents, mut is_recorded) = (None, true);
    for argument in arguments {
        match argument.strip_prefix("--docs=").map(str::parse) {
            Some(Ok(number)) if number > 0 => documents = Some(number),
            None if argument == "--quick" => is_recorded = false,
            _ => return Err(format!("`{argument}` is not known; allowed: --docs=N, --quick")),
        }
    }
    let effort = Effort { rounds: 3, seconds: if is_recorded { 3 } else { 1 }, record: is_recorded };
    let documents = documents.unwrap_or(if is_recorded { DOCUMENTS } else { QUICK_DOCUMENTS });
    let stage = Stage::set(effort)?;
    require_room(stage.folder.path(), documents * ROOM_PER_DOCUMENT)?;
    let users = stage.folder.path().join("users.ndjson");
    load(&stage, &users, documents)?;
    let mut rows = by_month(&stage, &users, documents)?;
    rows.push(beside_scans(&stage, documents)?);
    rows.iter().for_each(Row::print);
    if is_recorded { record(&format!("cargo xtask bench adhoc --docs={documents}"), &rows) } else { Ok(()) }
}

fn load(stage: &Stage, users: &Path, documents: u64) -> Result<(), String> {
    let generate = ["generate", "stackoverflow-users", "--seed", "1", "--docs", &documents.to_string(), "--out"];
    tools::run_with(Command::new(&stage.sapsan).args(generate).arg(users))?;
    let config = stage.folder.path().join("users.toml");
    std::fs::write(&config, CONFIG).map_err(|error| format!("{}: {error}", config.display()))?;
    let mut import = Command::new(&stage.sapsan);
    import.arg("import").arg(&config).args(["--collection", "users"]).arg(users);
    tools::run_with(import.arg("--data").arg(stage.folder.path().join("users")))
}

fn serve(stage: &Stage, cores: &str, threads: usize) -> Result<Server, String> {
    let address = free_address()?;
    let (config, data) = (stage.folder.path().join("users.toml"), stage.folder.path().join("users"));
    let (config, data) = (config.display().to_string(), data.display().to_string());
    let (http, threads) = (address.to_string(), threads.to_string());
    let arguments = ["serve", &config, "--data", &data, "--http", &http, "--threads", &threads].map(str::to_owned);
    Server::start(cores, &stage.sapsan, &arguments, address)
}

/// Runs one query over HTTP; returns the reply's body.
fn ask(address: SocketAddr) -> Result<String, String> {
    let body = format!("{{\"sql\":\"{BY_MONTH}\"}}");
    let head = format!(
        "POST /_/query HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let reply = exchange(address, (head + &body).as_bytes())?;
    let reply = String::from_utf8_lossy(&reply).into_owned();
    match reply.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200") => Ok(body.to_owned()),
        _ => Err(format!("the query failed: {reply}")),
    }
}

fn by_month(stage: &Stage, users: &Path, documents: u64) -> Result<Vec<Row>, String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let server = serve(stage, &format!("0-{}", threads - 1), threads)?;
    let months = ask(server.address)?.matches("\"month\"").count();
    let mut ours = Vec::new();
    let mut round = || -> Result<(), String> {
        for _ in 0..stage.effort.rounds {
            let began = Instant::now();
            ask(server.address)?;
            ours.push(began.elapsed().as_secs_f64());
        }
        Ok(())
    };
    round()?;
    let peers = Command::new("python3")
        .arg(tools::root().join("bench/peers/adhoc.py"))
        .arg(users)
        .args([threads.to_string(), stage.effort.rounds.to_string()])
        .output()
        .map_err(|error| format!("python3: {error}"))?;
    round()?;
    let text = String::from_utf8_lossy(&peers.stdout).into_owned();
    let peer = |name: &str| -> Result<f64, String> {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let times = line.map(|line| line.split_whitespace().filter_map(|time| time.parse().ok()).collect::<Vec<f64>>());
        let error =
            || format!("bench/peers/adhoc.py error nothing of {name}: {}", String::from_utf8_lossy(&peers.stderr));
        times.filter(|times| !times.is_empty()).map(median).ok_or_else(error)
    };
    if text.lines().any(|line| line.strip_prefix("rows ").is_some_and(|rows| rows != months.to_string())) {
        return Err(format!("{months} months here, and there: {text}"));
    }
    let noise = ours.iter().copied().fold(0.0, f64::max) / ours.iter().copied().fold(f64::INFINITY, f64::min);
    let own = median(ours);
    let row = |other: &str, seconds: f64, least: f64| Row {
        work: format!("registrations by month, asked ad hoc over {documents} users"),
        other: format!("{other}: {seconds:.2} s"),
        ours: format!("{own:.3} s with {threads} threads, over HTTP"),
        figure: format!("{:.1} × as fast", seconds / own),
        bound: format!("≥ {least:.0} ×"),
        reached: seconds / own >= least,
        noise: format!("{:.0} %", (noise - 1.0) * 100.0),
    };
    server.terminate()?;
    Ok(vec![
        row("SQLite, JSON in a column", peer("sqlite ")?, SQLITE_LEAST),
        row(&format!("DuckDB over the NDJSON, {threads} threads"), peer("duckdb ")?, DUCKDB_LEAST),
    ])
}

/// GETs alone and during scans, in turns.
fn beside_scans(stage: &Stage, documents: u64) -> Result<Row, String> {
    let server = serve(stage, &stage.cores.server, stage.cores.threads)?;
    let load = OpenLoad::by(&stage.sapsan, &stage.cores, stage.effort);
    let ammo = gets_of_ids("/_/collections/users/", documents + 1, ID_STEP);
    let gets = || load.measure(&server, RATE, &ammo);
    ask(server.address)?;
    gets()?;
    let (mut alone, mut beside, scans) = (Vec::new(), Vec::new(), AtomicU64::new(0));
    for _ in 0..TURNS {
        alone.push(gets()?);
        let (ended, address) = (AtomicBool::new(false), server.address);
        let during = std::thread::scope(|scope| {
            for _ in 0..SCANS {
                scope.spawn(|| {
                    while !ended.load(Ordering::Relaxed) && ask(address).is_ok() {
                        scans.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let during = gets();
            ended.store(true, Ordering::Relaxed);
            during
        });
        beside.push(during?);
    }
    let of = |runs: &[Latency], figure: fn(&Latency) -> f64| median(runs.iter().map(figure).collect());
    let side = |runs: &[Latency]| format!("p50 {:.0}, p99 {:.0} µs", of(runs, |run| run.p50), of(runs, |run| run.p99));
    let ratio = of(&beside, |run| run.p99) / of(&alone, |run| run.p99);
    let scans = scans.load(Ordering::Relaxed);
    // Processor time that another tenant of the machine takes looks like the server's.
    let spread = alone.iter().map(|run| run.p99).fold(0.0, f64::max)
        / alone.iter().map(|run| run.p99).fold(f64::INFINITY, f64::min);
    let late = of(&beside, |run| run.late_p99);
    Ok(Row {
        work: format!("GET of a document, {:.0}k/s, beside {SCANS} full scans at a time", RATE / 1e3),
        other: format!("alone: {}", side(&alone)),
        ours: format!("{}, {scans} scans done meanwhile", side(&beside)),
        figure: format!("{ratio:.2} × its p99 alone"),
        bound: format!("≤ {P99_MOST:.0} ×"),
        reached: ratio <= P99_MOST,
        noise: format!("alone within {spread:.1} ×, client late p99 {late:.0} µs"),
    })
}
