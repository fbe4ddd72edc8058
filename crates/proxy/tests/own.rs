//! Transactions, blocking commands, subscribers, large requests: clients with reserved node connections.

use std::io::Write;
use std::time::Duration;

use crate::nodes::{Plain, Program, Sharded, eventually, is_there};

#[track_caller]
fn check(plain: &mut Plain, command: &str, reply: &str) {
    let words: Vec<&str> = command.split(' ').collect();
    assert_eq!(plain.text(&words), reply, "{command}");
}

#[test]
fn a_transaction_runs_on_one_node() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let (mut plain, mut other) = (sharded.connect(), sharded.connect());
    check(&mut plain, "MULTI", "+OK\r\n");
    check(&mut plain, "SET a{t} 1", "+QUEUED\r\n");
    check(&mut plain, "MSET b{t} 2 c{t} 3", "+QUEUED\r\n");
    check(&mut plain, "MULTI", "-ERR MULTI calls can not be nested\r\n");
    check(&mut other, "GET a{t}", "$-1\r\n");
    check(&mut plain, "EXEC", "*2\r\n+OK\r\n+OK\r\n");
    check(&mut other, "GET a{t}", "$1\r\n1\r\n");
    // Nothing queued; discarded; without MULTI.
    check(&mut plain, "MULTI", "+OK\r\n");
    check(&mut plain, "EXEC", "*0\r\n");
    check(&mut plain, "MULTI", "+OK\r\n");
    check(&mut plain, "SET a{t} 9", "+QUEUED\r\n");
    check(&mut plain, "DISCARD", "+OK\r\n");
    check(&mut plain, "GET a{t}", "$1\r\n1\r\n");
    check(&mut plain, "EXEC", "-ERR EXEC without MULTI\r\n");
    check(&mut plain, "DISCARD", "-ERR DISCARD without MULTI\r\n");
    check(&mut plain, "UNWATCH", "+OK\r\n");
    // Keys on two nodes.
    check(&mut plain, "MULTI", "+OK\r\n");
    check(&mut plain, &format!("SET {} 1", sharded.key_of(0)), "+QUEUED\r\n");
    assert!(plain.text(&["SET", &sharded.key_of(1), "1"]).starts_with("-ERR the keys of WATCH"));
    check(&mut plain, "EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n");
    check(&mut plain, &format!("EXISTS {}", sharded.key_of(0)), ":0\r\n");
}

/// Sends commands to a Redis and through the proxy, and compares the replies.
#[track_caller]
fn check_beside_redis(single: &mut Plain, proxied: &mut Plain, commands: &[&str]) {
    for command in commands {
        let words: Vec<&str> = command.split(' ').collect();
        let (expected, got) = (single.text(&words), proxied.text(&words));
        assert_eq!(got, expected, "{command:?} of {commands:?}");
    }
}

#[test]
fn a_command_that_the_proxy_refuses_fails_the_transaction_as_in_redis() {
    if !is_there("redis-server") {
        return;
    }
    let (redis, sharded) = (Program::redis(), Sharded::start(|_| {}));
    let (mut single, mut proxied) = (Plain::connect(redis.address), sharded.connect());
    for commands in [
        &["MULTI", "GET", "SET k{0} 1", "EXEC", "GET k{0}"][..],
        &["MULTI", "SET k{0} 1", "GET", "SET k{0} 2", "EXEC", "GET k{0}"],
        &["MULTI", "NOSUCH k{0}", "SET k{0} 1", "EXEC", "GET k{0}"],
        &["MULTI", "SET k{0} 1", "NOSUCH k{0}", "EXEC", "GET k{0}"],
        &["WATCH k{0}", "MULTI", "GET", "EXEC", "EXEC"],
        &["WATCH k{0}", "GET", "MULTI", "SET k{0} 1", "EXEC", "DEL k{0}"],
        &["MULTI", "MSET k{0}", "SET k{0} 1", "EXEC", "GET k{0}"],
        &["MULTI", "SET k{0} 1", "DISCARD x", "EXEC", "GET k{0}"],
        &["MULTI", "SET k{0} 1", "EXEC x", "EXEC", "GET k{0}"],
        &["MULTI", "EXEC x", "EXEC"],
        &["EXEC x", "DISCARD x", "MULTI x", "EXEC"],
        &["MULTI", "SET k{0} 1", "GET", "DISCARD", "MULTI", "SET k{0} 3", "EXEC", "GET k{0}"],
    ] {
        check_beside_redis(&mut single, &mut proxied, commands);
    }
}

#[test]
fn commands_without_a_key_are_queued_on_the_node_of_a_transaction() {
    if !is_there("redis-server") {
        return;
    }
    let (redis, sharded) = (Program::redis(), Sharded::start(|_| {}));
    for version in ["2", "3"] {
        let (mut single, mut proxied) = (Plain::connect(redis.address), sharded.connect());
        single.text(&["HELLO", version]);
        proxied.text(&["HELLO", version]);
        for commands in [
            &["MULTI", "SET k{0} 1", "PING", "ECHO x", "SELECT 0", "UNWATCH", "PING a b", "EXEC"][..],
            &["MULTI", "PING", "ECHO x", "SET k{0} 2", "GET k{0}", "EXEC", "GET k{0}"],
            &["MULTI", "PING", "SELECT 0", "UNWATCH", "EXEC", "PING"],
            &["MULTI", "PING", "DISCARD", "MULTI", "EXEC", "GET k{0}"],
            &["MULTI", "PING", "GET", "EXEC", "PING"],
            &["WATCH k{0}", "MULTI", "ECHO x", "EXEC"],
            &["MULTI", "SET k{0} 3", "EVAL return{1,2} 0", "EXEC"],
            &["MULTI", "SET k{0} 3", "PUBLISH k{0} x", "EXEC"],
            &["SELECT 1", "MULTI", "SET k{0} 3", "SELECT 1", "EXEC", "SELECT 0", "GET k{0}"],
        ] {
            check_beside_redis(&mut single, &mut proxied, commands);
        }
        check(&mut proxied, "MULTI", "+OK\r\n");
        check(&mut proxied, "SET k{0} 1", "+QUEUED\r\n");
        check(&mut proxied, "TIME", "+QUEUED\r\n");
        let replies = proxied.text(&["EXEC"]);
        assert!(replies.starts_with("*2\r\n+OK\r\n*2\r\n$10\r\n"), "{replies}");
        // What would need the client's own state, or all nodes, is refused, and EXEC fails.
        for refused in ["CLIENT GETNAME", "SELECT 1", "DBSIZE", "EVAL return{1,2} 0", "SUBSCRIBE c"] {
            check(&mut proxied, "MULTI", "+OK\r\n");
            let words: Vec<&str> = refused.split(' ').collect();
            assert!(proxied.text(&words).starts_with("-ERR '"), "{refused}");
            check(&mut proxied, "EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n");
        }
    }
    // What is held back is bounded.
    let mut plain = sharded.connect();
    check(&mut plain, "MULTI", "+OK\r\n");
    assert!(plain.text(&["ECHO", &"x".repeat(2000)]).starts_with("-ERR give a command with a key"));
    check(&mut plain, "EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n");
}

#[test]
fn a_watched_key_that_changes_ends_the_transaction() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let (mut plain, mut other) = (sharded.connect(), sharded.connect());
    for (meddles, reply) in [(true, "*-1\r\n"), (false, "*1\r\n+OK\r\n")] {
        check(&mut plain, "WATCH a{t}", "+OK\r\n");
        check(&mut plain, &format!("SET {} 5", sharded.key_of(2)), "+OK\r\n");
        assert_eq!(plain.text(&["EXISTS", "b{t}"]), ":0\r\n");
        if meddles {
            check(&mut other, "SET a{t} 7", "+OK\r\n");
        }
        check(&mut plain, "MULTI", "+OK\r\n");
        check(&mut plain, "SET a{t} 8", "+QUEUED\r\n");
        check(&mut plain, "EXEC", reply);
    }
    check(&mut plain, "WATCH a{t}", "+OK\r\n");
    check(&mut plain, "UNWATCH", "+OK\r\n");
    check(&mut plain, "GET a{t}", "$1\r\n8\r\n");
    // The connection was returned and is used by the next client.
    assert!(sharded.proxy().counters()[0].own_connections.get() <= 2);
}

#[test]
fn a_transaction_in_one_pipeline_keeps_the_order_of_replies() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let mut plain = sharded.connect();
    plain.write(
        b"set n{t} 1\r\nincr n{t}\r\nmulti\r\nincr n{t}\r\nincr n{t}\r\nexec\r\nincr n{t}\r\nmget n{t} x y z\r\nblpop l{t} 0.05\r\nincr n{t}\r\n",
    );
    let expected = "+OK\r\n:2\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:3\r\n:4\r\n:5\r\n*4\r\n$1\r\n5\r\n$-1\r\n$-1\r\n$-1\r\n*-1\r\n:6\r\n";
    let mut replies = Vec::new();
    (0..10).for_each(|_| replies.extend(plain.next_reply()));
    assert_eq!(String::from_utf8_lossy(&replies), expected);
}

#[test]
fn a_transaction_whose_node_dies_is_aborted() {
    if !is_there("redis-server") {
        return;
    }
    let mut sharded = Sharded::start(|_| {});
    let (key, address) = (sharded.key_of(1), sharded.nodes[1].address);
    let mut plain = sharded.connect();
    check(&mut plain, "MULTI", "+OK\r\n");
    check(&mut plain, &format!("SET {key} 1"), "+QUEUED\r\n");
    sharded.nodes.remove(1).kill();
    let told = format!("node {address} did not answer: it closed the connection\r\n");
    eventually("the transaction has failed", || plain.text(&["SET", &key, "1"]) == format!("-ERR {told}"));
    check(&mut plain, "EXEC", &format!("-EXECABORT Transaction discarded because of: {told}"));
    check(&mut plain, &format!("GET {}", key_on(0)), "$-1\r\n");
}

fn key_on(node: usize) -> String {
    crate::nodes::key_of(node, 4, 0)
}

#[test]
fn a_blocking_command_holds_up_nobody_else() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let (mut waiting, mut other) = (sharded.connect(), sharded.connect());
    waiting.send([&[b"BLPOP".as_slice(), b"l{t}", b"0"][..], &[b"GET", b"l{t}"]]);
    eventually("it waits", || sharded.proxy().counters()[0].own_connections.get() == 1);
    check(&mut other, "GET x{t}", "$-1\r\n");
    check(&mut other, "RPUSH l{t} a", ":1\r\n");
    assert_eq!(waiting.next_reply(), b"*2\r\n$4\r\nl{t}\r\n$1\r\na\r\n");
    assert_eq!(waiting.next_reply(), b"$-1\r\n");
    check(&mut other, "XREAD COUNT 1 STREAMS s{t} 0", "*-1\r\n");
    assert!(other.text(&["BLPOP", &sharded.key_of(0), &sharded.key_of(1), "0"]).contains("tag"));
}

#[test]
fn a_client_that_leaves_takes_nothing_out_of_a_list() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let mut other = sharded.connect();
    {
        let mut waiting = sharded.connect();
        waiting.send([&[b"BLPOP".as_slice(), b"l{t}", b"0"][..]]);
        eventually("it waits", || sharded.proxy().counters()[0].own_connections.get() == 1);
    }
    eventually("its node connection is gone", || sharded.proxy().counters()[0].own_connections.get() == 0);
    // The node sees the disconnection before the element, which is sent later and on another connection.
    std::thread::sleep(Duration::from_millis(100));
    check(&mut other, "RPUSH l{t} a", ":1\r\n");
    check(&mut other, "LLEN l{t}", ":1\r\n");
}

#[test]
fn clients_that_leave_at_once_are_no_fault_of_the_nodes() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    for _ in 0..50 {
        sharded.connect().send([&[b"PSUBSCRIBE".as_slice(), b"*"][..]]);
        sharded.connect().send([&[b"BLPOP".as_slice(), b"l", b"0"][..]]);
    }
    let counters = &sharded.proxy().counters()[0];
    eventually("all are gone", || counters.clients.get() == 0 && counters.own_connections.get() == 0);
    assert_eq!((0..4).map(|node| counters.nodes[node].failed.get()).sum::<u64>(), 0);
}

#[test]
fn own_connections_are_bounded() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|config| config.limits.own_connections_max = 1);
    let (mut waiting, mut other) = (sharded.connect(), sharded.connect());
    waiting.send([&[b"BLPOP".as_slice(), b"l{t}", b"0"][..]]);
    eventually("it waits", || sharded.proxy().counters()[0].own_connections.get() == 1);
    assert!(other.text(&["BLPOP", "l{t}", "0"]).contains("--own-connections-max"));
    assert_eq!(sharded.proxy().counters()[0].refused.get(), 1);
    check(&mut other, "RPUSH l{t} a", ":1\r\n");
    waiting.next_reply();
    check(&mut other, "BLPOP l{t} 0.01", "*-1\r\n");
}

#[test]
fn messages_reach_the_subscribers_of_channels_and_patterns_once() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let (mut listening, mut other) = (sharded.connect(), sharded.connect());
    check(&mut listening, "SUBSCRIBE c1", "*3\r\n$9\r\nsubscribe\r\n$2\r\nc1\r\n:1\r\n");
    listening.write(b"subscribe c2 c3\r\npsubscribe c*\r\nping\r\n");
    for (kind, name, count) in [("subscribe", "c2", 2), ("subscribe", "c3", 3), ("psubscribe", "c*", 4)] {
        let expected = format!("*3\r\n${}\r\n{kind}\r\n$2\r\n{name}\r\n:{count}\r\n", kind.len());
        assert_eq!(String::from_utf8_lossy(&listening.next_reply()), expected);
    }
    assert_eq!(listening.next_reply(), b"*2\r\n$4\r\npong\r\n$0\r\n\r\n");
    assert!(listening.text(&["GET", "a"]).starts_with("-ERR Can't execute 'get'"));
    for channel in ["c1", "c2", "c3", "c4"] {
        let receivers = if channel == "c4" { ":1\r\n" } else { ":2\r\n" };
        check(&mut other, &format!("PUBLISH {channel} m"), receivers);
        if channel != "c4" {
            let expected = format!("*3\r\n$7\r\nmessage\r\n$2\r\n{channel}\r\n$1\r\nm\r\n");
            assert_eq!(String::from_utf8_lossy(&listening.next_reply()), expected);
        }
        let expected = format!("*4\r\n$8\r\npmessage\r\n$2\r\nc*\r\n$2\r\n{channel}\r\n$1\r\nm\r\n");
        assert_eq!(String::from_utf8_lossy(&listening.next_reply()), expected);
    }
    check(&mut listening, "UNSUBSCRIBE c1", "*3\r\n$11\r\nunsubscribe\r\n$2\r\nc1\r\n:3\r\n");
    listening.write(b"punsubscribe\r\nunsubscribe\r\n");
    let counts: Vec<u8> = (0..3).map(|_| *listening.next_reply().iter().rev().nth(2).unwrap()).collect();
    assert_eq!(counts, b"210");
    check(&mut listening, "UNSUBSCRIBE", "*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n");
    check(&mut listening, "GET a", "$-1\r\n");
    check(&mut other, "PUBLISH c1 m", ":0\r\n");
    eventually("its connections are gone", || sharded.proxy().counters()[0].own_connections.get() == 0);
}

#[test]
fn a_subscriber_of_resp3_may_give_other_commands() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let (mut listening, mut other) = (sharded.connect(), sharded.connect());
    listening.text(&["HELLO", "3"]);
    check(&mut listening, "SUBSCRIBE c1", ">3\r\n$9\r\nsubscribe\r\n$2\r\nc1\r\n:1\r\n");
    check(&mut listening, "SET a 1", "+OK\r\n");
    check(&mut other, "PUBLISH c1 m", ":1\r\n");
    assert_eq!(listening.next_reply(), b">3\r\n$7\r\nmessage\r\n$2\r\nc1\r\n$1\r\nm\r\n");
    check(&mut listening, "MGET a b", "*2\r\n$1\r\n1\r\n_\r\n");
}

#[test]
fn a_subscriber_is_disconnected_when_its_node_dies() {
    if !is_there("redis-server") {
        return;
    }
    let mut sharded = Sharded::start(|_| {});
    let mut listening = sharded.connect();
    listening.text(&["PSUBSCRIBE", "*"]);
    sharded.nodes.remove(0).kill();
    assert!(listening.has_ended());
}

#[test]
fn a_request_larger_than_is_held_is_passed_on_while_it_arrives() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|config| config.limits.request_bytes_max = 100_000);
    let (mut plain, mut other) = (sharded.connect(), sharded.connect());
    let value = vec![b'v'; 5_000_000];
    plain.send([&[b"SET".as_slice(), b"a{t}", b"small"][..], &[b"SET", b"a{t}", &value], &[b"STRLEN", b"a{t}"]]);
    assert_eq!(plain.next_reply(), b"+OK\r\n");
    assert_eq!(plain.next_reply(), b"+OK\r\n");
    assert_eq!(plain.next_reply(), b":5000000\r\n");
    // A slow client does not delay others.
    let mut slow = sharded.connect();
    slow.write(b"*3\r\n$3\r\nSET\r\n$4\r\nb{t}\r\n$1000000\r\n");
    slow.write(&value[..500_000]);
    check(&mut other, "GET x{t}", "$-1\r\n");
    slow.write(&value[..500_000]);
    slow.write(b"\r\n");
    assert_eq!(slow.next_reply(), b"+OK\r\n");
    check(&mut slow, "STRLEN b{t}", ":1000000\r\n");
    // The keys arrive too late to route the request.
    let mut late = sharded.connect();
    late.stream().try_clone().unwrap().write_all(b"*3\r\n$4\r\nMSET\r\n$200000\r\n").unwrap();
    late.write(&value[..150_000]);
    assert!(late.next_reply().starts_with(b"-ERR the request is larger"));
}

#[test]
fn a_large_request_may_be_any_of_a_transaction() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|config| config.limits.request_bytes_max = 100_000);
    let value = vec![b'v'; 3_000_000];
    let set: [&[u8]; 3] = [b"SET", b"a{t}", &value];
    let append: [&[u8]; 3] = [b"APPEND", b"a{t}", &value];
    for watches in [false, true] {
        let mut plain = sharded.connect();
        if watches {
            check(&mut plain, "WATCH a{t}", "+OK\r\n");
        }
        plain.send([&[b"MULTI".as_slice()][..], &set, &append, &[b"STRLEN", b"a{t}"], &[b"EXEC"]]);
        let replies: Vec<u8> = (0..5).flat_map(|_| plain.next_reply()).collect();
        let expected = "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n+OK\r\n:6000000\r\n:6000000\r\n";
        assert_eq!(String::from_utf8_lossy(&replies), expected);
        check(&mut plain, "STRLEN a{t}", ":6000000\r\n");
    }
}

/// The whole request is dropped; were its connection closed, the client would not see why.
#[test]
fn the_error_of_a_large_request_reaches_its_client() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|config| config.limits.request_bytes_max = 100_000);
    let mut plain = sharded.connect();
    let value = vec![b'v'; 1_000_000];
    let apart = [sharded.key_of(0), sharded.key_of(1)];
    let set: [&[u8]; 5] = [b"MSET", apart[0].as_bytes(), &value, apart[1].as_bytes(), b"v"];
    plain.send([&set[..], &[b"EXISTS", apart[1].as_bytes()]]);
    assert!(plain.next_reply().starts_with(b"-ERR the request is larger"));
    assert_eq!(plain.next_reply(), b":0\r\n");
    // In a transaction it is one of the refused commands.
    plain.send([&[b"MULTI".as_slice()][..], &set, &[b"SET", apart[1].as_bytes(), b"1"], &[b"EXEC"]]);
    assert_eq!(plain.next_reply(), b"+OK\r\n");
    assert!(plain.next_reply().starts_with(b"-ERR the request is larger"));
    assert_eq!(plain.next_reply(), b"+QUEUED\r\n");
    assert!(plain.next_reply().starts_with(b"-EXECABORT"));
    check(&mut plain, &format!("EXISTS {}", apart[1]), ":0\r\n");
}

#[test]
fn a_reply_may_be_nested_deeply() {
    if !is_there("redis-server") {
        return;
    }
    const DEPTH: usize = 300;
    let sharded = Sharded::start(|_| {});
    let (mut plain, mut other) = (sharded.connect(), sharded.connect());
    let script = format!("local t={{}} for i=1,{DEPTH} do t={{t}} end return t");
    plain.send([&[b"EVAL".as_slice(), script.as_bytes(), b"1", b"a"][..]]);
    (0..DEPTH).for_each(|level| assert_eq!(plain.line(), "*1", "level {level}"));
    assert_eq!(plain.line(), "*0");
    check(&mut other, "GET a", "$-1\r\n");
    assert_eq!((0..4).map(|node| sharded.proxy().counters()[0].nodes[node].failed.get()).sum::<u64>(), 0);
}

/// The smallest `proto-max-bulk-len` is a megabyte: a larger argument costs only its own client.
#[test]
fn a_request_that_its_node_finds_too_large_costs_nobody_else() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let (mut plain, mut other) = (sharded.connect(), sharded.connect());
    for node in &sharded.nodes {
        Plain::connect(node.address).text(&["CONFIG", "SET", "proto-max-bulk-len", "1mb"]);
    }
    let value = "x".repeat((1 << 20) + 100_000);
    for _ in 0..3 {
        let refused = plain.text(&["SET", "a{t}", &value]);
        assert!(refused.starts_with("-ERR"), "{refused}");
        check(&mut other, "GET b{t}", "$-1\r\n");
    }
    assert_eq!((0..4).map(|node| sharded.proxy().counters()[0].nodes[node].failed.get()).sum::<u64>(), 0);
}

#[test]
fn subscribers_are_counted_over_all_nodes() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let (mut listening, mut other) = (sharded.connect(), sharded.connect());
    let channels = [sharded.key_of(0), sharded.key_of(1)];
    listening.text(&["SUBSCRIBE", &channels[0]]);
    listening.text(&["SUBSCRIBE", &channels[1]]);
    listening.text(&["PSUBSCRIBE", "x*"]);
    let counts = other.text(&["PUBSUB", "NUMSUB", &channels[0], &channels[1], "none"]);
    let count = |channel: &str, count| format!("${}\r\n{channel}\r\n:{count}\r\n", channel.len());
    let expected = [count(&channels[0], 1), count(&channels[1], 1), count("none", 0)].concat();
    assert_eq!(counts, format!("*6\r\n{expected}"));
    check(&mut other, "PUBSUB NUMPAT", ":1\r\n");
}

#[test]
fn changes_of_keys_are_told_by_all_nodes() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    for node in &sharded.nodes {
        Plain::connect(node.address).text(&["CONFIG", "SET", "notify-keyspace-events", "KEA"]);
    }
    let (mut listening, mut other) = (sharded.connect(), sharded.connect());
    listening.text(&["SUBSCRIBE", "__keyevent@0__:set"]);
    for node in 0..4 {
        let key = sharded.key_of(node);
        check(&mut other, &format!("SET {key} 1"), "+OK\r\n");
        let message = String::from_utf8(listening.next_reply()).unwrap();
        assert!(message.ends_with(&format!("\r\n{key}\r\n")), "{message}");
    }
}
