//! Random commands: a single Redis, and a proxy with four, give the same replies.

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

    /// A transaction over keys with one tag.
    fn transaction(&mut self) -> Vec<Vec<String>> {
        let begin = [vec!["MULTI".to_owned()]];
        let inner: Vec<_> =
            (0..self.0.random_range(0..5)).map(|_| vec!["SET".into(), self.tagged(), self.value()]).collect();
        let end = if self.0.random_ratio(1, 4) { "DISCARD" } else { "EXEC" };
        begin.into_iter().chain(inner).chain([vec![end.to_owned()]]).collect()
    }

    fn batch(&mut self) -> Vec<Vec<String>> {
        let mut batch = Vec::new();
        for _ in 0..self.0.random_range(1..60) {
            match self.0.random_ratio(1, 30) {
                true => batch.extend(self.transaction()),
                false => batch.push(self.command()),
            }
        }
        batch
    }
}

fn send(plain: &mut Plain, batch: &[Vec<String>]) {
    let slices: Vec<Vec<&[u8]>> = batch.iter().map(|words| words.iter().map(String::as_bytes).collect()).collect();
    plain.send(slices.iter().map(Vec::as_slice));
}

fn check(seed: u64, version: &str) {
    let (single, sharded) = (Program::redis(), Sharded::start(|_| {}));
    let (mut single, mut proxied) = (Plain::connect(single.address), sharded.connect());
    // HELLO's reply describes the server, which differs.
    single.reply(&["HELLO", version]);
    proxied.reply(&["HELLO", version]);
    let mut making = Making(ChaCha8Rng::seed_from_u64(seed));
    let mut done = 0;
    while done < COMMANDS {
        let batch = making.batch();
        send(&mut single, &batch);
        send(&mut proxied, &batch);
        for words in &batch {
            let (expected, got) = (single.next_reply(), proxied.next_reply());
            let text = |reply: &[u8]| String::from_utf8_lossy(reply).chars().take(200).collect::<String>();
            assert!(expected == got, "seed {seed}, {words:.100?}: {:?} but {:?}", text(&expected), text(&got));
        }
        done += batch.len();
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
