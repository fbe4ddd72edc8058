//! A loop that ends by itself ends the whole reactor, with an error.

use std::io::Read;
use std::net::SocketAddr;
use std::sync::mpsc;

use crate::harness::{Echo, Making, PATIENCE, exchange, loops, serve};
use reactor::Reactor;

#[test]
fn a_loop_that_panics_ends_all_loops_and_has_its_program_told() {
    let server = serve(loops(2), Making::each(|_, _| Box::new(Echo)));
    // One on each loop: they are spread evenly.
    let mut streams = [server.connect(), server.connect()];
    streams.iter_mut().for_each(|stream| exchange(stream, b"one\n", b"one\n"));
    let (told, is_told) = mpsc::channel();
    server.running.on_broken(move || told.send(std::thread::current().name().map(str::to_owned)).unwrap());
    assert!(is_told.try_recv().is_err());
    // A protocol's panics are caught; a panic while an outgoing connection's protocol is made is the loop's own.
    server.running.loops()[1].connect(server.address, Box::new(|_, _| panic!("a fault of the loop")));
    assert_eq!(is_told.recv_timeout(PATIENCE).unwrap().as_deref(), Some("loop-1"));
    for stream in &mut streams {
        // Closed or reset: the client must not wait for ever.
        let _ = stream.read(&mut [0]).map(|read| assert_eq!(read, 0));
    }
    let error = server.running.join().unwrap_err().to_string();
    assert_eq!(error, "event loop 1 ended by itself: it panicked: a fault of the loop");
}

#[test]
fn a_loop_that_broke_before_anybody_asked_is_told_all_the_same() {
    let running = Reactor::new(loops(1)).unwrap().start().unwrap();
    let nowhere: SocketAddr = "127.0.0.1:1".parse().unwrap();
    running.loops()[0].connect(nowhere, Box::new(|_, _| panic!("a fault of the loop")));
    let (told, is_told) = mpsc::channel();
    running.on_broken(move || told.send(()).unwrap());
    is_told.recv_timeout(PATIENCE).unwrap();
    let error = running.join().unwrap_err().to_string();
    assert_eq!(error, "event loop 0 ended by itself: it panicked: a fault of the loop");
}
