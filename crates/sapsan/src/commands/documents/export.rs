//! `sapsan export`: the documents of a data folder, or of a running server, as lines of JSON, as arrays or as a table.

use crate::cli::{Export, ExportFormat};
use crate::console::process::UnfinishedFile;
use crate::console::{Outcome, output, process};
use crate::export::{
    CollectionOutline, Destination, FolderSource, ServerSource, Source, name_is_free, write_arrays, write_lines,
    write_table,
};
use crate::target::folder;
use crate::target::remote::Remote;
use docs::engine::Store;
use server::config::ServiceConfig;
use std::path::Path;

pub(crate) fn run(arguments: &Export) -> Outcome {
    let unfinished = process::end_by_signal()?;
    // Checked before anything is opened.
    arguments.out.as_deref().map_or(Ok(()), name_is_free)?;
    match (&arguments.url, &arguments.config, &arguments.data) {
        (Some(url), None, None) => {
            let remote = Remote::of(url, &arguments.secret);
            let remote =
                remote.unwrap_or_else(|| Err(format!("--url {url}: http://ADDRESS:PORT or unix:PATH is expected")))?;
            export(arguments, &ServerSource::new(remote), &unfinished)
        }
        (Some(url), ..) => {
            // Here and not in the declaration: clap would show the usage without --url.
            Err(format!(
                "--url {url} names a running server, which knows its file and its folder: leave out CONFIG and --data"
            ))
        }
        (None, Some(config), Some(data)) => of_folder(arguments, (config, data), &unfinished),
        _ => Err("CONFIG and --data DIR, or --url URL, are expected".to_owned()),
    }
}

fn of_folder(arguments: &Export, (file, data): (&Path, &Path), unfinished: &UnfinishedFile) -> Outcome {
    let config = ServiceConfig::load(file, &[]).map_err(|error| error.to_string())?;
    let documents = server::complete(&config).map_err(|mistakes| mistakes.to_string())?;
    if !Store::is_in(data) {
        return Err(format!("{} is no data folder", data.display()));
    }
    let database = folder::open_to_look(&documents, file, data, server::store_options(&config))?;
    let session = database.session().map_err(|error| error.to_string())?;
    export(arguments, &FolderSource::new(&database, &session), unfinished)
}

fn export(arguments: &Export, source: &dyn Source, unfinished: &UnfinishedFile) -> Outcome {
    let all = source.collections()?;
    let format = format(arguments);
    let collections = chosen(arguments, format, &all)?;
    let mut out = Destination::open(arguments.out.as_deref(), unfinished)?;
    let (mut untyped, mut quoted) = (Vec::new(), Vec::new());
    let names: Vec<&str> = collections.iter().map(|collection| collection.name.as_str()).collect();
    let exported = match (format, &collections[..]) {
        (ExportFormat::Ndjson, [only, ..]) => write_lines(source, &only.name, &mut out),
        (ExportFormat::Csv, [only, ..]) => write_table(source, only, &mut out).map(|written| {
            (untyped, quoted) = (written.untyped, written.quoted);
            written.documents
        }),
        _ => write_arrays(source, &names, arguments.collection.is_none(), &mut out),
    };
    let documents = exported.as_ref().copied().unwrap_or_default();
    out.finish(exported.map(|_| ()))?;
    if !untyped.is_empty() {
        let columns = untyped.join(", ");
        output::notice(format_args!(
            "the schema does not declare the fields {columns}, so an import of this table reads their values as text. `--format ndjson` keeps their types"
        ));
    }
    if !quoted.is_empty() {
        let columns = quoted.join(", ");
        output::notice(format_args!(
            "the schema permits text in the fields {columns}, so an import of this table reads their arrays and objects as text. `--format ndjson` keeps their types"
        ));
    }
    match &arguments.out {
        Some(out) => output::line(format_args!("wrote {documents} documents to {}", out.display())),
        None => Ok(()),
    }
}

/// The format of --format, or else of the ending of the file's name.
fn format(arguments: &Export) -> ExportFormat {
    let extension = arguments.out.as_deref().and_then(Path::extension).and_then(|extension| extension.to_str());
    let of_name = match extension {
        Some("json") => ExportFormat::Json,
        Some("csv") => ExportFormat::Csv,
        _ => ExportFormat::Ndjson,
    };
    arguments.format.unwrap_or(of_name)
}

/// The collections that are exported: the named one, the only one, or all of them as an object of arrays.
fn chosen<'c>(
    arguments: &Export,
    format: ExportFormat,
    all: &'c [CollectionOutline],
) -> Result<Vec<&'c CollectionOutline>, String> {
    if all.is_empty() && (arguments.collection.is_some() || format != ExportFormat::Json) {
        return Err("there is no collection".to_owned());
    }
    let names = || all.iter().map(|collection| collection.name.as_str()).collect::<Vec<_>>().join(", ");
    if let Some(name) = &arguments.collection {
        let found = all.iter().find(|collection| collection.name == *name);
        return found
            .map(|found| vec![found])
            .ok_or_else(|| format!("there is no collection {name:?}; there are: {}", names()));
    }
    if format != ExportFormat::Json && all.len() != 1 {
        let why = "NDJSON and CSV have room for one collection";
        return Err(format!("{why}: choose one of {} with --collection, or write all with --format json", names()));
    }
    Ok(all.iter().collect())
}
