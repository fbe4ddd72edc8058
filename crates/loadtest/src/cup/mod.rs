//! The cup: the contest's three phases on a service that this program itself serves, and the board of results.
//!
//! A run imports the data into a temporary folder, starts the server as a child process on a free port, sends the phases with a
//! pause between them, ends the server by SIGTERM, and compares every answer that it can predict. Requests come from a folder in
//! the contest's form if one is given (`replay.rs`); otherwise they are generated from the data (`reads.rs`, `writes.rs`).

mod arguments;
mod board;
mod contest;
mod dataset;
mod phase_source;
mod reads;
mod replay;
mod service;
mod world;
mod writes;

pub use arguments::CupArguments;
pub use board::{Board, PhaseResult, PublishedResult};
pub use contest::{Contest, PAUSE_SECONDS, PhaseLoad};

use crate::ammo::{Defaults, Draft};
use crate::answers::{Comparison, Expected};
use crate::engine::{self, Load, LoadSettings, Stop, Watchers, room};
use crate::output;
use crate::profile::Profile;
use crate::rating::CONTEST_TIMEOUT;
use crate::statuses::StatusSet;
use phase_source::{PhaseSource, Shot, Shots};
pub use service::Unfinished;
use service::{Server, Service};
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use world::World;

/// Largest number of connections, and connections made before the start.
const CONNECTIONS_MAX: u32 = 1000;
const CONNECTIONS_AT_START: u32 = 16;
/// Interval at which the signal is checked during a pause.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Knowledge of the data. The generators of one phase after another use it, each on the engine's reader thread.
pub(crate) type Shared = Arc<Mutex<World>>;

/// Locks the world, ignoring a panic of an earlier holder.
pub(crate) fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Encodes a draft into `shot`.
fn encode(draft: &Draft, defaults: &Defaults, shot: &mut Shot) -> Result<(), String> {
    Ok(draft.encode(defaults, &mut shot.request)?)
}

/// The expected answer of a draft.
fn expected(draft: &Draft, status: u16, body: Option<Vec<u8>>) -> Expected {
    Expected { method: draft.method.clone(), target: draft.target.clone(), status, body }
}

/// Runs the cup with `program` as the server, and writes the board to `out`. `stop` ends it early, with the phases so far.
/// `unfinished` is for the caller that ends the process before that.
pub fn run(
    arguments: &CupArguments,
    program: PathBuf,
    (stop, unfinished): (&Stop, &Unfinished),
    out: &mut dyn Write,
) -> Result<(), String> {
    let write_error = |error: std::io::Error| format!("cannot write: {error}");
    if let Some(folder) = arguments.report.as_deref().filter(|folder| !folder.is_dir()) {
        return Err(format!("--report {}: this folder is not there", folder.display()));
    }
    let folder = tempfile::Builder::new().prefix("sapsan-cup-").tempdir();
    let folder = folder.map_err(|error| format!("cannot make a temporary folder: {error}"))?;
    unfinished.note_folder(folder.path());
    let service = Service {
        unfinished: unfinished.clone(),
        program,
        config: arguments.config.clone(),
        data: folder.path().join("data"),
        arguments: serve_arguments(arguments),
    };
    writeln!(out, "importing into {}", service.data.display()).map_err(write_error)?;
    service.import(&arguments.data, || stop.is_asked())?;
    let world = Arc::new(Mutex::new(dataset::read(&arguments.data, arguments.seed)?));
    let server = service.serve()?;
    let mut board =
        Board { contest: arguments.profile, scale: arguments.scale, phases: Vec::new(), faults: Vec::new() };
    let ran = run_phases(arguments, &world, &server, stop, out, &mut board);
    board.faults.extend(ran.err());
    board.faults.extend(server.end().err());
    writeln!(out, "\n{board}").map_err(write_error)?;
    folder.close().map_err(|error| format!("cannot remove the temporary folder: {error}"))?;
    match board.faults.is_empty() {
        true => Ok(()),
        false => Err("the run has faults: see the board".to_owned()),
    }
}

/// Arguments of the server: the data's `now`, the user's settings, and the threads.
fn serve_arguments(arguments: &CupArguments) -> Vec<std::ffi::OsString> {
    let mut all = Vec::new();
    let sets_now = arguments.set.iter().any(|set| set.starts_with("now="));
    let now = arguments.data.first().and_then(|zip| service::now_of(zip)).filter(|_| !sets_now);
    for set in now.map(|now| format!("now={now}")).iter().chain(&arguments.set) {
        all.extend(["--set".into(), set.into()]);
    }
    if let Some(threads) = arguments.server_threads {
        all.extend(["--threads".into(), threads.to_string().into()]);
    }
    all
}

fn run_phases(
    arguments: &CupArguments,
    world: &Shared,
    server: &Server,
    stop: &Stop,
    out: &mut dyn Write,
    board: &mut Board,
) -> Result<(), String> {
    for (index, load) in arguments.profile.phases(arguments.scale).into_iter().enumerate() {
        if index > 0 {
            pause(Duration::from_secs_f64(PAUSE_SECONDS * arguments.scale), stop);
        }
        if stop.is_asked() {
            return Err(format!("ended by a signal before phase {}", load.name));
        }
        let profile = Profile::parse(&load.profile).map_err(|error| error.to_string())?;
        let (shots, ammo) = shots(arguments, index + 1, world, server.address)?;
        let write_error = |error: std::io::Error| format!("cannot write: {error}");
        writeln!(out, "phase {}: {}, {} requests, {ammo}", load.name, load.profile, profile.total())
            .map_err(write_error)?;
        let comparison = Arc::new(Comparison::default());
        let source = PhaseSource::new(shots, profile.total(), Arc::clone(&comparison));
        let watchers = Watchers { observer: Some(Box::new(comparison.comparer())), ..Watchers::default() };
        let settings = settings(profile, arguments.threads, server.address)?;
        let finished = engine::run(&settings, Box::new(source), watchers, stop);
        let mut finished = finished.map_err(|error| format!("phase {}: {error}", load.name))?;
        finished.recording.is_rated = true;
        let differences = comparison.differences();
        if differences.count > 0 {
            writeln!(out, "{differences}").map_err(write_error)?;
        }
        if let Some(folder) = &arguments.report {
            let page =
                output::phase_report(folder, index + 1, &finished.recording).map_err(|error| error.to_string())?;
            writeln!(out, "charts of this phase: {}", page.display()).map_err(write_error)?;
        }
        let name = load.name.to_owned();
        board.phases.push(PhaseResult { name, ammo, recording: finished.recording });
        if let Some(failure) = finished.failure {
            return Err(failure.to_string());
        }
    }
    Ok(())
}

fn pause(duration: Duration, stop: &Stop) {
    let end = Instant::now() + duration;
    while Instant::now() < end && !stop.is_asked() {
        std::thread::sleep(LOOK_EVERY.min(duration));
    }
}

/// The requests of phase `number`, and a text that names their origin.
fn shots(
    arguments: &CupArguments,
    number: usize,
    world: &Shared,
    address: SocketAddr,
) -> Result<(Box<dyn Shots>, String), String> {
    let files = arguments.ammo_dir.as_deref().map(|folder| replay::find(folder, number)).transpose()?.flatten();
    if let Some(files) = files {
        let text = format!("from {}, repeated as needed", files.ammo.display());
        return Ok((Box::new(replay::Replay::open(&files, Arc::clone(world))?), text));
    }
    let defaults = Defaults { host: address.to_string(), headers: Vec::new() };
    // Each phase derives its own random values from the seed.
    let (world, seed) = (Arc::clone(world), arguments.seed.wrapping_add(number as u64));
    let text = format!("generated from the data, seed {}", arguments.seed);
    let shots: Box<dyn Shots> = match number {
        2 => Box::new(writes::Writes::new(world, seed, defaults)),
        _ => Box::new(reads::Reads::new(world, seed, defaults, number == 3)),
    };
    Ok((shots, text))
}

fn settings(profile: Profile, threads: u16, address: SocketAddr) -> Result<LoadSettings, String> {
    let threads = usize::from(threads);
    let wanted =
        room::Wanted { connections: CONNECTIONS_MAX, threads, new_connections_per_second: None, to: address.ip() };
    room::check(&wanted)?;
    Ok(LoadSettings {
        target: format!("http://{address}"),
        address,
        tls: None,
        load: Load::Open { profile: Arc::new(profile), connections_at_start: CONNECTIONS_AT_START },
        connections: CONNECTIONS_MAX,
        pipeline: 1,
        new_connections: false,
        timeout: CONTEST_TIMEOUT,
        threads,
        expected: StatusSet::default(),
    })
}

/// A hundred entities of each kind, for tests of the generators.
#[cfg(test)]
pub(crate) fn sample_world() -> Shared {
    use rand::SeedableRng;
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(1);
    let mut world = World::default();
    let mut load = |kind, fields: serde_json::Value| {
        let fields = fields.as_object().expect("an object").clone();
        world.of_mut(kind).load(fields, &mut random).expect("an id");
    };
    for id in 1..=100 {
        let user = serde_json::json!({"id": id, "email": format!("a{id}@b"), "first_name": "Инна", "last_name": "Данатоная",
            "gender": "f", "birth_date": -631_065_600});
        load(world::EntityKind::Users, user);
        let location = serde_json::json!({"id": id, "place": "Двор", "country": "Новая Зеландия", "city": "Роттерламск", "distance": 42});
        load(world::EntityKind::Locations, location);
        let visit =
            serde_json::json!({"id": id, "user": id, "location": 101 - id, "visited_at": 1_000_000_000, "mark": 3});
        load(world::EntityKind::Visits, visit);
    }
    Arc::new(Mutex::new(world))
}
