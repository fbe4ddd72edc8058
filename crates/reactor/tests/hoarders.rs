//! Which connections are closed when connections hold more memory than allowed.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use crate::harness::{Making, connect_from, eventually, loops, serve};
use reactor::{Closed, Io, Protocol, ReactorSettings};

/// Keeps its input, except that the connection named 1 consumes one byte in each turn; reports its first byte when it is closed.
struct Keeping {
    gone: Arc<Mutex<Vec<u8>>>,
    name: u8,
}

impl Protocol for Keeping {
    fn input(&mut self, io: &mut Io<'_>) {
        self.name = io.input().first().copied().unwrap_or(self.name);
        if self.name == b'1' {
            io.consume(1);
        }
        if io.input_ended() {
            io.abort();
        }
    }
    fn closed(&mut self, reason: Closed) {
        if reason == Closed::Hoarded || reason == Closed::Aborted {
            self.gone.lock().unwrap().push(self.name);
        }
    }
}

/// Connects from a loopback address, and sends that many bytes of its name.
fn keep(to: SocketAddr, from: [u8; 4], name: u8, bytes: usize) -> TcpStream {
    let mut stream = connect_from(to, from);
    stream.write_all(&vec![name; bytes]).unwrap();
    stream
}

#[test]
fn many_connections_of_one_address_go_before_a_larger_one_of_another() {
    let gone: Arc<Mutex<Vec<u8>>> = Arc::default();
    let of_server = Arc::clone(&gone);
    let settings = ReactorSettings { held_bytes_max: 400_000, ..loops(1) };
    let making =
        Making::each(move |_, _| Box::new(Keeping { gone: Arc::clone(&of_server), name: 0 }) as Box<dyn Protocol>);
    let server = serve(settings, making);
    let some =
        |count| -> Vec<TcpStream> { (0..count).map(|_| keep(server.address, [127, 0, 0, 3], b'm', 7_000)).collect() };
    let before = some(44);
    let mut one = keep(server.address, [127, 0, 0, 2], b'1', 30_000);
    eventually("the one is there", || server.metrics().sum(|l| l.bytes_in) == 30_000 + 44 * 7_000);
    // Enough of the other connections stay old until the end, even if this thread is late to let connection 1 consume.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let mut after = Vec::new();
    for _ in 0..32 {
        after.extend(some(1));
        // Slow, but with progress.
        one.write_all(b"1").unwrap();
    }
    eventually("room is made", || gone.lock().unwrap().len() >= 20);
    eventually("it is enough", || server.metrics().sum(|l| l.held_bytes) <= 400_000);
    assert!(!gone.lock().unwrap().contains(&b'1'), "one connection pays for what forty of another address hold");
    drop((before, one, after));
    server.stop();
}

#[test]
fn no_more_are_closed_than_room_is_wanted() {
    let gone: Arc<Mutex<Vec<u8>>> = Arc::default();
    let of_server = Arc::clone(&gone);
    // Each connection holds a buffer of this size.
    const BUFFER_BYTES: usize = 4096;
    let settings = ReactorSettings { held_bytes_max: 100 * BUFFER_BYTES, ..loops(1) };
    let making =
        Making::each(move |_, _| Box::new(Keeping { gone: Arc::clone(&of_server), name: 0 }) as Box<dyn Protocol>);
    let server = serve(settings, making);
    // Many connections hold nearly everything, so a search selects the holders of an eighth of the bound.
    let held: Vec<TcpStream> = (0..100).map(|_| keep(server.address, [127, 0, 0, 3], b'm', 1_000)).collect();
    eventually("they are there", || server.metrics().sum(|l| l.held_bytes) == 100 * BUFFER_BYTES as u64);
    let more: Vec<TcpStream> = (0..2).map(|_| keep(server.address, [127, 0, 0, 2], b'2', 1_000)).collect();
    eventually("they came", || server.metrics().sum(|l| l.bytes_in) == 102_000);
    eventually("room is made", || gone.lock().unwrap().len() >= 2);
    eventually("it is enough", || server.metrics().sum(|l| l.held_bytes) <= 100 * BUFFER_BYTES as u64);
    let gone = gone.lock().unwrap().clone();
    assert_eq!(gone, *b"mm", "those were closed for two buffers");
    drop((held, more));
    server.stop();
}
