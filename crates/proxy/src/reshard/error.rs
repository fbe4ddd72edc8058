//! Why a resharding ended.

use std::fmt;

use resp::{Endpoint, Settings};

/// See the module's text. What was copied stays, and a run from the beginning copies it again.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReshardError {
    /// The source is not reached, or refuses a command.
    Source(resp::Error),
    /// A node is not reached, or refuses a command.
    Node {
        /// Its address.
        node: String,
        /// Why.
        error: resp::Error,
    },
    /// A key whose type no command can copy, and whose dump the node refuses.
    Type {
        /// The key.
        key: Vec<u8>,
        /// Its type, as the source names it.
        kind: String,
    },
    /// The source does not tell of changed keys, and cannot be told to.
    NotFollowed(resp::Error),
    /// It was stopped from outside.
    Stopped,
    /// A thread that writes to a node has panicked: a bug.
    Panicked,
}

impl ReshardError {
    pub(super) fn of_node(settings: &Settings, error: resp::Error) -> ReshardError {
        ReshardError::Node { node: address(&settings.endpoint), error }
    }
}

/// An endpoint in words.
pub(super) fn address(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Tcp { host, port } => format!("{host}:{port}"),
        Endpoint::Unix(path) => format!("unix:{}", path.display()),
    }
}

impl fmt::Display for ReshardError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReshardError::Source(error) => write!(out, "the source: {error}"),
            ReshardError::Node { node, error } => write!(out, "the node {node}: {error}"),
            ReshardError::Type { key, kind } => write!(
                out,
                "the key \"{}\" is of the type {kind}, which only RESTORE can write, and the node refuses the source's dump: give \
                 both the same version and modules",
                key.escape_ascii()
            ),
            ReshardError::NotFollowed(error) => write!(
                out,
                "the source does not tell of changed keys: {error}. Set notify-keyspace-events to EA there, and run this again"
            ),
            ReshardError::Stopped => write!(out, "stopped; run again, it copies from the beginning"),
            ReshardError::Panicked => write!(out, "a thread that writes to a node has panicked"),
        }
    }
}

impl std::error::Error for ReshardError {}
