//! Nodes that refuse the set-up of a connection: they can be reached, and only its client has errors.

use std::time::Duration;

use proxy::config::{DistributionKind, Ejection, Spread};
use proxy::placement::Hash;

use crate::nodes::{Plain, Program, address_of, is_there, start_proxy};

#[test]
fn a_database_exists_if_a_node_says_so() {
    if !is_there("redis-server") {
        return;
    }
    let nodes: Vec<Program> = (0..2).map(|_| Program::redis_with(&["--databases", "4"])).collect();
    let addresses: Vec<_> = nodes.iter().map(|node| node.address).collect();
    let proxy = start_proxy(&addresses, |config| {
        config.spread =
            Spread::Twemproxy { hash: Hash::Fnv1a64, distribution: DistributionKind::Ketama, hash_tag: None };
        config.ejection = Some(Ejection { failures: 1, time: Duration::from_secs(600) });
    });
    let (mut plain, mut other) = (Plain::connect(address_of(&proxy)), Plain::connect(address_of(&proxy)));
    for _ in 0..5 {
        for database in ["4", "9", "16", "9999999999", "-1"] {
            assert!(plain.text(&["SELECT", database]).starts_with("-ERR DB index is out of range"), "{database}");
        }
        for number in 0..20 {
            assert_eq!(other.text(&["SET", &format!("k{number}"), "0"]), "+OK\r\n");
            assert_eq!(plain.text(&["GET", &format!("k{number}")]), "$1\r\n0\r\n");
        }
    }
    assert_eq!(plain.text(&["SELECT", "3"]), "+OK\r\n");
    assert_eq!(plain.text(&["GET", "k1"]), "$-1\r\n");
    // The next command of a pipeline is one of the new database, or of the old one if there is none.
    plain.write(b"SELECT 2\r\nSET p 2\r\nSELECT 7\r\nGET p\r\nSELECT 0\r\nGET p\r\n");
    let replies: Vec<u8> = (0..6).flat_map(|_| plain.next_reply()).collect();
    let expected = "+OK\r\n+OK\r\n-ERR DB index is out of range\r\n$1\r\n2\r\n+OK\r\n$-1\r\n";
    assert_eq!(String::from_utf8_lossy(&replies), expected);
    for node in &proxy.counters()[0].nodes[..2] {
        assert_eq!((node.failed.get(), node.ejections.get()), (0, 0));
    }
    proxy.drain(Duration::ZERO);
    proxy.join().unwrap();
}

#[test]
fn a_node_that_refuses_one_client_s_set_up_serves_the_others() {
    if !is_there("redis-server") {
        return;
    }
    let nodes = [Program::redis(), Program::redis_with(&["--databases", "2"])];
    let proxy = start_proxy(&[nodes[0].address, nodes[1].address], |_| {});
    let (mut plain, mut other) = (Plain::connect(address_of(&proxy)), Plain::connect(address_of(&proxy)));
    let keys = [0, 1].map(|node| crate::nodes::key_of(node, 2, 0));
    assert_eq!(plain.text(&["SELECT", "9"]), "+OK\r\n");
    for _ in 0..20 {
        assert_eq!(plain.text(&["GET", &keys[0]]), "$-1\r\n");
        let refused = plain.text(&["GET", &keys[1]]);
        assert!(refused.starts_with("-ERR node") && refused.contains("DB index is out of range"), "{refused}");
        let refused = plain.text(&["BLPOP", &keys[1], "0.01"]);
        assert!(refused.starts_with("-ERR node") && refused.contains("DB index is out of range"), "{refused}");
        assert_eq!(other.text(&["GET", &keys[1]]), "$-1\r\n");
        assert_eq!(other.text(&["BLPOP", &keys[1], "0.01"]), "*-1\r\n");
    }
    assert_eq!(proxy.counters()[0].nodes[1].failed.get(), 0);
    proxy.drain(Duration::ZERO);
    proxy.join().unwrap();
}
