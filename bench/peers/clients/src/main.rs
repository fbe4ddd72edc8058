//! The Redis client beside a bare write/read loop, hiredis and redis-rs, on one connection each.
//!
//! `clients --port PORT --hiredis PROGRAM [--quick]`; `cargo xtask bench client` builds and runs it and records the rows,
//! which are the lines of standard output that begin with `row`. The sides take turns, in another order each round; a
//! figure is the median of the rounds' ratios.

mod side;
mod table;
mod work;

use side::{Figure, Kind};
use std::process::ExitCode;
use std::time::Duration;
use work::Work;

/// An error of any library, printed for the user.
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

struct Arguments {
    port: u16,
    hiredis: String,
    rounds: usize,
    time: Duration,
}

fn main() -> ExitCode {
    match arguments().and_then(|arguments| compare(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("clients: {error}");
            ExitCode::FAILURE
        }
    }
}

fn arguments() -> Outcome<Arguments> {
    let mut parsed = Arguments { port: 0, hiredis: String::new(), rounds: 21, time: Duration::from_millis(300) };
    let mut rest = std::env::args().skip(1);
    while let Some(argument) = rest.next() {
        if argument == "--quick" {
            (parsed.rounds, parsed.time) = (5, Duration::from_millis(100));
            continue;
        }
        let value = rest.next().ok_or_else(|| format!("`{argument}` wants a value"))?;
        match argument.as_str() {
            "--port" => parsed.port = value.parse()?,
            "--hiredis" => parsed.hiredis = value,
            _ => return Err(format!("`{argument}` is not known; allowed: --port, --hiredis, --quick").into()),
        }
    }
    Ok(parsed)
}

fn compare(arguments: &Arguments) -> Outcome<()> {
    work::store_value(arguments.port)?;
    for work in Work::ALL {
        // The figures of each round, in the order of `Kind::ALL`.
        let mut rounds = Vec::new();
        for round in 0..arguments.rounds {
            let mut figures = [Figure::default(); Kind::ALL.len()];
            for turn in 0..Kind::ALL.len() {
                let at = (round + turn) % Kind::ALL.len();
                figures[at] = Kind::ALL[at].run(work, arguments.port, &arguments.hiredis, arguments.time)?;
            }
            rounds.push(figures);
        }
        table::print(work, &rounds);
    }
    Ok(())
}
