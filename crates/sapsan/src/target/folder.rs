//! Opening a data folder: for a command that writes into it, and for one that only looks at it.

use crate::console::output;
use docs::engine::{self, Classified, Store, StoreOptions};
use docs::{Differences, DocumentDatabase};
use server::config::ServiceConfig;
use std::path::Path;

/// Whether a folder could not be opened because nothing can be written into it.
pub(crate) fn is_read_only(error: &engine::StoreError) -> bool {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), engine::ErrorKind::System(ReadOnlyFilesystem | PermissionDenied))
}

/// Opens a folder and brings it in line with the file; what that drops, where it may, is reported.
pub(crate) fn open_to_write(
    config: &ServiceConfig,
    documents: &docs::config::Config,
    data: &Path,
) -> Result<DocumentDatabase, String> {
    let (database, _) = server::open_folder(config, documents, data).map_err(|error| error.to_string())?;
    if !database.dropped().is_empty() {
        output::notice(format_args!("dropped from {}: {}", data.display(), database.dropped()));
    }
    Ok(database)
}

/// Opens a folder with a file that declares what the folder holds. Any other file is refused, because opening changes a folder to
/// match its file.
pub(crate) fn open_to_look(
    documents: &docs::config::Config,
    file: &Path,
    data: &Path,
    options: StoreOptions,
) -> Result<DocumentDatabase, String> {
    let error_of = |error: &dyn std::fmt::Display| format!("{}: {error}", data.display());
    let (store, _) = Store::open(data, options).map_err(|error| match is_read_only(&error) {
        true => format!(
            "{}: the folder cannot be written, which opening it with its configuration requires: `sapsan restore {0} COPY` \
             makes a copy of it elsewhere",
            data.display()
        ),
        false => error_of(&error),
    })?;
    let differences = Differences::find(documents, &store).map_err(|error| error_of(&error))?;
    if !differences.is_empty() {
        return Err(format!(
            "{} differs from what {} holds, which would be changed: {differences}. Give the file that the service runs with, or start the \
             service with this file and wait until everything is built (`/_/schema` lists what is refused, and why)",
            file.display(),
            data.display()
        ));
    }
    DocumentDatabase::with_store(documents, data, store).map_err(|error| error_of(&error))
}
