//! `sapsan reshard` between real Redis servers, through the real binary.

#[path = "../../../resp/tests/redis_server/mod.rs"]
#[allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "what the tests of `resp` start their servers with")]
mod redis_server;

use redis_server::RedisServer;
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

fn reshard(servers: &[RedisServer], more: &[&str]) -> Output {
    let nodes: Vec<String> = servers[1..].iter().map(RedisServer::address).collect();
    Command::new(env!("CARGO_BIN_EXE_sapsan"))
        .args(["reshard", "--from", &servers[0].address(), "--nodes", &nodes.join(",")])
        .args(more)
        .output()
        .expect("the binary runs")
}

fn told(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

#[test]
fn a_redis_is_copied_compared_and_what_differs_is_a_failure() {
    let servers: Vec<RedisServer> = (0..3).map_while(|_| RedisServer::start(&[])).collect();
    if servers.len() < 3 {
        return;
    }
    let mut source = resp::Client::connect(&servers[0].address()).expect("the source");
    for number in 0..300 {
        source.command::<()>(("SET", format!("key:{number}"), number)).expect("a key");
    }
    for hash in ["crc32", "ketama"] {
        let output = reshard(&servers, &["--hash", hash, "--flushdb", "--verify"]);
        let told = told(&output);
        assert!(output.status.success(), "{told}");
        assert!(told.contains("copied 300 keys in ") && told.contains("verified 300 keys: "), "{told}");
    }
    let mut node = resp::Client::connect(&servers[1].address()).expect("a node");
    let key: String = node.command("RANDOMKEY").expect("a key");
    node.command::<()>(("SET", &key, "other")).expect("a change");
    let output = reshard(&servers, &["--hash", "ketama", "--no-copy", "--verify"]);
    let differing =
        format!("of 300 keys 1 differ, and the nodes have 0 keys that are not theirs:\n  \"{key}\" has another value");
    assert!(!output.status.success() && told(&output).contains(&differing), "{}", told(&output));
    node.command::<()>(("SET", &key, key.trim_start_matches("key:"))).expect("the value of the source");
    node.command::<()>(("SET", "nobody's", "x")).expect("a key");
    let output = reshard(&servers, &["--hash", "ketama", "--no-copy", "--verify"]);
    let extra = "of 300 keys 0 differ, and the nodes have 1 keys that are not theirs:\n  \"nobody\\'s\" is on a node, and not its key\nCopy again";
    assert!(!output.status.success() && told(&output).contains(extra), "{}", told(&output));
}

#[test]
fn a_wrong_address_is_told() {
    let run = |from: &str| {
        let arguments = ["reshard", "--from", from, "--nodes", "127.0.0.1:1"];
        let output = Command::new(env!("CARGO_BIN_EXE_sapsan")).args(arguments).output().expect("the binary runs");
        assert!(!output.status.success());
        told(&output)
    };
    let without_roots = run("rediss://localhost?ca=/none/roots.pem");
    assert!(without_roots.contains("/none/roots.pem: "), "{without_roots}");
    assert!(run("127.0.0.1:x").contains("127.0.0.1:x"), "{}", run("127.0.0.1:x"));
}

/// The page of the documentation, whose commands are run here.
const PAGE: &str = include_str!("../../../../docs/reshard.md");

/// The commands of the page's section on `--live`, for these servers and this address of the proxy.
fn documented(servers: &[RedisServer], listen: &str) -> Vec<Vec<String>> {
    let (_, section) = PAGE.split_once("## Without an interruption").expect("the section");
    let commands = section.lines().filter_map(|line| line.trim().strip_prefix("$ sapsan "));
    let address = |server: &RedisServer| format!("127.0.0.1:{}", server.port());
    let placed = |word: &str| {
        let word = word.replace("0.0.0.0:6380", listen);
        (1..=3)
            .fold(word, |word, number| word.replace(&format!("10.0.0.{number}:6379"), &address(&servers[number - 1])))
    };
    commands.map(|command| command.split(' ').map(placed).collect()).collect()
}

/// A process that is ended with its handle.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(arguments: &[String]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sapsan"));
    command.args(arguments).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    Running(command.spawn().expect("the binary runs"))
}

/// A client that appends to lists and never stops: at the source, and at the proxy after its writes are refused and the clients are
/// switched. Returns how often each list was appended to.
fn append(seed: u64, source: &str, proxy: &str, is_switched: &AtomicBool, after: &AtomicU64) -> HashMap<String, u64> {
    let (mut client, mut is_at_source) = (resp::Client::connect(source).expect("the source"), true);
    let mut lengths: HashMap<String, u64> = HashMap::new();
    for number in 0.. {
        if after.load(Ordering::Relaxed) > 2_000 {
            break;
        }
        let key = format!("list:{seed}:{}", number % 100);
        match client.command::<u64>(("RPUSH", &key, number)) {
            Ok(length) => {
                assert_eq!(lengths.insert(key.clone(), length).unwrap_or_default() + 1, length, "{key}");
                after.fetch_add(u64::from(!is_at_source), Ordering::Relaxed);
            }
            Err(error) => {
                assert!(is_at_source && error.to_string().contains("NOREPLICAS"), "{error}");
                while !is_switched.load(Ordering::Acquire) {
                    std::thread::sleep(Duration::from_millis(5));
                }
                (client, is_at_source) = (resp::Client::connect(proxy).expect("the proxy"), false);
            }
        }
    }
    lengths
}

#[test]
fn the_documented_commands_move_clients_that_never_stop_writing() {
    let servers: Vec<RedisServer> = (0..3).map_while(|_| RedisServer::start(&[])).collect();
    if servers.len() < 3 {
        return;
    }
    let listen =
        std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address").to_string();
    let proxy_address = format!("redis://{listen}");
    let commands = documented(&servers, &listen);
    assert_eq!(commands.len(), 2, "{commands:?}");
    let mut source = resp::Client::connect(&servers[0].address()).expect("the source");
    for number in 0..2_000 {
        source.command::<()>(("SET", format!("key:{number}"), number)).expect("a key");
    }
    source.command::<()>(("SET", "session", "old", "PX", 5_000)).expect("a key");
    let _proxy = start(&commands[0]);
    let mut reshard = start(&commands[1]);
    let (is_switched, after) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|seed| {
                let (source, proxy, is_switched, after) = (servers[0].address(), &proxy_address, &is_switched, &after);
                scope.spawn(move || append(seed, &source, proxy, is_switched, after))
            })
            .collect();
        let mut lines = BufReader::new(reshard.0.stderr.take().expect("its messages")).lines();
        let mut told = lines.by_ref().map(|line| line.expect("a line"));
        assert!(told.any(|line| line.starts_with("all keys are copied")), "it ended before");
        let interrupted = Command::new("kill").args(["-INT", &reshard.0.id().to_string()]).status();
        assert!(interrupted.is_ok_and(|status| status.success()));
        assert!(told.any(|line| line.starts_with("the source refuses writes (NOREPLICAS) until CONFIG SET")));
        let mut output = String::new();
        let mut stdout = reshard.0.stdout.take().expect("its output");
        std::io::Read::read_to_string(&mut stdout, &mut output).expect("its output");
        assert!(reshard.0.wait().expect("its end").success(), "{output}");
        assert!(output.contains("Every write that the source has acknowledged is on the nodes"), "{output}");
        // What expires in the source from now on is not removed from the nodes.
        let mut client = resp::Client::connect(&proxy_address).expect("the proxy");
        client.command::<()>(("SET", "session", "new")).expect("a write");
        is_switched.store(true, Ordering::Release);
        while source.command::<u64>(("EXISTS", "session")).expect("an answer") > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        for writer in writers {
            for (key, length) in writer.join().expect("a writer") {
                assert_eq!(client.command::<u64>(("LLEN", &key)).expect("a list"), length, "{key}");
            }
        }
        assert_eq!(client.command::<String>(("GET", "session")).expect("a value"), "new");
        assert_eq!(client.command::<String>(("GET", "key:1999")).expect("a value"), "1999");
    });
}

#[test]
fn options_choose_databases_keys_and_the_rate() {
    let servers: Vec<RedisServer> = (0..3).map_while(|_| RedisServer::start(&[])).collect();
    if servers.len() < 3 {
        return;
    }
    let mut source = resp::Client::connect(&servers[0].address()).expect("the source");
    for database in 0..3 {
        source.command::<()>(("SELECT", database)).expect("a database");
        source.command::<()>(("MSET", "user:1", 1, "user:2", 2, "other", 3)).expect("keys");
    }
    let output = reshard(
        &servers,
        &["--db", "all", "--match", "user:*", "--keys-per-second", "100", "--stall-max", "5", "--verify"],
    );
    let text = told(&output);
    assert!(output.status.success() && text.contains("copied 6 keys") && text.contains("verified 6 keys"), "{text}");
    for (arguments, refusal) in [
        (&["--db", "some"][..], "neither a number nor `all`"),
        (&["--hash", "slots", "--db", "1"], "only the database 0"),
        (&["--hash", "slots"], "is no part of a cluster"),
        (&["--keys-per-second", "0"], "0 is not in"),
    ] {
        let output = reshard(&servers, arguments);
        assert!(!output.status.success() && told(&output).contains(refusal), "{}", told(&output));
    }
}
