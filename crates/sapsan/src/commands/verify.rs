//! `sapsan verify DIR [--config CONFIG]`: every page, every tree's order, free space, the log; nothing of it is changed.
//! With a config the store is opened too, and every index entry, unique value and reference recomputed.

use super::Outcome;
use crate::cli::Verify;
use docs::Database;
use server::config::ServiceConfig;
use store::{Options, Store};

pub(crate) fn run(arguments: &Verify) -> Outcome {
    let data = &arguments.data;
    if !Store::is_in(data) {
        return Err(format!("{} is no data folder", data.display()));
    }
    let told = |error: store::Error| format!("{}: {error}", data.display());
    let found = Store::examine(data).map_err(told)?;
    print!("{found}");
    let mut clean = found.is_clean();
    if let Some(path) = arguments.config.as_ref().filter(|_| clean) {
        let (store, _) = Store::open(data, Options::default().keeping_changes()).map_err(told)?;
        let config = ServiceConfig::load(path, &[]).map_err(|error| error.to_string())?;
        let documents = server::complete(&config).map_err(|mistakes| mistakes.to_string())?;
        let database = Database::with_store(&documents, data, store).map_err(|error| error.to_string())?;
        let report = docs::verify::database(&database).map_err(|error| error.to_string())?;
        println!("documents: {}, entries of indexes and unique fields: {}", report.documents, report.entries);
        for fault in &report.faults {
            println!("fault: {fault}");
        }
        clean &= report.is_clean();
    }
    if clean {
        println!("clean");
        Ok(())
    } else {
        Err(format!("{} is damaged: see above", data.display()))
    }
}
