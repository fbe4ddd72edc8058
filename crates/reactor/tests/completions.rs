//! Work beside connections: a loop's state is called when it completes, and at the end of each tick.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{PipeReader, PipeWriter, Write};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};

use crate::harness::{eventually, exchange, loops, serve};
use reactor::{Accept, ConnectionId, Factory, Io, Loop, LoopContext, LoopState, Message, Protocol, Setup};

/// A line to be answered, handed to a slow thread at the end of a tick.
type Asked = (ConnectionId, Vec<u8>);

#[derive(Default)]
struct Shared {
    asked: RefCell<Vec<Asked>>,
}

/// Makes connections that share the loop's lines.
struct Slow(Rc<Shared>);

/// Hands over the lines of a tick at its end, and answers those whose work is done.
struct Answering {
    shared: Rc<Shared>,
    to: Sender<Vec<Asked>>,
    ended: Arc<Mutex<VecDeque<Asked>>>,
    reader: PipeReader,
    batches: Arc<AtomicUsize>,
}

struct SlowLines(Rc<Shared>);

impl Protocol for SlowLines {
    fn input(&mut self, io: &mut Io<'_>) {
        let line = io.input().to_vec();
        io.consume(line.len());
        if io.input_ended() {
            return io.finish();
        }
        self.0.asked.borrow_mut().push((io.id(), line));
    }
    fn message(&mut self, message: Message, io: &mut Io<'_>) {
        io.output().extend_from_slice(&message.payload.downcast::<Vec<u8>>().unwrap());
    }
}

impl Accept for Slow {
    fn accept(&mut self, _peer: SocketAddr, _id: ConnectionId, _lp: &Loop) -> Option<Box<dyn Protocol>> {
        Some(Box::new(SlowLines(Rc::clone(&self.0))))
    }
}

impl LoopState for Answering {
    fn completions(&self) -> Option<RawFd> {
        Some(self.reader.as_raw_fd())
    }
    fn completed(&mut self, at: &mut LoopContext<'_>) {
        let ended = std::mem::take(&mut *self.ended.lock().unwrap());
        for (id, line) in ended {
            let (panics, line) = if line == b"panic\n" { (true, b"then\n".to_vec()) } else { (false, line) };
            at.lp().send(id, Message { tag: 0, payload: Box::new(line) });
            assert!(!panics, "as the line says");
        }
    }
    fn before_wait(&mut self, _at: &mut LoopContext<'_>) {
        let asked = std::mem::take(&mut *self.shared.asked.borrow_mut());
        if !asked.is_empty() {
            self.batches.fetch_add(1, Ordering::SeqCst);
            self.to.send(asked).unwrap();
        }
    }
}

#[derive(Default)]
struct Making {
    batches: Arc<AtomicUsize>,
}

/// Echoes its input, and reports by a byte.
fn work(from: &Receiver<Vec<Asked>>, ended: &Mutex<VecDeque<Asked>>, mut writer: PipeWriter) {
    for asked in from {
        ended.lock().unwrap().extend(asked);
        writer.write_all(b"!").unwrap();
    }
}

impl Factory for Making {
    fn acceptor(&self, setup: &mut Setup<'_>) -> Box<dyn Accept> {
        let (reader, writer) = std::io::pipe().unwrap();
        let (to, from) = mpsc::channel();
        let ended = Arc::new(Mutex::new(VecDeque::new()));
        let of_thread = Arc::clone(&ended);
        std::thread::spawn(move || work(&from, &of_thread, writer));
        let batches = Arc::clone(&self.batches);
        let shared: Rc<Shared> = Rc::default();
        setup.add_state(Box::new(Answering { shared: Rc::clone(&shared), to, ended, reader, batches }));
        Box::new(Slow(shared))
    }
}

#[test]
fn what_has_ended_elsewhere_is_answered_each_time_though_nobody_reads_the_descriptor() {
    let making = Arc::new(Making::default());
    let server = serve(loops(2), Arc::clone(&making) as Arc<dyn Factory>);
    let mut streams: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for turn in 0..200 {
        let line = format!("{turn}\n");
        for stream in &mut streams {
            stream.write_all(line.as_bytes()).unwrap();
        }
        for stream in &mut streams {
            exchange(stream, b"", line.as_bytes());
        }
    }
    let batches = making.batches.load(Ordering::SeqCst);
    assert!((200..=800).contains(&batches), "{batches} batches of 800 lines");
    drop(streams);
    server.stop();
}

#[test]
fn a_panic_over_what_has_ended_is_counted_and_ends_nothing() {
    let server = serve(loops(1), Arc::new(Making::default()));
    let mut stream = server.connect();
    exchange(&mut stream, b"panic\n", b"then\n");
    exchange(&mut stream, b"more\n", b"more\n");
    eventually("the panic is counted", || server.metrics().loops[0].panics == 1);
    drop(stream);
    server.stop();
}
