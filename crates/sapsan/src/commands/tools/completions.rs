//! `sapsan completions SHELL`: a script for completion of commands, options and their values.

use crate::cli::{self, Completions, Shell};
use crate::console::{Outcome, output};

pub(crate) fn run(arguments: &Completions) -> Outcome {
    let shell = match arguments.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut cli::table(), "sapsan", &mut script);
    output::bytes(&script)
}
