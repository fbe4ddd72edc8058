//! A connection that sends a lot does not delay the others of its loop.

use std::io::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::harness::{Making, connect_from, eventually, hold, loops, serve, with};
use reactor::{Io, Protocol, ReactorSettings, Traffic};

/// Counts its lines, and records how many lines the greedy connection had sent when a line of the modest one arrived.
struct Counting {
    greedy_lines: Arc<AtomicUsize>,
    seen_at: Arc<AtomicUsize>,
}

impl Protocol for Counting {
    fn input(&mut self, io: &mut Io<'_>) {
        while let Some(end) = io.input().iter().position(|byte| *byte == b'\n') {
            if io.input()[0] == b'm' {
                self.seen_at.store(self.greedy_lines.load(Ordering::SeqCst), Ordering::SeqCst);
            } else {
                self.greedy_lines.fetch_add(1, Ordering::SeqCst);
            }
            io.consume(end + 1);
            if !io.spend(1) {
                return;
            }
        }
    }
}

const NEVER: usize = usize::MAX;

#[track_caller]
fn check_wait(settings: ReactorSettings, greedy_lines_before: usize) {
    let (greedy_lines, seen_at) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(NEVER)));
    let (of_server, at) = (Arc::clone(&greedy_lines), Arc::clone(&seen_at));
    let server = serve(
        settings,
        Making::each(move |_, _| Box::new(Counting { greedy_lines: Arc::clone(&of_server), seen_at: Arc::clone(&at) })),
    );
    let (mut greedy, mut modest) = (server.connect(), server.connect());
    eventually("both are accepted", || server.metrics().sum(|l| l.accepted) == 2);
    let release = hold(&server.running.loops()[0]);
    greedy.write_all(&b"g\n".repeat(20_000)).unwrap();
    modest.write_all(b"m\n").unwrap();
    drop(release);
    eventually("the modest one is served", || seen_at.load(Ordering::SeqCst) != NEVER);
    let waited_for = seen_at.load(Ordering::SeqCst);
    assert!(waited_for <= greedy_lines_before, "{waited_for} lines of another connection went first");
    eventually("the greedy one is served too", || greedy_lines.load(Ordering::SeqCst) == 20_000);
    server.stop();
}

#[test]
fn requests_of_one_connection_and_tick_are_bounded() {
    check_wait(with(1, Traffic { requests_per_turn: 16, ..Traffic::default() }), 32);
}

#[test]
fn bytes_of_one_connection_and_tick_are_bounded() {
    let settings = with(1, Traffic { requests_per_turn: u32::MAX, read_bytes_per_turn: 1024, ..Traffic::default() });
    check_wait(settings, 1024);
}

/// Takes one line in a call and reports two calls in one tick.
struct OncePerTick {
    last_tick_ns: u64,
    lines: Arc<AtomicUsize>,
    twice: Arc<AtomicUsize>,
}

impl Protocol for OncePerTick {
    fn input(&mut self, io: &mut Io<'_>) {
        let tick_ns = io.lp().now_ns();
        if tick_ns == self.last_tick_ns {
            self.twice.fetch_add(1, Ordering::SeqCst);
        }
        self.last_tick_ns = tick_ns;
        if let Some(end) = io.input().iter().position(|byte| *byte == b'\n') {
            io.consume(end + 1);
            self.lines.fetch_add(1, Ordering::SeqCst);
            let _ = io.spend(u32::MAX);
        }
    }
}

#[test]
fn a_connection_has_one_turn_in_a_tick_whatever_calls_for_it() {
    let (lines, twice) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (l, t) = (Arc::clone(&lines), Arc::clone(&twice));
    let server = serve(
        loops(1),
        Making::each(move |_, _| {
            Box::new(OncePerTick { last_tick_ns: 0, lines: Arc::clone(&l), twice: Arc::clone(&t) })
        }),
    );
    let mut stream = server.connect();
    for round in 1..=20 {
        // New bytes keep arriving while earlier lines are left for the next tick.
        for _ in 0..100 {
            stream.write_all(b"one\ntwo\nthree\n").unwrap();
        }
        eventually("all lines are taken", || lines.load(Ordering::SeqCst) == 300 * round);
    }
    assert_eq!(twice.load(Ordering::SeqCst), 0);
    server.stop();
}

#[test]
fn a_loop_that_does_not_get_on_with_its_work_is_seen_to_wait_and_one_that_sleeps_is_not() {
    let server = serve(loops(2), Making::each(|_, _| Box::new(crate::harness::Echo)));
    let [held, asleep] = server.running.loops() else { panic!("two loops") };
    let release = hold(held);
    eventually("it waits", || held.waits());
    eventually("the other one sleeps", || !asleep.waits());
    drop(release);
    eventually("it sleeps again", || !held.waits());
    server.stop();
}

/// Asks for a call of `writable`, which ends the tick and notes its connection.
struct LongWritable(usize, Arc<Mutex<Vec<usize>>>);

impl Protocol for LongWritable {
    fn input(&mut self, io: &mut Io<'_>) {
        io.consume(io.input().len());
        io.notify_writable();
    }
    fn writable(&mut self, _: &mut Io<'_>) {
        std::thread::sleep(Duration::from_millis(1));
        self.1.lock().unwrap().push(self.0);
    }
}

#[test]
fn connections_of_a_list_keep_their_order_where_a_tick_ends_within_a_batch() {
    const CONNECTIONS: usize = 20;
    let (count, order) = (AtomicUsize::new(0), Arc::new(Mutex::new(Vec::new())));
    let of_server = Arc::clone(&order);
    let server = serve(
        loops(1),
        Making::each(move |_, _| Box::new(LongWritable(count.fetch_add(1, Ordering::Relaxed), Arc::clone(&of_server)))),
    );
    let mut streams: Vec<_> = (0..CONNECTIONS).map(|_| server.connect()).collect();
    eventually("all are accepted", || server.metrics().sum(|l| l.accepted) == CONNECTIONS as u64);
    let release = hold(&server.running.loops()[0]);
    for stream in &mut streams {
        stream.write_all(b"?").unwrap();
    }
    drop(release);
    eventually("all had their turn", || order.lock().unwrap().len() == CONNECTIONS);
    assert_eq!(*order.lock().unwrap(), (0..CONNECTIONS).collect::<Vec<_>>());
    server.stop();
}

/// Works for a long time on a line `l` and a short one on a line `s`, one line in a turn. Adds up the times of each kind until the last
/// short line.
#[derive(Clone, Default)]
struct Working {
    long_ns: Arc<AtomicU64>,
    short_ns: Arc<AtomicU64>,
    short_lines: Arc<AtomicUsize>,
}

impl Working {
    const ADDRESSES: [([u8; 4], &[u8]); 2] = [([127, 0, 0, 2], b"l\n"), ([127, 0, 0, 3], b"s\n")];
    const CONNECTIONS: usize = 16;
    const LINES: usize = 100;
    /// The loop counts no turn as longer: its thread had no processor.
    const COUNTED_MAX: Duration = Duration::from_millis(2);
}

impl Protocol for Working {
    fn input(&mut self, io: &mut Io<'_>) {
        let Some(kind) = io.input().first().copied() else { return };
        io.consume(2);
        let (begun, is_short) = (Instant::now(), kind == b's');
        let takes = Duration::from_micros(if is_short { 100 } else { 1_000 });
        while begun.elapsed() < takes {}
        let took = begun.elapsed().min(Self::COUNTED_MAX).as_nanos() as u64;
        if is_short {
            self.short_ns.fetch_add(took, Ordering::SeqCst);
            self.short_lines.fetch_add(1, Ordering::SeqCst);
        } else if self.short_lines.load(Ordering::SeqCst) < Self::CONNECTIONS * Self::LINES {
            self.long_ns.fetch_add(took, Ordering::SeqCst);
        }
        let _ = io.spend(u32::MAX);
    }
}

#[test]
fn addresses_that_want_more_than_a_loop_can_give_have_equal_times_of_it() {
    let work = Working::default();
    let of_server = work.clone();
    let server = serve(loops(1), Making::each(move |_, _| Box::new(of_server.clone())));
    let mut streams: Vec<_> = (0..Working::CONNECTIONS)
        .flat_map(|_| Working::ADDRESSES)
        .map(|(from, line)| (connect_from(server.address, from), line))
        .collect();
    eventually("all are accepted", || server.metrics().sum(|l| l.accepted) == streams.len() as u64);
    let release = hold(&server.running.loops()[0]);
    for (stream, line) in &mut streams {
        stream.write_all(&line.repeat(Working::LINES)).unwrap();
    }
    drop(release);
    let short_lines = Working::CONNECTIONS * Working::LINES;
    eventually("all short lines are done", || work.short_lines.load(Ordering::SeqCst) == short_lines);
    let (long_ns, short_ns) = (work.long_ns.load(Ordering::SeqCst), work.short_ns.load(Ordering::SeqCst));
    assert!(
        long_ns * 5 < short_ns * 8 && short_ns * 5 < long_ns * 8,
        "long lines had {long_ns} ns, short lines {short_ns} ns"
    );
    drop(streams);
    server.stop();
}
