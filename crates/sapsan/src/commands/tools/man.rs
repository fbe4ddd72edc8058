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
        let names = || command.get_subcommands().map(clap::Command::get_name).collect::<Vec<_>>().join(", ");
        command = command
            .find_subcommand(name)
            .ok_or_else(|| format!("there is no command {name:?}; there are: {}", names()))?;
    }
    let mut page = Vec::new();
    let rendered = Page::new(command.clone()).render(&mut page);
    rendered.map_err(|error| format!("cannot make the manual page: {error}"))?;
    output::bytes(&page)
}
