//! The arguments of `sapsan reshard`: source, nodes, what is copied.

use super::placement::SpreadArguments;
use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Reshard {
    /// Source of the keys: HOST:PORT, redis://USER:PASSWORD@HOST:PORT, rediss://… (TLS) or unix:///PATH
    #[arg(long, value_name = "ADDR")]
    pub(crate) from: String,
    /// Nodes that the keys are copied to, in the order of the proxy's nodes: addresses of the same form, separated by commas
    #[arg(long, value_name = "ADDRS", value_delimiter = ',', required = true)]
    pub(crate) nodes: Vec<String>,
    /// Number of the database, on the source and on the nodes
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) db: u32,
    #[command(flatten)]
    pub(crate) spread: SpreadArguments,
    /// Remove all keys of the database from the nodes first
    #[arg(long)]
    pub(crate) flushdb: bool,
    /// After copying, compare every key with its value and its time to live
    #[arg(long)]
    pub(crate) verify: bool,
    /// Do not copy; with --verify, only compare
    #[arg(long, requires = "verify", conflicts_with_all = ["flushdb", "live"])]
    pub(crate) no_copy: bool,
    /// Follow changes until Ctrl-C. First stop the clients' writes to the source, then press Ctrl-C: the nodes have every change that the
    /// source executed before it. Until then the nodes lag behind, and changes of different keys may arrive in another order. FLUSHDB,
    /// FLUSHALL and SWAPDB are not followed. The source's setting notify-keyspace-events is changed, and restored at the end. If
    /// messages of the source are lost, everything is copied again
    #[arg(long)]
    pub(crate) live: bool,
    /// Copy with the commands of each type, not with DUMP and RESTORE
    #[arg(long)]
    pub(crate) by_type: bool,
}
