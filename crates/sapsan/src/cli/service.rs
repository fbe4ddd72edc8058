//! Arguments of the commands for a service: serve, demo, check-config, token.

use super::level::Level;
use clap::Args;
use server::config::listen_address;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Address to listen on: ADDRESS:PORT
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080", value_parser = listen_address)]
    pub(crate) http: SocketAddr,
    /// Seed of the generated data
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The service's config file
    pub(crate) config: PathBuf,
    /// The data folder; made where there is none
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Where to listen; goes before the file's [server] http
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    pub(crate) http: Option<SocketAddr>,
    /// Event loops, 1 to 256; goes before the file's [server] threads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: Option<u16>,
    /// Where POST /_/backup writes; goes before the file's [server] backups
    #[arg(long, value_name = "DIR")]
    pub(crate) backups: Option<PathBuf>,
    /// Fixes a value of the file's [params]: NAME=VALUE
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,
    /// Permit that the file drops collections, indexes, rules or views that the data folder holds
    #[arg(long)]
    pub(crate) allow_drop: bool,
    /// How much is logged on standard error; the variable SAPSAN_LOG can name single parts, as in info,store=debug
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) log: Option<Level>,
}

#[derive(Debug, Args)]
pub(crate) struct CheckConfig {
    /// The service's config file
    pub(crate) config: PathBuf,
    /// Fixes a value of the file's [params], as for serve: NAME=VALUE
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Token {
    /// What the file calls it: [tokens.NAME]
    pub(crate) name: String,
    /// What it allows: read, write and admin are the general API's scopes, other names those of declared endpoints
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', required = true)]
    pub(crate) allow: Vec<String>,
    /// When it ends: YYYY-MM-DD, the day's beginning in UTC, or YYYY-MM-DDTHH:MM:SSZ
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
}
