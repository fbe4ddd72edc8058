//! `sapsan check-config CONFIG`: every mistake of the file, SQL included, without starting.

use super::Outcome;
use crate::cli::CheckConfig;
use server::config::ServiceConfig;

pub(crate) fn run(arguments: &CheckConfig) -> Outcome {
    let config = ServiceConfig::load(&arguments.config, &[]).map_err(|error| error.to_string())?;
    server::check(&config).map_err(|mistakes| mistakes.to_string())?;
    println!(
        "{}: {} collections, {} endpoints, no mistakes",
        arguments.config.display(),
        config.docs.collections.len(),
        config.endpoints.len()
    );
    println!("{}", server::capacity(&config.server));
    Ok(())
}
