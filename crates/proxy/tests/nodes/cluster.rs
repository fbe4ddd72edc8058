//! Clusters that tests start: three masters, each with a replica if requested.

use proxy::config::{ProxyConfig, Spread};

use super::{Plain, Program, eventually, free_port, start_proxy};

/// Ranges of slots of the masters.
const RANGES: [[&str; 2]; 3] = [["0", "5460"], ["5461", "10922"], ["10923", "16383"]];
const MASTERS: usize = RANGES.len();

/// The masters, followed by their replicas in the same order.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Program>,
    pub(crate) ids: Vec<String>,
    _folder: tempfile::TempDir,
}

impl Cluster {
    /// Starts a cluster with this number of replicas: of the first masters, at most one for each.
    pub(crate) fn start(replicas: usize) -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let (mut nodes, mut buses) = (Vec::new(), Vec::new());
        for _ in 0..MASTERS + replicas {
            let (port, bus) = (free_port(), free_port());
            let dir = folder.path().join(port.to_string());
            std::fs::create_dir(&dir).unwrap();
            let mut command = super::command("redis-server");
            command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--cluster-enabled", "yes"]);
            command.args(["--cluster-require-full-coverage", "no", "--cluster-node-timeout", "1000"]);
            // A replica's copy begins at once, instead of waiting five seconds for further replicas.
            command.args(["--repl-diskless-sync-delay", "0"]);
            command.args(["--port", &port.to_string(), "--cluster-port", &bus.to_string(), "--dir"]).arg(&dir);
            nodes.push(Program::start(&mut command, port));
            buses.push(bus);
        }
        let mut plains: Vec<Plain> = nodes.iter().map(|node| Plain::connect(node.address)).collect();
        for (plain, range) in plains.iter_mut().zip(RANGES) {
            assert_eq!(plain.text(&["CLUSTER", "ADDSLOTSRANGE", range[0], range[1]]), "+OK\r\n");
        }
        for (node, bus) in nodes.iter().zip(&buses).skip(1) {
            let (port, bus) = (node.address.port().to_string(), bus.to_string());
            assert_eq!(plains[0].text(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]), "+OK\r\n");
        }
        let known = format!("cluster_known_nodes:{}", nodes.len());
        for plain in &mut plains {
            eventually("the cluster is up", || {
                let info = plain.text(&["CLUSTER", "INFO"]);
                info.contains("cluster_state:ok") && info.contains(&known)
            });
        }
        let id = |plain: &mut Plain| plain.text(&["CLUSTER", "MYID"]).lines().nth(1).unwrap().to_owned();
        let ids: Vec<String> = plains.iter_mut().map(id).collect();
        for (replica, master) in plains.iter_mut().skip(MASTERS).zip(&ids) {
            assert_eq!(replica.text(&["CLUSTER", "REPLICATE", master]), "+OK\r\n");
            eventually("the replica follows", || {
                replica.text(&["INFO", "replication"]).contains("master_link_status:up")
            });
        }
        // A proxy reads the table from each node that it connects to, so all of them must know the replicas.
        let all = &nodes[MASTERS..];
        for plain in &mut plains {
            eventually("the replicas are told of", || {
                let slots = plain.text(&["CLUSTER", "SLOTS"]);
                all.iter().all(|node| slots.contains(&format!(":{}\r\n", node.address.port())))
            });
        }
        Cluster { nodes, ids, _folder: folder }
    }

    /// A proxy that knows the first master, with a configuration that `change` may adapt.
    pub(crate) fn proxy(&self, change: impl FnOnce(&mut ProxyConfig)) -> proxy::RunningProxy {
        start_proxy(&[self.nodes[0].address], |config| {
            config.spread = Spread::Slots;
            change(config);
        })
    }

    /// Moves a slot as `redis-cli --cluster reshard` does; `between` is called during the migration.
    pub(crate) fn move_slot(&self, slot: u16, from: usize, to: usize, between: impl FnOnce()) {
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
