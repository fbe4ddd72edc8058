//! 10,000 idle connections cost under 2 KB of process memory each. A test binary of its own: it measures the process.
#![allow(clippy::unwrap_used, unsafe_code)] // setrlimit has no safe binding among our libraries

mod harness;
mod process_limits;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use process_limits::{descriptors_max, resident_bytes};

use harness::{Lines, Making, connect, eventually, loops, serve};

const CONNECTIONS: usize = 10_000;
const BYTES_EACH_MAX: usize = 2048;
const ADDRESS: &str = "IDLE_MEMORY_ADDRESS";

/// The clients, in a process of their own, so that their memory and descriptors are not the server's.
#[test]
#[ignore = "the client process of the other test"]
fn client() {
    let Ok(given) = std::env::var(ADDRESS) else { return };
    let (address, count) = given.split_once('/').unwrap();
    let (address, count): (SocketAddr, usize) = (address.parse().unwrap(), count.parse().unwrap());
    descriptors_max();
    let streams: Vec<_> = (0..count)
        .map(|_| {
            let mut stream = connect(address);
            // Each has used its buffers before it falls idle.
            harness::exchange(&mut stream, b"a request\n", b">a request\n");
            stream
        })
        .collect();
    println!("ready");
    let _ = std::io::stdin().read(&mut [0]);
    drop(streams);
}

#[test]
fn ten_thousand_idle_connections_cost_under_two_kilobytes_each() {
    let count = CONNECTIONS.min(descriptors_max() - 200);
    let server = serve(loops(2), Making::each(|_, _| Box::new(Lines)));
    harness::exchange(&mut server.connect(), b"warm\n", b">warm\n");
    let before = resident_bytes();
    let mut client = Command::new(std::env::current_exe().unwrap())
        .args(["client", "--exact", "--ignored", "--nocapture"])
        .env(ADDRESS, format!("{}/{count}", server.address))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.ends_with("ready")), "the client failed");
    assert!(server.metrics().sum(|l| l.open) >= count as u64);
    let each = resident_bytes().saturating_sub(before) / count;
    println!("{count} idle connections: {each} bytes each");
    assert!(each < BYTES_EACH_MAX, "{each} bytes for each of {count} idle connections");
    client.stdin.take().unwrap().write_all(b"q").unwrap();
    lines.for_each(drop); // to its end: otherwise its last output fails with a broken pipe
    client.wait().unwrap();
    eventually("all are closed", || server.metrics().sum(|l| l.open) == 0);
    server.stop();
}
