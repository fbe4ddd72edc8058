//! The list of nodes that all loops follow, and its replacement at run time: by another list, or by a placement without an
//! ejected node.
//!
//! Ejection: a loop that counts too many consecutive failures of a node ejects it ([`SharedNodes::eject`]). The node stays in the
//! list, and a new placement gives its keys to the others. When its time is over, the first loop to notice readmits it
//! ([`SharedNodes::readmit`]). The last node that takes keys is never ejected.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use reactor::Loop;

use crate::config::{Ejection, NODES_MAX, NodeConfig, Spread};
use crate::placement::Placement;

/// How long after the end of an ejection an idle loop looks.
const READMIT_AFTER: Duration = Duration::from_millis(1);
/// No node is ejected.
const NEVER_NS: u64 = u64::MAX;

/// Nodes, and the placement of keys among them.
pub(crate) struct NodeList {
    pub(crate) nodes: Vec<NodeConfig>,
    pub(crate) placement: Placement,
}

/// The current list.
pub(crate) struct SharedNodes {
    spread: Spread,
    ejection: Option<Ejection>,
    in_force: Mutex<InForce>,
    /// Incremented with each new list, so that loops need no lock to detect a change.
    version: AtomicU64,
    /// When the first of the ejected nodes is readmitted.
    readmits_at_ns: AtomicU64,
    /// The loops, which see a change at the end of their next tick.
    loops: OnceLock<Vec<Loop>>,
}

struct InForce {
    list: Arc<NodeList>,
    ejected: Vec<Ejected>,
}

impl InForce {
    /// The position of a node that may be ejected.
    fn place_to_eject(&self, node: &NodeConfig) -> Option<usize> {
        let place = self.list.nodes.iter().position(|listed| listed == node)?;
        let is_ejected = self.ejected.iter().any(|one| one.place == place);
        let is_last = self.ejected.len() + 1 >= self.list.nodes.len();
        (!is_ejected && !is_last).then_some(place)
    }
}

/// An ejected node.
struct Ejected {
    place: usize,
    until_ns: u64,
}

/// Why a list of nodes is invalid.
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
    pub(crate) fn new(
        spread: Spread,
        ejection: Option<Ejection>,
        nodes: Vec<NodeConfig>,
    ) -> Result<SharedNodes, NodeListError> {
        let list = Arc::new(NodeList::new(&spread, nodes)?);
        Ok(SharedNodes {
            ejection: ejection.filter(|_| spread.may_eject()),
            spread,
            in_force: Mutex::new(InForce { list, ejected: Vec::new() }),
            version: AtomicU64::new(0),
            readmits_at_ns: AtomicU64::new(NEVER_NS),
            loops: OnceLock::new(),
        })
    }

    /// The loops that are woken at each change, although no event arrives.
    pub(crate) fn wakes(&self, loops: &[Loop]) {
        let _ = self.loops.set(loops.to_vec());
    }

    /// Replaces the list; none of the new list's nodes is ejected.
    pub(crate) fn set(&self, nodes: Vec<NodeConfig>) -> Result<(), NodeListError> {
        let list = Arc::new(NodeList::new(&self.spread, nodes)?);
        self.put(&mut self.lock(), list, Vec::new());
        Ok(())
    }

    /// Number of consecutive failures after which a node is ejected; none: never.
    pub(crate) fn failures_max(&self) -> Option<u32> {
        self.ejection.map(|ejection| ejection.failures.max(1))
    }

    /// Ejects a node for a time. `false`: it is not in the list, is ejected already, or is the last one that takes keys.
    pub(crate) fn eject(&self, node: &NodeConfig, now_ns: u64) -> bool {
        let Some(ejection) = self.ejection else { return false };
        let mut in_force = self.lock();
        let Some(place) = in_force.place_to_eject(node) else { return false };
        let mut ejected = std::mem::take(&mut in_force.ejected);
        let time_ns = u64::try_from(ejection.time.as_nanos()).unwrap_or(u64::MAX);
        ejected.push(Ejected { place, until_ns: now_ns.saturating_add(time_ns) });
        let list = self.without(&in_force.list, &ejected);
        self.put(&mut in_force, list, ejected);
        // One loop suffices to end it.
        self.loops().first().into_iter().for_each(|lp| lp.after(ejection.time + READMIT_AFTER, Box::new(|_| {})));
        true
    }

    /// Readmits nodes whose time is over. If there are none, this costs one comparison.
    pub(crate) fn readmit(&self, now_ns: u64) {
        if now_ns < self.readmits_at_ns.load(Ordering::Relaxed) {
            return;
        }
        let mut in_force = self.lock();
        let mut ejected = std::mem::take(&mut in_force.ejected);
        ejected.retain(|one| {
            let stays = now_ns < one.until_ns;
            if !stays {
                tracing::info!(node = %in_force.list.nodes[one.place].name, "an ejected node takes keys again");
            }
            stays
        });
        let list = self.without(&in_force.list, &ejected);
        self.put(&mut in_force, list, ejected);
    }

    fn without(&self, list: &NodeList, ejected: &[Ejected]) -> Arc<NodeList> {
        let nodes = list.nodes.clone();
        let takes_keys = |place| ejected.iter().all(|one| one.place != place);
        Arc::new(NodeList { placement: self.spread.placement_over(&nodes, takes_keys), nodes })
    }

    fn put(&self, in_force: &mut InForce, list: Arc<NodeList>, ejected: Vec<Ejected>) {
        let first = ejected.iter().map(|one| one.until_ns).min();
        *in_force = InForce { list, ejected };
        self.readmits_at_ns.store(first.unwrap_or(NEVER_NS), Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Release);
        self.loops().iter().for_each(|lp| lp.run(Box::new(|_| {})));
    }

    fn loops(&self) -> &[Loop] {
        self.loops.get().map_or(&[], Vec::as_slice)
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn get(&self) -> Arc<NodeList> {
        Arc::clone(&self.lock().list)
    }

    fn lock(&self) -> MutexGuard<'_, InForce> {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::*;
    use crate::config::DistributionKind;
    use crate::placement::Hash;

    fn nodes(count: usize) -> Vec<NodeConfig> {
        let node = |number: usize| NodeConfig {
            name: format!("n{number}"),
            address: std::path::PathBuf::from(format!("/n{number}")).into(),
            weight: 1,
            ring_name: format!("n{number}"),
        };
        (0..count).map(node).collect()
    }

    fn shared(distribution: DistributionKind) -> SharedNodes {
        let spread = Spread::Twemproxy { hash: Hash::Md5, distribution, hash_tag: None };
        let ejection = Ejection { failures: 2, time: Duration::from_nanos(100) };
        SharedNodes::new(spread, Some(ejection), nodes(3)).unwrap()
    }

    fn taking(shared: &SharedNodes) -> HashSet<usize> {
        let list = shared.get();
        (0..200_u64).map(|turn| list.placement.node(format!("key:{turn}").as_bytes(), turn)).collect()
    }

    #[test]
    fn an_ejected_node_takes_no_keys_until_its_time_is_over() {
        for distribution in [DistributionKind::Ketama, DistributionKind::Modula, DistributionKind::Random] {
            let (shared, nodes) = (shared(distribution), nodes(4));
            assert!(shared.eject(&nodes[1], 1000));
            assert!(!shared.eject(&nodes[1], 1000) && !shared.eject(&nodes[3], 1000));
            assert_eq!(taking(&shared), HashSet::from([0, 2]));
            shared.readmit(1099);
            assert_eq!((taking(&shared), shared.version()), (HashSet::from([0, 2]), 1));
            assert!(shared.eject(&nodes[2], 1050));
            assert!(!shared.eject(&nodes[0], 1050), "the last one stays");
            shared.readmit(1100);
            assert_eq!(taking(&shared), HashSet::from([0, 1]));
            shared.readmit(1150);
            assert_eq!((taking(&shared), shared.version()), (HashSet::from([0, 1, 2]), 4));
        }
    }

    #[test]
    fn another_list_has_all_of_its_nodes_back() {
        let shared = shared(DistributionKind::Ketama);
        assert!(shared.eject(&nodes(1)[0], 0));
        shared.set(nodes(3)).unwrap();
        assert_eq!(taking(&shared), HashSet::from([0, 1, 2]));
        shared.readmit(1000);
        assert_eq!(shared.version(), 2);
    }

    #[test]
    fn placements_without_a_rule_for_it_eject_nothing() {
        let ejection = Some(Ejection { failures: 1, time: Duration::from_secs(1) });
        let shared = SharedNodes::new(Spread::Crc32 { hash_tag: None }, ejection, nodes(2)).unwrap();
        assert_eq!((shared.failures_max(), shared.eject(&nodes(1)[0], 0)), (None, false));
    }
}
