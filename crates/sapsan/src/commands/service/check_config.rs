//! `sapsan check-config CONFIG`: every mistake of the file, SQL included, without starting.

use crate::cli::CheckConfig;
use crate::console::{Outcome, output};
use server::config::{ServiceConfig, lints};

pub(crate) fn run(arguments: &CheckConfig) -> Outcome {
    let config = ServiceConfig::load(&arguments.config, &arguments.set).map_err(|error| error.to_string())?;
    server::check(&config).map_err(|mistakes| mistakes.to_string())?;
    // Some mistakes are found only by opening: a trial in memory reports them.
    server::rehearse(&config).map_err(|mistakes| mistakes.to_string())?;
    for lint in lints(&config) {
        output::notice(format_args!("note: {lint}"));
    }
    output::line(format_args!(
        "{}: {} collections, {} endpoints, no mistakes",
        arguments.config.display(),
        config.docs.collections.len(),
        config.endpoints.len()
    ))?;
    output::line(server::capacity(&config.server))
}
