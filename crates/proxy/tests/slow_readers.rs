//! Clients that read slowly, or not at all, or are gone: the node connections that others share are read on.

use std::time::Duration;

use proxy::config::{DistributionKind, Ejection, Spread};
use proxy::placement::Hash;

use crate::nodes::{Plain, Sharded, eventually, is_there};

/// Longer than any test.
const FOR_GOOD: Duration = Duration::from_secs(600);
const LARGE_BYTES: usize = 32 << 20;

/// A value that no client needs to send.
fn make_large(plain: &mut Plain, key: &str) {
    assert_eq!(plain.text(&["SETRANGE", key, &(LARGE_BYTES - 1).to_string(), "x"]), format!(":{LARGE_BYTES}\r\n"));
}

fn get(key: &str) -> Vec<u8> {
    format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()).into_bytes()
}

fn reads_all(plain: &mut Plain) {
    assert_eq!(plain.next_reply().len(), LARGE_BYTES + format!("${LARGE_BYTES}\r\n\r\n").len());
}

fn node_of_the_only_key(sharded: &Sharded) -> usize {
    (0..4).find(|node| Plain::connect(sharded.nodes[*node].address).text(&["DBSIZE"]) == ":1\r\n").unwrap()
}

/// Has a request of `behind` sent after one for a large reply, while the node is stopped.
fn ask_one_behind_the_other(sharded: &Sharded, large: &mut Plain, behind: &mut Plain) {
    let node = node_of_the_only_key(sharded);
    sharded.nodes[node].signal("STOP");
    let in_flight = || sharded.proxy().counters()[0].nodes[node].in_flight.get();
    large.write(&get("a{t}"));
    eventually("it is in flight", || in_flight() == 1);
    behind.write(&get("b{t}"));
    eventually("it is in flight", || in_flight() == 2);
    sharded.nodes[node].signal("CONT");
}

#[test]
fn a_client_that_does_not_read_a_large_reply_delays_nobody() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|config| config.limits.stall_max = FOR_GOOD);
    let (mut slow, mut behind, mut after) = (sharded.connect(), sharded.connect(), sharded.connect());
    make_large(&mut slow, "a{t}");
    for round in 0..3 {
        ask_one_behind_the_other(&sharded, &mut slow, &mut behind);
        assert_eq!(behind.next_reply(), b"$-1\r\n", "behind, round {round}");
        for _ in 0..20 {
            assert_eq!(after.text(&["GET", "b{t}"]), "$-1\r\n", "after, round {round}");
        }
        reads_all(&mut slow);
    }
    // Nothing was lost or closed.
    assert_eq!(slow.text(&["STRLEN", "a{t}"]), format!(":{LARGE_BYTES}\r\n"));
    assert_eq!(sharded.proxy().counters()[0].stalled.get(), 0);
    assert_eq!((0..4).map(|node| sharded.proxy().counters()[0].nodes[node].failed.get()).sum::<u64>(), 0);
}

#[test]
fn a_client_is_disconnected_if_it_holds_too_much_while_others_wait_behind_it() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|config| {
        config.limits.stall_max = FOR_GOOD;
        config.limits.total_bytes_max = 32 << 20;
    });
    let (mut slow, mut behind) = (sharded.connect(), sharded.connect());
    make_large(&mut slow, "a{t}");
    ask_one_behind_the_other(&sharded, &mut slow, &mut behind);
    assert_eq!(behind.next_reply(), b"$-1\r\n");
    eventually("it is disconnected", || sharded.proxy().counters()[0].stalled.get() == 1);
    assert!(slow.has_ended());
}

#[test]
fn a_client_that_reads_fast_gets_a_reply_above_the_bound_while_others_wait_behind_it() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|config| {
        config.limits.stall_max = FOR_GOOD;
        config.limits.total_bytes_max = 32 << 20;
    });
    let (mut fast, mut behind) = (sharded.connect(), sharded.connect());
    make_large(&mut fast, "a{t}");
    for _ in 0..3 {
        ask_one_behind_the_other(&sharded, &mut fast, &mut behind);
        // The node is not read any more, for less than the time after which the client would be disconnected.
        std::thread::sleep(Duration::from_millis(300));
        reads_all(&mut fast);
        assert_eq!(behind.next_reply(), b"$-1\r\n");
    }
    assert_eq!(sharded.proxy().counters()[0].stalled.get(), 0);
}

#[test]
fn a_large_reply_that_comes_too_early_does_not_delay_the_one_before_it() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let (late, early) = (sharded.key_of(0), sharded.key_of(1));
    let mut plain = sharded.connect();
    make_large(&mut plain, &late);
    make_large(&mut plain, &early);
    sharded.nodes[0].signal("STOP");
    plain.write(&[get(&late), get(&early), get(&late)].concat());
    let counters = &sharded.proxy().counters()[0];
    eventually("the second is kept", || counters.kept_bytes.get() > 2 << 20);
    sharded.nodes[0].signal("CONT");
    (0..3).for_each(|_| reads_all(&mut plain));
}

#[test]
fn a_slow_client_is_no_fault_of_its_node() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|config| {
        config.limits.stall_max = FOR_GOOD;
        config.node_timeout = Some(Duration::from_secs(2));
        config.spread = Spread::Twemproxy {
            hash: Hash::Fnv1a64,
            distribution: DistributionKind::Ketama,
            hash_tag: Some([b'{', b'}']),
        };
        config.ejection = Some(Ejection { failures: 1, time: FOR_GOOD });
    });
    let (mut slow, mut other) = (sharded.connect(), sharded.connect());
    make_large(&mut slow, "a{t}");
    slow.write(&get("a{t}"));
    // Longer than the limit for a reply.
    for _ in 0..50 {
        assert_eq!(other.text(&["GET", "b{t}"]), "$-1\r\n");
        std::thread::sleep(Duration::from_millis(100));
    }
    reads_all(&mut slow);
    for node in &sharded.proxy().counters()[0].nodes[..4] {
        assert_eq!((node.failed.get(), node.ejections.get()), (0, 0));
    }
}

#[test]
fn a_large_request_is_taken_after_a_large_reply() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let mut plain = sharded.connect();
    make_large(&mut plain, "a{t}");
    let value = "x".repeat(5 << 20);
    for _ in 0..3 {
        plain.write(&get("a{t}"));
        reads_all(&mut plain);
        assert_eq!(plain.text(&["SET", "b{t}", &value]), "+OK\r\n");
        assert_eq!(plain.text(&["STRLEN", "b{t}"]), format!(":{}\r\n", value.len()));
    }
    drop(plain);
    eventually("no client is left", || sharded.proxy().counters()[0].clients.get() == 0);
}

#[test]
fn a_request_that_ends_half_way_leaves_no_connection_behind() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|config| config.limits.request_bytes_max = 100_000);
    let mut plain = sharded.connect();
    plain.write(b"*3\r\n$3\r\nSET\r\n$4\r\nb{t}\r\n$1000000\r\n");
    plain.write(&[b'x'; 500_000]);
    eventually("it is passed on", || sharded.proxy().counters()[0].own_connections.get() == 1);
    plain.stream().shutdown(std::net::Shutdown::Write).unwrap();
    assert!(plain.has_ended());
    let counters = &sharded.proxy().counters()[0];
    eventually("all are gone", || counters.clients.get() == 0 && counters.own_connections.get() == 0);
}

/// Replies in flight fill a node's memory if they are not read as fast as they are asked for.
#[test]
fn replies_in_flight_from_a_node_are_bounded() {
    if !is_there("redis-server") {
        return;
    }
    const CLIENTS: usize = 60;
    const REQUESTS: usize = 10;
    let sharded = Sharded::start(|_| {});
    let mut plain = sharded.connect();
    assert_eq!(plain.text(&["SET", "a{t}", &"x".repeat(1_000_000)]), "+OK\r\n");
    for _ in 0..30 {
        assert_eq!(plain.reply(&["GET", "a{t}"]).len(), 1_000_012);
    }
    let node = node_of_the_only_key(&sharded);
    sharded.nodes[node].signal("STOP");
    let mut clients: Vec<Plain> = (0..CLIENTS).map(|_| sharded.connect()).collect();
    clients.iter_mut().for_each(|client| client.write(&get("a{t}").repeat(REQUESTS)));
    // The node of another client's key answers meanwhile.
    let other = (0..4).find(|other| *other != node).unwrap();
    assert_eq!(plain.text(&["GET", &sharded.key_of(other)]), "$-1\r\n");
    eventually("all are connected", || sharded.proxy().counters()[0].clients.get() > CLIENTS as u64);
    std::thread::sleep(Duration::from_millis(200));
    let in_flight = sharded.proxy().counters()[0].nodes[node].in_flight.get();
    assert!((10..40).contains(&in_flight), "{in_flight} of a megabyte each are in flight");
    // Half of them are gone before the node answers.
    clients.truncate(CLIENTS / 2);
    sharded.nodes[node].signal("CONT");
    let reading: Vec<_> = clients
        .into_iter()
        .map(|mut client| {
            std::thread::spawn(move || (0..REQUESTS).for_each(|_| assert_eq!(client.next_reply().len(), 1_000_012)))
        })
        .collect();
    reading.into_iter().for_each(|reading| reading.join().unwrap());
    eventually("nothing is in flight", || sharded.proxy().counters()[0].nodes[node].in_flight.get() == 0);
}
