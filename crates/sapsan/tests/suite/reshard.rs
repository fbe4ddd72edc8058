//! `sapsan reshard` between real Redis servers, through the real binary.

#[path = "../../../resp/tests/redis_server/mod.rs"]
#[allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "what the tests of `resp` start their servers with")]
mod redis_server;

use redis_server::RedisServer;
use std::process::{Command, Output};

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
