//! The whole configuration file: documents (read by `docs`), endpoints, errors, and where the server listens.
//!
//! All mistakes of a file are told at once, each with its place and what is allowed. SQL is checked when the database
//! is opened or by [`check`], since it needs the catalog.

mod endpoint;
mod errors;
mod listen;
mod size;

pub use endpoint::{Action, EndpointConfig, Target};
pub use listen::{Durability, ServerConfig};

use crate::failure::ErrorRules;
use crate::params;
use docs::config::{Config, Mistake, Mistakes, Source, Table};
use http::Router;
use std::path::{Path, PathBuf};

/// Most bytes of a configuration file.
pub const FILE_BYTES_MAX: u64 = 4 << 20;
/// Most declared endpoints.
pub const ENDPOINTS_MAX: usize = 4096;

/// A configuration file, read and checked.
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    /// The file.
    pub path: PathBuf,
    /// Its text, for telling the place of mistakes that are found later.
    pub text: String,
    /// Collections and parameters.
    pub docs: Config,
    /// `[[endpoints]]`.
    pub endpoints: Vec<EndpointConfig>,
    /// `[errors]`.
    pub errors: ErrorRules,
    /// `[server]`.
    pub server: ServerConfig,
}

/// Why a configuration file cannot be used.
#[derive(Debug)]
pub enum ConfigError {
    /// It cannot be read.
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// It has mistakes.
    Mistakes(Mistakes),
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ConfigError::Read { path, source } => write!(formatter, "cannot read {}: {source}", path.display()),
            ConfigError::Mistakes(mistakes) => write!(formatter, "{mistakes}"),
        }
    }
}

impl std::error::Error for ConfigError {}

impl ServiceConfig {
    /// Reads a file. `set` fixes values of `[params]`: `NAME=VALUE` each.
    pub fn load(path: &Path, set: &[String]) -> Result<ServiceConfig, ConfigError> {
        let read = || -> std::io::Result<String> {
            let bytes = std::fs::metadata(path)?.len();
            if bytes > FILE_BYTES_MAX {
                return Err(std::io::Error::other(format!("it has {bytes} bytes, allowed are {FILE_BYTES_MAX}")));
            }
            std::fs::read_to_string(path)
        };
        let text = read().map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        ServiceConfig::parse(path, text, set).map_err(ConfigError::Mistakes)
    }

    /// The same from text; `path` is what messages show and what paths inside are relative to.
    pub fn parse(path: &Path, text: String, set: &[String]) -> Result<ServiceConfig, Mistakes> {
        let source = Source::new(path, &text);
        let document = source.document();
        let root = Table::root(&source, &document);
        let mut docs = Config::read(&root);
        let collections: Vec<String> = docs.collections.iter().map(|collection| collection.name.clone()).collect();
        let endpoints = read_endpoints(&root, &collections);
        let section = |name: &str| root.get(name).and_then(|item| item.table());
        let errors = section("errors").map_or_else(ErrorRules::default, |table| errors::read(&table));
        let server = section("server").map_or_else(ServerConfig::default, |table| ServerConfig::read(&table));
        for given in set {
            if let Err(problem) = params::fix(&mut docs.params, given) {
                root.mistake(format!("--set {given}: {problem}"), "");
            }
        }
        source.finish()?;
        Ok(ServiceConfig { path: path.to_owned(), text, docs, endpoints, errors, server })
    }

    /// A mistake found later, at an endpoint's action.
    pub fn mistake_at(&self, endpoint: &EndpointConfig, what: impl Into<String>) -> Mistake {
        let source = Source::new(&self.path, &self.text);
        source.mistake(endpoint.span.clone(), what, "");
        match source.finish() {
            Err(mut mistakes) => mistakes.list.swap_remove(0),
            Ok(()) => unreachable!("a mistake was noted just before"),
        }
    }
}

fn read_endpoints(root: &Table<'_>, collections: &[String]) -> Vec<EndpointConfig> {
    let Some(items) = root.get("endpoints").and_then(|item| item.list()) else { return Vec::new() };
    if items.len() > ENDPOINTS_MAX {
        root.mistake(format!("{} endpoints", items.len()), format!("up to {ENDPOINTS_MAX}"));
    }
    let mut router = Router::new();
    let mut endpoints = Vec::new();
    for item in &items {
        let Some(endpoint) = EndpointConfig::read(item, collections) else { continue };
        // Routes that clash are told here, with their place.
        if let Err(error) = router.route(endpoint.method, &endpoint.pattern, ()) {
            item.mistake(error.to_string(), "");
        }
        endpoints.push(endpoint);
    }
    endpoints
}
