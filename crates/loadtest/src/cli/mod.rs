//! The command `sapsan loadtest`: its arguments, and a run from them.
//!
//! Ctrl-C ends a run with the report so far, a second one ends the process at once.

mod ammo;
mod arguments;
mod contradictions;
mod expect;
mod results;
#[cfg(test)]
mod tests;

pub use ammo::AmmoArguments;
pub use arguments::{LoadArguments, LoadtestCommand};
pub use expect::ExpectArguments;
pub use results::ResultArguments;

use crate::ammo::Defaults;
use crate::cup;
use crate::engine::{self, Finished, Load, LoadSettings, RequestLog, Stop, Watchers, room};
use crate::live;
use crate::output::Outputs;
use crate::profile::Profile;
use crate::recording::Recording;
use crate::request::{Constant, RequestParts};
use crate::scenario::{Scenario, StepNames};
use crate::source::{Observer, RequestSource};
use crate::target::{self, TargetUrl};
use crate::versus::{self, Side, SideBySide, Turn};
use reactor::TlsClient;
use reactor::signals::Termination;
use std::fs::File;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Exit status of a process that a second signal ended, as shells count it (128 + SIGINT).
const CUT_STATUS: i32 = 130;
/// Time limit for the connection that is tried before the start.
const FIRST_TRY: Duration = Duration::from_secs(5);
/// Default number of connections that an open load makes before the start, for each loop; it makes more when requests wait.
const OPEN_CONNECTIONS_AT_START: u32 = 16;
/// Default largest number of connections of an open load.
const OPEN_CONNECTIONS_MAX: u32 = 1000;
/// Default number of connections of a closed load.
const CLOSED_CONNECTIONS: u32 = 64;
/// Default length of a closed load, and of one with `--rate`.
const DURATION: Duration = Duration::from_secs(10);
/// Files in which systems keep their trusted certificates.
const SYSTEM_ROOTS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
/// Largest file of `--body @FILE` and `--expect-body @FILE`, in bytes.
const BODY_BYTES_MAX: u64 = 8 << 20;

/// Runs the command. Must be called before any other thread starts, since a signal would end the process through those. The error
/// is for the user.
pub fn run(arguments: &LoadArguments) -> Result<(), String> {
    let termination = Termination::claim().map_err(|error| format!("cannot wait for signals: {error}"))?;
    let stop = Stop::default();
    let unfinished = cup::Unfinished::default();
    end_by_signal(termination, stop.clone(), unfinished.clone());
    match &arguments.command {
        Some(LoadtestCommand::Cup(arguments)) => run_cup(arguments, (&stop, &unfinished)),
        None => run_load(arguments, &stop),
    }
}

/// This program is also the server under test.
fn run_cup(arguments: &cup::CupArguments, ends: (&Stop, &cup::Unfinished)) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| format!("cannot find the program's own file: {error}"))?;
    cup::run(arguments, program, ends, &mut std::io::stdout().lock())
}

fn run_load(arguments: &LoadArguments, stop: &Stop) -> Result<(), String> {
    contradictions::check(arguments)?;
    let outputs = arguments.results.outputs();
    outputs.check().map_err(|error| error.to_string())?;
    let url = arguments.url.as_deref().unwrap_or_default();
    let Some(other) = &arguments.results.vs else {
        let before = arguments.results.compared()?;
        let finished = run_once(arguments, url, stop)?;
        let comparison = before.map(|before| SideBySide::of_runs(&before, &finished.recording));
        deliver(&outputs, &finished.recording, comparison.as_ref())?;
        let incomplete = finished.log_failure.map(|reason| format!("--log: the file is incomplete: {reason}"));
        return finished.failure.map(|failure| failure.to_string()).or(incomplete).map_or(Ok(()), Err);
    };
    for url in [url, other] {
        check_server(arguments, url)?;
    }
    let schedule = versus::schedule(arguments.results.rounds, versus::new_seed());
    let comparison = versus::run(&schedule, |turn| run_turn(arguments, [url, other], turn, stop))?;
    deliver(&outputs, &comparison.first, Some(&comparison))
}

/// Prepares a turn and drops it: what is wrong with an argument or with a server's address is found before the first turn.
fn check_server(arguments: &LoadArguments, url: &str) -> Result<(), String> {
    let target = TargetUrl::parse(url).map_err(|error| error.to_string())?;
    let opened = arguments.ammo.open(arguments.seed, defaults(arguments, &target))?;
    match opened {
        Some(opened) => contradictions::check_ammo(arguments, &opened.ammo)?,
        None => drop(source(arguments, &target)?),
    }
    settings(arguments, &target).map(drop)
}

/// One turn of two servers under the same load.
fn run_turn(
    arguments: &LoadArguments,
    [first, second]: [&str; 2],
    turn: Turn,
    stop: &Stop,
) -> Result<Recording, String> {
    notice(&format!("turn {} of {}", turn.index + 1, turn.count));
    let finished = run_once(arguments, if turn.side == Side::First { first } else { second }, stop)?;
    match finished.failure {
        Some(failure) => Err(failure.to_string()),
        None if stop.is_asked() => Err("stopped before all turns were over: there is nothing to compare".to_owned()),
        None => Ok(finished.recording),
    }
}

/// One load on one server, with the live screen.
fn run_once(arguments: &LoadArguments, url: &str, stop: &Stop) -> Result<Finished, String> {
    let target = TargetUrl::parse(url).map_err(|error| error.to_string())?;
    let opened = arguments.ammo.open(arguments.seed, defaults(arguments, &target))?;
    if let Some(opened) = &opened {
        contradictions::check_ammo(arguments, &opened.ammo)?;
    }
    let settings = settings(arguments, &target)?;
    let (source, comparison, counts): (Box<dyn RequestSource>, _, _) = match (opened, &settings.load) {
        (Some(opened), _) => (Box::new(opened.ammo), opened.comparison, Some(opened.counts)),
        (None, Load::Users { scenario, .. }) => (Box::new(StepNames::of(scenario)), None, None),
        (None, Load::Open { .. } | Load::Closed { .. }) => (source(arguments, &target)?, None, None),
    };
    let bodies = arguments.expect.body_check()?;
    let observer = match (&comparison, &bodies) {
        (Some(comparison), _) => Some(Box::new(comparison.comparer()) as Box<dyn Observer>),
        (None, Some(bodies)) => Some(Box::new(bodies.clone()) as Box<dyn Observer>),
        (None, None) => None,
    };
    let log = arguments.results.log.as_deref().map(create_log).transpose()?;
    let sampler = arguments.results.sampler()?;
    let (progress, screen) = arguments.results.screen(&settings);
    let finished = engine::run(&settings, source, Watchers { observer, progress, log }, stop);
    screen.finish();
    let mut finished = finished.map_err(|error| format!("the load ended: {error}"))?;
    finished.recording.is_rated = arguments.results.asks_for_rating();
    if let Some(sampler) = sampler {
        let failures = results::add_samples(sampler, &mut finished.recording);
        failures.iter().for_each(|text| notice(text));
    }
    let notices = counts.map(|counts| ammo::notices(&counts, comparison.as_deref()));
    notices.iter().flatten().for_each(|text| notice(text));
    let unexpected = bodies.map(|bodies| bodies.found()).filter(|found| found.count + found.unchecked > 0);
    unexpected.iter().for_each(|found| notice(&found.to_string()));
    finished.missing_values.iter().for_each(|text| notice(text));
    if finished.unlogged > 0 {
        notice(&format!("{} requests are not in the log: writing was slower than the load", finished.unlogged));
    }
    Ok(finished)
}

fn create_log(path: &Path) -> Result<RequestLog, String> {
    RequestLog::create(path).map_err(|error| format!("--log: cannot write {}: {error}", path.display()))
}

/// Writes the outputs that the user requested. A failed condition is the command's error.
fn deliver(outputs: &Outputs, run: &Recording, comparison: Option<&SideBySide>) -> Result<(), String> {
    let mut output = std::io::stdout().lock();
    let failed = outputs.deliver(run, comparison, live::standard_output_width(), &mut output);
    let failed = failed.map_err(|error| format!("cannot write {error}"))?;
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

/// Fields that each request of the ammo receives.
fn defaults(arguments: &LoadArguments, target: &TargetUrl) -> Defaults {
    Defaults::new(&target.authority, headers(arguments))
}

fn end_by_signal(termination: Termination, stop: Stop, unfinished: cup::Unfinished) {
    std::thread::spawn(move || {
        termination.wait();
        stop.stop();
        termination.wait();
        unfinished.remove();
        std::process::exit(CUT_STATUS);
    });
}

/// The engine's settings from the arguments, once the target is permitted and resources suffice.
fn settings(arguments: &LoadArguments, target: &TargetUrl) -> Result<LoadSettings, String> {
    let scenario = scenario(arguments, target)?;
    let address = address(arguments, target)?;
    let threads = usize::from(arguments.threads.unwrap_or_else(cores));
    let (mut load, connections) = load(arguments, threads as u32)?;
    if let (Load::Closed { duration }, Some(scenario)) = (&load, scenario) {
        load = Load::Users { duration: *duration, scenario };
    }
    let rate = match &load {
        Load::Open { profile, .. } if arguments.new_connections => Some(profile.rate_max()),
        _ => None,
    };
    let wanted = room::Wanted { connections, threads, new_connections_per_second: rate, to: address.ip() };
    if let Some(warning) = room::check(&wanted)? {
        notice(&warning);
    }
    Ok(LoadSettings {
        target: target.url.clone(),
        address,
        tls: if target.is_tls { Some(tls(arguments, target)?) } else { None },
        load,
        connections,
        pipeline: arguments.pipeline,
        new_connections: arguments.new_connections,
        timeout: arguments.timeout,
        threads,
        expected: arguments.expect.expect_status.unwrap_or_default(),
    })
}

fn cores() -> u16 {
    std::thread::available_parallelism().map_or(1, |cores| u16::try_from(cores.get()).unwrap_or(u16::MAX))
}

/// The first of the target's addresses that accepts a connection, if all are permitted.
fn address(arguments: &LoadArguments, target: &TargetUrl) -> Result<SocketAddr, String> {
    let addresses = target.resolve().map_err(|error| error.to_string())?;
    if !arguments.i_may_load_this_host {
        target::check_near(&addresses).map_err(|error| error.to_string())?;
    }
    target::first_that_listens(&addresses, FIRST_TRY).map_err(|error| error.to_string())
}

/// An open load if there is a profile or a rate, otherwise a closed one; with the number of its connections.
fn load(arguments: &LoadArguments, threads: u32) -> Result<(Load, u32), String> {
    let duration = arguments.duration.unwrap_or(DURATION);
    let profile = match (&arguments.profile, arguments.rate) {
        (Some(text), _) => Some(Profile::parse(text)),
        (None, Some(rate)) => Some(Profile::constant(rate, duration)),
        (None, None) => None,
    };
    let Some(profile) = profile else {
        return Ok((Load::Closed { duration }, arguments.connections.unwrap_or(CLOSED_CONNECTIONS)));
    };
    let profile = Arc::new(profile.map_err(|error| error.to_string())?);
    let at_start = arguments.connections.unwrap_or((OPEN_CONNECTIONS_AT_START * threads).min(OPEN_CONNECTIONS_MAX));
    let load = Load::Open { profile, connections_at_start: at_start };
    Ok((load, arguments.connections.unwrap_or(OPEN_CONNECTIONS_MAX)))
}

fn tls(arguments: &LoadArguments, target: &TargetUrl) -> Result<TlsClient, String> {
    let named = arguments.tls_ca.clone();
    let file = named.or_else(|| SYSTEM_ROOTS.iter().map(PathBuf::from).find(|file| file.is_file()));
    let file = file.ok_or("no trusted certificates were found: name a file with --tls-ca")?;
    let roots = std::fs::read(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    TlsClient::from_pem(&roots, &target.host, &["http/1.1"]).map_err(|error| format!("{}: {error}", file.display()))
}

/// The header fields of the command line.
fn headers(arguments: &LoadArguments) -> Vec<(String, String)> {
    let mut headers = arguments.header.clone();
    if arguments.new_connections && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("connection")) {
        // The server then closes first, so that the waiting time of the port (TIME_WAIT) is on its side.
        headers.push(("Connection".to_owned(), "close".to_owned()));
    }
    headers
}

/// The single request that the arguments describe.
fn source(arguments: &LoadArguments, target: &TargetUrl) -> Result<Box<dyn RequestSource>, String> {
    let headers = headers(arguments);
    let body = arguments.body.as_deref().map(|text| text_or_file("--body", text)).transpose()?;
    let method = arguments.method.as_deref().unwrap_or(if body.is_some() { "POST" } else { "GET" });
    let (path, authority) = (target.path.as_str(), target.authority.as_str());
    let parts = RequestParts { method, path, authority, headers: &headers, body: body.as_deref() };
    Ok(Box::new(Constant::new(&parts).map_err(|error| error.to_string())?))
}

/// The scenario, if one is named.
fn scenario(arguments: &LoadArguments, target: &TargetUrl) -> Result<Option<Arc<Scenario>>, String> {
    let Some(path) = &arguments.ammo.scenario else { return Ok(None) };
    let text = text_or_file("--scenario", &format!("@{}", path.display()))?;
    let text = String::from_utf8(text).map_err(|_| format!("{}: not UTF-8", path.display()))?;
    let (defaults, seed) = (defaults(arguments, target), arguments.seed.unwrap_or(ammo::SEED));
    let scenario = Scenario::parse(&path.display().to_string(), &text, &defaults, seed);
    scenario.map(|scenario| Some(Arc::new(scenario))).map_err(|error| error.to_string())
}

/// The text itself, or the content of a file for `@FILE`; `option` is named in errors.
fn text_or_file(option: &str, text: &str) -> Result<Vec<u8>, String> {
    let Some(file) = text.strip_prefix('@').map(Path::new) else { return Ok(text.as_bytes().to_vec()) };
    let read_error = |error: std::io::Error| format!("{option}: cannot read {}: {error}", file.display());
    // Before it is opened: opening a pipe waits for a writer.
    if !std::fs::metadata(file).map_err(read_error)?.is_file() {
        return Err(format!("{option}: {} is not a regular file", file.display()));
    }
    let mut bytes = Vec::new();
    let opened = File::open(file).map_err(read_error)?;
    opened.take(BODY_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(read_error)?;
    if bytes.len() as u64 > BODY_BYTES_MAX {
        return Err(format!("{option}: {} is larger than {} MB", file.display(), BODY_BYTES_MAX >> 20));
    }
    Ok(bytes)
}

/// Prints a line on standard error; write errors are ignored.
fn notice(text: &str) {
    let _ = writeln!(std::io::stderr(), "sapsan: {text}");
}
