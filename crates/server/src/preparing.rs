//! From a checked configuration to what is served: SQL prepared against a catalog, endpoints, and what else a start or a reload
//! needs of the file.

use crate::config::ServiceConfig;
use crate::endpoint::Endpoint;
use crate::memory::Division;
use crate::openapi::{self, Columns};
use crate::path_types::with_types;
use crate::querying::DeclaredQuery;
use crate::stepping::DeclaredSteps;
use docs::catalog::Catalog;
use docs::config::Mistakes;
use docs::{Database, OpenError};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a server does not start.
#[derive(Debug)]
pub enum StartError {
    /// The configuration has mistakes that show only against the catalog: SQL.
    Config(Mistakes),
    /// The collections cannot be made of what the file says.
    Open(OpenError),
    /// The data folder cannot be opened.
    Folder {
        /** The folder. */
        folder: PathBuf,
        /** Why. */
        source: OpenError,
    },
    /// The address cannot be listened on.
    Listen {
        /** The address. */
        address: SocketAddr,
        /** The system's reason. */
        source: std::io::Error,
    },
    /// Threads or descriptors are short.
    System(std::io::Error),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::Config(mistakes) => write!(formatter, "{mistakes}"),
            StartError::Open(error) => write!(formatter, "{error}"),
            StartError::Folder { folder, source } => write!(formatter, "{}: {source}", folder.display()),
            StartError::Listen { address, source } if source.kind() == std::io::ErrorKind::AddrInUse => write!(
                formatter,
                "cannot listen on {address}: another program has this port; choose one with --http ADDRESS:PORT"
            ),
            StartError::Listen { address, source } => write!(formatter, "cannot listen on {address}: {source}"),
            StartError::System(source) => write!(formatter, "cannot start: {source}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<OpenError> for StartError {
    fn from(error: OpenError) -> Self {
        StartError::Open(error)
    }
}

/// The statements of an endpoint, by the name of its way to sort.
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
        prepared.map_err(|(span, what)| config.mistake_at(span, what))
    });
    all.collect::<Result<_, _>>().map_err(|mistake| Mistakes { list: vec![mistake], more: 0 })
}

/// The columns of each endpoint's rows.
fn columns(statements: &[Statements], steps: &[Option<DeclaredSteps>]) -> Vec<Columns> {
    let of_endpoint = |(queries, steps): (&Statements, &Option<DeclaredSteps>)| match (queries.first(), steps) {
        (Some((_, query)), _) => query.statement().columns().map(str::to_owned).collect(),
        (None, Some(steps)) => steps.columns(),
        (None, None) => Vec::new(),
    };
    statements.iter().zip(steps).map(of_endpoint).collect()
}

/// The declared endpoints, prepared against the catalog of an open database, and the OpenAPI document.
pub(crate) fn routes(config: &ServiceConfig, database: &Database) -> Result<(Vec<Endpoint>, String), StartError> {
    let catalog = database.catalog();
    let config = &with_types(config, catalog);
    let statements = prepare(config, catalog).map_err(StartError::Config)?;
    let steps = prepare_steps(config, catalog).map_err(StartError::Config)?;
    let openapi = openapi::document(config, catalog, &columns(&statements, &steps));
    let (all, declared) = (config.endpoints.iter().zip(statements).zip(steps), &config.endpoints);
    let resolved =
        all.filter_map(|((endpoint, query), steps)| Endpoint::new(endpoint, declared, catalog, query, steps));
    Ok((resolved.collect(), openapi))
}

/// The configuration of the documents, completed by what the declared queries want carried in indexes, so that they
/// read no document through them. SQL's mistakes are told.
pub fn complete(config: &ServiceConfig) -> Result<docs::config::Config, StartError> {
    let mut docs = config.docs.clone();
    docs.sort_bytes = Division::sort_bytes(&config.server);
    docs.build_bytes = Division::of(&config.server).building_bytes;
    docs.build_threads = config.server.threads;
    let catalog = docs::outline(&docs).map_err(StartError::Open)?;
    let config = &with_types(config, &catalog);
    for (_, declared) in prepare(config, &catalog).map_err(StartError::Config)?.into_iter().flatten() {
        for wanted in declared.statement().wanted_included() {
            docs.include(&wanted.collection, &wanted.index, &wanted.fields);
        }
    }
    Ok(docs)
}

/// Tells every mistake of a configuration that is read already, SQL included, without a data folder.
pub fn check(config: &ServiceConfig) -> Result<(), StartError> {
    complete(config).map(drop)
}
