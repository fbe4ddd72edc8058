//! Requests and replies in any pieces: every split of sample requests, and a node that answers byte by byte.

use std::io::{Read, Write};
use std::net::TcpListener;

use crate::nodes::{Plain, Sharded, address_of, is_there, start_proxy};

const SAMPLES: [(&[u8], &[u8]); 6] = [
    (b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4\r\n\r\n\0\xff\r\n", b"+OK\r\n"),
    (b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n", b"$4\r\n\r\n\0\xff\r\n"),
    (b"*4\r\n$4\r\nMGET\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n", b"*3\r\n$4\r\n\r\n\0\xff\r\n$-1\r\n$-1\r\n"),
    (b"PING\r\n", b"+PONG\r\n"),
    (b"*1\r\n$5\r\nMULTI\r\n*2\r\n$3\r\nGET\r\n$1\r\nb\r\n*1\r\n$4\r\nEXEC\r\n", b"+OK\r\n+QUEUED\r\n*1\r\n$-1\r\n"),
    (
        b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n*0\r\n*2\r\n$4\r\nINCR\r\n$1\r\nx\r\n*2\r\n$3\r\nDEL\r\n$1\r\nx\r\n",
        b"$0\r\n\r\n:1\r\n:1\r\n",
    ),
];

#[test]
fn a_request_may_be_split_anywhere() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let mut plain = sharded.connect();
    plain.stream().set_nodelay(true).unwrap();
    for (request, reply) in SAMPLES {
        for split in 0..request.len() {
            plain.write(&request[..split]);
            // A short pause, so that most splits lead to two reads.
            std::thread::sleep(std::time::Duration::from_micros(300));
            plain.write(&request[split..]);
            let mut got = Vec::new();
            while got.len() < reply.len() {
                got.extend(plain.next_reply());
            }
            assert_eq!(got, reply, "split at {split} of {}", String::from_utf8_lossy(request));
        }
    }
}

#[test]
fn a_reply_may_be_split_anywhere() {
    let replies: [&[u8]; 4] = [
        b"$4\r\n\r\n\0\xff\r\n",
        b"*2\r\n*1\r\n:17\r\n$-1\r\n",
        b"-ERR text\r\n",
        b"%1\r\n+a\r\n|1\r\n+k\r\n:1\r\n,1.5\r\n",
    ];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = start_proxy(&[listener.local_addr().unwrap()], |_| {});
    let mut plain = Plain::connect(address_of(&proxy));
    plain.send([&[b"GET".as_slice(), b"a"][..]]);
    let (mut node, _) = listener.accept().unwrap();
    node.set_nodelay(true).unwrap();
    let mut request = [0; 200];
    let taken = node.read(&mut request).unwrap();
    assert!(request[..taken].starts_with(b"*1\r\n$7\r\nCOMMAND\r\n"));
    node.write_all(b"*0\r\n+first\r\n").unwrap();
    assert_eq!(plain.next_reply(), b"+first\r\n");
    for reply in replies {
        for split in 1..reply.len() {
            plain.send([&[b"GET".as_slice(), b"a"][..], &[b"GET", b"b"]]);
            let mut taken = 0;
            while taken < 40 {
                taken += node.read(&mut request).unwrap();
            }
            node.write_all(&reply[..split]).unwrap();
            std::thread::sleep(std::time::Duration::from_micros(300));
            node.write_all(&reply[split..]).unwrap();
            node.write_all(reply).unwrap();
            assert_eq!(plain.next_reply(), reply, "split at {split}");
            assert_eq!(plain.next_reply(), reply, "behind a split at {split}");
        }
    }
    drop(plain);
    proxy.drain(std::time::Duration::ZERO);
    proxy.join().unwrap();
}
