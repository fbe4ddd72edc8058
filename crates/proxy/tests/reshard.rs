//! Resharding between real servers.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use proxy::placement::Placement;
use proxy::reshard::{CopyPlan, Followed, Following, Reshard, ReshardError, check_answers};
use resp::{Client, ClientSettings, Pipeline};

use crate::nodes::{Program, address_of, eventually, is_there, start_proxy};

/// A source and four nodes.
pub(crate) struct Servers {
    pub(crate) source: Program,
    pub(crate) nodes: Vec<Program>,
}

impl Servers {
    pub(crate) fn start() -> Option<Servers> {
        is_there("redis-server")
            .then(|| Servers { source: Program::redis(), nodes: (0..4).map(|_| Program::redis()).collect() })
    }

    pub(crate) fn plan(&self, database: u32, by_type: bool) -> CopyPlan {
        let settings = |program: &Program| ClientSettings {
            database,
            ..ClientSettings::of(&format!("redis://{}", program.address)).unwrap()
        };
        let (nodes, placement) =
            (self.nodes.iter().map(settings).collect(), Placement::Crc32 { nodes: self.nodes.len(), hash_tag: None });
        CopyPlan { by_type, ..CopyPlan::new(settings(&self.source), nodes, placement) }
    }
}

/// Keys of all types, small and large, some with a time to live.
pub(crate) fn fill(client: &mut Client, keys: usize) {
    let mut pipeline = Pipeline::new();
    for number in 0..keys {
        let key = format!("key:{number}{{tag{}}}", number % 50);
        let many: Vec<String> = (0..1_700).map(|part| format!("part{part}")).collect();
        match number % 9 {
            0 => pipeline.add(("SADD", &key, "b", "a", number)),
            1 => pipeline.add(("HSET", &key, "field", number, "other", "\0\r\n\u{ff}")),
            2 => pipeline.add(("RPUSH", &key, number, "x", "", "y")),
            3 => pipeline.add(("ZADD", &key, 1.5, "a", "-inf", "b", number, "c")),
            4 => pipeline.add(("XADD", &key, "1-1", "f", number)).add(("XADD", &key, "1-2", "g", "h")),
            5 if number % 90 == 5 => pipeline.add(("SADD", &key, many)),
            6 if number % 90 == 6 => pipeline.add(("RPUSH", &key, many)),
            7 => pipeline.add(("SET", &key, number, "PX", 600_000 + number)),
            _ => pipeline.add(("SET", &key, "v".repeat(number % 3_000))),
        };
    }
    pipeline.add(("XGROUP", "CREATE", "key:4{tag4}", "readers", "1-1"));
    pipeline.add(("XREADGROUP", "GROUP", "readers", "me", "STREAMS", "key:4{tag4}", ">"));
    pipeline.add(("XGROUP", "CREATECONSUMER", "key:4{tag4}", "readers", "idle"));
    // An empty stream is a key.
    pipeline.add(("XDEL", "key:13{tag13}", "1-1", "1-2"));
    client.pipeline::<()>(&pipeline).unwrap().into_iter().for_each(Result::unwrap);
}

#[track_caller]
pub(crate) fn check_equal(reshard: &Reshard<'_>, keys: u64) {
    let found = reshard.verify(&mut |_| {}).unwrap();
    assert!(found.is_equal(), "{found:?}");
    assert_eq!(found.keys, keys);
}

#[test]
fn every_key_of_every_type_comes_with_its_time_to_live_and_may_come_again() {
    let Some(servers) = Servers::start() else { return };
    for (database, by_type) in [(0, false), (3, true)] {
        let (plan, stop) = (servers.plan(database, by_type), AtomicBool::new(false));
        let mut source = Client::new(plan.source.clone());
        fill(&mut source, 3_000);
        // --flushdb removes earlier keys.
        let mut node = Client::new(plan.nodes[1].clone());
        node.command::<()>(("SET", "stranger", 1)).unwrap();
        let reshard = Reshard::new(plan.clone(), &stop);
        reshard.flush().unwrap();
        let mut last = None;
        assert_eq!(reshard.copy(&mut |progress| last = Some(progress)).unwrap(), 3_000);
        assert_eq!(last.map(|progress| (progress.keys, progress.read)), Some((3_000, 3_000)));
        // Keys have 11 bytes and more.
        assert!(last.is_some_and(|progress| progress.bytes > 33_000), "{last:?}");
        check_equal(&reshard, 3_000);
        // A second run copies the same.
        assert_eq!(reshard.copy(&mut |_| {}).unwrap(), 3_000);
        check_equal(&reshard, 3_000);
        let group = |mut client: Client| {
            let groups: Vec<resp::ReplyValue> = client.command(("XINFO", "GROUPS", "key:4{tag4}")).unwrap();
            groups.len()
        };
        let place = plan.placement.node(b"key:4{tag4}", 0);
        assert_eq!(group(Client::new(plan.nodes[place].clone())), 1);
    }
}

#[test]
fn what_differs_is_found_by_its_key() {
    let Some(servers) = Servers::start() else { return };
    let (plan, stop) = (servers.plan(0, false), AtomicBool::new(false));
    let mut source = Client::new(plan.source.clone());
    fill(&mut source, 500);
    let reshard = Reshard::new(plan.clone(), &stop);
    reshard.copy(&mut |_| {}).unwrap();
    let change = |key: &str, command: &[&str]| {
        let mut node = Client::new(plan.nodes[plan.placement.node(key.as_bytes(), 0)].clone());
        node.command::<()>(command).unwrap();
    };
    change("key:0{tag0}", &["SREM", "key:0{tag0}", "a"]);
    change("key:7{tag7}", &["PERSIST", "key:7{tag7}"]);
    change("key:10{tag10}", &["DEL", "key:10{tag10}"]);
    change("more", &["SET", "more", "1"]);
    // A key of the source on a node to which it does not belong.
    let other = (plan.placement.node(b"key:1{tag1}", 0) + 1) % plan.nodes.len();
    Client::new(plan.nodes[other].clone()).command::<()>(("SET", "key:1{tag1}", 1)).unwrap();
    let found = reshard.verify(&mut |_| {}).unwrap();
    let mut told: Vec<String> =
        found.differing.iter().map(|d| format!("{} {}", String::from_utf8_lossy(&d.key), d.how)).collect();
    told.sort_unstable();
    assert_eq!(
        told,
        [
            "key:0{tag0} has another value on its node",
            "key:10{tag10} is not on its node",
            "key:7{tag7} has another time to live on its node"
        ]
    );
    assert_eq!((found.differing_keys, found.extra_keys), (3, 2));
    // A set in another order is an equal set.
    change("key:0{tag0}", &["SADD", "key:0{tag0}", "a"]);
    assert_eq!(reshard.verify(&mut |_| {}).unwrap().differing_keys, 2);
}

/// Number of connections that a server has accepted so far.
fn accepted(settings: &ClientSettings) -> u64 {
    let info: String = Client::new(settings.clone()).command(("INFO", "stats")).unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix("total_connections_received:")).unwrap();
    line.parse().unwrap()
}

#[test]
fn a_comparison_makes_no_connections_for_single_keys() {
    let Some(servers) = Servers::start() else { return };
    let (plan, stop) = (servers.plan(0, false), AtomicBool::new(false));
    fill(&mut Client::new(plan.source.clone()), 500);
    let settings = || std::iter::once(&plan.source).chain(&plan.nodes);
    let before: Vec<u64> = settings().map(accepted).collect();
    // The nodes are empty, so every key differs.
    assert_eq!(Reshard::new(plan.clone(), &stop).verify(&mut |_| {}).unwrap().differing_keys, 500);
    for (settings, before) in settings().zip(before) {
        let made = accepted(settings) - before;
        assert!(made <= 5, "{made} connections");
    }
}

#[test]
fn the_search_for_extra_keys_ends_with_a_stop() {
    let Some(servers) = Servers::start() else { return };
    let (plan, stop) = (servers.plan(0, false), AtomicBool::new(false));
    // The source's only key is compared, and the stop is set before the search for extra keys.
    Client::new(plan.source.clone()).command::<()>(("SET", "one", 1)).unwrap();
    Client::new(plan.nodes[0].clone()).command::<()>(("SET", "more", 1)).unwrap();
    let verified = Reshard::new(plan, &stop).verify(&mut |_| stop.store(true, Ordering::Relaxed));
    assert!(matches!(verified, Err(ReshardError::Stopped)), "{verified:?}");
}

#[test]
fn a_node_that_is_not_there_and_a_stop_are_told() {
    let Some(mut servers) = Servers::start() else { return };
    let (stop, stopped) = (AtomicBool::new(false), AtomicBool::new(true));
    let mut plan = servers.plan(0, false);
    plan.nodes.iter_mut().for_each(|node| node.timeout = Duration::from_millis(500));
    fill(&mut Client::new(plan.source.clone()), 500);
    assert!(matches!(Reshard::new(plan.clone(), &stopped).copy(&mut |_| {}), Err(ReshardError::Stopped)));
    let gone = servers.nodes.remove(2);
    let address = gone.address.to_string();
    drop(gone);
    let error = Reshard::new(plan, &stop).copy(&mut |_| {}).unwrap_err();
    assert!(error.to_string().starts_with(&format!("no connection to {address}: Connection refused")), "{error}");
}

/// Sets the stop when it is dropped, also by a failed test.
struct Stopping<'s>(&'s AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Follows the source, and calls `then` once all keys are copied, with the reasons of interruptions so far. Stops when it returns.
pub(crate) fn follow_and(
    plan: &CopyPlan,
    then: impl FnOnce(&Mutex<Vec<String>>) + Send,
    stop: &AtomicBool,
) -> Result<Followed, ReshardError> {
    let (reasons, is_behind) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (reasons, is_behind) = (&reasons, &is_behind);
        let following = scope.spawn(move || {
            let mut first = None;
            let followed = Reshard::new(plan.clone(), stop).follow(&mut |how| {
                match &how {
                    Following::Behind(_) => is_behind.store(true, Ordering::Release),
                    Following::Interrupted(reason) => reasons.lock().unwrap().push(reason.clone()),
                    _ => {}
                }
                first.get_or_insert(how);
            });
            assert!(!matches!(first, Some(Following::Behind(_))), "changes before anything is copied");
            followed
        });
        eventually("all is copied", || is_behind.load(Ordering::Acquire) || following.is_finished());
        let stopping = Stopping(stop);
        then(reasons);
        drop(stopping);
        following.join().unwrap()
    })
}

#[test]
fn a_node_that_is_restarted_while_changes_are_followed_is_noticed() {
    let Some(mut servers) = Servers::start() else { return };
    let (plan, stop, never) = (servers.plan(0, false), AtomicBool::new(false), AtomicBool::new(false));
    fill(&mut Client::new(plan.source.clone()), 500);
    let name = address(&plan.nodes[3]);
    // Restarted before the stop: everything is copied again.
    let mut old = Some(servers.nodes.pop().unwrap());
    let mut new = None;
    let followed = follow_and(
        &plan,
        |reasons| {
            new = old.take().map(|node| Program::redis_at(node.kill()));
            eventually("it is noticed", || reasons.lock().unwrap().iter().any(|reason| reason.contains(&name)));
            let mut node = Client::new(plan.nodes[3].clone());
            eventually("it has keys again", || node.command::<u64>("DBSIZE").unwrap() > 0);
        },
        &stop,
    );
    assert!(followed.is_ok(), "{followed:?}");
    check_equal(&Reshard::new(plan.clone(), &never), 500);
    // Restarted just before the stop: an error, or copied again.
    stop.store(false, Ordering::Release);
    let followed = follow_and(&plan, |_| new = new.take().map(|node| Program::redis_at(node.kill())), &stop);
    match followed {
        Ok(_) => check_equal(&Reshard::new(plan.clone(), &never), 500),
        Err(error) => assert!(error.to_string().contains(&name), "{error}"),
    }
    // A copy that does not follow.
    let error = Reshard::new(plan.clone(), &never).copy(&mut |progress| {
        if progress.read == progress.keys {
            new = new.take().map(|node| Program::redis_at(node.kill()));
        }
    });
    assert!(error.as_ref().is_err_and(|error| error.to_string().contains(&name)), "{error:?}");
}

#[test]
fn a_source_that_comes_back_empty_does_not_empty_the_nodes() {
    let Some(servers) = Servers::start() else { return };
    let (plan, stop) = (servers.plan(0, false), AtomicBool::new(false));
    fill(&mut Client::new(plan.source.clone()), 500);
    let Servers { source, nodes } = servers;
    let mut new = None;
    let followed = follow_and(
        &plan,
        |_| {
            new = Some(Program::redis_at(source.kill()));
            std::thread::sleep(Duration::from_secs(2));
        },
        &stop,
    );
    let error = followed.map_err(|error| error.to_string()).unwrap_err();
    assert!(error.contains("was restarted or replaced"), "{error}");
    let keys = plan.nodes.iter().map(|node| Client::new(node.clone()).command::<u64>("DBSIZE").unwrap());
    assert_eq!(keys.sum::<u64>(), 500);
    drop(nodes);
}

#[test]
fn a_key_that_a_restarted_source_does_not_have_stays_on_its_node() {
    for by_type in [false, true] {
        let Some(servers) = Servers::start() else { return };
        let (plan, never) = (servers.plan(0, by_type), AtomicBool::new(false));
        let mut client = Client::new(plan.source.clone());
        fill(&mut client, 500);
        let Servers { source, nodes } = servers;
        let (mut source, mut has_changed) = (Some(source), false);
        // The connections that read changed keys are opened when the first key has changed: after the restart.
        let followed = Reshard::new(plan.clone(), &never).follow(&mut |how| match how {
            Following::Behind(0) if !has_changed => {
                client.command::<()>(("PEXPIRE", "key:8{tag8}", 600_000)).unwrap();
                has_changed = true;
            }
            Following::Behind(1..) => {
                source = source.take().map(|source| Program::redis_at(source.kill()));
            }
            _ => {}
        });
        let error = followed.map_err(|error| error.to_string()).unwrap_err();
        assert!(has_changed && error.contains("was restarted or replaced"), "{error}");
        let keys = plan.nodes.iter().map(|node| Client::new(node.clone()).command::<u64>("DBSIZE").unwrap());
        assert_eq!(keys.sum::<u64>(), 500);
        drop(nodes);
    }
}

#[test]
fn a_server_that_cannot_be_reached_ends_a_run_at_once() {
    let Some(servers) = Servers::start() else { return };
    let (mut servers, never) = (servers, AtomicBool::new(false));
    // The time that a command may take does not matter.
    let minute = Duration::from_secs(60);
    let mut plan = servers.plan(0, false);
    plan.nodes.iter_mut().chain([&mut plan.source]).for_each(|server| server.timeout = minute);
    fill(&mut Client::new(plan.source.clone()), 500);
    let refused = ClientSettings { timeout: minute, ..ClientSettings::of("redis://127.0.0.1:1").unwrap() };
    let began = Instant::now();
    for plan in [
        CopyPlan { source: refused.clone(), ..plan.clone() },
        CopyPlan {
            nodes: vec![plan.nodes[0].clone(), refused],
            placement: Placement::Crc32 { nodes: 2, hash_tag: None },
            ..plan.clone()
        },
    ] {
        let reshard = Reshard::new(plan.clone(), &never);
        let errors = [reshard.flush().err(), reshard.copy(&mut |_| {}).err(), reshard.follow(&mut |_| {}).err()];
        for error in errors {
            let error = error.map(|error| error.to_string()).unwrap_or_default();
            assert!(error.starts_with("no connection to 127.0.0.1:1: Connection refused"), "{error}");
        }
        let error = reshard.verify(&mut |_| {}).unwrap_err().to_string();
        assert!(error.starts_with("no connection to 127.0.0.1:1: Connection refused"), "{error}");
        assert!(check_answers(&plan, Duration::from_millis(500)).is_err());
    }
    // A node that dies later.
    let mut node = Some(servers.nodes.remove(3));
    let error = Reshard::new(plan.clone(), &never).copy(&mut |_| drop(node.take())).unwrap_err();
    assert!(error.to_string().contains(&address(&plan.nodes[3])), "{error}");
    // A source that hangs.
    let hanging =
        CopyPlan { nodes: plan.nodes[..3].to_vec(), placement: Placement::Crc32 { nodes: 3, hash_tag: None }, ..plan };
    assert!(check_answers(&hanging, Duration::from_secs(5)).is_ok());
    servers.source.signal("STOP");
    let error = check_answers(&hanging, Duration::from_millis(500)).unwrap_err();
    assert!(error.to_string().contains("does not answer"), "{error}");
    servers.source.signal("CONT");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

fn address(settings: &ClientSettings) -> String {
    let resp::Endpoint::Tcp { host, port } = &settings.endpoint else { unreachable!("every server here has a port") };
    format!("{host}:{port}")
}

#[test]
fn a_node_that_is_the_source_or_another_node_is_refused_before_anything_is_written() {
    let Some(servers) = Servers::start() else { return };
    let (stop, whole) = (AtomicBool::new(false), servers.plan(0, false));
    let mut source = Client::new(whole.source.clone());
    fill(&mut source, 500);
    Client::new(whole.nodes[0].clone()).command::<()>(("SET", "stranger", 1)).unwrap();
    // The same server by another name.
    let port = servers.source.address.port();
    let renamed = ClientSettings::of(&format!("redis://localhost:{port}")).unwrap();
    let proxy = start_proxy(&[servers.nodes[2].address, servers.nodes[3].address], |_| {});
    let proxied = ClientSettings::of(&format!("redis://{}", address_of(&proxy))).unwrap();
    let plans = [
        (whole.source.clone(), [whole.nodes[0].clone(), whole.source.clone()], " is the source"),
        (whole.source.clone(), [whole.nodes[0].clone(), renamed], " is the source"),
        (whole.source.clone(), [whole.nodes[0].clone(), whole.nodes[0].clone()], " are one server"),
        (proxied, [whole.nodes[0].clone(), whole.nodes[2].clone()], " is the source, or a part of it"),
    ];
    for (from, nodes, reason) in plans {
        let placement = Placement::Crc32 { nodes: nodes.len(), hash_tag: None };
        let plan = CopyPlan::new(from, nodes.to_vec(), placement);
        let reshard = Reshard::new(plan, &stop);
        let check = |error: Option<ReshardError>| {
            let error = error.map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(reason), "{error}");
        };
        check(reshard.flush().err());
        check(reshard.copy(&mut |_| {}).err());
        check(reshard.follow(&mut |_| {}).err());
    }
    assert_eq!(source.command::<u64>("DBSIZE").unwrap(), 500);
    assert_eq!(Client::new(whole.nodes[0].clone()).command::<u64>("DBSIZE").unwrap(), 1);
    // Another database of the same server is another Redis.
    let nodes = vec![ClientSettings { database: 1, ..whole.source.clone() }];
    let plan = CopyPlan { nodes, placement: Placement::Crc32 { nodes: 1, hash_tag: None }, ..whole };
    assert_eq!(Reshard::new(plan, &stop).copy(&mut |_| {}).unwrap(), 500);
    proxy.drain(Duration::ZERO);
    proxy.join().unwrap();
}

/// Changes keys of all types until it is stopped; returns the number of changes.
fn change_all(client: &mut Client, seed: u64, is_over: &AtomicBool) -> u64 {
    let (mut number, mut changes) = (seed, 0);
    while !is_over.load(Ordering::Relaxed) {
        // A linear congruential generator (Knuth, MMIX).
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (key, part) = (format!("key:{}", (number >> 33) % 2_000), (number >> 20) % 100);
        let mut pipeline = Pipeline::new();
        match (number >> 50) % 8 {
            0 => pipeline.add(("DEL", &key)),
            1 => pipeline.add(("SET", &key, number)),
            2 => pipeline.add(("SET", &key, number, "PX", 1 + part)),
            3 => pipeline.add(("DEL", &key)).add(("HSET", &key, part, number)),
            4 => pipeline.add(("RENAME", &key, format!("key:{part}"))),
            5 => pipeline.add(("DEL", &key)).add(("RPUSH", &key, part, number)),
            6 => pipeline.add(("EXPIRE", &key, 1_000 + part)),
            _ => pipeline.add(("APPEND", &key, part)),
        };
        // Some are refused because the key has another type by then.
        changes += client.pipeline::<resp::ReplyValue>(&pipeline).unwrap().len() as u64;
    }
    changes
}

#[test]
fn changes_are_followed_until_the_stop_and_none_before_it_is_missing() {
    let Some(servers) = Servers::start() else { return };
    let (plan, stop, is_over) = (servers.plan(0, false), AtomicBool::new(false), AtomicBool::new(false));
    fill(&mut Client::new(plan.source.clone()), 1_000);
    // Keys that the source does not have are removed.
    Client::new(plan.nodes[0].clone()).command::<()>(("SET", "stranger", 1)).unwrap();
    let reshard = Reshard::new(plan.clone(), &stop);
    let told_behind = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (1..=2)
            .map(|seed| {
                let (settings, is_over) = (plan.source.clone(), &is_over);
                scope.spawn(move || change_all(&mut Client::new(settings), seed, is_over))
            })
            .collect();
        let following = scope.spawn(|| {
            reshard.follow(&mut |how| {
                if let Following::Behind(_) = how {
                    told_behind.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        while told_behind.load(Ordering::Relaxed) < 20 {
            assert!(!following.is_finished());
            std::thread::sleep(Duration::from_millis(10));
        }
        // A lost connection loses nothing.
        Client::new(plan.source.clone()).command::<()>(("CLIENT", "KILL", "TYPE", "replica")).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        is_over.store(true, Ordering::Relaxed);
        let changes: u64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        stop.store(true, Ordering::Relaxed);
        let again = following.join().unwrap().unwrap().copied_again;
        assert!(changes > 1_000 && again > 0, "{changes} changes, {again} keys copied again");
    });
    let never = AtomicBool::new(false);
    let found = Reshard::new(plan.clone(), &never).verify(&mut |_| {}).unwrap();
    assert!(found.is_equal(), "{found:?}");
    let refused = Client::new(plan.source).command::<()>(("SET", "late", 1));
    assert!(refused.is_err_and(|error| error.to_string().contains("NOREPLICAS")), "no write after the end");
}
