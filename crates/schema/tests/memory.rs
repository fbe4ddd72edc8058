//! The check of any document by any schema takes a bounded amount of memory.
#![allow(unsafe_code, reason = "a counting allocator is an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use schema::Schema;

use crate::hostile_schemas;

/// The system's allocator, which counts the bytes of each thread.
struct Counting;

thread_local! {
    /// Bytes that this thread has allocated and not freed.
    static BYTES: Cell<i64> = const { Cell::new(0) };
    /// Their peak since this was reset.
    static BYTES_MOST: Cell<i64> = const { Cell::new(0) };
}

// SAFETY: every call is forwarded to the system's allocator; the counters are thread-locals without destructors.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.set(BYTES.get() + layout.size() as i64);
        BYTES_MOST.set(BYTES_MOST.get().max(BYTES.get()));
        // SAFETY: the caller's duty is passed on unchanged.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES.set(BYTES.get() - layout.size() as i64);
        // SAFETY: the caller's duty is passed on unchanged.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The peak of allocated bytes during `work`.
fn bytes_most(work: impl FnOnce()) -> i64 {
    let before = BYTES.get();
    BYTES_MOST.set(before);
    work();
    BYTES_MOST.get() - before
}

#[test]
fn a_check_by_any_schema_takes_a_bounded_part_of_what_the_document_has() {
    for bytes in [16 << 10, 60 << 10, 500 << 10] {
        let documents: Vec<_> = hostile_schemas::documents(bytes)
            .into_iter()
            .map(|(name, text)| (name, hostile_schemas::stored(&text)))
            .collect();
        for (of_schema, schema) in hostile_schemas::schemas() {
            let schema = Schema::compile_full(&schema.to_string()).unwrap();
            for (of_document, stored) in &documents {
                let took = bytes_most(|| drop(hostile_schemas::check(&schema, stored)));
                // The checker's memory limit and the caches of patterns.
                let most = (4 << 20) + 10 * stored.len() as i64;
                assert!(took <= most, "{of_schema}, {of_document}: {took} bytes of {most}");
            }
        }
    }
}
