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

use hashbrown::HashMap;
use reactor::{Address, Io};
use resp::codec::{ReplyView, write_command};

use super::Shard;
use super::client::{Client, State};
use super::connections::Connections;
use super::gather::{Gather, Joining};
use super::node::Node;
use super::node_connection::{End, NodeConnection};
use super::pending::{PendingRequest, Role, Step};
use super::slab::Key;
use crate::commands::{CommandId, Handling};
use crate::config::{NODES_MAX, NodeConfig};
use crate::placement::Slots;

/// Largest number of redirections of one request.
pub(super) const REDIRECTS_MAX: u8 = 5;
/// Shortest interval between two reads of the table.
const REFRESH_EVERY: Duration = Duration::from_millis(200);
/// The reply to a command of a transaction, or to a large one, if its slot is another node's now: nothing of it is executed.
const MOVED_MEANWHILE: &[u8] =
    b"-TRYAGAIN the key's slot has moved to another node: repeat the command or transaction\r\n";
const ASKING: &[u8] = b"*1\r\n$6\r\nASKING\r\n";

/// A loop's table of slots.
#[derive(Default)]
pub(crate) struct Cluster {
    /// Maps each slot to a node's number.
    pub(crate) slots: Slots,
    /// Whether a change was noticed since the table was requested.
    is_stale: bool,
    asked_ns: u64,
    /// The node that a slot has moved to: others may learn of it later.
    knows: Option<u16>,
    /// When a redirection told of it.
    moved_ns: u64,
    /// Indexed by the master's number; empty if replicas are not read.
    replicas: Vec<Vec<u16>>,
    /// Addresses of hosts that the nodes have names for.
    hosts: HashMap<Box<str>, IpAddr>,
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
    fn read(error: &[u8], asked: &Address, hosts: &HashMap<Box<str>, IpAddr>) -> Option<Redirect> {
        let mut words = std::str::from_utf8(error).ok()?.split(' ');
        let is_moved = match words.next()? {
            "MOVED" => true,
            "ASK" => false,
            _ => return None,
        };
        let slot = words.next()?.parse().ok()?;
        let (host, port) = words.next()?.rsplit_once(':')?;
        Some(Redirect { is_moved, slot, to: address(host, port.parse().ok()?, asked, hosts)? })
    }
}

/// A node's address from the cluster's table or a redirection.
fn address(host: &str, port: u16, asked: &Address, hosts: &HashMap<Box<str>, IpAddr>) -> Option<SocketAddr> {
    let ip: IpAddr = match (host.trim_matches(['[', ']']), asked) {
        ("" | "?", Address::Tcp(asked)) => asked.ip(),
        (host, _) => host.parse().ok().or_else(|| hosts.get(host).copied())?,
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

/// Parses the reply to CLUSTER SLOTS. A node that is named by its host has its address beside; it is added to `hosts`.
fn ranges(reply: &ReplyView<'_>, asked: &Address, hosts: &mut HashMap<Box<str>, IpAddr>) -> Vec<SlotRange> {
    let number = |view: Option<ReplyView<'_>>| match view? {
        ReplyView::Integer(number) => u16::try_from(number).ok(),
        _ => None,
    };
    let mut node = |node: ReplyView<'_>| {
        let mut fields = node.elements()?;
        let host = std::str::from_utf8(fields.next()?.text().unwrap_or_default()).ok()?;
        let port = number(fields.next())?;
        let mut more = fields.nth(1).and_then(|more| more.elements()).into_iter().flatten();
        if more.by_ref().any(|name| name.text() == Some(b"ip")) {
            let ip = more.next().and_then(|ip| std::str::from_utf8(ip.text()?).ok()?.parse().ok());
            ip.map(|ip: IpAddr| hosts.insert(host.into(), ip));
        }
        address(host, port, asked, hosts)
    };
    let range = |range: ReplyView<'_>| {
        let mut fields = range.elements()?;
        let (from, to) = (number(fields.next())?, number(fields.next())?);
        let master = node(fields.next()?)?;
        Some(SlotRange { from, to, master, replicas: fields.filter_map(&mut node).collect() })
    };
    reply.elements().into_iter().flatten().filter_map(range).collect()
}

/// Whether a request on a reserved connection cannot be sent to another node alone: it is one of a transaction, or there is no copy of it.
fn is_bound(client: &Client, request: &PendingRequest) -> bool {
    matches!(client.state, State::Transaction(_)) || client.in_flight > 1 || request.copied == 0
}

impl Shard {
    /// The number of the node at an address, which is added if it is new: with the number of a node that has left the cluster and has
    /// no connections, or the next. None: there are too many nodes.
    fn node_at(&mut self, address: SocketAddr) -> Option<u16> {
        let address = Address::from(address);
        if let Some(known) = self.nodes.iter().position(|node| node.config.address == address) {
            self.nodes[known].is_listed = true;
            return Some(known as u16);
        }
        let mut is_used: Vec<bool> =
            self.nodes.iter().map(|node| node.is_listed || node.is_at_one_of(&self.list.nodes)).collect();
        self.links.iter_mut().for_each(|link| is_used[usize::from(link.node)] = true);
        let number = is_used.iter().position(|is_used| !is_used).unwrap_or(self.nodes.len());
        if number >= NODES_MAX {
            return None;
        }
        let name = address.to_string();
        let node = Node::new(NodeConfig { ring_name: name.clone(), name, address, weight: 1 });
        match self.nodes.get_mut(number) {
            Some(place) => *place = node,
            None => self.nodes.push(node),
        }
        self.publish_node_names();
        Some(number as u16)
    }

    /// Applies the reply to `CLUSTER SLOTS`.
    pub(super) fn take_slots(&mut self, link: &NodeConnection, reply: &ReplyView<'_>, io: &mut Io<'_>) {
        let asked = self.nodes[usize::from(link.node)].config.address.clone();
        let Some(cluster) = &mut self.cluster else { return };
        // A table that was asked for before a redirection may lack what the redirection told.
        if link.pending.front().is_some_and(|request| request.sent_ns < cluster.moved_ns) {
            return cluster.spoil();
        }
        let mut ranges = ranges(reply, &asked, &mut cluster.hosts);
        // The order of the masters, for SCAN's cursors, depends neither on the node that replied nor on which node is master.
        ranges.sort_by_key(|range| range.from);
        if ranges.is_empty() {
            tracing::warn!(node = %asked, "the node reports no slots: is it part of a cluster?");
            return;
        }
        cluster.replicas.clear();
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
    pub(super) fn link_for(&mut self, pool: u16, node: u16, command: CommandId, io: &mut Io<'_>) -> Option<(Key, u16)> {
        if self.config.reads_replicas
            && self.table.get(command).only_reads
            && let Some(read) = self.replica_link(pool, node, io)
        {
            return Some(read);
        }
        self.shared_link(pool, node, io).map(|link| (link, node))
    }

    /// The connection to a replica of this master. None: it has no replica, or all are down.
    fn replica_link(&mut self, pool: u16, master: u16, io: &mut Io<'_>) -> Option<(Key, u16)> {
        let count = self.cluster.as_deref()?.replicas_of(master);
        (0..count).find_map(|_| {
            self.turn = self.turn.wrapping_add(1);
            let replica = self.cluster.as_deref()?.replica(master, self.turn)?;
            self.shared_link(pool, replica, io).map(|link| (link, replica))
        })
    }

    /// The redirection in an error, and the number of its node. A move is recorded in the table. None: it is another error.
    fn redirect(&mut self, link: &NodeConnection, error: &[u8]) -> Option<(u16, Redirect)> {
        let asked = &self.nodes[usize::from(link.node)].config.address;
        let text = error.strip_prefix(b"-").unwrap_or(error).trim_ascii_end();
        let redirect = Redirect::read(text, asked, &self.cluster.as_ref()?.hosts)?;
        let node = self.node_at(redirect.to)?;
        if let Some(cluster) = self.cluster.as_mut().filter(|_| redirect.is_moved) {
            cluster.slots.assign(redirect.slot..=redirect.slot, node);
            cluster.spoil();
            (cluster.knows, cluster.moved_ns) = (Some(node), self.lp.now_ns());
        }
        Some((node, redirect))
    }

    /// The node that a MOVED error names. None: it is another error, or names the same node.
    pub(super) fn moved_to(&mut self, link: &NodeConnection, error: &[u8]) -> Option<u16> {
        let (node, redirect) = self.redirect(link, error)?;
        (redirect.is_moved && node != link.node).then_some(node)
    }

    /// Requests the table again, if it may be outdated.
    pub(super) fn refresh_slots(&mut self, connections: &mut impl Connections) {
        let now_ns = self.lp.now_ns();
        let is_due = |cluster: &Cluster| {
            cluster.is_stale && Duration::from_nanos(now_ns.saturating_sub(cluster.asked_ns)) >= REFRESH_EVERY
        };
        if !self.cluster.as_deref().is_some_and(is_due) {
            return;
        }
        let knows = self.cluster.as_mut().and_then(|cluster| cluster.knows.take());
        for node in knows.into_iter().chain(0..self.nodes.len() as u16) {
            let Some(key) = self.shared_link(0, node, connections) else { continue };
            let Some(link) = self.links.get_mut(key).filter(|link| link.is_connected) else { continue };
            let Some(output) = connections.output(link.id) else { continue };
            write_command(output, &["CLUSTER", "SLOTS"]);
            link.pending.push_back(PendingRequest::of_proxy(Role::Handshake(Step::Slots), CommandId(0), now_ns));
            if let Some(cluster) = &mut self.cluster {
                (cluster.is_stale, cluster.asked_ns) = (false, now_ns);
            }
            return;
        }
    }

    /// Handles an error of a node: follows a redirection, or returns the client's reply.
    pub(super) fn follow(
        &mut self,
        link: &mut NodeConnection,
        io: &mut Io<'_>,
        request: &PendingRequest,
        error: Vec<u8>,
    ) -> Option<Vec<u8>> {
        let Some((node, redirect)) = self.redirect(link, &error) else { return Some(error) };
        if matches!(self.table.get(request.command).handling, Handling::Transaction(_)) {
            return Some(MOVED_MEANWHILE.to_vec());
        }
        let Some(mut client) = self.clients.lend(request.client) else { return Some(error) };
        let followed = match () {
            () if link.owner != Key::NONE && is_bound(&client, request) => Err(MOVED_MEANWHILE.to_vec()),
            () if request.copied == 0 || request.redirects >= REDIRECTS_MAX || node == link.node => Err(error),
            () => self.send_on(link, &mut client, io, request, node, redirect.is_moved),
        };
        if followed.is_err() {
            client.fail_transaction();
        }
        self.clients.take_back(request.client, client);
        followed.err()
    }

    /// Sends a request again, to the node that it was redirected to: over a connection of the same kind.
    fn send_on(
        &mut self,
        link: &mut NodeConnection,
        client: &mut Client,
        io: &mut Io<'_>,
        request: &PendingRequest,
        node: u16,
        is_moved: bool,
    ) -> Result<(), Vec<u8>> {
        let (key, role) = if link.owner == Key::NONE {
            let key = self.shared_link(link.pool, node, io).ok_or_else(|| self.unavailable(link.pool, node))?;
            let role = match request.role {
                // A reply from another node is not part of this node's sequence of replies.
                Role::Reply(number) => {
                    let mut gather = Gather::new(number, Joining::Only);
                    let part = gather.add_part(node);
                    Role::Part { gather: client.add_gather(gather), part }
                }
                other => other,
            };
            (key, role)
        } else {
            let key = self.take_own(client, node, io)?;
            client.state = match client.state {
                State::Blocked(_) => State::Blocked(key),
                _ => State::Reserved(key),
            };
            (link.owner, link.end) = (Key::NONE, Some(End::Unneeded));
            io.abort();
            (key, request.role)
        };
        let Some(to) = self.links.get_mut(key) else { return Err(self.unavailable(link.pool, node)) };
        if let Some(output) = Connections::output(io, to.id) {
            if !is_moved {
                output.extend_from_slice(ASKING);
                to.pending.push_back(PendingRequest::of_proxy(Role::Dropped, request.command, request.sent_ns));
                self.counters.sent(node);
            }
            let bytes = link.copies.front(request.copied);
            output.extend_from_slice(bytes);
            to.copies.push(bytes);
        }
        let redirects = request.redirects + 1;
        to.expect(client, PendingRequest { role, redirects, bytes: 0, reserved: 0, ..*request });
        self.counters.sent(node);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use resp::codec::FrameLimits;

    use super::*;

    #[test]
    fn redirects_are_read_as_the_specification_has_them() {
        let asked = Address::from("10.0.0.9:7000".parse::<SocketAddr>().unwrap());
        let hosts = HashMap::from_iter([(Box::from("node.example"), IpAddr::from([10, 0, 0, 7]))]);
        for (error, redirect) in [
            ("MOVED 3999 127.0.0.1:6381", Some((true, 3999, "127.0.0.1:6381"))),
            ("ASK 1 :6381", Some((false, 1, "10.0.0.9:6381"))),
            ("MOVED 7 ::1:6381", Some((true, 7, "[::1]:6381"))),
            ("MOVED 7 node.example:6381", Some((true, 7, "10.0.0.7:6381"))),
            ("MOVED x 127.0.0.1:6381", None),
            ("MOVED 1 somewhere:6381", None),
            ("ERR MOVED 1 127.0.0.1:1", None),
        ] {
            let read = Redirect::read(error.as_bytes(), &asked, &hosts);
            let read = read.map(|read| (read.is_moved, read.slot, read.to.to_string()));
            assert_eq!(read, redirect.map(|(is_moved, slot, to)| (is_moved, slot, to.to_owned())), "{error}");
        }
    }

    #[test]
    fn ranges_of_slots_name_their_masters_and_replicas() {
        let reply = b"*2\r\n*3\r\n:0\r\n:5460\r\n*3\r\n$9\r\n127.0.0.1\r\n:7001\r\n$1\r\na\r\n\
                      *4\r\n:5461\r\n:16383\r\n*2\r\n$-1\r\n:7002\r\n*4\r\n$6\r\nb.test\r\n:7003\r\n$1\r\nb\r\n\
                      *2\r\n$2\r\nip\r\n$9\r\n127.0.0.1\r\n";
        let view = ReplyView::parse(reply, FrameLimits::default()).unwrap().unwrap().0;
        let asked = Address::from("10.0.0.9:7000".parse::<SocketAddr>().unwrap());
        let at = |address: &str| address.parse::<SocketAddr>().unwrap();
        let second =
            SlotRange { from: 5461, to: 16383, master: at("10.0.0.9:7002"), replicas: vec![at("127.0.0.1:7003")] };
        let first = SlotRange { from: 0, to: 5460, master: at("127.0.0.1:7001"), replicas: Vec::new() };
        let mut hosts = HashMap::new();
        assert_eq!(ranges(&view, &asked, &mut hosts), [first, second]);
        assert_eq!(hosts.get("b.test"), Some(&IpAddr::from([127, 0, 0, 1])));
    }
}
