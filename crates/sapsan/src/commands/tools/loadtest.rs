//! `sapsan loadtest`: the load tester's own command, as `loadtest::cli` has it.

use crate::console::Outcome;
use loadtest::cli::LoadArguments;

pub(crate) fn run(arguments: &LoadArguments) -> Outcome {
    loadtest::cli::run(arguments)
}
