//! How late the machine itself wakes a thread that has something to do: one byte goes to another thread and back, over a socket as a
//! request does. What a request takes beyond that is the server's.

use crate::attacks::NICE;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(4);

/// Processes that are as busy as attackers and ask for nothing, one for each core: what the cores alone take from the server.
pub(crate) struct Busy(Vec<Child>);

impl Busy {
    pub(crate) fn start() -> Busy {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let one =
            |_| Command::new("nice").args(["-n", NICE, "sh", "-c", "while :; do :; done"]).spawn().expect("a shell");
        Busy((0..cores).map(one).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for process in &mut self.0 {
            // Ends a process that this test started.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// From when to when something was under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) from: Instant,
    pub(crate) to: Instant,
}

impl Span {
    pub(crate) fn took(&self) -> Duration {
        self.to.duration_since(self.from)
    }
}

/// All round trips, in order.
#[derive(Default)]
pub(crate) struct Lag {
    spans: Mutex<Vec<Span>>,
}

impl Lag {
    pub(crate) fn measure(&self, over: &AtomicBool) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut near = TcpStream::connect(listener.local_addr().expect("an address")).expect("it listens");
        let (mut far, _) = listener.accept().expect("it was connected");
        near.set_nodelay(true).expect("a socket");
        far.set_nodelay(true).expect("a socket");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut byte = [0];
                while far.read_exact(&mut byte).is_ok() && far.write_all(&byte).is_ok() {}
            });
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(EVERY);
                let from = Instant::now();
                let mut byte = [1];
                let _ = near.write_all(&byte).and_then(|()| near.read_exact(&mut byte));
                self.spans.lock().expect("no panic").push(Span { from, to: Instant::now() });
            }
            let _ = near.shutdown(std::net::Shutdown::Both);
        });
    }

    /// All round trips of a time.
    pub(crate) fn within(&self, from: Instant, to: Instant) -> Vec<Span> {
        let spans = self.spans.lock().expect("no panic");
        let first = spans.partition_point(|span| span.to < from);
        spans[first..].iter().take_while(|span| span.from <= to).copied().collect()
    }

    /// What of a span is not the machine's.
    pub(crate) fn beyond(&self, span: &Span) -> Duration {
        let around = Duration::from_millis(10);
        let most = self.within(span.from - around, span.to).iter().map(Span::took).max();
        span.took().saturating_sub(most.unwrap_or_default())
    }
}
