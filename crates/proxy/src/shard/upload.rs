//! Requests that are too large to be held whole: they are passed on while they arrive.
//!
//! On a shared connection such a request would make all others wait for a slow client. It is therefore sent on a reserved
//! connection, or on that of the client's transaction, once nothing else of the client is in flight. Its key must be among the
//! arguments that have arrived. Split commands (such as MSET) have keys further back: they are refused. The bytes of a refused request
//! are dropped while they arrive: a client whose connection were closed meanwhile would not see the error.

use std::ops::Range;

use reactor::Io;

use super::Shard;
use super::client::{Client, Front, Reading, Replies, State};
use super::connections::Connections;
use super::dispatch::after_one;
use super::pending::{PendingRequest, Role};
use super::slab::Key;
use crate::commands::{CommandId, CommandRequest};

impl Shard {
    /// Begins to pass on the request whose front is at this place of the input. `false`: it must wait.
    pub(super) fn begin_upload(&mut self, client: &mut Client, io: &mut Io<'_>, range: Range<usize>) -> bool {
        if client.in_flight > 0 && !matches!(client.state, State::Transaction(_)) {
            self.wait(client, Reading::WaitsForAnswers, io);
            return false;
        }
        let found = self.node_of_front(client, &io.input()[range.clone()]);
        match self.upload_target(client, io, found) {
            Ok((connection, command)) => {
                if matches!(client.state, State::Shared) {
                    client.state = State::Reserved(connection);
                }
                self.expect_upload(client, connection, command);
                client.front = Front::Upload(Some(connection));
                self.append(connection, io, range);
            }
            Err(reply) => {
                client.fail_transaction();
                self.refuse_with(client, io, &reply);
                client.front = Front::Upload(None);
            }
        }
        true
    }

    /// The connection for a large request whose front has arrived, and its command; or the error reply.
    fn upload_target(
        &mut self,
        client: &mut Client,
        io: &mut Io<'_>,
        found: Option<(CommandId, u16)>,
    ) -> Result<(Key, CommandId), Vec<u8>> {
        if !client.is_authenticated {
            return Err(b"-NOAUTH Authentication required.\r\n".to_vec());
        }
        let Some((command, node)) = found.filter(|_| !client.is_subscriber()) else {
            let most = self.config.limits.request_bytes_max;
            return Err(format!(
                "-ERR the request is larger than {most} bytes (see --request-bytes-max), and has no single key at its front\r\n"
            )
            .into_bytes());
        };
        let connection = match &client.state {
            State::Transaction(state) if state.is_dirty => Err(b"-ERR the transaction has failed already\r\n".to_vec()),
            State::Transaction(_) => self.link_in_transaction(client, io, node),
            _ => self.take_own(client, node, io),
        };
        connection.map(|connection| (connection, command))
    }

    /// The command and the node of a request whose front has arrived.
    fn node_of_front(&mut self, client: &Client, front: &[u8]) -> Option<(CommandId, u16)> {
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

    fn expect_upload(&mut self, client: &mut Client, connection: Key, command: CommandId) {
        let Some(link) = self.links.get_mut(connection) else { return };
        let role = match client.replies {
            Replies::On => Role::Reply(client.queue.push(link.node)),
            _ => Role::Dropped,
        };
        client.replies = after_one(client.replies);
        link.expect(client, PendingRequest::new(client.key, role, command, 0, self.lp.now_ns()));
        self.counters.sent(link.node);
    }

    /// Copies a part of the input to a node connection.
    fn append(&mut self, connection: Key, io: &mut Io<'_>, range: Range<usize>) {
        if let Some(link) = self.links.get_mut(connection)
            && let Some((input, mut neighbour)) = io.input_and_neighbour(link.id)
        {
            neighbour.output().extend_from_slice(&input[range]);
        }
    }

    /// Passes on the bytes of a large request that have arrived since. Returns their number; 0 if there are none, or no room for
    /// them.
    pub(super) fn pass_on(&mut self, client: &mut Client, io: &mut Io<'_>, to: Option<Key>, at: usize) -> usize {
        if let Some(connection) = to {
            let Some(link) = self.links.get_mut(connection) else {
                io.abort();
                return 0;
            };
            let id = link.id;
            // The node's silence counts from the last byte on.
            link.active_ns = self.lp.now_ns();
            if Connections::unsent(io, id) > self.config.limits.client_bytes_max {
                self.wait(client, Reading::WaitsForNode, io);
                Connections::notify_writable(io, id);
                return 0;
            }
        }
        client.reading = Reading::On;
        match client.framer.advance(&io.input()[at..]) {
            Ok(advance) => {
                if advance.is_complete {
                    client.front = Front::Arriving(0);
                }
                if let Some(connection) = to {
                    self.append(connection, io, at..at + advance.consumed);
                }
                advance.consumed
            }
            Err(_) => {
                // The node has received half a request: neither connection can continue.
                io.abort();
                0
            }
        }
    }
}
