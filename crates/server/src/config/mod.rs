//! The whole configuration file: documents (read by `docs`), endpoints, errors, and `[server]`.
//!
//! All mistakes of a file are reported at once, each with its place and what is allowed. This folder has the settings, the reading
//! of their sections, and the division of the memory setting. `lifecycle::loading` reads the whole file and prepares its SQL, which
//! needs the rooms that answer requests. It may import `failure`.

mod cors;
mod differences;
mod endpoint;
pub(crate) mod errors;
mod files;
mod guard;
mod lints;
mod listen;
pub(crate) mod memory;
mod server;
pub(crate) mod size;
mod steps;
mod tls;
pub(crate) mod token;

pub use cors::CorsConfig;
pub(crate) use endpoint::{AFTER, DECLARED_MAX, GET_ALLOWED, GET_WRITES, LIMIT, SORT, path_parameters};
pub use endpoint::{Action, DocumentTarget, EndpointConfig, PageConfig, SortConfig};
pub use files::FilesConfig;
pub(crate) use files::{folder_pattern, rest_parameter};
pub use guard::GuardConfig;
pub(crate) use guard::read_all as read_guards;
pub use lints::lints;
pub use listen::listen_address;
pub use server::{Acknowledgement, AdminListener, BlockingModel, ServerConfig};
pub use steps::StepConfig;
pub use tls::TlsConfig;
pub(crate) use token::read_all as read_tokens;
pub use token::{TokenConfig, is_scope, parse_moment};

use crate::failure::ErrorRules;
use docs::config::{Config, ConfigFile, Mistake, Mistakes};
use std::path::PathBuf;

/// Limit of a configuration file.
pub const FILE_BYTES_MAX: u64 = 4 << 20;
/// Limit of declared endpoints.
pub const ENDPOINTS_MAX: usize = 4096;

/// A configuration file, read and checked.
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    /// The file.
    pub path: PathBuf,
    /// Its text, to find the place of later mistakes.
    pub text: String,
    /// Collections and parameters.
    pub docs: Config,
    /// `[[endpoints]]`.
    pub endpoints: Vec<EndpointConfig>,
    /// `[tokens]`.
    pub tokens: Vec<TokenConfig>,
    /// `[errors]`.
    pub errors: ErrorRules,
    /// `[server]`, with the changes of the command line.
    pub server: ServerConfig,
    /// `[server]` as it is in the file.
    pub file_server: ServerConfig,
    /// `--set` arguments, which fix values of `[params]`.
    pub set: Vec<String>,
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
    /// A `--set` of the command line is invalid.
    Set(String),
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ConfigError::Read { path, source } => write!(formatter, "cannot read {}: {source}", path.display()),
            ConfigError::Mistakes(mistakes) => write!(formatter, "{mistakes}"),
            ConfigError::Set(problem) => write!(formatter, "{problem}"),
        }
    }
}

impl std::error::Error for ConfigError {}

impl ServiceConfig {
    /// A mistake found later, at these bytes of the file.
    pub fn mistake_at(&self, span: std::ops::Range<usize>, what: impl Into<String>) -> Mistake {
        let source = ConfigFile::new(&self.path, &self.text);
        source.mistake(span, what, "");
        match source.finish() {
            Err(mut mistakes) => mistakes.list.swap_remove(0),
            Ok(()) => unreachable!("a mistake was noted just before"),
        }
    }
}
