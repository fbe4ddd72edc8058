//! Instructions of one request, before and after a change: counted by callgrind, so the figures hardly depend on the machine and its
//! other load. They do not include the kernel's work and the waits for memory: times decide, instructions show where to look.

use super::setup::process::{Server, free_address};
use super::setup::results::{COST_MOST, Row};
use super::setup::stage::Stage;
use crate::tools;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const CONNECTIONS: usize = 16;
const PIPELINED: usize = 16;
/// Batches on each connection, before the count and in it.
const ROUNDS: usize = 40;
/// Time limit for a reply: under valgrind the server is fifty times slower.
const REPLY_LIMIT: Duration = Duration::from_secs(60);

/// A kind of request; `request` writes the one of a number.
struct Load {
    work: &'static str,
    pipelined: usize,
    request: fn(u32) -> String,
}

const LOADS: [Load; 5] = [
    Load { work: "GET /users/ID", pipelined: 1, request: |n| get(&format!("/users/{}", 1 + n % 10_000)) },
    Load {
        work: "GET /users/ID, 16 pipelined",
        pipelined: PIPELINED,
        request: |n| get(&format!("/users/{}", 1 + n % 10_000)),
    },
    Load {
        work: "GET /users/ID/visits, 16 pipelined",
        pipelined: PIPELINED,
        request: |n| get(&format!("/users/{}/visits", 1 + n % 10_000)),
    },
    Load {
        work: "GET /locations/ID/avg, 16 pipelined",
        pipelined: PIPELINED,
        request: |n| get(&format!("/locations/{}/avg", 1 + n % 7_000)),
    },
    Load {
        work: "durable POST /visits/ID, 16 pipelined",
        pipelined: PIPELINED,
        request: |n| post(&format!("/visits/{}", 1 + n % 100_000), &format!("{{\"mark\":{}}}", n % 6)),
    },
];

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

fn post(path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

/// A row for each load: `before` and `after` are builds of the server.
pub(super) fn rows(stage: &Stage, before: &Path, after: &Path) -> Result<Vec<Row>, String> {
    tools::require("valgrind", "valgrind")?;
    let shim = stage.folder.path().join("smallmap.so");
    let source = tools::root().join("bench/smallmap.c");
    tools::run_with(Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).arg(&shim).arg(source))?;
    let mut rows = Vec::new();
    for (number, load) in LOADS.iter().enumerate() {
        let count = |side: &str, program: &Path| {
            // A fresh import each time: documents that were changed since are found in another way.
            let data = stage.imported_with(&format!("{side}-{number}"), program.to_owned())?.into_folder();
            count(stage, load, program, &data, &shim)
        };
        let (before, after) = (count("before", before)?, count("after", after)?);
        let ratio = after / before;
        let row = Row {
            work: format!("instructions of {}", load.work),
            other: format!("before: {before:.0}"),
            ours: format!("{after:.0}"),
            figure: format!("{ratio:.3} ×"),
            bound: format!("≤ {COST_MOST:.2} ×"),
            reached: ratio <= COST_MOST,
            noise: "—".to_owned(),
        };
        row.print();
        rows.push(row);
    }
    Ok(rows)
}

/// Instructions of one request of a load.
fn count(stage: &Stage, load: &Load, program: &Path, data: &Path, shim: &Path) -> Result<f64, String> {
    let report = data.with_extension("callgrind");
    let server = start(stage, program, data, shim, &report)?;
    let mut connections: Vec<TcpStream> =
        (0..CONNECTIONS).map(|_| connect(server.address)).collect::<Result<_, String>>()?;
    let mut numbers = Numbers(1);
    send(load, &mut connections, &mut numbers)?;
    instrument(&server, "on")?;
    send(load, &mut connections, &mut numbers)?;
    instrument(&server, "off")?;
    server.terminate()?;
    Ok(counted(&report)? / (ROUNDS * CONNECTIONS * load.pipelined) as f64)
}

/// Numbers in a fixed order that does not repeat soon (Knuth's constant for multiplicative hashing).
struct Numbers(u32);

impl Numbers {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(1);
        self.0.wrapping_mul(2_654_435_761) >> 8
    }
}

/// Sends batches on all connections in turns, and reads their replies.
fn send(load: &Load, connections: &mut [TcpStream], numbers: &mut Numbers) -> Result<(), String> {
    for _ in 0..ROUNDS {
        for connection in &mut *connections {
            let batch: String = (0..load.pipelined).map(|_| (load.request)(numbers.next())).collect();
            connection.write_all(batch.as_bytes()).map_err(|error| format!("sending requests: {error}"))?;
        }
        for connection in &mut *connections {
            read_replies(connection, load.pipelined)?;
        }
    }
    Ok(())
}

/// Reads replies with a Content-Length. A status other than 200 is an error.
fn read_replies(connection: &mut TcpStream, mut missing: usize) -> Result<(), String> {
    let (mut bytes, mut at, mut buffer) = (Vec::new(), 0, [0; 1 << 16]);
    while missing > 0 {
        let text = String::from_utf8_lossy(&bytes[at..]).into_owned();
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse::<usize>().ok());
            let length = length.filter(|_| head.starts_with("HTTP/1.1 200"));
            let whole = head.len() + 4 + length.ok_or_else(|| format!("an unexpected reply: {head}"))?;
            if bytes.len() - at >= whole {
                (at, missing) = (at + whole, missing - 1);
                continue;
            }
        }
        match connection.read(&mut buffer) {
            Ok(0) => return Err("the server closed a connection".to_owned()),
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
            Err(error) => return Err(format!("reading replies: {error}")),
        }
    }
    Ok(())
}

/// Starts a server under callgrind, which does not count yet.
fn start(stage: &Stage, program: &Path, data: &Path, shim: &Path, report: &Path) -> Result<Server, String> {
    let address = free_address()?;
    let mut words = vec![
        format!("LD_PRELOAD={}", shim.display()),
        "valgrind".to_owned(),
        "--quiet".to_owned(),
        "--tool=callgrind".to_owned(),
        "--instr-atstart=no".to_owned(),
        format!("--callgrind-out-file={}", report.display()),
        program.display().to_string(),
        "serve".to_owned(),
        Stage::config().display().to_string(),
    ];
    words.extend(["--data", &data.display().to_string(), "--http", &address.to_string()].map(str::to_owned));
    words.extend(["--threads", "1"].map(str::to_owned));
    Server::start(&stage.cores.server, Path::new("env"), &words, address)
}

fn connect(address: SocketAddr) -> Result<TcpStream, String> {
    let connect = || {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_LIMIT))?;
        Ok::<_, std::io::Error>(stream)
    };
    connect().map_err(|error| format!("{address}: {error}"))
}

/// Switches the counting on or off.
fn instrument(server: &Server, state: &str) -> Result<(), String> {
    let mut command = Command::new("callgrind_control");
    tools::run_with(command.args(["-i", state, &server.id().to_string()]).stdout(Stdio::null()))
}

/// The number of counted instructions: the `totals` of callgrind's report.
fn counted(report: &Path) -> Result<f64, String> {
    let text = std::fs::read_to_string(report).map_err(|error| format!("{}: {error}", report.display()))?;
    let totals = text.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok());
    totals.ok_or_else(|| format!("{}: callgrind wrote no totals", report.display()))
}
