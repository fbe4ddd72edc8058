//! `sapsan loadtest`: the load tester's own command, as `loadtest::cli` has it.

use crate::console::Outcome;
use loadtest::cli::Arguments;

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    loadtest::cli::run(arguments)
}
