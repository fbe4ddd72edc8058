//! Ejection of nodes for a time, as with twemproxy's auto_eject_hosts.

use std::collections::HashSet;
use std::time::Duration;

use proxy::config::{DistributionKind, Ejection, ProxyConfig, Spread};
use proxy::placement::Hash;

use crate::nodes::{self, Plain, Program, Sharded, eventually, free_port, is_there};

/// Longer than any test.
const FOR_GOOD: Duration = Duration::from_secs(600);

fn spread(distribution: DistributionKind) -> Spread {
    Spread::Twemproxy { hash: Hash::Fnv1a64, distribution, hash_tag: None }
}

fn ejecting(distribution: DistributionKind, time: Duration) -> impl FnOnce(&mut ProxyConfig) {
    move |config| {
        config.spread = spread(distribution);
        config.ejection = Some(Ejection { failures: 2, time });
    }
}

/// Keys that differ from their first byte on: FNV maps keys with a common beginning close together, so a node might receive none.
fn keys() -> Vec<String> {
    (0..400_u32).map(|number| format!("{:08x}", number.wrapping_mul(2_654_435_761))).collect()
}

/// Sets every key, until none fails.
#[track_caller]
fn set_all(plain: &mut Plain, keys: &[String]) {
    let mut set = || keys.iter().all(|key| plain.text(&["SET", key, "1"]) == "+OK\r\n");
    eventually("all keys can be set", &mut set);
}

fn keys_of(node: &Program) -> HashSet<Vec<u8>> {
    let mut plain = Plain::connect(node.address);
    plain.send([&[b"KEYS".as_slice(), b"*"][..]]);
    plain.texts().into_iter().collect()
}

/// The keys on each node after all were set.
fn placed(plain: &mut Plain, nodes: &[Program], keys: &[String]) -> Vec<HashSet<Vec<u8>>> {
    set_all(plain, keys);
    // Some were set before the ejection, on their original node.
    for node in nodes {
        Plain::connect(node.address).text(&["FLUSHALL"]);
    }
    set_all(plain, keys);
    nodes.iter().map(keys_of).collect()
}

#[test]
fn the_keys_of_a_node_that_fails_go_to_the_others_and_come_back() {
    if !is_there("redis-server") {
        return;
    }
    for distribution in [DistributionKind::Ketama, DistributionKind::Modula] {
        let mut sharded = Sharded::start(ejecting(distribution, Duration::from_millis(1500)));
        let (mut plain, keys) = (sharded.connect(), keys());
        set_all(&mut plain, &keys);
        let port = sharded.nodes.remove(1).kill();
        set_all(&mut plain, &keys);
        let counters = &sharded.proxy().counters()[0];
        assert!(counters.nodes[1].ejections.get() > 0);
        let back = Program::redis_at(port);
        eventually("it takes keys again", || {
            keys.iter().all(|key| plain.text(&["SET", key, "2"]) == "+OK\r\n") && !keys_of(&back).is_empty()
        });
    }
}

#[test]
fn a_node_keeps_its_keys_where_ejection_is_not_asked_for() {
    if !is_there("redis-server") {
        return;
    }
    let mut sharded = Sharded::start(|config| config.spread = spread(DistributionKind::Ketama));
    let (mut plain, keys) = (sharded.connect(), keys());
    set_all(&mut plain, &keys);
    let with_keys = |node: &Program| Some(String::from_utf8(keys_of(node).into_iter().next()?).unwrap());
    let mut found = sharded.nodes.iter().enumerate().filter_map(|(place, node)| Some((place, with_keys(node)?)));
    let (place, key) = found.next().unwrap();
    drop(found);
    sharded.nodes.remove(place).kill();
    for _ in 0..3 {
        eventually("its keys fail", || plain.text(&["GET", &key]).starts_with("-ERR node"));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(sharded.proxy().counters()[0].nodes[place].ejections.get(), 0);
}

#[test]
fn the_last_node_is_never_ejected() {
    if !is_there("redis-server") {
        return;
    }
    let mut sharded = Sharded::start(ejecting(DistributionKind::Ketama, FOR_GOOD));
    let (mut plain, keys) = (sharded.connect(), keys());
    for _ in 0..3 {
        sharded.nodes.pop().unwrap().kill();
        set_all(&mut plain, &keys);
    }
    let port = sharded.nodes.pop().unwrap().kill();
    eventually("its keys fail", || plain.text(&["GET", "a"]).starts_with("-ERR node"));
    let _back = Program::redis_at(port);
    set_all(&mut plain, &keys);
}

#[test]
fn nutcracker_sends_the_keys_of_an_ejected_node_to_the_same_ones() {
    if !is_there("redis-server") || !is_there("nutcracker") {
        return;
    }
    for (name, distribution) in [("ketama", DistributionKind::Ketama), ("modula", DistributionKind::Modula)] {
        let mut sharded = Sharded::start(ejecting(distribution, FOR_GOOD));
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let servers: String = sharded.nodes.iter().map(|node| format!("   - {}:1\n", node.address)).collect();
        let text = format!(
            "p:\n  listen: 127.0.0.1:{port}\n  hash: fnv1a_64\n  distribution: {name}\n  redis: true\n  timeout: 1000\n  \
             auto_eject_hosts: true\n  server_failure_limit: 2\n  server_retry_timeout: 600000\n  servers:\n{servers}"
        );
        let file = folder.path().join("nutcracker.yml");
        std::fs::write(&file, text).unwrap();
        let (log, stats) = (folder.path().join("log"), free_port().to_string());
        let mut command = nodes::command("nutcracker");
        command.arg("-c").arg(&file).arg("-o").arg(&log).args(["-s", &stats, "-a", "127.0.0.1"]);
        let nutcracker = Program::start(&mut command, port);
        let keys = keys();
        sharded.nodes.remove(2).kill();
        let theirs = placed(&mut Plain::connect(nutcracker.address), &sharded.nodes, &keys);
        let ours = placed(&mut sharded.connect(), &sharded.nodes, &keys);
        assert_eq!(ours, theirs, "{name}");
    }
}

#[test]
fn loops_without_work_see_an_ejection_and_its_end() {
    if !is_there("redis-server") {
        return;
    }
    let time = Duration::from_millis(1500);
    let mut sharded = Sharded::start(|config| {
        config.threads = 2;
        ejecting(DistributionKind::Ketama, time)(config);
    });
    let keys = keys();
    let clients_of = |sharded: &Sharded| [0, 1].map(|at: usize| sharded.proxy().counters()[at].clients.get());
    // A client of each loop.
    let mut clients: [Option<Plain>; 2] = [None, None];
    while clients.iter().any(Option::is_none) {
        let before = clients_of(&sharded);
        let mut client = sharded.connect();
        client.text(&["PING"]);
        let at = usize::from(clients_of(&sharded)[1] > before[1]);
        clients[at].get_or_insert(client);
        eventually("others are gone", || {
            clients_of(&sharded).iter().sum::<u64>() == clients.iter().flatten().count() as u64
        });
    }
    let [mut busy, mut idle] = clients.map(Option::unwrap);
    set_all(&mut busy, &keys);
    set_all(&mut idle, &keys);
    let port = sharded.nodes.remove(1).kill();
    let ejected = |sharded: &Sharded| sharded.proxy().counters().iter().any(|one| one.nodes[1].ejections.get() > 0);
    while !ejected(&sharded) {
        keys.iter().for_each(|key| drop(busy.text(&["SET", key, "2"])));
    }
    // The other loop has had no event since.
    std::thread::sleep(Duration::from_millis(50));
    for key in &keys {
        assert_eq!(idle.text(&["SET", key, "3"]), "+OK\r\n");
    }
    let back = Program::redis_at(port);
    std::thread::sleep(time + Duration::from_millis(300));
    keys.iter().for_each(|key| drop(idle.text(&["SET", key, "4"])));
    assert!(!keys_of(&back).is_empty());
}
