//! `sapsan man [COMMAND]`: the manual page of the program or of one command, for `man -l -`.

use crate::cli::{self, Man};
use crate::console::{Outcome, output};
use clap_mangen::Man as Page;

pub(crate) fn run(arguments: &Man) -> Outcome {
    let mut all = cli::table();
    // Gives each command its full name.
    all.build();
    let mut command = &all;
    for name in &arguments.command {
        command = command.find_subcommand(name).ok_or_else(|| unknown(command, name))?;
    }
    let mut page = Vec::new();
    let rendered = Page::new(command.clone()).render(&mut page);
    rendered.map_err(|error| format!("cannot make the manual page: {error}"))?;
    output::bytes(&page)
}

fn unknown(command: &clap::Command, name: &str) -> String {
    let names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
    match names[..] {
        [] => {
            format!("`{}` has no commands of its own: {name:?} is too much", command.get_bin_name().unwrap_or("sapsan"))
        }
        _ => format!("there is no command {name:?}; there are: {}", names.join(", ")),
    }
}
