//! In steady state neither encoding nor reading allocates.

#![allow(unsafe_code)] // An allocator that counts is an unsafe trait; it hands every call on unchanged.
#![allow(clippy::unwrap_used)] // A test that unwraps an error has failed, which is what it is for.

use binjson::{Encoder, FieldCache, FieldName, StoredDocument};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is forwarded to the system's allocator; the counter does not touch the allocated memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: `place` came from `alloc` above, which is the system's.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.with(Cell::get);
    work();
    ALLOCATIONS.with(Cell::get) - before
}

/// A text with nested tables, escapes, whitespace, and more fields than are compared pairwise for duplicates.
fn text() -> String {
    let fields: Vec<_> = (0..300).map(|i| format!("\"field {i}\" : \"\\u0416 {i}\"")).collect();
    format!(
        "{{ \"list\":[{}], \"inner\":{{{}}}, {} }}",
        "1234567,".repeat(200) + "1",
        fields[..70].join(","),
        fields.join(" , ")
    )
}

#[test]
fn a_kept_encoder_allocates_nothing() {
    let (text, mut encoder, mut out) = (text(), Encoder::new(), Vec::new());
    encoder.encode(text.as_bytes(), &mut out).unwrap();
    let counted = allocations(|| {
        for _ in 0..10 {
            out.clear();
            encoder.encode(text.as_bytes(), &mut out).unwrap();
        }
    });
    assert_eq!(counted, 0);
    assert!(allocations(|| drop(std::hint::black_box(Box::new(1)))) > 0, "the counter counts");
}

#[test]
fn reading_allocates_nothing() {
    let (mut out, mut cache, name) = (Vec::new(), FieldCache::default(), FieldName::new("field 299"));
    binjson::encode(text().as_bytes(), &mut out).unwrap();
    let counted = allocations(|| {
        let document = StoredDocument::from_bytes(&out).unwrap();
        assert!(document.field("field 7").unwrap().as_str().is_some());
        assert!(document.field_cached("field 8", &mut cache).is_some());
        assert!(document.field_named(&name, &mut cache).is_some());
        assert!(document.field("inner").unwrap().field("field 60").is_some());
        assert_eq!(document.field("list").unwrap().element(150).unwrap().as_i64(), Some(1_234_567));
        assert_eq!(document.fields().count(), 302);
    });
    assert_eq!(counted, 0);
}
