//! Closed-loop load with wrk: full speed on a number of connections, with requests from a prepared pool.

use super::process::Server;
use crate::bench::{Cores, Effort};
use std::path::{Path, PathBuf};
use std::process::Command;

/// One shape of load.
#[derive(Clone, Debug)]
pub(in crate::bench) struct Load {
    pub(in crate::bench) connections: u32,
    pub(in crate::bench) pipeline: u32,
    /// Lua: a function `make()` that returns one request made with `wrk.format`.
    pub(in crate::bench) make: String,
    /// Whether each request is made when it is sent (for ids that must not repeat) instead of taken from a pool.
    pub(in crate::bench) fresh: bool,
}

/// One run's outcome.
#[derive(Clone, Copy, Debug)]
pub(in crate::bench) struct Outcome {
    pub(in crate::bench) requests_per_second: f64,
    pub(in crate::bench) cpu_microseconds: f64,
    pub(in crate::bench) failures: u64,
}

/// Requests in each thread's pool.
const POOL: u32 = 20_000;

fn script(load: &Load, seed: u64, threads: usize) -> String {
    let source = if load.fresh {
        "function request() return many() end".to_owned()
    } else {
        format!(
            "local pool, at = {{}}, 0\n\
             function fill() for i = 1, {count} do pool[i] = many() end end\n\
             function request() at = at % #pool + 1 return pool[at] end",
            count = (POOL / load.pipeline).max(500),
        )
    };
    format!(
        r#"
local started = 0
function setup(thread) started = started + 1 thread:set("seed", {seed} * {threads} + started) end
{make}
function many()
  local parts = {{}}
  for k = 1, {pipeline} do parts[k] = make() end
  return table.concat(parts)
end
{source}
function init(args) math.randomseed(seed) if fill then fill() end end
"#,
        make = load.make,
        pipeline = load.pipeline,
    )
}

/// Runs the load against a server and measures its cost. Each thread of each seed makes its own requests.
pub(in crate::bench) fn run(
    server: &Server,
    load: &Load,
    cores: &Cores,
    effort: Effort,
    folder: &Path,
    seed: u64,
) -> Result<Outcome, String> {
    run_over(&Carrier::Plain, server, load, cores, effort, folder, seed)
}

/// The transport of the requests.
#[derive(Clone, Debug)]
pub(in crate::bench) enum Carrier {
    Plain,
    /// TLS with this configuration of OpenSSL: its versions and ciphers.
    Tls(PathBuf),
}

/// The same over TLS or in plain text.
pub(in crate::bench) fn run_over(
    carrier: &Carrier,
    server: &Server,
    load: &Load,
    cores: &Cores,
    effort: Effort,
    folder: &Path,
    seed: u64,
) -> Result<Outcome, String> {
    let file = folder.join("load.lua");
    std::fs::write(&file, script(load, seed, cores.threads)).map_err(|error| format!("{}: {error}", file.display()))?;
    let before = server.cpu_seconds();
    let mut wrk = Command::new("taskset");
    let scheme = match carrier {
        Carrier::Plain => "http",
        Carrier::Tls(config) => {
            wrk.env("OPENSSL_CONF", config);
            "https"
        }
    };
    let output = wrk
        .args(["-c", &cores.load, "wrk"])
        .arg(format!("-t{}", cores.threads))
        .arg(format!("-c{}", load.connections))
        .arg(format!("-d{}s", effort.seconds))
        .arg("-s")
        .arg(&file)
        .arg(format!("{scheme}://{}", server.address))
        .output()
        .map_err(|error| format!("cannot start wrk: {error}"))?;
    let cpu_seconds = server.cpu_seconds() - before;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let requests =
        number_before(&text, " requests in").ok_or_else(|| format!("wrk said nothing of requests:\n{text}"))?;
    let rate = number_after(&text, "Requests/sec:").ok_or_else(|| format!("wrk said no rate:\n{text}"))?;
    let failures = number_after(&text, "Non-2xx or 3xx responses:").unwrap_or(0.0) as u64;
    Ok(Outcome { requests_per_second: rate, cpu_microseconds: cpu_seconds * 1e6 / requests.max(1.0), failures })
}

fn number_after(text: &str, label: &str) -> Option<f64> {
    text.split_once(label)?.1.split_whitespace().next()?.parse().ok()
}

fn number_before(text: &str, label: &str) -> Option<f64> {
    text.split_once(label)?.0.split_whitespace().next_back()?.parse().ok()
}
