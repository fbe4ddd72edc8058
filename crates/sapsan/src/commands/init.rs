//! `sapsan init FILE`: a service file, drafted from documents.

use super::{Outcome, output};
use crate::cli::Init;
use crate::draft::{Draft, Shown};
use server::config::ServiceConfig;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// What comments call a service file that goes to standard output.
const NAME_SHOWN: &str = "service.toml";

pub(crate) fn run(arguments: &Init) -> Outcome {
    // Before much is read.
    if let Some(out) = arguments.out.as_deref().filter(|out| out.exists()) {
        return Err(there_already(out));
    }
    let draft = Draft::read(&arguments.file, arguments.collection.as_deref())?;
    let data = arguments.file.to_string_lossy();
    let service = arguments.out.as_deref().map_or(NAME_SHOWN.into(), Path::to_string_lossy);
    let text = draft.text(&Shown { data: &data, service: &service }).map_err(|why| format!("{data}: {why}"))?;
    check(Path::new(&*service), &text)?;
    let Some(out) = &arguments.out else { return output::bytes(text.as_bytes()) };
    write_new(out, text.as_bytes())?;
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

/// Writes a file that is not there yet.
fn write_new(out: &Path, text: &[u8]) -> Outcome {
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::AlreadyExists => there_already(out),
        _ => format!("cannot write {}: {error}", out.display()),
    };
    let mut file = File::create_new(out).map_err(failed)?;
    file.write_all(text).map_err(|error| {
        // The file is its own: it was not there before.
        let _ = std::fs::remove_file(out);
        failed(error)
    })
}

fn there_already(out: &Path) -> String {
    format!("{} is there already, and is not written over: name another file", out.display())
}
