//! State of a loop without a listener: hooks, outgoing connections, and an `Rc` that all of the loop's connections share.

use std::cell::RefCell;
use std::io::{PipeReader, PipeWriter, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::harness::{Echo, Making, PATIENCE, any_port, connect, eventually, exchange, loops};
use reactor::{
    Accept, Closed, ConnectionId, Io, ListenerSettings, Loop, LoopContext, LoopState, Protocol, Reactor,
    RunningReactor, Setup, Traffic,
};

/// The data that the connections of one loop gather in a tick; not `Send`.
type Gathered = Rc<RefCell<Vec<u8>>>;

/// Passes its input to its loop's state.
struct Gathering(Gathered);

impl Protocol for Gathering {
    fn input(&mut self, io: &mut Io<'_>) {
        self.0.borrow_mut().extend_from_slice(io.input());
        io.consume(io.input().len());
    }
}

/// Connects at the start; at the end of each tick sends back, over each connection, the data gathered in the tick.
struct Client {
    to: SocketAddr,
    gathered: Gathered,
    open: Vec<ConnectionId>,
    reader: PipeReader,
    told: Sender<&'static str>,
}

const CONNECTIONS: usize = 3;

impl LoopState for Client {
    fn started(&mut self, at: &mut LoopContext<'_>) {
        for _ in 0..CONNECTIONS {
            let protocol = Box::new(Gathering(Rc::clone(&self.gathered)));
            self.open.push(at.connect(self.to, protocol).unwrap());
        }
        self.told.send("started").unwrap();
    }
    fn turns_ended(&mut self, _at: &mut LoopContext<'_>) {
        self.gathered.borrow_mut().iter_mut().for_each(u8::make_ascii_uppercase);
    }
    fn before_wait(&mut self, at: &mut LoopContext<'_>) {
        let gathered = std::mem::take(&mut *self.gathered.borrow_mut());
        for id in self.open.iter().filter(|_| !gathered.is_empty()) {
            at.connection(*id).unwrap().output().extend_from_slice(&gathered);
        }
    }
    fn completions(&self) -> Option<RawFd> {
        Some(self.reader.as_raw_fd())
    }
    fn completed(&mut self, _at: &mut LoopContext<'_>) {
        self.told.send("completed").unwrap();
        panic!("which is counted");
    }
    fn draining(&mut self, _at: &mut LoopContext<'_>) {
        self.told.send("draining").unwrap();
    }
}

fn client(to: SocketAddr) -> (RunningReactor, PipeWriter, Receiver<&'static str>) {
    let mut reactor = Reactor::new(loops(1)).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let (told, tellings) = mpsc::channel();
    let once = Mutex::new(Some((reader, told)));
    reactor.set_up(move |setup| {
        let (reader, told) = once.lock().unwrap().take().unwrap();
        setup.add_state(Box::new(Client { to, gathered: Rc::default(), open: Vec::new(), reader, told }));
    });
    (reactor.start().unwrap(), writer, tellings)
}

#[test]
fn a_program_that_only_connects_has_state_and_hooks() {
    let listener = TcpListener::bind(any_port()).unwrap();
    let (running, mut writer, tellings) = client(listener.local_addr().unwrap());
    assert_eq!(tellings.recv_timeout(PATIENCE), Ok("started"));
    let mut accepted: Vec<_> = (0..CONNECTIONS).map(|_| listener.accept().unwrap().0).collect();
    eventually("all are made", || running.metrics().sum(|l| l.connected) == CONNECTIONS as u64);
    exchange(&mut accepted[0], b"gathered", b"GATHERED");
    exchange(&mut accepted[1], b"", b"GATHERED");
    exchange(&mut accepted[2], b"", b"GATHERED");
    // Twice: the descriptor is edge-triggered, and a panic has no other effect.
    for panics in 1..=2 {
        writer.write_all(b"!").unwrap();
        assert_eq!(tellings.recv_timeout(PATIENCE), Ok("completed"));
        eventually("the panic is counted", || running.metrics().sum(|l| l.panics) == panics);
    }
    exchange(&mut accepted[2], b"on", b"ON");
    running.drain(Duration::ZERO);
    assert_eq!(tellings.recv_timeout(PATIENCE), Ok("draining"));
    running.join().unwrap();
}

/// Counts connections in an `Rc` that a state of the loop shares.
struct Counting(Rc<RefCell<usize>>);

impl Accept for Counting {
    fn accept(&mut self, _peer: SocketAddr, _id: ConnectionId, _lp: &Loop) -> Option<Box<dyn Protocol>> {
        *self.0.borrow_mut() += 1;
        Some(Box::new(Echo))
    }
}

struct Telling {
    count: Rc<RefCell<usize>>,
    counts: Sender<usize>,
}

impl LoopState for Telling {
    fn draining(&mut self, _at: &mut LoopContext<'_>) {
        self.counts.send(*self.count.borrow()).unwrap();
    }
}

#[test]
fn acceptors_of_two_listeners_and_a_state_share_what_they_like() {
    let mut reactor = Reactor::new(loops(1)).unwrap();
    let (one, first) = reactor.bind(any_port(), ListenerSettings::default()).unwrap();
    let (other, second) = reactor.bind(any_port(), ListenerSettings::default()).unwrap();
    let (counts, told) = mpsc::channel();
    reactor.set_up(move |setup: &mut Setup<'_>| {
        let count = Rc::new(RefCell::new(0));
        setup.accept(one, Box::new(Counting(Rc::clone(&count))));
        setup.accept(other, Box::new(Counting(Rc::clone(&count))));
        setup.add_state(Box::new(Telling { count, counts: counts.clone() }));
    });
    let running = reactor.start().unwrap();
    let mut streams = [first, second, second].map(connect);
    streams.iter_mut().for_each(|stream| exchange(stream, b"x", b"x"));
    running.drain(Duration::ZERO);
    assert_eq!(told.recv_timeout(PATIENCE), Ok(3));
    running.join().unwrap();
}

#[test]
fn a_listener_without_an_acceptor_is_a_failed_start() {
    let mut reactor = Reactor::new(loops(2)).unwrap();
    reactor.bind(any_port(), ListenerSettings::default()).unwrap();
    let error = reactor.start().err().expect("a failed start").to_string();
    assert!(error.ends_with("ended by itself: listener 0 has no acceptor"), "{error}");
}

#[test]
fn each_listener_has_its_own_bounds() {
    let mut reactor = Reactor::new(loops(1)).unwrap();
    let (told, sizes) = mpsc::channel();
    let making = Making::each(move |_, _| Box::new(Sizes(told.clone())));
    let mut addresses = Vec::new();
    for bytes in [1000, 30_000] {
        let traffic = Traffic { read_bytes_per_turn: bytes, input_bytes_max: bytes, ..Traffic::default() };
        let own = ListenerSettings { traffic: Some(traffic), ..ListenerSettings::default() };
        let (listener, address) = reactor.bind(any_port(), own).unwrap();
        reactor.accept_by(listener, Arc::clone(&making) as Arc<dyn reactor::Factory>);
        addresses.push((address, bytes));
    }
    let running = reactor.start().unwrap();
    for (address, bytes) in addresses {
        let mut stream = connect(address);
        stream.write_all(&[0; 60_000]).unwrap();
        let seen = || sizes.recv_timeout(PATIENCE).unwrap();
        assert_eq!(std::iter::repeat_with(seen).find(|seen| *seen >= bytes), Some(bytes));
    }
    running.drain(Duration::ZERO);
    running.join().unwrap();
}

/// Reports the largest input that it is given, and consumes nothing.
struct Sizes(Sender<usize>);

impl Protocol for Sizes {
    fn input(&mut self, io: &mut Io<'_>) {
        self.0.send(io.input().len()).unwrap();
    }
}

/// Tries to connect every few milliseconds until it succeeds; sees failures at the end of the tick.
struct Retrying {
    to: PathBuf,
    failed: Rc<RefCell<bool>>,
    tries: Sender<u32>,
    count: u32,
}

/// Records that its connection could not be made.
struct Trying(Rc<RefCell<bool>>);

impl Protocol for Trying {
    fn input(&mut self, _io: &mut Io<'_>) {}
    fn closed(&mut self, reason: Closed) {
        *self.0.borrow_mut() = matches!(reason, Closed::Unconnected(_));
    }
}

impl Retrying {
    fn connect(&mut self, at: &mut LoopContext<'_>) {
        self.count += 1;
        self.tries.send(self.count).unwrap();
        if at.connect(self.to.clone(), Box::new(Trying(Rc::clone(&self.failed)))).is_err() {
            *self.failed.borrow_mut() = true;
        }
    }
}

impl LoopState for Retrying {
    fn started(&mut self, at: &mut LoopContext<'_>) {
        // The last setting counts, and a cleared timer does not fire.
        at.set_timer(Some(at.lp().now_ns()));
        at.set_timer(None);
        self.connect(at);
    }
    fn before_wait(&mut self, at: &mut LoopContext<'_>) {
        if std::mem::take(&mut *self.failed.borrow_mut()) {
            at.set_timer(Some(at.lp().now_ns() + 5_000_000));
        }
    }
    fn timer(&mut self, at: &mut LoopContext<'_>) {
        self.connect(at);
    }
}

#[test]
fn a_state_tries_again_by_its_timer_without_a_connection() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("s");
    let path = to.clone();
    let mut reactor = Reactor::new(loops(1)).unwrap();
    let (tries, tried) = mpsc::channel();
    reactor.set_up(move |setup| {
        setup.add_state(Box::new(Retrying { to: path.clone(), failed: Rc::default(), tries: tries.clone(), count: 0 }));
    });
    let running = reactor.start().unwrap();
    for count in 1..=3 {
        assert_eq!(tried.recv_timeout(PATIENCE), Ok(count));
    }
    let listener = UnixListener::bind(to).unwrap();
    listener.accept().unwrap();
    eventually("it is connected", || running.metrics().sum(|l| l.connected) == 1);
    eventually("it waits for no more", || running.metrics().sum(|l| l.timers) == 0);
    running.drain(Duration::ZERO);
    running.join().unwrap();
}

/// Asks for another tick as often as `left` says.
struct Again {
    left: usize,
    told: Sender<usize>,
}

impl LoopState for Again {
    fn before_wait(&mut self, at: &mut LoopContext<'_>) {
        if self.left > 0 {
            self.left -= 1;
            at.lp().poll_again();
        }
        self.told.send(self.left).unwrap();
    }
}

#[test]
fn a_state_gets_another_tick_at_once_and_then_the_loop_sleeps() {
    let mut reactor = Reactor::new(loops(1)).unwrap();
    let (told, tellings) = mpsc::channel();
    reactor.set_up(move |setup| setup.add_state(Box::new(Again { left: 5, told: told.clone() })));
    let running = reactor.start().unwrap();
    running.loops()[0].run(Box::new(|_| {}));
    // From the first tick on nothing but the state keeps the loop awake.
    for left in (0..5).rev().chain([0]) {
        assert_eq!(tellings.recv_timeout(PATIENCE), Ok(left));
    }
    // The mail may come after them.
    let more = std::iter::from_fn(|| tellings.recv_timeout(Duration::from_millis(50)).ok()).take(10).count();
    assert!(more < 10, "the loop does not sleep");
    running.drain(Duration::ZERO);
    running.join().unwrap();
}
