//! `sapsan lab`: experiments with execution models, or a server of their requests until SIGTERM or Ctrl-C.

use crate::console::{Outcome, output, process};
use lab::cli::{Lab, execute};
use std::time::Duration;

/// How long requests that have come may take after the signal.
const DRAIN: Duration = Duration::from_secs(10);

pub(crate) fn run(arguments: &Lab) -> Outcome {
    // Before any other thread, which would not have the signals blocked. Experiments are ended by them at once.
    let termination = arguments.serves().then(process::claim_signals).transpose()?;
    let notice = &mut |text: &str| output::notice(format_args!("{text}"));
    let served = match execute(arguments, &mut std::io::stdout().lock(), notice)? {
        lab::cli::CommandOutcome::Finished => return Ok(()),
        lab::cli::CommandOutcome::Serving(served) => served,
    };
    output::announce(format_args!("listening on http://{}", served.address()));
    if let Some(termination) = termination {
        termination.wait();
    }
    served.end(DRAIN).map_err(|error| format!("while ending: {error}"))
}
