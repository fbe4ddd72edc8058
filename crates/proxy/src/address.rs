//! Nodes in the written form: `HOST:PORT`, or `unix:PATH`.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use crate::config::NodeConfig;
use reactor::Address;

/// memcached's port, which libketama omits from a server's name.
const KETAMA_PORT: &str = ":11211";

/// Parses a node, and looks up its host now.
///
/// # Errors
/// The problem, in one sentence.
pub fn parse_node(text: &str) -> Result<NodeConfig, String> {
    let address = parse_address(text)?;
    let ring_name = text.strip_suffix(KETAMA_PORT).unwrap_or(text).to_owned();
    Ok(NodeConfig { name: text.to_owned(), address, weight: 1, ring_name })
}

/// Parses a file of nodes: one per line; blank lines and lines that begin with `#` are skipped.
///
/// # Errors
/// The problem, with its line.
pub fn parse_nodes(text: &str) -> Result<Vec<NodeConfig>, String> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines.map(|(at, line)| parse_node(line).map_err(|problem| format!("line {at}: {problem}"))).collect()
}

/// Parses an address: `HOST:PORT`, whose host is looked up now, or `unix:PATH`.
///
/// # Errors
/// The problem, in one sentence.
pub fn parse_address(text: &str) -> Result<Address, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(Address::Unix(PathBuf::from(path)));
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address.into());
    }
    let found =
        text.to_socket_addrs().map_err(|error| format!("{text:?} is no HOST:PORT that is known here: {error}"))?;
    // A Redis that listens only on IPv4 is more common than one that listens only on IPv6.
    let all: Vec<SocketAddr> = found.collect();
    let first = all.iter().find(|address| address.is_ipv4()).or(all.first());
    first.map(|address| (*address).into()).ok_or_else(|| format!("{text:?} has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_addresses_hosts_and_sockets() {
        let nodes = parse_nodes("# ours\n127.0.0.1:6381\n\n  unix:/run/redis.sock \nlocalhost:11211\n").unwrap();
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["127.0.0.1:6381", "unix:/run/redis.sock", "localhost:11211"]);
        assert_eq!(nodes[1].address, Address::Unix("/run/redis.sock".into()));
        assert_eq!(nodes[2].ring_name, "localhost");
        let wrong = parse_nodes("127.0.0.1:6381\nnothing").unwrap_err();
        assert!(wrong.starts_with("line 2: \"nothing\" is no HOST:PORT"), "{wrong}");
    }
}
