//! `cargo xtask bench proxy`: `sapsan proxy` compared with twemproxy (nutcracker), both with the same four Redis nodes.
//!
//! redis-benchmark loads one and then the other, in turns. Both run on one exclusive core, with one thread each; nodes and load
//! share the other cores. With few cores the nodes are the bottleneck, so CPU per command decides, not commands per second.
//!
//! For the same reason the gain of a second thread is computed: with free cores the rate of a proxy is bounded by its busiest
//! thread, which has its share of the CPU of all commands. So two threads serve `cpu of one / (cpu of two × share of the
//! busiest)` times as many as one.

use super::setup::process::{Server, free_address};
use super::setup::results::{Row, record};
use super::{Cores, Effort, median, sapsan, spread};
use crate::{redis, tools};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const NODES: usize = 4;
/// Size in bytes of the values that redis-benchmark sets.
const VALUE_BYTES: &str = "100";
/// Number of keys that redis-benchmark chooses from.
const KEYS: &str = "100000";
/// Number of keys in one MGET or MSET.
const MANY: usize = 100;
/// Bound on the proxy's memory.
const MEMORY_BYTES_MAX: u64 = 256 << 20;
/// Slow readers: their number, the depth of their pipelines, their reads.
const SLOW_CLIENTS: usize = 50;
const SLOW_DEPTH: usize = 10_000;
const SLOW_READ_BYTES: usize = 64 << 10;
const SLOW_PAUSE: Duration = Duration::from_millis(20);

/// One cell of the table: clients, pipeline, commands of a run.
struct Cell {
    clients: u32,
    pipeline: u32,
    commands: u64,
    /// Largest permitted CPU per command, relative to twemproxy's.
    bound: f64,
}

const CELLS: [Cell; 5] = [
    Cell { clients: 10, pipeline: 1, commands: 100_000, bound: 1.0 },
    Cell { clients: 10, pipeline: 100, commands: 1_000_000, bound: 0.7 },
    Cell { clients: 20, pipeline: 1000, commands: 1_000_000, bound: 0.7 },
    Cell { clients: 20, pipeline: 10_000, commands: 1_000_000, bound: 0.7 },
    Cell { clients: 1, pipeline: 100, commands: 1_000_000, bound: 0.7 },
];

/// Clients, pipeline and commands of a run on two threads, and the required gain of two threads.
const TWO_THREADS: (u32, u32, u64) = (20, 100, 1_000_000);
const TWO_THREADS_GAIN: f64 = 1.7;

/// Results of one run.
#[derive(Clone, Copy)]
struct Run {
    cpu_us: f64,
    per_second: f64,
}

/// The nodes, and the two proxies.
struct Stage {
    cores: Cores,
    _nodes: Vec<Server>,
    addresses: Vec<SocketAddr>,
    ours: Server,
    theirs: Server,
    folder: tempfile::TempDir,
}

pub(super) fn run(effort: Effort) -> Result<(), String> {
    redis::install(&[])?;
    for (program, package) in [("redis-benchmark", "redis-tools"), ("taskset", "util-linux")] {
        tools::require(program, package)?;
    }
    let mut stage = Stage::set()?;
    let mut rows = Vec::new();
    for cell in &CELLS {
        for command in ["set", "get"] {
            rows.push(stage.compare(effort, cell, command)?);
        }
    }
    for command in ["mset", "mget"] {
        rows.push(stage.many_keys(effort, command)?);
    }
    rows.push(stage.two_threads(effort)?);
    rows.push(stage.slow_readers()?);
    rows.iter().for_each(Row::print);
    if effort.record { record("cargo xtask bench proxy", &rows) } else { Ok(()) }
}

impl Stage {
    fn set() -> Result<Stage, String> {
        let (cores, folder) = (Cores::of_machine(), tempfile::tempdir());
        let folder = folder.map_err(|error| format!("a temporary folder: {error}"))?;
        let (server, mut nodes, mut addresses) = (redis::program()?, Vec::new(), Vec::new());
        for _ in 0..NODES {
            let address = free_address()?;
            let (port, dir) = (address.port().to_string(), folder.path().display().to_string());
            let arguments =
                ["--port", &port, "--save", "", "--appendonly", "no", "--dir", &dir, "--logfile", "/dev/null"];
            nodes.push(Server::start(&cores.load, &server, &arguments.map(str::to_owned), address)?);
            addresses.push(address);
        }
        let ours = start_ours(&cores, &addresses, 1)?;
        let theirs = start_theirs(&cores, &addresses, folder.path())?;
        Ok(Stage { cores, _nodes: nodes, addresses, ours, theirs, folder })
    }

    /// One run of redis-benchmark against a proxy.
    fn load(
        &self,
        server: &Server,
        clients: u32,
        pipeline: u32,
        commands: u64,
        more: &[String],
    ) -> Result<Run, String> {
        let before = server.cpu_seconds();
        let output = Command::new("taskset")
            .args(["-c", &self.cores.load, "redis-benchmark", "--csv", "-p", &server.address.port().to_string()])
            .args(["-c", &clients.to_string(), "-P", &pipeline.to_string(), "-n", &commands.to_string()])
            .args(["-d", VALUE_BYTES, "-r", KEYS])
            .args(more)
            .output()
            .map_err(|error| format!("redis-benchmark: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let per_second = text
            .lines()
            .filter(|line| !line.contains("\"test\""))
            .find_map(|line| line.split(',').nth(1)?.trim_matches('"').parse::<f64>().ok());
        let Some(per_second) = per_second else {
            return Err(format!("redis-benchmark: {text}{}", String::from_utf8_lossy(&output.stderr)));
        };
        Ok(Run { cpu_us: (server.cpu_seconds() - before) / commands as f64 * 1e6, per_second })
    }

    fn compare(&mut self, effort: Effort, cell: &Cell, command: &str) -> Result<Row, String> {
        let commands = if effort.record { cell.commands } else { cell.commands / 5 };
        let test = ["-t".to_owned(), command.to_owned()];
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..effort.rounds {
            theirs.push(self.load(&self.theirs, cell.clients, cell.pipeline, commands, &test)?);
            ours.push(self.load(&self.ours, cell.clients, cell.pipeline, commands, &test)?);
        }
        let memory = [&self.theirs, &self.ours].map(|server| server.anonymous_bytes() / 1_000_000);
        // It does not release memory, so it is restarted.
        if cell.pipeline >= 1000 {
            self.theirs = start_theirs(&self.cores, &self.addresses, self.folder.path())?;
        }
        let cpu = |runs: &[Run]| median(runs.iter().map(|run| run.cpu_us).collect());
        let rate = |runs: &[Run]| median(runs.iter().map(|run| run.per_second).collect()) / 1000.0;
        let ratio = cpu(&ours) / cpu(&theirs);
        let noise = spread(&ours.iter().map(|run| run.cpu_us).collect::<Vec<_>>());
        let figures = |runs: &[Run], memory| format!("{:.2} µs, {:.0} k/s, {memory} MB", cpu(runs), rate(runs));
        let row = Row {
            work: format!("{} {} clients -P {}", command.to_uppercase(), cell.clients, cell.pipeline),
            other: figures(&theirs, memory[0]),
            ours: figures(&ours, memory[1]),
            figure: format!("{ratio:.2} × CPU"),
            bound: format!("{} ×", cell.bound),
            reached: ratio <= cell.bound && memory[1] * 1_000_000 < MEMORY_BYTES_MAX,
            noise: format!("{:.0} %", noise * 100.0),
        };
        row.print();
        Ok(row)
    }

    /// Keys per second: MGET or MSET through our proxy, single GETs or SETs through the other.
    fn many_keys(&mut self, effort: Effort, command: &str) -> Result<Row, String> {
        let single = command.trim_start_matches('m');
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let mut words = vec![command.to_owned()];
        for _ in 0..MANY {
            words.push("key:__rand_int__".to_owned());
            words.extend((command == "mset").then(|| "x".repeat(100)));
        }
        for _ in 0..effort.rounds {
            theirs.push(self.load(&self.theirs, 10, 1, 50_000, &["-t".to_owned(), single.to_owned()])?.per_second);
            ours.push(self.load(&self.ours, 10, 1, 10_000, &words)?.per_second * MANY as f64);
        }
        let noise = spread(&ours);
        let (ours, theirs) = (median(ours), median(theirs));
        let row = Row {
            work: format!("{} of {MANY} keys beside {}", command.to_uppercase(), single.to_uppercase()),
            other: format!("{:.0} k keys/s", theirs / 1000.0),
            ours: format!("{:.0} k keys/s", ours / 1000.0),
            figure: format!("{:.1} ×", ours / theirs),
            bound: "3 ×".to_owned(),
            reached: ours >= 3.0 * theirs,
            noise: format!("{:.0} %", noise * 100.0),
        };
        row.print();
        Ok(row)
    }

    /// The gain of a second thread, from CPU per command and its distribution among threads.
    fn two_threads(&self, effort: Effort) -> Result<Row, String> {
        let (clients, pipeline, commands) = TWO_THREADS;
        let commands = if effort.record { commands } else { commands / 5 };
        let two = start_ours(&self.cores, &self.addresses, 2)?;
        let test = ["-t".to_owned(), "get".to_owned()];
        let (mut alone, mut both, mut gains, mut shares) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..effort.rounds {
            alone.push(self.load(&self.ours, clients, pipeline, commands, &test)?.cpu_us);
            let before = two.thread_nanoseconds();
            both.push(self.load(&two, clients, pipeline, commands, &test)?.cpu_us);
            shares.push(busiest_share(&before, &two.thread_nanoseconds()));
            gains.extend(
                alone.last().zip(both.last()).zip(shares.last()).map(|((one, two), share)| one / (two * share)),
            );
        }
        let (gain, noise) = (median(gains.clone()), spread(&gains));
        let row = Row {
            work: format!("GET {clients} clients -P {pipeline}, two threads beside one, computed"),
            other: format!("one: {:.2} µs", median(alone)),
            ours: format!("two: {:.2} µs, the busiest has {:.0} %", median(both), median(shares) * 100.0),
            figure: format!("{gain:.2} × the rate"),
            bound: format!("{TWO_THREADS_GAIN} ×"),
            reached: gain >= TWO_THREADS_GAIN,
            noise: format!("{:.0} %", noise * 100.0),
        };
        row.print();
        Ok(row)
    }

    /// Deep pipelines with replies of 1 KB that are read slowly.
    fn slow_readers(&self) -> Result<Row, String> {
        let ours = start_ours(&self.cores, &self.addresses, 1)?;
        exchange_set(ours.address)?;
        let readers: Vec<_> = (0..SLOW_CLIENTS).map(|_| slow_reader(ours.address)).collect();
        let mut most = 0;
        while readers.iter().any(|reader| !reader.is_finished()) {
            most = most.max(ours.anonymous_bytes());
            std::thread::sleep(Duration::from_millis(10));
        }
        for reader in readers {
            reader.join().map_err(|_| "a slow reader panicked")??;
        }
        let row = Row {
            work: format!("{SLOW_CLIENTS} slow readers, {SLOW_DEPTH} GETs of 1 KB each"),
            other: "—".to_owned(),
            ours: format!("{} MB at most", most / 1_000_000),
            figure: format!("{} MB", most / 1_000_000),
            bound: "256 MB".to_owned(),
            reached: most < MEMORY_BYTES_MAX,
            noise: "—".to_owned(),
        };
        row.print();
        Ok(row)
    }
}

/// The busiest thread's share of the CPU time between two measurements.
fn busiest_share(before: &BTreeMap<u32, u64>, after: &BTreeMap<u32, u64>) -> f64 {
    let used = |(id, time): (&u32, &u64)| time - before.get(id).copied().unwrap_or(0).min(*time);
    let times: Vec<u64> = after.iter().map(used).collect();
    times.iter().copied().max().unwrap_or(0) as f64 / times.iter().sum::<u64>().max(1) as f64
}

fn start_ours(cores: &Cores, nodes: &[SocketAddr], threads: usize) -> Result<Server, String> {
    let (address, threads) = (free_address()?, threads.to_string());
    let nodes: Vec<String> = nodes.iter().map(SocketAddr::to_string).collect();
    let (listen, nodes) = (address.to_string(), nodes.join(","));
    let arguments = ["proxy", "--listen", &listen, "--nodes", &nodes, "--threads", &threads, "--log", "error"];
    Server::start(&cores.server, &sapsan()?, &arguments.map(str::to_owned), address)
}

fn start_theirs(cores: &Cores, nodes: &[SocketAddr], folder: &Path) -> Result<Server, String> {
    let (address, statistics) = (free_address()?, free_address()?);
    let servers: String = nodes.iter().map(|node| format!("   - {node}:1\n")).collect();
    let text = format!(
        "bench:\n  listen: {address}\n  hash: fnv1a_64\n  distribution: ketama\n  redis: true\n  auto_eject_hosts: false\n  servers:\n{servers}"
    );
    let file = folder.join("nutcracker.yml");
    std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    let (file, port) = (file.display().to_string(), statistics.port().to_string());
    let arguments = ["-c", &file, "-s", &port, "-v", "0", "-o", "/dev/null"];
    Server::start(&cores.server, &redis::nutcracker()?, &arguments.map(str::to_owned), address)
}

/// Sets the key of the slow readers.
fn exchange_set(address: SocketAddr) -> Result<(), String> {
    let talk = || -> std::io::Result<()> {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(format!("SET slow {}\r\n", "x".repeat(1000)).as_bytes())?;
        stream.read_exact(&mut [0; 5])
    };
    talk().map_err(|error| format!("{address}: {error}"))
}

fn slow_reader(address: SocketAddr) -> std::thread::JoinHandle<Result<(), String>> {
    std::thread::spawn(move || {
        let talk = || -> std::io::Result<()> {
            let mut stream = TcpStream::connect(address)?;
            let mut writing = stream.try_clone()?;
            let writer =
                std::thread::spawn(move || writing.write_all(&b"*2\r\n$3\r\nGET\r\n$4\r\nslow\r\n".repeat(SLOW_DEPTH)));
            let mut left = SLOW_DEPTH * "$1000\r\n\r\n".len() + SLOW_DEPTH * 1000;
            let mut bytes = vec![0; SLOW_READ_BYTES];
            while left > 0 {
                let taken = stream.read(&mut bytes)?;
                if taken == 0 {
                    return Err(std::io::ErrorKind::UnexpectedEof.into());
                }
                left -= taken.min(left);
                std::thread::sleep(SLOW_PAUSE);
            }
            writer.join().unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()))
        };
        talk().map_err(|error| format!("a slow reader: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_the_busiest_thread_is_of_the_time_between_two_looks() {
        let before = BTreeMap::from([(1, 500), (2, 100)]);
        let after = BTreeMap::from([(1, 510), (2, 160), (3, 30)]);
        assert!((busiest_share(&before, &after) - 0.6).abs() < 1e-9);
        assert!(busiest_share(&after, &after) < 1e-9);
    }
}
