//! SUBSCRIBE and the other commands of subscriptions.
//!
//! Like a key, a channel belongs to one node, and PUBLISH goes to that node. A pattern may match channels of any node, and is
//! subscribed on all, so that each message arrives once. A sharded channel (SSUBSCRIBE, SPUBLISH) belongs to one node too; in a
//! cluster it belongs to its slot, and a subscription to a slot that has moved is redirected. If the slot moves later, the node
//! ends the subscription, and the client receives SUNSUBSCRIBE's confirmation, as from a cluster. A subscriber has a reserved
//! connection to each node that it needs. Confirmations are written by the proxy, because a node counts only its own channels;
//! messages are passed on unchanged. If one of the connections breaks, the client is disconnected: no reply could tell it that
//! some of its channels are silent.

use reactor::Io;
use resp::codec::{ReplyView, write_command};

use super::Shard;
use super::admission::Served;
use super::client::reply_queue::WHOLE;
use super::client::subscription_state::Confirmation;
use super::client::{Client, Hold};
use super::cluster::REDIRECTS_MAX;
use super::connections::Connections;
use super::dispatch::{Order, after_one};
use super::gather::{Gather, Joining};
use super::node_connection::{End, NodeConnection};
use super::pending::{PendingRequest, Role};
use super::slab::Key;
use crate::commands::{CommandId, Handling, Subscription};

/// Beginning of the channels in which nodes tell of changes to keys.
const KEYSPACE_EVENTS: &[u8] = b"__key";
/// Placeholder for the error by which a node redirects a subscription.
const SENT_ON: &[u8] = b"+MOVED\r\n";

impl Shard {
    pub(super) fn subscription(
        &mut self,
        client: &mut Client,
        io: &mut Io<'_>,
        order: &Order<'_>,
        command: Subscription,
    ) -> Served {
        // A message must not arrive where the client expects a reply.
        if client.subscriptions.is_none() && client.in_flight > 0 {
            return Served::Waits;
        }
        // As in Redis, CLIENT REPLY does not suppress messages and confirmations.
        client.replies = after_one(client.replies);
        let names: Vec<Box<[u8]>> = match order.spans.len() {
            1 => client.subscriptions.as_mut().map_or(Vec::new(), |all| all.names(command).iter().cloned().collect()),
            _ => order.request(io).iter().skip(1).map(Box::from).collect(),
        };
        if names.is_empty() {
            self.confirm(client, io, order.id, command, None);
        }
        for name in names {
            let limits = &self.config.limits;
            let count = client.subscriptions.as_ref().map_or(0, |all| all.count());
            if command.is_joining() && count >= limits.subscriptions_max {
                self.refuse(client, io, b"ERR too many channels and patterns (see --subscriptions-max)");
            } else if command.is_joining() && client.lasting_bytes + name.len() > limits.client_bytes_max {
                self.refuse(
                    client,
                    io,
                    b"ERR the names of the channels and patterns are too long (see --client-bytes-max)",
                );
            } else {
                self.confirm(client, io, order.id, command, Some(name));
            }
        }
        Served::Done
    }

    /// Sends the request to the nodes of a channel or pattern; the client receives a confirmation once all have confirmed.
    fn confirm(
        &mut self,
        client: &mut Client,
        io: &mut Io<'_>,
        id: CommandId,
        command: Subscription,
        name: Option<Box<[u8]>>,
    ) {
        let is_new = name.as_ref().is_some_and(|name| match command.is_joining() {
            true => client.join(command, name),
            false => client.leave(command, name),
        });
        let subscriptions = client.subscriptions.get_or_insert_default();
        let count = subscriptions.count_for(command);
        let confirmation = Confirmation { command, name: name.clone(), count };
        let number = client.queue.push(WHOLE);
        let at = client.add_gather(Gather::new(number, Joining::Confirmed(confirmation)));
        if let Some(name) = name.filter(|_| is_new) {
            for node in self.nodes_of_name(command, &name) {
                self.ask(client, io, (node, at), id, &[command.word().as_bytes(), &name]);
            }
        }
        self.finish_gather(client, at, io);
    }

    fn nodes_of_name(&mut self, command: Subscription, name: &[u8]) -> Vec<u16> {
        match command {
            // Each node tells of its own keys, also in a cluster.
            _ if name.starts_with(KEYSPACE_EVENTS) => self.node_numbers.clone(),
            Subscription::Subscribe
            | Subscription::Unsubscribe
            | Subscription::Ssubscribe
            | Subscription::Sunsubscribe => vec![self.node_of(name)],
            // A cluster's nodes forward messages to one another.
            Subscription::Psubscribe | Subscription::Punsubscribe if self.cluster.is_some() => vec![self.node_of(b"")],
            Subscription::Psubscribe | Subscription::Punsubscribe => self.node_numbers.clone(),
        }
    }

    /// Sends a request to a node, on the subscriber's reserved connection, as a part of a joined reply.
    fn ask(&mut self, client: &mut Client, io: &mut Io<'_>, (node, at): (u16, u16), id: CommandId, words: &[&[u8]]) {
        let Some(gather) = client.gathers[usize::from(at)].as_mut() else { return };
        let part = gather.add_part(node);
        match self.subscriber_link(client, io, node) {
            Ok(key) => {
                let Some(link) = self.links.get_mut(key) else { return };
                if let Some(mut neighbour) = io.neighbour(link.id) {
                    write_command(neighbour.output(), words);
                }
                let role = Role::Part { gather: at, part };
                link.expect(client, PendingRequest::new(client.key, role, id, 0, self.lp.now_ns()));
                self.counters.sent(node);
            }
            Err(reply) => {
                if let Some(gather) = client.gathers[usize::from(at)].as_mut() {
                    gather.fail(part, &reply);
                }
            }
        }
    }

    fn subscriber_link(&mut self, client: &mut Client, io: &mut Io<'_>, node: u16) -> Result<Key, Vec<u8>> {
        let own = client.subscriptions.as_ref().and_then(|all| all.own.iter().find(|(own, _)| *own == node));
        if let Some((_, link)) = own {
            return Ok(*link);
        }
        let key = self.take_own(client, node, io)?;
        if let Some(link) = self.links.get_mut(key) {
            link.is_subscribed = true;
        }
        client.subscriptions.get_or_insert_default().own.push((node, key));
        Ok(key)
    }

    /// The reply of a confirmation whose parts have all arrived; none for other joined replies.
    pub(super) fn confirmation(&mut self, client: &mut Client, gather: &Gather) -> Option<Vec<u8>> {
        let Joining::Confirmed(confirmation) = &gather.joining else { return None };
        if let Some(failed) = gather.parts.iter().find(|part| part.reply.first() == Some(&b'-')) {
            // The subscription failed: the name is removed.
            if let Some(name) = confirmation.name.as_ref().filter(|_| confirmation.command.is_joining()) {
                client.leave(confirmation.command, name);
            }
            return Some(failed.reply.clone());
        }
        Some(confirmation.written(client.version))
    }

    /// Closes the reserved connections of a client without subscriptions.
    pub(super) fn end_subscriptions(&mut self, client: &mut Client, io: &mut Io<'_>) {
        let Some(subscriptions) = client.subscriptions.take() else { return };
        client.lasting_bytes -= subscriptions.name_bytes();
        for key in subscriptions.connections() {
            if let Some(link) = self.links.get_mut(key) {
                link.owner = Key::NONE;
                link.end = Some(End::Unneeded);
                Connections::abort(io, link.id);
            }
        }
    }

    /// Handles messages and confirmations that a node has sent to a subscriber.
    pub(super) fn receive_messages(&mut self, link: &mut NodeConnection, io: &mut Io<'_>) {
        let mut at = 0;
        loop {
            if link.end.is_some() || self.holds_messages(link, io) {
                break;
            }
            if std::mem::take(&mut link.has_message) {
                let message = std::mem::take(&mut link.partial);
                self.take_message(link, io, &message);
                continue;
            }
            let advanced = link.framer.advance(&io.input()[at..]);
            let Ok(advance) = advanced.inspect_err(|error| self.end_failed(link, &error.to_string(), io)) else {
                break;
            };
            link.partial.extend_from_slice(&io.input()[at..at + advance.consumed]);
            at += advance.consumed;
            link.has_message = advance.is_complete;
            if link.partial.len() > self.config.limits.joined_bytes_max {
                self.end_failed(link, "a message is larger than the proxy may hold", io);
                break;
            }
            if !advance.is_complete {
                break;
            }
        }
        io.consume(at);
        if io.input_ended() {
            self.end_failed(link, "it closed the connection", io);
        }
    }

    /// Whether the subscriber has no room for a message, or is in the middle of a reply.
    fn holds_messages(&mut self, link: &mut NodeConnection, io: &mut Io<'_>) -> bool {
        let Some(client) = self.clients.get_mut(link.owner) else { return false };
        let is_full = Client::is_full(Connections::unsent(io, client.id), &self.config.limits);
        if !is_full && !client.queue.head_has_begun() {
            return false;
        }
        io.pause_input();
        client.holds.push(Hold { connection: link.id, next: None });
        link.is_paused = true;
        if is_full {
            Connections::notify_writable(io, client.id);
        }
        true
    }

    fn take_message(&mut self, link: &mut NodeConnection, io: &mut Io<'_>, message: &[u8]) {
        let mut elements = link.framer.view(message).elements().into_iter().flatten();
        match elements.next() {
            Some(ReplyView::Bulk(b"message" | b"pmessage" | b"smessage")) => {
                return self.give_to_subscriber(link, io, message);
            }
            Some(ReplyView::Bulk(b"sunsubscribe")) if !self.is_asked_to_leave(link) => {
                let name = elements.next().and_then(|name| name.text()).unwrap_or_default();
                return self.slot_has_left(link, io, name);
            }
            _ => {}
        }
        let Some(request) = link.pending.pop_front() else { return };
        if let Role::Handshake(step) = request.role {
            return self.take_whole_step(link, io, step, message);
        }
        let is_error = message.first() == Some(&b'-');
        let took_ns = self.lp.now_ns().saturating_sub(request.sent_ns);
        self.counters.answered(link.node, request.command, took_ns, is_error);
        let Some(mut client) = self.clients.lend(request.client) else { return };
        client.settle(&request);
        if let Role::Part { gather: at, part } = request.role {
            let is_sent_on = is_error && self.ask_elsewhere(link, &mut client, io, &request, (at, message));
            let message = if is_sent_on { SENT_ON } else { message };
            if let Some(gather) = client.gathers.get_mut(usize::from(at)).and_then(Option::as_mut) {
                gather.receive(part, message, true, self.config.limits.joined_bytes_max);
                client.gathered_bytes += message.len();
            }
            self.finish_gather(&mut client, at, io);
        }
        client.progressed(&self.config.limits, self.ledger.is_pressed(), io);
        self.clients.take_back(request.client, client);
    }

    fn give_to_subscriber(&mut self, link: &NodeConnection, io: &mut Io<'_>, message: &[u8]) {
        if let Some(client) = self.clients.get_mut(link.owner)
            && let Some(output) = Connections::output(io, client.id)
        {
            output.extend_from_slice(message);
        }
    }

    /// Whether the next confirmation answers a SUNSUBSCRIBE of the client.
    fn is_asked_to_leave(&self, link: &NodeConnection) -> bool {
        let leaves = |request: &PendingRequest| {
            self.table.get(request.command).handling == Handling::Subscription(Subscription::Sunsubscribe)
        };
        link.pending.front().is_some_and(leaves)
    }

    /// A node has ended the subscription of a sharded channel, whose slot has moved to another node.
    fn slot_has_left(&mut self, link: &NodeConnection, io: &mut Io<'_>, name: &[u8]) {
        if let Some(cluster) = &mut self.cluster {
            cluster.spoil();
        }
        let Some(client) = self.clients.get_mut(link.owner) else { return };
        let command = Subscription::Sunsubscribe;
        if !client.leave(command, name) {
            return;
        }
        let count = client.subscriptions.as_ref().map_or(0, |all| all.count_for(command));
        let confirmation = Confirmation { command, name: Some(name.into()), count }.written(client.version);
        self.give_to_subscriber(link, io, &confirmation);
    }

    /// Subscribes to a sharded channel on the node that its slot has moved to. `false`: the error is no redirection.
    fn ask_elsewhere(
        &mut self,
        link: &NodeConnection,
        client: &mut Client,
        io: &mut Io<'_>,
        request: &PendingRequest,
        (at, error): (u16, &[u8]),
    ) -> bool {
        let Some(gather) = client.gathers.get(usize::from(at)).and_then(Option::as_ref) else { return false };
        let Joining::Confirmed(Confirmation { command, name: Some(name), .. }) = &gather.joining else { return false };
        let (word, name) = (command.word(), name.clone());
        if gather.parts.len() > usize::from(REDIRECTS_MAX) {
            return false;
        }
        let Some(node) = self.moved_to(link, error) else { return false };
        self.ask(client, io, (node, at), request.command, &[word.as_bytes(), &name]);
        true
    }
}
