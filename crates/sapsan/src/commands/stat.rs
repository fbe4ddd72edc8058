//! `sapsan stat DIR`: trees, depth, fill, space. `sapsan stat URL`: what a running server tells of its store.

use super::remote::Remote;
use super::{Outcome, output};
use crate::cli::Folder;
use store::{Options, Store};

pub(crate) fn run(arguments: &Folder) -> Outcome {
    let data = &arguments.data;
    if let Some(remote) = data.to_str().and_then(Remote::of) {
        return of_server(&remote?);
    }
    if !Store::is_in(data) {
        return Err(format!("{} is no data folder", data.display()));
    }
    let told = |error: store::Error| format!("{}: {error}", data.display());
    let (store, _) = Store::open(data, Options::default().keeping_changes()).map_err(told)?;
    output::bytes(store.stat().to_string().as_bytes())
}

/// The store's metrics, without what explains them to a machine.
fn of_server(remote: &Remote) -> Outcome {
    const PREFIX: &str = "sapsan_store_";
    let (status, metrics) = remote.ask("GET", "/_/metrics", "")?;
    if status != 200 {
        return Err(format!("the server answers {status}"));
    }
    for (name, value) in metrics.lines().filter_map(|line| line.strip_prefix(PREFIX)?.split_once(' ')) {
        output::line(format_args!("{name:<28} {value}"))?;
    }
    Ok(())
}
