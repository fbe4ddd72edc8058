//! MULTI, EXEC, DISCARD, WATCH, UNWATCH: on one node, over a reserved connection.
//!
//! The first key determines the node: that of WATCH, or that of the first command after MULTI. The proxy answers MULTI itself and
//! sends it when the node is known. A command with keys on another node is refused, and EXEC then fails, as in Redis after an
//! invalid command. EXEC also fails after a command that the proxy itself refuses as unknown or malformed. A command without a key that
//! any node answers (PING) is queued on the transaction's node; until the node is known, the proxy holds the command back and answers
//! QUEUED. Between WATCH and MULTI, commands for the watched node use the reserved connection, others use shared ones.

use reactor::Io;
use resp::codec::write_command;

use super::Shard;
use super::admission::Served;
use super::client::transaction_state::TransactionState;
use super::client::{Client, State};
use super::dispatch::{KeyNodes, Order};
use super::pending::{PendingRequest, Role};
use super::slab::Key;
use crate::commands::{CommandId, Handling, Local, TransactionCommand};

/// Largest number of bytes of a client's commands that are held back until the node of its transaction is known.
const HELD_BYTES_MAX: usize = 1024;
const QUEUED: &[u8] = b"+QUEUED\r\n";
const ABORTED_BY: &[u8] = b"-EXECABORT Transaction discarded because of: ";
const ABORTED: &[u8] = b"EXECABORT Transaction discarded because of previous errors.";

impl Shard {
    fn state<'c>(&self, client: &'c mut Client) -> &'c mut TransactionState {
        if !matches!(client.state, State::Transaction(_)) {
            client.state = State::Transaction(Box::default());
        }
        match &mut client.state {
            State::Transaction(state) => state,
            _ => unreachable!("it was set above"),
        }
    }

    /// A command of transactions, from a client that has neither watched keys nor given MULTI.
    pub(super) fn transaction(
        &mut self,
        client: &mut Client,
        io: &mut Io<'_>,
        order: &Order<'_>,
        command: TransactionCommand,
    ) -> Served {
        match command {
            TransactionCommand::Exec => self.refuse(client, io, b"ERR EXEC without MULTI"),
            TransactionCommand::Discard => self.refuse(client, io, b"ERR DISCARD without MULTI"),
            TransactionCommand::Unwatch => self.answer_ok(client, io),
            TransactionCommand::Multi | TransactionCommand::Watch if client.in_flight > 0 => Served::Waits,
            TransactionCommand::Multi => {
                self.state(client).is_open = true;
                self.answer_ok(client, io)
            }
            TransactionCommand::Watch => self.watch(client, io, order),
        }
    }

    fn answer_ok(&mut self, client: &mut Client, io: &mut Io<'_>) -> Served {
        self.answer_bytes(client, io, b"+OK\r\n");
        Served::Done
    }

    fn watch(&mut self, client: &mut Client, io: &mut Io<'_>, order: &Order<'_>) -> Served {
        let node = match self.one_node(order, io) {
            Ok(node) => node,
            Err(text) => return self.refuse(client, io, text.as_bytes()),
        };
        let was_shared = matches!(client.state, State::Shared);
        match self.link_in_transaction(client, io, node) {
            Ok(link) => self.forward(client, io, &order.source, (link, node), order.id),
            Err(reply) => {
                if was_shared {
                    client.state = State::Shared;
                }
                self.refuse_with(client, io, &reply)
            }
        }
    }

    /// The transaction's connection to this node; it is reserved if there is none.
    pub(super) fn link_in_transaction(
        &mut self,
        client: &mut Client,
        io: &mut Io<'_>,
        node: u16,
    ) -> Result<Key, Vec<u8>> {
        match self.state(client).own {
            Some((own, link)) if own == node => Ok(link),
            Some(_) => {
                let text = b"-ERR the keys of WATCH and of a transaction must all be on one node: give them the same tag, as in name{tag}\r\n";
                Err(text.to_vec())
            }
            None => {
                let link = self.take_own(client, node, io)?;
                let state = self.state(client);
                state.own = Some((node, link));
                if state.is_open {
                    let held_bytes = state.held_bytes();
                    let held = std::mem::take(&mut state.held);
                    client.lasting_bytes -= held_bytes;
                    self.send_unasked(client, io, (link, node), &["MULTI"]);
                    for (command, bytes) in held {
                        self.send_answered(client, io, (link, node), command, &bytes);
                    }
                }
                Ok(link)
            }
        }
    }

    /// Sends a command of the proxy itself on a client's connection; its reply is dropped.
    fn send_unasked(&mut self, client: &mut Client, io: &mut Io<'_>, to: (Key, u16), arguments: &[&str]) {
        let Some(command) = self.table.find(arguments[0].as_bytes()) else { return };
        let mut bytes = Vec::new();
        write_command(&mut bytes, arguments);
        self.send_answered(client, io, to, command, &bytes);
    }

    /// Sends a request whose client has its reply already, or gets none: the node's reply is dropped.
    fn send_answered(
        &mut self,
        client: &mut Client,
        io: &mut Io<'_>,
        (link, node): (Key, u16),
        command: CommandId,
        bytes: &[u8],
    ) {
        let Some(link) = self.links.get_mut(link) else { return };
        if let Some(mut neighbour) = io.neighbour(link.id) {
            neighbour.output().extend_from_slice(bytes);
            let sent_ns = self.lp.now_ns();
            link.expect(client, PendingRequest::new(client.key, Role::Dropped, command, bytes.len(), sent_ns));
            self.counters.sent(node);
        }
    }

    /// Any command of a client that has watched keys, or given MULTI.
    pub(super) fn in_transaction(
        &mut self,
        client: &mut Client,
        io: &mut Io<'_>,
        order: &Order<'_>,
        handling: Handling,
    ) -> Served {
        let (is_open, own) = {
            let state = self.state(client);
            (state.is_open, state.own)
        };
        match handling {
            Handling::Transaction(command) => self.in_state(client, io, order, command),
            Handling::Local(Local::Quit | Local::Reset) => self.handle(client, io, order, handling),
            _ if is_open => self.queue_command(client, io, order, handling),
            Handling::Keyed | Handling::Split(_) => match (self.nodes_of_keys(order, io), own) {
                (KeyNodes::One(node), Some((own, link))) if own == node => {
                    self.forward(client, io, &order.source, (link, node), order.id)
                }
                _ => self.handle(client, io, order, handling),
            },
            // It would leave the connection on which keys are watched.
            Handling::Blocking | Handling::Subscription(_) | Handling::Local(Local::Select | Local::Hello) => {
                self.refuse(client, io, b"ERR not allowed between WATCH and EXEC: UNWATCH first")
            }
            _ => self.handle(client, io, order, handling),
        }
    }

    /// A command after MULTI: the node queues it.
    fn queue_command(&mut self, client: &mut Client, io: &mut Io<'_>, order: &Order<'_>, handling: Handling) -> Served {
        if let Some(error) = self.state(client).lost.clone() {
            return self.refuse_with(client, io, &error);
        }
        if self.state(client).is_dirty {
            // As Redis replies: EXEC says that the transaction has failed.
            self.answer_bytes(client, io, QUEUED);
            return Served::Done;
        }
        let link = match self.node_in_transaction(client, io, order, handling) {
            Ok(Some(node)) => self.link_in_transaction(client, io, node).map(|link| (link, node)),
            Ok(None) => return self.hold(client, io, order),
            Err(text) => Err(format!("-{text}\r\n").into_bytes()),
        };
        match link {
            Ok(link) => self.forward(client, io, &order.source, link, order.id),
            Err(reply) => {
                client.fail_transaction();
                self.refuse_with(client, io, &reply)
            }
        }
    }

    /// The node on which a command after MULTI is queued. `None`: any node may queue it, and the transaction has no node yet.
    fn node_in_transaction(
        &mut self,
        client: &mut Client,
        io: &Io<'_>,
        order: &Order<'_>,
        handling: Handling,
    ) -> Result<Option<u16>, String> {
        let own = self.state(client).own.map(|(node, _)| node);
        let database = i64::from(self.pools[usize::from(client.pool)].database);
        match handling {
            Handling::Local(Local::Ping | Local::Echo | Local::Time | Local::Command) => Ok(own),
            Handling::Transaction(TransactionCommand::Unwatch) => Ok(own),
            Handling::Local(Local::Select) if order.request(io).number(1) == Some(database) => Ok(own),
            Handling::Publish => Ok(order.request(io).get(1).map(|channel| self.node_of(channel))),
            Handling::Keyed if own.is_some() && matches!(self.nodes_of_keys(order, io), KeyNodes::None) => Ok(own),
            Handling::Keyed | Handling::Blocking | Handling::Split(_) => self.one_node(order, io).map(Some),
            _ => {
                let name = &self.table.get(order.id).name;
                Err(format!("ERR '{name}' inside MULTI is not supported by the proxy"))
            }
        }
    }

    /// Holds a command that any node may queue back until the first key names the node.
    fn hold(&mut self, client: &mut Client, io: &mut Io<'_>, order: &Order<'_>) -> Served {
        let bytes: Box<[u8]> = order.source.bytes(io).into();
        let state = self.state(client);
        if state.held_bytes() + bytes.len() > HELD_BYTES_MAX {
            return self.reject(client, io, b"ERR give a command with a key before more commands without one");
        }
        let held_bytes = bytes.len();
        state.held.push((order.id, bytes));
        client.lasting_bytes += held_bytes;
        self.answer_bytes(client, io, QUEUED);
        Served::Done
    }

    /// EXEC after commands without any key: any node executes them.
    fn execute_anywhere(&mut self, client: &mut Client, io: &mut Io<'_>, order: &Order<'_>) -> Served {
        let node = self.any_node();
        match self.link_in_transaction(client, io, node) {
            Ok(_) => self.end(client, io, order, b"*0\r\n"),
            Err(reply) => {
                self.leave_transaction(client, State::Shared);
                self.refuse_with(client, io, &reply)
            }
        }
    }

    /// A command of transactions, from a client that has watched keys, or given MULTI.
    fn in_state(
        &mut self,
        client: &mut Client,
        io: &mut Io<'_>,
        order: &Order<'_>,
        command: TransactionCommand,
    ) -> Served {
        let state = self.state(client);
        match (command, state.is_open) {
            (TransactionCommand::Multi, true) => self.refuse(client, io, b"ERR MULTI calls can not be nested"),
            (TransactionCommand::Watch, true) => self.refuse(client, io, b"ERR WATCH inside MULTI is not allowed"),
            (TransactionCommand::Watch, false) => self.watch(client, io, order),
            (TransactionCommand::Multi, false) => {
                state.is_open = true;
                match state.own {
                    Some((node, link)) => self.forward(client, io, &order.source, (link, node), order.id),
                    None => self.answer_ok(client, io),
                }
            }
            (TransactionCommand::Exec, false) => self.refuse(client, io, b"ERR EXEC without MULTI"),
            (TransactionCommand::Discard, false) => self.refuse(client, io, b"ERR DISCARD without MULTI"),
            // It has no effect after MULTI; the node queues it like any other command.
            (TransactionCommand::Unwatch, true) => {
                self.queue_command(client, io, order, Handling::Transaction(TransactionCommand::Unwatch))
            }
            (TransactionCommand::Exec, true) if state.is_dirty => self.fail_transaction(client, io),
            (TransactionCommand::Exec, true) if !state.held.is_empty() => self.execute_anywhere(client, io, order),
            (TransactionCommand::Exec, true) => self.end(client, io, order, b"*0\r\n"),
            (TransactionCommand::Discard, true) | (TransactionCommand::Unwatch, false) => {
                self.end(client, io, order, b"+OK\r\n")
            }
        }
    }

    /// Ends the transaction: the command goes to the node; if there is none, `reply` is the answer.
    fn end(&mut self, client: &mut Client, io: &mut Io<'_>, order: &Order<'_>, reply: &[u8]) -> Served {
        match self.state(client).own {
            Some((node, link)) => {
                self.leave_transaction(client, State::Reserved(link));
                self.forward(client, io, &order.source, (link, node), order.id)
            }
            None => {
                self.leave_transaction(client, State::Shared);
                self.answer_bytes(client, io, reply);
                Served::Done
            }
        }
    }

    fn leave_transaction(&mut self, client: &mut Client, to: State) {
        client.lasting_bytes -= self.state(client).held_bytes();
        client.state = to;
    }

    /// Ends the transaction without a reply to the client, whose commands are all answered.
    pub(super) fn end_transaction(&mut self, client: &mut Client, io: &mut Io<'_>) {
        if let Some((_, link)) = self.state(client).own
            && let Some(link) = self.links.get_mut(link)
        {
            link.owner = Key::NONE;
            link.end = Some(super::node_connection::End::Unneeded);
            super::connections::Connections::abort(io, link.id);
        }
        self.leave_transaction(client, State::Shared);
    }

    /// Answers EXEC after a refused command, or a lost connection: nothing of the transaction is executed.
    fn fail_transaction(&mut self, client: &mut Client, io: &mut Io<'_>) -> Served {
        let lost = self.state(client).lost.take();
        self.discard(client, io);
        match lost.as_deref().and_then(|error| error.strip_prefix(b"-ERR ")) {
            Some(reason) => self.refuse_with(client, io, &[ABORTED_BY, reason].concat()),
            None => self.refuse(client, io, ABORTED),
        }
    }

    /// Ends the transaction, also on its node.
    fn discard(&mut self, client: &mut Client, io: &mut Io<'_>) {
        match self.state(client).own {
            Some((node, link)) => {
                self.send_unasked(client, io, (link, node), &["DISCARD"]);
                self.leave_transaction(client, State::Reserved(link));
            }
            None => self.leave_transaction(client, State::Shared),
        }
    }

    /// Refuses a request that is no command. After MULTI, EXEC then fails.
    #[cold]
    pub(super) fn reject(&mut self, client: &mut Client, io: &mut Io<'_>, text: &[u8]) -> Served {
        client.fail_transaction();
        self.refuse(client, io, text)
    }

    /// Refuses a malformed EXEC, which ends the transaction, as in Redis.
    #[cold]
    pub(super) fn reject_exec(&mut self, client: &mut Client, io: &mut Io<'_>, text: &str) -> Served {
        if matches!(&client.state, State::Transaction(state) if state.is_open) {
            self.discard(client, io);
        }
        let reason = text.strip_prefix("ERR ").unwrap_or(text);
        self.refuse(client, io, format!("EXECABORT Transaction discarded because of: {reason}").as_bytes())
    }
}

impl Client {
    /// A command was refused: after MULTI, EXEC will fail.
    pub(super) fn fail_transaction(&mut self) {
        if let State::Transaction(state) = &mut self.state {
            state.is_dirty |= state.is_open;
        }
    }
}
