//! Tasks of the project, one command each: `cargo xtask` lists them.
//!
//! `cargo xtask test` makes every check of continuous integration, so that a developer's machine and the clean
//! one agree. Long campaigns (crashes, fuzzing, comparisons) are separate commands; their short versions are
//! ordinary tests.

mod bench;
mod book;
mod browser;
mod campaign;
mod charts;
mod dist;
mod layers;
mod nginx;
mod openapi;
mod outside;
mod programs;
mod promtool;
mod quick;
mod redis;
mod redis_clients;
mod schedules;
mod sources;
mod tally;
mod test_compiler;
mod tests;
mod tools;
mod world_mutants;

use std::process::ExitCode;

/// One task: its name, its arguments, its description, and the function.
struct Task {
    name: &'static str,
    usage: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Result<(), String>,
}

const TASKS: &[Task] = &[
    Task {
        name: "test",
        usage: "[--setup | --quick [REVISION]]",
        about: "format, lints, documentation, all tests; continuous integration runs the same. --setup: install what tests need beyond Rust (apt, pip, npm) first. --quick: format, and for the packages that differ from the revision (HEAD) lints, unit tests and the fast test programs",
        run: tests::run,
    },
    Task {
        name: "bench",
        usage: "http|latency|writes|feed|import|memory|json|client|proxy|tls|loadtest|web|lab|store|large|query|adhoc|bank|change",
        about: "measure against the floor and the peers; recorded in bench/RESULTS.md unless --quick; `change --before REVISION` compares with an earlier revision",
        run: bench::run,
    },
    Task {
        name: "book",
        usage: "",
        about: "the pages of docs/ as a book in target/book (mdBook, built into target/tools if it is missing)",
        run: book::run,
    },
    Task {
        name: "browser",
        usage: "",
        about: "install the browser for the test of pages of other origins (Debian's chromium)",
        run: browser::install,
    },
    Task {
        name: "campaign",
        usage: "crash|faults|damage|schedules|kill|siege|sql|views|docs-faults|proxy [--seed S] ...",
        about: "crashes (--count N --threads T), faults and damage of a simulated disk, whole engines under chosen schedules (schedules --count N --threads T, or --mutants), kills of the binary (--times N), all attacks on it at once (siege --seconds N), random SQL compared with SQLite (--queries N), views through power failures (--seconds N), databases on faulty disks (docs-faults --count N), the Redis proxy between clients and nodes that misbehave (proxy --seconds N)",
        run: campaign::run,
    },
    Task {
        name: "charts",
        usage: "",
        about: "draw the charts of docs/performance.md from bench/RESULTS.md",
        run: charts::run,
    },
    Task {
        name: "dist",
        usage: "",
        about: "the fastest program, without symbols, in target/dist: optimised across crates; the benches measure it",
        run: dist::run,
    },
    Task {
        name: "fuzz",
        usage: "[TARGET] [SECONDS]",
        about: "coverage-guided fuzzing with cargo-fuzz (nightly toolchain)",
        run: campaign::fuzz,
    },
    Task {
        name: "miri",
        usage: "[CRATE]",
        about: "the unsafe modules' tests under Miri (nightly)",
        run: campaign::miri,
    },
    Task {
        name: "mutants",
        usage: "[FILE] [ARGUMENT]...",
        about: "mutations of a file of the store that no test detects (cargo-mutants); arguments go to cargo test",
        run: campaign::mutants,
    },
    Task {
        name: "openapi",
        usage: "",
        about: "install the validator and the linters of OpenAPI documents, and generators of clients, for the tests (Python, Node.js, Go)",
        run: openapi::install,
    },
    Task {
        name: "outside",
        usage: "",
        about: "type-check the workspaces that the tests do not build: bench/peers and fuzz",
        run: outside::run,
    },
    Task {
        name: "promtool",
        usage: "",
        about: "unpack Prometheus's checker of metrics and expressions for the tests (Debian)",
        run: promtool::install,
    },
    Task {
        name: "redis",
        usage: "",
        about: "a redis-server and nutcracker for the tests of client and proxy, without starting one on the machine (Debian)",
        run: redis::install,
    },
    Task {
        name: "redis-clients",
        usage: "[redis-py|ioredis|go-redis|jedis]...",
        about: "client libraries with which the Redis proxy is tested (Python, Node.js, Go, Java)",
        run: redis_clients::install,
    },
    Task {
        name: "sanitize",
        usage: "[address|thread] [CRATE] [ARGUMENT]...",
        about: "the tests of the store or another crate under a sanitizer (nightly); arguments go to cargo test",
        run: campaign::sanitize,
    },
    Task {
        name: "sources",
        usage: "",
        about: "circles of imports between files, and public types of one name; part of `test`",
        run: sources::run,
    },
];

fn main() -> ExitCode {
    if let Some(ended) = test_compiler::become_compiler() {
        return ended;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(task) = arguments.first().and_then(|name| TASKS.iter().find(|task| task.name == name)) else {
        list_tasks();
        return ExitCode::from(if arguments.is_empty() { 0 } else { 2 });
    };
    match (task.run)(&arguments[1..]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask {}: {message}", task.name);
            ExitCode::FAILURE
        }
    }
}

fn list_tasks() {
    println!("usage: cargo xtask TASK\n");
    for task in TASKS {
        println!("  {:<34} {}", format!("{} {}", task.name, task.usage), task.about);
    }
}
