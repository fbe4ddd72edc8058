//! `sapsan completions SHELL`: a script by which a shell completes commands, options and their values.

use super::{Outcome, output};
use crate::cli::{Completions, Shell};
use crate::cli_help;

pub(crate) fn run(arguments: &Completions) -> Outcome {
    let shell = match arguments.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut cli_help::command(), "sapsan", &mut script);
    output::bytes(&script)
}
