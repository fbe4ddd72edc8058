//! What a resharding copies: expiry times, databases, patterns; at which rate, and to a cluster.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use proxy::reshard::{CopyPlan, Reshard, masters};
use resp::{Client, ClientSettings, Endpoint, Pipeline};

use crate::nodes::cluster::Cluster;
use crate::nodes::{Program, address_of, eventually, is_there};
use crate::reshard::{Servers, check_equal, fill, follow_and};

fn settings(program: &Program) -> ClientSettings {
    ClientSettings::of(&format!("redis://{}", program.address)).unwrap()
}

/// The sizes of the databases of all nodes, added up.
fn count(nodes: &[ClientSettings]) -> u64 {
    nodes.iter().map(|node| Client::new(node.clone()).command::<u64>("DBSIZE").unwrap()).sum()
}

#[test]
fn a_key_that_ends_while_it_is_copied_by_type_leaves_nothing() {
    const MEMBERS: usize = 200_000;
    let Some(servers) = Servers::start() else { return };
    let (plan, stop) = (servers.plan(0, true), AtomicBool::new(false));
    let mut source = Client::new(plan.source.clone());
    let mut node = Client::new(plan.nodes[plan.placement.node(b"large", 0)].clone());
    for end in [&["PEXPIRE", "large", "1"][..], &["DEL", "large"], &["SET", "large", "small"]] {
        let mut members = Pipeline::new();
        for first in (0..MEMBERS).step_by(1_000) {
            members.add(("SADD", "large", (first..first + 1_000).collect::<Vec<usize>>()));
        }
        source.pipeline::<()>(&members).unwrap().into_iter().for_each(Result::unwrap);
        std::thread::scope(|scope| {
            let copying = scope.spawn(|| Reshard::new(plan.clone(), &stop).copy(&mut |_| {}));
            let mut copied = 0;
            eventually("a part is copied", || {
                copied = node.command::<u64>(("SCARD", "large")).unwrap();
                copied > 0
            });
            source.command::<()>(end).unwrap();
            copying.join().unwrap().unwrap();
            assert!(copied < MEMBERS as u64, "the key was copied before it could end");
        });
        let rest = source.command::<u64>(("EXISTS", "large")).unwrap();
        assert_eq!(node.command::<u64>(("EXISTS", "large")).unwrap(), rest, "{end:?}");
        check_equal(&Reshard::new(plan.clone(), &stop), rest);
        for client in [&mut source, &mut node] {
            client.command::<()>(("DEL", "large")).unwrap();
        }
    }
}

/// When each key expires, by `PEXPIRETIME`.
fn expiry_times(client: &mut Client, keys: &[String]) -> Vec<i64> {
    let mut pipeline = Pipeline::new();
    for key in keys {
        pipeline.add(("PEXPIRETIME", key));
    }
    client.pipeline(&pipeline).unwrap().into_iter().map(Result::unwrap).collect()
}

#[test]
fn no_time_to_live_grows_while_a_node_hangs() {
    for by_type in [false, true] {
        let Some(servers) = Servers::start() else { return };
        let (plan, stop) = (servers.plan(0, by_type), AtomicBool::new(false));
        let mut source = Client::new(plan.source.clone());
        let keys: Vec<String> = (0..400).map(|number| format!("key:{number}")).collect();
        for key in &keys {
            source.command::<()>(("SET", key, 1, "PX", 600_000)).unwrap();
        }
        let mut is_hung = false;
        std::thread::scope(|scope| {
            let hung = &servers.nodes;
            let copied = Reshard::new(plan.clone(), &stop).copy(&mut |_| {
                if !std::mem::replace(&mut is_hung, true) {
                    hung.iter().for_each(|node| node.signal("STOP"));
                    scope.spawn(|| {
                        std::thread::sleep(Duration::from_millis(1_500));
                        hung.iter().for_each(|node| node.signal("CONT"));
                    });
                }
            });
            assert_eq!(copied.unwrap(), 400);
        });
        let here = expiry_times(&mut source, &keys);
        for (place, node) in plan.nodes.iter().enumerate() {
            let there = expiry_times(&mut Client::new(node.clone()), &keys);
            for ((key, here), there) in keys.iter().zip(&here).zip(there) {
                let expected = if plan.placement.node(key.as_bytes(), 0) == place { *here } else { -2 };
                assert_eq!(there, expected, "{key}, by_type: {by_type}");
            }
        }
    }
}

#[test]
fn a_server_that_does_not_tell_expiry_times_is_copied_with_times_to_live() {
    if !is_there("redis-server") {
        return;
    }
    let start = |more: &[&str]| {
        let port = crate::nodes::free_port();
        let mut command = crate::nodes::command("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", "/tmp", "--port"]);
        Program::start(command.arg(port.to_string()).args(more), port)
    };
    let (old, node) = (start(&["--rename-command", "PEXPIRETIME", ""]), start(&[]));
    let placement = proxy::placement::Placement::Crc32 { nodes: 1, hash_tag: None };
    let (plan, stop) = (CopyPlan::new(settings(&old), vec![settings(&node)], placement), AtomicBool::new(false));
    fill(&mut Client::new(plan.source.clone()), 500);
    for by_type in [false, true] {
        let reshard = Reshard::new(CopyPlan { by_type, ..plan.clone() }, &stop);
        assert_eq!(reshard.copy(&mut |_| {}).unwrap(), 500);
        check_equal(&reshard, 500);
        let left: i64 = Client::new(plan.nodes[0].clone()).command(("PTTL", "key:7{tag7}")).unwrap();
        assert!((1..=600_007).contains(&left), "{left}");
    }
}

#[test]
fn keys_that_expire_during_a_comparison_are_no_differences() {
    let Some(servers) = Servers::start() else { return };
    let (plan, stop) = (servers.plan(0, false), AtomicBool::new(false));
    let mut source = Client::new(plan.source.clone());
    let reshard = Reshard::new(plan.clone(), &stop);
    let mut pipeline = Pipeline::new();
    for number in 0..20_000 {
        pipeline.add(("SET", format!("key:{number}"), number, "PX", 300 + number % 2_000));
    }
    source.pipeline::<()>(&pipeline).unwrap().into_iter().for_each(Result::unwrap);
    reshard.copy(&mut |_| {}).unwrap();
    while source.command::<u64>("DBSIZE").unwrap() > 0 {
        let found = reshard.verify(&mut |_| {}).unwrap();
        assert!(found.is_equal(), "{found:?}");
    }
    // Of two servers one may be a little later.
    source.command::<()>(("SET", "here", 1, "PX", 1_500)).unwrap();
    for node in &plan.nodes {
        let own = (0..).map(|number| format!("own:{number}"));
        let mut own = own.filter(|key| plan.nodes[plan.placement.node(key.as_bytes(), 0)] == *node);
        Client::new(node.clone()).command::<()>(("SET", own.next(), 1, "PX", 1_500)).unwrap();
    }
    let found = reshard.verify(&mut |_| {}).unwrap();
    assert!(found.is_equal(), "{found:?}");
    // A key without an end, or with a late one, is a difference on either side.
    source.command::<()>(("SET", "here", 1, "EX", 100)).unwrap();
    let place = plan.placement.node(b"there", 0);
    Client::new(plan.nodes[place].clone()).command::<()>(("SET", "there", 1, "EX", 100)).unwrap();
    let found = reshard.verify(&mut |_| {}).unwrap();
    assert_eq!((found.differing_keys, found.extra_keys), (1, 1), "{found:?}");
}

#[test]
fn all_databases_are_copied_followed_and_compared() {
    let Some(servers) = Servers::start() else { return };
    let plan = CopyPlan { all_databases: true, ..servers.plan(0, false) };
    let (stop, never) = (AtomicBool::new(false), AtomicBool::new(false));
    let reshard = Reshard::new(plan.clone(), &never);
    let mut in_database: Vec<Client> =
        [0, 3, 9].map(|database| Client::new(ClientSettings { database, ..plan.source.clone() })).into_iter().collect();
    fill(&mut in_database[0], 200);
    fill(&mut in_database[1], 100);
    assert_eq!(reshard.copy(&mut |_| {}).unwrap(), 300);
    check_equal(&reshard, 300);
    let followed = follow_and(
        &plan,
        |_| {
            in_database[1].command::<()>(("DEL", "key:1{tag1}")).unwrap();
            in_database[0].command::<()>(("MOVE", "key:8{tag8}", 9)).unwrap();
            in_database[2].command::<()>(("SET", "nine", 1)).unwrap();
        },
        &stop,
    );
    followed.unwrap();
    check_equal(&reshard, 300);
    let mut node = ClientSettings { database: 9, ..plan.nodes[plan.placement.node(b"nine", 0)].clone() };
    assert_eq!(Client::new(node.clone()).command::<String>(("GET", "nine")).unwrap(), "1");
    node.database = 3;
    Client::new(node.clone()).command::<()>(("SET", "stranger", 1)).unwrap();
    assert_eq!(reshard.verify(&mut |_| {}).unwrap().extra_keys, 1);
    reshard.flush().unwrap();
    assert_eq!(Client::new(node).command::<u64>("DBSIZE").unwrap(), 0);
}

#[test]
fn patterns_choose_the_keys_that_the_server_finds_by_them() {
    let Some(servers) = Servers::start() else { return };
    let (plan, stop) = (servers.plan(0, false), AtomicBool::new(false));
    let mut source = Client::new(plan.source.clone());
    for key in ["a", "ab", "abc", "b", "user:1", "user:12", "user:1:x", "a*", "a?", "[a]", "a-c", "^", "", "\\", "a]"] {
        source.command::<()>(("SET", key, 1)).unwrap();
    }
    let patterns = [
        "*", "", "a", "a*", "*a", "?", "??", "user:*", "user:?", "user:*:*", "a\\*", "a[*?]", "[a-b]", "[b-a]*",
        "[^a]*", "[^a-b]", "\\[a]", "[\\]a]*", "a[", "a[b", "a[b-", "[]", "[^]", "**c", "*b*c*", "\\", "\\\\", "a[]-]",
    ];
    for pattern in patterns {
        let reshard = Reshard::new(CopyPlan { pattern: Some(pattern.into()), ..plan.clone() }, &stop);
        reshard.flush().unwrap();
        let expected: Vec<String> = source.command(("KEYS", pattern)).unwrap();
        assert_eq!(reshard.copy(&mut |_| {}).unwrap(), expected.len() as u64, "{pattern}: {expected:?}");
        for key in &expected {
            let mut node = Client::new(plan.nodes[plan.placement.node(key.as_bytes(), 0)].clone());
            assert_eq!(node.command::<u64>(("EXISTS", key)).unwrap(), 1, "{pattern}: {key}");
        }
        check_equal(&reshard, expected.len() as u64);
    }
    // Other keys of the nodes are left alone, also by following.
    let pattern = Some(b"user:*".to_vec());
    let plan = CopyPlan { pattern, ..plan };
    let reshard = Reshard::new(plan.clone(), &stop);
    reshard.flush().unwrap();
    Client::new(plan.nodes[0].clone()).command::<()>(("SET", "own", 1)).unwrap();
    let following = AtomicBool::new(false);
    let change = |_: &_| {
        source.command::<()>(("SET", "other", 1)).unwrap();
        source.command::<()>(("SET", "user:new", 1)).unwrap();
        source.command::<()>(("DEL", "user:1")).unwrap();
    };
    follow_and(&plan, change, &following).unwrap();
    assert_eq!(count(&plan.nodes), 4);
    check_equal(&reshard, 3);
}

#[test]
fn a_rate_bounds_the_keys_of_a_second() {
    let Some(servers) = Servers::start() else { return };
    let (plan, stop) = (servers.plan(0, false), AtomicBool::new(false));
    fill(&mut Client::new(plan.source.clone()), 300);
    let plan = CopyPlan { keys_per_second: Some(200), ..plan };
    let began = Instant::now();
    assert_eq!(Reshard::new(plan.clone(), &stop).copy(&mut |_| {}).unwrap(), 300);
    assert!(began.elapsed() >= Duration::from_millis(1_500), "{:?}", began.elapsed());
    // A stop does not wait for the rate.
    let plan = CopyPlan { keys_per_second: Some(1), ..plan };
    let stopped = Reshard::new(plan, &stop).copy(&mut |_| stop.store(true, Ordering::Release));
    assert!(matches!(stopped, Err(proxy::reshard::ReshardError::Stopped)), "{stopped:?}");
}

#[test]
fn a_cluster_takes_the_keys_by_its_table_of_slots() {
    if !is_there("redis-server") {
        return;
    }
    let (source, cluster) = (Program::redis(), Cluster::start(0));
    fill(&mut Client::new(settings(&source)), 500);
    let (nodes, placement) = masters(&settings(&cluster.nodes[1]), Duration::from_secs(5)).unwrap();
    assert_eq!(nodes.len(), 3);
    let (plan, stop, never) =
        (CopyPlan::new(settings(&source), nodes, placement), AtomicBool::new(false), AtomicBool::new(false));
    let change = |_: &_| Client::new(plan.source.clone()).command::<()>(("SET", "key:1{tag1}", "new")).unwrap();
    follow_and(&plan, change, &stop).unwrap();
    check_equal(&Reshard::new(plan, &never), 500);
    let proxy = cluster.proxy(|_| {});
    let mut through = Client::new(ClientSettings::of(&format!("redis://{}", address_of(&proxy))).unwrap());
    eventually("the proxy knows all nodes", || through.command::<u64>("DBSIZE").unwrap() == 500);
    assert_eq!(through.command::<String>(("GET", "key:1{tag1}")).unwrap(), "new");
    proxy.drain(Duration::ZERO);
    proxy.join().unwrap();
    // The table may name hosts, or none: then the host that was asked is meant.
    for kind in ["hostname", "unknown-endpoint"] {
        for node in &cluster.nodes {
            let mut node = Client::new(settings(node));
            node.command::<()>(("CONFIG", "SET", "cluster-announce-hostname", "localhost")).unwrap();
            node.command::<()>(("CONFIG", "SET", "cluster-preferred-endpoint-type", kind)).unwrap();
        }
        eventually("all nodes are known by their names", || {
            let (nodes, _) = masters(&settings(&cluster.nodes[1]), Duration::from_secs(5)).unwrap();
            let host = if kind == "hostname" { "localhost" } else { "127.0.0.1" };
            nodes.iter().all(|node| matches!(&node.endpoint, Endpoint::Tcp { host: named, .. } if named == host))
        });
        let (nodes, placement) = masters(&settings(&cluster.nodes[1]), Duration::from_secs(5)).unwrap();
        let plan = CopyPlan::new(settings(&source), nodes, placement);
        check_equal(&Reshard::new(plan, &AtomicBool::new(false)), 500);
    }
    // A server without slots.
    let error = masters(&settings(&source), Duration::from_secs(5)).unwrap_err().to_string();
    assert!(error.contains("is no part of a cluster"), "{error}");
}
