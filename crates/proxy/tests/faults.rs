//! Nodes that are killed, stopped, or send garbage; another list of nodes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use proxy::config::Password;

use crate::nodes::{Plain, Program, Sharded, address_of, eventually, is_there, key_of, node, start_proxy};

#[test]
fn a_node_that_is_killed_fails_its_own_keys_until_it_is_back() {
    if !is_there("redis-server") {
        return;
    }
    let mut sharded = Sharded::start(|_| {});
    let keys: Vec<String> = (0..4).map(|node| sharded.key_of(node)).collect();
    let mut plain = sharded.connect();
    for key in &keys {
        assert_eq!(plain.text(&["SET", key, "1"]), "+OK\r\n");
    }
    let port = sharded.nodes.remove(2).kill();
    eventually("the node's keys fail", || plain.text(&["GET", &keys[2]]).starts_with("-ERR node"));
    for node in [0, 1, 3] {
        assert_eq!(plain.text(&["GET", &keys[node]]), "$1\r\n1\r\n");
    }
    // Only commands for the node's keys receive its error.
    let all = plain.text(&["MGET", &keys[0], &keys[2], &keys[1]]);
    assert!(all.starts_with("*3\r\n$1\r\n1\r\n-ERR node") && all.ends_with("\r\n$1\r\n1\r\n"), "{all}");
    assert!(plain.text(&["DEL", &keys[0], &keys[2]]).starts_with("-ERR node"));
    assert!(plain.text(&["SCRIPT", "LOAD", "return 1"]).starts_with("-ERR the nodes differ"));
    // What the proxy answers does not depend on the node, and says which is down.
    assert_eq!(plain.text(&["PING"]), "+PONG\r\n");
    let info = plain.text(&["INFO"]);
    assert!(info.contains("\r\nnodes_down:1\r\n") && info.contains(",state=down\r\n"), "{info}");
    let back = Program::redis_at(port);
    let since = Instant::now();
    eventually("the node is used again", || plain.text(&["GET", &keys[2]]) == "$-1\r\n");
    // Ten times the longest back-off: the machine may be busy.
    assert!(since.elapsed() < Duration::from_secs(10));
    drop(back);
}

#[test]
fn requests_in_flight_get_an_error_each_when_a_node_dies() {
    if !is_there("redis-server") {
        return;
    }
    let mut sharded = Sharded::start(|_| {});
    let (dying, living) = (sharded.key_of(1), sharded.key_of(0));
    let mut plain = sharded.connect();
    plain.text(&["SET", &dying, "1"]);
    sharded.nodes[1].signal("STOP");
    let get = |key: &str| [b"GET".to_vec(), key.as_bytes().to_vec()];
    let requests: Vec<_> = (0..50).map(|number| get(if number % 2 == 0 { &dying } else { &living })).collect();
    let slices: Vec<Vec<&[u8]>> = requests.iter().map(|words| words.iter().map(Vec::as_slice).collect()).collect();
    plain.send(slices.iter().map(Vec::as_slice));
    // The stopped node does not delay another client.
    let mut other = sharded.connect();
    assert_eq!(other.text(&["GET", &living]), "$-1\r\n");
    sharded.nodes.remove(1).kill();
    for number in 0..50 {
        let reply = plain.next_reply();
        let expected: &[u8] = if number % 2 == 0 { b"-ERR node" } else { b"$-1\r\n" };
        assert!(reply.starts_with(expected), "{number}: {}", String::from_utf8_lossy(&reply));
    }
}

#[test]
fn a_silent_node_is_given_up_after_the_timeout() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|config| config.node_timeout = Some(Duration::from_millis(300)));
    let key = sharded.key_of(1);
    let mut plain = sharded.connect();
    plain.text(&["SET", &key, "1"]);
    sharded.nodes[1].signal("STOP");
    let reply = plain.text(&["GET", &key]);
    assert!(reply.starts_with("-ERR node") && reply.contains("no reply within"), "{reply}");
    sharded.nodes[1].signal("CONT");
    eventually("it answers again", || plain.text(&["GET", &key]) == "$1\r\n1\r\n");
    // A node on which a command blocks is not a silent node.
    assert_eq!(plain.text(&["BLPOP", &format!("list{{{key}}}"), "1"]), "*-1\r\n");
}

/// A node that answers the first request of each connection with these bytes, and then does nothing, or closes the
/// connection.
fn fake_node(answer: &'static [u8], then_ends: bool) -> (std::net::SocketAddr, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let mut kept: Vec<TcpStream> = Vec::new();
        while let Ok((mut stream, _)) = listener.accept() {
            let mut bytes = [0; 4096];
            let taken = stream.read(&mut bytes).unwrap_or(0);
            if bytes[..taken].windows(4).any(|word| word == b"stop") {
                return;
            }
            let _ = stream.write_all(answer);
            if !then_ends {
                kept.push(stream);
            }
        }
    });
    (address, thread)
}

fn stop(address: std::net::SocketAddr, thread: std::thread::JoinHandle<()>) {
    let _ = TcpStream::connect(address).unwrap().write_all(b"stop");
    thread.join().unwrap();
}

#[track_caller]
fn check_fake_node(answer: &'static [u8], then_ends: bool, reply: Option<&str>) {
    let (address, thread) = fake_node(answer, then_ends);
    let proxy = start_proxy(&[address], |config| config.node_timeout = Some(Duration::from_millis(300)));
    let mut plain = Plain::connect(address_of(&proxy));
    plain.send([&[b"GET".as_slice(), b"a"][..]]);
    match reply {
        Some(reply) => {
            let text = String::from_utf8_lossy(&plain.next_reply()).into_owned();
            assert!(text.starts_with("-ERR node") && text.contains(reply), "{text}");
        }
        None => assert!(plain.has_ended()),
    }
    proxy.drain(Duration::ZERO);
    proxy.join().unwrap();
    stop(address, thread);
}

#[test]
fn a_node_that_is_none_costs_errors_and_no_more() {
    // The first request on a connection is COMMAND: its reply comes first.
    check_fake_node(b"*0\r\nHTTP/1.1 400 Bad Request\r\n", false, Some("its bytes are no reply"));
    check_fake_node(b"", true, Some("it closed the connection"));
    check_fake_node(b"", false, Some("no reply within"));
}

/// A client that has received half a reply cannot be told that the rest will not arrive.
#[test]
fn half_a_reply_ends_its_client() {
    check_fake_node(b"*0\r\n$10\r\nhalf", true, None);
    check_fake_node(b"*0\r\n$10\r\nhalf", false, None);
}

#[test]
fn another_list_of_nodes_is_taken_without_dropping_clients() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let mut plain = sharded.connect();
    let key = key_of(3, 4, 0);
    assert_eq!(plain.text(&["SET", &key, "old"]), "+OK\r\n");
    let added = Program::redis();
    let mut nodes: Vec<_> = sharded.nodes.iter().map(|program| node(program.address)).collect();
    nodes[3] = node(added.address);
    sharded.proxy().set_nodes(nodes).unwrap();
    eventually("the key is on the new node", || plain.text(&["GET", &key]) == "$-1\r\n");
    assert_eq!(plain.text(&["SET", &key, "new"]), "+OK\r\n");
    assert_eq!(Plain::connect(added.address).text(&["GET", &key]), "$3\r\nnew\r\n");
    assert_eq!(Plain::connect(sharded.nodes[3].address).text(&["GET", &key]), "$3\r\nold\r\n");
    assert!(sharded.proxy().set_nodes(Vec::new()).is_err());
    assert_eq!(plain.text(&["GET", &key]), "$3\r\nnew\r\n");
}

#[test]
fn subscribers_that_would_miss_messages_of_another_list_are_disconnected() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let (moved, stays) = (key_of(3, 4, 0), key_of(0, 4, 0));
    let subscribers = [["SUBSCRIBE", &moved], ["PSUBSCRIBE", "*"], ["SUBSCRIBE", &stays]];
    let [mut of_moved, mut of_pattern, mut of_stays] = subscribers.map(|command| {
        let mut plain = sharded.connect();
        plain.text(&command);
        plain
    });
    let added = Program::redis();
    let mut nodes: Vec<_> = sharded.nodes.iter().map(|program| node(program.address)).collect();
    nodes[3] = node(added.address);
    sharded.proxy().set_nodes(nodes).unwrap();
    assert!(of_moved.has_ended() && of_pattern.has_ended());
    assert_eq!(sharded.connect().text(&["PUBLISH", &stays, "m"]), ":1\r\n");
    assert!(String::from_utf8_lossy(&of_stays.next_reply()).contains("message"));
}

#[test]
fn a_channel_that_another_node_has_now_ends_its_subscribers_though_no_node_is_removed() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let moved = (0..).map(|nth| key_of(3, 4, nth)).find(|key| (0..9).any(|nth| key_of(4, 5, nth) == *key)).unwrap();
    let mut subscriber = sharded.connect();
    subscriber.text(&["SUBSCRIBE", &moved]);
    let added = Program::redis();
    let nodes = sharded.nodes.iter().map(|program| program.address).chain([added.address]).map(node);
    sharded.proxy().set_nodes(nodes.collect()).unwrap();
    assert!(subscriber.has_ended());
}

#[test]
fn a_reserved_connection_to_a_removed_node_serves_no_other_node() {
    if !is_there("redis-server") {
        return;
    }
    let (first, second) = (Program::redis(), Program::redis());
    let proxy = start_proxy(&[first.address], |config| config.threads = 1);
    let mut plain = Plain::connect(address_of(&proxy));
    // Only a reserved connection is made, and is kept for the next use.
    assert_eq!(plain.text(&["WATCH", "a"]) + &plain.text(&["UNWATCH"]), "+OK\r\n+OK\r\n");
    proxy.set_nodes(vec![node(second.address)]).unwrap();
    let name = node(second.address).name;
    eventually("the list is in force", || proxy.counters()[0].node_names().contains(&name));
    for command in [&["WATCH", "a"][..], &["MULTI"], &["SET", "a", "1"], &["EXEC"]] {
        plain.text(command);
    }
    assert_eq!(Plain::connect(first.address).text(&["GET", "a"]), "$-1\r\n");
    assert_eq!(Plain::connect(second.address).text(&["GET", "a"]), "$1\r\n1\r\n");
    proxy.drain(Duration::ZERO);
    proxy.join().unwrap();
}

#[test]
fn a_request_that_is_passed_on_while_it_arrives_is_not_answered_where_replies_are_off() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|config| config.limits.request_bytes_max = 100_000);
    let mut plain = sharded.connect();
    let value = vec![b'v'; 1_000_000];
    plain.send([&[b"CLIENT".as_slice(), b"REPLY", b"SKIP"][..], &[b"SET", b"a{t}", &value], &[b"STRLEN", b"a{t}"]]);
    assert_eq!(plain.next_reply(), b":1000000\r\n");
    let commands = [[b"REPLY".as_slice(), b"OFF"], [b"REPLY", b"ON"]].map(|[a, b]| [b"CLIENT".as_slice(), a, b]);
    plain.send([&commands[0][..], &[b"SET", b"b{t}", &value], &commands[1][..], &[b"STRLEN", b"b{t}"]]);
    assert_eq!(plain.next_reply(), b"+OK\r\n");
    assert_eq!(plain.next_reply(), b":1000000\r\n");
}

#[test]
fn a_client_that_speaks_http_is_disconnected_before_its_next_command() {
    if !is_there("redis-server") {
        return;
    }
    for password in [None, Some("secret")] {
        let sharded = Sharded::start(|config| config.password = password.map(|text| Password(text.to_owned())));
        let mut other = sharded.connect();
        if password.is_some() {
            assert_eq!(other.text(&["AUTH", "secret"]), "+OK\r\n");
        }
        let before =
            ["POST / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "hOsT: x\r\n", "*1\r\n$4\r\npost\r\n"];
        for front in before {
            let mut page = sharded.connect();
            assert_eq!(other.text(&["SET", "a", "kept"]), "+OK\r\n");
            page.write(format!("{front}AUTH secret\r\nFLUSHALL\r\nSET a stolen\r\n").as_bytes());
            assert!(page.has_ended(), "{front:?}");
            assert_eq!(other.text(&["GET", "a"]), "$4\r\nkept\r\n", "{front:?}");
        }
    }
}

#[test]
fn a_slow_upload_is_no_silence_of_its_node() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|config| {
        config.node_timeout = Some(Duration::from_secs(1));
        config.limits.request_bytes_max = 100_000;
    });
    let mut plain = sharded.connect();
    plain.write(b"*3\r\n$3\r\nSET\r\n$4\r\na{t}\r\n$2000000\r\n");
    for _ in 0..20 {
        plain.write(&[b'x'; 100_000]);
        std::thread::sleep(Duration::from_millis(100));
    }
    plain.write(b"\r\n");
    assert_eq!(plain.next_reply(), b"+OK\r\n");
    assert_eq!(plain.text(&["STRLEN", "a{t}"]), ":2000000\r\n");
}

#[test]
fn a_subscriber_of_a_silent_node_is_disconnected() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|config| config.node_timeout = Some(Duration::from_secs(1)));
    for version in ["2", "3"] {
        let (mut deaf, mut listening) = (sharded.connect(), sharded.connect());
        for (plain, node) in [(&mut deaf, 1), (&mut listening, 0)] {
            plain.reply(&["HELLO", version]);
            plain.reply(&["SUBSCRIBE", &sharded.key_of(node)]);
        }
        sharded.nodes[1].signal("STOP");
        assert!(deaf.has_ended());
        sharded.nodes[1].signal("CONT");
        // A node that answers keeps its subscribers, however little happens.
        std::thread::sleep(Duration::from_millis(2500));
        assert_eq!(sharded.connect().text(&["PUBLISH", &sharded.key_of(0), "m"]), ":1\r\n");
        assert!(String::from_utf8_lossy(&listening.next_reply()).contains("message"));
    }
}

/// The kernel's timers of established connections with this port on either side: proc(5), /proc/net/tcp.
fn keepalive_timers(port: u16) -> Vec<bool> {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let is_of = |address: &str| address.ends_with(&format!(":{port:04X}"));
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    // Timer 2 is that of keepalive.
    rows.filter(|row| row[3] == "01" && is_of(row[1])).map(|row| row[5].starts_with("02:")).collect()
}

#[test]
fn the_kernel_asks_for_vanished_hosts() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let mut plain = sharded.connect();
    assert_eq!(plain.text(&["GET", "a"]), "$-1\r\n");
    assert_eq!(keepalive_timers(sharded.address().port()), [true], "of the client");
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let ports: Vec<String> = sharded.nodes.iter().map(|node| format!(":{:04X}", node.address.port())).collect();
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let to_nodes: Vec<bool> = rows
        .filter(|row| row[3] == "01" && ports.iter().any(|port| row[2].ends_with(port.as_str())))
        .map(|row| row[5].starts_with("02:"))
        .collect();
    assert!(!to_nodes.is_empty() && to_nodes.iter().all(|asks| *asks), "of nodes: {to_nodes:?}");
}

#[test]
fn each_client_has_a_number_of_its_own() {
    if !is_there("redis-server") {
        return;
    }
    const CLIENTS: usize = 40;
    let sharded = Sharded::start(|config| config.threads = 4);
    let mut clients: Vec<Plain> = (0..CLIENTS).map(|_| sharded.connect()).collect();
    let numbers: std::collections::HashSet<String> =
        clients.iter_mut().map(|client| client.text(&["CLIENT", "ID"])).collect();
    assert_eq!(numbers.len(), CLIENTS);
    assert!(clients[0].text(&["HELLO", "2"]).contains(&clients[0].text(&["CLIENT", "ID"])));
}

#[test]
fn a_hung_node_does_not_delay_what_the_proxy_answers() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let mut plain = sharded.connect();
    assert_eq!(plain.text(&["DBSIZE"]), ":0\r\n");
    sharded.nodes[1].signal("STOP");
    assert_eq!(plain.text(&["PING"]), "+PONG\r\n");
    assert_eq!(plain.text(&["PING", "text"]), "$4\r\ntext\r\n");
    assert!(plain.text(&["INFO"]).contains("\r\nloading:0\r\n"));
    assert_eq!(plain.text(&["GET", &sharded.key_of(0)]), "$-1\r\n");
    sharded.nodes[1].signal("CONT");
}
