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
    /// The data folder; created if it is missing
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Address to listen on; overrides [server] http of the file
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    pub(crate) http: Option<SocketAddr>,
    /// Number of event loops, 1 to 256; overrides [server] threads of the file
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: Option<u16>,
    /// Folder that POST /_/backup writes into; overrides [server] backups of the file
    #[arg(long, value_name = "DIR")]
    pub(crate) backups: Option<PathBuf>,
    /// Sets a value of the file's [params]: NAME=VALUE. May be given several times
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,
    /// Allow dropping collections, indexes, rules and views that the data folder holds and the file does not declare
    #[arg(long)]
    pub(crate) allow_drop: bool,
    /// Level of the log on standard error. The variable SAPSAN_LOG can set levels of single parts, as in info,store=debug
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) log: Option<Level>,
}

#[derive(Debug, Args)]
pub(crate) struct CheckConfig {
    /// The service's config file
    pub(crate) config: PathBuf,
    /// Sets a value of the file's [params], as for serve: NAME=VALUE. May be given several times
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Token {
    /// Name of the token in the config file: [tokens.NAME]
    pub(crate) name: String,
    /// Scopes, separated by commas: read, write and admin are those of the general API, other names those of declared endpoints
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', required = true)]
    pub(crate) allow: Vec<String>,
    /// Time of expiry in UTC: YYYY-MM-DD (the day's beginning) or YYYY-MM-DDTHH:MM:SSZ
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
}
