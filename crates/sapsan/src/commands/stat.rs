//! `sapsan stat DIR`: trees, depth, fill, space.

use super::Outcome;
use crate::cli::Folder;
use store::{Options, Store};

pub(crate) fn run(arguments: &Folder) -> Outcome {
    let data = &arguments.data;
    if !Store::is_in(data) {
        return Err(format!("{} is no data folder", data.display()));
    }
    let told = |error: store::Error| format!("{}: {error}", data.display());
    let (store, _) = Store::open(data, Options::default().keeping_changes()).map_err(told)?;
    print!("{}", store.stat());
    Ok(())
}
