//! `sapsan import CONFIG --data DIR FILE…`: files into collections, all or nothing where those are empty.

use crate::cli::{Import, ImportFormat, OnError};
use crate::console::{Outcome, output, progress};
use crate::target::folder;
use docs::import::{ImportOptions, ImportProgress, Input, RecordFormat};
use indicatif::ProgressBar;
use reactor::Descriptors;
use server::config::ServiceConfig;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The name of standard input among the files.
const STANDARD_INPUT: &str = "-";

pub(crate) fn run(arguments: &Import) -> Outcome {
    let mut config = ServiceConfig::load(&arguments.config, &[]).map_err(|error| error.to_string())?;
    config.docs.may_drop = arguments.allow_drop;
    let mut options = ImportOptions::default();
    options.collection.clone_from(&arguments.collection);
    options.format = arguments.format.map(|format| match format {
        ImportFormat::Json => RecordFormat::Json,
        ImportFormat::Ndjson => RecordFormat::Lines,
        ImportFormat::Csv => RecordFormat::Csv,
        ImportFormat::Tsv => RecordFormat::Tsv,
    });
    options.on_error = match arguments.on_error {
        OnError::Stop => docs::import::OnError::Stop,
        OnError::Skip => docs::import::OnError::Skip,
    };
    // What does not fit into memory is sorted in files, some for each thread and collection.
    Descriptors::raised();
    options.threads = arguments.threads.map_or(options.threads, usize::from);
    load(&config, &arguments.data, &arguments.files, &options)
}

/// Imports with default options, for the demo.
pub(in crate::commands) fn into(config: &ServiceConfig, data: &Path, files: &[PathBuf]) -> Outcome {
    load(config, data, files, &ImportOptions::default())
}

fn load(config: &ServiceConfig, data: &Path, files: &[PathBuf], options: &ImportOptions) -> Outcome {
    let started = Instant::now();
    let documents = server::complete(config).map_err(|mistakes| mistakes.to_string())?;
    // Before a data folder is made.
    files.iter().try_for_each(|file| check_readable(file))?;
    let database = folder::open_to_write(config, &documents, data)?;
    let inputs = files.iter().map(|file| input(file)).collect();
    let bar = progress::bytes(0);
    let report = database.import(inputs, options, &|progress| show(&bar, progress));
    bar.finish_and_clear();
    let report = report.map_err(|error| error.to_string())?;
    for record in &report.listed {
        output::notice(format_args!("skipped {record}"));
    }
    let unlisted = report.skipped - report.listed.len() as u64;
    if unlisted > 0 {
        output::notice(format_args!("skipped {unlisted} more"));
    }
    let seconds = started.elapsed().as_secs_f64();
    let (documents, rate) = (report.documents, report.documents as f64 / seconds.max(1e-9));
    let skipped = report.skipped;
    output::line(format_args!(
        "imported {documents} documents in {seconds:.2} s ({rate:.0} a second), {skipped} skipped"
    ))?;
    if report.skipped > 0 {
        // Exit status 0 means that everything was done.
        return Err(format!("{} records were skipped, see above; all others are stored", report.skipped));
    }
    Ok(())
}

/// A pipe is not opened here: it can be read once.
fn check_readable(file: &Path) -> Outcome {
    let failed = |error: std::io::Error| format!("{}: {error}", file.display());
    if file != Path::new(STANDARD_INPUT) && std::fs::metadata(file).map_err(failed)?.is_file() {
        std::fs::File::open(file).map_err(failed)?;
    }
    Ok(())
}

fn input(file: &Path) -> Input {
    if file == Path::new(STANDARD_INPUT) {
        Input::Stream { name: "standard input".to_owned(), read: Box::new(std::io::stdin()) }
    } else {
        Input::File(file.to_owned())
    }
}

fn show(bar: &ProgressBar, progress: ImportProgress) {
    if let Some(total) = progress.bytes_total {
        bar.set_length(total);
    }
    bar.set_position(progress.bytes);
    let what = if progress.building { "building trees" } else { "reading" };
    bar.set_message(format!("{} documents, {:.0} a second, {what}", progress.documents, rate(bar, progress)));
}

fn rate(bar: &ProgressBar, progress: ImportProgress) -> f64 {
    progress.documents as f64 / bar.elapsed().as_secs_f64().max(1e-3)
}
