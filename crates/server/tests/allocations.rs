//! A GET of a document allocates nothing in steady state, from the socket through HTTP, router, documents and store back to the
//! socket, on any thread of the server. And endpoints keep no more memory than is counted for them.
#![allow(clippy::unwrap_used, reason = "what is wrong fails the test")]

mod harness;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use harness::{COLLECTIONS, Client, TestServer};
use server::config::ServiceConfig;

/// Counts the allocations of all threads but the test's own.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// Bytes allocated by all threads.
static LIVE: AtomicI64 = AtomicI64::new(0);
/// The counters are the process's: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

thread_local! {
    static IS_CLIENT: Cell<bool> = const { Cell::new(false) };
}

#[allow(unsafe_code, reason = "a global allocator cannot be written without")]
// SAFETY: every call goes to the system's allocator unchanged; counting touches no memory of the block.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends may allocate after its thread-locals are gone.
        if !IS_CLIENT.try_with(Cell::get).unwrap_or(true) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        LIVE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ENDPOINTS: &str = "[[endpoints]]\nroute = \"GET /items/{id}\"\nget = \"items/{id}\"\n";

/// Allocations of the server while it answers this many requests.
fn allocations_of(client: &mut Client, target: &str, requests: usize) -> u64 {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..requests {
        client.send("GET", target, "", b"");
        assert_eq!(client.answer(false).status, 200, "{target}");
    }
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

#[test]
fn a_get_of_a_document_allocates_nothing_in_steady_state() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    IS_CLIENT.set(true);
    let server = TestServer::start("", ENDPOINTS);
    server.put_items(1..20);
    let mut client = server.connect();
    for target in ["/items/7", "/_/collections/items/7"] {
        // The store's own threads allocate now and then (when segments of the log are prepared): some rounds are free of that,
        // while an allocating request would show in each.
        let fewest = (0..20).map(|_| allocations_of(&mut client, target, 100)).min();
        assert_eq!(fewest, Some(0), "{target}");
    }
    assert!(allocations_of(&mut client, "/_/metrics", 5) >= 5, "the counter counts");
}

/// Endpoints of one kind, by their number.
type Kind = fn(usize) -> String;

const KINDS: [(&str, Kind); 9] = [
    ("get", |n| format!("route = \"GET /a{n}/{{id}}\"\nget = \"items/{{id}}\"\n")),
    ("insert", |n| format!("route = \"POST /a{n}\"\ninsert = \"items\"\nreply = \"{{}}\"\n")),
    ("one row", |n| format!("route = \"GET /a{n}/{{id}}\"\nquery = \"SELECT price FROM items WHERE id = :id\"\n")),
    ("parameters", |n| {
        let query =
            "SELECT price FROM items WHERE id = :id AND (:a IS NULL OR price > :a) AND (:b IS NULL OR price < :b)";
        let params = "{ a = \"integer\", b = { type = \"integer\", min = 0, max = 9 }, c = { type = \"string\", enum = [\"x\", \"yy\"] } }";
        format!("route = \"GET /a{n}/{{id}}\"\nquery = \"{query} AND (:c IS NULL OR note = :c)\"\nparams = {params}\n")
    }),
    ("join", |n| {
        let query = "SELECT a.price, COUNT(*) AS n, SUM(b.price + 1) AS s FROM items a JOIN items b ON a.price = b.price \
            WHERE a.id = :id GROUP BY a.price HAVING n > 1 ORDER BY s DESC LIMIT 10";
        format!("route = \"GET /a{n}/{{id}}\"\nquery = \"{query}\"\n")
    }),
    ("inner", |n| {
        let query = "SELECT *, (SELECT COUNT(*) FROM items b WHERE b.price > a.price) AS more FROM items a \
            WHERE a.id IN (SELECT id FROM items UNION SELECT price FROM items) AND EXISTS (SELECT * FROM items c WHERE c.id = :id)";
        format!("route = \"GET /a{n}/{{id}}\"\nquery = \"{query}\"\n")
    }),
    ("pages", |n| {
        format!(
            "route = \"GET /a{n}\"\nquery = \"SELECT * FROM items ORDER BY price, id\"\npage = {{ limit = 10, max = 50 }}\n"
        )
    }),
    ("long", |n| {
        let sum = vec!["id % 7 + 1"; 100].join(" OR price > ");
        format!("route = \"GET /a{n}\"\nquery = \"SELECT price FROM items WHERE {sum}\"\n")
    }),
    ("steps", |n| {
        let update = "{ sql = \"UPDATE items SET price = price + 1, note = :text WHERE id = :id RETURNING price\", expect = \"rows = 1\" }";
        let insert = "{ sql = \"INSERT INTO items (id, price, `group`) VALUES (:id + 1, 2, 'g')\" }";
        let body = "{ type = \"object\", properties = { text = { type = \"string\", maxLength = 9 } } }";
        format!("route = \"POST /a{n}/{{id}}\"\nbody = {body}\nsteps = [{update}, {insert}]\n")
    }),
];

fn file(memory: &str, count: usize, kind: Kind) -> String {
    let endpoints: String = (0..count).map(|n| format!("[[endpoints]]\n{}", kind(n))).collect();
    format!("{COLLECTIONS}{endpoints}\n[server]\n{}memory = \"{memory}\"\n", harness::SERVER)
}

/// Bytes that a server with this file keeps, and the bytes counted for its endpoints.
fn kept(text: &str) -> (i64, i64) {
    let counted = ServiceConfig::parse("service.toml".as_ref(), text.to_owned()).unwrap().server.declared_bytes();
    let before = LIVE.load(Ordering::Relaxed);
    let server = TestServer::of_file(text).unwrap();
    assert_eq!(server.get("/_/health").status, 200);
    (LIVE.load(Ordering::Relaxed) - before, counted as i64)
}

/// Tolerated difference between two servers: threads get buffers of a quarter of a megabyte sooner or later.
const NOISE_BYTES: i64 = 1 << 20;

#[test]
fn endpoints_keep_no_more_than_they_are_counted_as() {
    const COUNT: usize = 1_000;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Allocations that a process makes once.
    kept(&file("2GB", 1, KINDS[0].1));
    let mut wrong = Vec::new();
    for (name, kind) in KINDS {
        let (one, one_counted) = kept(&file("2GB", 1, kind));
        let (all, all_counted) = kept(&file("2GB", 1 + COUNT, kind));
        let (kept, counted) = (all - one, all_counted - one_counted);
        if kept > counted + NOISE_BYTES || counted > 3 * (kept + NOISE_BYTES) {
            wrong.push(format!("{name}: {kept} bytes are kept, {counted} counted"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn endpoints_that_the_memory_has_no_room_for_are_refused_with_what_would_do() {
    let (_, kind) = KINDS[8];
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mistakes = harness::mistakes(&file("64MB", 1_000, kind));
    assert!(mistakes.contains("the endpoints take ") && mistakes.contains("or memory = \""), "{mistakes}");
    let enough = mistakes.rsplit_once("memory = \"").unwrap().1.split('"').next().unwrap().to_owned();
    assert_eq!(harness::mistakes(&file(&enough, 1_000, kind)), "");
    // The memory beside the served endpoints has no room for so many more: these need a restart.
    let server = TestServer::of_file(&file("64MB", 10, kind)).unwrap();
    let refused = server.reload(&file("64MB", 200, kind));
    assert_eq!(refused.status, 409, "{}", refused.text());
    assert!(refused.text().contains("Restart"), "{}", refused.text());
    assert_eq!(server.reload(&file("64MB", 11, kind)).status, 200);
}
