//! `cargo xtask bench large [--gigabytes=N]`: ten times as much data as memory.
//!
//! Documents of about 4,000 bytes, one per page. The server runs under a memory limit of a tenth of the data, page cache
//! included. Three questions: whether reads of random documents are limited only by the disk, how much anonymous memory is
//! used, and how cold reads affect the latency of hot documents. Loading takes twice the data's size on the disk.
//!
//! The limit is the lower of two: the disk, read by as many threads as there are clients, with raw reads of 4 KB of the
//! same file, bypassing the page cache, on any core; and the server itself, for documents of the same size that are all in
//! memory.

use super::setup::memory_limit::MemoryLimit;
use super::setup::open_load::{Latency, OpenLoad, quantiles};
use super::setup::process::Server;
use super::setup::results::{Row, record};
use super::setup::stage::{Stage, require_room};
use super::setup::wrk::{self, Load};
use super::{Effort, median, spread};
use crate::tools;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const GIGABYTES: u64 = 20;
/// Size of a document in bytes: each has its own page.
const DOCUMENT_BYTES: u64 = 4_000;
/// Ratio of the data to the memory.
const TIMES_MEMORY: u64 = 10;
const CONNECTIONS: u32 = 32;
/// Number of hot documents, and reads of them per second.
const HOT: u64 = 1_000;
const HOT_RATE: f64 = 10_000.0;
const ANONYMOUS_MOST: u64 = 300_000_000;
/// `O_DIRECT` of Linux on x86-64; arm64 has another value, with which the raw reads would use the page cache.
const DIRECT: i32 = 0o40000;

const CONFIG: &str = r#"
[collections.items]
key = { field = "id", type = "u32" }

[[endpoints]]
route = "GET /items/{id}"
get = "items/{id}"
"#;

pub(super) fn run(arguments: &[String]) -> Result<(), String> {
    let (mut gigabytes, mut is_recorded) = (GIGABYTES, true);
    for argument in arguments {
        match argument.strip_prefix("--gigabytes=").map(str::parse) {
            Some(Ok(number)) if number > 0 => gigabytes = number,
            None if argument == "--quick" => is_recorded = false,
            _ => return Err(format!("`{argument}` is not known; allowed: --gigabytes=N, --quick")),
        }
    }
    let stage = Stage::set(Effort { rounds: 3, seconds: if is_recorded { 4 } else { 2 }, record: is_recorded })?;
    let bytes = gigabytes << 30;
    require_room(stage.folder.path(), bytes * 5 / 2)?;
    let limit = MemoryLimit::new(bytes / TIMES_MEMORY)?;
    let documents = bytes / DOCUMENT_BYTES;
    let folder = stage.folder.path();
    std::fs::write(folder.join("large.toml"), CONFIG).map_err(|error| format!("large.toml: {error}"))?;
    load(&stage, documents)?;
    let rows = measure(&stage, &limit, documents, gigabytes)?;
    rows.iter().for_each(Row::print);
    if is_recorded { record(&format!("cargo xtask bench large --gigabytes={gigabytes}"), &rows) } else { Ok(()) }
}

/// Imports the documents from a stream, so that their text is stored only in the store.
fn load(stage: &Stage, documents: u64) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("the import: {error}");
    let folder = stage.folder.path();
    let mut child = Command::new(&stage.sapsan)
        .arg("import")
        .arg(folder.join("large.toml"))
        .arg("--data")
        .arg(folder.join("large"))
        .args(["--collection", "items", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let input = child.stdin.take().ok_or("the import takes no input")?;
    let mut input = BufWriter::with_capacity(1 << 20, input);
    let text = "a text that takes no place in particular ".repeat(100);
    for id in 1..=documents {
        let head = format!("{{\"id\":{id},\"text\":\"");
        let rest = DOCUMENT_BYTES as usize - head.len() - 40;
        writeln!(input, "{head}{}\"}}", &text[..rest]).map_err(failed)?;
    }
    drop(input);
    let status = child.wait().map_err(failed)?;
    if status.success() { Ok(()) } else { Err(format!("the import ended with {status}")) }
}

fn measure(stage: &Stage, limit: &MemoryLimit, documents: u64, gigabytes: u64) -> Result<Vec<Row>, String> {
    let load = OpenLoad::by(&stage.sapsan, &stage.cores, stage.effort);
    let (hot, all) = (format!("/items/{{int:1..{HOT}}}"), format!("/items/{{int:1..{documents}}}"));
    let folder = stage.folder.path();
    let tree = folder.join("large/tree");
    let script = limit.script(folder)?;
    forget(&tree)?;
    let server = serve(stage, &script)?;
    let (peak, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    let [mut raw, mut warm, mut cold] = [const { Vec::new() }; 3];
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    let measured = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                peak.fetch_max(server.anonymous_bytes(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let mut rounds = || -> Result<(), String> {
            // Excludes the page faults of a fresh server, and its loop's detection of waits.
            random_reads(stage, &server, documents, 99)?;
            for seed in 0..stage.effort.rounds as u64 {
                raw.push(raw_reads(&tree, CONNECTIONS as usize, stage.effort.seconds, seed)?);
                cold.push(random_reads(stage, &server, documents, seed)?);
                // The cold reads have evicted the hot documents: these reads load them again, and do not count.
                random_reads(stage, &server, HOT, seed)?;
                warm.push(random_reads(stage, &server, HOT, seed)?);
                alone.push(load.measure(&server, HOT_RATE, &hot)?);
                let rate = median(cold.clone()) / 2.0;
                let reader = load.start(&server, rate, &all)?;
                let during = load.measure(&server, HOT_RATE, &hot);
                quantiles(reader)?;
                beside.push(during?);
            }
            Ok(())
        };
        let result = rounds();
        ended.store(true, Ordering::Relaxed);
        result
    });
    measured?;
    let anonymous = peak.into_inner();
    let name = format!(
        "{gigabytes} GiB of documents under {:.1} GiB ({})",
        gigabytes as f64 / TIMES_MEMORY as f64,
        limit.name
    );
    Ok(vec![reads_row(&name, raw, warm, cold), memory_row(&name, anonymous), hot_row(&name, &alone, &beside)])
}

fn serve(stage: &Stage, script: &Path) -> Result<Server, String> {
    let address = super::setup::process::free_address()?;
    let folder = stage.folder.path();
    let arguments = [
        stage.sapsan.display().to_string(),
        "serve".to_owned(),
        folder.join("large.toml").display().to_string(),
        "--data".to_owned(),
        folder.join("large").display().to_string(),
        "--http".to_owned(),
        address.to_string(),
        "--threads".to_owned(),
        stage.cores.threads.to_string(),
    ];
    Server::start(&stage.cores.server, script, &arguments, address)
}

/// Makes the kernel drop a file's cached pages: those that the import left are not charged to any limit.
fn forget(path: &Path) -> Result<(), String> {
    let target = format!("of={}", path.display());
    tools::run_with(
        Command::new("dd")
            .args(["if=/dev/null", "oflag=nocache", "conv=notrunc,fdatasync", "count=0", "status=none"])
            .arg(target),
    )
}

/// Reads random documents among the first `documents` over HTTP, as fast as possible; returns the rate per second.
fn random_reads(stage: &Stage, server: &Server, documents: u64, seed: u64) -> Result<f64, String> {
    let make = format!("function make() return wrk.format('GET', '/items/' .. math.random(1, {documents})) end");
    let load = Load { connections: CONNECTIONS, pipeline: 1, make, fresh: true };
    let outcome = wrk::run(server, &load, &stage.cores, stage.effort, stage.folder.path(), seed)?;
    match outcome.failures {
        0 => Ok(outcome.requests_per_second),
        failures => Err(format!("{failures} reads of random documents failed")),
    }
}

/// Raw reads of random pages, bypassing the page cache, by this many threads; returns the rate per second.
fn raw_reads(path: &Path, threads: usize, seconds: u32, seed: u64) -> Result<f64, String> {
    const PAGE: usize = 4096;
    let open = OpenOptions::new().read(true).custom_flags(DIRECT).open(path);
    let file: File = open.map_err(|error| format!("{}: {error}", path.display()))?;
    let pages = file.metadata().map_err(|error| format!("{}: {error}", path.display()))?.len() / PAGE as u64;
    let (count, began) = (AtomicU64::new(0), Instant::now());
    let limit = Duration::from_secs(seconds.into());
    let read = |thread: u64| -> std::io::Result<()> {
        // The kernel requires an address at a multiple of the page size.
        let mut buffer = vec![0; 2 * PAGE];
        let start = buffer.as_ptr().align_offset(PAGE);
        let mut state = (seed + 1) * 1_000_003 + thread;
        while began.elapsed() < limit {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            file.read_exact_at(&mut buffer[start..start + PAGE], (state >> 24) % pages * PAGE as u64)?;
            count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    let read = &read;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads as u64).map(|thread| scope.spawn(move || read(thread))).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result.map_err(|error| format!("{}: {error}", path.display())),
            Err(_) => Err("a thread that reads panicked".to_owned()),
        })
    })?;
    Ok(count.into_inner() as f64 / began.elapsed().as_secs_f64())
}

fn reads_row(name: &str, raw: Vec<f64>, warm: Vec<f64>, cold: Vec<f64>) -> Row {
    let spread = spread(&cold);
    let (raw, warm, cold) = (median(raw), median(warm), median(cold));
    let limit = raw.min(warm);
    Row {
        work: format!("{name}: GET of random documents, {CONNECTIONS} connections"),
        other: format!(
            "raw reads of 4 KB, {CONNECTIONS} threads: {:.1}k/s; GET of documents in memory: {:.1}k/s",
            raw / 1e3,
            warm / 1e3
        ),
        ours: format!("{:.1}k/s", cold / 1e3),
        figure: format!("{:.2} × the lower", cold / limit),
        bound: "≥ 0.80 ×".to_owned(),
        reached: cold >= 0.8 * limit,
        noise: format!("{:.0} %", spread * 100.0),
    }
}

fn memory_row(name: &str, anonymous: u64) -> Row {
    Row {
        work: format!("{name}: anonymous memory, at most"),
        other: "—".to_owned(),
        ours: format!("{:.0} MB", anonymous as f64 / 1e6),
        figure: format!("{:.0} MB", anonymous as f64 / 1e6),
        bound: "< 300 MB".to_owned(),
        reached: anonymous < ANONYMOUS_MOST,
        noise: "—".to_owned(),
    }
}

fn hot_row(name: &str, alone: &[Latency], beside: &[Latency]) -> Row {
    let of = |runs: &[Latency], figure: fn(&Latency) -> f64| median(runs.iter().map(figure).collect());
    let side = |runs: &[Latency]| {
        let late = of(runs, |run| run.late_p99);
        format!("p50 {:.0}, p99 {:.0} µs (client late p99 {late:.0})", of(runs, |run| run.p50), of(runs, |run| run.p99))
    };
    let ratio = of(beside, |run| run.p99) / of(alone, |run| run.p99);
    Row {
        work: format!(
            "{name}: p99 of {HOT} hot documents at {:.0}k/s beside cold reads at half their rate",
            HOT_RATE / 1e3
        ),
        other: format!("without: {}", side(alone)),
        ours: side(beside),
        figure: format!("{ratio:.2} ×"),
        bound: "≤ 2.00 ×".to_owned(),
        reached: ratio <= 2.0,
        noise: "—".to_owned(),
    }
}
