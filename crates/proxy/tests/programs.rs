//! Third-party programs: redis-py, redis-cli, redis-benchmark; and the metrics that Prometheus
//! reads.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use crate::nodes::{Plain, Program, Sharded, eventually, is_there};

#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

const REDIS_PY: &str = "
import sys, threading, redis
r = redis.Redis(port=int(sys.argv[1]), client_name='py')
assert r.ping() and r.set('a', 'b') and r.get('a') == b'b'
r.mset({'k%d' % i: i for i in range(1000)})
assert r.mget('k%d' % i for i in range(1000)) == [b'%d' % i for i in range(1000)]
assert r.dbsize() == 1001 and len(r.keys('k*')) == 1000 and len(set(r.scan_iter('k*'))) == 1000
assert r.delete(*('k%d' % i for i in range(1000))) == 1000
with r.pipeline(transaction=False) as p:
    for i in range(500): p.set('p%d' % i, i).get('p%d' % i)
    assert p.execute() == [x for i in range(500) for x in (True, b'%d' % i)]
with r.pipeline() as p:
    p.watch('n{t}')
    p.multi()
    p.incr('n{t}').incr('n{t}')
    assert p.execute() == [1, 2]
try:
    r.sinter('x0', 'x1', 'x2', 'x3')
    assert False
except redis.ResponseError as e:
    assert 'tag' in str(e)
s = r.register_script('return redis.call(\"incr\", KEYS[1])')
assert s(keys=['n{t}']) == 3
ps = r.pubsub(ignore_subscribe_messages=True)
ps.subscribe('c1', 'c2'); ps.psubscribe('c*')
while ps.get_message(timeout=0.1): pass
assert r.publish('c1', 'm') == 2
got = [m for m in (ps.get_message(timeout=1) for _ in range(9)) if m]
assert sorted(m['type'] for m in got) == ['message', 'pmessage'], got
t = threading.Timer(0.1, lambda: redis.Redis(port=int(sys.argv[1])).rpush('l', 'v')); t.start()
assert r.blpop('l', 5) == (b'l', b'v')
r.select(1) if hasattr(r, 'select') else r.execute_command('SELECT', 1)
print('done')
";

#[test]
fn redis_py_works_through_the_proxy() {
    if !is_there("redis-server") || !is_there("python3") {
        return;
    }
    // The test program lies in target/PROFILE/deps.
    let program = std::env::current_exe().unwrap();
    let folder = program.ancestors().nth(3).unwrap().join("redis-clients/redis-py");
    let python = || {
        let mut python = Command::new("python3");
        python.env("PYTHONPATH", &folder);
        python
    };
    if !python().args(["-c", "import redis"]).output().is_ok_and(|ran| ran.status.success()) {
        let line = "SKIPPED: redis-py is not there (`cargo xtask redis-clients redis-py` installs it)";
        let _ = writeln!(std::io::stdout(), "{line}");
        return;
    }
    let sharded = Sharded::start(|_| {});
    let port = sharded.address().port().to_string();
    assert_eq!(run(python().args(["-c", REDIS_PY, &port])), "done\n");
}

#[test]
fn redis_cli_works_through_the_proxy() {
    if !is_there("redis-server") || !is_there("redis-cli") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let port = sharded.address().port().to_string();
    for (words, reply) in [
        (&["set", "a", "1"][..], "OK\n"),
        (&["incr", "a"], "2\n"),
        (&["mget", "a", "b"], "2\n\n"),
        (&["-3", "hset", "h", "f", "v"], "1\n"),
        (&["-3", "hgetall", "h"], "f v\n"),
        (&["-n", "2", "get", "a"], "\n"),
    ] {
        assert_eq!(run(Command::new("redis-cli").args(["-p", &port]).args(words)), reply, "{words:?}");
    }
    let all = run(Command::new("redis-cli").args(["-p", &port, "--scan"]));
    let mut keys: Vec<&str> = all.lines().collect();
    keys.sort_unstable();
    assert_eq!(keys, ["a", "h"]);
}

#[test]
fn redis_benchmark_loses_nothing() {
    if !is_there("redis-server") || !is_there("redis-benchmark") {
        return;
    }
    let sharded = Sharded::start(|config| config.threads = 2);
    let port = sharded.address().port().to_string();
    for (clients, pipeline) in [("10", "1"), ("10", "100"), ("20", "1000"), ("1", "100")] {
        let arguments = [
            "-p",
            &port,
            "-c",
            clients,
            "-P",
            pipeline,
            "-n",
            "20000",
            "-r",
            "1000",
            "-q",
            "-t",
            "set,get,incr,lpush,mset",
        ];
        let text = run(Command::new("redis-benchmark").args(arguments));
        assert!(!text.contains("Error") && text.matches("requests per second").count() == 5, "{text}");
    }
    let served = |name: &str| -> u64 {
        let id = proxy::commands::CommandTable::new().find(name.as_bytes()).unwrap();
        let counters = sharded.proxy().counters();
        counters.iter().map(|of| of.commands[usize::from(id.0)].answered.get()).sum()
    };
    assert_eq!((served("set"), served("get"), served("lpush")), (80_000, 80_000, 80_000));
    // Each run first requests two settings, which a node answers.
    assert_eq!(served("config|get"), 8);
    assert_eq!(sharded.proxy().counters().iter().map(|of| of.refused.get()).sum::<u64>(), 0);
}

fn page(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

#[test]
fn a_proxy_is_ready_while_one_of_its_nodes_can_be_reached() {
    if !is_there("redis-server") {
        return;
    }
    let mut sharded = Sharded::start(|_| {});
    let pools = vec![(Some("alpha".to_owned()), sharded.proxy().counters().to_vec())];
    let (address, _server) = proxy::serve_metrics("127.0.0.1:0".parse().unwrap(), pools).unwrap();
    let mut plain = sharded.connect();
    let keys: Vec<String> = (0..4).map(|node| sharded.key_of(node)).collect();
    let ports: Vec<u16> = sharded.nodes.drain(1..).map(Program::kill).collect();
    let is_down = |plain: &mut Plain, key: &str| plain.text(&["GET", key]).contains("is down");
    keys[1..].iter().for_each(|key| eventually("it is down", || is_down(&mut plain, key)));
    assert!(page(address, "/readyz").starts_with("HTTP/1.1 200"));
    drop(sharded.nodes.pop());
    eventually("the last is down", || is_down(&mut plain, &keys[0]));
    let unready = page(address, "/readyz");
    assert!(
        unready.starts_with("HTTP/1.1 503") && unready.contains("pool alpha: no node can be reached: "),
        "{unready}"
    );
    assert!(page(address, "/healthz").starts_with("HTTP/1.1 200"));
    let _back = Program::redis_at(ports[0]);
    eventually("it is used again", || plain.text(&["GET", &keys[1]]) == "$-1\r\n");
    assert!(page(address, "/readyz").starts_with("HTTP/1.1 200"));
}

#[test]
fn counters_are_shown_for_prometheus() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let mut plain = sharded.connect();
    plain.text(&["SET", "a", "1"]);
    plain.text(&["INCR", "a"]);
    plain.text(&["LPUSH", "a", "1"]);
    let pools = vec![(None, sharded.proxy().counters().to_vec())];
    let (address, _server) = proxy::serve_metrics("127.0.0.1:0".parse().unwrap(), pools).unwrap();
    let page = page(address, "/metrics");
    for line in [
        "sapsan_proxy_clients 1",
        "sapsan_proxy_command_requests_total{command=\"set\"} 1",
        "sapsan_proxy_command_errors_total{command=\"lpush\"} 1",
        "sapsan_proxy_command_seconds_count{command=\"incr\"} 1",
        "sapsan_proxy_command_seconds_bucket{command=\"incr\",le=\"+Inf\"} 1",
    ] {
        assert!(page.lines().any(|one| one == line), "{line}: {page}");
    }
    let node = proxy::placement::Placement::Crc32 { nodes: 4, hash_tag: None }.node(b"a", 0);
    let name = sharded.nodes[node].address;
    assert!(page.contains(&format!("sapsan_proxy_node_requests_total{{node=\"{name}\"}} 3\n")), "{page}");
}
