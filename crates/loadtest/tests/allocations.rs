//! A run of many requests allocates almost nothing for each, and its memory does not grow with their number.
#![allow(clippy::unwrap_used, unsafe_code)] // a counting allocator implements an unsafe trait

use loadtest::engine::{Load, LoadSettings, Stop, Watchers, run};
use loadtest::profile::Profile;
use loadtest::source::{Described, RequestSource, SourceError};
use loadtest::statuses::StatusSet;
use reactor::{Accept, ConnectionId, Io, Loop, Protocol, Reactor};
use std::alloc::{GlobalAlloc, Layout, System};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);
static MOST_BYTES: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged; counting does not touch its memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        let live = LIVE_BYTES.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST_BYTES.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller's guarantee is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's guarantee is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const REQUEST: &[u8] = b"GET /users/1 HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Answers as many requests as have arrived completely.
struct Hello;

impl Protocol for Hello {
    fn input(&mut self, io: &mut Io<'_>) {
        let requests = io.input().len() / REQUEST.len();
        io.consume(requests * REQUEST.len());
        (0..requests).for_each(|_| io.output().extend_from_slice(REPLY));
        if io.input_ended() {
            io.finish();
        }
    }
}

struct Hellos;

impl Accept for Hellos {
    fn accept(&mut self, _peer: SocketAddr, _id: ConnectionId, _lp: &Loop) -> Option<Box<dyn Protocol>> {
        Some(Box::new(Hello))
    }
}

/// Requests that pass through the reader thread.
struct Read;

impl RequestSource for Read {
    fn next(&mut self, bytes: &mut Vec<u8>) -> Result<Option<Described>, SourceError> {
        bytes.extend_from_slice(REQUEST);
        Ok(Some(Described::default()))
    }
}

/// Permitted allocations of a run in the whole process: for its threads, connections and slices, and one per this
/// many requests.
const ALLOCATIONS_MAX: u64 = 1000;
const REQUESTS_PER_ALLOCATION: u64 = 1000;
/// For the whole process, whatever the number of requests.
const BYTES_MAX: usize = 60 << 20;

#[track_caller]
fn check(settings: &LoadSettings) {
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    let finished = run(settings, Box::new(Read), Watchers::default(), &Stop::default()).unwrap();
    let allocations = (ALLOCATIONS.load(Ordering::SeqCst) - before) as u64;
    let requests = finished.recording.outcome.right;
    assert!(requests > 10_000, "{:?}", finished.recording.outcome);
    let allowed = ALLOCATIONS_MAX + requests / REQUESTS_PER_ALLOCATION;
    assert!(allocations < allowed, "{allocations} allocations for {requests} requests");
    let most = MOST_BYTES.load(Ordering::SeqCst);
    assert!(most < BYTES_MAX, "{most} bytes");
}

/// Runs one after another, since the counters are for the whole process.
#[test]
fn requests_allocate_nothing_and_memory_stays() {
    let mut reactor =
        Reactor::new(reactor::ReactorSettings { loops: 1, ..reactor::ReactorSettings::default() }).unwrap();
    let settings = reactor::ListenerSettings::default();
    let (listener, address) = reactor.bind("127.0.0.1:0".parse().unwrap(), settings).unwrap();
    reactor.set_up(move |setup| setup.accept(listener, Box::new(Hellos)));
    let running = reactor.start().unwrap();
    let closed = LoadSettings {
        target: "test".to_owned(),
        address,
        tls: None,
        load: Load::Closed { duration: Duration::from_secs(3) },
        connections: 16,
        pipeline: 16,
        new_connections: false,
        timeout: Duration::from_secs(10),
        threads: 1,
        expected: StatusSet::default(),
    };
    check(&closed);
    let profile = Arc::new(Profile::parse("const(8000,2s)").unwrap());
    check(&LoadSettings { load: Load::Open { profile, connections_at_start: 16 }, pipeline: 1, ..closed });
    running.drain(Duration::ZERO);
    running.join().unwrap();
}
