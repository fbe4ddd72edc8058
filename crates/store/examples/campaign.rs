//! Long campaigns against the store on simulated disks: `cargo xtask campaign` starts them.
//!
//! ```text
//! campaign crash [--count N] [--seed S] [--threads T]     crashes anywhere, until N of them
//! campaign crash --again FOLDER                           one failure once more, from what was kept of it
//! ```

#![allow(clippy::unwrap_used)] // As in the tests whose long form this is.

#[path = "../tests/simulation/mod.rs"]
mod simulation;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use simulation::crash::{Chain, Failure, Tally};
use simulation::kept;

/// Where failures are kept.
const KEPT: &str = "target/campaign";
/// Between two lines of progress.
const TELL_EVERY: Duration = Duration::from_secs(30);
/// A chain that takes longer hangs: a thousand times what one takes.
const PATIENCE: Duration = Duration::from_secs(300);
/// Failures after which a campaign ends.
const FAILURES_MAX: u64 = 10;

struct Settings {
    count: u64,
    seed: u64,
    threads: u64,
    again: Option<PathBuf>,
}

fn settings(arguments: &[String]) -> Result<Settings, String> {
    let mut settings = Settings { count: 10_000, seed: 1, threads: 1, again: None };
    for pair in arguments.chunks(2) {
        let [name, value] = pair else { return Err(format!("`{}` wants a value", pair[0])) };
        let number = || value.parse::<u64>().map_err(|_| format!("`{value}` is no number"));
        match name.as_str() {
            "--count" => settings.count = number()?,
            "--seed" => settings.seed = number()?,
            "--threads" => settings.threads = number()?.max(1),
            "--again" => settings.again = Some(PathBuf::from(value)),
            other => return Err(format!("`{other}` is no argument of this campaign")),
        }
    }
    Ok(settings)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.first().map(String::as_str) {
        Some("crash") => settings(&arguments[1..]).and_then(|settings| crash(&settings)),
        _ => Err("which campaign? crash".to_string()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn crash(settings: &Settings) -> Result<(), String> {
    if let Some(folder) = &settings.again {
        return kept::check_again(folder);
    }
    let tally = Arc::new(Tally::default());
    let next_seed = AtomicU64::new(settings.seed);
    let failures = AtomicU64::new(0);
    let has_ended = AtomicBool::new(false);
    let watched: Vec<Mutex<(u64, Instant)>> = (0..settings.threads).map(|_| Mutex::new((0, Instant::now()))).collect();
    let began = Instant::now();
    std::thread::scope(|scope| {
        let workers: Vec<_> = watched
            .iter()
            .map(|watched| {
                let (tally, next_seed, failures) = (&tally, &next_seed, &failures);
                scope.spawn(move || {
                    while tally.crashes.load(Ordering::Relaxed) < settings.count
                        && failures.load(Ordering::Relaxed) < FAILURES_MAX
                    {
                        let seed = next_seed.fetch_add(1, Ordering::Relaxed);
                        *watched.lock().unwrap() = (seed, Instant::now());
                        if let Err(failure) = Chain::new(seed, tally).run() {
                            failures.fetch_add(1, Ordering::Relaxed);
                            tell(&failure);
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| watch(&watched, &has_ended, &tally, began));
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        has_ended.store(true, Ordering::Relaxed);
    });
    progress(&tally, began);
    let last = next_seed.into_inner() - 1;
    println!("seeds {} to {last}", settings.seed);
    match failures.into_inner() {
        0 => Ok(()),
        count => Err(format!("{count} failures")),
    }
}

fn tell(failure: &Failure) {
    let folder = Path::new(KEPT).join(format!("crash-{}", failure.seed));
    println!("FAILURE, seed {}: {}", failure.seed, failure.what);
    match kept::keep(&folder, failure) {
        Ok(()) => println!("  once more: cargo xtask campaign crash --again {}", folder.display()),
        Err(error) => println!("  it could not be kept in {}: {error}", folder.display()),
    }
}

fn progress(tally: &Tally, began: Instant) {
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    println!(
        "{} crashes, of them {} in recoveries and {} kills; {} lives of {} operations; {:.0} s",
        load(&tally.crashes),
        load(&tally.nested),
        load(&tally.kills),
        load(&tally.lives),
        load(&tally.events),
        began.elapsed().as_secs_f64()
    );
}

/// Tells how far it is, and ends a campaign that hangs, with the seed.
fn watch(watched: &[Mutex<(u64, Instant)>], has_ended: &AtomicBool, tally: &Tally, began: Instant) {
    let mut told = Instant::now();
    while !has_ended.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
        if told.elapsed() > TELL_EVERY {
            told = Instant::now();
            progress(tally, began);
        }
        for watched in watched {
            let (seed, began) = *watched.lock().unwrap();
            if began.elapsed() > PATIENCE {
                println!("FAILURE, seed {seed}: it hangs");
                std::process::exit(1);
            }
        }
    }
}
