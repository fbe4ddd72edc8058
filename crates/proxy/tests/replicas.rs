//! Reads answered by a cluster's replicas.

use crate::nodes::cluster::Cluster;
use crate::nodes::{Plain, address_of, eventually, is_there};
use proxy::placement::slot_of;

/// Number of requests that the proxy sent to a node of the cluster.
fn requests(proxy: &proxy::RunningProxy, cluster: &Cluster, node: usize) -> u64 {
    let counters = &proxy.counters()[0];
    let name = cluster.nodes[node].address.to_string();
    let at = counters.node_names().iter().position(|known| *known == name);
    at.map_or(0, |at| counters.nodes[at].requests.answered.get())
}

fn end(proxy: proxy::RunningProxy) {
    proxy.drain(std::time::Duration::ZERO);
    proxy.join().unwrap();
}

/// Keys of the first two masters: one has a replica, the other none.
fn keys() -> (String, String) {
    let of = |range: std::ops::RangeInclusive<u16>| {
        (0..).map(|number| format!("k{number}")).find(|key| range.contains(&slot_of(key.as_bytes()))).unwrap()
    };
    (of(0..=5460), of(5461..=10922))
}

#[test]
fn replicas_answer_reads_and_masters_writes() {
    if !is_there("redis-server") {
        return;
    }
    let cluster = Cluster::start(1);
    let proxy = cluster.proxy(|config| config.reads_replicas = true);
    let mut plain = Plain::connect(address_of(&proxy));
    let (copied, single) = keys();
    assert_eq!(plain.text(&["SET", &copied, "1"]), "+OK\r\n");
    assert_eq!(plain.text(&["SET", &single, "2"]), "+OK\r\n");
    // The master answers while the proxy has no connection to the replica.
    eventually("the value has come to the replica, and the replica answers", || {
        plain.text(&["GET", &copied]) == "$1\r\n1\r\n" && requests(&proxy, &cluster, 3) > 0
    });
    let (master, replica) = (requests(&proxy, &cluster, 0), requests(&proxy, &cluster, 3));
    for _ in 0..20 {
        assert_eq!(plain.text(&["GET", &copied]), "$1\r\n1\r\n");
        assert_eq!(plain.text(&["MGET", &single, &copied]), "*2\r\n$1\r\n2\r\n$1\r\n1\r\n");
        assert_eq!(plain.text(&["GET", &single]), "$1\r\n2\r\n");
    }
    assert_eq!(requests(&proxy, &cluster, 3), replica + 40);
    assert_eq!(requests(&proxy, &cluster, 0), master);
    assert_eq!(plain.text(&["DEL", &copied]), ":1\r\n");
    assert_eq!(requests(&proxy, &cluster, 0), master + 1);
    // Replicas do not count as further nodes.
    assert_eq!(plain.text(&["DBSIZE"]), ":1\r\n");
    end(proxy);
}

#[test]
fn a_master_answers_while_its_replica_is_gone() {
    if !is_there("redis-server") {
        return;
    }
    let mut cluster = Cluster::start(1);
    let proxy = cluster.proxy(|config| config.reads_replicas = true);
    let mut plain = Plain::connect(address_of(&proxy));
    let (copied, _) = keys();
    assert_eq!(plain.text(&["SET", &copied, "1"]), "+OK\r\n");
    eventually("the value has come to the replica", || plain.text(&["GET", &copied]) == "$1\r\n1\r\n");
    cluster.nodes.pop().unwrap().kill();
    // A failed attempt to reach it costs requests; back-off makes such attempts rare.
    let mut answered = 0;
    eventually("the master answers", || {
        answered += u64::from(plain.text(&["GET", &copied]) == "$1\r\n1\r\n");
        answered == 20
    });
    end(proxy);
}

#[test]
fn masters_answer_all_where_replicas_are_not_asked_for() {
    if !is_there("redis-server") {
        return;
    }
    let cluster = Cluster::start(1);
    let proxy = cluster.proxy(|_| {});
    let mut plain = Plain::connect(address_of(&proxy));
    let (copied, _) = keys();
    for _ in 0..20 {
        assert_eq!(plain.text(&["GET", &copied]), "$-1\r\n");
    }
    assert_eq!(requests(&proxy, &cluster, 3), 0);
    end(proxy);
}
