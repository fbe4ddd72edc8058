//! A cluster as the destination: its masters, and the node of each slot.

use std::time::Duration;

use resp::{ClientSettings, Endpoint, ReplyValue};

use super::ReshardError;
use super::error::ServerRole;
use super::servers::Server;
use crate::placement::{Placement, Slots};

/// The masters of a cluster, by the table of one of its nodes, and the placement of keys on them. Slots must not move during a copy: a node
/// refuses a key whose slot has moved, and the copy fails.
///
/// # Errors
/// The node cannot be reached in time, or is no part of a cluster.
pub fn masters(node: &ClientSettings, time_max: Duration) -> Result<(Vec<ClientSettings>, Placement), ReshardError> {
    let mut server = Server::new(&ClientSettings { timeout: time_max, ..node.clone() }, ServerRole::Node);
    let no_cluster = || ReshardError::NoCluster { node: super::error::address(&node.endpoint) };
    let ranges = server.ask::<Vec<Vec<ReplyValue>>>(("CLUSTER", "SLOTS"))?.map_err(|_| no_cluster())?;
    let (mut nodes, mut slots): (Vec<ClientSettings>, Slots) = (Vec::new(), Slots::new());
    for range in &ranges {
        let [ReplyValue::Integer(from), ReplyValue::Integer(to), ReplyValue::Array(master), ..] = range.as_slice()
        else {
            return Err(no_cluster());
        };
        let endpoint = endpoint(master, node).ok_or_else(no_cluster)?;
        let place = nodes.iter().position(|known| known.endpoint == endpoint).unwrap_or_else(|| {
            nodes.push(ClientSettings { endpoint, ..node.clone() });
            nodes.len() - 1
        });
        let (from, to) =
            (u16::try_from(*from).map_err(|_| no_cluster())?, u16::try_from(*to).map_err(|_| no_cluster())?);
        slots.assign(from..=to, u16::try_from(place).map_err(|_| no_cluster())?);
    }
    if nodes.is_empty() { Err(no_cluster()) } else { Ok((nodes, Placement::Slots(slots))) }
}

/// The address of a node of the table. A node that does not know its own host names none: the host that was asked is meant.
fn endpoint(node: &[ReplyValue], asked: &ClientSettings) -> Option<Endpoint> {
    let (host, ReplyValue::Integer(port)) = (node.first()?, node.get(1)?) else { return None };
    let port = u16::try_from(*port).ok()?;
    let own = || match &asked.endpoint {
        Endpoint::Tcp { host, .. } => host.clone(),
        Endpoint::Unix(_) => "127.0.0.1".to_owned(),
    };
    let host = match host {
        ReplyValue::Bulk(host) if !host.is_empty() && host != b"?" => String::from_utf8(host.clone()).ok()?,
        _ => own(),
    };
    Some(Endpoint::Tcp { host, port })
}
