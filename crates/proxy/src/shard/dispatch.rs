//! Dispatch of a request: its command, and the nodes it goes to.

use std::ops::Range;

use reactor::{ConnectionId, Io, Neighbour};
use resp::codec::{Arguments, ReplyWriter};

use super::Shard;
use super::admission::Served;
use super::client::reply_queue::{WHOLE, written};
use super::client::{Client, Replies, State};
use super::pending::{PendingRequest, Role};
use super::slab::Key;
use crate::commands::{Command, CommandId, CommandRequest, Handling, Local, Span, TransactionCommand};

/// Pause between two lines of the log about clients that speak HTTP.
const HTTP_LOG_PAUSE_NS: u64 = 60_000_000_000;
/// Largest request on a shared connection if its key's node alone serves it. The smallest `proto-max-bulk-len` and
/// `client-query-buffer-limit` of a Redis are 1 MiB: it closes a connection with a larger argument, and others would lose their replies.
const SHARED_REQUEST_BYTES_MAX: usize = 1 << 20;

/// The bytes of a request: in its client's input, or separate.
#[derive(Clone, Debug)]
pub(super) enum Source<'t> {
    Input(Range<usize>),
    Text(&'t [u8]),
}

impl Source<'_> {
    /// The bytes.
    pub(super) fn bytes<'a>(&'a self, io: &'a Io<'_>) -> &'a [u8] {
        match self {
            Source::Input(range) => &io.input()[range.clone()],
            Source::Text(text) => text,
        }
    }

    /// The bytes, together with a node connection.
    #[inline]
    pub(super) fn bytes_and<'a>(&'a self, io: &'a mut Io<'_>, id: ConnectionId) -> Option<(&'a [u8], Neighbour<'a>)> {
        match self {
            Source::Input(range) => {
                io.input_and_neighbour(id).map(|(input, neighbour)| (&input[range.clone()], neighbour))
            }
            Source::Text(text) => io.neighbour(id).map(|neighbour| (*text, neighbour)),
        }
    }
}

/// A request to send: its command, its bytes, and the positions of its arguments.
#[derive(Clone, Debug)]
pub(super) struct Order<'t> {
    pub(super) id: CommandId,
    pub(super) source: Source<'t>,
    pub(super) spans: &'t [Span],
}

impl<'t> Order<'t> {
    /// The request.
    pub(super) fn request<'a>(&'a self, io: &'a Io<'_>) -> CommandRequest<'a> {
        CommandRequest::with_spans(self.source.bytes(io), self.spans)
    }
}

/// The nodes of a request's keys.
pub(super) enum KeyNodes {
    None,
    One(u16),
    Several,
    Malformed,
}

impl Shard {
    /// Fast path of most requests: one key, and a client in no special state. None: the request needs the general
    /// path.
    #[inline]
    pub(super) fn dispatch_plain(
        &mut self,
        client: &mut Client,
        io: &mut Io<'_>,
        range: &Range<usize>,
    ) -> Option<Served> {
        if !client.is_plain() {
            return None;
        }
        let mut arguments = Arguments::of(&io.input()[range.clone()]);
        let id = self.table.find(arguments.next()?)?;
        let command = self.table.get(id);
        let at = command.only_key.filter(|_| command.takes(client.framer.arguments()))?;
        let key = arguments.nth(at - 1)?;
        let node = self.node_of(key);
        if range.len() > SHARED_REQUEST_BYTES_MAX {
            return None;
        }
        Some(match self.link_for(client.pool, node, id, io) {
            Some(to) => self.forward(client, io, &Source::Input(range.clone()), to, id),
            None => self.answer_down(client, io, node),
        })
    }

    pub(super) fn dispatch_from_input(&mut self, client: &mut Client, io: &mut Io<'_>, range: Range<usize>) -> Served {
        let spans = self.spans_of(&io.input()[range.clone()]);
        let served = self.dispatch(client, io, Source::Input(range), &spans);
        self.spans = spans;
        served
    }

    pub(super) fn dispatch_text(&mut self, client: &mut Client, io: &mut Io<'_>, text: &[u8]) -> Served {
        let spans = self.spans_of(text);
        let served = self.dispatch(client, io, Source::Text(text), &spans);
        self.spans = spans;
        served
    }

    /// The general path.
    fn dispatch(&mut self, client: &mut Client, io: &mut Io<'_>, source: Source<'_>, spans: &[Span]) -> Served {
        let request = CommandRequest::with_spans(source.bytes(io), spans);
        if request.is_empty() {
            return Served::Done;
        }
        if request.is_word(0, b"POST") || request.is_word(0, b"HOST:") {
            return self.end_http(client, io);
        }
        let Some(id) = self.table.find_request(&request) else {
            let text = unknown_command(&request);
            return self.reject(client, io, &text);
        };
        let command = self.table.get(id);
        let handling = command.handling;
        if !command.takes(request.len() as u64) {
            let text = format!("ERR wrong number of arguments for '{}' command", command.name);
            if handling == Handling::Transaction(TransactionCommand::Exec) {
                return self.reject_exec(client, io, &text);
            }
            return self.reject(client, io, text.as_bytes());
        }
        if let Some(text) = not_now(client, command) {
            return self.reject(client, io, text.as_bytes());
        }
        let order = Order { id, source, spans };
        if let State::Transaction(_) = client.state {
            return self.in_transaction(client, io, &order, handling);
        }
        self.handle(client, io, &order, handling)
    }

    /// Handles a request by its command's handling, outside transactions.
    pub(super) fn handle(
        &mut self,
        client: &mut Client,
        io: &mut Io<'_>,
        order: &Order<'_>,
        handling: Handling,
    ) -> Served {
        match handling {
            Handling::Keyed => self.send_by_keys(client, io, order),
            Handling::Blocking => self.block(client, io, order),
            Handling::Split(split) => self.split(client, io, order, split),
            Handling::Everywhere(join) => self.send_to_all(client, io, order, join),
            Handling::Scan => self.scan(client, io, order),
            Handling::Publish => {
                let channel = order.request(io).get(1).unwrap_or_default().to_vec();
                let node = self.node_of(&channel);
                self.send_to_node(client, io, order, node)
            }
            Handling::Local(local) => self.local(client, io, order, local),
            Handling::Transaction(transaction) => self.transaction(client, io, order, transaction),
            Handling::Subscription(subscription) => self.subscription(client, io, order, subscription),
            Handling::Refused => {
                let name = &self.table.get(order.id).name;
                let text =
                    format!("ERR '{name}' has no key, and is not a command that the proxy can send to all nodes");
                self.refuse(client, io, text.as_bytes())
            }
        }
    }

    /// The nodes of a request's keys.
    pub(super) fn nodes_of_keys(&mut self, order: &Order<'_>, io: &Io<'_>) -> KeyNodes {
        let request = order.request(io);
        let Ok(keys) = self.table.get(order.id).keys(&request) else { return KeyNodes::Malformed };
        let mut found = KeyNodes::None;
        for key in keys.iter().filter_map(|at| request.get(at)) {
            let node = self.node_of(key);
            match found {
                KeyNodes::None => found = KeyNodes::One(node),
                KeyNodes::One(first) if first == node => {}
                _ => return KeyNodes::Several,
            }
        }
        found
    }

    /// The only node of a request's keys, or an error reply.
    pub(super) fn one_node(&mut self, order: &Order<'_>, io: &Io<'_>) -> Result<u16, String> {
        let nodes = self.nodes_of_keys(order, io);
        let name = &self.table.get(order.id).name;
        match nodes {
            KeyNodes::One(node) => Ok(node),
            KeyNodes::None => Err(format!("ERR '{name}' without a key: the proxy cannot tell which node is meant")),
            KeyNodes::Malformed => Err(format!("ERR the arguments of '{name}' do not show which of them are keys")),
            KeyNodes::Several => Err(format!(
                "ERR the keys of '{name}' are on different nodes: keys with the same tag, as in name{{tag}}, share one"
            )),
        }
    }

    fn send_by_keys(&mut self, client: &mut Client, io: &mut Io<'_>, order: &Order<'_>) -> Served {
        match self.one_node(order, io) {
            Ok(node)
                if order.source.bytes(io).len() > SHARED_REQUEST_BYTES_MAX && matches!(client.state, State::Shared) =>
            {
                self.send_reserved(client, io, order, node, State::Reserved)
            }
            Ok(node) => self.send_to_node(client, io, order, node),
            // A script without keys runs on any node, and any node says what is wrong with the number of keys.
            Err(_) if self.is_script_without_keys(order, io) => {
                let node = self.any_node();
                self.send_to_node(client, io, order, node)
            }
            Err(text) => self.refuse(client, io, text.as_bytes()),
        }
    }

    fn is_script_without_keys(&mut self, order: &Order<'_>, io: &Io<'_>) -> bool {
        let name = &*self.table.get(order.id).name;
        let is_script = matches!(name, "eval" | "eval_ro" | "evalsha" | "evalsha_ro" | "fcall" | "fcall_ro");
        is_script && matches!(self.nodes_of_keys(order, io), KeyNodes::None | KeyNodes::Malformed)
    }

    /// Sends a request to a node, or to a replica of it, on the shared connection.
    pub(super) fn send_to_node(
        &mut self,
        client: &mut Client,
        io: &mut Io<'_>,
        order: &Order<'_>,
        node: u16,
    ) -> Served {
        match self.link_for(client.pool, node, order.id, io) {
            Some(to) => self.forward(client, io, &order.source, to, order.id),
            None => self.answer_down(client, io, node),
        }
    }

    /// Appends a request to a node connection's output, and records the receiver of its reply.
    #[inline]
    pub(super) fn forward(
        &mut self,
        client: &mut Client,
        io: &mut Io<'_>,
        source: &Source<'_>,
        (link, node): (Key, u16),
        command: CommandId,
    ) -> Served {
        let Some(link) = self.links.get_mut(link) else { return self.answer_down(client, io, node) };
        if link.owner == Key::NONE && link.is_full() {
            link.waiting.push(client.key);
            return Served::WaitsForNode;
        }
        let Some((bytes, mut neighbour)) = source.bytes_and(io, link.id) else {
            return self.answer_down(client, io, node);
        };
        neighbour.output().extend_from_slice(bytes);
        let is_cluster = self.cluster.is_some();
        if is_cluster {
            link.copies.push(bytes);
            neighbour.keep(link.copies.held_bytes());
        }
        let role = match client.replies {
            Replies::On => Role::Reply(client.queue.push(node)),
            _ => Role::Dropped,
        };
        let reserved = client.window.reply_bytes();
        self.ledger.reserved_bytes += reserved as usize;
        let copied = if is_cluster { bytes.len() as u32 } else { 0 };
        let request = PendingRequest::new(client.key, role, command, bytes.len(), self.lp.now_ns());
        link.expect(client, PendingRequest { reserved, copied, ..request });
        self.counters.sent(node);
        client.replies = after_one(client.replies);
        Served::Done
    }

    /// Ends a connection on which a browser speaks HTTP, as Redis does: a page of another site could otherwise send commands in the body
    /// of a request. No further command of the connection is executed.
    #[cold]
    fn end_http(&mut self, client: &mut Client, io: &mut Io<'_>) -> Served {
        let now_ns = self.lp.now_ns();
        if self.http_logged_ns.is_none_or(|logged_ns| now_ns.saturating_sub(logged_ns) >= HTTP_LOG_PAUSE_NS) {
            self.http_logged_ns = Some(now_ns);
            let text = "possible attack: a client that speaks HTTP (POST or Host:) was disconnected";
            tracing::warn!(client = %io.peer(), text);
        }
        self.counters.refused.add(1);
        client.close();
        io.abort();
        Served::Done
    }

    /// Answers with an error of the proxy itself.
    #[cold]
    pub(super) fn refuse(&mut self, client: &mut Client, io: &mut Io<'_>, text: &[u8]) -> Served {
        self.counters.refused.add(1);
        self.answer(client, io, |writer| writer.error(text));
        Served::Done
    }

    /// Answers with an error reply.
    #[cold]
    pub(super) fn refuse_with(&mut self, client: &mut Client, io: &mut Io<'_>, reply: &[u8]) -> Served {
        self.counters.refused.add(1);
        self.answer_bytes(client, io, reply);
        Served::Done
    }

    #[cold]
    pub(super) fn answer_down(&mut self, client: &mut Client, io: &mut Io<'_>, node: u16) -> Served {
        let reply = self.unavailable(client.pool, node);
        self.refuse_with(client, io, &reply);
        Served::Done
    }

    /// Answers a request without a node.
    pub(super) fn answer(&mut self, client: &mut Client, io: &mut Io<'_>, write: impl FnOnce(&mut ReplyWriter<'_>)) {
        let reply = written(client.version, write);
        self.answer_bytes(client, io, &reply);
    }

    pub(super) fn answer_bytes(&mut self, client: &mut Client, io: &mut Io<'_>, reply: &[u8]) {
        let replies = client.replies;
        client.replies = after_one(replies);
        if replies != Replies::On {
            return;
        }
        let number = client.queue.push(WHOLE);
        client.queue.answer(number, reply, io.output(), &mut self.buffers);
    }
}

/// CLIENT REPLY SKIP applies to one command.
pub(super) fn after_one(replies: Replies) -> Replies {
    match replies {
        Replies::Off => Replies::Off,
        Replies::On | Replies::SkipNext => Replies::On,
    }
}

/// Why a client may not give this command in its current state.
fn not_now(client: &Client, command: &Command) -> Option<String> {
    use Local::{Auth, Hello, Ping, Quit, Reset};
    let handling = command.handling;
    if !client.is_authenticated && !matches!(handling, Handling::Local(Auth | Hello | Quit | Reset)) {
        return Some("NOAUTH Authentication required.".to_owned());
    }
    let is_listening = matches!(handling, Handling::Subscription(_) | Handling::Local(Ping | Quit | Reset));
    if client.is_subscriber() && !is_listening {
        return Some(format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
            command.name
        ));
    }
    None
}

/// The error text of Redis.
fn unknown_command(request: &CommandRequest<'_>) -> Vec<u8> {
    const NAME_BYTES_MAX: usize = 128;
    let cut = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(NAME_BYTES_MAX)]).into_owned();
    let mut text =
        format!("ERR unknown command '{}', with args beginning with: ", cut(request.get(0).unwrap_or_default()));
    for argument in request.iter().skip(1) {
        if text.len() >= NAME_BYTES_MAX {
            break;
        }
        text.push_str(&format!("'{}' ", cut(argument)));
    }
    text.into_bytes()
}
