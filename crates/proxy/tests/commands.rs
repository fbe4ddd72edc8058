//! Commands through the proxy: with one key, split by node, sent to all nodes, answered by the
//! proxy.

use crate::nodes::{Sharded, is_there};

#[track_caller]
fn check(plain: &mut crate::nodes::Plain, command: &str, reply: &str) {
    let words: Vec<&str> = command.split(' ').collect();
    assert_eq!(plain.text(&words), reply, "{command}");
}

#[test]
fn commands_of_one_key_go_to_its_node() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let mut plain = sharded.connect();
    for node in 0..4 {
        let key = sharded.key_of(node);
        check(&mut plain, &format!("SET {key} {node}"), "+OK\r\n");
        check(&mut plain, &format!("get {key}"), &format!("$1\r\n{node}\r\n"));
        let mut direct = crate::nodes::Plain::connect(sharded.nodes[node].address);
        check(&mut direct, "DBSIZE", ":1\r\n");
    }
    check(&mut plain, "GET nothing", "$-1\r\n");
    check(&mut plain, "HSET h{x} a 1 b 2", ":2\r\n");
    check(&mut plain, "RENAME h{x} i{x}", "+OK\r\n");
    check(&mut plain, "INCR i{x}", "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n");
    check(&mut plain, "GET", "-ERR wrong number of arguments for 'get' command\r\n");
    check(&mut plain, "NOSUCH a", "-ERR unknown command 'NOSUCH', with args beginning with: 'a' \r\n");
    check(
        &mut plain,
        "EVAL return(redis.call('get',KEYS[1])) 1 key:0",
        "$1\r\n0\r\n".replace('0', &value_of(&sharded)).as_str(),
    );
}

fn value_of(sharded: &Sharded) -> String {
    (0..4).find(|node| sharded.key_of(*node) == "key:0").unwrap().to_string()
}

#[test]
fn commands_of_several_keys_are_split_and_joined() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let mut plain = sharded.connect();
    let keys: Vec<String> = (0..100).map(|number| format!("k{number}")).collect();
    let mut set = vec!["MSET"];
    keys.iter().for_each(|key| set.extend([key.as_str(), key.as_str()]));
    assert_eq!(plain.text(&set), "+OK\r\n");
    let mut get = vec!["MGET"];
    keys.iter().rev().for_each(|key| get.extend([key.as_str(), "none"]));
    let expected: String = keys.iter().rev().map(|key| format!("${}\r\n{key}\r\n$-1\r\n", key.len())).collect();
    assert_eq!(plain.text(&get), format!("*200\r\n{expected}"));
    check(&mut plain, "EXISTS k1 k2 k3 none k1", ":4\r\n");
    check(&mut plain, "TOUCH k1 k2 k3 none", ":3\r\n");
    check(&mut plain, "DEL k1 k2 k3 none", ":3\r\n");
    check(&mut plain, "UNLINK k4 k5 k6 k7", ":4\r\n");
    check(&mut plain, "DBSIZE", ":93\r\n");
    check(&mut plain, "MSET a 1 b", "-ERR wrong number of arguments for 'mset' command\r\n");
    let apart = format!("{} {}", sharded.key_of(0), sharded.key_of(1));
    for command in ["MSETNX", "SINTER", "RENAME"] {
        let apart = if command == "MSETNX" { apart.replace(' ', " 1 ") + " 2" } else { apart.clone() };
        let words: Vec<String> = format!("{command} {apart}").split(' ').map(str::to_owned).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let reply = plain.text(&words);
        assert!(reply.starts_with("-ERR") && reply.contains("tag"), "{command}: {reply}");
    }
    check(&mut plain, "MSETNX a{t} 1 b{t} 2", ":1\r\n");
    check(&mut plain, "MSETNX a{t} 1 c{t} 2", ":0\r\n");
}

#[test]
fn msetnx_over_nodes_is_split_where_that_is_permitted() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|config| config.may_split_msetnx = true);
    let mut plain = sharded.connect();
    let keys = [sharded.key_of(0), sharded.key_of(1)];
    check(&mut plain, &format!("MSETNX {} 1 {} 2", keys[0], keys[1]), ":1\r\n");
    check(&mut plain, &format!("MSETNX {} 1 {} 2", keys[0], sharded.key_of(2)), ":0\r\n");
}

#[test]
fn commands_to_all_nodes_have_one_reply() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let mut plain = sharded.connect();
    check(&mut plain, "PING", "+PONG\r\n");
    check(&mut plain, "PING text", "$4\r\ntext\r\n");
    check(&mut plain, "RANDOMKEY", "$-1\r\n");
    for number in 0..200 {
        check(&mut plain, &format!("SET k{number} v"), "+OK\r\n");
    }
    check(&mut plain, "DBSIZE", ":200\r\n");
    assert!(plain.text(&["KEYS", "*"]).starts_with("*200\r\n"));
    assert!(plain.text(&["RANDOMKEY"]).contains("\r\nk"));
    let info = plain.text(&["INFO", "server"]);
    assert_eq!(info.matches("# Node 127.0.0.1:").count(), 4);
    assert!(plain.text(&["INFO"]).contains("\r\nredis_version:7."));
    assert_eq!(plain.text(&["INFO"]).matches(",state=up\r\n").count(), 4);
    let loaded = plain.text(&["SCRIPT", "LOAD", "return 1"]);
    check(&mut plain, "SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "*1\r\n:1\r\n");
    assert_eq!(loaded, "$40\r\ne0e1f9fabfc9d4800c877a703b823ac0578ff8db\r\n");
    // A script that only one node knows: the nodes' replies differ.
    crate::nodes::Plain::connect(sharded.nodes[0].address).text(&["SCRIPT", "FLUSH"]);
    check(&mut plain, "SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "*1\r\n:0\r\n");
    assert_eq!(scanned(&mut plain), 200);
    check(&mut plain, "FLUSHALL", "+OK\r\n");
    check(&mut plain, "DBSIZE", ":0\r\n");
}

/// Distinct keys that SCAN finds.
fn scanned(plain: &mut crate::nodes::Plain) -> usize {
    let (mut cursor, mut found) = ("0".to_owned(), std::collections::HashSet::new());
    loop {
        let reply = plain.text(&["SCAN", &cursor, "COUNT", "20", "MATCH", "k*"]);
        let mut lines = reply.lines().skip(2);
        cursor = lines.next().unwrap().to_owned();
        found.extend(lines.filter(|line| line.starts_with('k')).map(str::to_owned));
        if cursor == "0" {
            return found.len();
        }
    }
}

#[test]
fn commands_that_the_proxy_answers() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let mut plain = sharded.connect();
    check(&mut plain, "ECHO text", "$4\r\ntext\r\n");
    check(&mut plain, "CLIENT GETNAME", "$-1\r\n");
    assert!(
        plain.text(&["CLIENT", "TRACKING", "ON"]).starts_with("-ERR CLIENT TRACKING is not supported: clients share")
    );
    check(&mut plain, "CLIENT SETNAME me", "+OK\r\n");
    check(&mut plain, "CLIENT GETNAME", "$2\r\nme\r\n");
    check(&mut plain, "SELECT 3", "+OK\r\n");
    check(&mut plain, "SET a 3", "+OK\r\n");
    check(&mut plain, "SELECT 16", "-ERR DB index is out of range\r\n");
    check(&mut plain, "SELECT 0", "+OK\r\n");
    check(&mut plain, "GET a", "$-1\r\n");
    let refused = plain.text(&["CONFIG", "SET", "save", ""]);
    assert!(refused.starts_with("-ERR 'config|set' has no key"), "{refused}");
    check(&mut plain, "CONFIG GET appendonly", "*2\r\n$10\r\nappendonly\r\n$2\r\nno\r\n");
    // Scripts without keys run on any node.
    check(&mut plain, "EVAL return(ARGV[1]) 0 x", "$1\r\nx\r\n");
    check(&mut plain, "FUNCTION LIST", "*0\r\n");
    check(&mut plain, "EVAL return(1) -1 x", "-ERR Number of keys can't be negative\r\n");
    check(&mut plain, "EVAL return(1) many x", "-ERR value is not an integer or out of range\r\n");
    let hello = plain.text(&["HELLO", "3", "SETNAME", "you"]);
    assert!(hello.starts_with("%7\r\n") && hello.contains("proto\r\n:3"), "{hello}");
    check(&mut plain, "GET a", "_\r\n");
    check(&mut plain, "HSET h a 1", ":1\r\n");
    check(&mut plain, "HGETALL h", "%1\r\n$1\r\na\r\n$1\r\n1\r\n");
    check(&mut plain, "MGET none a", "*2\r\n_\r\n_\r\n");
    check(&mut plain, "RESET", "+RESET\r\n");
    check(&mut plain, "GET a", "$-1\r\n");
    check(&mut plain, "CLIENT GETNAME", "$-1\r\n");
    plain.write(b"set inline \"a b\"\r\n\r\nget inline\r\n");
    assert_eq!(plain.next_reply(), b"+OK\r\n");
    assert_eq!(plain.next_reply(), b"$3\r\na b\r\n");
    plain.write(b"*2\r\n$6\r\nCLIENT\r\n$1\r\nx\r\n*1\r\n$4\r\nQUIT\r\n");
    assert!(plain.next_reply().starts_with(b"-ERR"));
    assert_eq!(plain.next_reply(), b"+OK\r\n");
    assert!(plain.has_ended());
}

#[test]
fn functions_are_restored_on_all_nodes() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let mut node = crate::nodes::Plain::connect(sharded.nodes[0].address);
    let code = "#!lua name=l\nredis.register_function('f', function(keys) return keys[1] end)";
    assert_eq!(node.text(&["FUNCTION", "LOAD", code]), "$1\r\nl\r\n");
    let dump = node.reply(&["FUNCTION", "DUMP"]);
    let dump = &dump[dump.iter().position(|byte| *byte == b'\n').unwrap() + 1..dump.len() - 2];
    let mut plain = sharded.connect();
    plain.send([[b"FUNCTION".as_slice(), b"RESTORE", dump, b"REPLACE"].as_slice()]);
    assert_eq!(plain.next_reply(), b"+OK\r\n");
    for node in 0..4 {
        let key = sharded.key_of(node);
        check(&mut plain, &format!("FCALL f 1 {key}"), &format!("${}\r\n{key}\r\n", key.len()));
    }
}

#[test]
fn replies_may_be_switched_off() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let mut plain = sharded.connect();
    let command = |words: &str| -> Vec<Vec<u8>> { words.split(' ').map(|word| word.as_bytes().to_vec()).collect() };
    let send = |plain: &mut crate::nodes::Plain, words: &str| {
        let words = command(words);
        plain.send([&*words.iter().map(Vec::as_slice).collect::<Vec<_>>()]);
    };
    send(&mut plain, "CLIENT REPLY SKIP");
    send(&mut plain, "SET a 1");
    check(&mut plain, "INCR a", ":2\r\n");
    send(&mut plain, "CLIENT REPLY OFF");
    for words in ["SET a 5", "MSET b 1 c 2 d 3", "NOSUCH", "PING", "ECHO x"] {
        send(&mut plain, words);
    }
    check(&mut plain, "CLIENT REPLY ON", "+OK\r\n");
    check(&mut plain, "MGET a b c d", "*4\r\n$1\r\n5\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n");
}

#[test]
fn passwords_stand_between_clients_the_proxy_and_nodes() {
    if !is_there("redis-server") {
        return;
    }
    let password = |text: &str| Some(proxy::config::Password(text.to_owned()));
    let sharded = Sharded::start(|config| {
        config.password = password("outer");
        config.node_password = password("inner");
    });
    for node in &sharded.nodes {
        crate::nodes::Plain::connect(node.address).text(&["CONFIG", "SET", "requirepass", "inner"]);
    }
    let mut plain = sharded.connect();
    check(&mut plain, "GET a", "-NOAUTH Authentication required.\r\n");
    check(&mut plain, "AUTH inner", "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    check(&mut plain, "AUTH outer", "+OK\r\n");
    check(&mut plain, "SET a 1", "+OK\r\n");
    let mut plain = sharded.connect();
    assert!(plain.text(&["HELLO", "3"]).starts_with("-NOAUTH"));
    assert!(plain.text(&["HELLO", "3", "AUTH", "default", "outer"]).starts_with("%7"));
    check(&mut plain, "GET a", "$1\r\n1\r\n");
}

#[test]
fn nodes_are_authenticated_to_by_a_user_name() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|config| {
        config.node_user = Some("alice".to_owned());
        config.node_password = Some(proxy::config::Password("inner".to_owned()));
    });
    for node in &sharded.nodes {
        let mut plain = crate::nodes::Plain::connect(node.address);
        plain.text(&["ACL", "SETUSER", "alice", "on", ">inner", "~a*", "+@all"]);
        plain.text(&["ACL", "SETUSER", "default", "off"]);
    }
    let mut plain = sharded.connect();
    check(&mut plain, "SET a 1", "+OK\r\n");
    // The rights are those of the user.
    assert!(plain.text(&["GET", "b"]).starts_with("-NOPERM"));
}

#[test]
fn a_wrong_password_for_a_node_is_told_to_its_clients() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|config| config.node_password = Some(proxy::config::Password("wrong".to_owned())));
    for node in &sharded.nodes {
        crate::nodes::Plain::connect(node.address).text(&["CONFIG", "SET", "requirepass", "right"]);
    }
    let mut plain = sharded.connect();
    for _ in 0..3 {
        let reply = plain.text(&["GET", "a"]);
        assert!(reply.starts_with("-ERR node") && reply.contains("WRONGPASS"), "{reply}");
    }
}

#[test]
fn a_unix_socket_is_listened_on_and_connected_to() {
    use std::io::{Read, Write};
    if !is_there("redis-server") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (node, socket) = (folder.path().join("redis.sock"), folder.path().join("proxy.sock"));
    let port = crate::nodes::free_port();
    let mut command = crate::nodes::command("redis-server");
    command.args(["--save", "", "--bind", "127.0.0.1", "--port", &port.to_string(), "--unixsocket"]).arg(&node);
    let _redis = crate::nodes::Program::start(&mut command, port);
    let node = proxy::parse_node(&format!("unix:{}", node.display())).unwrap();
    let listen = proxy::parse_address(&format!("unix:{}", socket.display())).unwrap();
    let config = proxy::config::ProxyConfig { threads: 2, ..proxy::config::ProxyConfig::new(vec![node]) };
    let proxy = proxy::start(config, &[listen]).unwrap();
    let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    stream.write_all(b"set a 1\r\nincr a\r\n").unwrap();
    let mut reply = [0; 9];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+OK\r\n:2\r\n");
    proxy.drain(std::time::Duration::ZERO);
    proxy.join().unwrap();
    assert!(!socket.exists());
}
