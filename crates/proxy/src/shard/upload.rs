//! Requests that are too large to be held whole: they are forwarded while they arrive.
//!
//! On a shared connection such a request would make all others wait for a slow client. It is therefore sent on a reserved
//! connection, once all earlier commands are answered. Its key must be among the arguments that have arrived. Split commands
//! (such as MSET) have keys further back: they are refused.

use reactor::Io;

use super::Shard;
use super::client::reply_queue::WHOLE;
use super::client::{Client, Mode, Replies, Waits};
use super::dispatch::after_one;
use super::expected::{Expected, Role};
use super::gather::{Gather, Joining};
use super::slab::Key;
use super::wires::Wires;
use crate::commands::{CommandId, CommandRequest};

impl Shard {
    /// Begins to forward a request at this offset of the input, which is larger than may be held. Returns the number of bytes
    /// forwarded.
    pub(super) fn begin_stream(&mut self, client: &mut Client, io: &mut Io<'_>, at: usize) -> usize {
        if !client.queue.is_empty() {
            self.wait(client, Waits::Empty, io);
            return 0;
        }
        let range = at..at + client.scanned;
        let Some((id, node)) = self.node_of_front(client, &io.input()[range.clone()]) else {
            let text = format!(
                "ERR the request is larger than {} bytes (see --request-bytes-max), and has no single key at its front",
                self.config.limits.request_bytes_max
            );
            self.refuse(client, io, text.as_bytes());
            client.ends = true;
            return 0;
        };
        let link = match client.transaction_link(node) {
            Some(Some(link)) => Ok(link),
            Some(None) => Err(b"-ERR a request as large as this cannot be the first of a transaction\r\n".to_vec()),
            None => self.take_own(client, node, io),
        };
        match link {
            Ok(link) => {
                if matches!(client.mode, Mode::Plain) {
                    client.mode = Mode::Own(link);
                }
                self.expect_stream(client, link, id);
                client.stream = Some(link);
                let bytes = self.append(link, io, range);
                client.scanned = 0;
                bytes
            }
            Err(reply) => {
                self.answer_bytes(client, io, &reply);
                client.ends = true;
                0
            }
        }
    }

    /// The command and the node of a request whose front has arrived.
    fn node_of_front(&mut self, client: &Client, front: &[u8]) -> Option<(CommandId, u16)> {
        if !client.is_authenticated || client.is_subscriber() {
            return None;
        }
        let spans = self.spans_of(front);
        let request = CommandRequest::with_spans(front, &spans);
        let found = self.table.find_request(&request).and_then(|id| {
            let command = self.table.get(id);
            let key = request.get(command.only_key?)?;
            command.takes(client.framer.arguments()).then_some((id, key))
        });
        let found = found.map(|(id, key)| (id, self.node_of(key)));
        self.spans = spans;
        found
    }

    fn expect_stream(&mut self, client: &mut Client, link: Key, command: CommandId) {
        let Some(link) = self.links.get_mut(link) else { return };
        let role = match client.replies {
            Replies::On => Role::Reply(client.queue.push(link.node)),
            _ => {
                let mut gather = Gather::new(client.queue.push(WHOLE), Joining::Nothing);
                let part = gather.add_part(link.node);
                Role::Part { gather: client.add_gather(gather), part }
            }
        };
        client.replies = after_one(client.replies);
        let expected = Expected {
            client: client.key,
            role,
            command,
            bytes: 0,
            reserved: 0,
            copied: 0,
            redirects: 0,
            sent_ns: self.lp.now_ns(),
        };
        link.expected.push_back(expected);
        self.counters.sent(link.node);
    }

    /// Copies a part of the input to a node connection. Returns the number of bytes.
    fn append(&mut self, link: Key, io: &mut Io<'_>, range: std::ops::Range<usize>) -> usize {
        let bytes = range.len();
        if let Some(link) = self.links.get_mut(link)
            && let Some((input, mut neighbour)) = io.input_and_neighbour(link.id)
        {
            neighbour.output().extend_from_slice(&input[range]);
        }
        bytes
    }

    /// Forwards the bytes that have arrived since. Returns their number; 0 if there are none, or no room for them.
    pub(super) fn pass_on(&mut self, client: &mut Client, io: &mut Io<'_>, at: usize) -> usize {
        let Some(key) = client.stream else { return 0 };
        let Some(link) = self.links.get_mut(key) else {
            io.abort();
            return 0;
        };
        let id = link.id;
        if Wires::unsent(io, id) > self.config.limits.client_bytes_max {
            client.is_paused = true;
            io.pause_input();
            Wires::notify_writable(io, id);
            return 0;
        }
        match client.framer.advance(&io.input()[at..]) {
            Ok(advance) => {
                if advance.is_complete {
                    client.stream = None;
                }
                self.append(key, io, at..at + advance.consumed)
            }
            Err(_) => {
                // The node has received half a request: neither connection can continue.
                io.abort();
                0
            }
        }
    }
}
