//! In steady state a loop allocates nothing: not for requests, pipelined or not, nor for postponed timers.
#![allow(clippy::unwrap_used, unsafe_code)] // a counting allocator implements an unsafe trait

mod harness;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use harness::{Lines, Making, exchange, loops};
use reactor::{Io, Protocol, Reactor};

thread_local! {
    /// Set on the loops' threads: allocations of the clients do not count.
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

/// `Lines` of requests that take long.
struct Slow(Lines);

impl Protocol for Slow {
    fn input(&mut self, io: &mut Io<'_>) {
        let begun = std::time::Instant::now();
        while begun.elapsed() < Duration::from_micros(500) {
            std::hint::spin_loop();
        }
        self.0.input(io);
    }
}

/// Rounds are measured in blocks: lists first grow to the size that a round needs, which depends on how many connections one tick
/// meets, and then stay.
const BLOCKS_MAX: usize = 50;

/// Exchanges of some connections with `protocol` stop allocating on the loop.
#[track_caller]
fn check_rounds(
    connections: usize,
    protocol: impl Fn() -> Box<dyn Protocol> + Send + Sync + 'static,
    mut round: impl FnMut(&mut [std::net::TcpStream]),
) {
    let mut reactor = Reactor::new(loops(1)).unwrap();
    let address = reactor.listen(harness::any_port(), Making::each(move |_, _| protocol())).unwrap();
    reactor.on_start(|_| COUNTED.set(true));
    let running = reactor.start().unwrap();
    let mut streams: Vec<_> = (0..connections).map(|_| harness::connect(address)).collect();
    let mut block = || {
        let before = ALLOCATIONS.load(Ordering::SeqCst);
        (0..20).for_each(|_| round(&mut streams));
        ALLOCATIONS.load(Ordering::SeqCst) - before
    };
    let allocations: Vec<usize> = (0..BLOCKS_MAX).map(|_| block()).take_while(|allocations| *allocations > 0).collect();
    assert!(allocations.len() < BLOCKS_MAX, "allocations in blocks of 20 rounds: {allocations:?}");
    running.drain(Duration::ZERO);
    running.join().unwrap();
}

#[track_caller]
fn check_no_allocation(request: &[u8], reply: &[u8], pieces: usize) {
    let round = |streams: &mut [std::net::TcpStream]| {
        for stream in streams {
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
    check_rounds(10, || Box::new(Timed(Lines)), round);
}

/// Fifty connections want more than a tick allows: the loop sorts those that wait.
fn check_no_allocation_where_requests_wait() {
    let round = |streams: &mut [std::net::TcpStream]| {
        for stream in &mut *streams {
            stream.write_all(b"request\n").unwrap();
        }
        for stream in streams {
            exchange(stream, b"", b">request\n");
        }
    };
    check_rounds(50, || Box::new(Slow(Lines)), round);
}

/// One after another: the count is the whole process's.
#[test]
fn requests_allocate_nothing() {
    check_no_allocation(b"request\n", b">request\n", 1);
    let (pipelined, replies) = (b"request\n".repeat(200), b">request\n".repeat(200));
    check_no_allocation(&pipelined, &replies, 1);
    check_no_allocation(b"in two pieces\n", b">in two pieces\n", 2);
    check_no_allocation_where_requests_wait();
}
