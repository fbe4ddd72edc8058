//! Why a resharding failed.

use std::fmt;

use resp::{CommandError, Endpoint, Lost, NotSent};

/// What a server is in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerRole {
    /// The keys are read from it.
    Source,
    /// Keys are written to it.
    Node,
}

/// Why a resharding failed. Copied keys stay, and a new run copies everything again.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReshardError {
    /// A server cannot be reached, does not answer in time, or refuses a command.
    Server {
        /// What it is in the plan.
        role: ServerRole,
        /// Its address.
        address: String,
        /// The error.
        error: CommandError,
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
    /// The source gives no replication stream, or stops sending it; the text says why.
    NoStream(String),
    /// The source has executed a command that changes keys and does not name them.
    NotFollowed {
        /// The command.
        command: String,
    },
    /// The source cannot be made to refuse writes; the text says why.
    NotFenced(String),
    /// A write reached the source although it refuses writes.
    LateWrite {
        /// The command.
        command: String,
    },
    /// A node reports no slots.
    NoCluster {
        /// Its address.
        node: String,
    },
    /// It was stopped by the caller.
    Stopped,
    /// A thread that writes to a node has panicked, which is a bug.
    Panicked,
}

impl ReshardError {
    /// Whether a server could not be reached, or a connection to it broke: another attempt may succeed.
    pub(super) fn is_lost_connection(&self) -> bool {
        let ReshardError::Server { error, .. } = self else { return false };
        matches!(error, CommandError::NotSent(NotSent::Connect(_)) | CommandError::OutcomeUnknown(_))
    }
}

/// An endpoint as text.
pub(super) fn address(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Tcp { host, port } => format!("{host}:{port}"),
        Endpoint::Unix(path) => format!("unix:{}", path.display()),
    }
}

impl fmt::Display for ServerRole {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if *self == ServerRole::Source { "the source" } else { "the node" })
    }
}

impl fmt::Display for ReshardError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReshardError::Server { address, error: CommandError::NotSent(NotSent::Connect(error)), .. } => {
                write!(out, "no connection to {address}: {error}")
            }
            ReshardError::Server { role, address, error: CommandError::OutcomeUnknown(Lost::TimedOut) } => {
                write!(out, "{role} {address} does not answer")
            }
            ReshardError::Server { role, address, error } => write!(out, "{role} {address}: {error}"),
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
            ReshardError::NoStream(reason) => write!(
                out,
                "the source's replication stream cannot be read: {reason}. --live reads it as a replica does (PSYNC)"
            ),
            ReshardError::NotFollowed { command } => write!(
                out,
                "the source has executed {command}, which names no keys: what it changed is not on the nodes. Run this again \
                 without that command"
            ),
            ReshardError::NotFenced(reason) => write!(
                out,
                "the source cannot be made to refuse writes: {reason}. At the end --live sets min-replicas-to-write there, so that \
                 no write is lost"
            ),
            ReshardError::LateWrite { command } => write!(
                out,
                "the source has executed {command} after it was made to refuse writes. Stop its clients, and run this again"
            ),
            ReshardError::NoCluster { node } => {
                write!(out, "the node {node} reports no slots: it is no part of a cluster")
            }
            ReshardError::Stopped => write!(out, "stopped; run again, it copies from the beginning"),
            ReshardError::Panicked => write!(out, "a thread that writes to a node has panicked"),
        }
    }
}

impl std::error::Error for ReshardError {}
