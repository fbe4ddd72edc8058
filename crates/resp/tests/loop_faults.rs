//! The client on an event loop, with servers that misbehave.

use crate::certificate::Authority;
use crate::fake_server::{FakeServer, Peer, script};
use crate::on_loop::{OnLoop, PATIENCE, resolve};
use resp::{CommandError, Lost, NotSent, Pipeline, Tls};
use std::time::{Duration, Instant};

/// Short enough to wait for, long enough for a busy machine.
const SHORT: Duration = Duration::from_millis(300);
/// A test that waits this long has failed.
const NEVER: Duration = Duration::from_secs(3600);

fn pong(peer: &mut Peer) {
    peer.expect("PING");
    peer.send(b"+PONG\r\n");
    peer.expect_end();
}

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
            script(pong),
        ]);
        let on_loop = OnLoop::start(server.settings.clone());
        on_loop.command::<()>(("GET", "first")).unwrap();
        let error = on_loop.begin::<String>(("GET", "k"), timeout).recv_timeout(PATIENCE).unwrap().unwrap_err();
        assert!(expected(&error), "{error:?}");
        assert_eq!(on_loop.command::<String>("PING").unwrap(), "PONG");
        drop(on_loop);
        server.finish();
    }
}

#[test]
fn a_connection_that_closes_before_the_reply_or_inside_it_leaves_the_outcome_unknown() {
    let is_closed = |error: &CommandError| matches!(error, CommandError::OutcomeUnknown(Lost::Closed));
    check_fault(|peer| peer.expect("GET"), NEVER, is_closed);
    let half = |peer: &mut Peer| {
        peer.expect("GET");
        peer.send(b"$10\r\nhal");
    };
    check_fault(half, NEVER, is_closed);
}

#[test]
fn garbage_is_a_protocol_error_and_the_connection_is_not_used_again() {
    let run = |peer: &mut Peer| {
        peer.expect("GET");
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n+PONG\r\n");
        peer.expect_end();
    };
    check_fault(run, NEVER, |error| {
        matches!(error, CommandError::Protocol(resp::codec::ProtocolError::ReplyType(b'H')))
    });
}

#[test]
fn a_command_without_a_reply_ends_at_its_deadline_and_a_late_reply_reaches_nobody() {
    let run = |peer: &mut Peer| {
        peer.expect("GET");
        // The client closes at the deadline. Only then the reply of GET is sent, which PING must not receive.
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
        while started.elapsed() < SHORT * 20 && peer.send_some(b"+") == 1 {
            std::thread::sleep(SHORT / 20);
        }
    };
    check_fault(run, SHORT, |error| matches!(error, CommandError::OutcomeUnknown(Lost::TimedOut)));
}

#[test]
fn a_late_reply_costs_the_other_commands_of_its_connection_and_later_deadlines_are_kept_too() {
    let server = FakeServer::start(vec![
        script(|peer| {
            ["patient", "short", "behind"].into_iter().for_each(|key| peer.expect(key));
            peer.expect_end();
        }),
        script(|peer| {
            peer.expect("again");
            peer.expect_end();
        }),
    ]);
    let on_loop = OnLoop::start(server.settings.clone());
    let patient = on_loop.begin::<()>(("GET", "patient"), NEVER);
    let short = on_loop.begin::<()>(("GET", "short"), SHORT);
    let behind = on_loop.begin::<()>(("GET", "behind"), NEVER);
    let outcome = |of: std::sync::mpsc::Receiver<_>| of.recv_timeout(PATIENCE).expect("an outcome");
    assert!(matches!(outcome(patient), Err(CommandError::OutcomeUnknown(Lost::Closed))));
    assert!(matches!(outcome(short), Err(CommandError::OutcomeUnknown(Lost::TimedOut))));
    assert!(matches!(outcome(behind), Err(CommandError::OutcomeUnknown(Lost::Closed))));
    let again = on_loop.begin::<()>(("GET", "again"), SHORT);
    assert!(matches!(outcome(again), Err(CommandError::OutcomeUnknown(Lost::TimedOut))));
    server.finish();
}

#[test]
fn commands_leave_without_waiting_for_replies_and_replies_come_to_their_own_callers() {
    let server = FakeServer::start(vec![script(|peer| {
        ["a", "b", "c", "d"].into_iter().for_each(|key| peer.expect(key));
        peer.send(b":1\r\n-ERR no\r\n:3\r\n");
        // In pieces.
        peer.send(b"*2\r\n$1\r\n");
        std::thread::sleep(Duration::from_millis(20));
        peer.send(b"x\r\n:4\r\n");
        peer.expect_end();
    })]);
    let on_loop = OnLoop::start(server.settings.clone());
    let a = on_loop.begin::<i64>(("GET", "a"), NEVER);
    let b = on_loop.begin::<i64>(("GET", "b"), NEVER);
    let c = on_loop.begin::<String>(("GET", "c"), NEVER);
    let d = on_loop.begin::<(String, i64)>(("GET", "d"), NEVER);
    assert_eq!(a.recv_timeout(PATIENCE).unwrap().unwrap(), 1);
    let refused = b.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(&refused, Err(CommandError::Server(error)) if error.code() == "ERR"), "{refused:?}");
    assert_eq!(c.recv_timeout(PATIENCE).unwrap().unwrap(), "3");
    assert_eq!(d.recv_timeout(PATIENCE).unwrap().unwrap(), ("x".to_owned(), 4));
    drop(on_loop);
    server.finish();
}

#[test]
fn a_completion_sends_further_commands_and_reads_its_reply_in_place() {
    let server = FakeServer::start(vec![script(|peer| {
        peer.expect("a");
        peer.send(b"$1\r\nb\r\n");
        peer.expect("\r\nb\r\n");
        peer.send(b"$4\r\ndone\r\n");
        peer.expect_end();
    })]);
    let on_loop = OnLoop::start(server.settings.clone());
    let outcome = on_loop.ask(|client, at, sender| {
        let again = client.clone();
        let sent = client.view(at, ("GET", "a"), move |reply, at| {
            let key = reply.unwrap().text().unwrap();
            let sent = again.command(at, ("GET", key), move |text: Result<String, CommandError>, _| {
                sender.send(text.unwrap()).unwrap();
            });
            sent.unwrap();
        });
        sent.unwrap();
    });
    assert_eq!(outcome.recv_timeout(PATIENCE).unwrap(), "done");
    drop(on_loop);
    server.finish();
}

#[test]
fn replies_that_came_before_the_connection_was_lost_are_results_of_their_commands() {
    let server = FakeServer::start(vec![script(|peer| {
        ["a", "b", "c", "d"].into_iter().for_each(|key| peer.expect(key));
        peer.send(b":1\r\n-ERR no\r\n$5\r\nhal");
    })]);
    let on_loop = OnLoop::start(server.settings.clone());
    let outcome = on_loop.ask(|client, at, sender| {
        let mut pipeline = Pipeline::new();
        pipeline.add(("GET", "a")).add(("GET", "b")).add(("GET", "c")).add(("GET", "d"));
        client.pipeline::<i64>(at, &pipeline, move |results, _| sender.send(results).unwrap()).unwrap();
    });
    let results = outcome.recv_timeout(PATIENCE).unwrap().unwrap();
    assert!(matches!(results[0], Ok(1)));
    assert!(matches!(&results[1], Err(CommandError::Server(error)) if error.code() == "ERR"));
    assert!(matches!(results[2], Err(CommandError::OutcomeUnknown(Lost::Closed))));
    assert!(matches!(results[3], Err(CommandError::OutcomeUnknown(Lost::Closed))));
    assert_eq!(results.len(), 4);
    server.finish();
}

#[test]
fn a_pipeline_that_is_not_sent_fails_as_a_whole() {
    let server = FakeServer::start(vec![]);
    let settings = server.settings.clone();
    server.finish();
    let on_loop = OnLoop::start(settings);
    let outcome = on_loop.ask(|client, at, sender| {
        let mut pipeline = Pipeline::new();
        pipeline.add("PING").add("PING");
        let short = client.within(SHORT);
        short.pipeline::<()>(at, &pipeline, move |results, _| sender.send(results).unwrap()).unwrap();
    });
    let outcome = outcome.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(outcome, Err(CommandError::NotSent(NotSent::Connect(_)))), "{outcome:?}");
}

#[test]
fn a_refused_session_reaches_every_command_and_no_command_reaches_the_server() {
    let refuse = |peer: &mut Peer| {
        peer.expect("AUTH");
        peer.expect("SELECT");
        peer.send(b"-WRONGPASS no\r\n-NOAUTH\r\n");
        peer.expect_end();
    };
    let server = FakeServer::start(vec![script(refuse)]);
    let mut settings = server.settings.clone();
    (settings.password, settings.database) = (Some("x".to_owned()), 3);
    let on_loop = OnLoop::start(settings);
    // Both in one turn of the loop: a command behind the refusal would need another connection.
    let outcomes = on_loop.ask(|client, at, sender| {
        for key in ["a", "b"] {
            let sender = sender.clone();
            let sent = client
                .command(at, ("GET", key), move |result: Result<(), CommandError>, _| sender.send(result).unwrap());
            assert!(sent.is_ok(), "{:?}", sent.err());
        }
    });
    for _ in 0..2 {
        let outcome = outcomes.recv_timeout(PATIENCE).unwrap();
        assert!(
            matches!(&outcome, Err(CommandError::NotSent(NotSent::Handshake(error))) if error.code() == "WRONGPASS"),
            "{outcome:?}"
        );
    }
    server.finish();
}

#[test]
fn a_session_that_the_server_does_not_answer_is_given_up_in_its_time() {
    let server = FakeServer::start(vec![
        script(|peer| {
            peer.expect("HELLO");
            peer.expect_end();
        }),
        script(|peer| {
            peer.expect("HELLO");
            peer.send(b"%0\r\n");
            pong(peer);
        }),
    ]);
    let mut settings = server.settings.clone();
    (settings.version, settings.connect_timeout) = (resp::codec::ProtocolVersion::Resp3, SHORT);
    let on_loop = OnLoop::start(settings);
    assert_eq!(on_loop.command::<String>("PING").unwrap(), "PONG");
    drop(on_loop);
    server.finish();
}

#[test]
fn a_database_and_a_user_are_those_of_later_connections_once_the_server_has_agreed() {
    let server = FakeServer::start(vec![
        script(|peer| {
            peer.expect("5");
            peer.send(b"+OK\r\n");
            peer.expect("7");
            peer.send(b"-ERR DB index is out of range\r\n");
            peer.expect("secret");
            peer.send(b"+OK\r\n");
        }),
        script(|peer| {
            peer.expect("*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$6\r\nsecret\r\n");
            peer.expect("*2\r\n$6\r\nSELECT\r\n$1\r\n5\r\n");
            peer.send(b"+OK\r\n+OK\r\n");
            pong(peer);
        }),
    ]);
    let on_loop = OnLoop::start(server.settings.clone());
    let outcome = on_loop.ask(|client, at, sender| {
        let [five, seven] = [sender.clone(), sender.clone()];
        client.select(at, 5, move |outcome, _| five.send(outcome.is_ok()).unwrap()).unwrap();
        client.select(at, 7, move |outcome, _| seven.send(outcome.is_ok()).unwrap()).unwrap();
        client.authenticate(at, Some("me"), "secret", move |outcome, _| sender.send(outcome.is_ok()).unwrap()).unwrap();
    });
    assert_eq!([(); 3].map(|()| outcome.recv_timeout(PATIENCE).unwrap()), [true, false, true]);
    // Its end is noticed before the next command.
    on_loop.eventually("the connection has ended", |_| true);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(on_loop.command::<String>("PING").unwrap(), "PONG");
    drop(on_loop);
    server.finish();
}

#[test]
fn a_server_that_nobody_listens_at_is_reported_at_the_deadline_and_the_queue_is_bounded() {
    let server = FakeServer::start(vec![]);
    let mut settings = server.settings.clone();
    server.finish();
    settings.queue_bytes_max = 100;
    let on_loop = OnLoop::start(settings);
    let outcome = on_loop.begin::<()>("PING", SHORT).recv_timeout(PATIENCE).unwrap();
    assert!(
        matches!(&outcome, Err(CommandError::NotSent(NotSent::Connect(error))) if error.kind() == std::io::ErrorKind::ConnectionRefused),
        "{outcome:?}"
    );
    let full = on_loop.ask(|client, at, sender| {
        // Each INCR takes 21 bytes.
        let outcomes: Vec<_> = (0..5).map(|_| client.noreply(at, ("INCR", "a"))).collect();
        sender.send((outcomes, client.queued_bytes())).unwrap();
    });
    let (outcomes, queued_bytes) = full.recv_timeout(PATIENCE).unwrap();
    assert!(outcomes[..4].iter().all(Result::is_ok));
    assert!(matches!(outcomes[4], Err(NotSent::QueueFull)));
    assert_eq!(queued_bytes, 84);
}

#[test]
fn what_a_server_does_not_take_or_answer_is_bounded() {
    let server = FakeServer::start(vec![script(|peer| {
        peer.expect("first");
        peer.send(b":1\r\n");
        // Nothing more is read until the client closes.
        std::thread::sleep(SHORT);
    })]);
    let mut settings = resolve(server.settings.clone());
    (settings.in_flight_max, settings.unsent_bytes_max) = (3, 100_000);
    let on_loop = OnLoop::start_with(settings);
    on_loop.command::<()>(("GET", "first")).unwrap();
    let outcomes = on_loop.ask(|client, at, sender| {
        let outcomes: Vec<_> =
            (0..4).map(|_| client.command(at, "PING", |_: Result<(), CommandError>, _| {})).collect();
        sender.send(outcomes).unwrap();
    });
    let outcomes = outcomes.recv_timeout(PATIENCE).unwrap();
    assert!(outcomes[..3].iter().all(Result::is_ok), "{outcomes:?}");
    assert!(matches!(outcomes[3], Err(NotSent::Congested)), "{outcomes:?}");
    server.finish();
}

#[test]
fn bytes_that_the_server_does_not_take_are_bounded() {
    let server = FakeServer::start(vec![script(|peer| {
        peer.expect("first");
        peer.send(b":1\r\n");
        std::thread::sleep(SHORT);
    })]);
    let mut settings = resolve(server.settings.clone());
    settings.unsent_bytes_max = 100_000;
    let on_loop = OnLoop::start_with(settings);
    on_loop.command::<()>(("GET", "first")).unwrap();
    let outcomes = on_loop.ask(|client, at, sender| {
        let value = vec![0u8; 60_000];
        let outcomes: Vec<_> = (0..3).map(|_| client.noreply(at, ("SET", "k", &value))).collect();
        sender.send(outcomes).unwrap();
    });
    let outcomes = outcomes.recv_timeout(PATIENCE).unwrap();
    assert!(outcomes[..2].iter().all(Result::is_ok), "{outcomes:?}");
    assert!(matches!(outcomes[2], Err(NotSent::Congested)), "{outcomes:?}");
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
    let on_loop = OnLoop::start(settings);
    let error = on_loop.command::<()>(("SET", "k", vec![0u8; 1000])).unwrap_err();
    assert!(matches!(error, CommandError::NotSent(NotSent::TooLarge { bytes: 1029 })), "{error:?}");
    let error = on_loop.command::<()>(("GET", "k")).unwrap_err();
    assert!(matches!(error, CommandError::OutcomeUnknown(Lost::TooLarge)), "{error:?}");
    server.finish();
}

#[test]
fn a_server_that_reads_no_more_until_its_replies_are_read_gets_its_replies_read() {
    // Far more than both sockets hold in either direction.
    const COMMANDS: usize = 64;
    let text = vec![b'x'; 256 << 10];
    let reply = [format!("${}\r\n", text.len()).into_bytes(), text.clone(), b"\r\n".to_vec()].concat();
    for start in [FakeServer::start, FakeServer::start_tls] {
        let (reply, text) = (reply.clone(), text.clone());
        let server = start(vec![script(move |peer| {
            for _ in 0..COMMANDS {
                peer.request().expect("a request");
                peer.send(&reply);
            }
            peer.expect_end();
        })]);
        let on_loop = OnLoop::start(server.settings.clone());
        let outcome = on_loop.ask(move |client, at, sender| {
            let mut pipeline = Pipeline::new();
            for _ in 0..COMMANDS {
                pipeline.add(("ECHO", &text));
            }
            client.pipeline::<Vec<u8>>(at, &pipeline, move |results, _| sender.send(results).unwrap()).unwrap();
        });
        let replies = outcome.recv_timeout(PATIENCE * 2).unwrap().unwrap();
        assert_eq!(replies.len(), COMMANDS);
        assert!(replies.into_iter().all(|reply| reply.unwrap().len() == 256 << 10));
        drop(on_loop);
        server.finish();
    }
}

#[test]
fn a_reply_that_nobody_asked_for_ends_the_connection_and_pushes_are_no_replies() {
    let server = FakeServer::start(vec![
        script(|peer| {
            peer.expect("GET");
            peer.send(b">2\r\n+invalidate\r\n*1\r\n+k\r\n:1\r\n>1\r\n+x\r\n");
            peer.expect("GET");
            peer.send(b":2\r\n:3\r\n");
            peer.expect_end();
        }),
        script(pong),
    ]);
    let on_loop = OnLoop::start(server.settings.clone());
    assert_eq!(on_loop.command::<i64>(("GET", "k")).unwrap(), 1);
    assert_eq!(on_loop.command::<i64>(("GET", "k")).unwrap(), 2);
    // Before the third reply has arrived, it may still be under way.
    std::thread::sleep(SHORT);
    assert_eq!(on_loop.command::<String>("PING").unwrap(), "PONG");
    drop(on_loop);
    server.finish();
}

#[test]
fn a_completion_that_panics_costs_the_connection_and_no_more() {
    let server = FakeServer::start(vec![
        script(|peer| {
            peer.expect("a");
            peer.expect("b");
            peer.send(b":1\r\n:2\r\n");
            peer.expect_end();
        }),
        script(pong),
    ]);
    let on_loop = OnLoop::start(server.settings.clone());
    on_loop.run(|client, at| {
        client.command(at, ("GET", "a"), |_: Result<(), CommandError>, _| panic!("on purpose")).unwrap();
    });
    let behind = on_loop.begin::<i64>(("GET", "b"), NEVER).recv_timeout(PATIENCE).unwrap();
    assert!(matches!(behind, Err(CommandError::OutcomeUnknown(Lost::Closed))), "{behind:?}");
    assert_eq!(on_loop.command::<String>("PING").unwrap(), "PONG");
    drop(on_loop);
    server.finish();
}

#[test]
fn the_connection_ends_with_the_last_handle_and_a_drain_answers_what_is_in_flight() {
    let slowly = |peer: &mut Peer| {
        peer.expect("GET");
        std::thread::sleep(Duration::from_millis(100));
        peer.send(b":1\r\n");
        peer.expect_end();
    };
    let server = FakeServer::start(vec![script(slowly), script(slowly)]);
    let on_loop = OnLoop::start(server.settings.clone());
    let outcome = on_loop.begin::<i64>(("GET", "k"), NEVER);
    on_loop.drop_client();
    assert_eq!(outcome.recv_timeout(PATIENCE).unwrap().unwrap(), 1);
    let other = OnLoop::start(server.settings.clone());
    let outcome = other.begin::<i64>(("GET", "k"), NEVER);
    other.eventually("the command has left", |client| client.in_flight() == 1);
    other.running().drain(PATIENCE);
    assert_eq!(outcome.recv_timeout(PATIENCE).unwrap().unwrap(), 1);
    // Both connections have ended by now, although the first loop keeps running.
    server.finish();
}

#[test]
fn a_server_that_is_not_trusted_is_reported_at_the_first_attempt() {
    let server = FakeServer::start_tls(vec![script(Peer::expect_refusal)]);
    let mut settings = server.settings.clone();
    settings.tls = Some(Tls::with_roots(Authority::new().certificate.as_bytes(), "127.0.0.1").unwrap());
    let on_loop = OnLoop::start(settings);
    let error = on_loop.begin::<()>("PING", NEVER).recv_timeout(PATIENCE).unwrap().unwrap_err();
    assert!(matches!(error, CommandError::NotSent(NotSent::Tls(_))), "{error:?}");
    assert!(error.to_string().contains("TLS: the server's certificate has an unknown issuer"), "{error}");
    server.finish();
}

#[test]
fn a_server_that_ends_each_connection_at_once_is_not_asked_again_at_once() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut settings = resp::ClientSettings::of(&format!("redis://{}", listener.local_addr().unwrap())).unwrap();
    (settings.backoff_min, settings.backoff_max) = (NEVER, NEVER);
    let on_loop = OnLoop::start(settings);
    let first = on_loop.begin::<()>("PING", NEVER);
    drop(listener.accept().unwrap());
    assert!(matches!(first.recv_timeout(PATIENCE).unwrap(), Err(CommandError::OutcomeUnknown(Lost::Closed))));
    let second = on_loop.begin::<()>("PING", SHORT).recv_timeout(PATIENCE).unwrap();
    assert!(matches!(second, Err(CommandError::NotSent(NotSent::Connect(_)))), "{second:?}");
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}
