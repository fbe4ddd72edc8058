//! `cargo xtask bench NAME`: builds both sides, pins them to different cores, runs them in turns; records medians and
//! ratios.

mod adhoc;
mod bank;
mod change;
mod client;
mod feed;
mod http;
mod import;
mod indexed;
mod instructions;
mod json;
mod lab;
mod large;
mod large_write;
mod latency;
mod loadtest;
mod memory;
mod proxy;
mod query;
mod setup;
mod store;
mod tls;
mod web;
mod writes;

use crate::dist;
use std::path::PathBuf;

/// Duration and number of runs; `--quick` is for trying a change, not for the record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    rounds: usize,
    seconds: u32,
    record: bool,
}

/// The cores of the server and of the load: two each, or one each on a machine with fewer than four.
#[derive(Clone, Debug)]
pub(crate) struct Cores {
    server: String,
    load: String,
    threads: usize,
}

impl Cores {
    fn of_machine() -> Cores {
        let count = std::thread::available_parallelism().map_or(2, usize::from);
        if count >= 4 {
            Cores { server: "0,1".to_owned(), load: "2,3".to_owned(), threads: 2 }
        } else {
            Cores { server: "0".to_owned(), load: "1".to_owned(), threads: 1 }
        }
    }
}

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    // These benches parse their own arguments.
    match arguments.split_first() {
        Some((first, rest)) if first == "change" => return change::run(rest),
        Some((first, rest)) if first == "store" => return store::run(rest),
        Some((first, rest)) if first == "large" => return large::run(rest),
        Some((first, rest)) if first == "query" => return query::run(rest),
        Some((first, rest)) if first == "adhoc" => return adhoc::run(rest),
        Some((first, rest)) if first == "bank" => return bank::run(rest),
        _ => {}
    }
    if let Some(flag) = arguments.iter().find(|argument| argument.starts_with("--") && *argument != "--quick") {
        return Err(format!("`{flag}` is no option of this bench; allowed: --quick"));
    }
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let effort = if quick {
        Effort { rounds: 3, seconds: 1, record: false }
    } else {
        Effort { rounds: 5, seconds: 2, record: true }
    };
    let mut names = arguments.iter().filter(|argument| !argument.starts_with("--")).map(String::as_str);
    match (names.next(), names.next()) {
        (Some("http"), only) => http::run(effort, only),
        (Some("latency"), None) => latency::run(effort),
        (Some("writes"), None) => writes::run(effort),
        (Some("large-write"), None) => large_write::run(effort),
        (Some("feed"), None) => feed::run(effort),
        (Some("import"), None) => import::run(effort),
        (Some("import"), Some("full")) => import::run_full(effort),
        (Some("memory"), None) => memory::run(effort),
        (Some("json"), None) => json::run(effort),
        (Some("proxy"), None) => proxy::run(effort),
        (Some("client"), None) => client::run(effort),
        (Some("tls"), None) => tls::run(effort),
        (Some("web"), None) => web::run(effort),
        (Some("loadtest"), None) => loadtest::run(effort),
        (Some("lab"), None) => lab::run(effort),
        (other, _) => Err(format!(
            "`{}` is no bench; allowed: http [ROW], latency, writes, large-write, feed, import [full], memory, json, proxy, client, tls, web, loadtest, lab, store, large, query, adhoc, bank, change --before REVISION",
            other.unwrap_or("")
        )),
    }
}

/// Builds the fastest `sapsan` and returns its path.
fn sapsan() -> Result<PathBuf, String> {
    Ok(dist::build(&["--package", "sapsan"])?.join("sapsan"))
}

/// The median; of an even count the upper one.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Relative difference between the largest and the smallest value.
fn spread(values: &[f64]) -> f64 {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    values.iter().copied().fold(0.0, f64::max) / least - 1.0
}
