//! Whole engines under the scheduler under test, as many lives as requested; `cargo xtask campaign schedules` starts it.
//!
//! ```text
//! schedules [--count N] [--seed S] [--threads T] [--failures F]     N lives from seed S on, until F of them fail
//! ```

#![allow(clippy::unwrap_used)] // As in the tests that it runs for longer.

#[path = "../tests/explored/mod.rs"]
mod explored;
#[path = "../tests/simulation/mod.rs"]
mod simulation;

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use schedules::Explored;

/// The default of `--count`.
const LIVES: u64 = 100_000;
/// Lives that a thread takes at once.
const AT_ONCE: u64 = 200;
/// The interval between two lines of progress.
const TELL_EVERY: Duration = Duration::from_secs(30);
/// The default of `--failures`.
const FAILURES: u64 = 10;

struct Settings {
    count: u64,
    seed: u64,
    threads: u64,
    failures: u64,
}

fn settings() -> Result<Settings, String> {
    let mut settings = Settings { count: LIVES, seed: 1, threads: 1, failures: FAILURES };
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    for pair in arguments.chunks(2) {
        let [name, value] = pair else { return Err(format!("`{}` wants a value", pair[0])) };
        let number = value.parse::<u64>().map_err(|_| format!("`{value}` is no number"))?;
        match name.as_str() {
            "--count" => settings.count = number,
            "--seed" => settings.seed = number,
            "--threads" => settings.threads = number.max(1),
            "--failures" => settings.failures = number.max(1),
            other => return Err(format!("`{other}` is no argument; allowed: --count, --seed, --threads, --failures")),
        }
    }
    Ok(settings)
}

fn main() -> ExitCode {
    match settings().and_then(|settings| run(&settings)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// What the threads of the campaign share.
struct Campaign<'s> {
    settings: &'s Settings,
    next: AtomicU64,
    failures: AtomicU64,
    began: Instant,
    /// The counts so far, and when they were told.
    sum: Mutex<(Explored, Instant)>,
}

fn run(settings: &Settings) -> Result<(), String> {
    let began = Instant::now();
    let (next, failures) = (AtomicU64::new(settings.seed), AtomicU64::new(0));
    let campaign = Campaign { settings, next, failures, began, sum: Mutex::new((Explored::default(), began)) };
    std::thread::scope(|scope| {
        (0..settings.threads).for_each(|_| drop(scope.spawn(|| campaign.work())));
    });
    tell(&campaign.sum.lock().unwrap().0, began);
    match campaign.failures.into_inner() {
        0 => Ok(()),
        count => Err(format!("{count} failures")),
    }
}

impl Campaign<'_> {
    fn work(&self) {
        let end = self.settings.seed + self.settings.count;
        while !self.is_over() {
            let from = self.next.fetch_add(AT_ONCE, Ordering::Relaxed);
            if from >= end {
                return;
            }
            self.live(from, end.min(from + AT_ONCE));
        }
    }

    fn is_over(&self) -> bool {
        self.failures.load(Ordering::Relaxed) >= self.settings.failures
    }

    /// Lives these seeds, also after one has failed.
    fn live(&self, mut from: u64, end: u64) {
        while from < end && !self.is_over() {
            let (explored, outcome) = explored::run(from..end);
            let (all, told) = &mut *self.sum.lock().unwrap();
            all.add(&explored);
            if told.elapsed() > TELL_EVERY {
                *told = Instant::now();
                tell(all, self.began);
            }
            from = match outcome {
                Ok(()) => end,
                Err(failure) => {
                    self.failures.fetch_add(1, Ordering::Relaxed);
                    println!("FAILURE, seed {}: {}", failure.seed, failure.what);
                    println!("  once more: cargo xtask campaign schedules --count 1 --seed {}", failure.seed);
                    failure.seed + 1
                }
            };
        }
    }
}

fn tell(explored: &Explored, began: Instant) {
    let Explored { executions, choices, timeouts } = explored;
    let seconds = began.elapsed().as_secs_f64();
    let rate = *executions as f64 / seconds;
    println!("{executions} schedules of {choices} choices and {timeouts} timeouts; {seconds:.0} s, {rate:.0} a second");
}
