//! `sapsan verify DIR [--config CONFIG]`: every page, every tree's order, free space, the log; with a config also every
//! index entry, unique value and reference.

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
    let (store, recovery) = Store::open(data, Options::default().keeping_changes()).map_err(told)?;
    println!("log: {} batches replayed, {} bytes of a torn tail dropped", recovery.batches, recovery.torn_bytes);
    let report = store.verify();
    print!("{report}");
    let mut clean = report.is_clean();
    if let Some(path) = &arguments.config {
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
