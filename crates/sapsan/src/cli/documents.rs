//! Arguments of the commands that read and write documents: init, import, export, generate, query.

use super::secret::Secret;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

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
    /// The import ends. If its collections were empty, nothing is stored
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
    /// The file to write; standard output where there is none, which is not there yet, and has its name only when it is complete; standard output without it
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) secret: Secret,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// An object on each line
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
    /// Columns of equal width, for people; up to 10,000 rows
    Table,
    /// An object on each line
    Ndjson,
    /// An array of objects
    Json,
    /// A line with the names of the columns, then the rows
    Csv,
}
