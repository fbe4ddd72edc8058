//! A load client of the open model: requests have planned moments, whatever the server does, and latency counts from
//! the planned moment. So a server that stalls pays for every request that would have come in the meantime (what is
//! called coordinated omission does not happen).
//!
//! Each connection sends at a constant rate, the connections' phases spread evenly. The client's own lateness is
//! measured and told: where its 99th percentile is not far below the latencies, the run says little.

mod client;
mod replies;
mod requests;
mod tally;

use clap::Parser;
use client::{Client, Plan};
use reactor::{Reactor, Settings};
use requests::Requests;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tally::Tally;

/// Connections are opened in this time before the first request is due.
const WARM_UP: Duration = Duration::from_millis(300);
/// Replies are waited for this long after the last request was due.
const GRACE: Duration = Duration::from_secs(2);

#[derive(Debug, Parser)]
struct Arguments {
    /// The server
    address: SocketAddr,
    /// Requests a second in all
    #[arg(long)]
    rate: f64,
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    #[arg(long, default_value_t = 64)]
    connections: u32,
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Target of GET requests; `{id}` becomes a random id
    #[arg(long, default_value = "/users/{id}")]
    path: String,
    #[arg(long, default_value_t = 10_000)]
    max_id: u32,
    /// Only ids 1, 1 + this, and so on are asked for: some data has gaps.
    #[arg(long, default_value_t = 1)]
    id_step: u32,
    /// POST /visits/ID with a new mark instead of GETs
    #[arg(long)]
    post_visits: bool,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let shared = Arc::new(Mutex::new(Tally::new()));
    let reactor = Reactor::new(Settings { loops: arguments.threads.max(1), ..Settings::default() })?;
    let loops = reactor.loops();
    let first_ns = loops[0].precise_now_ns() + WARM_UP.as_nanos() as u64;
    let interval_ns = 1e9 * f64::from(arguments.connections) / arguments.rate;
    for number in 0..arguments.connections {
        let plan = Plan {
            first_ns: first_ns + (interval_ns * f64::from(number) / f64::from(arguments.connections)) as u64,
            interval_ns,
            end_ns: first_ns + (arguments.seconds * 1e9) as u64,
        };
        let seed = arguments.seed.wrapping_mul(1_000_003).wrapping_add(u64::from(number));
        let requests = if arguments.post_visits {
            Requests::post_visits(arguments.max_id, seed)
        } else {
            Requests::get(&arguments.path, arguments.max_id, arguments.id_step, seed)
        };
        let tally = Arc::clone(&shared);
        let lp = &loops[number as usize % loops.len()];
        lp.connect(arguments.address, Box::new(move |_, _| Box::new(Client::new(plan, requests, tally))));
    }
    let running = reactor.start()?;
    std::thread::sleep(WARM_UP + Duration::from_secs_f64(arguments.seconds) + GRACE);
    running.drain(Duration::ZERO);
    running.join()?;
    let tally = shared.lock().map_err(|_| "a loop panicked")?;
    println!("{}", tally.json(arguments.seconds));
    Ok(())
}
