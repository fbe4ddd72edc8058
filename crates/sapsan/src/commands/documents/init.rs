//! `sapsan init FILE`: a service file, drafted from documents.

use crate::cli::Init;
use crate::console::{Outcome, output, process};
use crate::draft::{Draft, Shown};
use crate::export::{Destination, Stopped, name_is_free};
use server::config::ServiceConfig;
use std::io::Write;
use std::path::Path;

/// Name of the service file in its own comments if it is written to standard output.
const NAME_SHOWN: &str = "service.toml";

pub(crate) fn run(arguments: &Init) -> Outcome {
    let unfinished = process::end_by_signal()?;
    // Checked before the data is read, which may take long.
    arguments.out.as_deref().map_or(Ok(()), name_is_free)?;
    let draft = Draft::read(&arguments.file, arguments.collection.as_deref())?;
    let data = arguments.file.to_string_lossy();
    let service = arguments.out.as_deref().map_or(NAME_SHOWN.into(), Path::to_string_lossy);
    let text = draft.text(&Shown { data: &data, service: &service }).map_err(|why| format!("{data}: {why}"))?;
    check(Path::new(&*service), &text)?;
    let mut destination = Destination::open(arguments.out.as_deref(), &unfinished)?;
    let written = destination.write_all(text.as_bytes());
    destination.finish(written.map_err(Stopped::Unwritten))?;
    let Some(out) = &arguments.out else { return Ok(()) };
    let collections = draft.names().collect::<Vec<_>>().join(", ");
    output::line(format_args!("wrote {}, with {collections}, from {}", out.display(), draft.extent()))
}

/// A drafted file is written only if `check-config` would accept it.
fn check(path: &Path, text: &str) -> Outcome {
    let mistaken = |mistakes: &dyn std::fmt::Display| {
        format!(
            "no service file can be made with the names in this data: {mistakes}. Rename the field or collection that the message names"
        )
    };
    let config = ServiceConfig::parse(path, text.to_owned()).map_err(|mistakes| mistaken(&mistakes))?;
    server::check(&config).map_err(|mistakes| mistaken(&mistakes))
}
