//! `sapsan reshard --from A --nodes B1,B2,…`: every key of one Redis to the nodes that a placement gives them.

use crate::cli::{ChosenDatabase, Reshard as Arguments};
use crate::console::{Outcome, output, process, progress};
use proxy::config::{NodeConfig, Spread};
use proxy::reshard::{CopyPlan, Followed, Following, Reshard, ReshardProgress, Verified, check_answers, masters};
use resp::{ClientSettings, Endpoint};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Interval of the lines that tell the progress where no bar can be shown.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);
/// What a server may take for an answer after Ctrl-C.
const ANSWER_TIME_MAX: Duration = Duration::from_millis(700);
/// Pause between two such questions.
const ANSWER_PAUSE: Duration = Duration::from_millis(200);
/// Exit status if a server does not answer after Ctrl-C.
const STOPPED_STATUS: i32 = 1;

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let plan = plan(arguments)?;
    // The cut-over that begins then waits for slow servers, within --stall-max.
    let stop = stop_at_interrupt((!arguments.live).then(|| plan.clone()))?;
    let reshard = Reshard::new(plan, &stop);
    if arguments.flushdb {
        reshard.flush().map_err(|error| error.to_string())?;
    }
    let mut followed = None;
    match (arguments.no_copy, arguments.live) {
        (true, _) => {}
        (false, false) => copy(&reshard)?,
        (false, true) => followed = Some(follow(&reshard)?),
    }
    // What Ctrl-C has ended is the following, not this.
    stop.store(false, Ordering::Relaxed);
    let verified = if arguments.verify { verify(&reshard) } else { Ok(()) };
    let Some(Followed { copied_again, lifted_by, .. }) = followed else { return verified };
    let refuses = format!("the source refuses writes (NOREPLICAS) until {lifted_by}");
    verified.map_err(|error| format!("{error}\n{refuses}"))?;
    output::line(format_args!(
        "followed: {copied_again} changed keys were copied again. Every write that the source has acknowledged is on the nodes: point the \
         clients at them\n{refuses}"
    ))
}

fn plan(arguments: &Arguments) -> Result<CopyPlan, String> {
    let database = if let ChosenDatabase::One(number) = arguments.db { number } else { 0 };
    let settings = |address: &String| settings(address, database, Duration::from_secs(arguments.stall_max));
    let nodes = arguments.nodes.iter().map(settings).collect::<Result<Vec<ClientSettings>, String>>()?;
    let (nodes, placement) = match arguments.spread.spread() {
        Spread::Slots if arguments.db != ChosenDatabase::One(0) => {
            return Err("--hash slots: a cluster has only the database 0".to_owned());
        }
        Spread::Slots => {
            let node = nodes.first().ok_or("--nodes names no node")?;
            masters(node, node.timeout).map_err(|error| error.to_string())?
        }
        spread => {
            let configs = nodes.iter().map(node_config).collect::<Result<Vec<NodeConfig>, String>>()?;
            (nodes, spread.placement(&configs))
        }
    };
    Ok(CopyPlan {
        by_type: arguments.by_type,
        all_databases: arguments.db == ChosenDatabase::All,
        pattern: arguments.pattern.clone().map(String::into_bytes),
        keys_per_second: arguments.keys_per_second,
        ..CopyPlan::new(settings(&arguments.from)?, nodes, placement)
    })
}

/// The node as the proxy's list would name it.
fn node_config(node: &ClientSettings) -> Result<NodeConfig, String> {
    match &node.endpoint {
        Endpoint::Tcp { host, port } => proxy::parse_node(&format!("{host}:{port}")),
        Endpoint::Unix(path) => proxy::parse_node(&format!("unix:{}", path.display())),
    }
}

fn settings(address: &str, database: u32, timeout: Duration) -> Result<ClientSettings, String> {
    let address = if address.contains("://") { address.to_owned() } else { format!("redis://{address}") };
    let settings = ClientSettings::of(&address).map_err(|error| error.to_string())?;
    Ok(ClientSettings { database, timeout, ..settings })
}

/// Set by Ctrl-C and by SIGTERM; a second one ends the process. If there is a plan, so does a server that does not answer after the
/// first: the run could not end by itself.
fn stop_at_interrupt(plan: Option<CopyPlan>) -> Result<Arc<AtomicBool>, String> {
    let termination = process::claim_signals()?;
    let stop = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&stop);
    let look = |plan: CopyPlan| {
        let mut misses = 0;
        loop {
            match check_answers(&plan, ANSWER_TIME_MAX) {
                Ok(()) => misses = 0,
                // A server may be busy for a moment, and a run that is about to end has more to say.
                Err(_) if misses == 0 => misses = 1,
                Err(error) => {
                    output::notice(format_args!("sapsan: stopped: {error}"));
                    std::process::exit(STOPPED_STATUS);
                }
            }
            std::thread::sleep(ANSWER_PAUSE);
        }
    };
    let wait = move || {
        termination.wait();
        set.store(true, Ordering::Relaxed);
        if let Some(plan) = plan {
            // Without this thread a second signal still ends the process.
            let _ = std::thread::Builder::new().name("answers".to_owned()).spawn(move || look(plan));
        }
        termination.wait();
        std::process::exit(process::CUT_STATUS);
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map_err(|error| error.to_string())?;
    Ok(stop)
}

/// A bar, or lines where standard error is no terminal.
struct Shown {
    bar: indicatif::ProgressBar,
    began: Instant,
    told: Instant,
}

impl Shown {
    fn new() -> Shown {
        Shown { bar: progress::keys(0), began: Instant::now(), told: Instant::now() }
    }

    fn show(&mut self, progress: ReshardProgress) {
        self.bar.set_length(progress.keys);
        self.bar.set_position(progress.scanned);
        if self.bar.is_hidden() && self.told.elapsed() >= PROGRESS_EVERY {
            self.told = Instant::now();
            output::notice(progress_line(progress, self.began.elapsed()));
        }
    }
}

/// How far a copy is, and how long it will take at the speed so far.
fn progress_line(progress: ReshardProgress, elapsed: Duration) -> String {
    let ReshardProgress { keys, scanned, .. } = progress;
    let left = keys.saturating_sub(scanned) as f64 * elapsed.as_secs_f64() / scanned.max(1) as f64;
    format!("{scanned} of {keys} keys, {left:.0} s left")
}

fn copy(reshard: &Reshard<'_>) -> Outcome {
    let mut shown = Shown::new();
    let copied = reshard.copy(&mut |progress| shown.show(progress));
    shown.bar.finish_and_clear();
    let copied = copied.map_err(|error| error.to_string())?;
    let seconds = shown.began.elapsed().as_secs_f64();
    output::line(format_args!("copied {copied} keys in {seconds:.1} s ({:.0} a second)", copied as f64 / seconds))
}

fn follow(reshard: &Reshard<'_>) -> Result<Followed, String> {
    let mut shown = Shown::new();
    let (mut is_reported, mut interrupted_by) = (false, None);
    let followed = reshard.follow(&mut |how| match how {
        Following::Unfollowed(commands) => output::notice(format_args!(
            "commands that name no keys, and end this with an error if the source executes one: {}",
            commands.join(", ")
        )),
        Following::Copying(progress) => shown.show(progress),
        Following::Behind(keys) => {
            if !is_reported {
                is_reported = true;
                output::notice(
                    "all keys are copied. Changes are followed until Ctrl-C: then the source refuses writes, and the last ones are copied. \
                     Do not point clients at the nodes before this command has ended",
                );
            }
            shown.bar.set_message(format!("· following, {keys} changed keys behind"));
        }
        Following::Interrupted(reason) => {
            if interrupted_by.as_ref() != Some(&reason) {
                output::notice(format_args!(
                    "sapsan: {reason}. Everything is copied again once all servers answer; Ctrl-C ends this"
                ));
                interrupted_by = Some(reason);
            }
        }
        Following::Fenced { lifted_by } => output::notice(format_args!(
            "the source refuses writes (NOREPLICAS) until {lifted_by}; its last changes are being copied"
        )),
    });
    shown.bar.finish_and_clear();
    let followed = followed.map_err(|error| error.to_string())?;
    if followed.scripts_may_write {
        output::notice(
            "sapsan: the source is older than Redis 7, and still executes the writes of scripts: stop clients that use scripts",
        );
    }
    Ok(followed)
}

fn verify(reshard: &Reshard<'_>) -> Outcome {
    let bar = progress::keys(0);
    let found = reshard.verify(&mut |keys| bar.inc(keys));
    bar.finish_and_clear();
    let found = found.map_err(|error| error.to_string())?;
    if found.is_equal() {
        return output::line(format_args!("verified {} keys: the nodes have what the source has", found.keys));
    }
    Err(report(&found))
}

fn report(found: &Verified) -> String {
    let key =
        |differing: &proxy::reshard::Differing| format!("  \"{}\" {}\n", differing.key.escape_ascii(), differing.how);
    let keys: String = found.differing.iter().map(key).collect();
    let extra = |key: &Vec<u8>| format!("  \"{}\" is on a node, and not its key\n", key.escape_ascii());
    let keys = keys + &found.extra.iter().map(extra).collect::<String>();
    format!(
        "of {} keys {} differ, and the nodes have {} keys that are not theirs:\n{keys}Copy again; --flushdb removes what is not theirs",
        found.keys, found.differing_keys, found.extra_keys
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_tells_the_time_that_is_left() {
        let progress = ReshardProgress { keys: 1_000, scanned: 250, ..ReshardProgress::default() };
        assert_eq!(progress_line(progress, Duration::from_secs(20)), "250 of 1000 keys, 60 s left");
        assert_eq!(progress_line(ReshardProgress::default(), Duration::from_secs(1)), "0 of 0 keys, 0 s left");
    }
}
