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
