//! The list of nodes that all loops follow, and its replacement while they serve.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::config::{NODES_MAX, NodeConfig, Spread};
use crate::placement::Placement;

/// Nodes, and where keys live among them.
pub(crate) struct NodeList {
    pub(crate) nodes: Vec<NodeConfig>,
    pub(crate) placement: Placement,
}

/// The list that is in force.
pub(crate) struct SharedNodes {
    spread: Spread,
    list: Mutex<Arc<NodeList>>,
    /// Raised with each new list, so that loops need not lock to see that theirs is in force.
    version: AtomicU64,
}

/// Why a list of nodes is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeListError {
    /// There is no node.
    Empty,
    /// There are more than [`NODES_MAX`].
    TooMany,
}

impl std::fmt::Display for NodeListError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NodeListError::Empty => f.write_str("no node is given"),
            NodeListError::TooMany => write!(f, "more than {NODES_MAX} nodes are given"),
        }
    }
}

impl std::error::Error for NodeListError {}

impl NodeList {
    fn new(spread: &Spread, nodes: Vec<NodeConfig>) -> Result<NodeList, NodeListError> {
        match nodes.len() {
            0 => Err(NodeListError::Empty),
            1..=NODES_MAX => Ok(NodeList { placement: spread.placement(&nodes), nodes }),
            _ => Err(NodeListError::TooMany),
        }
    }
}

impl SharedNodes {
    pub(crate) fn new(spread: Spread, nodes: Vec<NodeConfig>) -> Result<SharedNodes, NodeListError> {
        let list = Mutex::new(Arc::new(NodeList::new(&spread, nodes)?));
        Ok(SharedNodes { spread, list, version: AtomicU64::new(0) })
    }

    /// Puts another list in force.
    pub(crate) fn set(&self, nodes: Vec<NodeConfig>) -> Result<(), NodeListError> {
        let list = Arc::new(NodeList::new(&self.spread, nodes)?);
        *self.list.lock().unwrap_or_else(PoisonError::into_inner) = list;
        self.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn get(&self) -> Arc<NodeList> {
        Arc::clone(&self.list.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
