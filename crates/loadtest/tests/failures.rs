//! Every failure is counted by its kind.

use crate::harness::{Answer, Server, closed, finish, ok, open, record, reply, unused_address};
use loadtest::Validity;
use loadtest::engine::{Load, LoadSettings, Watchers};
use loadtest::profile::Profile;
use loadtest::source::{Described, Observed, Observer, ReplyVerdict, RequestSource, SourceError};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, mpsc};
use std::time::Duration;

#[test]
fn wrong_closed_cut_and_malformed_replies_are_counted_each() {
    let server = Server::start(|arrived| match arrived.number % 5 {
        0 => ok(),
        1 => Answer::Bytes(reply(500, "no")),
        2 => Answer::Last(Vec::new()),
        3 => Answer::Last(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart".to_vec()),
        _ => Answer::Bytes(b"SSH-2.0-hello\r\n".to_vec()),
    });
    let recording = record(&open(server.address, "const(100,500ms)"));
    let outcome = &recording.outcome;
    assert_eq!((outcome.planned, outcome.right, outcome.wrong), (50, 10, 10));
    assert_eq!((outcome.failures.closed, outcome.failures.malformed, outcome.failures.timeout), (20, 10, 0));
    assert_eq!(outcome.statuses.iter().map(|(s, n)| (*s, *n)).collect::<Vec<_>>(), [(200, 10), (500, 10)]);
    // Ten right answers take some milliseconds; each of the others costs the timeout.
    assert!((400.0..405.0).contains(&outcome.rating), "{}", outcome.rating);
}

#[test]
fn a_reply_that_comes_in_time_for_its_sending_but_not_for_its_plan_is_late() {
    let server = Server::start(|_| {
        std::thread::sleep(Duration::from_millis(800));
        ok()
    });
    // The second request is planned at 0.2 s, sent at 0.8 s and answered at 1.6 s.
    let timeout = Duration::from_secs(1);
    let settings = LoadSettings { connections: 1, threads: 1, timeout, ..open(server.address, "const(5,400ms)") };
    let outcome = record(&settings).outcome;
    assert_eq!((outcome.right, outcome.late, outcome.failures.total()), (1, 1, 0));
    assert!((1.8..2.0).contains(&outcome.rating), "{}", outcome.rating);
}

#[test]
fn a_port_at_which_nothing_listens_costs_each_request() {
    let outcome = record(&open(unused_address(), "const(50,200ms)")).outcome;
    assert_eq!(outcome.failures.connect.iter().next(), Some((&"connection refused".to_owned(), &10)));
    assert_eq!((outcome.planned, outcome.sent), (10, 0));
    let outcome = record(&closed(unused_address(), 300)).outcome;
    assert!(outcome.planned >= 8 && outcome.sent == 0, "{outcome:?}");
}

#[test]
fn replies_that_nobody_asked_for_answer_nothing() {
    let server = Server::start(|_| Answer::Bytes(reply(200, "hi").repeat(2)));
    for (pipeline, load) in [
        (1, closed(server.address, 200)),
        (4, closed(server.address, 200)),
        (1, open(server.address, "const(100,200ms)")),
    ] {
        let outcome = record(&LoadSettings { pipeline, ..load }).outcome;
        assert!(outcome.failures.surplus > 0 && outcome.answered <= server.requests(), "{outcome:?}");
        assert!(pipeline > 1 || outcome.failures.surplus == outcome.planned, "{outcome:?}");
    }
}

/// One request is planned, and the second reply arrives when nothing is in flight.
#[test]
fn a_connection_on_which_a_reply_comes_without_a_request_is_closed_and_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
        stream.write_all(&reply(200, "hi")).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        stream.write_all(&reply(200, "hi")).unwrap();
        // Zero bytes, or a reset: the other side has closed it.
        assert_eq!(stream.read(&mut [0; 4096]).unwrap_or(0), 0);
        listener
    });
    let profile = Arc::new(Profile::parse("const(2,1s)").unwrap());
    let load = Load::Open { profile, connections_at_start: 1 };
    let settings = LoadSettings {
        load,
        connections: 1,
        threads: 1,
        timeout: Duration::from_secs(1),
        ..open(address, "const(2,1s)")
    };
    let recording = record(&settings);
    drop(server.join().unwrap());
    assert_eq!((recording.unasked, recording.outcome.right, recording.outcome.planned), (1, 1, 2));
    let text = loadtest::table::text(&recording, 100);
    assert!(text.contains("connections were closed: more arrived than was asked for"), "{text}");
}

/// Numbered requests; every fourth expects 404.
struct Numbered {
    next: u64,
    end: u64,
}

impl RequestSource for Numbered {
    fn next(&mut self, bytes: &mut Vec<u8>) -> Result<Option<Described>, SourceError> {
        if self.next == self.end {
            return Err(SourceError(format!("line {} is broken", self.end)));
        }
        let index = self.next;
        self.next += 1;
        bytes.extend_from_slice(format!("GET /{index} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
        let expected_status = if index.is_multiple_of(4) { 404 } else { 0 };
        Ok(Some(Described { index, tag: 7, expected_status, ..Described::default() }))
    }
}

/// Answers with the number in the path; 404 for every fourth, and nothing for every tenth.
fn echoing() -> Server {
    Server::start(|arrived| {
        let path = arrived.head.split(' ').nth(1).unwrap();
        let number: u64 = path[1..].parse().unwrap();
        match number {
            _ if number % 10 == 5 => Answer::Last(Vec::new()),
            _ if number.is_multiple_of(4) => Answer::Bytes(reply(404, path)),
            _ => Answer::Bytes(reply(200, path)),
        }
    })
}

/// Judges odd numbers as wrong, and reports to the test what it observed.
struct OddIsWrong(mpsc::Sender<(u64, Option<String>)>);

impl Observer for OddIsWrong {
    fn observe(&mut self, observed: &Observed<'_>) -> ReplyVerdict {
        assert_eq!(observed.tag, 7);
        let body = observed.reply.map(|reply| String::from_utf8_lossy(reply.body).into_owned());
        self.0.send((observed.index, body)).unwrap();
        if observed.index % 2 == 1 { ReplyVerdict::Wrong } else { ReplyVerdict::Unknown }
    }
}

#[test]
fn each_request_of_a_source_is_sent_once_judged_and_observed_once() {
    let server = echoing();
    let (sender, seen) = mpsc::channel();
    let watchers = Watchers { observer: Some(Box::new(OddIsWrong(sender))), ..Watchers::default() };
    let settings = open(server.address, "const(400,1s)");
    let finished = finish(&settings, Box::new(Numbered { next: 0, end: 200 }), watchers);
    assert_eq!(finished.failure, Some(SourceError("line 200 is broken".to_owned())));
    let outcome = &finished.recording.outcome;
    // Even ones are right by their status; every fifth of the odd ones has no reply.
    assert_eq!((outcome.planned, outcome.right, outcome.wrong, outcome.failures.closed), (200, 100, 80, 20));
    assert_eq!((finished.recording.unchecked, outcome.statuses[&404]), (0, 50));
    let seen: Vec<(u64, Option<String>)> = seen.try_iter().collect();
    assert_eq!(seen.len(), 200);
    assert_eq!(seen.iter().map(|(index, _)| *index).collect::<BTreeSet<_>>().len(), 200);
    for (index, body) in seen {
        assert_eq!(body, (index % 10 != 5).then(|| format!("/{index}")));
    }
}

#[test]
fn a_run_without_requests_is_not_valid() {
    let server = echoing();
    for load in [closed(server.address, 300), open(server.address, "const(100,300ms)")] {
        let recording = finish(&load, Box::new(Numbered { next: 0, end: 0 }), Watchers::default()).recording;
        let is_invalid = matches!(&recording.validity, Validity::Invalid(reason) if reason.contains("no requests"));
        assert!(recording.outcome.planned == 0 && is_invalid, "{:?}", recording.validity);
    }
}

#[test]
fn a_closed_load_ends_with_its_source() {
    let server = echoing();
    let finished =
        finish(&closed(server.address, 60_000), Box::new(Numbered { next: 0, end: 1000 }), Watchers::default());
    assert_eq!((finished.recording.outcome.planned, server.requests()), (1000, 1000));
    assert_eq!(finished.recording.outcome.failures.closed, 100);
}
