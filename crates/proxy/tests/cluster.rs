//! Redis Cluster: three masters, slots that move while clients work, a master that is gone.

use std::process::Command;

use crate::nodes::{Plain, Program, address_of, eventually, free_port, is_there, start_proxy};
use proxy::config::Spread;
use proxy::placement::slot_of;

/// A cluster of three masters, without replicas.
struct Cluster {
    nodes: Vec<Program>,
    ids: Vec<String>,
    _folder: tempfile::TempDir,
}

impl Cluster {
    fn start() -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let mut nodes = Vec::new();
        let mut buses = Vec::new();
        for _ in 0..3 {
            let (port, bus) = (free_port(), free_port());
            let dir = folder.path().join(port.to_string());
            std::fs::create_dir(&dir).unwrap();
            let mut command = Command::new("redis-server");
            command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--cluster-enabled", "yes"]);
            command.args(["--cluster-require-full-coverage", "no", "--cluster-node-timeout", "1000"]);
            command.args(["--port", &port.to_string(), "--cluster-port", &bus.to_string(), "--dir"]).arg(&dir);
            nodes.push(Program::start(&mut command, port));
            buses.push(bus);
        }
        let mut plains: Vec<Plain> = nodes.iter().map(|node| Plain::connect(node.address)).collect();
        for (plain, range) in plains.iter_mut().zip([["0", "5460"], ["5461", "10922"], ["10923", "16383"]]) {
            assert_eq!(plain.text(&["CLUSTER", "ADDSLOTSRANGE", range[0], range[1]]), "+OK\r\n");
        }
        for (node, bus) in nodes.iter().zip(&buses).skip(1) {
            let (port, bus) = (node.address.port().to_string(), bus.to_string());
            assert_eq!(plains[0].text(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]), "+OK\r\n");
        }
        for plain in &mut plains {
            eventually("the cluster is up", || {
                let info = plain.text(&["CLUSTER", "INFO"]);
                info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
            });
        }
        let id = |plain: &mut Plain| plain.text(&["CLUSTER", "MYID"]).lines().nth(1).unwrap().to_owned();
        let ids = plains.iter_mut().map(id).collect();
        Cluster { nodes, ids, _folder: folder }
    }

    fn proxy(&self) -> proxy::Running {
        start_proxy(&[self.nodes[0].address], |config| config.spread = Spread::Slots)
    }

    /// Moves a slot as `redis-cli --cluster reshard` does; `between` is called while it is on its way.
    fn move_slot(&self, slot: u16, from: usize, to: usize, between: impl FnOnce()) {
        let (mut source, mut target) =
            (Plain::connect(self.nodes[from].address), Plain::connect(self.nodes[to].address));
        let (slot, port) = (slot.to_string(), self.nodes[to].address.port().to_string());
        assert_eq!(target.text(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.ids[from]]), "+OK\r\n");
        assert_eq!(source.text(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.ids[to]]), "+OK\r\n");
        let keys = source.text(&["CLUSTER", "GETKEYSINSLOT", &slot, "1000"]);
        for key in keys.lines().skip(1).filter(|line| !line.starts_with('$')) {
            assert_eq!(source.text(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]), "+OK\r\n");
        }
        between();
        for plain in [&mut target, &mut source] {
            assert_eq!(plain.text(&["CLUSTER", "SETSLOT", &slot, "NODE", &self.ids[to]]), "+OK\r\n");
        }
    }
}

fn end(proxy: proxy::Running) {
    proxy.drain(std::time::Duration::ZERO);
    proxy.join().unwrap();
}

#[test]
fn a_cluster_is_served_as_one_redis() {
    if !is_there("redis-server") {
        return;
    }
    let cluster = Cluster::start();
    let proxy = cluster.proxy();
    let mut plain = Plain::connect(address_of(&proxy));
    let keys: Vec<String> = (0..300).map(|number| format!("k{number}")).collect();
    let mut set = vec!["MSET"];
    keys.iter().for_each(|key| set.extend([key.as_str(), key.as_str()]));
    assert_eq!(plain.text(&set), "+OK\r\n");
    let mut get = vec!["MGET"];
    keys.iter().rev().for_each(|key| get.push(key));
    let expected: String = keys.iter().rev().map(|key| format!("${}\r\n{key}\r\n", key.len())).collect();
    assert_eq!(plain.text(&get), format!("*300\r\n{expected}"));
    assert_eq!(plain.text(&["DBSIZE"]), ":300\r\n");
    for key in &keys {
        assert_eq!(plain.text(&["GET", key]), format!("${}\r\n{key}\r\n", key.len()));
    }
    for node in &cluster.nodes {
        assert_ne!(Plain::connect(node.address).text(&["DBSIZE"]), ":0\r\n");
    }
    end(proxy);
}

#[test]
fn a_slot_that_moves_is_followed() {
    if !is_there("redis-server") {
        return;
    }
    let cluster = Cluster::start();
    let proxy = cluster.proxy();
    let mut plain = Plain::connect(address_of(&proxy));
    let slot = slot_of(b"{t}");
    let from = usize::from(slot / 5462);
    assert_eq!(plain.text(&["MSET", "{t}1", "a", "{t}2", "b"]), "+OK\r\n");
    cluster.move_slot(slot, from, (from + 1) % 3, || {
        // ASK: the slot is still the first node's, its keys are with the second.
        assert_eq!(plain.text(&["GET", "{t}1"]), "$1\r\na\r\n");
        assert_eq!(plain.text(&["SET", "{t}3", "c"]), "+OK\r\n");
        plain.write(b"get {t}1\r\nget {t}2\r\nget other\r\nget {t}3\r\n");
        let replies: Vec<u8> = (0..4).flat_map(|_| plain.next_reply()).collect();
        assert_eq!(replies, b"$1\r\na\r\n$1\r\nb\r\n$-1\r\n$1\r\nc\r\n");
    });
    // MOVED, and then the table is right again.
    plain.write(b"get {t}1\r\nmget {t}1 {t}2 x y z\r\nget {t}3\r\n");
    assert_eq!(plain.next_reply(), b"$1\r\na\r\n");
    assert_eq!(plain.next_reply(), b"*5\r\n$1\r\na\r\n$1\r\nb\r\n$-1\r\n$-1\r\n$-1\r\n");
    assert_eq!(plain.next_reply(), b"$1\r\nc\r\n");
    let name = |node: usize| cluster.nodes[node].address.to_string();
    let errors = |node: usize| {
        let at = proxy.counters()[0].node_names().iter().position(|known| *known == name(node)).unwrap();
        proxy.counters()[0].nodes[at].requests.errors.get()
    };
    let before = errors(from);
    for _ in 0..20 {
        assert_eq!(plain.text(&["GET", "{t}2"]), "$1\r\nb\r\n");
    }
    assert_eq!(errors(from), before);
    end(proxy);
}

#[test]
fn the_first_node_is_not_needed_once_the_others_are_known() {
    if !is_there("redis-server") {
        return;
    }
    let mut cluster = Cluster::start();
    let proxy = cluster.proxy();
    let mut plain = Plain::connect(address_of(&proxy));
    let keys: Vec<String> = (0..30).map(|number| format!("k{number}")).collect();
    for key in &keys {
        assert_eq!(plain.text(&["SET", key, "v"]), "+OK\r\n");
    }
    // The seed is not needed any more.
    cluster.nodes.remove(0).kill();
    for key in keys.iter().filter(|key| slot_of(key.as_bytes()) > 5460) {
        assert_eq!(plain.text(&["GET", key]), "$1\r\nv\r\n");
    }
    let lost = keys.iter().find(|key| slot_of(key.as_bytes()) <= 5460).unwrap();
    eventually("its keys fail", || plain.text(&["GET", lost]).starts_with('-'));
    end(proxy);
}
