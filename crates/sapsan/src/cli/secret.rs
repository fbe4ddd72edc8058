//! The token for a running server.

use clap::Args;

/// What a command sends to a running server beside its request.
#[derive(Debug, Args)]
pub(crate) struct Secret {
    /// A token for a running server that does not answer without; other users see the command line, but not the variable
    #[arg(long, value_name = "TOKEN", env = "SAPSAN_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
}
