//! `sapsan reshard --from A --nodes B1,B2,…`: every key of one Redis to the nodes that a placement gives them.

use crate::cli::Reshard as Arguments;
use crate::console::{Outcome, output, process, progress};
use proxy::config::{NodeConfig, Spread};
use proxy::reshard::{CopyPlan, Following, Reshard, Verified, check_answers};
use resp::{ClientSettings, Endpoint};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What one command may take: a DUMP of half a gigabyte takes seconds.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What a server may take for an answer after Ctrl-C.
const ANSWER_TIME_MAX: Duration = Duration::from_millis(700);
/// Pause between two such questions.
const ANSWER_PAUSE: Duration = Duration::from_millis(200);
/// Exit status if a server does not answer after Ctrl-C.
const STOPPED_STATUS: i32 = 1;

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let plan = plan(arguments)?;
    let stop = stop_at_interrupt(plan.clone())?;
    let reshard = Reshard::new(plan, &stop);
    if arguments.flushdb {
        reshard.flush().map_err(|error| error.to_string())?;
    }
    match (arguments.no_copy, arguments.live) {
        (true, _) => {}
        (false, false) => copy(&reshard)?,
        (false, true) => follow(&reshard)?,
    }
    // What Ctrl-C has ended is the following, not this.
    stop.store(false, Ordering::Relaxed);
    if arguments.verify { verify(&reshard) } else { Ok(()) }
}

fn plan(arguments: &Arguments) -> Result<CopyPlan, String> {
    let settings = |address: &String| settings(address, arguments.db);
    let nodes = arguments.nodes.iter().map(settings).collect::<Result<Vec<ClientSettings>, String>>()?;
    if arguments.spread.spread() == Spread::Slots {
        return Err("--hash slots: a cluster moves its slots itself (redis-cli --cluster reshard)".to_owned());
    }
    let configs = nodes.iter().map(node_config).collect::<Result<Vec<NodeConfig>, String>>()?;
    let placement = arguments.spread.spread().placement(&configs);
    Ok(CopyPlan { source: settings(&arguments.from)?, nodes, placement, by_type: arguments.by_type })
}

/// The node as the proxy's list would name it.
fn node_config(node: &ClientSettings) -> Result<NodeConfig, String> {
    match &node.endpoint {
        Endpoint::Tcp { host, port } => proxy::parse_node(&format!("{host}:{port}")),
        Endpoint::Unix(path) => proxy::parse_node(&format!("unix:{}", path.display())),
    }
}

fn settings(address: &str, database: u32) -> Result<ClientSettings, String> {
    let address = if address.contains("://") { address.to_owned() } else { format!("redis://{address}") };
    let settings = ClientSettings::of(&address).map_err(|error| error.to_string())?;
    Ok(ClientSettings { database, timeout: TIMEOUT, ..settings })
}

/// Set by Ctrl-C and by SIGTERM; a second one ends the process. So does a server that does not answer after the first: the run could
/// not end by itself.
fn stop_at_interrupt(plan: CopyPlan) -> Result<Arc<AtomicBool>, String> {
    let termination = process::claim_signals()?;
    let stop = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&stop);
    let look = move || {
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
        // Without this thread a second signal still ends the process.
        let _ = std::thread::Builder::new().name("answers".to_owned()).spawn(look);
        termination.wait();
        std::process::exit(process::CUT_STATUS);
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map_err(|error| error.to_string())?;
    Ok(stop)
}

fn copy(reshard: &Reshard<'_>) -> Outcome {
    let (bar, began) = (progress::keys(0), Instant::now());
    let copied = reshard.copy(&mut |progress| {
        bar.set_length(progress.keys);
        bar.set_position(progress.read);
    });
    bar.finish_and_clear();
    let copied = copied.map_err(|error| error.to_string())?;
    let seconds = began.elapsed().as_secs_f64();
    output::line(format_args!("copied {copied} keys in {seconds:.1} s ({:.0} a second)", copied as f64 / seconds))
}

fn follow(reshard: &Reshard<'_>) -> Outcome {
    let bar = progress::keys(0);
    let (mut is_reported, mut interrupted_by) = (false, None);
    let followed = reshard.follow(&mut |how| match how {
        Following::Copying(progress) => {
            bar.set_length(progress.keys);
            bar.set_position(progress.read);
        }
        Following::Behind(keys) => {
            if !is_reported {
                is_reported = true;
                output::notice(
                    "all keys are copied. Changes are followed until Ctrl-C: end the writes to the source first",
                );
            }
            bar.set_message(format!("· following, {keys} changed keys behind"));
        }
        Following::Interrupted(reason) => {
            if interrupted_by.as_ref() != Some(&reason) {
                output::notice(format_args!(
                    "sapsan: {reason}. Everything is copied again once all servers answer; Ctrl-C ends this"
                ));
                interrupted_by = Some(reason);
            }
        }
    });
    bar.finish_and_clear();
    let again = followed.map_err(|error| error.to_string())?;
    output::line(format_args!(
        "followed: {again} changed keys were copied again; every change before the end is on the nodes"
    ))
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
