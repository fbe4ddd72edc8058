//! In steady state a loop allocates nothing: not for requests, pipelined or not, nor for timers that are pushed out.
#![allow(clippy::unwrap_used, unsafe_code)] // a counting allocator implements an unsafe trait

mod harness;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use harness::{Lines, Making, exchange, loops};
use reactor::{Io, Protocol, Reactor};

thread_local! {
    /// Set on the loops' threads: what the clients allocate does not count.
    static COUNTED: Cell<bool> = const { Cell::new(false) };
}
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches no memory of it, and a
// thread-local of a plain bool with a constant initialiser neither allocates nor has a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTED.get() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// `Lines` with a deadline for each request.
struct Timed(Lines);

impl Protocol for Timed {
    fn input(&mut self, io: &mut Io<'_>) {
        io.set_timer(Some(Duration::from_secs(5)));
        self.0.input(io);
        io.set_timer(Some(Duration::from_secs(60)));
    }
}

#[track_caller]
fn check_no_allocation(request: &[u8], reply: &[u8], pieces: usize) {
    let mut reactor = Reactor::new(loops(1)).unwrap();
    let address = reactor.listen(harness::any_port(), Making::each(|_, _| Box::new(Timed(Lines)))).unwrap();
    reactor.on_start(|_| COUNTED.set(true));
    let running = reactor.start().unwrap();
    let mut streams: Vec<_> = (0..10).map(|_| harness::connect(address)).collect();
    let mut round = || {
        for stream in &mut streams {
            let (first, last) = request.split_at(request.len() / pieces);
            if pieces > 1 {
                exchange(stream, first, b"");
                std::thread::sleep(Duration::from_millis(1));
                exchange(stream, last, reply);
            } else {
                exchange(stream, request, reply);
            }
        }
    };
    (0..5).for_each(|_| round());
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    (0..20).for_each(|_| round());
    assert_eq!(ALLOCATIONS.load(Ordering::SeqCst) - before, 0, "allocations in 200 exchanges");
    running.drain(Duration::ZERO);
    running.join().unwrap();
}

/// One after another: the count is the whole process's.
#[test]
fn requests_allocate_nothing() {
    check_no_allocation(b"request\n", b">request\n", 1);
    let (pipelined, replies) = (b"request\n".repeat(200), b">request\n".repeat(200));
    check_no_allocation(&pipelined, &replies, 1);
    check_no_allocation(b"in two pieces\n", b">in two pieces\n", 2);
}
