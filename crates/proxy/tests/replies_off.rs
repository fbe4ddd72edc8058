//! CLIENT REPLY OFF and SKIP: commands whose replies are not wanted are executed, in their order.

use crate::nodes::{Plain, Program, Sharded, is_there};

/// Sends inline commands to a Redis and through the proxy at once, and compares this many replies.
#[track_caller]
fn check_beside_redis(single: &mut Plain, proxied: &mut Plain, commands: &[&str], replies: usize) {
    let text = commands.join("\r\n") + "\r\n";
    single.write(text.as_bytes());
    proxied.write(text.as_bytes());
    for number in 0..replies {
        let (expected, got) = (single.next_reply(), proxied.next_reply());
        let text = |reply: &[u8]| String::from_utf8_lossy(reply).into_owned();
        assert_eq!(text(&got), text(&expected), "reply {number} of {commands:?}");
    }
}

#[test]
fn what_is_sent_without_replies_is_executed_in_its_order() {
    if !is_there("redis-server") {
        return;
    }
    let (redis, sharded) = (Program::redis(), Sharded::start(|_| {}));
    let (mut single, mut proxied) = (Plain::connect(redis.address), sharded.connect());
    let off = "CLIENT REPLY OFF";
    let on = "CLIENT REPLY ON";
    for round in 0..20 {
        for (commands, replies) in [
            (&[off, "MULTI", "SET k{t} 1", "EXEC", on, "GET k{t}", "DEL k{t}"][..], 3),
            (&[off, "SET a{t} 1", "MULTI", "APPEND a{t} 2", "EXEC", "APPEND a{t} 3", on, "GET a{t}", "DEL a{t}"], 3),
            (&[off, "RPUSH l{t} a b", "BLPOP l{t} 1", "BLPOP none{t} 0.01", on, "LRANGE l{t} 0 -1", "DEL l{t}"], 3),
            (&["RPUSH l{t} a b", "CLIENT REPLY SKIP", "BLPOP l{t} 1", "LLEN l{t}", "DEL l{t}"], 3),
            (&[off, "WATCH w{t}", "SET w{t} 1", "MULTI", "SET w{t} 2", "EXEC", on, "GET w{t}", "DEL w{t}"], 3),
            (&[off, "MULTI", "SET d{t} 1", "DISCARD", "MULTI", "NOSUCH", "EXEC", on, "GET d{t}"], 2),
            (&[off, "SELECT 1", "SET s{t} 1", "SELECT 0", on, "GET s{t}", "SELECT 1", "GET s{t}", "SELECT 0"], 5),
            (&[off, "MSET m{t} 1 n{u} 2", "MULTI", "INCR m{t}", "EXEC", on, "MGET m{t} n{u}", "DEL m{t} n{u}"], 3),
            (&["CLIENT REPLY SKIP", "MULTI", "SET k{t} 4", "EXEC", "GET k{t}", "DEL k{t}"], 4),
        ] {
            check_beside_redis(&mut single, &mut proxied, commands, replies);
        }
        assert_eq!(sharded.proxy().counters()[0].refused.get(), 2 * (round + 1), "only of NOSUCH");
    }
}

#[test]
fn transactions_of_a_client_that_reads_no_replies_are_all_executed() {
    if !is_there("redis-server") {
        return;
    }
    const TRANSACTIONS: i64 = 300;
    let sharded = Sharded::start(|_| {});
    let mut client = resp::Client::connect(&format!("redis://{}", sharded.address())).unwrap();
    let mut pipeline = resp::Pipeline::new();
    for _ in 0..TRANSACTIONS {
        pipeline.add(("MULTI",)).add(("INCR", "n{t}")).add(("EXEC",)).add(("INCR", "m{t}"));
    }
    client.noreply_pipeline(&pipeline).unwrap();
    let values: Vec<i64> = client.command(("MGET", "n{t}", "m{t}")).unwrap();
    assert_eq!(values, [TRANSACTIONS, TRANSACTIONS]);
}

#[test]
fn a_client_that_leaves_after_exec_has_its_transaction_executed() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    for _ in 0..20 {
        let mut plain = sharded.connect();
        plain.write(b"CLIENT REPLY OFF\r\nMULTI\r\nINCR n{t}\r\nEXEC\r\n");
    }
    let mut plain = sharded.connect();
    crate::nodes::eventually("all are executed", || plain.text(&["GET", "n{t}"]) == "$2\r\n20\r\n");
}

#[test]
fn messages_reach_a_subscriber_whose_replies_are_off() {
    if !is_there("redis-server") {
        return;
    }
    let (redis, sharded) = (Program::redis(), Sharded::start(|_| {}));
    for version in ["2", "3"] {
        for switch in ["OFF", "SKIP"] {
            let (mut single, mut proxied) = (Plain::connect(redis.address), sharded.connect());
            for plain in [&mut single, &mut proxied] {
                plain.reply(&["HELLO", version]);
            }
            check_beside_redis(&mut single, &mut proxied, &[&format!("CLIENT REPLY {switch}"), "SUBSCRIBE ch"], 1);
            for mut other in [Plain::connect(redis.address), sharded.connect()] {
                assert_eq!(other.text(&["PUBLISH", "ch", "m"]), ":1\r\n");
            }
            let expected = single.next_reply();
            assert_eq!(proxied.next_reply(), expected, "RESP{version}, {switch}");
        }
    }
}
