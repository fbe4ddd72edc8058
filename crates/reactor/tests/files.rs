//! Ranges of files in a write queue: over TCP and Unix sockets, in their order, and sent whole or the connection is closed.

use std::fs::File;
use std::io::{Read, Write};

use crate::harness::{FILE_TAIL, FileSender, Making, eventually, loops, rest_after_half_close, serve};
use reactor::{Reactor, Traffic};

/// The expected reply to that many requests.
fn expected(file: &[u8], requests: usize) -> Vec<u8> {
    [b"head ", &file[7..], FILE_TAIL].concat().repeat(requests)
}

fn contents(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

fn file_of(contents: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(contents).unwrap();
    file
}

#[test]
fn a_range_stands_between_the_bytes_around_it() {
    for bytes in [8, 5_000, 200_000, 9_000_000] {
        let contents = contents(bytes);
        let sender = FileSender::new(file_of(&contents), 7, bytes - 7);
        let server = serve(loops(1), Making::each(move |_, _| Box::new(sender.clone())));
        let mut stream = server.connect();
        stream.write_all(b"abc").unwrap();
        assert!(rest_after_half_close(&mut stream) == expected(&contents, 3), "{bytes} bytes");
        server.stop();
    }
}

#[test]
fn the_same_over_a_unix_socket() {
    let contents = contents(3_000_000);
    let sender = FileSender::new(file_of(&contents), 7, contents.len() - 7);
    let folder = tempfile::tempdir().unwrap();
    let mut reactor = Reactor::new(loops(1)).unwrap();
    reactor.listen_unix(&folder.path().join("s"), Making::each(move |_, _| Box::new(sender.clone()))).unwrap();
    let running = reactor.start().unwrap();
    let mut stream = std::os::unix::net::UnixStream::connect(folder.path().join("s")).unwrap();
    stream.write_all(b"ab").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    assert!(got == expected(&contents, 2));
    running.drain(std::time::Duration::ZERO);
    running.join().unwrap();
}

#[test]
fn a_file_that_became_shorter_ends_its_connection_and_no_other() {
    let sender = FileSender::new(file_of(&contents(100_000)), 7, 100_001);
    let server = serve(loops(1), Making::each(move |_, _| Box::new(sender.clone())));
    let mut other = server.connect();
    let mut stream = server.connect();
    stream.write_all(b"a").unwrap();
    let mut got = Vec::new();
    // The close may be seen as an end or as a reset.
    let _ = stream.read_to_end(&mut got);
    assert!(got.len() < 100_001 + 5, "{} bytes", got.len());
    eventually("it is closed", || server.metrics().sum(|l| l.open) == 1);
    other.write_all(b"a").unwrap();
    assert_eq!(other.read(&mut [0; 1]).unwrap(), 1);
    server.stop();
}

#[test]
fn a_peer_that_does_not_read_holds_its_file_back_and_gets_all_of_it() {
    let contents = contents(20_000_000);
    let sender = FileSender::new(file_of(&contents), 7, contents.len() - 7);
    let traffic = Traffic { output_high_water: 100_000, output_low_water: 10_000, ..Traffic::default() };
    let settings = crate::harness::with(1, traffic);
    let server = serve(settings, Making::each(move |_, _| Box::new(sender.clone())));
    let mut stream = server.connect();
    stream.write_all(b"abc").unwrap();
    let (mut sent, mut same) = (0, 0);
    eventually("the kernel takes no more", || {
        let now = server.metrics().sum(|l| l.bytes_out);
        same = if now == sent { same + 1 } else { 0 };
        sent = now;
        now > 0 && same > 50
    });
    assert!((sent as usize) < contents.len(), "all was taken");
    assert!(rest_after_half_close(&mut stream) == expected(&contents, 3));
    server.stop();
}
