//! Random clients before random nodes: clients that pipeline, read slowly, hang, reset, subscribe; nodes that are killed, stopped, slow,
//! or close their connections.
//!
//! Each client has keys of its own, and a model of what they may hold. A reply is right if the model permits it, or if it is an error
//! that names the key's node. The proxy runs in a process of its own, so that the kernel's count of its memory is that of the proxy
//! alone. `cargo xtask campaign proxy` runs it for an hour.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use proxy::config::ProxyConfig;
use proxy::placement::Placement;
use rand::prelude::*;
use rand_chacha::ChaCha8Rng;

use crate::nodes::{Plain, Program, eventually, is_there, key_of};

const NODES: usize = 3;
const CLIENTS: u64 = 12;
const KEYS: usize = 12;
/// Passed to the process of the proxy: the nodes' addresses.
const NODES_VARIABLE: &str = "PROXY_CAMPAIGN_NODES";
/// The setting of the proxy's memory.
const TOTAL_BYTES_MAX: usize = 64 << 20;
/// The process itself, and what its allocator keeps.
const MEMORY_BESIDE: u64 = 64 << 20;
/// Longest stop of a node, longer than the proxy waits for a reply.
const STOP_MS_MAX: u64 = 1500;
const NODE_TIMEOUT: Duration = Duration::from_millis(700);
/// Each value whose number is a multiple of this is large.
const LARGE_EACH: u64 = 50;
/// How long a request that was lost may still be executed: it lies in the socket of a stopped node.
const LATE_MAX: Duration = Duration::from_secs(10);

/// The nodes, and the number of times that each was killed, and thereby lost its data.
struct Nodes {
    programs: Vec<Mutex<Option<Program>>>,
    addresses: Vec<SocketAddr>,
    kills: Vec<AtomicU64>,
}

impl Nodes {
    fn start() -> Nodes {
        let programs: Vec<Program> = (0..NODES).map(|_| Program::redis()).collect();
        Nodes {
            addresses: programs.iter().map(|node| node.address).collect(),
            programs: programs.into_iter().map(|node| Mutex::new(Some(node))).collect(),
            kills: (0..NODES).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn kills(&self, node: usize) -> u64 {
        self.kills[node].load(Ordering::SeqCst)
    }

    /// Lets one fault happen to a node, and repairs it.
    fn harm(&self, random: &mut ChaCha8Rng) {
        let node = random.random_range(0..NODES);
        let mut program = self.programs[node].lock().unwrap();
        match random.random_range(0..4) {
            0 => {
                self.kills[node].fetch_add(1, Ordering::SeqCst);
                let port = program.take().unwrap().kill();
                std::thread::sleep(Duration::from_millis(random.random_range(0..STOP_MS_MAX)));
                *program = Some(std::iter::repeat_with(|| Program::try_redis_at(port, &[])).flatten().next().unwrap());
            }
            1 => {
                program.as_ref().unwrap().signal("STOP");
                std::thread::sleep(Duration::from_millis(random.random_range(0..STOP_MS_MAX)));
                program.as_ref().unwrap().signal("CONT");
            }
            // Slow: it works for a part of the time.
            2 => {
                for _ in 0..20 {
                    program.as_ref().unwrap().signal("STOP");
                    std::thread::sleep(Duration::from_millis(30));
                    program.as_ref().unwrap().signal("CONT");
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            _ => {
                Plain::connect(self.addresses[node]).reply(&["CLIENT", "KILL", "TYPE", "normal"]);
            }
        }
    }
}

/// The process of the proxy.
struct ProxyProcess {
    process: Child,
    address: SocketAddr,
    /// Kept open: the process ends if it cannot print.
    _said: BufReader<ChildStdout>,
}

impl ProxyProcess {
    fn start(nodes: &Nodes) -> ProxyProcess {
        let names: Vec<String> = nodes.addresses.iter().map(SocketAddr::to_string).collect();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "campaign::the_process_of_a_proxy", "--ignored", "--nocapture"]);
        command.env(NODES_VARIABLE, names.join(",")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut said = BufReader::new(process.stdout.take().unwrap());
        let lines = said.by_ref().lines().map(Result::unwrap);
        let mut found =
            lines.filter_map(|line| line.split_once("listening on ").map(|(_, address)| address.to_owned()));
        let address = found.next().unwrap().parse().unwrap();
        drop(found);
        ProxyProcess { process, address, _said: said }
    }

    fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the proxy runs");
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
    }
}

impl Drop for ProxyProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
#[ignore = "the process of the proxy, started by the campaign"]
fn the_process_of_a_proxy() {
    let Ok(nodes) = std::env::var(NODES_VARIABLE) else { return };
    let mut config = ProxyConfig::new(nodes.split(',').map(|node| proxy::parse_node(node).unwrap()).collect());
    config.threads = 2;
    config.node_timeout = Some(NODE_TIMEOUT);
    config.limits.total_bytes_max = TOTAL_BYTES_MAX;
    config.limits.stall_max = Duration::from_secs(2);
    let running = proxy::start(config, &[proxy::parse_address("127.0.0.1:0").unwrap()]).unwrap();
    println!("listening on {}", running.addresses()[0]);
    // Until the campaign ends.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// What a key may hold. Values are numbered, and each number is written once.
struct Slot {
    key: String,
    node: usize,
    /// The last value that was acknowledged.
    certain: Option<u64>,
    /// How often the node had been killed before that value was sent.
    kills: u64,
    /// Values of which nobody knows whether they were written, and since when.
    unknown: Vec<(u64, Instant)>,
}

impl Slot {
    fn acknowledged(&mut self, number: u64, kills: u64, sent: Instant) {
        (self.certain, self.kills) = (Some(number), kills);
        self.unknown.retain(|(_, since)| sent.duration_since(*since) < LATE_MAX);
    }

    fn lost(&mut self, number: u64) {
        self.unknown.push((number, Instant::now()));
    }

    /// The reply to GET is right.
    fn permits(&self, reply: &[u8], nodes: &Nodes) -> bool {
        let is_value = |number: u64| reply == bulk(&value(&self.key, number));
        match reply {
            b"$-1\r\n" => self.certain.is_none() || nodes.kills(self.node) != self.kills,
            [b'-', ..] => names_node(reply, nodes.addresses[self.node]),
            _ => self.certain.is_some_and(is_value) || self.unknown.iter().any(|(number, _)| is_value(*number)),
        }
    }
}

fn names_node(reply: &[u8], node: SocketAddr) -> bool {
    reply.starts_with(b"-ERR node ") && String::from_utf8_lossy(reply).contains(&node.to_string())
}

fn bulk(text: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat()
}

/// The value of a key and a number: sizes differ.
fn value(key: &str, number: u64) -> Vec<u8> {
    let bytes = match number % LARGE_EACH {
        0 => 1 << 20,
        1..4 => 30_000,
        rest => rest as usize * 20,
    };
    let mut value = format!("{key}|{number}|").into_bytes();
    value.resize(value.len() + bytes, b'x');
    value
}

/// A request whose reply is awaited, by the places of its keys.
#[derive(Debug)]
enum Asked {
    Set {
        slot: usize,
        number: u64,
        kills: u64,
        sent: Instant,
    },
    Get(usize),
    GetAll(Vec<usize>),
    Echo(u64),
    /// MULTI, SET of two keys, EXEC.
    Transaction {
        slots: [usize; 2],
        number: u64,
        kills: u64,
        sent: Instant,
    },
    Push,
    Pop,
}

/// Why a client's life ended.
enum Ended {
    Disconnected,
    /// The client itself has had enough.
    Left,
}

/// A client over all its lives: connections, of which it has one after another.
struct Client<'c> {
    number: u64,
    random: ChaCha8Rng,
    nodes: &'c Nodes,
    proxy: SocketAddr,
    slots: Vec<Slot>,
    /// Elements of its list that nobody has taken.
    pushed: HashSet<u64>,
    last: u64,
    /// Replies that were right, and errors among them.
    replies: u64,
    errors: u64,
    disconnections: u64,
}

impl<'c> Client<'c> {
    fn new(number: u64, seed: u64, nodes: &'c Nodes, proxy: SocketAddr) -> Client<'c> {
        let placement = Placement::Crc32 { nodes: NODES, hash_tag: None };
        let slot = |at: usize| {
            // The first keys have a tag in common, for transactions.
            let key = if at < 3 { format!("c{number}:{at}{{c{number}}}") } else { format!("c{number}:{at}") };
            Slot { node: placement.node(key.as_bytes(), 0), key, certain: None, kills: 0, unknown: Vec::new() }
        };
        Client {
            number,
            random: ChaCha8Rng::seed_from_u64(seed ^ number << 32),
            nodes,
            proxy,
            slots: (0..KEYS).map(slot).collect(),
            pushed: HashSet::new(),
            last: 0,
            replies: 0,
            errors: 0,
            disconnections: 0,
        }
    }

    fn list(&self) -> String {
        format!("list:{}", self.number)
    }

    /// A life: connects, and behaves in one way for a while.
    fn live(&mut self) {
        let mut plain = Plain::connect(self.proxy);
        match self.random.random_range(0..7) {
            0 => self.listen(&mut plain),
            1 => self.hang(plain),
            manner => {
                let (depth, pause_ms) = match manner {
                    2 => (30, 10),
                    3 => (1, 0),
                    _ => (100, 0),
                };
                for _ in 0..self.random.random_range(1..40) {
                    let patience =
                        if self.random.random_ratio(1, 40) { self.random.random_range(0..20) } else { usize::MAX };
                    let depth = self.random.random_range(1..=depth);
                    match self.batch(&mut plain, depth, patience, Duration::from_millis(pause_ms)) {
                        Ok(()) => {}
                        Err(ended) => {
                            self.disconnections += u64::from(matches!(ended, Ended::Disconnected));
                            return;
                        }
                    }
                }
            }
        }
    }

    /// Sends requests at once and checks the replies. A client without patience leaves after some of them, which resets the connection.
    fn batch(&mut self, plain: &mut Plain, depth: usize, patience: usize, pause: Duration) -> Result<(), Ended> {
        let mut bytes = Vec::new();
        let asked: Vec<Asked> = (0..depth).map(|_| self.ask(&mut bytes)).collect();
        let is_sent = plain.try_write(&bytes);
        let mut asked = asked.into_iter();
        let mut ended = if is_sent { Ok(()) } else { Err(Ended::Disconnected) };
        for (at, asked) in asked.by_ref().enumerate() {
            ended = match ended {
                Ok(()) if at >= patience => Err(Ended::Left),
                Ok(()) => self.check(plain, &asked),
                Err(ended) => Err(ended),
            };
            if ended.is_err() {
                self.forget(&asked);
            }
            std::thread::sleep(pause);
        }
        ended
    }

    /// Makes a request.
    fn ask(&mut self, bytes: &mut Vec<u8>) -> Asked {
        let sent = Instant::now();
        let slot = self.random.random_range(0..KEYS);
        let key = self.slots[slot].key.clone();
        self.last += 1;
        let number = self.last;
        match self.random.random_range(0..20) {
            0..6 => {
                let kills = self.nodes.kills(self.slots[slot].node);
                write(bytes, &[b"SET", key.as_bytes(), &value(&key, number)]);
                Asked::Set { slot, number, kills, sent }
            }
            6..14 => {
                write(bytes, &[b"GET", key.as_bytes()]);
                Asked::Get(slot)
            }
            14 => {
                let slots: Vec<usize> =
                    (0..self.random.random_range(1..5)).map(|_| self.random.random_range(0..KEYS)).collect();
                let keys: Vec<&[u8]> = slots.iter().map(|slot| self.slots[*slot].key.as_bytes()).collect();
                write(bytes, &[&[b"MGET".as_slice()], &*keys].concat());
                Asked::GetAll(slots)
            }
            15 => {
                let kills = self.nodes.kills(self.slots[0].node);
                let slots = [self.random.random_range(0..2), 2];
                write(bytes, &[b"MULTI"]);
                for slot in slots {
                    let key = &self.slots[slot].key;
                    write(bytes, &[b"SET", key.as_bytes(), &value(key, number)]);
                }
                write(bytes, &[b"EXEC"]);
                Asked::Transaction { slots, number, kills, sent }
            }
            16 => {
                write(bytes, &[b"RPUSH", self.list().as_bytes(), number.to_string().as_bytes()]);
                self.pushed.insert(number);
                Asked::Push
            }
            17 => {
                write(bytes, &[b"BLPOP", self.list().as_bytes(), b"0.01"]);
                Asked::Pop
            }
            _ => {
                write(bytes, &[b"ECHO", number.to_string().as_bytes()]);
                Asked::Echo(number)
            }
        }
    }

    /// Reads a reply and checks it.
    fn check(&mut self, plain: &mut Plain, asked: &Asked) -> Result<(), Ended> {
        let reply = self.reply(plain)?;
        let is_right = match asked {
            Asked::Set { slot, number, kills, sent } => {
                let slot = &mut self.slots[*slot];
                match &*reply {
                    b"+OK\r\n" => slot.acknowledged(*number, *kills, *sent),
                    _ => slot.lost(*number),
                }
                reply == b"+OK\r\n" || names_node(&reply, self.nodes.addresses[slot.node])
            }
            Asked::Get(slot) => self.slots[*slot].permits(&reply, self.nodes),
            Asked::GetAll(slots) => {
                let values = elements(&reply);
                let has_failed =
                    slots.iter().any(|slot| names_node(&reply, self.nodes.addresses[self.slots[*slot].node]));
                has_failed
                    || values.len() == slots.len()
                        && values.iter().zip(slots).all(|(value, slot)| self.slots[*slot].permits(value, self.nodes))
            }
            Asked::Echo(number) => reply == bulk(number.to_string().as_bytes()),
            Asked::Transaction { slots, number, kills, sent } => {
                return self.check_transaction(plain, &reply, *slots, (*number, *kills, *sent));
            }
            Asked::Push => reply.first() == Some(&b':') || self.is_error_of_list(&reply),
            Asked::Pop => match elements(&reply).get(1) {
                Some(element) => {
                    let number =
                        String::from_utf8_lossy(element).split("\r\n").nth(1).and_then(|text| text.parse().ok());
                    number.is_some_and(|number| self.pushed.remove(&number))
                }
                None => reply == b"*-1\r\n" || self.is_error_of_list(&reply),
            },
        };
        assert!(is_right, "client {}: wrong reply to {asked:?}: {:?}", self.number, shown(&reply));
        Ok(())
    }

    fn is_error_of_list(&self, reply: &[u8]) -> bool {
        let node = Placement::Crc32 { nodes: NODES, hash_tag: None }.node(self.list().as_bytes(), 0);
        names_node(reply, self.nodes.addresses[node])
    }

    /// Checks the replies of a transaction, of which `begun` is the first: all of it is executed, or an error says that nothing is known.
    fn check_transaction(
        &mut self,
        plain: &mut Plain,
        begun: &[u8],
        slots: [usize; 2],
        (number, kills, sent): (u64, u64, Instant),
    ) -> Result<(), Ended> {
        slots.iter().for_each(|slot| self.slots[*slot].lost(number));
        let replies = [self.reply(plain)?, self.reply(plain)?, self.reply(plain)?];
        let node = self.nodes.addresses[self.slots[slots[0]].node];
        let [first, second, end] = &replies;
        let names = |reply: &[u8]| String::from_utf8_lossy(reply).contains(&node.to_string());
        let has_failed = replies.iter().any(|reply| names(reply));
        let is_right = begun == b"+OK\r\n"
            && [first, second].iter().all(|reply| **reply == b"+QUEUED\r\n" || reply.first() == Some(&b'-'))
            && match &**end {
                b"*2\r\n+OK\r\n+OK\r\n" => {
                    slots.iter().for_each(|slot| self.slots[*slot].acknowledged(number, kills, sent));
                    !has_failed
                }
                end => names_node(end, node) || has_failed && end.starts_with(b"-EXECABORT"),
            };
        let texts = replies.iter().map(|reply| shown(reply)).collect::<Vec<_>>();
        assert!(is_right, "client {}: wrong replies of a transaction {texts:?}", self.number);
        Ok(())
    }

    fn reply(&mut self, plain: &mut Plain) -> Result<Vec<u8>, Ended> {
        let reply = plain.try_reply().ok_or(Ended::Disconnected)?;
        self.replies += 1;
        self.errors += u64::from(reply.first() == Some(&b'-'));
        Ok(reply)
    }

    /// Nobody knows what became of a request.
    fn forget(&mut self, asked: &Asked) {
        match asked {
            Asked::Set { slot, number, .. } => self.slots[*slot].lost(*number),
            Asked::Transaction { slots, number, .. } => slots.iter().for_each(|slot| self.slots[*slot].lost(*number)),
            _ => {}
        }
    }

    /// Asks for much, does not read it for a while, and reads it or leaves.
    fn hang(&mut self, mut plain: Plain) {
        self.last = (self.last + 1).next_multiple_of(LARGE_EACH);
        let (slot, number, sent) = (self.random.random_range(0..KEYS), self.last, Instant::now());
        let kills = self.nodes.kills(self.slots[slot].node);
        let key = self.slots[slot].key.clone();
        let mut bytes = Vec::new();
        write(&mut bytes, &[b"SET", key.as_bytes(), &value(&key, number)]);
        let gets = self.random.random_range(0..30);
        (0..gets).for_each(|_| write(&mut bytes, &[b"GET", key.as_bytes()]));
        plain.try_write(&bytes);
        std::thread::sleep(Duration::from_millis(self.random.random_range(0..4000)));
        let set = Asked::Set { slot, number, kills, sent };
        if self.random.random() {
            return self.forget(&set);
        }
        if self.check(&mut plain, &set).is_err() {
            self.forget(&set);
            self.disconnections += 1;
        } else if (0..gets).any(|_| self.check(&mut plain, &Asked::Get(slot)).is_err()) {
            self.disconnections += 1;
        }
    }

    /// Subscribes to a channel, on which another connection publishes numbers. A number that reached a subscriber arrives, in order.
    fn listen(&mut self, plain: &mut Plain) {
        let channel = format!("channel:{}", self.number);
        plain.try_write(format!("SUBSCRIBE {channel}\r\n").as_bytes());
        if plain.try_reply().is_none_or(|reply| reply.first() == Some(&b'-')) {
            return;
        }
        let mut publisher = Plain::connect(self.proxy);
        let (mut delivered, mut last) = (Vec::new(), 0);
        for number in 1..=self.random.random_range(1..200) {
            publisher.try_write(format!("PUBLISH {channel} {number}\r\n").as_bytes());
            match publisher.try_reply() {
                Some(reply) if reply == b":1\r\n" => delivered.push(number),
                Some(_) => {}
                None => break,
            }
        }
        let mut expected = delivered.iter().copied().peekable();
        while expected.peek().is_some() {
            let Some(message) = plain.try_reply() else {
                self.disconnections += 1;
                return;
            };
            if message.first() == Some(&b'-') {
                return;
            }
            let text = String::from_utf8_lossy(&message);
            let number: u64 = text.trim_end().rsplit("\r\n").next().and_then(|text| text.parse().ok()).unwrap_or(0);
            assert!(number > last, "client {}: a message out of order: {text}", self.number);
            last = number;
            self.replies += 1;
            while expected.next_if(|next| *next <= number).is_some() {}
            assert!(delivered.iter().all(|one| *one > number || *one <= last), "a message is missing");
        }
    }
}

fn shown(reply: &[u8]) -> String {
    String::from_utf8_lossy(reply).chars().take(200).collect()
}

fn write(bytes: &mut Vec<u8>, words: &[&[u8]]) {
    bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    words.iter().for_each(|word| bytes.extend(bulk(word)));
}

/// The elements of an array of simple replies.
fn elements(reply: &[u8]) -> Vec<Vec<u8>> {
    let mut reader = reply;
    let mut line = || {
        let mut line = Vec::new();
        reader.read_until(b'\n', &mut line).unwrap();
        line
    };
    let head = line();
    let count =
        String::from_utf8_lossy(&head).trim_end().strip_prefix('*').and_then(|count| count.parse::<usize>().ok());
    let mut elements = Vec::new();
    for _ in 0..count.unwrap_or(0) {
        let mut element = line();
        if element.first() == Some(&b'$') && element != b"$-1\r\n" {
            // Values have no line ends.
            element.extend(line());
        }
        elements.push(element);
    }
    elements
}

/// Runs the campaign. Everything works again within `recovery` after the last fault.
fn run(time: Duration, seed: u64, recovery: Duration) {
    let nodes = Nodes::start();
    let process = ProxyProcess::start(&nodes);
    let (started, is_over) = (Instant::now(), AtomicBool::new(false));
    let (mut most, mut replies, mut errors, mut disconnections) = (0, 0, 0, 0);
    std::thread::scope(|scope| {
        let (nodes, proxy, is_over) = (&nodes, process.address, &is_over);
        let goes_on = move || started.elapsed() < time && !is_over.load(Ordering::Relaxed);
        let harming = scope.spawn(move || {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            while goes_on() {
                nodes.harm(&mut random);
                std::thread::sleep(Duration::from_millis(random.random_range(0..800)));
            }
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                scope.spawn(move || {
                    let mut client = Client::new(number, seed, nodes, proxy);
                    while goes_on() {
                        client.live();
                    }
                    (client.replies, client.errors, client.disconnections)
                })
            })
            .collect();
        while clients.iter().any(|client| !client.is_finished()) {
            most = most.max(process.resident_bytes());
            if clients.iter().filter(|client| client.is_finished()).count() > 0 {
                is_over.store(true, Ordering::Relaxed);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        for client in clients {
            let (right, failed, ended) = client.join().unwrap();
            (replies, errors, disconnections) = (replies + right, errors + failed, disconnections + ended);
        }
        harming.join().unwrap();
    });
    let last_fault = Instant::now();
    let mut plain = Plain::connect(process.address);
    for node in 0..NODES {
        let key = key_of(node, NODES, 0);
        eventually("the node is used again", || plain.text(&["SET", &key, "1"]) == "+OK\r\n");
    }
    let took = last_fault.elapsed();
    println!(
        "seed {seed}: {replies} replies, {errors} of them errors, {disconnections} disconnections, {} MiB at most, all well after {} ms",
        most >> 20,
        took.as_millis()
    );
    assert!(took <= recovery, "it took {took:?}");
    assert!(most < TOTAL_BYTES_MAX as u64 + MEMORY_BESIDE, "{most} bytes");
    assert!(errors < replies / 2, "few requests have succeeded");
    eventually("all clients are gone", || plain.text(&["INFO", "clients"]).contains("connected_clients:1\r\n"));
}

#[test]
fn clients_and_nodes_that_misbehave_cost_errors_and_no_more() {
    if is_there("redis-server") {
        run(Duration::from_secs(5), 1, Duration::MAX);
    }
}

#[test]
#[ignore = "an hour: `cargo xtask campaign proxy`"]
fn clients_and_nodes_that_misbehave_for_long() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (seconds, seed) = (number("PROXY_CAMPAIGN_SECONDS", 3600), number("PROXY_CAMPAIGN_SEED", 1));
    run(Duration::from_secs(seconds), seed, Duration::from_secs(1));
}
