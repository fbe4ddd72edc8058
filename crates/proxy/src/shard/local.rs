//! Commands that the proxy answers: they concern the client's state, which is kept here because node connections are shared, or the
//! proxy itself, which answers while nodes are down. COMMAND is sent to a node.

use std::time::{SystemTime, UNIX_EPOCH};

use reactor::Io;
use resp::codec::ProtocolVersion;
use subtle::ConstantTimeEq;

use super::Shard;
use super::admission::Served;
use super::client::{Client, Replies, State};
use super::dispatch::Order;
use super::gather::Joining;
use crate::commands::{CommandRequest, Join, Local};
use crate::metrics::LoopCounters;

/// The server version in the reply to HELLO: the version whose commands the proxy knows.
const REDIS_VERSION: &str = "7.0.15";
/// Largest name of a client, in bytes.
const NAME_BYTES_MAX: usize = 1024;
const NO_PASSWORD: &[u8] = b"ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration \
is correct?";
const WRONG_PASSWORD: &[u8] = b"WRONGPASS invalid username-password pair or user is disabled.";
const DEFAULT_USER: &[u8] = b"default";

/// Options of HELLO other than the protocol.
#[derive(Default)]
struct HelloOptions<'r> {
    login: Option<(&'r [u8], &'r [u8])>,
    name: Option<&'r [u8]>,
}

impl Shard {
    pub(super) fn local(&mut self, client: &mut Client, io: &mut Io<'_>, order: &Order<'_>, command: Local) -> Served {
        match command {
            Local::Auth => self.auth(client, io, order),
            Local::Client => self.client(client, io, order),
            Local::Command => self.send_to_any(client, io, order),
            Local::Echo => {
                let text = order.request(io).get(1).unwrap_or_default().to_vec();
                self.answer(client, io, |writer| writer.bulk(&text));
                Served::Done
            }
            Local::Hello => self.hello(client, io, order),
            Local::Info => self.info(client, io, order),
            Local::Ping => self.ping(client, io, order),
            Local::Quit => {
                self.answer_bytes(client, io, b"+OK\r\n");
                client.close();
                Served::Done
            }
            Local::Reset => self.reset(client, io),
            Local::Select => self.select(client, io, order),
            Local::Time => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                self.answer(client, io, |writer| {
                    writer.array(2);
                    writer.bulk(now.as_secs().to_string().as_bytes());
                    writer.bulk(now.subsec_micros().to_string().as_bytes());
                });
                Served::Done
            }
        }
    }

    /// Sends a request that any node answers in the same way.
    fn send_to_any(&mut self, client: &mut Client, io: &mut Io<'_>, order: &Order<'_>) -> Served {
        let node = self.any_node();
        self.send_to_node(client, io, order, node)
    }

    /// A node that is up, if there is one.
    pub(super) fn any_node(&self) -> u16 {
        let now_ns = self.lp.now_ns();
        let up = self.node_numbers.iter().find(|node| self.nodes[usize::from(**node)].may_try(now_ns));
        up.or(self.node_numbers.first()).copied().unwrap_or_default()
    }

    fn ping(&mut self, client: &mut Client, io: &mut Io<'_>, order: &Order<'_>) -> Served {
        let request = order.request(io);
        if request.len() > 2 {
            return self.refuse(client, io, b"ERR wrong number of arguments for 'ping' command");
        }
        let text = request.get(1).map(<[u8]>::to_vec);
        let is_subscriber = client.is_subscriber();
        self.answer(client, io, |writer| match text {
            text if is_subscriber => {
                writer.array(2);
                writer.bulk(b"pong");
                writer.bulk(&text.unwrap_or_default());
            }
            Some(text) => writer.bulk(&text),
            None => writer.simple("PONG"),
        });
        Served::Done
    }

    /// INFO: the proxy's own, with a section on the nodes. The section `server` alone is that of all nodes: `reshard` recognises them by it.
    fn info(&mut self, client: &mut Client, io: &mut Io<'_>, order: &Order<'_>) -> Served {
        let request = order.request(io);
        if request.len() == 2 && request.is_word(1, b"server") {
            return self.send_to_all(client, io, order, Join::Texts);
        }
        let is_all = |at: usize| ["default", "all", "everything"].iter().any(|all| request.is_word(at, all.as_bytes()));
        let is_wanted = |section: &str| {
            request.len() == 1 || (1..request.len()).any(|at| is_all(at) || request.is_word(at, section.as_bytes()))
        };
        let sum = |of: fn(&LoopCounters) -> u64| self.all_counters.iter().map(|counters| of(counters)).sum::<u64>();
        let answered = |counters: &LoopCounters| counters.nodes.iter().map(|node| node.requests.answered.get()).sum();
        let is_down =
            |node: u16| self.all_counters.iter().any(|counters| counters.nodes[usize::from(node)].is_down.get() > 0);
        let down = self.node_numbers.iter().filter(|node| is_down(**node)).count();
        let mut nodes = format!("nodes:{}\r\nnodes_down:{down}\r\n", self.node_numbers.len());
        for (place, node) in self.node_numbers.iter().enumerate() {
            let state = if is_down(*node) { "down" } else { "up" };
            let name = &self.nodes[usize::from(*node)].config.name;
            nodes.push_str(&format!("node{place}:name={name},state={state}\r\n"));
        }
        let clients = sum(|counters| counters.clients.get());
        let texts = [
            (
                "Server",
                format!(
                    "redis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nprocess_id:{}\r\n",
                    std::process::id()
                ),
            ),
            ("Clients", format!("connected_clients:{clients}\r\n")),
            ("Persistence", "loading:0\r\n".to_owned()),
            ("Stats", format!("total_commands_processed:{}\r\n", sum(answered))),
            ("Replication", "role:master\r\nconnected_slaves:0\r\n".to_owned()),
            ("Nodes", nodes),
        ];
        let wanted = texts.iter().filter(|(section, _)| is_wanted(section));
        let text = wanted.map(|(section, text)| format!("# {section}\r\n{text}")).collect::<Vec<_>>().join("\r\n");
        let version = client.version;
        self.answer(client, io, |writer| match version {
            ProtocolVersion::Resp3 => writer.verbatim(*b"txt", text.as_bytes()),
            ProtocolVersion::Resp2 => writer.bulk(text.as_bytes()),
        });
        Served::Done
    }

    /// Whether a user name and a password are valid.
    fn opens(&self, user: &[u8], password: &[u8]) -> bool {
        let expected = self.config.password.as_ref().map(|password| password.0.as_bytes());
        user == DEFAULT_USER && expected.is_none_or(|expected| bool::from(expected.ct_eq(password)))
    }

    fn auth(&mut self, client: &mut Client, io: &mut Io<'_>, order: &Order<'_>) -> Served {
        let request = order.request(io);
        let (user, password) = match (request.get(1), request.get(2), request.len()) {
            (Some(password), None, _) if self.config.password.is_some() => (DEFAULT_USER, password),
            (Some(_), None, _) => return self.refuse(client, io, NO_PASSWORD),
            (Some(user), Some(password), 3) => (user, password),
            _ => return self.refuse(client, io, b"ERR syntax error"),
        };
        if !self.opens(user, password) {
            return self.refuse(client, io, WRONG_PASSWORD);
        }
        client.is_authenticated = true;
        self.answer_bytes(client, io, b"+OK\r\n");
        Served::Done
    }

    fn hello(&mut self, client: &mut Client, io: &mut Io<'_>, order: &Order<'_>) -> Served {
        if client.in_flight > 0 {
            return Served::Waits;
        }
        let request = order.request(io);
        let version = match request.get(1).map(|_| request.number(1)) {
            None => client.version,
            Some(Some(2)) => ProtocolVersion::Resp2,
            Some(Some(3)) => ProtocolVersion::Resp3,
            Some(Some(_)) => return self.refuse(client, io, b"NOPROTO unsupported protocol version"),
            Some(None) => return self.refuse(client, io, b"ERR Protocol version is not an integer or out of range"),
        };
        let Some(options) = hello_options(&request) else {
            return self.refuse(client, io, b"ERR Syntax error in HELLO option");
        };
        if let Some(problem) = options.name.and_then(name_problem) {
            return self.refuse(client, io, problem);
        }
        if let Some((user, password)) = options.login {
            if !self.opens(user, password) {
                return self.refuse(client, io, WRONG_PASSWORD);
            }
            client.is_authenticated = true;
        }
        if !client.is_authenticated {
            let text = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> \
                        option can be used to authenticate the client and select the RESP protocol version at the same time";
            return self.refuse(client, io, text.as_bytes());
        }
        if let Some(name) = options.name {
            client.set_name(name);
        }
        let database = self.pools[usize::from(client.pool)].database;
        if !self.move_to_pool(client, version, database) {
            return self.refuse(client, io, b"ERR too many databases are in use");
        }
        self.answer_hello(client, io);
        Served::Done
    }

    fn answer_hello(&mut self, client: &mut Client, io: &mut Io<'_>) {
        let (id, version) = (client.number as i64, client.version);
        self.answer(client, io, |writer| {
            writer.map(7);
            writer.bulk(b"server");
            writer.bulk(b"redis");
            writer.bulk(b"version");
            writer.bulk(REDIS_VERSION.as_bytes());
            writer.bulk(b"proto");
            writer.integer(if version == ProtocolVersion::Resp3 { 3 } else { 2 });
            writer.bulk(b"id");
            writer.integer(id);
            writer.bulk(b"mode");
            writer.bulk(b"standalone");
            writer.bulk(b"role");
            writer.bulk(b"master");
            writer.bulk(b"modules");
            writer.array(0);
        });
    }

    /// Moves a client, whose commands are all answered, to the connections of another protocol or database.
    fn move_to_pool(&mut self, client: &mut Client, version: ProtocolVersion, database: u32) -> bool {
        let Some(pool) = self.pool(version, database) else { return false };
        (client.pool, client.version) = (pool, version);
        true
    }

    fn select(&mut self, client: &mut Client, io: &mut Io<'_>, order: &Order<'_>) -> Served {
        if client.in_flight > 0 {
            return Served::Waits;
        }
        let Some(database) = order.request(io).number(1) else {
            return self.refuse(client, io, b"ERR invalid DB index");
        };
        let Ok(database) = u32::try_from(database) else {
            return self.refuse(client, io, b"ERR DB index is out of range");
        };
        if database >= self.databases {
            // A node knows whether it exists. Its reply is joined, so that `Shard::selected` sees it.
            return self.ask_database(client, io, order, database);
        }
        match self.move_to_pool(client, client.version, database) {
            true => self.answer_bytes(client, io, b"+OK\r\n"),
            false => return self.refuse(client, io, b"ERR too many databases are in use"),
        }
        Served::Done
    }

    /// Asks a node for a database that no client of the loop has used, over a reserved connection.
    fn ask_database(&mut self, client: &mut Client, io: &mut Io<'_>, order: &Order<'_>, database: u32) -> Served {
        let node = self.any_node();
        let link = match self.take_own(client, node, io) {
            Ok(link) => link,
            Err(reply) => return self.refuse_with(client, io, &reply),
        };
        client.state = State::Reserved(link);
        self.send_joined(client, io, order, Joining::Selected(database), (link, node));
        Served::Done
    }

    /// A node has answered SELECT of a database.
    pub(super) fn selected(&mut self, client: &mut Client, database: u32, reply: &[u8]) {
        if reply.first() == Some(&b'+') && self.move_to_pool(client, client.version, database) {
            self.databases = self.databases.max(database + 1);
        }
    }

    /// RESET: puts the client in the state of a new connection.
    fn reset(&mut self, client: &mut Client, io: &mut Io<'_>) -> Served {
        if client.in_flight > 0 {
            return Served::Waits;
        }
        self.end_subscriptions(client, io);
        client.replies = Replies::On;
        client.is_authenticated = self.config.password.is_none();
        client.set_name(&[]);
        if let State::Transaction(_) = client.state {
            self.end_transaction(client, io);
        }
        self.move_to_pool(client, ProtocolVersion::Resp2, self.config.database);
        self.answer_bytes(client, io, b"+RESET\r\n");
        Served::Done
    }

    fn client(&mut self, client: &mut Client, io: &mut Io<'_>, order: &Order<'_>) -> Served {
        let request = order.request(io);
        let word = |word: &[u8]| request.is_word(1, word);
        let switch = |word: &[u8]| request.is_word(2, word) && request.len() == 3;
        match () {
            () if word(b"SETNAME") => {
                let name = request.get(2).unwrap_or_default();
                if let Some(problem) = name_problem(name) {
                    return self.refuse(client, io, problem);
                }
                client.set_name(name);
                self.answer_bytes(client, io, b"+OK\r\n");
            }
            () if word(b"GETNAME") => {
                let name = client.name.clone();
                self.answer(client, io, |writer| if name.is_empty() { writer.null() } else { writer.bulk(&name) });
            }
            () if word(b"ID") => {
                let id = client.number as i64;
                self.answer(client, io, |writer| writer.integer(id));
            }
            () if word(b"SETINFO") || word(b"NO-EVICT") || word(b"NO-TOUCH") => {
                self.answer_bytes(client, io, b"+OK\r\n");
            }
            () if word(b"REPLY") && switch(b"ON") => {
                client.replies = Replies::On;
                self.answer_bytes(client, io, b"+OK\r\n");
            }
            () if word(b"REPLY") && switch(b"OFF") => client.replies = Replies::Off,
            () if word(b"REPLY") && switch(b"SKIP") => {
                if client.replies == Replies::On {
                    client.replies = Replies::SkipNext;
                }
            }
            () if word(b"TRACKING") || word(b"CACHING") => {
                let text = "ERR CLIENT TRACKING is not supported: clients share node connections, and a node would send the news of one \
                            client's keys to all of them";
                return self.refuse(client, io, text.as_bytes());
            }
            () => {
                let text =
                    "ERR the proxy knows of CLIENT only SETNAME, GETNAME, ID, SETINFO, REPLY, NO-EVICT and NO-TOUCH";
                return self.refuse(client, io, text.as_bytes());
            }
        }
        Served::Done
    }
}

/// Why this may not be a client's name.
fn name_problem(name: &[u8]) -> Option<&'static [u8]> {
    if name.iter().any(|byte| !(b'!'..=b'~').contains(byte)) {
        return Some(b"ERR Client names cannot contain spaces, newlines or special characters.");
    }
    (name.len() > NAME_BYTES_MAX).then_some(b"ERR Client names have at most 1024 bytes.")
}

/// The options after HELLO's version; none if they are malformed.
fn hello_options<'r>(request: &CommandRequest<'r>) -> Option<HelloOptions<'r>> {
    let (mut options, mut at) = (HelloOptions::default(), 2);
    while at < request.len() {
        match () {
            () if request.is_word(at, b"AUTH") => {
                options.login = Some((request.get(at + 1)?, request.get(at + 2)?));
                at += 3;
            }
            () if request.is_word(at, b"SETNAME") => {
                options.name = Some(request.get(at + 1)?);
                at += 2;
            }
            () => return None,
        }
    }
    Some(options)
}
