//! Redis Cluster: the table of slots, and redirections between nodes.
//!
//! The table comes from `CLUSTER SLOTS`, sent on each new shared connection. Redirections are followed (Redis Cluster
//! Specification, "MOVED Redirection", "ASK Redirection"): the request is sent again, so its node connection keeps a copy until
//! it is answered. After MOVED, or the loss of a node, the table is read again. Commands of one client that are in flight while a
//! slot moves may reach their nodes in another order than they were sent.
//!
//! If configured (`ProxyConfig::reads_replicas`), replicas answer reads in rotation, and the master if none is up; connections
//! then begin with READONLY. The proxy learns from a node's reply to COMMAND which commands only read. Before that reply, masters
//! answer all commands.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use reactor::{Address, Io};
use resp::codec::{ReplyView, write_command};

use super::Shard;
use super::expected::{Expected, Role, Step};
use super::gather::{Gather, Joining};
use super::link::Link;
use super::node::Node;
use super::slab::Key;
use crate::commands::CommandId;
use crate::config::{NODES_MAX, NodeConfig};
use crate::placement::Slots;

/// Largest number of redirections of one request.
pub(super) const REDIRECTS_MAX: u8 = 5;
/// Shortest interval between two reads of the table.
const REFRESH_EVERY: Duration = Duration::from_millis(200);
const ASKING: &[u8] = b"*1\r\n$6\r\nASKING\r\n";

/// A loop's table of slots.
#[derive(Default)]
pub(crate) struct Cluster {
    /// Maps each slot to a node's number.
    pub(crate) slots: Slots,
    /// Whether a change was noticed since the table was requested.
    is_stale: bool,
    asked_ns: u64,
    /// Indexed by the master's number; empty if replicas are not read.
    replicas: Vec<Vec<u16>>,
}

impl Cluster {
    /// The next replica of a master, in rotation; none if it has no replica.
    fn replica(&self, master: u16, turn: u64) -> Option<u16> {
        let replicas = self.replicas.get(usize::from(master)).filter(|all| !all.is_empty())?;
        Some(replicas[(turn % replicas.len() as u64) as usize])
    }

    fn replicas_of(&self, master: u16) -> usize {
        self.replicas.get(usize::from(master)).map_or(0, Vec::len)
    }

    fn add_replica(&mut self, master: u16, replica: u16) {
        let master = usize::from(master);
        if self.replicas.len() <= master {
            self.replicas.resize(master + 1, Vec::new());
        }
        if !self.replicas[master].contains(&replica) {
            self.replicas[master].push(replica);
        }
    }

    /// Marks the table as possibly outdated.
    pub(crate) fn spoil(&mut self) {
        self.is_stale = true;
    }
}

/// A redirection to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Redirect {
    /// Whether the slot has moved for good (MOVED), or the redirection is for this request alone (ASK).
    is_moved: bool,
    slot: u16,
    to: SocketAddr,
}

impl Redirect {
    /// Parses `MOVED 3999 127.0.0.1:6381` or `ASK …`. `asked`: the node that replied; if the error names no host, its host is
    /// meant.
    fn read(error: &[u8], asked: &Address) -> Option<Redirect> {
        let mut words = std::str::from_utf8(error).ok()?.split(' ');
        let is_moved = match words.next()? {
            "MOVED" => true,
            "ASK" => false,
            _ => return None,
        };
        let slot = words.next()?.parse().ok()?;
        let (host, port) = words.next()?.rsplit_once(':')?;
        Some(Redirect { is_moved, slot, to: address(host, port.parse().ok()?, asked)? })
    }
}

/// A node's address from the cluster's table or a redirection.
fn address(host: &str, port: u16, asked: &Address) -> Option<SocketAddr> {
    let ip: IpAddr = match (host.trim_matches(['[', ']']), asked) {
        ("" | "?", Address::Tcp(asked)) => asked.ip(),
        (host, _) => host.parse().ok()?,
    };
    Some(SocketAddr::new(ip, port))
}

/// A range of slots, and its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SlotRange {
    from: u16,
    to: u16,
    master: SocketAddr,
    replicas: Vec<SocketAddr>,
}

/// Parses the reply to CLUSTER SLOTS.
fn ranges(reply: &ReplyView<'_>, asked: &Address) -> Vec<SlotRange> {
    let number = |view: Option<ReplyView<'_>>| match view? {
        ReplyView::Integer(number) => u16::try_from(number).ok(),
        _ => None,
    };
    let node = |node: ReplyView<'_>| {
        let mut fields = node.elements()?;
        let host = fields.next()?.text().unwrap_or_default();
        address(std::str::from_utf8(host).ok()?, number(fields.next())?, asked)
    };
    let range = |range: ReplyView<'_>| {
        let mut fields = range.elements()?;
        let (from, to) = (number(fields.next())?, number(fields.next())?);
        let master = node(fields.next()?)?;
        Some(SlotRange { from, to, master, replicas: fields.filter_map(node).collect() })
    };
    reply.elements().into_iter().flatten().filter_map(range).collect()
}

impl Shard {
    /// The number of the node at an address, which is added if it is new. None: there are too many nodes.
    fn node_at(&mut self, address: SocketAddr) -> Option<u16> {
        let address = Address::from(address);
        let known = self.nodes.iter().position(|node| node.config.address == address);
        if let Some(known) = known {
            return Some(known as u16);
        }
        if self.nodes.len() >= NODES_MAX {
            return None;
        }
        let name = address.to_string();
        self.nodes.push(Node::new(NodeConfig { ring_name: name.clone(), name, address, weight: 1 }));
        self.publish_node_names();
        Some((self.nodes.len() - 1) as u16)
    }

    /// Applies the reply to `CLUSTER SLOTS`.
    pub(super) fn take_slots(&mut self, link: &Link, reply: &ReplyView<'_>, io: &mut Io<'_>) {
        let asked = self.nodes[usize::from(link.node)].config.address.clone();
        let ranges = ranges(reply, &asked);
        if ranges.is_empty() {
            tracing::warn!(node = %asked, "the node reports no slots: is it part of a cluster?");
            return;
        }
        if let Some(cluster) = &mut self.cluster {
            cluster.replicas.clear();
        }
        let (mut masters, mut listed) = (Vec::new(), Vec::new());
        for range in ranges {
            let Some(node) = self.node_at(range.master) else { continue };
            if let Some(cluster) = &mut self.cluster {
                cluster.slots.assign(range.from..=range.to, node);
            }
            if !masters.contains(&node) {
                masters.push(node);
                listed.push(node);
                listed.append(&mut self.take_replicas(node, &range.replicas));
            }
        }
        for (number, node) in self.nodes.iter_mut().enumerate() {
            node.is_listed = listed.contains(&(number as u16));
        }
        // An order that does not depend on which node replied, for SCAN's cursors.
        masters.sort_by_key(|node| self.nodes[usize::from(*node)].config.name.clone());
        self.node_numbers = masters;
        self.preconnect(io);
    }

    /// Adds the replicas of a master, if replicas are read; returns their numbers.
    fn take_replicas(&mut self, master: u16, replicas: &[SocketAddr]) -> Vec<u16> {
        if !self.config.reads_replicas {
            return Vec::new();
        }
        let numbers: Vec<u16> = replicas.iter().filter_map(|replica| self.node_at(*replica)).collect();
        if let Some(cluster) = &mut self.cluster {
            numbers.iter().for_each(|replica| cluster.add_replica(master, *replica));
        }
        numbers
    }

    /// The connection for a request with keys of this node, and the node that it leads to: a replica, if the command only reads
    /// and replicas are read. None: the node is down.
    #[inline]
    pub(super) fn link_for(&mut self, lane: u16, node: u16, command: CommandId, io: &mut Io<'_>) -> Option<(Key, u16)> {
        if self.config.reads_replicas
            && self.table.get(command).only_reads
            && let Some(read) = self.replica_link(lane, node, io)
        {
            return Some(read);
        }
        self.shared_link(lane, node, io).map(|link| (link, node))
    }

    /// The connection to a replica of this master. None: it has no replica, or all are down.
    fn replica_link(&mut self, lane: u16, master: u16, io: &mut Io<'_>) -> Option<(Key, u16)> {
        let count = self.cluster.as_deref()?.replicas_of(master);
        (0..count).find_map(|_| {
            self.turn = self.turn.wrapping_add(1);
            let replica = self.cluster.as_deref()?.replica(master, self.turn)?;
            self.shared_link(lane, replica, io).map(|link| (link, replica))
        })
    }

    /// The node that a MOVED error names, recorded in the table. None: it is another error, or names the same node.
    pub(super) fn moved_to(&mut self, link: &Link, reply: &[u8]) -> Option<u16> {
        let asked = &self.nodes[usize::from(link.node)].config.address;
        let text = reply.strip_prefix(b"-").unwrap_or(reply).trim_ascii_end();
        let redirect = Redirect::read(text, asked).filter(|redirect| redirect.is_moved)?;
        let node = self.node_at(redirect.to)?;
        let cluster = self.cluster.as_mut()?;
        cluster.slots.assign(redirect.slot..=redirect.slot, node);
        cluster.spoil();
        (node != link.node).then_some(node)
    }

    /// Requests the table again, if it may be outdated.
    pub(super) fn refresh_slots(&mut self, io: &mut Io<'_>) {
        let now_ns = self.lp.now_ns();
        let is_due = |cluster: &Cluster| {
            cluster.is_stale && Duration::from_nanos(now_ns.saturating_sub(cluster.asked_ns)) >= REFRESH_EVERY
        };
        if !self.cluster.as_deref().is_some_and(is_due) {
            return;
        }
        for node in 0..self.nodes.len() as u16 {
            let Some(key) = self.shared_link(0, node, io) else { continue };
            let Some(link) = self.links.get_mut(key).filter(|link| link.is_connected) else { continue };
            let Some(mut neighbour) = io.neighbour(link.id) else { continue };
            write_command(neighbour.output(), &["CLUSTER", "SLOTS"]);
            link.expected.push_back(Expected::of_proxy(Role::Handshake(Step::Slots), CommandId(0), now_ns));
            if let Some(cluster) = &mut self.cluster {
                (cluster.is_stale, cluster.asked_ns) = (false, now_ns);
            }
            return;
        }
    }

    /// Follows a redirection. `false`: the error is the client's reply.
    pub(super) fn follow(&mut self, link: &mut Link, io: &mut Io<'_>, expected: &Expected, reply: &[u8]) -> bool {
        let asked = &self.nodes[usize::from(link.node)].config.address;
        let text = reply.strip_prefix(b"-").unwrap_or(reply).trim_ascii_end();
        let Some(redirect) = Redirect::read(text, asked) else { return false };
        let Some(node) = self.node_at(redirect.to) else { return false };
        if let Some(cluster) = self.cluster.as_mut().filter(|_| redirect.is_moved) {
            cluster.slots.assign(redirect.slot..=redirect.slot, node);
            cluster.spoil();
        }
        let may_follow = link.owner == Key::NONE && expected.copied > 0 && expected.redirects < REDIRECTS_MAX;
        if !may_follow || node == link.node {
            return false;
        }
        let Some(key) = self.shared_link(link.lane, node, io) else { return false };
        let Some(to) = self.links.get_mut(key) else { return false };
        let Some(mut neighbour) = io.neighbour(to.id) else { return false };
        let role = match expected.role {
            // A reply from another node is not part of this node's sequence of replies.
            Role::Reply(number) => match self.clients.get_mut(expected.client) {
                Some(client) => {
                    let mut gather = Gather::new(number, Joining::Only);
                    let part = gather.add_part(node);
                    Role::Part { gather: client.add_gather(gather), part }
                }
                None => Role::Dropped,
            },
            other => other,
        };
        let output = neighbour.output();
        if !redirect.is_moved {
            output.extend_from_slice(ASKING);
            to.expected.push_back(Expected::of_proxy(Role::Dropped, expected.command, expected.sent_ns));
            self.counters.sent(node);
        }
        let request = link.copies.front(expected.copied);
        output.extend_from_slice(request);
        to.copies.push(request);
        let redirects = expected.redirects + 1;
        to.expected.push_back(Expected { role, redirects, bytes: 0, reserved: 0, ..*expected });
        self.counters.sent(node);
        true
    }
}

#[cfg(test)]
mod tests {
    use resp::codec::FrameLimits;

    use super::*;

    #[test]
    fn redirects_are_read_as_the_specification_has_them() {
        let asked = Address::from("10.0.0.9:7000".parse::<SocketAddr>().unwrap());
        for (error, redirect) in [
            ("MOVED 3999 127.0.0.1:6381", Some((true, 3999, "127.0.0.1:6381"))),
            ("ASK 1 :6381", Some((false, 1, "10.0.0.9:6381"))),
            ("MOVED 7 ::1:6381", Some((true, 7, "[::1]:6381"))),
            ("MOVED x 127.0.0.1:6381", None),
            ("MOVED 1 somewhere:6381", None),
            ("ERR MOVED 1 127.0.0.1:1", None),
        ] {
            let read = Redirect::read(error.as_bytes(), &asked);
            let read = read.map(|read| (read.is_moved, read.slot, read.to.to_string()));
            assert_eq!(read, redirect.map(|(is_moved, slot, to)| (is_moved, slot, to.to_owned())), "{error}");
        }
    }

    #[test]
    fn ranges_of_slots_name_their_masters_and_replicas() {
        let reply = b"*2\r\n*3\r\n:0\r\n:5460\r\n*3\r\n$9\r\n127.0.0.1\r\n:7001\r\n$1\r\na\r\n\
                      *4\r\n:5461\r\n:16383\r\n*2\r\n$-1\r\n:7002\r\n*2\r\n$9\r\n127.0.0.1\r\n:7003\r\n";
        let view = ReplyView::parse(reply, FrameLimits::default()).unwrap().unwrap().0;
        let asked = Address::from("10.0.0.9:7000".parse::<SocketAddr>().unwrap());
        let at = |address: &str| address.parse::<SocketAddr>().unwrap();
        let second =
            SlotRange { from: 5461, to: 16383, master: at("10.0.0.9:7002"), replicas: vec![at("127.0.0.1:7003")] };
        let first = SlotRange { from: 0, to: 5460, master: at("127.0.0.1:7001"), replicas: Vec::new() };
        assert_eq!(ranges(&view, &asked), [first, second]);
    }
}
