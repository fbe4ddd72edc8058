//! Requests that go to several nodes: split by key, or unchanged to all.

use reactor::Io;
use resp::codec::ProtocolVersion;

use super::Shard;
use super::admission::Served;
use super::client::reply_queue::WHOLE;
use super::client::{Client, Replies};
use super::dispatch::Order;
use super::expected::{Expected, Role};
use super::gather::{Gather, Joining, scan_cursor};
use super::slab::Key;
use crate::commands::{Join, Split};
use crate::placement::{SLOTS, slot_of};

/// The part of a request that a node receives.
enum Share<'s> {
    /// The whole request.
    Whole,
    /// The node's keys, each with the arguments that belong to it: `width` in all.
    Keys { parts: &'s [u16], part: u16, width: usize },
    /// These bytes.
    Bytes(&'s [u8]),
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
        let (nodes, parts) = self.parts_of_keys(order, io, width);
        if let [node] = nodes[..] {
            return self.send_to_node(client, io, order, node);
        }
        if split == Split::PairsIfNone && !self.config.may_split_msetnx {
            let text = "ERR the keys of 'msetnx' are on different nodes, where all or nothing cannot be promised: give them the same tag, \
                        as in name{tag}, or start the proxy with --split";
            return self.refuse(client, io, text.as_bytes());
        }
        let joining = match split {
            Split::Values => Joining::Values(parts.clone()),
            Split::Count => Joining::All(Join::Sum),
            Split::Pairs => Joining::All(Join::Same),
            Split::PairsIfNone => Joining::All(Join::Least),
        };
        let shares = nodes.iter().enumerate().map(|(part, node)| {
            let part = part as u16;
            (*node, Share::Keys { parts: &parts, part, width })
        });
        self.scatter(client, io, order, joining, shares)
    }

    /// The nodes of the keys, each once (in a cluster once for each slot), and for each key the index of its node among them.
    fn parts_of_keys(&mut self, order: &Order<'_>, io: &Io<'_>, width: usize) -> (Vec<u16>, Vec<u16>) {
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
        (nodes, parts)
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
        self.scatter(client, io, order, Joining::All(join), nodes.into_iter().map(|node| (node, Share::Whole)))
    }

    /// SCAN: sends it to the node that the cursor names.
    pub(super) fn scan(&mut self, client: &mut Client, io: &mut Io<'_>, order: &Order<'_>) -> Served {
        let places = self.node_numbers.len() as u64;
        let request = order.request(io);
        let cursor = request.get(1).and_then(|text| std::str::from_utf8(text).ok()?.parse::<u64>().ok());
        let Some(cursor) = cursor else { return self.refuse(client, io, b"ERR invalid cursor") };
        let (cursor, place) = scan_cursor(cursor, places);
        let mut bytes = Vec::new();
        let cursor = cursor.to_string();
        let arguments: Vec<&[u8]> = [b"SCAN", cursor.as_bytes()].into_iter().chain(request.iter().skip(2)).collect();
        resp::codec::write_command(&mut bytes, &arguments);
        let node = self.node_numbers[place as usize];
        self.scatter(client, io, order, Joining::Scan { place, places }, [(node, Share::Bytes(&bytes))].into_iter())
    }

    /// Sends each node its share, and arranges for the replies to be joined.
    fn scatter<'s>(
        &mut self,
        client: &mut Client,
        io: &mut Io<'_>,
        order: &Order<'_>,
        joining: Joining,
        shares: impl Iterator<Item = (u16, Share<'s>)>,
    ) -> Served {
        let mut gather = Gather::new(0, joining);
        gather.is_dropped = client.replies != Replies::On;
        if gather.is_dropped {
            client.replies = if client.replies == Replies::Off { Replies::Off } else { Replies::On };
        } else {
            gather.number = client.queue.push(WHOLE);
        }
        let at = client.add_gather(gather);
        for (node, share) in shares {
            let part = client.gathers[usize::from(at)].as_mut().map_or(0, |gather| gather.add_part(node));
            let link = match share {
                Share::Keys { .. } => self.link_for(client.lane, node, order.id, io).map(|(link, _)| link),
                // In a cluster only masters are meant: each key then counts once.
                Share::Whole | Share::Bytes(_) => self.shared_link(client.lane, node, io),
            };
            let role = Role::Part { gather: at, part };
            let sent = link.is_some_and(|link| self.send_share(client, io, order, link, role, &share));
            if !sent {
                let down = self.nodes[usize::from(node)].down();
                self.counters.refused.add(1);
                if let Some(gather) = &mut client.gathers[usize::from(at)] {
                    gather.fail(part, &down);
                }
            }
        }
        self.finish_gather(client, at, io);
        Served::Done
    }

    /// Appends a share to a node connection's output. `false`: the connection is gone.
    fn send_share(
        &mut self,
        client: &mut Client,
        io: &mut Io<'_>,
        order: &Order<'_>,
        link: Key,
        role: Role,
        share: &Share<'_>,
    ) -> bool {
        let Some(link) = self.links.get_mut(link) else { return false };
        let Some((bytes, mut neighbour)) = order.source.bytes_and(io, link.id) else { return false };
        let output = neighbour.output();
        let before = output.len();
        match *share {
            Share::Whole => output.extend_from_slice(bytes),
            Share::Bytes(bytes) => output.extend_from_slice(bytes),
            Share::Keys { parts, part, width } => {
                let request = crate::commands::CommandRequest::with_spans(bytes, order.spans);
                let keys = parts.iter().filter(|one| **one == part).count();
                output.push(b'*');
                output.extend_from_slice((1 + keys * width).to_string().as_bytes());
                output.extend_from_slice(b"\r\n");
                output.extend_from_slice(request.raw(0..1));
                for (key, _) in parts.iter().enumerate().filter(|(_, one)| **one == part) {
                    let first = 1 + key * width;
                    output.extend_from_slice(request.raw(first..first + width));
                }
            }
        }
        let bytes = (output.len() - before) as u32;
        let copied = if self.cluster.is_some() { bytes } else { 0 };
        if copied > 0 {
            link.copies.push(&output[before..]);
        }
        client.request_bytes += bytes as usize;
        let (command, sent_ns) = (order.id, self.lp.now_ns());
        link.expected.push_back(Expected {
            client: client.key,
            role,
            command,
            bytes,
            reserved: 0,
            copied,
            redirects: 0,
            sent_ns,
        });
        self.counters.sent(link.node);
        true
    }

    /// Answers with a joined reply, if all of its parts have arrived.
    pub(super) fn finish_gather(&mut self, client: &mut Client, at: u16, wires: &mut impl super::wires::Wires) {
        let place = &mut client.gathers[usize::from(at)];
        let Some(gather) = place.take_if(|gather| gather.parts_left == 0) else { return };
        self.kept_bytes = self.kept_bytes.saturating_sub(gather.bytes);
        if gather.is_dropped {
            return;
        }
        let version: ProtocolVersion = client.version;
        let reply = match self.confirmation(client, &gather) {
            Some(reply) => reply,
            None => gather.joined(version, &|node| self.nodes[usize::from(node)].config.name.as_str()),
        };
        let kept = client.queue.kept_bytes();
        match client.queue.is_head(gather.number) {
            true => {
                if let Some(output) = wires.output(client.id) {
                    client.queue.forward(&reply, true, output, &mut self.pool);
                }
            }
            false => client.queue.keep_whole(gather.number, &reply),
        }
        self.kept_bytes = self.kept_bytes + client.queue.kept_bytes() - kept;
    }
}
