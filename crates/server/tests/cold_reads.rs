//! Data that is not in memory: reads that would wait for the disk leave their loop, and are answered correctly and in order.

use crate::harness::{COLLECTIONS, Client};
use server::RunningServer;
use server::config::ServiceConfig;
use std::path::Path;
use std::time::{Duration, Instant};

const ENDPOINTS: &str = r#"
[[endpoints]]
route = "GET /items/{id}"
get = "items/{id}"

[[endpoints]]
route = "GET /items/{id}/price"
require = "items/{id}"
params = { least = { type = "integer", default = 0 } }
query = "SELECT price FROM items WHERE id = :id AND price >= :least"
"#;

const ITEMS: u32 = 40_000;
const NOTE_BYTES: usize = 700;

/// So little memory that most of the data does not stay in memtables.
fn start(folder: &Path) -> RunningServer {
    let path = folder.join("service.toml");
    std::fs::write(
        &path,
        format!("{COLLECTIONS}\n[server]\nhttp = \"127.0.0.1:0\"\nthreads = 1\nmemory = \"256MiB\"\n{ENDPOINTS}"),
    )
    .unwrap();
    let mut config = ServiceConfig::load(&path, &[]).unwrap();
    // As if the data were larger than memory: otherwise the kernel reads most of this small file at the first access.
    config.server.read_ahead = Some(false);
    server::start(&config, &folder.join("data")).unwrap()
}

fn stop(running: RunningServer) {
    running.drain();
    running.join().unwrap();
}

fn connect(running: &RunningServer) -> Client {
    Client::new(running.address())
}

fn fill(running: &RunningServer) {
    let note = "n".repeat(NOTE_BYTES);
    let mut client = connect(running);
    for start in (0..ITEMS).step_by(1000) {
        let line = |id: u32| format!("{{\"id\":{id},\"group\":\"g\",\"price\":{},\"note\":\"{note}\"}}\n", id * 10);
        let lines: String = (start..start + 1000).map(line).collect();
        client.send("POST", "/_/collections/items/bulk", "", lines.as_bytes());
        assert_eq!(client.answer(false).status, 200);
    }
}

/// Drops the file's pages from the page cache. No process maps it at this moment, so all of them can be dropped.
fn forget(path: &Path) {
    let status = std::process::Command::new("dd")
        .args(["if=/dev/null", "oflag=nocache", "conv=notrunc,fdatasync", "count=0", "status=none"])
        .arg(format!("of={}", path.display()))
        .status();
    assert!(status.is_ok_and(|status| status.success()), "dd drops the cache of a file");
}

fn metric(client: &mut Client, name: &str) -> f64 {
    client.send("GET", "/_/metrics", "", b"");
    let answer = client.answer(false);
    let line = answer.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned));
    line.unwrap_or_else(|| panic!("no metric {name}")).parse().unwrap()
}

/// Requests items all over the file, sixteen at a time on one connection: each answer is correct and in order.
fn check_reads(client: &mut Client, seed: u32) {
    let key = |number: u32| number.wrapping_add(seed).wrapping_mul(2_654_435_761) % (ITEMS + 100);
    for batch in 0..40 {
        let numbers = || (batch * 16..batch * 16 + 16).map(key);
        for id in numbers() {
            let target = match id % 3 {
                0 => format!("/items/{id}"),
                1 => format!("/items/{id}/price"),
                _ => format!("/items/{id}/price?least=none"),
            };
            client.send("GET", &target, "", b"");
        }
        for id in numbers() {
            let answer = client.answer(false);
            match id % 3 {
                _ if id >= ITEMS => assert_eq!(answer.status, 404, "{id}"),
                0 => assert_eq!((answer.status, answer.json()["id"].as_u64()), (200, Some(id.into())), "{id}"),
                1 => assert_eq!((answer.status, answer.json()[0]["price"].as_u64()), (200, Some(u64::from(id) * 10))),
                _ => assert_eq!(answer.status, 400, "{id}"),
            }
        }
    }
}

/// The same for the general API: documents with their tags, and lists, whose leaves are all over the file.
fn check_general(client: &mut Client, seed: u32) {
    let key = |number: u32| number.wrapping_add(seed).wrapping_mul(2_654_435_761) % (ITEMS + 100);
    for batch in 0..40 {
        let numbers = || (batch * 16..batch * 16 + 16).map(key);
        for id in numbers() {
            let target = match id % 2 {
                0 => format!("/_/collections/items/{id}"),
                _ => format!("/_/collections/items?after={id}&limit=30"),
            };
            client.send("GET", &target, "", b"");
        }
        for id in numbers() {
            let answer = client.answer(false);
            if id % 2 == 1 {
                let ids = || (id + 1..ITEMS.max(id + 1)).take(30).map(u64::from);
                let page = answer.json();
                let found: Vec<_> = page["items"].as_array().unwrap().iter().map(|item| item["id"].as_u64()).collect();
                assert_eq!(found, ids().map(Some).collect::<Vec<_>>(), "behind {id}");
                assert_eq!(page["after"].as_u64(), ids().nth(29), "behind {id}");
            } else if id >= ITEMS {
                assert_eq!(answer.status, 404, "{id}");
            } else {
                assert_eq!((answer.status, answer.json()["id"].as_u64()), (200, Some(id.into())), "{id}");
                assert!(answer.field("ETag").is_some(), "{id}");
            }
        }
    }
}

#[test]
fn reads_that_would_wait_leave_their_loop_and_are_answered_right_and_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(folder.path());
    fill(&running);
    // Until no part of it is only in a memtable.
    let mut client = connect(&running);
    // All of it is in memory. Right after the writes a few reads may still leave their loops on a busy machine; after a while
    // none does.
    let (begun, mut before) = (Instant::now(), -1.0);
    while metric(&mut client, "sapsan_cold_reads_total") > before {
        assert!(begun.elapsed() < Duration::from_secs(60), "reads of what is in memory leave their loop");
        before = metric(&mut client, "sapsan_cold_reads_total");
        check_reads(&mut client, 0);
        check_general(&mut client, 0);
    }
    drop(client);
    stop(running);
    // A start replays the log; data that is in the tree by then is read from the disk.
    let tree = folder.path().join("data/tree");
    if std::fs::metadata(&tree).unwrap().len() < u64::from(ITEMS / 4) * NOTE_BYTES as u64 {
        panic!("the data is still in the log: there is nothing to be read from the disk");
    }
    let cold = [check_reads, check_general].map(|check: fn(&mut Client, u32)| {
        forget(&tree);
        let running = start(folder.path());
        let mut client = connect(&running);
        (0..4).for_each(|seed| check(&mut client, seed * 1_000_003));
        let cold = metric(&mut client, "sapsan_cold_reads_total");
        let direct = metric(&mut client, "sapsan_cold_reads_direct_total");
        drop(client);
        stop(running);
        assert!(direct < cold, "lists, queries, and what is asked for again are read by threads: {direct} of {cold}");
        if has_direct_reads(folder.path()) {
            assert!(direct > 0.0, "no document was read past the page cache");
        }
        cold
    });
    if is_in_memory(folder.path()) {
        // Not captured by libtest, which hides the output of passing tests: `cargo xtask test` counts this line.
        let line = "\nSKIPPED: the temporary folder lies in memory, where no read waits\n";
        std::io::Write::write_all(&mut std::io::stdout(), line.as_bytes()).expect("a standard output");
        return;
    }
    assert!(cold.iter().all(|&cold| cold > 0.0), "no read left its loop: {cold:?}");
}

#[test]
fn cold_reads_do_not_wait_behind_long_queries() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(folder.path());
    fill(&running);
    stop(running);
    forget(&folder.path().join("data/tree"));
    let running = start(folder.path());
    let mut client = connect(&running);
    // Two run, 64 wait, and the rest is refused. Each scans as many rows as a query may.
    let sql = "SELECT COUNT(*) AS n FROM items a JOIN items b ON a.price <> b.price";
    let body = format!("{{\"sql\":\"{sql}\"}}");
    let queries: Vec<Client> = (0..70)
        .map(|_| {
            let mut client = connect(&running);
            client.send("POST", "/_/query", "", body.as_bytes());
            client
        })
        .collect();
    while metric(&mut client, "sapsan_pool_refused_total") == 0.0 {
        std::thread::yield_now();
    }
    (0..2).for_each(|seed| check_reads(&mut client, seed * 1_000_003));
    assert!(metric(&mut client, "sapsan_pool_queued") > 0.0, "no query waits any more: nothing was shown");
    assert_eq!(metric(&mut client, "sapsan_cold_reads_refused_total"), 0.0);
    let cold = metric(&mut client, "sapsan_cold_reads_total");
    assert!(cold > 0.0 || is_in_memory(folder.path()), "no read left its loop");
    drop((queries, client));
    stop(running);
}

/// The checksum of a value is computed when it is first read. For a long value that takes longer than a loop may be blocked.
#[test]
fn the_first_read_of_a_long_document_leaves_its_loop_and_the_next_does_not() {
    ["pool", "io-aware", "work-stealing"].into_iter().for_each(check_long_documents);
}

fn check_long_documents(cold_model: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("service.toml");
    let server = "http = \"127.0.0.1:0\"\nthreads = 1\nmemory = \"1GiB\"\nbody_bytes_max = \"8MiB\"";
    let model = format!("cold_model = \"{cold_model}\"");
    std::fs::write(&path, format!("{COLLECTIONS}\n[server]\n{server}\n{model}\n{ENDPOINTS}")).unwrap();
    let config = ServiceConfig::load(&path, &[]).unwrap();
    let data = folder.path().join("data");
    let body = |id: u32| format!("{{\"id\":{id},\"group\":\"g\",\"price\":1,\"note\":\"{}\"}}", "n".repeat(6 << 20));
    let running = server::start(&config, &data).unwrap();
    let mut client = connect(&running);
    // The start may read the first and the last.
    for id in 0..5 {
        client.send("PUT", &format!("/_/collections/items/{id}"), "", body(id).as_bytes());
        let answer = client.answer(false);
        assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
    }
    drop(client);
    stop(running);
    let (store, _) = docs::engine::Store::open(&data, docs::engine::StoreOptions::default()).unwrap();
    store.checkpoint().unwrap();
    drop(store);
    let running = server::start(&config, &data).unwrap();
    let mut client = connect(&running);
    let is_right = |client: &mut Client, target: String, id: u32| {
        client.send("GET", &target, "", b"");
        let answer = client.answer(false);
        assert_eq!(answer.status, 200);
        assert!(answer.body == body(id).into_bytes(), "{target}");
    };
    for (id, collection) in [(1, "/_/collections/items"), (2, "/items")] {
        for _ in 0..2 {
            is_right(&mut client, format!("{collection}/{id}"), id);
            assert_eq!(metric(&mut client, "sapsan_cold_reads_total"), f64::from(id), "{collection}");
        }
    }
    client.send("GET", "/items/3/price", "", b"");
    let answer = client.answer(false);
    assert_eq!((answer.status, answer.json()[0]["price"].as_u64()), (200, Some(1)));
    assert_eq!(metric(&mut client, "sapsan_cold_reads_total"), 3.0);
    drop(client);
    stop(running);
}

/// Whether this system and this file system support reads past the page cache.
fn has_direct_reads(folder: &Path) -> bool {
    let mut options = docs::engine::StoreOptions::default();
    options.read_ahead = Some(false);
    let (store, _) = docs::engine::Store::open(&folder.join("data"), options).unwrap();
    !is_in_memory(folder) && store.direct_reads(4, 16 << 10).is_some()
}

/// Whether the file system has no disk under it.
fn is_in_memory(folder: &Path) -> bool {
    let output = std::process::Command::new("stat").args(["-f", "-c", "%T"]).arg(folder).output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == "tmpfs")
}
