//! Arguments of completions and man.

use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The command, as in `serve` or `generate travels`. Without a command: the page of the program
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}
