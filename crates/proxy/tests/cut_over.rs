//! Following a source that changes, and the cut-over at its end.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use proxy::reshard::{CopyPlan, Following, Reshard, ReshardError};
use resp::{Client, ClientSettings, CommandError, ReplyValue};

use crate::nodes::{Program, address_of, eventually, start_proxy};
use crate::reshard::{Servers, check_equal, fill, follow_and};

/// A client that counts up keys of its own and never stops: at the source until it refuses, then at the proxy once the clients are
/// switched. Returns what was acknowledged.
fn count(
    (seed, source): (u64, &ClientSettings),
    (proxy, is_switched): (SocketAddr, &AtomicBool),
    (is_over, after): (&AtomicBool, &AtomicU64),
) -> HashMap<String, u64> {
    let mut counts: HashMap<String, u64> = HashMap::new();
    let (mut client, mut is_at_source, mut number) = (Client::new(source.clone()), true, seed);
    while !is_over.load(Ordering::Acquire) {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = format!("counter:{seed}:{}", (number >> 33) % 300);
        match client.command::<u64>(("INCR", &key)) {
            Ok(count) => {
                let before = counts.insert(key.clone(), count).unwrap_or_default();
                assert_eq!(count, before + 1, "{key} has lost acknowledged writes");
                after.fetch_add(u64::from(!is_at_source), Ordering::Relaxed);
            }
            Err(CommandError::Server(error)) if error.code() == "NOREPLICAS" && is_at_source => {
                eventually("clients are switched", || is_switched.load(Ordering::Acquire));
                client = Client::new(ClientSettings::of(&format!("redis://{proxy}")).unwrap());
                is_at_source = false;
            }
            Err(error) => panic!("{error}"),
        }
    }
    counts
}

#[test]
fn a_cut_over_loses_no_acknowledged_write_of_clients_that_never_stop() {
    let Some(servers) = Servers::start() else { return };
    let (plan, stop) = (servers.plan(0, false), AtomicBool::new(false));
    let mut source = Client::new(plan.source.clone());
    fill(&mut source, 500);
    let proxy = start_proxy(&servers.nodes.iter().map(|node| node.address).collect::<Vec<_>>(), |_| {});
    let address = address_of(&proxy);
    let mut through = Client::new(ClientSettings::of(&format!("redis://{address}")).unwrap());
    let (is_switched, is_over, after) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let clients: Vec<_> = (1..=3)
            .map(|seed| {
                let (is_switched, is_over, after) = (&is_switched, &is_over, &after);
                let source = &plan.source;
                scope.spawn(move || count((seed, source), (address, is_switched), (is_over, after)))
            })
            .collect();
        let followed =
            follow_and(&plan, |_| source.command::<()>(("SET", "session", "old", "PX", 1_500)).unwrap(), &stop);
        assert!(followed.is_ok_and(|followed| !followed.scripts_may_write));
        // The source's value expires later; on the node the client's new one does not.
        through.command::<()>(("SET", "session", "new")).unwrap();
        is_switched.store(true, Ordering::Release);
        eventually("clients write through the proxy", || after.load(Ordering::Relaxed) > 1_000);
        source.command::<()>(("CLIENT", "KILL", "TYPE", "replica")).unwrap();
        eventually("the key of the source expires", || source.command::<u64>(("EXISTS", "session")).unwrap() == 0);
        is_over.store(true, Ordering::Release);
        for client in clients {
            for (key, count) in client.join().unwrap() {
                assert_eq!(through.command::<u64>(("GET", &key)).unwrap(), count, "{key}");
            }
        }
    });
    assert_eq!(through.command::<String>(("GET", "session")).unwrap(), "new");
    // Scripts and transactions are refused as well.
    let script = source.command::<()>(("EVAL", "return redis.call('SET', KEYS[1], 1)", 1, "late"));
    assert!(script.is_err_and(|error| error.to_string().contains("NOREPLICAS")));
    proxy.drain(Duration::ZERO);
    proxy.join().unwrap();
}

#[test]
fn a_source_takes_writes_again_after_a_cut_over_that_fails() {
    let Some(mut servers) = Servers::start() else { return };
    let (plan, stop) = (servers.plan(0, false), AtomicBool::new(false));
    let mut source = Client::new(plan.source.clone());
    source.command::<()>(("CONFIG", "SET", "min-replicas-max-lag", 0)).unwrap();
    fill(&mut source, 100);
    let mut node = servers.nodes.pop();
    let mut refused = None;
    let failed = Reshard::new(plan.clone(), &stop).follow(&mut |how| match how {
        Following::Behind(_) => stop.store(true, Ordering::Release),
        Following::Fenced { .. } => {
            refused = source.command::<()>(("SET", "a", 1)).err();
            drop(node.take());
        }
        _ => {}
    });
    assert!(refused.is_some_and(|error| error.to_string().contains("NOREPLICAS")));
    let error = failed.unwrap_err().to_string();
    assert!(error.contains(&format!(":{}", plan.nodes[3].endpoint_port())), "{error}");
    source.command::<()>(("SET", "a", 1)).unwrap();
    for (setting, value) in [("min-replicas-to-write", "0"), ("min-replicas-max-lag", "0")] {
        let (_, now): (String, String) = source.command(("CONFIG", "GET", setting)).unwrap();
        assert_eq!(now, value, "{setting}");
    }
}

trait Port {
    fn endpoint_port(&self) -> u16;
}

impl Port for ClientSettings {
    fn endpoint_port(&self) -> u16 {
        let resp::Endpoint::Tcp { port, .. } = self.endpoint else { unreachable!("every server here has a port") };
        port
    }
}

/// Id, consumer and number of deliveries of each pending entry.
type PendingEntries = Vec<(String, String, u64)>;

/// The groups of a stream as a server reports them, with their pending entries but no times.
fn groups(settings: &ClientSettings, key: &str) -> Vec<(ReplyValue, PendingEntries)> {
    let mut client = Client::new(settings.clone());
    let groups: Vec<HashMap<String, ReplyValue>> = client.command(("XINFO", "GROUPS", key)).unwrap();
    let mut found = Vec::new();
    for group in groups {
        let name = group["name"].clone();
        let ReplyValue::Bulk(text) = &name else { panic!("{name:?}") };
        let pending: Vec<(String, String, u64, u64)> = client.command(("XPENDING", key, text, "-", "+", 100)).unwrap();
        let pending = pending.into_iter().map(|(id, consumer, _, deliveries)| (id, consumer, deliveries)).collect();
        found.push((ReplyValue::Array(vec![name, group["last-delivered-id"].clone()]), pending));
    }
    found
}

#[test]
fn deliveries_and_acknowledgements_of_groups_are_followed_and_compared() {
    for by_type in [false, true] {
        let Some(servers) = Servers::start() else { return };
        let (plan, stop, never) = (servers.plan(0, by_type), AtomicBool::new(false), AtomicBool::new(false));
        let mut source = Client::new(plan.source.clone());
        source.command::<()>(("XGROUP", "CREATE", "st", "g", "0", "MKSTREAM")).unwrap();
        for number in 0..10 {
            source.command::<()>(("XADD", "st", format!("{}-0", number + 1), "n", number)).unwrap();
        }
        source.command::<()>(["XREADGROUP", "GROUP", "g", "c", "COUNT", "1", "STREAMS", "st", ">"]).unwrap();
        let followed = follow_and(
            &plan,
            |_| {
                source.command::<()>(["XREADGROUP", "GROUP", "g", "c", "COUNT", "6", "STREAMS", "st", ">"]).unwrap();
                source.command::<()>(("XACK", "st", "g", "2-0", "3-0")).unwrap();
                source.command::<()>(("XCLAIM", "st", "g", "other", 0, "4-0")).unwrap();
                source.command::<()>(("XGROUP", "CREATE", "st", "second", "5-0")).unwrap();
            },
            &stop,
        );
        followed.unwrap();
        let node = &plan.nodes[plan.placement.node(b"st", 0)];
        let there = groups(node, "st");
        assert_eq!(there, groups(&plan.source, "st"), "by_type: {by_type}");
        assert_eq!(there[0].1.len(), 5);
        let reshard = Reshard::new(plan.clone(), &never);
        check_equal(&reshard, 1);
        // What a node has lost is found.
        let mut node = Client::new(node.clone());
        for lost in [&["XACK", "st", "g", "4-0"][..], &["XGROUP", "SETID", "st", "second", "4-0"]] {
            node.command::<()>(lost).unwrap();
            let found = reshard.verify(&mut |_| {}).unwrap();
            assert_eq!(found.differing_keys, 1, "{lost:?}");
            assert_eq!(found.differing[0].how, "has another value on its node");
            node.command::<()>(("XGROUP", "SETID", "st", "second", "5-0")).unwrap();
            reshard.copy(&mut |_| {}).unwrap();
            check_equal(&reshard, 1);
        }
    }
}

#[test]
fn commands_on_whole_databases_and_functions_are_followed() {
    let Some(servers) = Servers::start() else { return };
    let (plan, never) = (servers.plan(0, false), AtomicBool::new(false));
    let mut source = Client::new(plan.source.clone());
    let reshard = Reshard::new(plan.clone(), &never);
    source
        .command::<()>(("FUNCTION", "LOAD", "#!lua name=gone\nredis.register_function('gone', function() end)"))
        .unwrap();
    for everything in [&["FLUSHALL"][..], &["FLUSHDB", "ASYNC"], &["SWAPDB", "0", "1"]] {
        let stop = AtomicBool::new(false);
        fill(&mut source, 300);
        let change = |_: &Mutex<Vec<String>>| {
            source.command::<()>(everything).unwrap();
            source.command::<()>(("SET", "after", 1)).unwrap();
            let _: Result<(), _> = source.command(("FUNCTION", "DELETE", "gone"));
            let library = "#!lua name=new\nredis.register_function('new', function() return 7 end)";
            source.command::<()>(("FUNCTION", "LOAD", "REPLACE", library)).unwrap();
        };
        let followed = follow_and(&plan, change, &stop).unwrap();
        check_equal(&reshard, 1);
        for node in &plan.nodes {
            let mut node = Client::new(node.clone());
            assert_eq!(node.command::<u64>(("FCALL", "new", 0)).unwrap(), 7, "{everything:?}");
            assert!(node.command::<()>(("FCALL", "gone", 0)).is_err(), "{everything:?}");
        }
        assert_eq!(followed.lifted_by, "CONFIG SET min-replicas-to-write 0");
        source.command::<()>(("CONFIG", "SET", "min-replicas-to-write", 0)).unwrap();
        source.command::<()>("FLUSHALL").unwrap();
    }
}

#[test]
fn a_lost_stream_continues_where_it_was_lost() {
    let Some(servers) = Servers::start() else { return };
    let (plan, stop, never) = (servers.plan(0, false), AtomicBool::new(false), AtomicBool::new(false));
    let mut source = Client::new(plan.source.clone());
    fill(&mut source, 300);
    let (mut copies, mut kills) = (0, 0);
    let followed = Reshard::new(plan.clone(), &stop).follow(&mut |how| match how {
        Following::Copying(progress) => copies += u64::from(progress.scanned == progress.keys),
        Following::Behind(keys) if kills < 4 && (keys > 0 || kills == 0) => {
            source.command::<()>(("SET", format!("more:{kills}"), 1)).unwrap();
            source.command::<()>(("CLIENT", "KILL", "TYPE", "replica")).unwrap();
            source.command::<()>(("SET", format!("again:{kills}"), 1)).unwrap();
            kills += 1;
            stop.store(kills == 4, Ordering::Release);
        }
        _ => {}
    });
    followed.unwrap();
    assert!(copies <= 2, "everything was copied more than once");
    check_equal(&Reshard::new(plan, &never), 308);
}

#[test]
fn a_server_that_hangs_is_named_within_the_stall_limit() {
    let Some(servers) = Servers::start() else { return };
    let (mut plan, stop) = (servers.plan(0, false), AtomicBool::new(false));
    fill(&mut Client::new(plan.source.clone()), 2_000);
    let stall_max = Duration::from_secs(3);
    plan.nodes.iter_mut().chain([&mut plan.source]).for_each(|server| server.timeout = stall_max);
    let name = |settings: &ClientSettings| format!("127.0.0.1:{} does not answer", settings.endpoint_port());
    let check = |hanging: &Program, plan: &CopyPlan, text: &str| {
        let is_hanging = AtomicBool::new(false);
        let hang = || {
            if !is_hanging.swap(true, Ordering::AcqRel) {
                hanging.signal("STOP");
            }
        };
        let copied = Reshard::new(plan.clone(), &stop).copy(&mut |_| hang());
        hanging.signal("CONT");
        let error = copied.unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
        is_hanging.store(false, Ordering::Release);
        let followed = Reshard::new(plan.clone(), &stop).follow(&mut |how| {
            if let Following::Behind(_) = how {
                hang();
            }
        });
        hanging.signal("CONT");
        let error = followed.unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    check(&servers.source, &plan, &format!("the source {}", name(&plan.source)));
    check(&servers.nodes[2], &plan, &format!("the node {}", name(&plan.nodes[2])));
}

#[test]
fn a_source_that_cannot_be_followed_is_refused_before_anything_is_copied() {
    let Some(servers) = Servers::start() else { return };
    let (plan, never) = (servers.plan(0, false), AtomicBool::new(false));
    let mut source = Client::new(plan.source.clone());
    source.command::<()>(("SET", "a", 1)).unwrap();
    let follow = |plan: &CopyPlan| Reshard::new(plan.clone(), &never).follow(&mut |_| {}).unwrap_err().to_string();
    // No permission for the stream, and none for the setting.
    for (missing, text) in [("-psync", "PSYNC"), ("-config", "min-replicas-to-write")] {
        source
            .command::<()>(["ACL", "SETUSER", "one", "reset", "on", ">secret", "~*", "&*", "+@all", missing])
            .unwrap();
        let user =
            ClientSettings { user: Some("one".to_owned()), password: Some("secret".to_owned()), ..plan.source.clone() };
        let error = follow(&CopyPlan { source: user, ..plan.clone() });
        assert!(error.contains("NOPERM") && error.contains(text), "{error}");
    }
    // A replica.
    let master = servers.nodes[3].address.port();
    source.command::<()>(("REPLICAOF", "127.0.0.1", master)).unwrap();
    let plan = CopyPlan {
        nodes: plan.nodes[..2].to_vec(),
        placement: proxy::placement::Placement::Crc32 { nodes: 2, hash_tag: None },
        ..plan
    };
    let error = follow(&plan);
    assert!(error.contains("is a replica; give its master"), "{error}");
}

#[test]
fn a_stop_before_all_keys_are_copied_ends_it_without_a_cut_over() {
    let Some(servers) = Servers::start() else { return };
    let (plan, stop) = (servers.plan(0, false), AtomicBool::new(false));
    let mut source = Client::new(plan.source.clone());
    fill(&mut source, 2_000);
    let stopped = Reshard::new(plan, &stop).follow(&mut |how| match how {
        Following::Copying(_) => stop.store(true, Ordering::Release),
        other => panic!("{other:?}"),
    });
    assert!(matches!(stopped, Err(ReshardError::Stopped)), "{stopped:?}");
    source.command::<()>(("SET", "a", 1)).unwrap();
}

#[test]
fn a_value_that_a_node_refuses_ends_the_copy_with_the_nodes_name() {
    let Some(servers) = Servers::start() else { return };
    let (plan, never) = (servers.plan(0, false), AtomicBool::new(false));
    let node = &plan.nodes[plan.placement.node(b"large", 0)];
    Client::new(node.clone()).command::<()>(("CONFIG", "SET", "proto-max-bulk-len", 1 << 20)).unwrap();
    // Random bytes: nothing is smaller in a dump.
    let mut bytes = 7_u64;
    let random = std::iter::repeat_with(|| {
        bytes = bytes.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (bytes >> 56) as u8
    });
    let value: Vec<u8> = random.take(2 << 20).collect();
    let mut source = Client::new(plan.source.clone());
    fill(&mut source, 300);
    source.command::<()>(("SET", "large", &value)).unwrap();
    let reshard = Reshard::new(plan.clone(), &never);
    for error in [reshard.copy(&mut |_| {}).map(drop), reshard.follow(&mut |_| {}).map(drop)] {
        let error = error.unwrap_err().to_string();
        assert!(error.contains(&format!("the node 127.0.0.1:{}", node.endpoint_port())), "{error}");
    }
}
