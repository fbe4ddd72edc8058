//! Redis Cluster: three masters, slots that move while clients work, a lost master.

use crate::nodes::cluster::Cluster;
use crate::nodes::{Plain, address_of, eventually, is_there};
use proxy::placement::slot_of;

fn end(proxy: proxy::RunningProxy) {
    proxy.drain(std::time::Duration::ZERO);
    proxy.join().unwrap();
}

#[test]
fn a_cluster_is_served_as_one_redis() {
    if !is_there("redis-server") {
        return;
    }
    let cluster = Cluster::start(0);
    let proxy = cluster.proxy(|_| {});
    let mut plain = Plain::connect(address_of(&proxy));
    let keys: Vec<String> = (0..300).map(|number| format!("k{number}")).collect();
    let mut set = vec!["MSET"];
    keys.iter().for_each(|key| set.extend([key.as_str(), key.as_str()]));
    assert_eq!(plain.text(&set), "+OK\r\n");
    let mut get = vec!["MGET"];
    keys.iter().rev().for_each(|key| get.push(key));
    let expected: String = keys.iter().rev().map(|key| format!("${}\r\n{key}\r\n", key.len())).collect();
    assert_eq!(plain.text(&get), format!("*300\r\n{expected}"));
    assert_eq!(plain.text(&["DBSIZE"]), ":300\r\n");
    for key in &keys {
        assert_eq!(plain.text(&["GET", key]), format!("${}\r\n{key}\r\n", key.len()));
    }
    for node in &cluster.nodes {
        assert_ne!(Plain::connect(node.address).text(&["DBSIZE"]), ":0\r\n");
    }
    end(proxy);
}

#[test]
fn a_slot_that_moves_is_followed() {
    if !is_there("redis-server") {
        return;
    }
    let cluster = Cluster::start(0);
    let proxy = cluster.proxy(|_| {});
    let mut plain = Plain::connect(address_of(&proxy));
    let slot = slot_of(b"{t}");
    let from = usize::from(slot / 5462);
    assert_eq!(plain.text(&["MSET", "{t}1", "a", "{t}2", "b"]), "+OK\r\n");
    cluster.move_slot(slot, from, (from + 1) % 3, || {
        // ASK: the slot still belongs to the first node, but its keys are on the second.
        assert_eq!(plain.text(&["GET", "{t}1"]), "$1\r\na\r\n");
        assert_eq!(plain.text(&["SET", "{t}3", "c"]), "+OK\r\n");
        plain.write(b"get {t}1\r\nget {t}2\r\nget other\r\nget {t}3\r\n");
        let replies: Vec<u8> = (0..4).flat_map(|_| plain.next_reply()).collect();
        assert_eq!(replies, b"$1\r\na\r\n$1\r\nb\r\n$-1\r\n$1\r\nc\r\n");
    });
    // MOVED, after which the table is correct again.
    plain.write(b"get {t}1\r\nmget {t}1 {t}2 x y z\r\nget {t}3\r\n");
    assert_eq!(plain.next_reply(), b"$1\r\na\r\n");
    assert_eq!(plain.next_reply(), b"*5\r\n$1\r\na\r\n$1\r\nb\r\n$-1\r\n$-1\r\n$-1\r\n");
    assert_eq!(plain.next_reply(), b"$1\r\nc\r\n");
    let name = |node: usize| cluster.nodes[node].address.to_string();
    let errors = |node: usize| {
        let at = proxy.counters()[0].node_names().iter().position(|known| *known == name(node)).unwrap();
        proxy.counters()[0].nodes[at].requests.errors.get()
    };
    let before = errors(from);
    for _ in 0..20 {
        assert_eq!(plain.text(&["GET", "{t}2"]), "$1\r\nb\r\n");
    }
    assert_eq!(errors(from), before);
    end(proxy);
}

#[test]
fn the_first_node_is_not_needed_once_the_others_are_known() {
    if !is_there("redis-server") {
        return;
    }
    let mut cluster = Cluster::start(0);
    let proxy = cluster.proxy(|_| {});
    let mut plain = Plain::connect(address_of(&proxy));
    let keys: Vec<String> = (0..30).map(|number| format!("k{number}")).collect();
    for key in &keys {
        assert_eq!(plain.text(&["SET", key, "v"]), "+OK\r\n");
    }
    // The configured node is not needed any more.
    cluster.nodes.remove(0).kill();
    for key in keys.iter().filter(|key| slot_of(key.as_bytes()) > 5460) {
        assert_eq!(plain.text(&["GET", key]), "$1\r\nv\r\n");
    }
    let lost = keys.iter().find(|key| slot_of(key.as_bytes()) <= 5460).unwrap();
    eventually("its keys fail", || plain.text(&["GET", lost]).starts_with('-'));
    end(proxy);
}

/// Moves the slot of `{t}` to the next node, and waits until all nodes know it; returns the node.
fn move_on(cluster: &Cluster, slot: u16, from: usize) -> usize {
    let to = (from + 1) % 3;
    cluster.move_slot(slot, from, to, || {});
    let moved = format!("-MOVED {slot} {}\r\n", cluster.nodes[to].address);
    for (number, node) in cluster.nodes.iter().enumerate() {
        let mut plain = Plain::connect(node.address);
        let expected = if number == to { "$-1\r\n" } else { &moved };
        eventually("the node knows it", || plain.text(&["GET", "none{t}"]) == expected);
    }
    to
}

#[test]
fn a_slot_that_moves_is_followed_by_commands_on_reserved_connections() {
    if !is_there("redis-server") {
        return;
    }
    let cluster = Cluster::start(0);
    let proxy = cluster.proxy(|_| {});
    let mut plain = Plain::connect(address_of(&proxy));
    let slot = slot_of(b"{t}");
    let mut at = usize::from(slot / 5462);
    assert_eq!(plain.text(&["RPUSH", "l{t}", "a", "b", "c", "d"]), ":4\r\n");
    let value = "v".repeat((1 << 20) + 1);
    for value_left in ["a", "b"] {
        // The table of slots is outdated after each move.
        at = move_on(&cluster, slot, at);
        let popped = format!("*2\r\n$4\r\nl{{t}}\r\n$1\r\n{value_left}\r\n");
        assert_eq!(plain.text(&["BLPOP", "l{t}", "1"]), popped);
        at = move_on(&cluster, slot, at);
        assert_eq!(plain.text(&["SET", "s{t}", &value]), "+OK\r\n");
        // A transaction whose node is not known to be another is to be repeated; then it is executed.
        at = move_on(&cluster, slot, at);
        let transaction = |plain: &mut Plain| {
            plain.write(b"multi\r\nset m{t} 1\r\nget m{t}\r\nexec\r\n");
            (0..4).map(|_| String::from_utf8(plain.next_reply()).unwrap()).collect::<Vec<_>>()
        };
        let replies = transaction(&mut plain);
        assert!(replies[1].starts_with("-TRYAGAIN ") && replies[3].starts_with("-EXECABORT "), "{replies:?}");
        eventually("it is executed", || transaction(&mut plain)[3] == "*2\r\n+OK\r\n$1\r\n1\r\n");
        // So is the watch of a key.
        at = move_on(&cluster, slot, at);
        let watch = |plain: &mut Plain| {
            plain.write(b"watch m{t}\r\nmulti\r\nincr m{t}\r\nexec\r\nunwatch\r\n");
            (0..5).map(|_| String::from_utf8(plain.next_reply()).unwrap()).collect::<Vec<_>>()
        };
        let replies = watch(&mut plain);
        assert!(replies[0].starts_with("-TRYAGAIN ") && replies[3].starts_with("-EXECABORT "), "{replies:?}");
        eventually("it is executed", || watch(&mut plain)[3] == "*1\r\n:2\r\n");
    }
    assert!(proxy.counters()[0].own_connections.get() <= 4);
    end(proxy);
}

#[test]
fn nodes_that_are_named_by_their_hosts_are_found() {
    if !is_there("redis-server") {
        return;
    }
    let cluster = Cluster::start(0);
    for (number, node) in cluster.nodes.iter().enumerate() {
        let mut plain = Plain::connect(node.address);
        let host = format!("node{number}.example");
        assert_eq!(plain.text(&["CONFIG", "SET", "cluster-announce-hostname", &host]), "+OK\r\n");
        assert_eq!(plain.text(&["CONFIG", "SET", "cluster-preferred-endpoint-type", "hostname"]), "+OK\r\n");
    }
    for node in &cluster.nodes {
        let mut plain = Plain::connect(node.address);
        eventually("the names are known", || plain.text(&["CLUSTER", "SLOTS"]).matches(".example").count() >= 3);
    }
    let proxy = cluster.proxy(|_| {});
    let mut plain = Plain::connect(address_of(&proxy));
    for number in 0..100 {
        assert_eq!(plain.text(&["SET", &format!("k{number}"), "v"]), "+OK\r\n");
    }
    assert_eq!(plain.text(&["DBSIZE"]), ":100\r\n");
    end(proxy);
}

/// A cluster of one node, which answers from another port each time it is asked for its slots.
#[test]
fn numbers_of_nodes_that_have_left_the_cluster_are_used_again() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let node = std::thread::spawn(move || {
        let mut port = 20_000;
        // On a busy machine the proxy may give its first connection up.
        while let Ok((mut stream, _)) = listener.accept() {
            let mut bytes = [0; 4096];
            while let Ok(taken @ 1..) = stream.read(&mut bytes) {
                if bytes[..taken].starts_with(b"stop") {
                    return port;
                }
                for word in String::from_utf8_lossy(&bytes[..taken]).split("\r\n") {
                    let reply = match word {
                        "COMMAND" => "*0\r\n".to_owned(),
                        "SLOTS" => {
                            port += 1;
                            let own = format!("*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{}\r\n", address.port());
                            format!("*2\r\n{own}*3\r\n:0\r\n:1\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n")
                        }
                        "GET" => format!("-MOVED 100 127.0.0.1:{}\r\n", address.port()),
                        _ => continue,
                    };
                    if stream.write_all(reply.as_bytes()).is_err() {
                        break;
                    }
                }
            }
        }
        port
    });
    let proxy = crate::nodes::start_proxy(&[address], |config| config.spread = proxy::config::Spread::Slots);
    let mut plain = Plain::connect(address_of(&proxy));
    let key = (0..).map(|number| format!("k{number}")).find(|key| slot_of(key.as_bytes()) > 1).unwrap();
    for _ in 0..8 {
        // A redirection has the table read again, at most every 200 ms.
        assert!(plain.text(&["GET", &key]).starts_with("-MOVED"));
        std::thread::sleep(std::time::Duration::from_millis(220));
    }
    assert!(proxy.counters()[0].node_names().len() <= 3, "{:?}", proxy.counters()[0].node_names());
    drop(plain);
    end(proxy);
    std::net::TcpStream::connect(address).unwrap().write_all(b"stop").unwrap();
    assert!(node.join().unwrap() >= 20_004, "the table was read several times");
}
