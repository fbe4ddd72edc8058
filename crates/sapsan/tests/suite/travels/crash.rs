//! Power cuts: `kill -9` while clients write. What was acknowledged is there afterwards, whole.

use super::client::Client;
use super::process::Server;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The whole test's time: each round is a start, a second or so of writes, a kill. `cargo xtask campaign kill` goes on for longer.
const BUDGET: Duration = Duration::from_secs(10);
const CLIENTS: u32 = 8;

#[test]
fn every_acknowledged_write_survives_kill_at_any_moment() {
    let random = &mut ChaCha8Rng::seed_from_u64(7);
    let store = tempfile::tempdir().expect("a temporary folder");
    let acknowledged = Mutex::new(Vec::new());
    let mut next_id = 1;
    let started = Instant::now();
    let mut rounds = 0;
    while started.elapsed() < BUDGET {
        let server = Server::start(store.path(), 0);
        check_acknowledged(server.address, &acknowledged.lock().expect("no writer panicked"));
        let address = server.address;
        let alive = Duration::from_millis(random.random_range(5..700));
        std::thread::scope(|scope| {
            for writer in 0..CLIENTS {
                let acknowledged = &acknowledged;
                let first = next_id + writer * 1_000_000;
                scope.spawn(move || write_until_the_end(address, first, acknowledged));
            }
            std::thread::sleep(alive);
            server.kill();
        });
        next_id += 10_000;
        rounds += 1;
    }
    let server = Server::start(store.path(), 0);
    check_acknowledged(server.address, &acknowledged.lock().expect("no writer panicked"));
    let count = acknowledged.lock().expect("no writer panicked").len();
    assert!(rounds >= 3 && count > 100, "{rounds} rounds with {count} writes say too little");
}

/// Creates locations one after another, until the connection breaks; notes each that was acknowledged.
fn write_until_the_end(address: SocketAddr, first: u32, acknowledged: &Mutex<Vec<u32>>) {
    let mut client = Client::new(address);
    for id in first..first + 10_000 {
        let request = super::client::request_bytes("POST", "/locations/new", Some(body(id).as_bytes()));
        match client.send(&request).and_then(|()| client.receive()) {
            Ok(answer) => {
                assert_eq!(answer.status, 200, "location {id}: {}", String::from_utf8_lossy(&answer.body));
                acknowledged.lock().expect("no writer panicked").push(id);
            }
            Err(_) => return,
        }
    }
}

fn body(id: u32) -> String {
    format!(r#"{{"id":{id},"place":"{}","country":"c","city":"{id}","distance":{id}}}"#, "п".repeat(id as usize % 300))
}

#[track_caller]
fn check_acknowledged(address: SocketAddr, acknowledged: &[u32]) {
    let mut client = Client::new(address);
    // All of the newest writes and a part of the old ones: they were looked at after earlier kills.
    let old = acknowledged.len().saturating_sub(20_000);
    for id in acknowledged[..old].iter().step_by(7).chain(&acknowledged[old..]) {
        let answer = client.request("GET", &format!("/locations/{id}"), None);
        let found: Value = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
        let expected: Value = serde_json::from_str(&body(*id)).expect("made as JSON");
        assert_eq!((answer.status, found), (200, expected), "location {id} was acknowledged");
    }
}
