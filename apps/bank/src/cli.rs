//! The command line: commands, their arguments, and their execution.

use std::fmt::Display;
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, Parser, Subcommand};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::attempt::Rules;
use crate::bank::{Bank, open_database, open_redis};
use crate::ledger::{Embedded, Ledger};
use crate::{export, generate, import, web};

/// A login page under attack: users whose passwords are guessed are locked, addresses that guess are banned.
#[derive(Debug, Parser)]
#[command(name = "bank", version, subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: BankCommand,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum BankCommand {
    /// Serve the login page
    Serve(Serve),
    /// Load customers and the log of attempts into a data folder
    Import(Import),
    /// Generate customers and a log: users.tsv and log.tsv
    Generate(GenerateArguments),
    /// Write the counters of failures as SQL to standard output
    ExportSql(ExportSql),
}

/// Arguments of `bank serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// The data folder; created if it is missing
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Where to listen
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub http: SocketAddr,
    /// A folder with `stylesheets` and `images` to use instead of the built-in ones
    #[arg(long, value_name = "DIR")]
    pub assets: Option<PathBuf>,
    /// A proxy whose X-Forwarded-For is trusted: an address, or a network such as 10.0.0.0/8
    #[arg(long = "trusted-proxy", value_name = "ADDR")]
    pub trusted_proxies: Vec<String>,
    /// Keep the ledger in Redis: redis://HOST:PORT, or HOST:PORT
    #[arg(long, value_name = "ADDR")]
    pub redis: Option<String>,
    /// Failures from an address until it is banned
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub ban_after: u32,
    /// Failures of a user until the account is locked
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub lock_after: u32,
    /// Event loops (default: one for each core)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,
}

/// Arguments of `bank import`.
#[derive(Debug, Args)]
pub struct Import {
    /// The data folder; created if it is missing
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Customers: id, login, password, salt and hash, separated by tabs
    #[arg(long, value_name = "FILE")]
    pub users: Option<PathBuf>,
    /// Attempts in order: time, user id or nothing, login, address, 1 or 0, separated by tabs
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Load the log into Redis instead of the data folder
    #[arg(long, value_name = "ADDR")]
    pub redis: Option<String>,
}

/// Arguments of `bank generate`.
#[derive(Debug, Args)]
pub struct GenerateArguments {
    /// The folder of users.tsv and log.tsv
    pub folder: PathBuf,
    /// Customers; one in 2,000 is locked by the log
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub users: u32,
    /// Seed of the random choices
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
}

/// Arguments of `bank export-sql`.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct ExportSql {
    /// The data folder, which no other process may have open
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Redis, if the ledger is there
    #[arg(long, value_name = "ADDR")]
    pub redis: Option<String>,
}

/// Result of a command: an error is a text.
pub type CommandResult = Result<(), String>;

/// Runs a command.
///
/// # Errors
/// The text says what failed, and on what.
pub fn run(cli: Cli) -> CommandResult {
    match cli.command {
        BankCommand::Serve(arguments) => serve(&arguments),
        BankCommand::Import(arguments) => load(&arguments),
        BankCommand::Generate(arguments) => make(&arguments),
        BankCommand::ExportSql(arguments) => write_sql(&arguments),
    }
}

fn serve(arguments: &Serve) -> CommandResult {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::INFO).init();
    let rules = Rules { ban_after: arguments.ban_after, lock_after: arguments.lock_after };
    let bank = Bank::open(&arguments.data, arguments.redis.as_deref(), rules)?;
    let settings = web::WebSettings {
        data: arguments.data.clone(),
        assets: arguments.assets.clone(),
        trusted_proxies: arguments.trusted_proxies.clone(),
        threads: arguments.threads.map(usize::from),
    };
    let app = web::app(bank, &settings)?;
    // Before it listens: a reader of the address may send the signal at once.
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(|error| format!("signals: {error}"))?;
    let running = app.start(&arguments.http.to_string()).map_err(|error| error.to_string())?;
    line(format_args!("the bank listens on http://{}", running.address()))?;
    let handle = signals.handle();
    running.on_broken(move || handle.close());
    let is_asked = signals.forever().next().is_some();
    running.stop();
    if is_asked { Ok(()) } else { Err("an event loop has ended: see the log".into()) }
}

fn load(arguments: &Import) -> CommandResult {
    let database = open_database(&arguments.data)?;
    if let Some(file) = &arguments.users {
        timed("users", || import::users(&database, file))?;
    }
    match (&arguments.log, &arguments.redis) {
        (Some(file), None) => timed("attempts", || import::log(&database, file)),
        (Some(file), Some(address)) => {
            let redis = open_redis(address)?;
            timed("attempts", || import::log_to_redis(&redis, file))
        }
        (None, _) => Ok(()),
    }
}

/// Runs an import, and prints the number of imported items and the time.
fn timed<E: Display>(what: &str, import: impl FnOnce() -> Result<u64, E>) -> CommandResult {
    let began = Instant::now();
    let count = import().map_err(|error| error.to_string())?;
    line(format_args!("imported {count} {what} in {:.2} s", began.elapsed().as_secs_f64()))
}

fn make(arguments: &GenerateArguments) -> CommandResult {
    let folder = &arguments.folder;
    let made = generate::write(folder, arguments.users, arguments.seed);
    let made = made.map_err(|error| format!("{}: {error}", folder.display()))?;
    line(format_args!(
        "wrote {} users and {} attempts to {}; they lock {} users and ban {} addresses",
        made.users,
        made.attempts,
        folder.display(),
        made.locked,
        made.banned
    ))
}

fn write_sql(arguments: &ExportSql) -> CommandResult {
    let ledger: Box<dyn Ledger> = match (&arguments.data, &arguments.redis) {
        (Some(folder), _) => Box::new(Embedded::new(existing(folder)?)),
        (None, Some(address)) => Box::new(open_redis(address)?),
        (None, None) => return Err("give --data or --redis".to_owned()),
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    export::write(&*ledger, &mut out).map_err(|error| error.to_string())?;
    out.flush().map_err(|error| format!("standard output: {error}"))
}

/// Opens the database of an existing folder: an export creates none.
fn existing(folder: &Path) -> Result<sapsan::Database, String> {
    if !folder.is_dir() {
        return Err(format!("{}: there is no such folder", folder.display()));
    }
    open_database(folder)
}

/// Writes a line to standard output.
fn line(text: impl Display) -> CommandResult {
    std::io::stdout().write_all(format!("{text}\n").as_bytes()).map_err(|error| format!("standard output: {error}"))
}
