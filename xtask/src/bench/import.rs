//! `cargo xtask bench import`: the speed of a durable, checked import, and of a server's start on the data.
//! `cargo xtask bench import full`: the same with the whole rating set, whose ten million visits are generated.

use super::setup::process::Server;
use super::setup::results::{Row, record};
use super::setup::stage::{Stage, TRAIN};
use super::{Effort, median, spread};
use crate::tools;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Users, locations and visits of the contest's rating set, of which only users and locations are imported.
const FULL: [u32; 3] = [1_000_074, 761_314, 740];
const RATE_LEAST: f64 = 400_000.0;
const ANONYMOUS_MOST: u64 = 500_000_000;
const START_MOST: Duration = Duration::from_secs(1);
/// The same with ten million more visits.
const START_MOST_FULL: Duration = Duration::from_secs(2);
const VISITS_FULL: u32 = 10_000_000;
/// Disk space for the whole set: its files, its sorted runs, its trees.
const ROOM_FULL: u64 = 8 << 30;
const SAMPLE: Duration = Duration::from_millis(10);

pub(super) fn run(effort: Effort) -> Result<(), String> {
    let stage = Stage::set(effort)?;
    let mut rows = Vec::new();
    let train = stage.generate(TRAIN)?;
    import_row(&stage, "import of a set as large as the train data", &[train], TRAIN.iter().sum(), &mut rows)?;
    let real = tools::root().join("../shared/travels/full/data.zip");
    let (name, zip) = if real.is_file() { ("real", real) } else { ("generated", stage.generate(FULL)?) };
    let work = format!("import of 1.76 M {name} users and locations");
    let store = import_row(&stage, &work, &[zip], FULL.iter().sum(), &mut rows)?;
    start_rows(&stage, &store, START_MOST, &mut rows)?;
    rows.iter().for_each(Row::print);
    if effort.record { record("cargo xtask bench import", &rows) } else { Ok(()) }
}

/// The whole set. Takes some minutes and gigabytes, so it must be requested by name.
pub(super) fn run_full(effort: Effort) -> Result<(), String> {
    let stage = Stage::set(effort)?;
    super::setup::stage::require_room(stage.folder.path(), ROOM_FULL)?;
    let mut rows = Vec::new();
    let (real, zips) = whole_set(&stage)?;
    let name = if real { "real" } else { "generated" };
    let work = format!("import of 1.76 M {name} users and locations and ten million generated visits");
    let store = import_row(&stage, &work, &zips, FULL[0] + FULL[1] + FULL[2] + VISITS_FULL, &mut rows)?;
    start_rows(&stage, &store, START_MOST_FULL, &mut rows)?;
    rows.iter().for_each(Row::print);
    if effort.record { record("cargo xtask bench import full", &rows) } else { Ok(()) }
}

/// Users and locations, real ones if available, and visits of them.
fn whole_set(stage: &Stage) -> Result<(bool, Vec<PathBuf>), String> {
    let real = tools::root().join("../shared/travels/full/data.zip");
    if real.is_file() {
        return Ok((true, vec![real, stage.generate_visits([FULL[0], FULL[1], VISITS_FULL])?]));
    }
    // As many visits as in the real set.
    Ok((false, vec![stage.generate([FULL[0], FULL[1], VISITS_FULL + FULL[2]])?]))
}

/// One import: its seconds, and the peak of anonymous memory, by sampling.
fn import(stage: &Stage, zips: &[PathBuf], store: &Path) -> Result<(f64, u64), String> {
    let started = Instant::now();
    let mut child = Command::new(&stage.sapsan)
        .arg("import")
        .arg(Stage::config())
        .arg("--data")
        .arg(store)
        .args(zips)
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot start the import: {error}"))?;
    let mut peak = 0;
    loop {
        peak = peak.max(super::setup::process::anonymous_bytes(child.id()));
        match child.try_wait().map_err(|error| format!("the import: {error}"))? {
            Some(status) if status.success() => return Ok((started.elapsed().as_secs_f64(), peak)),
            Some(status) => return Err(format!("the import of {} ended with {status}", zips[0].display())),
            None => std::thread::sleep(SAMPLE),
        }
    }
}

fn import_row(
    stage: &Stage,
    work: &str,
    zips: &[PathBuf],
    documents: u32,
    rows: &mut Vec<Row>,
) -> Result<PathBuf, String> {
    let store = stage.folder.path().join("imported");
    let (mut times, mut peak) = (Vec::new(), 0);
    for _ in 0..stage.effort.rounds.min(3) {
        let _ = std::fs::remove_dir_all(&store);
        let (seconds, anonymous) = import(stage, zips, &store)?;
        times.push(seconds);
        peak = peak.max(anonymous);
    }
    let spread = spread(&times);
    let rate = f64::from(documents) / median(times.clone());
    rows.push(Row {
        work: work.to_owned(),
        other: "—".to_owned(),
        ours: format!("{:.2} s, {:.0}k documents/s, anonymous {:.0} MB", median(times), rate / 1e3, peak as f64 / 1e6),
        figure: format!("{:.0}k/s, {:.0} MB", rate / 1e3, peak as f64 / 1e6),
        bound: "≥ 400k/s, < 500 MB".to_owned(),
        reached: rate >= RATE_LEAST && peak < ANONYMOUS_MOST,
        noise: format!("{:.0} %", spread * 100.0),
    });
    Ok(store)
}

fn start_rows(stage: &Stage, store: &Path, most_allowed: Duration, rows: &mut Vec<Row>) -> Result<(), String> {
    let (mut clean, mut killed) = (Vec::new(), Vec::new());
    for _ in 0..stage.effort.rounds {
        clean.push(start(stage, store)?.1);
        let (server, _) = start(stage, store)?;
        write_some(&server)?;
        server.kill();
        let (server, seconds) = start(stage, store)?;
        killed.push(seconds);
        server.terminate()?;
    }
    for (work, times) in
        [("start after a clean stop on that data", clean), ("start after kill -9 on that data", killed)]
    {
        let most = times.iter().copied().fold(0.0, f64::max);
        rows.push(Row {
            work: work.to_owned(),
            other: "—".to_owned(),
            ours: format!("median {:.3} s, longest {most:.3} s", median(times)),
            figure: format!("{most:.3} s"),
            bound: format!("< {} s", most_allowed.as_secs()),
            reached: most < most_allowed.as_secs_f64(),
            noise: "—".to_owned(),
        });
    }
    Ok(())
}

/// Starts a server; returns the time until its port accepts a connection.
fn start(stage: &Stage, store: &Path) -> Result<(Server, f64), String> {
    let started = Instant::now();
    let server = stage.serve_folder(store)?;
    Ok((server, started.elapsed().as_secs_f64()))
}

/// Writes entries to the log for the next start to replay.
fn write_some(server: &Server) -> Result<(), String> {
    let body = r#"{"distance":1}"#;
    for id in 1..=2_000 {
        let request = format!(
            "POST /locations/{id} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let reply = super::setup::process::exchange(server.address, request.as_bytes())?;
        if !reply.starts_with(b"HTTP/1.1 200") {
            return Err(format!("POST /locations/{id}: {}", String::from_utf8_lossy(&reply)));
        }
    }
    Ok(())
}
