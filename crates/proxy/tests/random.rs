//! Random commands: a single Redis, and a proxy with four, give the same replies.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::prelude::*;
use rand_chacha::ChaCha8Rng;

use crate::nodes::{Plain, Program, Sharded, is_there};

const COMMANDS: usize = 4000;
const KEYS: u32 = 12;

struct Making(ChaCha8Rng);

impl Making {
    fn key(&mut self) -> String {
        let number = self.0.random_range(0..KEYS);
        format!("{}{number}", ["s", "h", "l", "z"].choose(&mut self.0).unwrap())
    }

    /// A key of a kind; occasionally of another.
    fn of(&mut self, kind: &str) -> String {
        if self.0.random_ratio(1, 20) { self.key() } else { format!("{kind}{}", self.0.random_range(0..KEYS)) }
    }

    fn tagged(&mut self) -> String {
        format!("{}{{t}}", self.key())
    }

    fn value(&mut self) -> String {
        match self.0.random_range(0..10) {
            0 => String::new(),
            1 => "x".repeat(self.0.random_range(0..20_000)),
            2 => "line\r\nend".to_owned(),
            _ => self.0.random_range(-5..100).to_string(),
        }
    }

    /// A command whose reply does not depend on the nodes of its keys.
    fn command(&mut self) -> Vec<String> {
        let many = self.0.random_range(1..12);
        let (a, b, value) =
            (self.0.random_range(-3..6).to_string(), self.0.random_range(-3..6).to_string(), self.value());
        let words: Vec<String> = match self.0.random_range(0..34) {
            0..3 => vec!["SET".into(), self.of("s"), value],
            3..6 => vec!["GET".into(), self.of("s")],
            6 => vec!["INCRBY".into(), self.of("s"), value],
            7 => vec!["APPEND".into(), self.of("s"), value],
            8 => vec!["GETRANGE".into(), self.of("s"), a, b],
            9 => ["MGET".into()].into_iter().chain((0..many).map(|_| self.key())).collect(),
            10 => ["MSET".into()].into_iter().chain((0..many).flat_map(|_| [self.of("s"), self.value()])).collect(),
            11 => ["DEL".into()].into_iter().chain((0..many.min(3)).map(|_| self.key())).collect(),
            12 => ["EXISTS".into()].into_iter().chain((0..many).map(|_| self.key())).collect(),
            13 => vec!["HSET".into(), self.of("h"), a, value],
            14 => vec!["HGET".into(), self.of("h"), a],
            15 => vec!["HMGET".into(), self.of("h"), a, b],
            16 => vec!["RPUSH".into(), self.of("l"), value, b],
            17 => vec!["LRANGE".into(), self.of("l"), a, b],
            18 => vec!["LPOP".into(), self.of("l")],
            19 => vec!["LLEN".into(), self.of("l")],
            20 => vec!["ZADD".into(), self.of("z"), a, b],
            21 => vec!["ZRANGE".into(), self.of("z"), "0".into(), "-1".into(), "WITHSCORES".into()],
            22 => vec!["ZSCORE".into(), self.of("z"), a],
            23 => vec!["TYPE".into(), self.key()],
            24 => vec!["DBSIZE".into()],
            25 => vec!["PING".into()],
            26 => vec!["ECHO".into(), value],
            27 => vec!["SUNION".into(), self.tagged(), self.tagged()],
            28 => vec!["SADD".into(), self.tagged(), a],
            29 => vec!["RENAME".into(), self.tagged(), self.tagged()],
            30 => vec!["EVAL".into(), "return {KEYS[1],ARGV[1],{1,2}}".into(), "1".into(), self.key(), value],
            31 => vec!["NOSUCH".into(), a],
            32 => vec!["SET".into(), self.of("s")],
            _ => vec!["BLPOP".into(), self.of("l"), "0.001".into()],
        };
        words
    }

    /// A stream's command, with ids that do not depend on the time.
    fn stream(&mut self) -> Vec<String> {
        let key = format!("x{}", self.0.random_range(0..3));
        let id = format!("{}-{}", self.0.random_range(1..5), self.0.random_range(0..50));
        let text = match self.0.random_range(0..7) {
            0..3 => format!("XADD {key} {id} field {id}"),
            3 => format!("XRANGE {key} - + COUNT 5"),
            4 => format!("XREAD COUNT 3 STREAMS {key} {id}"),
            5 => format!("XREAD COUNT 3 BLOCK 1 STREAMS {key} {id}"),
            _ => format!("XLEN {key}"),
        };
        text.split(' ').map(str::to_owned).collect()
    }

    /// A command that blocks, but for a moment only.
    fn blocking(&mut self) -> Vec<String> {
        let (from, to) = (self.tagged(), self.tagged());
        let text = match self.0.random_range(0..4) {
            0 => format!("BLPOP {from} {to} 0.001"),
            1 => format!("BRPOP {from} 0.001"),
            2 => format!("BLMOVE {from} {to} LEFT RIGHT 0.001"),
            _ => format!("BZPOPMIN {} 0.001", self.of("z")),
        };
        text.split(' ').map(str::to_owned).collect()
    }

    /// A transaction over keys with one tag, which may have watched some of them, or fail.
    fn transaction(&mut self) -> Vec<Vec<String>> {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mut commands = Vec::new();
        if self.0.random_ratio(1, 3) {
            commands.push(words(&format!("WATCH {}", self.tagged())));
        }
        commands.push(words("MULTI"));
        for _ in 0..self.0.random_range(0..5) {
            commands.push(match self.0.random_range(0..8) {
                0..4 => vec!["SET".into(), self.tagged(), self.value()],
                4 => words(&format!("RPUSH {} a b", self.tagged())),
                5 => words(&format!("BLPOP {} 0.001", self.tagged())),
                6 => words("PING"),
                _ if self.0.random_ratio(1, 3) => words("NOSUCH"),
                _ => words(&format!("GET {}", self.tagged())),
            });
        }
        commands.push(words(if self.0.random_ratio(1, 4) { "DISCARD" } else { "EXEC" }));
        commands
    }

    /// Commands, each with the number of its replies.
    fn batch(&mut self) -> Vec<(Vec<String>, usize)> {
        let mut batch = Vec::new();
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for _ in 0..self.0.random_range(1..60) {
            match self.0.random_range(0..40) {
                0 => batch.extend(self.transaction().into_iter().map(|words| (words, 1))),
                1 => batch.push((self.stream(), 1)),
                2 => batch.push((self.blocking(), 1)),
                3 => batch.push((words(&format!("SELECT {}", self.0.random_range(0..3))), 1)),
                4 => {
                    let (channels, patterns) = (["c1", "c2"].join(" "), "p* q*");
                    batch.push((words(&format!("SUBSCRIBE {channels}")), 2));
                    batch.push((words(&format!("PSUBSCRIBE {patterns}")), 2));
                    batch.push((words("PING x"), 1));
                    batch.push((words(&format!("UNSUBSCRIBE {channels}")), 2));
                    batch.push((words(&format!("PUNSUBSCRIBE {patterns}")), 2));
                }
                5 => {
                    batch.push((words("CLIENT REPLY OFF"), 0));
                    for _ in 0..self.0.random_range(0..6) {
                        match self.0.random_range(0..5) {
                            0 => batch.extend(self.transaction().into_iter().map(|words| (words, 0))),
                            1 => batch.push((self.blocking(), 0)),
                            2 => batch.push((self.stream(), 0)),
                            _ => batch.push((self.command(), 0)),
                        }
                    }
                    batch.push((words("CLIENT REPLY ON"), 1));
                }
                6 => {
                    batch.push((words("CLIENT REPLY SKIP"), 0));
                    let next = if self.0.random() { self.blocking() } else { self.command() };
                    batch.push((next, 0));
                }
                _ => batch.push((self.command(), 1)),
            }
        }
        batch
    }
}

fn send(plain: &mut Plain, batch: &[(Vec<String>, usize)]) {
    let slices: Vec<Vec<&[u8]>> = batch.iter().map(|(words, _)| words.iter().map(String::as_bytes).collect()).collect();
    plain.send(slices.iter().map(Vec::as_slice));
}

fn check(seed: u64, version: &str) {
    check_on(&Sharded::start(|_| {}), seed, version);
}

fn check_on(sharded: &Sharded, seed: u64, version: &str) {
    let single = Program::redis();
    let mut listening = [Plain::connect(single.address), sharded.connect()];
    for plain in &mut listening {
        plain.reply(&["HELLO", version]);
        plain.write(b"SUBSCRIBE c0 c1\r\nPSUBSCRIBE c*\r\n");
        (0..3).for_each(|_| drop(plain.next_reply()));
    }
    let (mut single, mut proxied) = (Plain::connect(single.address), sharded.connect());
    // HELLO's reply describes the server, which differs.
    single.reply(&["HELLO", version]);
    proxied.reply(&["HELLO", version]);
    proxied.reply(&["FLUSHALL"]);
    let mut making = Making(ChaCha8Rng::seed_from_u64(seed));
    let mut done = 0;
    while done < COMMANDS {
        let batch = making.batch();
        send(&mut single, &batch);
        send(&mut proxied, &batch);
        for (words, replies) in &batch {
            for _ in 0..*replies {
                let (expected, got) = (single.next_reply(), proxied.next_reply());
                let text = |reply: &[u8]| String::from_utf8_lossy(reply).chars().take(200).collect::<String>();
                assert!(expected == got, "seed {seed}, {words:.100?}: {:?} but {:?}", text(&expected), text(&got));
            }
        }
        done += batch.len();
        // Messages reach the subscribers of a channel and of a pattern in the same order.
        for number in 0..making.0.random_range(0..4) {
            let (channel, text) = (format!("c{}", making.0.random_range(0..3)), format!("{done}:{number}"));
            let publish = |plain: &mut Plain| plain.text(&["PUBLISH", &channel, &text]);
            let (expected, got) = (publish(&mut single), publish(&mut proxied));
            assert_eq!(expected, got, "seed {seed}, PUBLISH {channel}");
            let messages = usize::from(channel != "c2") + 1;
            for _ in 0..messages {
                assert_eq!(listening[0].next_reply(), listening[1].next_reply(), "seed {seed}, a message on {channel}");
            }
        }
    }
}

#[test]
fn random_commands_have_the_replies_of_one_redis() {
    if is_there("redis-server") {
        (1..3).for_each(|seed| check(seed, "2"));
    }
}

#[test]
fn random_commands_have_the_replies_of_one_redis_under_resp3() {
    if is_there("redis-server") {
        (3..5).for_each(|seed| check(seed, "3"));
    }
}

#[test]
fn random_commands_have_the_replies_of_one_redis_within_small_bounds() {
    if !is_there("redis-server") {
        return;
    }
    for (seed, version) in [(5, "2"), (6, "3")] {
        let sharded = Sharded::start(|config| {
            config.limits.commands_max = 3;
            config.limits.client_bytes_max = 20_000;
            config.limits.total_bytes_max = 4 << 20;
        });
        check_on(&sharded, seed, version);
    }
}

#[test]
fn random_commands_have_the_replies_of_one_redis_while_nodes_stall() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = ChaCha8Rng::seed_from_u64(0);
            while !is_over.load(Ordering::Relaxed) {
                let node = &sharded.nodes[random.random_range(0..4)];
                node.signal("STOP");
                std::thread::sleep(Duration::from_millis(random.random_range(0..10)));
                node.signal("CONT");
                std::thread::sleep(Duration::from_millis(random.random_range(0..40)));
            }
        });
        // The nodes are stopped and continued until the check ends, also if it fails.
        let check = || [(7, "2"), (8, "3")].map(|(seed, version)| check_on(&sharded, seed, version));
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
        is_over.store(true, Ordering::Relaxed);
        checked.unwrap();
    });
}
