//! Arguments of the commands that work on a whole data folder: backup, restore, compact, verify, stat.

use super::secret::Secret;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// A running server, as in http://127.0.0.1:8080 or unix:PATH, or a data folder
    pub(crate) from: String,
    /// The folder to write, empty or missing. For a running server: a name in its own folder for backups ([server] backups)
    pub(crate) to: PathBuf,
    #[command(flatten)]
    pub(crate) secret: Secret,
}

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The backup: a folder
    pub(crate) backup: PathBuf,
    /// The data folder to make, empty or missing
    pub(crate) data: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Folder {
    /// The data folder
    pub(crate) data: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The data folder, or with --views a running server (http://ADDRESS:PORT, unix:PATH)
    pub(crate) data: PathBuf,
    /// Check pages and views only: each view is computed again and compared. Of a folder this needs --config; a running server
    /// takes writes meanwhile
    #[arg(long)]
    pub(crate) views: bool,
    /// The service's config file, which declares what the folder holds: with it, index entries, unique values, references and
    /// views are checked too
    #[arg(long)]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) secret: Secret,
}

#[derive(Debug, Args)]
pub(crate) struct Stat {
    /// The data folder, or a running server (http://ADDRESS:PORT, unix:PATH)
    pub(crate) data: PathBuf,
    #[command(flatten)]
    pub(crate) secret: Secret,
}
