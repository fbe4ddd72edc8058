//! `sapsan stat DIR`: trees, depth, fill, space. `sapsan stat URL`: what a running server tells of its store.

use crate::cli::Stat;
use crate::console::{Outcome, output};
use crate::target::folder;
use crate::target::remote::{self, Remote};
use docs::engine::{self, Store, StoreOptions};

pub(crate) fn run(arguments: &Stat) -> Outcome {
    let data = &arguments.data;
    if let Some(remote) = data.to_str().and_then(|text| Remote::of(text, &arguments.secret)) {
        return of_server(&remote?);
    }
    if !Store::is_in(data) {
        return Err(format!("{} is no data folder", data.display()));
    }
    let error_of = |error: engine::StoreError| format!("{}: {error}", data.display());
    match Store::open(data, StoreOptions::default().keeping_changes()) {
        Ok((store, _)) => output::bytes(store.stat().to_string().as_bytes()),
        // It cannot be opened, but its files can be looked at.
        Err(error) if folder::is_read_only(&error) => {
            output::bytes(Store::examine(data).map_err(error_of)?.to_string().as_bytes())
        }
        Err(error) => Err(error_of(error)),
    }
}

/// The store's metrics, without what explains them to a machine.
fn of_server(remote: &Remote) -> Outcome {
    const PREFIX: &str = "sapsan_store_";
    let (status, metrics) = remote.ask("GET", "/_/metrics", "")?;
    if status != 200 {
        return Err(remote::refusal(status, &metrics));
    }
    for (name, value) in metrics.lines().filter_map(|line| line.strip_prefix(PREFIX)?.split_once(' ')) {
        output::line(format_args!("{name:<28} {value}"))?;
    }
    Ok(())
}
