//! The token for a running server.

use clap::Args;

/// What a command sends to a running server besides its request.
#[derive(Debug, Args)]
pub(crate) struct Secret {
    /// Token for a running server that requires one. Prefer the variable: other users of the machine can read the command line
    #[arg(long, value_name = "TOKEN", env = "SAPSAN_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
}
