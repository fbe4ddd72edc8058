//! The command line: every command with its arguments, one table from which help is made.

pub(crate) use crate::cli_proxy::Proxy;
use crate::cli_proxy::SpreadArguments;
use clap::{Args, Parser, Subcommand, ValueEnum};
use server::config::listen_address;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A document server for hot data: one config file becomes a JSON service.
#[derive(Debug, Parser)]
#[command(
    name = "sapsan",
    version,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve generated travels data from a temporary folder: nothing to set up
    Demo(Demo),
    /// Serve the collections and endpoints that a config file declares
    Serve(Serve),
    /// Draft a service file from data: collections, keys, types, and candidates for indexes
    Init(Init),
    /// Load files into a data folder: zip, json, ndjson, csv, or - for standard input
    Import(Import),
    /// Write the documents of a data folder as lines of JSON, as arrays or as CSV: as of one moment
    Export(Export),
    /// Write seeded test data
    Generate(Generate),
    /// Run one SQL statement on a data folder: a query, EXPLAIN of one, INSERT, UPDATE or DELETE
    Query(Query),
    /// Tell every mistake of a config file without starting
    CheckConfig(CheckConfig),
    /// Copy the data of a running server, or of a data folder that nobody has open
    Backup(Backup),
    /// Make a data folder of a backup
    Restore(Restore),
    /// Write a data folder anew, as small as it goes; nobody may have it open
    Compact(Folder),
    /// Make a token that opens the general API, or declared endpoints, to those who send it
    Token(Token),
    /// Check every page, tree and index of a data folder, or the views of a running server
    Verify(Verify),
    /// Copy every key of one Redis, with its time to live, to the nodes that a placement gives them
    Reshard(Reshard),
    /// Show what a data folder holds, or what a running server (http://ADDRESS:PORT, unix:PATH) tells of its store
    Stat(Stat),
    /// Serve several Redis nodes as one: keys are spread over them, commands of many keys are split
    Proxy(Box<Proxy>),
    /// Load a server with requests at planned moments, and tell how long users would have waited
    Loadtest(Box<loadtest::cli::Arguments>),
    /// Run the same requests through many execution models, beside the optimum that theory allows
    Lab(Box<lab::cli::Lab>),
    /// Write a script by which a shell completes these commands
    Completions(Completions),
    /// Write a manual page, of all or of one command
    Man(Man),
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The command, as in `serve` or `generate travels`; without one the page of the program
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Where to listen
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    /// Faults alone
    Error,
    /// Warnings too, such as queries that read many rows
    Warn,
    /// Events too, such as reloads: the default
    Info,
    /// Details for a search after faults
    Debug,
}

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// The data: .ndjson, .json or .csv; the first 100,000 documents and 256 MiB of it are read
    pub(crate) file: PathBuf,
    /// The service file to write, which is not there yet; standard output without it
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// The name of the collection; without it the data file's own
    #[arg(long, value_name = "NAME")]
    pub(crate) collection: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// The service's config file
    pub(crate) config: PathBuf,
    /// The data folder; made where there is none
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Files: .zip, .json, .ndjson, .csv, .tsv, or - for standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// How records stand in the files; without it their names say, and standard input is JSON
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<ImportFormat>,
    /// The collection of arrays, lines and tables, which name none
    #[arg(long, value_name = "NAME")]
    pub(crate) collection: Option<String>,
    /// What a bad record does
    #[arg(long, value_enum, default_value_t = OnError::Stop)]
    pub(crate) on_error: OnError,
    /// Threads that read, check and sort, 1 to 64
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) threads: Option<u16>,
    /// Permit that the file drops collections, indexes, rules or views that the data folder holds
    #[arg(long)]
    pub(crate) allow_drop: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImportFormat {
    /// An array, or an object of arrays by the names of collections
    Json,
    /// An object on each line
    Ndjson,
    /// A line with the names of the fields, then a row for each document
    Csv,
    /// The same, divided by tabs
    Tsv,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnError {
    /// Ends the import; nothing of it stays
    Stop,
    /// Leaves the record out, tells it, goes on
    Skip,
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// The service's config file
    #[arg(required_unless_present = "url", requires = "data")]
    pub(crate) config: Option<PathBuf>,
    /// The data folder
    #[arg(long, value_name = "DIR", required_unless_present = "url")]
    pub(crate) data: Option<PathBuf>,
    /// A running server (http://ADDRESS:PORT, unix:PATH) in place of a folder, read page by page: what is written meanwhile may come
    /// as it was before or after. For one moment of a running server export a backup of it
    #[arg(long, value_name = "URL", conflicts_with_all = ["config", "data"])]
    pub(crate) url: Option<String>,
    /// The collection; without it the only one, or with --format json all of them
    #[arg(long, value_name = "NAME")]
    pub(crate) collection: Option<String>,
    /// How documents are written; without it as the name of --out says, else ndjson
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<ExportFormat>,
    /// The file to write, which is not there yet, and has its name only when it is complete; standard output without it
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) secret: Secret,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// A document on each line
    Ndjson,
    /// An array of documents; of all collections an object of arrays
    Json,
    /// A line with the names of the fields, then a row for each document
    Csv,
}

#[derive(Debug, Args)]
pub(crate) struct Generate {
    #[command(subcommand)]
    pub(crate) what: GenerateWhat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GenerateWhat {
    /// Users, locations and visits of the travels service, as a zip of JSON files
    Travels(GenerateTravels),
    /// Users of a programmers' forum in the form of Stack Overflow's public table, as lines of JSON
    StackoverflowUsers(GenerateForumUsers),
}

#[derive(Debug, Args)]
pub(crate) struct GenerateTravels {
    /// The zip to write
    pub(crate) out: PathBuf,
    #[arg(long, default_value_t = 10_057)]
    pub(crate) users: u32,
    #[arg(long, default_value_t = 7_628)]
    pub(crate) locations: u32,
    #[arg(long, default_value_t = 100_570)]
    pub(crate) visits: u32,
    /// Write visits alone, of users and locations that are elsewhere: those of a real set
    #[arg(long)]
    pub(crate) only_visits: bool,
    /// The same seed gives the same bytes
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Debug, Args)]
pub(crate) struct GenerateForumUsers {
    /// How many: about 850 bytes each
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    pub(crate) docs: u64,
    /// The same seed gives the same bytes
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
    /// The file to write; standard output where there is none
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Query {
    /// The service's config file
    pub(crate) config: PathBuf,
    /// The data folder
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// How rows are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
    /// A parameter of the query, as JSON or else as text: NAME=VALUE
    #[arg(long = "param", value_name = "NAME=VALUE")]
    pub(crate) params: Vec<String>,
    /// For a statement that writes: permit that the file drops collections, indexes, rules or views that the data folder holds
    #[arg(long)]
    pub(crate) allow_drop: bool,
    /// The query
    pub(crate) sql: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Table,
    Ndjson,
    Json,
    Csv,
}

#[derive(Debug, Args)]
pub(crate) struct CheckConfig {
    /// The service's config file
    pub(crate) config: PathBuf,
    /// Fixes a value of the file's [params], as for serve: NAME=VALUE
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,
}

/// What a command sends to a running server beside its request.
#[derive(Debug, Args)]
pub(crate) struct Secret {
    /// A token for a running server that does not answer without; other users see the command line, but not the variable
    #[arg(long, value_name = "TOKEN", env = "SAPSAN_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Stat {
    /// The data folder, or a running server (http://ADDRESS:PORT, unix:PATH)
    pub(crate) data: PathBuf,
    #[command(flatten)]
    pub(crate) secret: Secret,
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

#[derive(Debug, Args)]
pub(crate) struct Reshard {
    /// Where the keys are: HOST:PORT, redis://USER:PASSWORD@HOST:PORT, rediss://… (TLS) or unix:///PATH
    #[arg(long, value_name = "ADDR")]
    pub(crate) from: String,
    /// Where they go, in the order of the proxy's nodes: addresses of the same form, by commas
    #[arg(long, value_name = "ADDRS", value_delimiter = ',', required = true)]
    pub(crate) nodes: Vec<String>,
    /// Number of the database, of the source and of the nodes
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) db: u32,
    #[command(flatten)]
    pub(crate) spread: SpreadArguments,
    /// Remove all keys of the database from the nodes first
    #[arg(long)]
    pub(crate) flushdb: bool,
    /// Compare every key, its value and its time to live, when all is copied; alone with --no-copy
    #[arg(long)]
    pub(crate) verify: bool,
    /// Copy nothing: with --verify, only compare
    #[arg(long, requires = "verify", conflicts_with_all = ["flushdb", "live"])]
    pub(crate) no_copy: bool,
    /// Follow changes until Ctrl-C, for which the clients' writes to the source are ended first. Then the nodes have every change that
    /// the source executed before Ctrl-C; until then they are behind it, and a change of one key may be there before an earlier change of
    /// another one. FLUSHDB, FLUSHALL and SWAPDB are not followed. The source is told to publish its changes (notify-keyspace-events) and
    /// told its old setting at the end. If its messages are lost, everything is copied again
    #[arg(long)]
    pub(crate) live: bool,
    /// Copy by the commands of each type, not by DUMP and RESTORE
    #[arg(long)]
    pub(crate) by_type: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Folder {
    /// The data folder
    pub(crate) data: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// A running server, as in http://127.0.0.1:8080 or unix:PATH, or a data folder
    pub(crate) from: String,
    /// An empty folder, or one to be made; of a server: a name in its own folder for backups ([server] backups)
    pub(crate) to: PathBuf,
    #[command(flatten)]
    pub(crate) secret: Secret,
}

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The backup: a folder
    pub(crate) backup: PathBuf,
    /// The data folder to make: empty, or not there
    pub(crate) data: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The data folder, or with --views a running server (http://ADDRESS:PORT, unix:PATH)
    pub(crate) data: PathBuf,
    /// Check the pages, then compute the views again and nothing else: of a folder, with --config, or of a running server while it takes writes
    #[arg(long)]
    pub(crate) views: bool,
    /// The service's config file: brings the folder in line with it, as a start does, then checks index entries, unique values,
    /// references and views too
    #[arg(long)]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) secret: Secret,
}
