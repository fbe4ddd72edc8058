//! Connections to nodes before the first request for them.

use crate::nodes::{Sharded, eventually, is_there};

#[test]
fn nodes_are_connected_to_at_the_start_if_that_is_asked_for() {
    if !is_there("redis-server") {
        return;
    }
    let connected = |sharded: &Sharded| {
        let counters = &sharded.proxy().counters()[0];
        (0..4).filter(|node| counters.nodes[*node].connected.get() > 0).count()
    };
    let eager = Sharded::start(|config| config.preconnect = true);
    eventually("all nodes are connected", || connected(&eager) == 4);
    // The others wait for a request, and then connect only to its node.
    let lazy = Sharded::start(|_| {});
    let mut plain = lazy.connect();
    plain.text(&["GET", &lazy.key_of(2)]);
    assert_eq!(connected(&lazy), 1);
}

#[test]
fn a_node_that_is_down_at_the_start_is_connected_to_when_it_is_needed() {
    if !is_there("redis-server") {
        return;
    }
    let gone = crate::nodes::free_port();
    let proxy = crate::nodes::start_proxy(&[([127, 0, 0, 1], gone).into()], |config| config.preconnect = true);
    let counters = &proxy.counters()[0];
    eventually("it was tried", || counters.nodes[0].failed.get() > 0);
    let _node = crate::nodes::Program::redis_at(gone);
    let mut plain = crate::nodes::Plain::connect(crate::nodes::address_of(&proxy));
    eventually("it answers", || plain.text(&["GET", "a"]) == "$-1\r\n");
    proxy.drain(std::time::Duration::ZERO);
    proxy.join().unwrap();
}
