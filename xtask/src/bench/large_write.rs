//! `cargo xtask bench large-write`: durable POSTs under an open load, alone and beside an UPDATE of 200,000 documents.
//!
//! A large transaction writes its changes to the log in pieces of 1 MB and commits them by one record. Other commits wait for one
//! piece, never for the transaction. The bound is that of the longest wait.

use super::setup::open_load::{Latency, OpenLoad};
use super::setup::process::exchange;
use super::setup::results::{Row, record};
use super::setup::stage::{Counts, Stage};
use super::{Effort, median};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Users, locations and visits; the statement changes all visits.
const COUNTS: Counts = [10_057, 7_628, 200_000];
const UPDATE: &str = "UPDATE visits SET mark = 5 - mark";
/// Durable POSTs to users per second.
const POST_RATE: f64 = 1_000.0;
const POSTS: &str = concat!(
    r#"{"method": "POST", "path": "/users/{int:1..10057}", "headers": {"Content-Type": "application/json"}, "#,
    r#""body": "{\"birth_date\":{int:0..1000000}}"}"#
);
const WAIT_MAX_MS: f64 = 50.0;

pub(super) fn run(effort: Effort) -> Result<(), String> {
    let stage = Stage::set(effort)?;
    let load = OpenLoad::by(&stage.sapsan, &stage.cores, effort);
    let server = stage.serve(COUNTS)?;
    let (mut alone, mut beside, mut changed) = (Vec::new(), Vec::new(), 0);
    for _ in 0..effort.rounds {
        alone.push(load.measure(&server, POST_RATE, POSTS)?);
        let is_over = AtomicBool::new(false);
        let (during, updates) = std::thread::scope(|scope| {
            let updates = scope.spawn(|| updates(server.address, &is_over));
            let during = load.measure(&server, POST_RATE, POSTS);
            is_over.store(true, Ordering::Relaxed);
            (during, updates.join())
        });
        beside.push(during?);
        changed += updates.map_err(|_| "the thread of the updates panicked".to_owned())??;
    }
    let row = judge(&alone, &beside, changed);
    row.print();
    if effort.record { record("cargo xtask bench large-write", &[row]) } else { Ok(()) }
}

/// Runs the statement again and again until the load is over; returns how often.
fn updates(address: SocketAddr, is_over: &AtomicBool) -> Result<u32, String> {
    let body = format!("{{\"sql\":\"{UPDATE}\"}}");
    let length = body.len();
    let request = format!(
        "POST /_/query HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) {
        let reply = exchange(address, request.as_bytes())?;
        if !reply.starts_with(b"HTTP/1.1 200") {
            return Err(format!("the UPDATE failed: {}", String::from_utf8_lossy(&reply)));
        }
        count += 1;
    }
    Ok(count)
}

fn judge(alone: &[Latency], beside: &[Latency], changed: u32) -> Row {
    let of = |runs: &[Latency], figure: fn(&Latency) -> f64| median(runs.iter().map(figure).collect()) / 1e3;
    let side = |runs: &[Latency]| {
        let [p50, p99] = [of(runs, |run| run.p50), of(runs, |run| run.p99)];
        format!("p50 {p50:.1}, p99 {p99:.1}, longest {:.1} ms", longest(runs))
    };
    Row {
        work: format!("{:.0} durable POSTs/s to users beside {changed} UPDATEs of 200,000 visits", POST_RATE),
        other: format!("alone: {}", side(alone)),
        ours: side(beside),
        figure: format!("longest {:.1} ms", longest(beside)),
        bound: format!("≤ {WAIT_MAX_MS:.0} ms"),
        reached: longest(beside) <= WAIT_MAX_MS,
        noise: format!("longest of each run {:.1} ms in the median", of(beside, |run| run.max)),
    }
}

/// The longest latency of all runs, in milliseconds.
fn longest(runs: &[Latency]) -> f64 {
    runs.iter().map(|run| run.max).fold(0.0, f64::max) / 1e3
}
