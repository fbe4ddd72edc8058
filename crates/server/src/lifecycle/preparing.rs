//! From a checked configuration to a service: SQL prepared against a catalog, endpoints, and everything else that a start or a
//! reload needs of the file.

use super::path_types::with_types;
use crate::config::Acknowledgement;
use crate::config::memory::Division;
use crate::config::memory::MEMTABLES;
use crate::config::{Action, EndpointConfig, ServiceConfig, path_parameters};
use crate::declared::endpoint::Endpoint;
use crate::declared::path_parameter::of_path;
use crate::declared::query::DeclaredQuery;
use crate::declared::steps::DeclaredSteps;
use crate::openapi::{self, Columns};
use crate::statements::guard::DeclaredGuard;
use docs::catalog::Catalog;
use docs::config::{Mistakes, Parameter};
use docs::engine::{self, Recovery, StoreOptions};
use docs::sql::{JsonTypes, PlanSpace};
use docs::{DatabaseOpenError, DocumentDatabase};
use http::Files;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why a server does not start.
#[derive(Debug)]
pub enum ServerStartError {
    /// The configuration has mistakes that are found only with the catalog: SQL.
    Config(Mistakes),
    /// The collections cannot be made as the file requires.
    Open(DatabaseOpenError),
    /// The data folder cannot be opened.
    Folder {
        /** The configuration file. */
        file: PathBuf,
        /** The folder. */
        folder: PathBuf,
        /** Why. */
        source: DatabaseOpenError,
    },
    /// The address cannot be listened on.
    Listen {
        /** The address. */
        address: String,
        /** The setting of the address. */
        setting: &'static str,
        /** The system's reason. */
        source: std::io::Error,
    },
    /// The process may open too few files and connections.
    Descriptors(reactor::DescriptorShortage),
    /// Threads or descriptors ran out.
    System(std::io::Error),
}

impl std::fmt::Display for ServerStartError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ServerStartError::Config(mistakes) => write!(formatter, "{mistakes}"),
            ServerStartError::Open(error) => write!(formatter, "{error}"),
            ServerStartError::Folder { file, folder, source } => {
                let (file, folder) = (file.display(), folder.display());
                match source {
                    DatabaseOpenError::OtherService { held, declared } => write!(
                        formatter,
                        "{folder} belongs to another service than {file}: it holds {held}, and the file declares {declared}. \
                         Give the file that this folder was made with, or another folder"
                    ),
                    DatabaseOpenError::WouldDrop(lost) => write!(
                        formatter,
                        "{file} no longer declares what {folder} holds. This would be dropped: {lost}. Declare it again, or \
                         permit that with --allow-drop"
                    ),
                    source => write!(formatter, "{folder}: {source}"),
                }
            }
            ServerStartError::Listen { address, setting, source } if source.kind() == std::io::ErrorKind::AddrInUse => {
                let what = if address.starts_with("unix:") { "socket" } else { "port" };
                write!(
                    formatter,
                    "cannot listen on {address}: another program has this {what}; choose one with {setting}"
                )
            }
            ServerStartError::Listen { address, source, .. } => {
                write!(formatter, "cannot listen on {address}: {source}")
            }
            ServerStartError::Descriptors(shortage) => write!(formatter, "cannot start: {shortage}"),
            ServerStartError::System(source) => write!(formatter, "cannot start: {source}"),
        }
    }
}

impl std::error::Error for ServerStartError {}

impl From<DatabaseOpenError> for ServerStartError {
    fn from(error: DatabaseOpenError) -> Self {
        ServerStartError::Open(error)
    }
}

/// Readers of the store besides those of loops, builders and cold reads.
const OTHER_READERS_MAX: usize = 128;

/// The statements of an endpoint, by the names of their orders.
type Statements = Vec<(String, DeclaredQuery)>;

/// Prepares every declared query against a catalog.
fn prepare(config: &ServiceConfig, catalog: &Catalog) -> Result<Vec<Statements>, Mistakes> {
    let mut mistakes = Vec::new();
    let mut statements = Vec::new();
    for endpoint in &config.endpoints {
        let mut of_endpoint = Vec::new();
        for (name, endpoint) in endpoint.sorted() {
            match DeclaredQuery::prepare(&endpoint, &config.docs.params, catalog) {
                None => {}
                Some(Ok(declared)) => of_endpoint.push((name, declared)),
                Some(Err(what)) => mistakes.push(config.mistake_at(endpoint.span.clone(), what)),
            }
        }
        statements.push(of_endpoint);
    }
    if mistakes.is_empty() { Ok(statements) } else { Err(Mistakes { list: mistakes, more: 0 }) }
}

/// Prepares the steps of every endpoint against a catalog.
fn prepare_steps(config: &ServiceConfig, catalog: &Catalog) -> Result<Vec<Option<DeclaredSteps>>, Mistakes> {
    let all = config.endpoints.iter().map(|endpoint| {
        let prepared = DeclaredSteps::prepare(endpoint, &config.docs.params, catalog).transpose();
        prepared.map_err(|mistakes| mistakes.into_iter().map(|(span, what)| config.mistake_at(span, what)).collect())
    });
    all.collect::<Result<_, _>>().map_err(|list| Mistakes { list, more: 0 })
}

/// Prepares the guard of every endpoint against a catalog.
fn prepare_guards(config: &ServiceConfig, catalog: &Catalog) -> Result<Vec<Option<DeclaredGuard>>, Mistakes> {
    let all = config.endpoints.iter().map(|endpoint| {
        let Some(guard) = &endpoint.guard else { return Ok(None) };
        let prepared = DeclaredGuard::prepare(guard, &config.docs.params, catalog);
        prepared.map(Some).map_err(|what| config.mistake_at(guard.span.clone(), what))
    });
    all.collect::<Result<_, _>>().map_err(|mistake| Mistakes { list: vec![mistake], more: 0 })
}

/// Opens the folder of every endpoint that serves files. It must have nothing in common with the folder of the data, nor with that
/// of the backups: their files hold every document as it is stored.
fn open_files(config: &ServiceConfig, data: Option<&Path>) -> Result<Vec<Option<Files>>, Mistakes> {
    let private = [(data, "the data folder"), (config.server.backups.as_deref(), "the folder for backups")];
    let all = config.endpoints.iter().map(|endpoint| {
        let Action::Files(files) = &endpoint.action else { return Ok(None) };
        let overlaps = |folder: &Option<&Path>| folder.is_some_and(|folder| files.overlaps(folder));
        if let Some((Some(folder), what)) = private.iter().find(|(folder, _)| overlaps(folder)) {
            let what = format!(
                "`files` would serve {what}, {}: give the files a folder that neither lies in it nor holds it",
                folder.display()
            );
            return Err(config.mistake_at(endpoint.span.clone(), what));
        }
        files.open().map(Some).map_err(|what| config.mistake_at(endpoint.span.clone(), what))
    });
    all.collect::<Result<_, _>>().map_err(|mistake| Mistakes { list: vec![mistake], more: 0 })
}

/// The columns of each endpoint's rows.
fn columns(
    config: &ServiceConfig,
    catalog: &Catalog,
    statements: &[Statements],
    steps: &[Option<DeclaredSteps>],
) -> Vec<Columns> {
    let all = config.endpoints.iter().zip(statements).zip(steps);
    let of_endpoint = |((endpoint, queries), steps): ((&EndpointConfig, &Statements), &Option<DeclaredSteps>)| {
        let parameter = |name: &str| parameter_types(name, endpoint, config, catalog);
        match (queries.first(), steps) {
            (Some((_, query)), _) => query.statement().column_types(&parameter),
            (None, Some(steps)) => steps.column_types(&parameter),
            (None, None) => Vec::new(),
        }
    };
    all.map(of_endpoint).collect()
}

/// The types of the values that a statement's parameter may have: an undeclared one may be any value.
fn parameter_types(name: &str, endpoint: &EndpointConfig, config: &ServiceConfig, catalog: &Catalog) -> JsonTypes {
    if path_parameters(&endpoint.pattern).any(|part| part == name) {
        // A request always has its path parameters.
        let part = of_path(name, endpoint, catalog);
        return openapi::types_of(&Parameter { required: true, ..part });
    }
    let of_body = endpoint.body.iter().flat_map(|body| body.names()).any(|known| known == name);
    let of_file = config.docs.params.iter().filter(|_| !of_body);
    let declared = endpoint.params.iter().chain(of_file).find(|parameter| parameter.name == name);
    declared.map_or(JsonTypes::VALUE, openapi::types_of)
}

/// The declared endpoints, prepared against the catalog of an open database, and the OpenAPI document. `data`: the folder of the
/// database, if it has one.
pub(crate) fn routes(
    config: &ServiceConfig,
    database: &DocumentDatabase,
    data: Option<&Path>,
) -> Result<(Vec<Endpoint>, String), ServerStartError> {
    let catalog = database.catalog();
    let config = &with_types(config, catalog);
    let statements = prepare(config, catalog).map_err(ServerStartError::Config)?;
    let steps = prepare_steps(config, catalog).map_err(ServerStartError::Config)?;
    let openapi = openapi::document(config, catalog, &columns(config, catalog, &statements, &steps));
    let guards = prepare_guards(config, catalog).map_err(ServerStartError::Config)?;
    let files = open_files(config, data).map_err(ServerStartError::Config)?;
    let all = config.endpoints.iter().zip(statements).zip(steps).zip(guards.into_iter().zip(files));
    let declared = &config.endpoints;
    let resolved = all.filter_map(|(((endpoint, query), steps), (guard, files))| {
        Endpoint::new(endpoint, declared, catalog, (query, steps), guard, files)
    });
    Ok((resolved.collect(), openapi))
}

/// The configuration of the documents, completed by the fields that declared queries need in indexes, so that the indexes cover
/// the queries. Mistakes of SQL are reported.
pub fn complete(config: &ServiceConfig) -> Result<docs::config::Config, ServerStartError> {
    let mut docs = config.docs.clone();
    docs.sort_bytes = Division::sort_bytes(&config.server);
    docs.build_bytes = Division::of(&config.server).building_bytes;
    docs.build_threads = config.server.threads;
    docs.plans = PlanSpace::new(Division::of(&config.server).plan_bytes);
    let catalog = docs::outline(&docs).map_err(ServerStartError::Open)?;
    let config = &with_types(config, &catalog);
    for (_, declared) in prepare(config, &catalog).map_err(ServerStartError::Config)?.into_iter().flatten() {
        for wanted in declared.statement().wanted_included() {
            docs.include(&wanted.collection, &wanted.index, &wanted.fields);
        }
    }
    Ok(docs)
}

/// Opens a data folder with the completed documents of a file ([`complete`]), and adapts it to them.
pub fn open_folder(
    config: &ServiceConfig,
    documents: &docs::config::Config,
    folder: &Path,
) -> Result<(DocumentDatabase, Recovery), ServerStartError> {
    DocumentDatabase::open(documents, folder, store_options(config)).map_err(|source| ServerStartError::Folder {
        file: config.path.clone(),
        folder: folder.to_owned(),
        source,
    })
}

/// The store's settings for a configuration.
pub fn store_options(config: &ServiceConfig) -> StoreOptions {
    let mut options = StoreOptions::default();
    let division = Division::of(&config.server);
    options.memtable_bytes = division.memtable_bytes;
    options.memtables_max = MEMTABLES;
    options.transaction_bytes_max = division.transaction_bytes;
    options.queue_bytes_max = division.prepared_bytes;
    options.places_bytes = division.places_bytes;
    // Two readers for each loop, and as many if the general API has its own listener; one for each thread for cold reads, one for
    // each that builds, and those of the pool, of backups, and of consumers that are behind.
    options.readers_max =
        options.readers_max.max(4 * config.server.threads + division.cold_threads + OTHER_READERS_MAX);
    options.read_ahead = config.server.read_ahead;
    options.changes_kept_bytes = config.server.changes_kept_bytes;
    options.changes_kept_for = config.server.changes_kept.unwrap_or(Duration::MAX);
    options.durability = match config.server.durability {
        Acknowledgement::Commit => engine::Durability::Commit,
        Acknowledgement::Interval(interval) => engine::Durability::Interval(interval),
        Acknowledgement::None => engine::Durability::None,
    };
    options
}

/// Logs what a configuration has dropped from the folder.
pub(super) fn log_dropped(database: &DocumentDatabase) {
    let dropped = database.dropped();
    if !dropped.is_empty() {
        tracing::warn!(%dropped, "dropped from the data folder, as permitted");
    }
}

/// Reports every mistake of a configuration that was read, including SQL, without a data folder.
pub fn check(config: &ServiceConfig) -> Result<(), ServerStartError> {
    complete(config).map(drop)
}

/// Address space for the tree file of a rehearsal's database, which contains only a catalog.
const REHEARSAL_MAP_BYTES: usize = 64 << 20;
/// The least segment of the log that a store accepts.
const SEGMENT_BYTES_LEAST: u64 = 64 << 10;

/// Opens a configuration without mistakes as a start opens it, in memory and without data. Everything that a start would refuse
/// in an empty folder is an error here too, and is reported as a mistake of the file.
pub fn rehearse(config: &ServiceConfig) -> Result<(), ServerStartError> {
    let opened = || -> Result<(), ServerStartError> {
        let mut documents = complete(config)?;
        documents.builds_indexes_later = true;
        let mut options = store_options(config);
        options.map_bytes = REHEARSAL_MAP_BYTES as u64;
        // Segments are first filled with zeros: no larger than transactions need.
        let segment_bytes = (2 * options.transaction_bytes_max as u64).next_multiple_of(4096).max(SEGMENT_BYTES_LEAST);
        if options.changes_kept_bytes == 0 {
            options.log_segment_bytes = options.log_segment_bytes.min(segment_bytes);
        }
        let store =
            engine::in_memory(REHEARSAL_MAP_BYTES, options).map_err(|error| ServerStartError::Open(error.into()))?;
        let database = DocumentDatabase::with_store(&documents, &config.path, store)?;
        routes(config, &database, None).map(drop)
    };
    opened().map_err(|error| match error {
        ServerStartError::Open(why) => {
            ServerStartError::Config(Mistakes { list: vec![config.mistake_at(0..0, why.to_string())], more: 0 })
        }
        other => other,
    })
}
