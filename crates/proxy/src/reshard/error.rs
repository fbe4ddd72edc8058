//! Why a resharding failed.

use std::fmt;

use resp::{ClientSettings, CommandError, Endpoint, NotSent};

/// Why a resharding failed. Copied keys stay, and a new run copies everything again.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReshardError {
    /// The source is unreachable, or refuses a command.
    Source(resp::CommandError),
    /// A node is unreachable, or refuses a command.
    Node {
        /// Its address.
        node: String,
        /// The error.
        error: resp::CommandError,
    },
    /// A server cannot be reached at the beginning, or does not answer.
    Unanswered {
        /// Its address.
        address: String,
        /// The error.
        error: resp::CommandError,
    },
    /// Another process answers where a node was: it was restarted, or replaced. What was copied to it before may be missing.
    NodeRestarted {
        /// Its address.
        node: String,
    },
    /// Another process answers where the source was. Its keys may be missing, and following it would remove them from the nodes.
    SourceRestarted {
        /// Its address.
        source: String,
    },
    /// A node is the source, or a part of it: copying would write what it reads.
    SourceIsNode {
        /// The node's address.
        node: String,
    },
    /// Two nodes are one server: each would have the keys of both.
    SameNode {
        /// The address of one.
        node: String,
        /// The address of the other.
        same: String,
    },
    /// A key whose type no command can copy, and whose dump the node refuses.
    Type {
        /// The key.
        key: Vec<u8>,
        /// Its type, as the source reports it.
        kind: String,
    },
    /// The source does not publish changed keys, and cannot be configured to.
    NotFollowed(resp::CommandError),
    /// It was stopped by the caller.
    Stopped,
    /// A thread that writes to a node has panicked, which is a bug.
    Panicked,
}

impl ReshardError {
    /// Whether a server could not be reached, or a connection to it broke: another attempt may succeed.
    pub(super) fn is_lost_connection(&self) -> bool {
        match self {
            ReshardError::Source(error) | ReshardError::Node { error, .. } | ReshardError::Unanswered { error, .. } => {
                matches!(error, CommandError::NotSent(NotSent::Connect(_)) | CommandError::OutcomeUnknown(_))
            }
            _ => false,
        }
    }

    pub(super) fn of_node(settings: &ClientSettings, error: resp::CommandError) -> ReshardError {
        ReshardError::Node { node: address(&settings.endpoint), error }
    }
}

/// An endpoint as text.
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
            ReshardError::Unanswered { address, error: CommandError::NotSent(NotSent::Connect(error)) } => {
                write!(out, "no connection to {address}: {error}")
            }
            ReshardError::Unanswered { address, error } => write!(out, "{address} does not answer: {error}"),
            ReshardError::NodeRestarted { node } => write!(
                out,
                "the node {node} was restarted or replaced meanwhile: keys that were copied to it before may be missing. Run this again"
            ),
            ReshardError::SourceRestarted { source } => write!(
                out,
                "the source {source} was restarted or replaced meanwhile: later changes were not followed. The nodes keep what they \
                 have: if the source still has its keys, run this again"
            ),
            ReshardError::SourceIsNode { node } => write!(
                out,
                "the node {node} is the source, or a part of it. Nothing was written: give nodes that are other servers"
            ),
            ReshardError::SameNode { node, same } => {
                write!(out, "the nodes {same} and {node} are one server. Nothing was written: give each server once")
            }
            ReshardError::Type { key, kind } => write!(
                out,
                "the key \"{}\" is of the type {kind}, which only RESTORE can write, and the node refuses the source's dump: give \
                 both the same version and modules",
                key.escape_ascii()
            ),
            ReshardError::NotFollowed(error) => write!(
                out,
                "the source does not publish changed keys: {error}. Set notify-keyspace-events to EA there, and run this again"
            ),
            ReshardError::Stopped => write!(out, "stopped; run again, it copies from the beginning"),
            ReshardError::Panicked => write!(out, "a thread that writes to a node has panicked"),
        }
    }
}

impl std::error::Error for ReshardError {}
