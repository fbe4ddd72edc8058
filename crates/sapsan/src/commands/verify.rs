//! `sapsan verify DIR [--config CONFIG]`: every page, every tree's order, free space, the log; nothing of it is changed.
//! With a config the store is opened too, which brings it in line with that file as a start does, and every index entry, unique
//! value, reference and view is computed again.

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
        clean &= views(&database).map_err(|error| error.to_string())?;
    }
    if clean {
        println!("clean");
        Ok(())
    } else {
        Err(format!("{} is damaged: see above", data.display()))
    }
}

/// Computes every view again; gives whether all are as they should be.
fn views(database: &Database) -> Result<bool, docs::ReadError> {
    database.wait_for_views();
    let mut clean = true;
    for view in database.views() {
        match database.verify_view(&view.name)? {
            Some(report) => {
                println!("view {}: {} rows of {} documents", report.view, report.rows, report.documents);
                report.faults.iter().for_each(|fault| println!("fault: view {}: {}", report.view, fault.what));
                clean &= report.is_clean();
            }
            None if view.state == docs::views::ViewState::Retired => {}
            None => {
                println!("fault: view {} could not be built: {}", view.name, view.failure.unwrap_or_default());
                clean = false;
            }
        }
    }
    Ok(clean)
}
