//! `sapsan init FILE`: a service file, drafted from documents.

use crate::cli::Init;
use crate::console::{Outcome, output};
use crate::draft::{Draft, Shown};
use crate::export::{Destination, Stopped, name_is_free};
use server::config::ServiceConfig;
use std::io::Write;
use std::path::Path;

/// What comments call a service file that goes to standard output.
const NAME_SHOWN: &str = "service.toml";

pub(crate) fn run(arguments: &Init) -> Outcome {
    // Before much is read.
    arguments.out.as_deref().map_or(Ok(()), name_is_free)?;
    let draft = Draft::read(&arguments.file, arguments.collection.as_deref())?;
    let data = arguments.file.to_string_lossy();
    let service = arguments.out.as_deref().map_or(NAME_SHOWN.into(), Path::to_string_lossy);
    let text = draft.text(&Shown { data: &data, service: &service }).map_err(|why| format!("{data}: {why}"))?;
    check(Path::new(&*service), &text)?;
    let mut destination = Destination::open(arguments.out.as_deref())?;
    let written = destination.write_all(text.as_bytes());
    destination.finish(written.map_err(Stopped::Unwritten))?;
    let Some(out) = &arguments.out else { return Ok(()) };
    let collections = draft.names().collect::<Vec<_>>().join(", ");
    output::line(format_args!("wrote {}, with {collections}, from {}", out.display(), draft.extent()))
}

/// What is written is what `check-config` takes.
fn check(path: &Path, text: &str) -> Outcome {
    let mistaken = |mistakes: &dyn std::fmt::Display| {
        format!("the names in these data make no service file: {mistakes}. Rename what the message names")
    };
    let config = ServiceConfig::parse(path, text.to_owned()).map_err(|mistakes| mistaken(&mistakes))?;
    server::check(&config).map_err(|mistakes| mistaken(&mistakes))
}
