//! A GET of a document allocates nothing in steady state.
#![allow(clippy::unwrap_used, reason = "these are tests")]
#![allow(unsafe_code, reason = "a counting allocator is an allocator")]

mod service;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use docs::key::KeyType;
use service::{Service, travels, user, visit};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator; the count touches a thread-local without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's duty is passed on unchanged.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's duty is passed on unchanged.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

#[test]
fn a_document_is_read_without_allocation_from_the_memtable_and_from_the_tree() {
    let service = Service::new(&travels());
    for id in 0..500 {
        service.run(&format!("insert users {}", user(id, &format!("{id}@x")))).unwrap();
    }
    let users = service.id("users");
    let session = service.database.session().unwrap();
    let read = || {
        let mut bytes = 0;
        for id in 0..600u32 {
            let mut path = [0u8; 10];
            let mut left = id;
            let mut at = path.len();
            while at == path.len() || left > 0 {
                at -= 1;
                path[at] = b'0' + (left % 10) as u8;
                left /= 10;
            }
            let key = KeyType::U32.of_text(std::str::from_utf8(&path[at..]).unwrap()).unwrap();
            let now = session.now();
            if let Some(stored) = now.get(users, &key).unwrap() {
                bytes += stored.text().unwrap().len() + stored.change_number().unwrap().min(1) as usize;
            }
        }
        assert!(bytes > 500 * 50);
    };
    read();
    assert_eq!(allocations(read), 0, "from the memtable");
    service.database.store().checkpoint().unwrap();
    read();
    assert_eq!(allocations(read), 0, "from the tree");
    service.run(r#"insert locations {"id":1}"#).unwrap();
    assert!(allocations(|| drop(service.run(&format!("insert visits {}", visit(1, 1, 1, 1))))) > 0, "the count counts");
}
