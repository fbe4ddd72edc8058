//! Arguments of the commands that read and write documents: init, import, export, generate, query.

use super::secret::Secret;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// The data file: .ndjson, .json, .csv or .tsv. At most the first 100,000 documents and 256 MiB of it are read
    pub(crate) file: PathBuf,
    /// The service file to write. An existing file is not overwritten
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Name of the collection
    #[arg(long, value_name = "NAME")]
    pub(crate) collection: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// The service's config file
    pub(crate) config: PathBuf,
    /// The data folder; created if it is missing
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Files: .zip, .json, .ndjson, .csv, .tsv, or - for standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Format of the files and of standard input
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<ImportFormat>,
    /// Collection for the documents of files that name none: arrays, NDJSON, CSV
    #[arg(long, value_name = "NAME")]
    pub(crate) collection: Option<String>,
    /// What happens with a record that is refused
    #[arg(long, value_enum, default_value_t = OnError::Stop)]
    pub(crate) on_error: OnError,
    /// Number of threads that read, check and sort, 1 to 64
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) threads: Option<u16>,
    /// Allow dropping collections, indexes, rules and views that the data folder holds and the file does not declare
    #[arg(long)]
    pub(crate) allow_drop: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImportFormat {
    /// An array of objects, or an object of such arrays, with the collections as names
    Json,
    /// A JSON object on each line
    Ndjson,
    /// A line with the names of the fields, then a row for each document
    Csv,
    /// The same, with tabs between the fields
    Tsv,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnError {
    /// The import ends. If its collections were empty, nothing is stored
    Stop,
    /// The record is reported and left out, and the import continues
    Skip,
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// The service's config file
    #[arg(required_unless_present = "url")]
    pub(crate) config: Option<PathBuf>,
    /// The data folder
    #[arg(long, value_name = "DIR", required_unless_present = "url")]
    pub(crate) data: Option<PathBuf>,
    /// A running server (http://ADDRESS:PORT, unix:PATH) instead of a folder. It is read page by page, so a document that changes
    /// meanwhile is written as it was before or after the change. For one moment of a running server, export a backup of it
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// The collection to write
    #[arg(long, value_name = "NAME")]
    pub(crate) collection: Option<String>,
    /// Format of the output
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<ExportFormat>,
    /// The file to write. It gets this name only when it is complete. An existing file is not overwritten
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) secret: Secret,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// A JSON object on each line
    Ndjson,
    /// An array of objects; without --collection an object of such arrays, with the collections as names
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
    /// The zip file to write
    pub(crate) out: PathBuf,
    /// Number of users
    #[arg(long, default_value_t = 10_057, value_parser = clap::value_parser!(u32).range(..=1_000_000_000))]
    pub(crate) users: u32,
    /// Number of locations
    #[arg(long, default_value_t = 7_628, value_parser = clap::value_parser!(u32).range(..=1_000_000_000))]
    pub(crate) locations: u32,
    /// Number of visits
    #[arg(long, default_value_t = 100_570, value_parser = clap::value_parser!(u32).range(..=1_000_000_000))]
    pub(crate) visits: u32,
    /// Write visits only. Their users and locations come from another data set
    #[arg(long)]
    pub(crate) only_visits: bool,
    /// Seed of the generator: the same seed gives the same bytes
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Debug, Args)]
pub(crate) struct GenerateForumUsers {
    /// Number of documents, of about 850 bytes each
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    pub(crate) docs: u64,
    /// Seed of the generator: the same seed gives the same bytes
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct QueryArguments {
    /// The service's config file
    pub(crate) config: PathBuf,
    /// The data folder
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Format of the rows
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
    /// Value of the statement's parameter :NAME, as JSON or else as text: NAME=VALUE. May be given several times
    #[arg(long = "param", value_name = "NAME=VALUE")]
    pub(crate) params: Vec<String>,
    /// For a statement that writes: allow dropping collections, indexes, rules and views that the data folder holds and the file
    /// does not declare
    #[arg(long)]
    pub(crate) allow_drop: bool,
    /// The SQL statement
    pub(crate) sql: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Columns of equal width, for people; up to 10,000 rows
    Table,
    /// A JSON object on each line
    Ndjson,
    /// An array of objects
    Json,
    /// A line with the names of the columns, then the rows
    Csv,
}
