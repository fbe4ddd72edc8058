//! Long campaigns against the store on simulated disks; `cargo xtask campaign` starts them.
//!
//! ```text
//! campaign crash [--count N] [--seed S] [--threads T]     crashes anywhere, until N of them
//! campaign crash --again FOLDER                           runs a stored failure again
//! campaign faults [--count N] [--seed S] [--threads T]    each fault at each operation of N stores
//! campaign damage [--count N] [--seed S] [--threads T]    each damage of the files of N stores, closed, killed, backed up
//! campaign damage --again FOLDER                          runs a stored damage again
//! ```

#![allow(clippy::unwrap_used)] // As in the tests that it runs for longer.

#[path = "../tests/simulation/mod.rs"]
mod simulation;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use simulation::crash::{Chain, Failure, Tally};
use simulation::damage::{Share, try_all};
use simulation::disk::Fault;
use simulation::faults::Start;
use simulation::kept;
use simulation::specimen::{Kind, Specimen};
use simulation::sweep::{FAULTS, SYNC_FAULTS, sweep};

/// The folder for failures.
const KEPT: &str = "target/campaign";
/// The interval between two lines of progress.
const TELL_EVERY: Duration = Duration::from_secs(30);
/// The interval at which chains are polled, and the number of polls after which a chain counts as hanging: a thousand
/// times the usual duration. Polls are counted instead of seconds because a campaign may be stopped for a while.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOKS_MAX: u32 = 3000;
/// Failures after which a campaign ends.
const FAILURES_MAX: u64 = 10;
/// The defaults of `--count`: the number of crashes, and of stores in the other campaigns.
const CRASHES: u64 = 10_000;
const FAULTY_STORES: u64 = 4;
const DAMAGED_STORES: u64 = 3;
/// Creates the start of a life from a seed.
type StartOf = fn(u64) -> Start;
/// Faults, with the number of operations that fail.
type Faults = &'static [(Fault, u64)];
/// Kinds of starts, their faults, and the step between the operations that fail. A busy store has more operations, and
/// their order differs from run to run.
const STARTS: &[(&str, StartOf, Faults, usize)] = &[
    ("empty", Start::empty, FAULTS, 1),
    ("killed", Start::killed, FAULTS, 1),
    ("busy", Start::busy, FAULTS, 7),
    ("syncs of a busy one", Start::busy, SYNC_FAULTS, 1),
];
/// The order in which stores are damaged.
const KINDS: [Kind; 3] = [Kind::Closed, Kind::Killed, Kind::Backup];

/// The seed on which a worker works, and the number of polls that found it there.
type Watched = Mutex<(u64, u32)>;

struct Settings {
    count: Option<u64>,
    seed: u64,
    threads: u64,
    again: Option<PathBuf>,
}

fn settings(arguments: &[String]) -> Result<Settings, String> {
    let mut settings = Settings { count: None, seed: 1, threads: 1, again: None };
    for pair in arguments.chunks(2) {
        let [name, value] = pair else { return Err(format!("`{}` wants a value", pair[0])) };
        let number = || value.parse::<u64>().map_err(|_| format!("`{value}` is no number"));
        match name.as_str() {
            "--count" => settings.count = Some(number()?),
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
        Some("faults") => settings(&arguments[1..]).and_then(|settings| faults(&settings)),
        Some("damage") => settings(&arguments[1..]).and_then(|settings| damage(&settings)),
        _ => Err("which campaign? crash, faults, damage".to_string()),
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
    let count = settings.count.unwrap_or(CRASHES);
    let tally = Arc::new(Tally::default());
    let next_seed = AtomicU64::new(settings.seed);
    let failures = AtomicU64::new(0);
    let has_ended = AtomicBool::new(false);
    let watched: Vec<Watched> = (0..settings.threads).map(|_| Watched::default()).collect();
    let began = Instant::now();
    std::thread::scope(|scope| {
        let workers: Vec<_> = watched
            .iter()
            .map(|watched| {
                let (tally, next_seed, failures) = (&tally, &next_seed, &failures);
                scope.spawn(move || {
                    while tally.crashes.load(Ordering::Relaxed) < count
                        && failures.load(Ordering::Relaxed) < FAILURES_MAX
                    {
                        let seed = next_seed.fetch_add(1, Ordering::Relaxed);
                        *watched.lock().unwrap() = (seed, 0);
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

/// Each fault at each operation, from an empty disk and from what a kill left.
fn faults(settings: &Settings) -> Result<(), String> {
    let end = settings.seed + settings.count.unwrap_or(FAULTY_STORES);
    let (next_seed, tried) = (AtomicU64::new(settings.seed), AtomicU64::new(0));
    let failures = AtomicU64::new(0);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..settings.threads {
            scope.spawn(|| {
                loop {
                    let seed = next_seed.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    for (name, start, faults, step) in STARTS {
                        match sweep(&start(seed), faults, 0, *step) {
                            Ok(count) => drop(tried.fetch_add(count, Ordering::Relaxed)),
                            Err(wrong) => {
                                failures.fetch_add(1, Ordering::Relaxed);
                                println!("FAILURE, seed {seed}, {name}: {wrong}");
                                println!("  once more: cargo xtask campaign faults --count 1 --seed {seed}");
                            }
                        }
                    }
                }
            });
        }
    });
    println!("{} faults, {:.0} s", tried.into_inner(), began.elapsed().as_secs_f64());
    match failures.into_inner() {
        0 => Ok(()),
        count => Err(format!("{count} failures")),
    }
}

/// Each damage of stores of each kind.
fn damage(settings: &Settings) -> Result<(), String> {
    if let Some(folder) = &settings.again {
        return kept::damage_again(folder);
    }
    let mut failed = 0;
    for seed in (settings.seed..).take(settings.count.unwrap_or(DAMAGED_STORES) as usize) {
        let kind = KINDS[(seed.wrapping_sub(1) % 3) as usize];
        let specimen = Specimen::new(seed, kind);
        let damages = specimen.damages(seed, Share { step: 1, first: 0 });
        let bytes: usize = specimen.files.values().map(|file| file.len()).sum();
        println!("seed {seed}, {kind:?}: {} files of {bytes} bytes, {} damages", specimen.files.len(), damages.len());
        let (began, mut told) = (Instant::now(), Instant::now());
        let mut progress = |count, failed| {
            if told.elapsed() > TELL_EVERY {
                told = Instant::now();
                let seconds = began.elapsed().as_secs_f64();
                println!("  {count} of {} damages, {failed} failed, {seconds:.0} s", damages.len());
            }
        };
        let tried = try_all(&specimen, &damages, settings.threads as usize, FAILURES_MAX as usize, &mut progress);
        for ((name, outcome), count) in &tried.counts {
            println!("  {name:<26} {outcome:<14?} {count:>8}");
        }
        for (number, (damage, wrong)) in tried.failures.iter().enumerate() {
            println!("FAILURE, seed {seed}, {damage:?}: {wrong}");
            let folder = Path::new(KEPT).join(format!("damage-{seed}-{number}"));
            match kept::keep_damage(&folder, seed, &specimen, *damage) {
                Ok(()) => println!("  once more: cargo xtask campaign damage --again {}", folder.display()),
                Err(error) => println!("  it could not be kept in {}: {error}", folder.display()),
            }
        }
        println!("  {:.0} s", began.elapsed().as_secs_f64());
        failed += tried.failures.len();
    }
    if failed == 0 { Ok(()) } else { Err(format!("{failed} failures")) }
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

/// Prints the progress. A campaign that hangs is ended, and its seed printed.
fn watch(watched: &[Watched], has_ended: &AtomicBool, tally: &Tally, began: Instant) {
    let mut told = Instant::now();
    while !has_ended.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK_EVERY);
        if told.elapsed() > TELL_EVERY {
            told = Instant::now();
            progress(tally, began);
        }
        for watched in watched {
            let mut watched = watched.lock().unwrap();
            let (seed, looks) = &mut *watched;
            *looks += 1;
            if *looks > LOOKS_MAX {
                println!("FAILURE, seed {seed}: it hangs");
                std::process::exit(1);
            }
        }
    }
}
