//! Deadlines of connections and of loops: never early, in order, replaceable.

use std::io::Write;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use crate::harness::{Making, PATIENCE, Server, loops, serve};
use reactor::{Io, Protocol};

/// Acts as its input bytes say; reports when its timers expire.
struct Alarmed {
    name: u8,
    fired: Sender<(u8, char)>,
}

impl Protocol for Alarmed {
    fn input(&mut self, io: &mut Io<'_>) {
        let orders = io.input().to_vec();
        io.consume(orders.len());
        for order in orders {
            match order {
                b's' => io.set_timer(Some(Duration::from_millis(30))),
                b'm' => io.set_timer(Some(Duration::from_millis(120))),
                b'l' => io.set_timer(Some(Duration::from_secs(3600))),
                b'0' => io.set_timer(Some(Duration::ZERO)),
                b'-' => io.set_timer(None),
                b'P' => io.set_precise_timer(Some(io.lp().now_ns() + 20_000_000)),
                b'Q' => io.set_precise_timer(Some(io.lp().now_ns() + 3_600_000_000_000)),
                b'_' => io.set_precise_timer(None),
                b'*' => arm_and_cancel(io),
                name => self.name = name,
            }
        }
    }
    fn timer(&mut self, _io: &mut Io<'_>) {
        self.fired.send((self.name, 't')).unwrap();
    }
    fn precise_timer(&mut self, _io: &mut Io<'_>) {
        self.fired.send((self.name, 'p')).unwrap();
    }
}

/// Pairs of arm and cancel, and of arm and arm again, in one call.
const PAIRS: u64 = 10_000_000;

fn arm_and_cancel(io: &mut Io<'_>) {
    let later_ns = io.lp().now_ns() + 3_600_000_000_000;
    for pair in 0..PAIRS {
        io.set_precise_timer(Some(later_ns + pair));
        io.set_precise_timer(if pair % 2 == 0 { None } else { Some(later_ns - pair) });
    }
    io.output().extend_from_slice(b"!");
}

fn alarmed() -> (Server, Receiver<(u8, char)>) {
    let (fired, firings) = mpsc::channel();
    let server = serve(loops(1), Making::each(move |_, _| Box::new(Alarmed { name: b'?', fired: fired.clone() })));
    (server, firings)
}

/// Sends each connection its commands (its name is the first byte) and checks which timers fire, in which order, and that no
/// other timer fires.
#[track_caller]
fn check_firings(orders: &[&str], expected: &[(char, char)]) {
    let (server, firings) = alarmed();
    let mut streams = Vec::new();
    for order in orders {
        let mut stream = server.connect();
        stream.write_all(order.as_bytes()).unwrap();
        streams.push(stream);
    }
    for (name, kind) in expected {
        let (fired_name, fired_kind) = firings.recv_timeout(PATIENCE).unwrap();
        assert_eq!((fired_name as char, fired_kind), (*name, *kind), "orders {orders:?}");
    }
    assert!(firings.recv_timeout(Duration::from_millis(200)).is_err(), "one more fired: orders {orders:?}");
    server.stop();
}

#[test]
fn a_timer_fires_once() {
    check_firings(&["as"], &[('a', 't')]);
    check_firings(&["a0"], &[('a', 't')]);
}

#[test]
fn timers_fire_in_the_order_of_their_deadlines() {
    check_firings(&["am", "bs"], &[('b', 't'), ('a', 't')]);
}

#[test]
fn the_last_setting_of_a_timer_counts() {
    check_firings(&["asl"], &[]);
    check_firings(&["als"], &[('a', 't')]);
    check_firings(&["asmsm", "bs"], &[('b', 't'), ('a', 't')]);
}

#[test]
fn a_cleared_timer_is_silent() {
    check_firings(&["as-"], &[]);
    check_firings(&["as-s"], &[('a', 't')]);
    check_firings(&["aP_"], &[]);
}

#[test]
fn precise_timers_replace_one_another_too() {
    check_firings(&["aP"], &[('a', 'p')]);
    check_firings(&["aPQ"], &[]);
    check_firings(&["aQP"], &[('a', 'p')]);
}

#[test]
fn a_connection_may_have_both_timers_set() {
    let (server, firings) = alarmed();
    let mut stream = server.connect();
    stream.write_all(b"aPs").unwrap();
    let mut kinds = [(); 2].map(|()| firings.recv_timeout(PATIENCE).unwrap().1);
    // They are 10 ms apart: a loop that is late for both may see either first.
    kinds.sort_unstable();
    assert_eq!(kinds, ['p', 't']);
    server.stop();
}

#[test]
fn a_precise_timer_that_is_cancelled_or_armed_again_leaves_no_entry() {
    let (server, _firings) = alarmed();
    let mut stream = server.connect();
    crate::harness::exchange(&mut stream, b"*", b"!");
    crate::harness::eventually("one is counted", || server.metrics().sum(|l| l.timers) == 1);
    stream.write_all(b"_").unwrap();
    crate::harness::eventually("none is left", || server.metrics().sum(|l| l.timers) == 0);
    stream.write_all(b"Q").unwrap();
    crate::harness::eventually("it is set", || server.metrics().sum(|l| l.timers) == 1);
    drop(stream);
    server.stop();
}

#[test]
fn a_timer_does_not_outlive_its_connection() {
    let (server, firings) = alarmed();
    let mut stream = server.connect();
    stream.write_all(b"asP").unwrap();
    crate::harness::eventually("it is set", || server.metrics().sum(|l| l.bytes_in) == 3);
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
    crate::harness::eventually("it is gone", || server.metrics().sum(|l| l.open) == 0);
    // A new connection in the same slot must not inherit it.
    let _second = server.connect();
    assert!(firings.recv_timeout(Duration::from_millis(200)).is_err());
    server.stop();
}

#[test]
fn no_timer_fires_early() {
    let server = serve(loops(1), Making::each(|_, _| Box::new(crate::harness::Echo)));
    let lp = server.running.loops()[0].clone();
    let (fired, firings) = mpsc::channel();
    for (nth, delay) in [0, 1, 9, 10, 11, 25, 99].into_iter().map(Duration::from_millis).enumerate() {
        let (coarse, precise, begun) = (fired.clone(), fired.clone(), Instant::now());
        lp.after(delay, Box::new(move |_| coarse.send((nth, begun.elapsed() >= delay)).unwrap()));
        let at_ns = lp.precise_now_ns() + delay.as_nanos() as u64;
        lp.at(at_ns, Box::new(move |lp| precise.send((nth, lp.precise_now_ns() >= at_ns)).unwrap()));
    }
    for _ in 0..14 {
        let (nth, in_time) = firings.recv_timeout(PATIENCE).unwrap();
        assert!(in_time, "timer {nth} fired early");
    }
    server.stop();
}

#[test]
fn an_idle_loop_with_a_far_deadline_sleeps() {
    let (server, _firings) = alarmed();
    let mut stream = server.connect();
    stream.write_all(b"al").unwrap();
    crate::harness::eventually("it is set", || server.metrics().sum(|l| l.bytes_in) == 2);
    std::thread::sleep(Duration::from_millis(50));
    let before = server.metrics().sum(|l| l.ticks);
    std::thread::sleep(Duration::from_millis(300));
    let ticks = server.metrics().sum(|l| l.ticks) - before;
    assert!(ticks <= 2, "{ticks} ticks without anything to do");
    server.stop();
}
