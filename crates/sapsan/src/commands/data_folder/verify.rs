//! `sapsan verify DIR [--config CONFIG]`: every page, every tree's order, free space, the log; nothing of it is changed.
//! With a config the database is opened too, where that file declares what the folder holds, and every index entry, unique value,
//! reference and view is computed again.
//!
//! `sapsan verify DIR --views --config CONFIG` computes the views alone again, after the pages: what is computed from damaged
//! pages says nothing. `sapsan verify URL --views` has a running server compute its views again while it takes writes,
//! and tells which of its pages it has found damaged.

use crate::cli::Verify;
use crate::console::{Outcome, output};
use crate::target::folder;
use crate::target::remote::Remote;
use docs::engine::{self, ErrorKind, Store, StoreOptions};
use docs::{DocumentDatabase, ReadError};
use serde_json::Value as Json;
use server::config::ServiceConfig;
use std::path::Path;

pub(crate) fn run(arguments: &Verify) -> Outcome {
    let data = &arguments.data;
    match data.to_str().and_then(|text| Remote::of(text, &arguments.secret)) {
        Some(remote) if arguments.views => return views_of_server(&remote?),
        Some(_) => {
            return Err("of a running server only the views can be verified: add --views".to_owned());
        }
        None if !Store::is_in(data) => return Err(format!("{} is no data folder", data.display())),
        None if arguments.views && arguments.config.is_none() => {
            return Err("--views wants --config: the file that declares them".to_owned());
        }
        None => {}
    }
    let error_of = |error: engine::StoreError| format!("{}: {error}", data.display());
    let found = Store::examine(data).map_err(error_of)?;
    if !arguments.views || !found.is_clean() {
        output::bytes(found.to_string().as_bytes())?;
    }
    let mut clean = found.is_clean();
    if let Some(path) = arguments.config.as_ref().filter(|_| clean) {
        let config = ServiceConfig::load(path, &[]).map_err(|error| error.to_string())?;
        let documents = server::complete(&config).map_err(|mistakes| mistakes.to_string())?;
        let database = folder::open_to_look(&documents, path, data, StoreOptions::default().keeping_changes())?;
        if !arguments.views {
            let report = docs::verify::database(&database).map_err(|error| error.to_string())?;
            let (documents, entries) = (report.documents, report.entries);
            output::line(format_args!("documents: {documents}, entries of indexes and unique fields: {entries}"))?;
            for fault in &report.faults {
                output::line(format_args!("fault: {fault}"))?;
            }
            clean &= report.is_clean();
        }
        clean &= views(&database)?;
    }
    if clean { output::line("clean") } else { Err(format!("{} is damaged: see above", data.display())) }
}

/// Has a server compute each of its views again.
fn views_of_server(remote: &Remote) -> Outcome {
    let ask = |method: &str, target: &str| -> Result<Json, String> {
        let (status, body) = remote.ask(method, target, "")?;
        let reply: Json = serde_json::from_str(&body).map_err(|_| format!("the server answers {status}: {body}"))?;
        if status == 200 { Ok(reply) } else { Err(format!("{target}: {}", reply["detail"].as_str().unwrap_or(&body))) }
    };
    let mut clean = true;
    for view in ask("GET", "/_/views")?.as_array().into_iter().flatten() {
        let name = view["name"].as_str().unwrap_or_default();
        match view["state"].as_str() {
            Some("retired") => continue,
            Some("ready") => {}
            state => {
                output::line(format_args!("fault: view {name} is {}", state.unwrap_or("unknown")))?;
                clean = false;
                continue;
            }
        }
        let report = ask("POST", &format!("/_/views/{name}/verify"))?;
        output::line(format_args!("view {name}: {} rows of {} documents", report["rows"], report["documents"]))?;
        for what in report["differences"].as_array().into_iter().flatten() {
            output::line(format_args!("fault: view {name}: {}", what.as_str().unwrap_or_default()))?;
        }
        clean &= report["clean"] == Json::Bool(true);
    }
    let (_, health) = remote.ask("GET", "/_/health", "")?;
    let health: Json = serde_json::from_str(&health).unwrap_or_default();
    if let Some(damage) = health["damage"].as_str().or_else(|| health["detail"].as_str()) {
        output::line(format_args!("fault: {damage}"))?;
        clean = false;
    }
    if clean { output::line("clean") } else { Err("the views are not as they should be: see above".to_owned()) }
}

/// Why a view could not be computed again, and what to do.
fn not_verified(view: &str, data: &Path, error: &ReadError) -> String {
    match error.engine() {
        Some(ErrorKind::DiskFull) => format!(
            "view {view}: disk full; nothing was changed. Its rows are sorted in files in {0}, which need about as much room as the \
             view takes there: delete other files, or `sapsan restore {0} COPY` on another disk and verify COPY",
            data.display()
        ),
        _ => format!("view {view}: {error}"),
    }
}

/// Computes every view again; gives whether all are as they should be.
fn views(database: &DocumentDatabase) -> Result<bool, String> {
    database.wait_for_views();
    let mut clean = true;
    for view in database.views() {
        match database.verify_view(&view.name).map_err(|error| not_verified(&view.name, database.dir(), &error))? {
            Some(report) => {
                output::line(format_args!(
                    "view {}: {} rows of {} documents",
                    report.view, report.rows, report.documents
                ))?;
                for fault in &report.faults {
                    output::line(format_args!("fault: view {}: {}", report.view, fault.what))?;
                }
                clean &= report.is_clean();
            }
            None if view.state == docs::RuleState::Dropped => {}
            None => {
                let why = view.failure.unwrap_or_default();
                output::line(format_args!("fault: view {} could not be built: {why}", view.name))?;
                clean = false;
            }
        }
    }
    Ok(clean)
}
