//! `cargo xtask bench feed`: durable POSTs with 1,024 in flight, alone and with one follower of `/_/changes`: the follower's cost for the
//! writers, the number of its events, and the delay between a write's reply and its event. For the delay, one more connection writes one
//! document at a time and compares the times of its replies with those of its events.

use super::setup::process::{Server, exchange};
use super::setup::results::{Row, record};
use super::setup::stage::{Stage, TRAIN};
use super::setup::wrk::{self, Load, Outcome};
use super::{Cores, Effort, median};
use crate::tools;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The visit by which the delay is measured: the load does not change it.
const WATCHED: u32 = 1;
const LOAD: &str = r#"
wrk.headers["Content-Type"] = "application/json"
function make()
  return wrk.format('POST', '/visits/' .. math.random(2, 100570), nil, '{"visited_at":' .. math.random(946684800, 1420070400) .. '}')
end"#;
const PAUSE: Duration = Duration::from_millis(2);
/// Smallest permitted rate with the follower, relative to the rate without.
const LEAST: f64 = 0.8;
const LAG_MS_MOST: f64 = 50.0;

/// Observations of a follower in one run.
#[derive(Default)]
struct Followed {
    events: f64,
    /// How often it was too slow and had to resume from its position.
    cuts: u32,
    lags_ms: Vec<f64>,
}

pub(super) fn run(effort: Effort) -> Result<(), String> {
    let stage = Stage::set(effort)?;
    keep_to(&stage.cores)?;
    let server = stage.serve(TRAIN)?;
    // With a pool of requests, most writes would leave a document unchanged.
    let load = Load { connections: 64, pipeline: 16, make: LOAD.to_owned(), fresh: true };
    let once = |seed| wrk::run(&server, &load, &stage.cores, effort, stage.folder.path(), seed);
    let (mut alone, mut beside, mut seen) = (Vec::new(), Vec::new(), Followed::default());
    let mut ratios = Vec::new();
    once(1)?;
    for round in 0..effort.rounds as u64 {
        let before = once(3 * round + 2)?;
        let (with, followed) = follow(&server, || once(3 * round + 3))?;
        let after = once(3 * round + 4)?;
        ratios.push(2.0 * with.requests_per_second / (before.requests_per_second + after.requests_per_second));
        alone.extend([before, after]);
        beside.push(with);
        seen.events += followed.events;
        seen.cuts += followed.cuts;
        seen.lags_ms.extend(followed.lags_ms);
    }
    let rows = rows(&alone, &beside, median(ratios), seen, effort);
    rows.iter().for_each(Row::print);
    if effort.record { record("cargo xtask bench feed", &rows) } else { Ok(()) }
}

fn rows(alone: &[Outcome], beside: &[Outcome], ratio: f64, seen: Followed, effort: Effort) -> [Row; 2] {
    let of = |runs: &[Outcome], figure: fn(&Outcome) -> f64| median(runs.iter().map(figure).collect());
    let rate = |runs: &[Outcome]| of(runs, |run| run.requests_per_second / 1e3);
    let cpu = |runs: &[Outcome]| of(runs, |run| run.cpu_microseconds);
    let failures: u64 = alone.iter().chain(beside).map(|run| run.failures).sum();
    let rates = || alone.iter().map(|run| run.requests_per_second);
    let noise = rates().fold(0.0, f64::max) / rates().fold(f64::INFINITY, f64::min) - 1.0;
    let mut lags = seen.lags_ms;
    lags.sort_by(f64::total_cmp);
    let at = |part: f64| lags.get((lags.len() as f64 * part) as usize).copied().unwrap_or(f64::NAN);
    let events = seen.events / (effort.rounds as f64 * f64::from(effort.seconds));
    let writers = Row {
        work: format!("durable POST, 1,024 in flight, beside one follower of /_/changes ({failures} failed)"),
        other: format!("without: {:.0}k/s, {:.1} µs CPU", rate(alone), cpu(alone)),
        ours: format!("{:.0}k/s, {:.1} µs CPU", rate(beside), cpu(beside)),
        figure: format!("{ratio:.2} ×"),
        bound: format!("≥ {LEAST} ×"),
        reached: ratio >= LEAST && failures == 0,
        noise: format!("{:.0} %", noise * 100.0),
    };
    let follower = Row {
        work: "its event after a write's reply".to_owned(),
        other: format!("{} writes watched; {} times too slow", lags.len(), seen.cuts),
        ours: format!("{:.0}k events/s; p50 {:.1} ms", events / 1e3, at(0.5)),
        figure: format!("p99 {:.1} ms", at(0.99)),
        bound: format!("≤ {LAG_MS_MOST} ms"),
        reached: at(0.99) <= LAG_MS_MOST,
        noise: String::new(),
    };
    [writers, follower]
}

/// The follower and the watched writes run in this process, on the cores of the load.
fn keep_to(cores: &Cores) -> Result<(), String> {
    tools::run_with(Command::new("taskset").args(["-cp", &cores.load]).arg(std::process::id().to_string()))
}

/// Runs a load with a follower.
fn follow(server: &Server, load: impl FnOnce() -> Result<Outcome, String>) -> Result<(Outcome, Followed), String> {
    let (address, over) = (server.address, AtomicBool::new(false));
    let failed = |error: std::io::Error| format!("{address}: {error}");
    let stream = begin(address, "").map_err(failed)?;
    std::thread::scope(|scope| {
        let follower = scope.spawn(|| events(address, stream, &over));
        let writer = scope.spawn(|| writes(address, &over));
        let outcome = load();
        over.store(true, Ordering::Relaxed);
        let panicked = |_| "a thread of the bench panicked".to_owned();
        let written = writer.join().map_err(panicked)?.map_err(failed)?;
        // Ends the feed's wait if no other event arrives.
        exchange(address, &post(0, "close"))?;
        let (followed, arrived) = follower.join().map_err(panicked)?.map_err(failed)?;
        let lag = |(value, replied): &(u64, Instant)| {
            let (_, at) = arrived.iter().find(|(found, _)| found == value)?;
            Some(at.saturating_duration_since(*replied).as_secs_f64() * 1e3)
        };
        let lags_ms = written.iter().filter_map(lag).collect();
        Ok((outcome?, Followed { lags_ms, ..followed }))
    })
}

/// Requests the feed from now on, or from a position, and reads its head.
fn begin(address: SocketAddr, since: &str) -> std::io::Result<BufReader<TcpStream>> {
    let mut stream = TcpStream::connect(address)?;
    let since = if since.is_empty() { String::new() } else { format!("&since={since}") };
    stream
        .write_all(format!("GET /_/changes?collection=visits{since} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())?;
    let mut reader = BufReader::with_capacity(256 << 10, stream);
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    Ok(reader)
}

/// The watched visit's values, each with a time.
type Moments = Vec<(u64, Instant)>;

/// Counts the feed's events until it ends, and records the times of those of the watched visit.
fn events(
    address: SocketAddr,
    mut feed: BufReader<TcpStream>,
    over: &AtomicBool,
) -> std::io::Result<(Followed, Moments)> {
    let watched = format!("\"key\":{WATCHED},");
    let (mut text, mut size, mut seen, mut moments) = (Vec::new(), String::new(), Followed::default(), Vec::new());
    loop {
        size.clear();
        feed.read_line(&mut size)?;
        let Ok(bytes) = usize::from_str_radix(size.trim(), 16) else { return Ok((seen, moments)) };
        let (before, now) = (text.len(), Instant::now());
        text.resize(before + bytes + 2, 0);
        feed.read_exact(&mut text[before..])?;
        text.truncate(before + bytes);
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let (mut ends, mut cut_at) = (false, None);
        for line in text[..whole].split(|byte| *byte == b'\n') {
            if line.starts_with(b"{\"end\"") {
                let line = String::from_utf8_lossy(line).into_owned();
                let since = line.split("\"since\":").nth(1).unwrap_or_default();
                cut_at = Some(since.trim_matches(['"', '}']).to_owned());
            }
            // Other lines report the feed's position.
            if line.len() < 40 || cut_at.is_some() {
                continue;
            }
            seen.events += 1.0;
            // After the number and the collection's name.
            let head = line.get(..90).unwrap_or(line);
            if head.windows(watched.len()).any(|part| part == watched.as_bytes()) {
                let value = value_of(line);
                ends = value == 0 && over.load(Ordering::Relaxed);
                moments.push((value, now));
            }
        }
        text.drain(..whole);
        if ends || bytes == 0 {
            return Ok((seen, moments));
        }
        if let Some(since) = cut_at {
            seen.cuts += 1;
            text.clear();
            feed = begin(address, &since)?;
        }
    }
}

fn value_of(line: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(line);
    let value = text.split("\"visited_at\":").nth(1).unwrap_or_default();
    value.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).unwrap_or_default()
}

fn post(value: u64, connection: &str) -> Vec<u8> {
    let body = format!("{{\"visited_at\":{value}}}");
    let fields = format!("Host: localhost\r\nConnection: {connection}\r\nContent-Length: {}", body.len());
    format!("POST /visits/{WATCHED} HTTP/1.1\r\n{fields}\r\n\r\n{body}").into_bytes()
}

/// Writes the watched visit periodically, each time with another value, and records the times of the replies.
fn writes(address: SocketAddr, over: &AtomicBool) -> std::io::Result<Moments> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let (mut moments, mut reply) = (Vec::new(), [0; 4096]);
    while !over.load(Ordering::Relaxed) {
        let value = moments.len() as u64 + 1_000_000_000;
        stream.write_all(&post(value, "keep-alive"))?;
        // The reply is small and arrives in one piece.
        if stream.read(&mut reply)? == 0 {
            break;
        }
        moments.push((value, Instant::now()));
        std::thread::sleep(PAUSE);
    }
    Ok(moments)
}
