//! A GET of a document allocates nothing in steady state, from the socket through HTTP, router, documents and store back to
//! the socket: on no thread of the server.

mod harness;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use harness::{Client, TestServer};

/// Counts the allocations of all threads but the test's own.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_CLIENT: Cell<bool> = const { Cell::new(false) };
}

#[allow(unsafe_code, reason = "a global allocator cannot be written without")]
// SAFETY: every call goes to the system's allocator unchanged; counting touches no memory of the block.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends may allocate after its cells are gone.
        if !IS_CLIENT.try_with(Cell::get).unwrap_or(true) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ENDPOINTS: &str = "[[endpoints]]\nroute = \"GET /items/{id}\"\nget = \"items/{id}\"\n";

/// Allocations of the server while it answers so many requests.
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
    IS_CLIENT.set(true);
    let server = TestServer::start("", ENDPOINTS);
    server.put_items(1..20);
    let mut client = server.connect();
    for target in ["/items/7", "/_/collections/items/7"] {
        // The store's own threads allocate now and then (segments of the log are prepared): they leave some rounds alone,
        // while a request that allocated would do so in each.
        let fewest = (0..20).map(|_| allocations_of(&mut client, target, 100)).min();
        assert_eq!(fewest, Some(0), "{target}");
    }
    assert!(allocations_of(&mut client, "/_/metrics", 5) >= 5, "the counter counts");
}
