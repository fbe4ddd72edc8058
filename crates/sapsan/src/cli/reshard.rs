//! The arguments of `sapsan reshard`: source, nodes, what is copied.

use super::placement::SpreadArguments;
use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Reshard {
    /// Source of the keys: HOST:PORT, redis://USER:PASSWORD@HOST:PORT, rediss://… (TLS) or unix:///PATH
    #[arg(long, value_name = "ADDR")]
    pub(crate) from: String,
    /// Nodes that the keys are copied to, in the order of the proxy's nodes: addresses of the same form, separated by commas. With --hash
    /// slots one node of the cluster is enough
    #[arg(long, value_name = "ADDRS", value_delimiter = ',', required = true)]
    pub(crate) nodes: Vec<String>,
    /// Number of the database, on the source and on the nodes; `all` copies each database to the same number
    #[arg(long, value_name = "N|all", default_value = "0", value_parser = database)]
    pub(crate) db: ChosenDatabase,
    #[command(flatten)]
    pub(crate) spread: SpreadArguments,
    /// Only keys that match this pattern, as in KEYS, are copied, compared and removed. --flushdb removes all keys
    #[arg(long = "match", value_name = "PATTERN")]
    pub(crate) pattern: Option<String>,
    /// Largest number of keys that are copied in a second, so that the source's clients are not slowed down. Changes that --live
    /// follows are copied without this bound
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keys_per_second: Option<u32>,
    /// A server that does not answer for so many seconds ends the run, with an error that names it
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) stall_max: u64,
    /// Remove all keys of the database from the nodes first
    #[arg(long)]
    pub(crate) flushdb: bool,
    /// After copying, compare every key with its value, its time to live, and of streams the consumer groups
    #[arg(long)]
    pub(crate) verify: bool,
    /// Do not copy; with --verify, only compare
    #[arg(long, requires = "verify", conflicts_with_all = ["flushdb", "live"])]
    pub(crate) no_copy: bool,
    /// Follow the source's changes until Ctrl-C, which begins the cut-over: the source refuses writes (NOREPLICAS), its last changes are
    /// copied, and the command ends. Guaranteed at its end: the nodes have every write that the source has acknowledged, it acknowledges
    /// none from then on, and this command writes nothing any more. Point the clients at the nodes then, and not before. If it ends with
    /// an error, the source takes writes again. It reads the source's replication stream, as a replica does, and at the end sets
    /// min-replicas-to-write there
    #[arg(long)]
    pub(crate) live: bool,
    /// Copy with the commands of each type, not with DUMP and RESTORE
    #[arg(long)]
    pub(crate) by_type: bool,
}

/// The databases that are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChosenDatabase {
    All,
    One(u32),
}

fn database(text: &str) -> Result<ChosenDatabase, String> {
    if text == "all" {
        return Ok(ChosenDatabase::All);
    }
    text.parse().map(ChosenDatabase::One).map_err(|_| "it is neither a number nor `all`".to_owned())
}
