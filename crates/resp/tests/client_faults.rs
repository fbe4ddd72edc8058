//! Servers that misbehave: half a reply, garbage, silence, a late reply, no more reading.

use crate::fake_server::{FakeServer, Peer, script};
use resp::{Client, ClientSettings, CommandError, Lost, NotSent, Pipeline};
use std::time::{Duration, Instant};

/// Short enough to wait for, long enough for a busy machine.
const SHORT: Duration = Duration::from_millis(300);

/// One connection that answers once and then fails in the given way, and one that answers PONG: the caller of PING receives
/// only the PONG. Run without TLS and with it.
fn check_fault(
    run: impl FnOnce(&mut Peer) + Clone + Send + 'static,
    timeout: Duration,
    expected: impl Fn(&CommandError) -> bool,
) {
    for start in [FakeServer::start, FakeServer::start_tls] {
        let run = run.clone();
        let server = start(vec![
            script(|peer| {
                peer.expect("first");
                peer.send(b":1\r\n");
                run(peer);
            }),
            script(|peer| {
                peer.expect("PING");
                peer.send(b"+PONG\r\n");
                peer.expect_end();
            }),
        ]);
        let mut client = Client::new(server.settings.clone());
        client.command::<()>(("GET", "first")).unwrap();
        client.set_timeout(timeout);
        let error = client.command::<String>(("GET", "k")).unwrap_err();
        assert!(expected(&error), "{error:?}");
        client.set_timeout(Duration::from_secs(20));
        assert_eq!(client.command::<String>("PING").unwrap(), "PONG");
        drop(client);
        server.finish();
    }
}

#[test]
fn a_connection_that_closes_before_the_reply_leaves_the_outcome_unknown() {
    check_fault(
        |peer| peer.expect("GET"),
        Duration::from_secs(20),
        |error| matches!(error, CommandError::OutcomeUnknown(Lost::Closed)),
    );
}

#[test]
fn a_connection_that_closes_in_the_middle_of_a_reply_leaves_the_outcome_unknown() {
    let run = |peer: &mut Peer| {
        peer.expect("GET");
        peer.send(b"$10\r\nhal");
    };
    check_fault(run, Duration::from_secs(20), |error| matches!(error, CommandError::OutcomeUnknown(Lost::Closed)));
}

#[test]
fn garbage_is_a_protocol_error_and_the_connection_is_not_used_again() {
    let run = |peer: &mut Peer| {
        peer.expect("GET");
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n+PONG\r\n");
        peer.expect_end();
    };
    check_fault(run, Duration::from_secs(20), |error| {
        matches!(error, CommandError::Protocol(resp::codec::ProtocolError::ReplyType(b'H')))
    });
}

#[test]
fn a_server_that_does_not_answer_ends_the_call_at_its_deadline_and_a_late_reply_reaches_nobody() {
    let run = |peer: &mut Peer| {
        peer.expect("GET");
        // The client closes at its deadline. Only then the reply of GET is sent, which PING must not receive.
        peer.expect_end();
        peer.send_some(b"$4\r\nlate\r\n");
    };
    check_fault(run, SHORT, |error| matches!(error, CommandError::OutcomeUnknown(Lost::TimedOut)));
}

#[test]
fn a_server_that_sends_a_reply_byte_by_byte_does_not_stretch_the_deadline() {
    let run = |peer: &mut Peer| {
        peer.expect("GET");
        let started = Instant::now();
        // Longer than the client waits, with a byte well before each possible timeout of the socket.
        while started.elapsed() < SHORT * 20 && peer.send_some(b"+") == 1 {
            std::thread::sleep(SHORT / 20);
        }
    };
    check_fault(run, SHORT, |error| matches!(error, CommandError::OutcomeUnknown(Lost::TimedOut)));
}

#[test]
fn a_connection_that_the_server_closed_while_it_was_idle_costs_no_command() {
    let answer = |peer: &mut Peer| {
        peer.expect("GET");
        peer.send(b":1\r\n");
    };
    let server = FakeServer::start(vec![script(answer), script(answer)]);
    let mut client = Client::new(server.settings.clone());
    client.command::<()>(("GET", "k")).unwrap();
    std::thread::sleep(SHORT);
    client.command::<()>(("GET", "k")).unwrap();
    server.finish();
}

#[test]
fn a_reply_that_nobody_asked_for_is_not_taken_for_the_next_one() {
    let server = FakeServer::start(vec![
        script(|peer| {
            peer.expect("GET");
            peer.send(b":1\r\n:2\r\n");
            peer.expect_end();
        }),
        script(|peer| {
            peer.expect("GET");
            peer.send(b":3\r\n");
            peer.expect_end();
        }),
    ]);
    let mut client = Client::new(server.settings.clone());
    assert_eq!(client.command::<i64>(("GET", "k")).unwrap(), 1);
    // Before the second reply has arrived, it may still be under way.
    std::thread::sleep(SHORT);
    assert_eq!(client.command::<i64>(("GET", "k")).unwrap(), 3);
    drop(client);
    server.finish();
}

#[test]
fn replies_that_came_before_the_connection_was_lost_are_results_of_their_commands() {
    let server = FakeServer::start(vec![script(|peer| {
        peer.expect("a");
        peer.expect("b");
        peer.expect("c");
        peer.send(b":1\r\n-ERR no\r\n$5\r\nhal");
    })]);
    let mut client = Client::new(server.settings.clone());
    let mut pipeline = Pipeline::new();
    pipeline.add(("GET", "a")).add(("GET", "b")).add(("GET", "c")).add(("GET", "d"));
    let results = client.pipeline::<i64>(&pipeline).unwrap();
    assert!(matches!(results[0], Ok(1)));
    assert!(matches!(&results[1], Err(CommandError::Server(error)) if error.code() == "ERR"));
    assert!(matches!(results[2], Err(CommandError::OutcomeUnknown(Lost::Closed))));
    assert!(matches!(results[3], Err(CommandError::OutcomeUnknown(Lost::Closed))));
    assert_eq!(results.len(), 4);
    drop(client);
    server.finish();
}

#[test]
fn a_server_that_reads_no_more_until_its_replies_are_read_gets_its_replies_read() {
    // Far more than both sockets hold in either direction.
    const COMMANDS: usize = 64;
    let text = vec![b'x'; 256 << 10];
    let reply = [format!("${}\r\n", text.len()).into_bytes(), text.clone(), b"\r\n".to_vec()].concat();
    let mut pipeline = Pipeline::new();
    for _ in 0..COMMANDS {
        pipeline.add(("ECHO", &text));
    }
    for start in [FakeServer::start, FakeServer::start_tls] {
        let reply = reply.clone();
        let server = start(vec![script(move |peer| {
            for _ in 0..COMMANDS {
                peer.request().expect("a request");
                peer.send(&reply);
            }
            peer.expect_end();
        })]);
        let mut client = Client::new(server.settings.clone());
        let mut replies = 0;
        client
            .pipeline_with(&pipeline, |_, reply| {
                assert_eq!(reply.text().map(<[u8]>::len), Some(text.len()));
                replies += 1;
            })
            .unwrap();
        assert_eq!(replies, COMMANDS);
        drop(client);
        server.finish();
    }
}

#[test]
fn a_server_that_reads_nothing_ends_the_call_at_its_deadline() {
    for start in [FakeServer::start, FakeServer::start_tls] {
        let server = start(vec![script(|peer| {
            peer.expect("first");
            peer.send(b"+OK\r\n");
            std::thread::sleep(SHORT * 4);
        })]);
        let mut client = Client::new(server.settings.clone());
        client.command::<()>(("SET", "first", 1)).unwrap();
        client.set_timeout(SHORT);
        let error = client.command::<()>(("SET", "k", vec![0u8; 64 << 20])).unwrap_err();
        assert!(matches!(error, CommandError::OutcomeUnknown(Lost::TimedOut)), "{error:?}");
        server.finish();
    }
}

#[test]
fn the_longest_of_all_times_is_a_time_to_wait() {
    let server = FakeServer::start(vec![script(|peer| {
        peer.expect("GET");
        peer.send(b"$4\r\n");
        std::thread::sleep(Duration::from_millis(20));
        peer.send(b"late\r\n");
    })]);
    let mut settings = server.settings.clone();
    (settings.timeout, settings.connect_timeout) = (Duration::MAX, Duration::MAX);
    assert_eq!(Client::new(settings).command::<String>(("GET", "k")).unwrap(), "late");
    server.finish();
}

#[test]
fn what_is_too_large_is_refused_before_and_after() {
    let server = FakeServer::start(vec![script(|peer| {
        peer.expect("GET");
        peer.send(format!("${}\r\n", 1 << 20).as_bytes());
        peer.send_some(&vec![0; 1 << 20]);
        peer.expect_end();
    })]);
    let mut settings = server.settings.clone();
    (settings.request_bytes_max, settings.reply_bytes_max) = (1000, 100_000);
    let mut client = Client::new(settings);
    let error = client.command::<()>(("SET", "k", vec![0u8; 1000])).unwrap_err();
    assert!(matches!(error, CommandError::NotSent(NotSent::TooLarge { bytes: 1029 })), "{error:?}");
    let error = client.command::<()>(("GET", "k")).unwrap_err();
    assert!(matches!(error, CommandError::OutcomeUnknown(Lost::TooLarge)), "{error:?}");
    server.finish();
}

#[test]
fn a_reply_may_have_as_many_bytes_as_are_allowed_and_not_one_more() {
    let reply = |bytes: usize| {
        let text = "x".repeat(bytes - b"$99988\r\n\r\n".len());
        format!("${}\r\n{text}\r\n", text.len())
    };
    let server = FakeServer::start(vec![script(move |peer| {
        for bytes in [100_000, 100_001] {
            peer.expect("GET");
            peer.send_some(reply(bytes).as_bytes());
        }
        peer.expect_end();
    })]);
    let mut client = Client::new(ClientSettings { reply_bytes_max: 100_000, ..server.settings.clone() });
    assert_eq!(client.command::<String>(("GET", "k")).unwrap().len(), 99_990);
    let error = client.command::<String>(("GET", "k")).unwrap_err();
    assert!(matches!(error, CommandError::OutcomeUnknown(Lost::TooLarge)), "{error:?}");
    server.finish();
}

#[test]
fn a_server_that_nobody_listens_at_is_reported_within_the_time_of_the_call() {
    let server = FakeServer::start(vec![]);
    let mut settings = server.settings.clone();
    server.finish();
    settings.timeout = SHORT;
    let mut client = Client::new(settings);
    let error = client.command::<()>("PING").unwrap_err();
    assert!(matches!(error, CommandError::NotSent(NotSent::Connect(_))), "{error:?}");
}

#[test]
fn a_server_that_closes_at_an_unknown_command_is_served_without_it() {
    let server = FakeServer::start(vec![
        script(|peer| peer.expect("CLIENT")),
        script(|peer| {
            for _ in 0..200 {
                peer.expect("INCR");
                peer.send(b":1\r\n");
            }
            peer.expect("GET");
            peer.send(b":200\r\n");
            peer.expect_end();
        }),
    ]);
    let mut client = Client::new(server.settings.clone());
    (0..200).for_each(|_| client.noreply(("INCR", "n")).unwrap());
    assert_eq!(client.command::<i64>(("GET", "n")).unwrap(), 200);
    drop(client);
    server.finish();
}

#[test]
fn a_server_that_takes_client_reply_off_and_goes_on_replying_is_found_out() {
    let server = FakeServer::start(vec![script(|peer| {
        peer.expect("OFF");
        peer.expect("ON");
        peer.expect("PING");
        peer.send(b"+OK\r\n+OK\r\n+PONG\r\n");
        peer.expect("INCR");
        peer.send(b":1\r\n");
        peer.expect("GET");
        peer.send(b":7\r\n");
        peer.expect_end();
    })]);
    let mut client = Client::new(server.settings.clone());
    client.noreply(("INCR", "n")).unwrap();
    assert_eq!(client.command::<i64>(("GET", "n")).unwrap(), 7);
    drop(client);
    server.finish();
}

#[test]
fn pushes_are_no_replies() {
    let server = FakeServer::start(vec![script(|peer| {
        peer.expect("GET");
        peer.send(b">2\r\n+invalidate\r\n*1\r\n+k\r\n:1\r\n>1\r\n+x\r\n");
        peer.expect("GET");
        peer.send(b":2\r\n");
        peer.expect_end();
    })]);
    let mut client = Client::new(server.settings.clone());
    assert_eq!(client.command::<i64>(("GET", "k")).unwrap(), 1);
    assert_eq!(client.command::<i64>(("GET", "k")).unwrap(), 2);
    drop(client);
    server.finish();
}

#[test]
fn a_panic_of_the_caller_between_replies_costs_the_connection_and_no_more() {
    let server = FakeServer::start(vec![
        script(|peer| {
            peer.expect("a");
            peer.expect("b");
            peer.send(b":7\r\n");
            peer.expect_end();
        }),
        script(|peer| {
            peer.expect("c");
            peer.send(b":1\r\n");
        }),
    ]);
    let mut client = Client::new(server.settings.clone());
    let mut pipeline = Pipeline::new();
    pipeline.add(("GET", "a")).add(("GET", "b"));
    let panicking = std::panic::AssertUnwindSafe(|| client.pipeline_with(&pipeline, |_, _| panic!("on purpose")));
    assert!(std::panic::catch_unwind(panicking).is_err());
    assert_eq!(client.command::<i64>(("GET", "c")).unwrap(), 1);
    server.finish();
}
