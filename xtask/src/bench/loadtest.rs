//! `cargo xtask bench loadtest`: the load tester compared with wrk, ab, oha, k6 and wrk2, in turns on the same cores against the
//! same servers.
//!
//! Against the floor (`bench/floor.c`): requests per second, and the generator's own CPU per request. If generator and floor have
//! one core each, the slower one decides the rate, so the CPU is more informative. Against `bench/arrivals.c`, which records the
//! arrival of requests: their lateness compared with an even plan. oha, k6 and wrk2 are measured if they are on the PATH.
//!
//! A machine that takes the cores away for milliseconds delays the requests of every tool. So `bench/stalls.c` measures how much
//! time the cores lose right before and right after each open run, and runs are repeated until enough of them were undisturbed,
//! or a bound is reached; a row reports their number. The rule is the same for all tools.

use super::setup::process::{Server, free_address};
use super::setup::results::{Row, record};
use super::{Cores, Effort, median, spread};
use crate::{dist, tools};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Size of the floor's body in bytes.
const BODY_BYTES: &str = "132";
const CONNECTIONS: u32 = 64;
const PIPELINE: u32 = 16;
/// Rate of the open load, relative to the closed rate.
const OPEN_SHARE: f64 = 0.4;
/// Bounds of the figures.
const NEW_CONNECTIONS_MIN: f64 = 1.2;
const SENDING_ERROR_US_MAX: f64 = 200.0;
const MEMORY_BYTES_MAX: u64 = 100_000_000;
/// Number of requests of the long run.
const LONG_RUN: f64 = 10e6;
/// An open run was undisturbed if the cores lost less than this share of the time before and after it: a quarter of the share
/// that changes a p99.
const LOST_MAX: f64 = 0.0025;
/// Seconds of one measurement of lost time.
const LOOK_SECONDS: &str = "0.1";
/// Largest number of open runs of each tool, as a multiple of the number of undisturbed ones that are needed.
const TRIES_MAX: usize = 6;

/// Results of one run of a generator.
#[derive(Clone, Copy)]
struct Run {
    per_second: f64,
    /// CPU per request of the generator.
    cpu_us: f64,
    /// Largest resident memory in bytes.
    memory: u64,
}

/// Programs and cores.
struct Stage {
    effort: Effort,
    cores: Cores,
    folder: tempfile::TempDir,
    ours: PathBuf,
}

pub(super) fn run(effort: Effort) -> Result<(), String> {
    for (program, package) in [
        ("cc", "build-essential"),
        ("wrk", "wrk"),
        ("ab", "apache2-utils"),
        ("taskset", "util-linux"),
        ("time", "time"),
    ] {
        tools::require(program, package)?;
    }
    let stage = Stage::set(effort)?;
    let mut rows = Vec::new();
    let (floor, closing) = (stage.floor(&[])?, stage.floor(&["close"])?);
    for connections in [64, 256] {
        rows.push(stage.closed(&floor, connections, 1)?);
    }
    rows.push(stage.closed(&floor, CONNECTIONS, PIPELINE)?);
    rows.push(stage.new_connections(&closing)?);
    let rate = stage.rate(&floor)? * OPEN_SHARE;
    rows.extend(stage.sending_errors(rate)?);
    rows.push(stage.long_run(&floor)?);
    rows.iter().for_each(Row::print);
    if effort.record { record("cargo xtask bench loadtest", &rows) } else { Ok(()) }
}

impl Stage {
    fn set(effort: Effort) -> Result<Stage, String> {
        let ours = dist::build(&["--package", "loadtest", "--example", "load"])?.join("examples/load");
        let folder = tempfile::tempdir().map_err(|error| format!("a temporary folder: {error}"))?;
        for program in ["floor", "arrivals", "stalls"] {
            let (source, made) = (tools::root().join(format!("bench/{program}.c")), folder.path().join(program));
            tools::run_with(Command::new("cc").args(["-O2", "-pthread", "-o"]).arg(made).arg(source))?;
        }
        Ok(Stage { effort, cores: Cores::of_machine(), folder, ours })
    }

    fn floor(&self, more: &[&str]) -> Result<Server, String> {
        let address = free_address()?;
        let mut arguments = vec![address.port().to_string(), self.cores.threads.to_string(), BODY_BYTES.to_owned()];
        arguments.extend(more.iter().map(|word| (*word).to_owned()));
        Server::start(&self.cores.server, &self.folder.path().join("floor"), &arguments, address)
    }

    /// Runs a generator on the cores of the load; returns its output, its CPU seconds and its largest memory.
    fn generate(&self, program: &Path, arguments: &[String]) -> Result<(String, f64, u64), String> {
        let output = Command::new("taskset")
            .args(["-c", &self.cores.load, "time", "-f", "resources %U %S %M"])
            .arg(program)
            .args(arguments)
            .output()
            .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let resources = errors.lines().rev().find_map(|line| line.strip_prefix("resources "));
        let numbers: Vec<f64> = resources.unwrap_or("").split(' ').filter_map(|number| number.parse().ok()).collect();
        match *numbers {
            [user, system, kilobytes] if output.status.success() => {
                Ok((text.into_owned(), user + system, kilobytes as u64 * 1024))
            }
            _ => Err(format!("{}: {text}{errors}", program.display())),
        }
    }

    fn ours(&self, server: &Server, more: &[String]) -> Result<Run, String> {
        let mut arguments = vec![
            format!("http://{}/", server.address),
            "--json".to_owned(),
            "--threads".to_owned(),
            self.cores.threads.to_string(),
        ];
        arguments.extend_from_slice(more);
        let (text, cpu, memory) = self.generate(&self.ours, &arguments)?;
        let json: serde_json::Value = serde_json::from_str(&text).map_err(|error| format!("{text}: {error}"))?;
        let number = |name: &str| json[name].as_f64().ok_or_else(|| format!("no {name}: {text}"));
        if number("errors")? > 0.0 {
            return Err(format!("requests failed: {text}"));
        }
        Ok(Run { per_second: number("rps")?, cpu_us: cpu * 1e6 / number("answered")?, memory })
    }

    fn our_closed(&self, server: &Server, connections: u32, more: &[&str]) -> Result<Run, String> {
        let (connections, duration) = (connections.to_string(), format!("{}s", self.effort.seconds));
        let words = ["--connections", &connections, "--duration", &duration];
        self.ours(server, &words.iter().chain(more).map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    fn wrk(&self, server: &Server, connections: u32, pipeline: u32) -> Result<Run, String> {
        let script = self.folder.path().join("pipeline.lua");
        let lua = format!(
            "init = function(args)\n local r = {{}}\n for i = 1, {pipeline} do r[i] = wrk.format('GET', '/') end\n \
             req = table.concat(r)\nend\nrequest = function() return req end\n"
        );
        std::fs::write(&script, lua).map_err(|error| format!("{}: {error}", script.display()))?;
        let mut arguments = vec![
            format!("-t{}", self.cores.threads),
            format!("-c{connections}"),
            format!("-d{}s", self.effort.seconds),
        ];
        if pipeline > 1 {
            arguments.extend(["-s".to_owned(), script.display().to_string()]);
        }
        arguments.push(format!("http://{}/", server.address));
        let (text, cpu, memory) = self.generate(Path::new("wrk"), &arguments)?;
        let requests = text.split_once(" requests in").and_then(|(before, _)| before.split_whitespace().next_back());
        let per_second = text.split_once("Requests/sec:").and_then(|(_, after)| after.split_whitespace().next());
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<f64>().ok()).ok_or_else(|| text.clone());
        Ok(Run { per_second: number(per_second)?, cpu_us: cpu * 1e6 / number(requests)?, memory })
    }

    fn ab(&self, server: &Server, requests: f64) -> Result<Run, String> {
        let requests_text = format!("{requests:.0}");
        let url = format!("http://{}/", server.address);
        let arguments = ["-q", "-c", &CONNECTIONS.to_string(), "-n", &requests_text, &url].map(str::to_owned);
        let (text, cpu, memory) = self.generate(Path::new("ab"), &arguments)?;
        let per_second = text.split_once("Requests per second:").and_then(|(_, after)| after.split_whitespace().next());
        let per_second = per_second.and_then(|word| word.parse().ok()).ok_or_else(|| text.clone())?;
        Ok(Run { per_second, cpu_us: cpu * 1e6 / requests, memory })
    }

    fn closed(&self, floor: &Server, connections: u32, pipeline: u32) -> Result<Row, String> {
        let depth = pipeline.to_string();
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..self.effort.rounds {
            theirs.push(self.wrk(floor, connections, pipeline)?);
            ours.push(self.our_closed(floor, connections, &["--pipeline", &depth])?);
        }
        let of = |runs: &[Run], figure: fn(&Run) -> f64| median(runs.iter().map(figure).collect());
        let rate = of(&ours, |run| run.per_second) / of(&theirs, |run| run.per_second);
        let cpu = of(&ours, |run| run.cpu_us) / of(&theirs, |run| run.cpu_us);
        let row = Row {
            work: format!("closed, {connections} connections, {pipeline} pipelined, beside wrk"),
            other: figures(&theirs),
            ours: figures(&ours),
            figure: format!("rate {rate:.2} ×, CPU {cpu:.2} ×"),
            bound: "rate ≥ 1 ×, CPU ≤ 1 ×".to_owned(),
            reached: rate >= 1.0 && cpu <= 1.0,
            noise: noise(&ours),
        };
        row.print();
        Ok(row)
    }

    fn new_connections(&self, closing: &Server) -> Result<Row, String> {
        let (mut ours, mut theirs, mut requests) = (Vec::new(), Vec::new(), 10_000.0);
        for _ in 0..self.effort.rounds {
            let run = self.ab(closing, requests)?;
            // The next run lasts as long as the run of our load tester.
            requests = run.per_second * f64::from(self.effort.seconds);
            theirs.push(run);
            ours.push(self.our_closed(closing, CONNECTIONS, &["--new-connections"])?);
        }
        let rate = |runs: &[Run]| median(runs.iter().map(|run| run.per_second).collect());
        let ratio = rate(&ours) / rate(&theirs);
        let row = Row {
            work: format!("a new connection for each request, {CONNECTIONS} at once, beside ab"),
            other: figures(&theirs),
            ours: figures(&ours),
            figure: format!("rate {ratio:.2} ×"),
            bound: format!("rate ≥ {NEW_CONNECTIONS_MIN} ×"),
            reached: ratio >= NEW_CONNECTIONS_MIN,
            noise: noise(&ours),
        };
        row.print();
        Ok(row)
    }

    /// The closed rate on the floor.
    fn rate(&self, floor: &Server) -> Result<f64, String> {
        Ok(self.our_closed(floor, CONNECTIONS, &[])?.per_second)
    }

    /// Our load tester compared with the installed peers.
    fn sending_errors(&self, rate: f64) -> Result<Vec<Row>, String> {
        let ours = self.open_runs(&Peer { name: "ours", arguments: our_open }, rate)?;
        let p99 = ours.p99();
        let mut rows = Vec::new();
        for peer in PEERS {
            let (other, figure, better) = if tools::is_on_path(peer.name) {
                let theirs = self.open_runs(peer, rate)?;
                let figure = format!("{:.2} ×", p99 / theirs.p99());
                (format!("{}: {theirs}", peer.name), figure, p99 < theirs.p99())
            } else {
                (format!("{} is not on the PATH", peer.name), "—".to_owned(), true)
            };
            let row = Row {
                work: format!(
                    "open, {:.0}k/s: how far behind the plan requests arrive, beside {}",
                    rate / 1e3,
                    peer.name
                ),
                other,
                ours: ours.to_string(),
                figure,
                bound: format!("< 1 ×, < {SENDING_ERROR_US_MAX:.0} µs"),
                reached: better && p99 < SENDING_ERROR_US_MAX,
                noise: format!("{:.0} %", spread(&ours.p99_us) * 100.0),
            };
            row.print();
            rows.push(row);
        }
        Ok(rows)
    }

    /// Open runs of one tool until enough of them were undisturbed. If there are none, all of them count.
    fn open_runs(&self, tool: &Peer, rate: f64) -> Result<OpenRuns, String> {
        let (mut left_alone, mut all) = (Vec::new(), Vec::new());
        let mut lost = self.lost()?;
        while left_alone.len() < self.effort.rounds && all.len() < TRIES_MAX * self.effort.rounds {
            let before = lost;
            let p99_us = self.sending_error(tool, rate)?;
            lost = self.lost()?;
            all.push(p99_us);
            if before.max(lost) < LOST_MAX {
                left_alone.push(p99_us);
            }
        }
        let (runs, quiet) = (all.len(), left_alone.len());
        Ok(OpenRuns { p99_us: if left_alone.is_empty() { all } else { left_alone }, runs, quiet })
    }

    /// The largest share of the time that one of the cores currently loses.
    fn lost(&self) -> Result<f64, String> {
        let program = self.folder.path().join("stalls");
        let cores = [&self.cores.server, &self.cores.load].into_iter().flat_map(|cores| cores.split(','));
        let looks: Vec<_> = cores
            .map(|core| {
                let mut look = Command::new("taskset");
                look.args(["-c", core]).arg(&program).arg(LOOK_SECONDS).stdout(Stdio::piped());
                look.spawn().map_err(|error| format!("cannot start {}: {error}", program.display()))
            })
            .collect::<Result<_, _>>()?;
        let mut most = 0.0_f64;
        for look in looks {
            let output = look.wait_with_output().map_err(|error| format!("{}: {error}", program.display()))?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            most = most.max(text.trim().parse().map_err(|_| format!("{}: {text}", program.display()))?);
        }
        Ok(most)
    }

    fn sending_error(&self, peer: &Peer, rate: f64) -> Result<f64, String> {
        let address = free_address()?;
        let output = self.folder.path().join("arrivals.txt");
        let program = self.folder.path().join("arrivals");
        let arguments = [
            "-c".to_owned(),
            format!("exec \"{}\" {} {rate:.0} > \"{}\"", program.display(), address.port(), output.display()),
        ];
        let server = Server::start(&self.cores.server, Path::new("bash"), &arguments, address)?;
        let seconds = f64::from(self.effort.seconds);
        let program = if peer.name == "ours" { self.ours.clone() } else { PathBuf::from(peer.name) };
        let url = format!("http://{address}/");
        let script = self.folder.path().join("k6.js");
        let arguments = (peer.arguments)(&Open { url, rate, seconds, threads: self.cores.threads, script });
        self.generate(&program, &arguments)?;
        server.terminate()?;
        let text = std::fs::read_to_string(&output).unwrap_or_default();
        let numbers: Vec<f64> = text.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        match *numbers {
            [requests, _, p99, _] if requests > 0.0 => Ok(p99),
            _ => Err(format!("{}: no request arrived: {text}", peer.name)),
        }
    }

    fn long_run(&self, floor: &Server) -> Result<Row, String> {
        let rate = self.our_closed(floor, CONNECTIONS, &["--pipeline", "16"])?.per_second;
        let requests = if self.effort.record { LONG_RUN } else { LONG_RUN / 10.0 };
        let duration = format!("{:.0}ms", requests / rate * 1e3);
        let words = ["--pipeline", "16", "--connections", "64", "--duration", &duration].map(str::to_owned);
        let run = self.ours(floor, &words)?;
        let row = Row {
            work: format!("memory of a run of {:.0} million requests", requests / 1e6),
            other: "—".to_owned(),
            ours: format!("{:.0} MB", run.memory as f64 / 1e6),
            figure: format!("{:.0} MB", run.memory as f64 / 1e6),
            bound: format!("< {} MB", MEMORY_BYTES_MAX / 1_000_000),
            reached: run.memory < MEMORY_BYTES_MAX,
            noise: "—".to_owned(),
        };
        row.print();
        Ok(row)
    }
}

/// Parameters of an open load for a peer.
struct Open {
    url: String,
    rate: f64,
    seconds: f64,
    threads: usize,
    script: PathBuf,
}

/// Lateness of the requests of several runs.
struct OpenRuns {
    /// The p99 of each run that counts, in microseconds.
    p99_us: Vec<f64>,
    runs: usize,
    /// Number of undisturbed runs.
    quiet: usize,
}

impl OpenRuns {
    fn p99(&self) -> f64 {
        median(self.p99_us.clone())
    }
}

impl fmt::Display for OpenRuns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p99 {:.0} µs, {} of {} runs left alone", self.p99(), self.quiet, self.runs)
    }
}

/// A generator with a fixed rate.
struct Peer {
    name: &'static str,
    arguments: fn(&Open) -> Vec<String>,
}

const PEERS: &[Peer] = &[
    Peer {
        name: "oha",
        arguments: |open| {
            let (seconds, rate) = (format!("{}s", open.seconds), format!("{:.0}", open.rate));
            ["--no-tui", "-c", "64", "-z", &seconds, "-q", &rate, "--latency-correction", &open.url]
                .map(str::to_owned)
                .into()
        },
    },
    Peer {
        name: "k6",
        arguments: |open| {
            let text = format!(
                "import http from 'k6/http';\nexport const options = {{ discardResponseBodies: true, scenarios: {{ s: {{ executor: \
                 'constant-arrival-rate', rate: {:.0}, timeUnit: '1s', duration: '{}s', preAllocatedVUs: 64, maxVUs: 1000 }} }} }};\n\
                 export default function () {{ http.get('{}'); }}\n",
                open.rate, open.seconds, open.url
            );
            // If it cannot be written, k6 reports it.
            let _ = std::fs::write(&open.script, text);
            vec!["run".to_owned(), "--quiet".to_owned(), open.script.display().to_string()]
        },
    },
    Peer {
        name: "wrk2",
        arguments: |open| {
            let words = [format!("-t{}", open.threads), "-c64".to_owned(), format!("-d{}s", open.seconds)];
            words.into_iter().chain([format!("-R{:.0}", open.rate), open.url.clone()]).collect()
        },
    },
];

fn our_open(open: &Open) -> Vec<String> {
    let (threads, rate, duration) =
        (open.threads.to_string(), format!("{:.0}", open.rate), format!("{}s", open.seconds));
    let words = [&open.url, "--json", "--threads", &threads, "--rate", &rate, "--duration", &duration];
    words.map(str::to_owned).into()
}

fn figures(runs: &[Run]) -> String {
    let of = |figure: fn(&Run) -> f64| median(runs.iter().map(figure).collect());
    format!("{:.0}k/s, {:.2} µs CPU of the generator", of(|run| run.per_second) / 1e3, of(|run| run.cpu_us))
}

fn noise(runs: &[Run]) -> String {
    format!("{:.0} %", spread(&runs.iter().map(|run| run.per_second).collect::<Vec<_>>()) * 100.0)
}
