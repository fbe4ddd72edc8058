//! Placement, compared with the programs that define it: Python's zlib and nutcracker.

use std::collections::HashMap;
use std::io::Write;
use std::process::{Command, Stdio};

use proxy::placement::{Distribution, Hash, Ketama, Placement, RingServer};

use crate::nodes::{self, PORTS_TRIED, Plain, Program, free_port, is_there};

/// Keys that test tags and hash functions: braces at all positions, bytes above 0x7f, all short lengths.
fn keys(prefix: &str, count: usize) -> Vec<Vec<u8>> {
    let key = |number: usize| {
        let mut key = match number % 8 {
            0 => format!("{prefix}{number}{{tag{}}}", number % 100),
            1 => format!("{prefix}{{tag{}}}{number}", number % 100),
            2 => format!("{prefix}{number}{{}}"),
            3 => format!("{prefix}{number}}}{{"),
            4 => format!("{prefix}{{{{{number}}}}}"),
            5 => format!("{prefix}ключ{number}"),
            _ => format!("{prefix}{number}"),
        };
        key.extend(std::iter::repeat_n('x', number % 13));
        let mut key = key.into_bytes();
        if number % 8 == 7 {
            key.push(0x80 | number as u8);
        }
        key
    };
    (0..count).map(key).collect()
}

#[test]
fn a_hundred_thousand_keys_are_where_pythons_crc_32_puts_them() {
    if !is_there("python3") {
        return;
    }
    const SCRIPT: &str = r"
import sys, zlib
for line in sys.stdin:
    key = bytes.fromhex(line.strip())
    tag = key
    if key.endswith(b'}'):
        start = key[:-1].rfind(b'{')
        if start >= 0 and start + 1 < len(key) - 1:
            tag = key[start + 1:-1]
    print(zlib.crc32(tag) % 7)
";
    let keys = keys("k", 100_000);
    let mut python = Command::new("python3")
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 starts");
    let mut input = python.stdin.take().unwrap();
    let hex = |key: &Vec<u8>| key.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n";
    let lines: String = keys.iter().map(hex).collect();
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()).unwrap());
    let output = python.wait_with_output().unwrap();
    writer.join().unwrap();
    let nodes: Vec<usize> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(nodes.len(), keys.len());
    let placement = Placement::Crc32 { nodes: 7, hash_tag: None };
    for (key, node) in keys.iter().zip(nodes) {
        assert_eq!(placement.node(key, 0), node, "{}", String::from_utf8_lossy(key));
    }
}

/// One pool of nutcracker's configuration, and the equivalent placement of the proxy.
struct Pool {
    name: String,
    port: u16,
    hash: (&'static str, Hash),
    distribution: &'static str,
    hash_tag: Option<[u8; 2]>,
    weights: [u32; 4],
    /// The names of the nodes; without them, their addresses.
    names: Option<[&'static str; 4]>,
    keys: usize,
}

impl Pool {
    fn yaml(&self, nodes: &[Program]) -> String {
        let servers = nodes.iter().zip(self.weights).enumerate().map(|(place, (node, weight))| {
            let name = self.names.map_or(String::new(), |names| format!(" {}", names[place]));
            format!("   - {}:{weight}{name}\n", node.address)
        });
        let tag =
            self.hash_tag.map_or(String::new(), |tag| format!("  hash_tag: \"{}\"\n", String::from_utf8_lossy(&tag)));
        format!(
            "{}:\n  listen: 127.0.0.1:{}\n  hash: {}\n  distribution: {}\n  redis: true\n{tag}  servers:\n{}",
            self.name,
            self.port,
            self.hash.0,
            self.distribution,
            servers.collect::<String>()
        )
    }

    fn placement(&self, nodes: &[Program]) -> Placement {
        let server = |(place, (node, weight)): (usize, (&Program, u32))| {
            let name = self.names.map_or_else(|| node.address.to_string(), |names| names[place].to_owned());
            RingServer { name, weight }
        };
        let servers: Vec<RingServer> = nodes.iter().zip(self.weights).enumerate().map(server).collect();
        let distribution = match self.distribution {
            "ketama" => Distribution::Ketama(Ketama::new(&servers, |_| true)),
            _ => Distribution::modula(&servers, |_| true),
        };
        Placement::Twemproxy { hash: self.hash.1, distribution, hash_tag: self.hash_tag }
    }
}

/// A pool for each hash function, and for weights, names, a point of two servers, tags and modula; the default pool places 100,000 keys.
fn pools() -> Vec<Pool> {
    let plain = |(number, hash): (usize, (&'static str, Hash))| Pool {
        name: format!("p{number}"),
        port: free_port(),
        hash,
        distribution: "ketama",
        hash_tag: None,
        weights: [1; 4],
        names: None,
        keys: if hash.1 == Hash::default() { 100_000 } else { 3_000 },
    };
    let mut pools: Vec<Pool> = Hash::ALL.into_iter().enumerate().map(plain).collect();
    let other = |name: &str| Pool { name: name.to_owned(), ..plain((0, ("fnv1a_64", Hash::Fnv1a64))) };
    let few = |pool: Pool| Pool { keys: 5_000, ..pool };
    let names = Some(["node0", "node1", "node2", "node3"]);
    pools.push(few(Pool { weights: [1, 2, 3, 10], names, ..other("weights") }));
    // The first two share a point, 3,981,783,476, to which one key of 84 belongs.
    let names = Some(["node37038", "node32838", "node0", "node1"]);
    pools.push(few(Pool { names, ..other("shared-point") }));
    pools.push(few(Pool { hash_tag: Some(*b"{}"), ..other("tags") }));
    pools.push(few(Pool { hash_tag: Some(*b"xx"), distribution: "modula", weights: [3, 1, 1, 2], ..other("modula") }));
    pools
}

#[test]
fn a_tag_may_be_anywhere_in_a_key_if_that_is_configured() {
    let [at_end, anywhere] = [None, Some(*b"{}")].map(|hash_tag| Placement::Crc32 { nodes: 7, hash_tag });
    for number in 0..1000 {
        let tag = format!("queue{number}");
        let node = anywhere.node(tag.as_bytes(), 0);
        for key in [format!("bull:{{{tag}}}:wait"), format!("{{{tag}}}"), format!("a{{{tag}}}b{{c}}")] {
            assert_eq!(anywhere.node(key.as_bytes(), 0), node, "{key}");
        }
        // Both agree where the only tag is at the end, or there is none.
        for key in [format!("list{{{tag}}}"), tag] {
            assert_eq!(anywhere.node(key.as_bytes(), 0), at_end.node(key.as_bytes(), 0), "{key}");
        }
    }
}

#[test]
fn keys_are_where_nutcracker_puts_them_by_every_hash_function_and_distribution() {
    if !is_there("redis-server") || !is_there("nutcracker") {
        return;
    }
    let nodes: Vec<Program> = (0..4).map(|_| Program::redis()).collect();
    // The test needs many free ports at once; another test may have taken one of them meanwhile.
    let started = std::iter::repeat_with(|| start_nutcracker(&nodes)).take(PORTS_TRIED).find_map(|started| started);
    let (pools, _nutcracker) = started.expect("ports that nobody else takes");
    for pool in &pools {
        check(pool, &nodes);
    }
}

/// All pools in one nutcracker. None if it does not start.
fn start_nutcracker(nodes: &[Program]) -> Option<(Vec<Pool>, Program)> {
    let pools = pools();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nutcracker.yml");
    std::fs::write(&file, pools.iter().map(|pool| pool.yaml(nodes)).collect::<String>()).unwrap();
    let (log, stats) = (folder.path().join("log"), free_port().to_string());
    let mut command = nodes::command("nutcracker");
    command.arg("-c").arg(&file).arg("-o").arg(&log).args(["-s", &stats, "-a", "127.0.0.1"]);
    Program::try_start(&mut command, pools[0].port).map(|nutcracker| (pools, nutcracker))
}

fn check(pool: &Pool, nodes: &[Program]) {
    let keys = keys(&format!("{}:", pool.name), pool.keys);
    let mut through = Plain::connect(([127, 0, 0, 1], pool.port).into());
    for some in keys.chunks(500) {
        let commands: Vec<[&[u8]; 3]> = some.iter().map(|key| [b"SET".as_slice(), key, b"1"]).collect();
        through.send(commands.iter().map(<[_; 3]>::as_slice));
        some.iter().for_each(|_| assert_eq!(through.line(), "+OK"));
    }
    let mut places = HashMap::new();
    for (place, node) in nodes.iter().enumerate() {
        let mut direct = Plain::connect(node.address);
        direct.send([[b"KEYS".as_slice(), format!("{}:*", pool.name).as_bytes()].as_slice()]);
        places.extend(direct.texts().into_iter().map(|key| (key, place)));
    }
    let placement = pool.placement(nodes);
    for key in &keys {
        assert_eq!(Some(&placement.node(key, 0)), places.get(key), "{}: {}", pool.name, String::from_utf8_lossy(key));
    }
}
