//! A GET that is answered at once allocates nothing in steady state, from socket to socket.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{BodyPart, FileCache, Files, HttpRequest, HttpServer, HttpSettings, Reply, Service, Status};

/// Counts the allocations of the loop's thread.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Set by the service on the loop's thread.
    static COUNTED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

#[allow(unsafe_code, reason = "a global allocator cannot be written without")]
// SAFETY: every call goes to the system's allocator unchanged; counting touches no memory of the block.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTED.with(std::cell::Cell::get) {
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

struct Hello(Files);

impl Service for Hello {
    type Local = FileCache;
    fn local(&self, lp: &reactor::Loop) -> FileCache {
        COUNTED.with(|counted| counted.set(true));
        FileCache::new(lp, 1 << 20)
    }
    fn call(&self, cache: &mut FileCache, request: &HttpRequest<'_>, mut reply: Reply<'_>) {
        if let Some(path) = request.path().strip_prefix("/files/") {
            return self.0.find(cache, request, path).expect("an embedded file").send(reply);
        }
        if request.path() == "/parts" {
            let parts = [BodyPart::Copied(b"copied "), BodyPart::Static(STATIC)];
            return reply.send_parts(Status(200), "text/plain", parts);
        }
        if request.path() == "/allocate" {
            drop(std::hint::black_box(Vec::<u8>::with_capacity(10)));
        }
        if request.path() == "/field" {
            reply.header("ETag", "\"1\"");
        }
        reply.send(Status(200), "application/json", b"{\"id\":123}");
    }
}

/// Not copied; the end is counted.
static STATIC: &[u8] = &{
    let mut bytes = [b'x'; 10_000];
    bytes[9_999] = b'}';
    bytes
};

#[test]
fn a_get_allocates_nothing_in_steady_state() {
    let mut reactor =
        reactor::Reactor::new(reactor::ReactorSettings { loops: 1, ..reactor::ReactorSettings::default() }).unwrap();
    let files = Files::embedded(http::embed!("tests/assets", "site.css"));
    let server = Arc::new(HttpServer::new(Hello(files), HttpSettings::default()));
    let address = reactor.listen("127.0.0.1:0".parse().unwrap(), server).unwrap();
    let running = reactor.start().unwrap();
    let mut socket = TcpStream::connect(address).unwrap();
    let mut allocations_of = |path: &str, rounds: usize, pipelined: usize| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").repeat(pipelined);
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for _ in 0..rounds {
            socket.write_all(request.as_bytes()).unwrap();
            let (mut seen, mut buffer) = (0, [0; 4096]);
            while seen < pipelined {
                let read = socket.read(&mut buffer).unwrap();
                assert!(read > 0);
                seen += buffer[..read].iter().filter(|&&byte| byte == b'}').count();
            }
        }
        ALLOCATIONS.load(Ordering::Relaxed) - before
    };
    for (path, pipelined) in
        [("/users/123", 1), ("/users/123", 16), ("/field", 1), ("/files/site.css", 4), ("/parts", 1)]
    {
        allocations_of(path, 10, pipelined);
        // A turn that took too long, because the machine was busy, is continued in the next tick: its first time grows some queues.
        // What a request allocates would be in all three counts.
        let counts = [(); 3].map(|()| allocations_of(path, 300, pipelined));
        assert!(counts.contains(&0), "{path}, {pipelined} at once: {counts:?}");
    }
    assert!(allocations_of("/allocate", 10, 1) >= 10, "the counter counts");
    drop(socket);
    running.drain(std::time::Duration::ZERO);
    running.join().unwrap();
}
