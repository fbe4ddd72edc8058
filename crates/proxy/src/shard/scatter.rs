//! Requests that go to several nodes: split by key, or unchanged to all.

use reactor::Io;
use resp::codec::ProtocolVersion;

use super::Shard;
use super::admission::Served;
use super::client::reply_queue::WHOLE;
use super::client::{Client, Replies};
use super::connections::Connections;
use super::dispatch::{Order, after_one};
use super::gather::{Gather, Joining, scan_cursor};
use super::pending::{PendingRequest, Role};
use super::slab::Key;
use crate::commands::{Join, Split};
use crate::placement::{SLOTS, slot_of};

/// The parts of a request that nodes receive.
enum Shares<'s> {
    /// The whole request.
    Whole,
    /// Each node's keys, with the arguments that belong to each: `width` in all.
    Keys { keys: &'s KeysByPart, width: usize },
    /// These bytes, to a single node.
    Bytes(&'s [u8]),
}

/// The keys of a request by the part that they belong to.
struct KeysByPart {
    /// The node of each part.
    nodes: Vec<u16>,
    /// The part of each key.
    parts: Vec<u16>,
    /// The keys, those of one part after the other, each in the order of the request.
    keys: Vec<u32>,
    /// Where the keys of each part end in `keys`.
    ends: Vec<u32>,
}

impl KeysByPart {
    fn new(nodes: Vec<u16>, parts: Vec<u16>) -> KeysByPart {
        let mut ends = vec![0; nodes.len()];
        parts.iter().for_each(|part| ends[usize::from(*part)] += 1);
        let starts = ends.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum - count)
        });
        let mut next: Vec<u32> = starts.collect();
        let mut keys = vec![0; parts.len()];
        for (key, part) in parts.iter().enumerate() {
            let place = &mut next[usize::from(*part)];
            keys[*place as usize] = key as u32;
            *place += 1;
        }
        KeysByPart { nodes, parts, keys, ends: next }
    }

    fn of_part(&self, part: u16) -> &[u32] {
        let part = usize::from(part);
        let start = if part == 0 { 0 } else { self.ends[part - 1] };
        &self.keys[start as usize..self.ends[part] as usize]
    }
}

impl Shard {
    /// MGET, MSET, DEL and the like.
    pub(super) fn split(&mut self, client: &mut Client, io: &mut Io<'_>, order: &Order<'_>, split: Split) -> Served {
        let width = match split {
            Split::Pairs | Split::PairsIfNone => 2,
            Split::Values | Split::Count => 1,
        };
        let arguments = order.spans.len() - 1;
        if !arguments.is_multiple_of(width) {
            let name = &self.table.get(order.id).name;
            let text = format!("ERR wrong number of arguments for '{name}' command");
            return self.refuse(client, io, text.as_bytes());
        }
        let keys = self.keys_by_part(order, io, width);
        if let [node] = keys.nodes[..] {
            return self.send_to_node(client, io, order, node);
        }
        if split == Split::PairsIfNone && !self.config.may_split_msetnx {
            let text = "ERR the keys of 'msetnx' are on different nodes, where all or nothing cannot be promised: give them the same tag, \
                        as in name{tag}, or start the proxy with --split";
            return self.refuse(client, io, text.as_bytes());
        }
        let joining = match split {
            Split::Values => Joining::Values(keys.parts.clone()),
            Split::Count => Joining::All(Join::Sum),
            Split::Pairs => Joining::All(Join::Same),
            Split::PairsIfNone => Joining::All(Join::Least),
        };
        self.scatter(client, io, order, joining, &keys.nodes, &Shares::Keys { keys: &keys, width })
    }

    /// The keys by their nodes, in a cluster by their slots.
    fn keys_by_part(&mut self, order: &Order<'_>, io: &Io<'_>, width: usize) -> KeysByPart {
        let request = order.request(io);
        let mut nodes: Vec<u16> = Vec::new();
        let mut parts = Vec::with_capacity(request.len() / width);
        // Indexed by number, so that many nodes need no search for each key. A cluster's nodes accept keys of only one slot
        // at a time.
        let groups = if self.cluster.is_some() { SLOTS } else { self.nodes.len() };
        let mut part_of = vec![u16::MAX; groups];
        for key in request.iter().skip(1).step_by(width) {
            let node = self.node_of(key);
            let group = if self.cluster.is_some() { slot_of(key) } else { node };
            let part = &mut part_of[usize::from(group)];
            if *part == u16::MAX {
                *part = nodes.len() as u16;
                nodes.push(node);
            }
            parts.push(*part);
        }
        KeysByPart::new(nodes, parts)
    }

    /// Sends the same request to all nodes.
    pub(super) fn send_to_all(
        &mut self,
        client: &mut Client,
        io: &mut Io<'_>,
        order: &Order<'_>,
        join: Join,
    ) -> Served {
        let nodes = self.node_numbers.clone();
        if let [node] = nodes[..] {
            return self.send_to_node(client, io, order, node);
        }
        self.scatter(client, io, order, Joining::All(join), &nodes, &Shares::Whole)
    }

    /// SCAN: sends it to the node that the cursor names.
    pub(super) fn scan(&mut self, client: &mut Client, io: &mut Io<'_>, order: &Order<'_>) -> Served {
        let places = self.node_numbers.len() as u64;
        let request = order.request(io);
        let cursor = request.get(1).and_then(|text| std::str::from_utf8(text).ok()?.parse::<u64>().ok());
        let Some(cursor) = cursor else { return self.refuse(client, io, b"ERR invalid cursor") };
        let (cursor, place, marked) = scan_cursor(cursor, places);
        let node = self.node_numbers[place as usize];
        let mark = crc32fast::hash(self.nodes[usize::from(node)].config.name.as_bytes()) as u8;
        let mut bytes = Vec::new();
        let cursor = if marked == mark { cursor } else { 0 }.to_string();
        let arguments: Vec<&[u8]> = [b"SCAN", cursor.as_bytes()].into_iter().chain(request.iter().skip(2)).collect();
        resp::codec::write_command(&mut bytes, &arguments);
        self.scatter(client, io, order, Joining::Scan { place, places, mark }, &[node], &Shares::Bytes(&bytes))
    }

    /// Sends each node its share, and arranges for the replies to be joined.
    fn scatter(
        &mut self,
        client: &mut Client,
        io: &mut Io<'_>,
        order: &Order<'_>,
        joining: Joining,
        nodes: &[u16],
        shares: &Shares<'_>,
    ) -> Served {
        if self.waits_for_one(client, nodes) {
            return Served::WaitsForNode;
        }
        let at = self.begin_gather(client, joining);
        for node in nodes {
            let link = match shares {
                Shares::Keys { .. } => self.link_for(client.pool, *node, order.id, io).map(|(link, _)| link),
                // In a cluster only masters are meant: each key then counts once.
                Shares::Whole | Shares::Bytes(_) => self.shared_link(client.pool, *node, io),
            };
            self.send_part(client, io, order, at, (link, *node), shares);
        }
        self.finish_gather(client, at, io);
        Served::Done
    }

    /// Sends a request to one node on this connection; its reply is handled as a joined one.
    pub(super) fn send_joined(
        &mut self,
        client: &mut Client,
        io: &mut Io<'_>,
        order: &Order<'_>,
        joining: Joining,
        (link, node): (Key, u16),
    ) {
        let at = self.begin_gather(client, joining);
        self.send_part(client, io, order, at, (Some(link), node), &Shares::Whole);
        self.finish_gather(client, at, io);
    }

    fn begin_gather(&mut self, client: &mut Client, joining: Joining) -> u16 {
        let mut gather = Gather::new(0, joining);
        gather.is_dropped = client.replies != Replies::On;
        client.replies = after_one(client.replies);
        if !gather.is_dropped {
            gather.number = client.queue.push(WHOLE);
        }
        client.add_gather(gather)
    }

    /// Whether as many bytes of replies are in flight from one of these nodes as may be. It then wakes the client.
    fn waits_for_one(&mut self, client: &Client, nodes: &[u16]) -> bool {
        let pool = &self.pools[usize::from(client.pool)];
        let mut links = nodes.iter().map(|node| pool.connection(*node));
        links.any(|key| {
            let full = self.links.get_mut(key).filter(|link| link.is_full());
            full.map(|link| link.waiting.push(client.key)).is_some()
        })
    }

    /// Sends one more part of a joined reply's requests.
    fn send_part(
        &mut self,
        client: &mut Client,
        io: &mut Io<'_>,
        order: &Order<'_>,
        at: u16,
        (link, node): (Option<Key>, u16),
        shares: &Shares<'_>,
    ) {
        let part = client.gathers[usize::from(at)].as_mut().map_or(0, |gather| gather.add_part(node));
        if link.is_some_and(|link| self.send_share(client, io, order, link, (at, part), shares)) {
            return;
        }
        let down = self.unavailable(client.pool, node);
        self.counters.refused.add(1);
        if let Some(gather) = &mut client.gathers[usize::from(at)] {
            gather.fail(part, &down);
        }
    }

    /// Appends a share to a node connection's output. `false`: the connection is gone.
    fn send_share(
        &mut self,
        client: &mut Client,
        io: &mut Io<'_>,
        order: &Order<'_>,
        link: Key,
        (gather, part): (u16, u16),
        shares: &Shares<'_>,
    ) -> bool {
        let Some(link) = self.links.get_mut(link) else { return false };
        let Some((bytes, mut neighbour)) = order.source.bytes_and(io, link.id) else { return false };
        let output = neighbour.output();
        let before = output.len();
        match *shares {
            Shares::Whole => output.extend_from_slice(bytes),
            Shares::Bytes(bytes) => output.extend_from_slice(bytes),
            Shares::Keys { keys, width } => {
                let request = crate::commands::CommandRequest::with_spans(bytes, order.spans);
                let keys = keys.of_part(part);
                output.push(b'*');
                output.extend_from_slice((1 + keys.len() * width).to_string().as_bytes());
                output.extend_from_slice(b"\r\n");
                output.extend_from_slice(request.raw(0..1));
                for key in keys {
                    let first = 1 + *key as usize * width;
                    output.extend_from_slice(request.raw(first..first + width));
                }
            }
        }
        let bytes = output.len() - before;
        let is_cluster = self.cluster.is_some();
        if is_cluster {
            link.copies.push(&output[before..]);
            neighbour.keep(link.copies.held_bytes());
        }
        let copied = if is_cluster { bytes as u32 } else { 0 };
        let role = Role::Part { gather, part };
        let request = PendingRequest::new(client.key, role, order.id, bytes, self.lp.now_ns());
        link.expect(client, PendingRequest { copied, ..request });
        self.counters.sent(link.node);
        true
    }

    /// Answers with a joined reply, if all of its parts have arrived.
    pub(super) fn finish_gather(&mut self, client: &mut Client, at: u16, connections: &mut impl Connections) {
        let place = &mut client.gathers[usize::from(at)];
        let Some(gather) = place.take_if(|gather| gather.parts_left == 0) else { return };
        client.gathered_bytes -= gather.held_bytes();
        if let (Joining::Selected(database), Some(part)) = (&gather.joining, gather.parts.first()) {
            self.selected(client, *database, &part.reply);
        }
        if gather.is_dropped {
            return;
        }
        let version: ProtocolVersion = client.version;
        let reply = match self.confirmation(client, &gather) {
            Some(reply) => reply,
            None => gather.joined(version, &|node| self.nodes[usize::from(node)].config.name.as_str()),
        };
        self.give_whole(client, gather.number, reply, connections);
    }

    /// Gives a client a complete reply, or keeps it until its turn.
    pub(super) fn give_whole(
        &mut self,
        client: &mut Client,
        number: u32,
        reply: Vec<u8>,
        connections: &mut impl Connections,
    ) {
        match client.queue.is_head(number) {
            true => {
                if let Some(output) = connections.output(client.id) {
                    client.queue.forward(&reply, true, output, &mut self.buffers);
                }
            }
            false => client.queue.keep_whole(number, reply),
        }
        self.ledger.enter(client, connections);
    }
}

#[cfg(test)]
mod tests {
    use super::KeysByPart;

    #[test]
    fn each_key_is_in_the_list_of_its_part_in_the_order_of_the_request() {
        let keys = KeysByPart::new(vec![7, 9, 7], vec![2, 0, 2, 1, 0, 2]);
        let lists: Vec<&[u32]> = (0..3).map(|part| keys.of_part(part)).collect();
        assert_eq!(lists, [&[1, 4][..], &[3], &[0, 2, 5]]);
    }
}
