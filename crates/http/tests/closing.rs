//! Closing, limits of connections, drain, and small things about heads.

use crate::harness::TestServer;
use http::{AccessLog, ClientLimits, ClientState, HttpSettings, Method, Presence, QueuedWriter, SlowLog, Status};
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[test]
fn a_half_closed_client_gets_its_late_reply() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    client.send(b"POST /late/1 HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n");
    client.end();
    server.shelf.answer("/late/1");
    client.expect(200, "/late/1");
    client.expect(200, "GET /b []");
    client.expect_end();
}

/// Waits until the client is known to be in this state.
#[track_caller]
fn wait_for(presence: &Presence, client: ClientState) {
    let begun = std::time::Instant::now();
    while presence.client() != client {
        assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", presence.client());
        std::thread::yield_now();
    }
}

#[test]
fn who_works_for_a_watched_reply_is_told_what_becomes_of_its_client() {
    let server = TestServer::start(HttpSettings::default());
    for more in ["", "Connection: close\r\n"] {
        let mut client = server.connect();
        client.send(format!("GET /watched/1 HTTP/1.1\r\nHost: h\r\n{more}\r\n").as_bytes());
        let late = server.shelf.take("/watched/1");
        let presence = late.presence();
        assert_eq!(presence.client(), ClientState::Here);
        client.end();
        wait_for(&presence, ClientState::Ended);
        late.send(Status(200), "", b"in spite of all".to_vec());
        assert_eq!(client.answer().body, "in spite of all");
        client.expect_end();
        wait_for(&presence, ClientState::Gone);
    }
    let mut client = server.connect();
    client.probe("/a");
    client.send(b"GET /watched/2 HTTP/1.1\r\nHost: h\r\n\r\nGET /large/100000 HTTP/1.1\r\nHost: h\r\n\r\n");
    let late = server.shelf.take("/watched/2");
    let presence = late.presence();
    late.send(Status(200), "", Vec::new());
    wait_for(&presence, ClientState::Gone);
    let mut other = server.connect();
    other.send(b"GET /late/3 HTTP/1.1\r\nHost: h\r\n\r\n");
    let unwatched = server.shelf.take("/late/3");
    other.end();
    unwatched.send(Status(200), "", Vec::new());
    other.answer();
    assert_eq!(client.answer().status, 200);
}

#[test]
fn bytes_that_come_after_the_last_request_do_not_cost_its_late_reply() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    client.send(b"POST /late/1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}\r\n");
    let late = server.shelf.take("/late/1");
    client.send(&b"x".repeat(200_000));
    late.send(Status(200), "", b"in spite of all".to_vec());
    let answer = client.answer();
    assert_eq!(answer.body, "in spite of all");
    assert!(answer.head.contains("Connection: close"));
    client.expect_end();
}

#[test]
fn the_service_may_close() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    client.send(b"GET /close HTTP/1.1\r\nHost: h\r\n\r\nGET /never HTTP/1.1\r\nHost: h\r\n\r\n");
    let answer = client.answer();
    assert!(answer.head.contains("Connection: close"));
    client.expect_end();
}

#[test]
fn an_early_413_reaches_a_client_that_goes_on_sending() {
    let limits = ClientLimits { body_bytes_max: 1000, ..ClientLimits::default() };
    let server = TestServer::start(HttpSettings { limits, ..HttpSettings::default() });
    let mut client = server.connect();
    client.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 200000\r\n\r\n");
    client.send(&b"x".repeat(200_000));
    let answer = client.answer();
    assert_eq!(answer.status, 413);
    assert!(answer.body.contains(": 1000 bytes, of `[server] body_bytes_max`"), "{}", answer.body);
    client.expect_end();
}

#[test]
fn bodies_on_their_way_have_a_limit_together() {
    let loops =
        reactor::ReactorSettings { loops: 1, arriving_bytes_max: 300_000, ..reactor::ReactorSettings::default() };
    let server = TestServer::start_on(loops, HttpSettings::default());
    let unfinished = |n: usize| {
        let mut client = server.connect();
        client.send(format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", n + 1).as_bytes());
        client.send(&b"x".repeat(n));
        client
    };
    // The server refuses the connection with the largest product of bytes and time without progress. The first body is small, so that
    // the second is refused even if a busy machine delays it.
    let mut first = unfinished(100);
    let mut second = unfinished(400_000);
    assert_eq!(second.answer().status, 503);
    first.send(b"x");
    assert_eq!(first.answer().status, 200);
    let mut third = unfinished(100_000);
    third.send(b"x");
    assert_eq!(third.answer().status, 200, "the memory of the first two was given back");
}

#[test]
fn connections_of_one_address_have_a_limit() {
    let limits = ClientLimits { connections_per_address_max: 2, ..ClientLimits::default() };
    let server = TestServer::start(HttpSettings { limits, ..HttpSettings::default() });
    let (mut first, mut second) = (server.connect(), server.connect());
    first.probe("/a");
    second.probe("/b");
    let mut third = server.connect();
    let mut byte = [0];
    assert!(matches!(std::io::Read::read(&mut third.socket, &mut byte), Ok(0) | Err(_)));
    assert_eq!(server.metrics().turned_away, 1);
    first.end();
    first.expect_end();
    while server.metrics().open > 1 {
        std::thread::yield_now();
    }
    server.connect().probe("/c");
}

#[test]
fn a_drain_answers_what_was_asked_and_ends() {
    let server = TestServer::start(HttpSettings::default());
    let [mut fresh, mut late, mut begun, mut idle] = std::array::from_fn(|_| server.connect());
    begun.probe("/b");
    begun.send(b"POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhe");
    late.send(b"GET /late/1 HTTP/1.1\r\nHost: h\r\n\r\n");
    let waiting = server.shelf.take("/late/1");
    idle.probe("/a");
    server.begin_drain();
    // A drain reaches connections in the order of their creation, so it has reached all of them now.
    idle.expect_end();
    fresh.send(b"GET /d HTTP/1.1\r\nHost: h\r\n\r\n");
    let answer = fresh.answer();
    assert_eq!(answer.body, "GET /d []");
    assert!(answer.head.contains("Connection: close"));
    begun.send(b"llo");
    let answer = begun.answer();
    assert_eq!(answer.body, "POST /c [hello]");
    assert!(answer.head.contains("Connection: close"));
    waiting.send(Status(200), "", b"late".to_vec());
    let answer = late.answer();
    assert_eq!(answer.body, "late");
    assert!(answer.head.contains("Connection: close"), "{}", answer.head);
    for mut client in [fresh, begun, late] {
        client.expect_end();
    }
    drop(idle);
    server.join();
}

#[test]
fn date_is_sent_unless_it_is_switched_off() {
    for date in [true, false] {
        let server = TestServer::start(HttpSettings { date, ..HttpSettings::default() });
        let mut client = server.connect();
        client.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\nGET /empty HTTP/1.1\r\nHost: h\r\n\r\nbad\r\n\r\n");
        for _ in 0..3 {
            assert_eq!(client.answer().head.contains("\r\nDate: "), date);
        }
    }
}

#[test]
fn fields_of_the_service_are_checked() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    client.send(b"GET /fields HTTP/1.1\r\nHost: h\r\n\r\nGET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    let answer = client.answer();
    assert!(answer.head.contains("\r\nX-Good: yes\r\n"));
    assert!(!answer.head.contains("Evil") && !answer.head.contains("X-Bad"), "{}", answer.head);
    assert!(!client.answer().head.contains("X-Good"), "a field stays with its reply");
    assert_eq!(server.metrics().fields_left_out, 2);
}

#[test]
fn nothing_of_a_body_that_does_not_hold_is_sent() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    let pipelined = ["GET", "HEAD"].map(|method| format!("{method} /tagged/7 HTTP/1.1\r\nHost: h\r\n\r\n")).concat();
    client.send(format!("GET /tagged/7?lost HTTP/1.1\r\nHost: h\r\n\r\n{pipelined}").as_bytes());
    let lost = client.answer();
    assert!(lost.head.starts_with("HTTP/1.1 503 ") && lost.head.contains("\r\nX-Before: kept\r\n"), "{}", lost.head);
    assert!(!lost.head.contains("ETag"), "{}", lost.head);
    assert_eq!(lost.body, "lost");
    let tagged = client.answer();
    assert!(tagged.head.starts_with("HTTP/1.1 200 OK\r\n") && tagged.head.contains("\r\nETag: \"7\"\r\n"));
    assert_eq!(tagged.body, "{}");
    let head = client.answer_to(true).expect("an answer").head;
    assert!(head.contains("\r\nContent-Length: 2\r\n") && head.contains("\r\nETag: \"7\"\r\n"), "{head}");
}

#[test]
fn odd_statuses_of_the_service_are_sent_as_they_may_be() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    for (asked, sent, body) in
        [(599, 599, "body"), (304, 304, ""), (204, 204, ""), (100, 500, "body"), (1000, 500, "body")]
    {
        client.send(format!("GET /status/{asked} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
        client.expect(sent, body);
    }
}

#[test]
fn counters_add_up() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    let request = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n";
    client.send(request);
    let _ = client.answer();
    client.send(b"GET /drop HTTP/1.1\r\nHost: h\r\n\r\nGET /stream/100000 HTTP/1.1\r\nHost: h\r\n\r\nnonsense\r\n\r\n");
    client.rest();
    let metrics = server.metrics();
    assert_eq!((metrics.replies_2xx, metrics.replies_4xx, metrics.replies_5xx, metrics.refusals), (2, 1, 1, 1));
    assert_eq!(metrics.bytes_out, client.received);
    assert!(metrics.bytes_in >= request.len() as u64);
}

/// Replies of every kind: at once, late, behind a late one, streamed, not copied, after panics, and refusals. Each counts once,
/// under its series.
#[test]
fn every_reply_counts_under_its_series_and_status() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    let get = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
    let at_once = ["/series/1", "/series/1", "/series/2?shared", "/series/2?stream", "/series/9?panic", "/a"];
    client.send(at_once.map(get).concat().as_bytes());
    let behind = ["/series/1?late", "/series/1", "/series/2?shared", "/series/9999"];
    client.send(behind.map(get).concat().as_bytes());
    client.send(b"nonsense\r\n\r\n");
    server.shelf.answer("/series/1?late");
    client.rest();
    let counted: Vec<_> = server.series().into_iter().map(|total| (total.series.0, total.statuses)).collect();
    let expected = [
        (0, BTreeMap::from([(200, 1), (202, 1), (400, 1)])),
        (1, BTreeMap::from([(200, 1), (202, 3)])),
        (2, BTreeMap::from([(200, 1), (203, 2)])),
        (9, BTreeMap::from([(500, 1)])),
    ];
    assert_eq!(counted, expected);
    for total in server.series() {
        assert_eq!(total.buckets.iter().sum::<u64>(), total.statuses.values().sum::<u64>());
        assert!(total.nanoseconds > 0);
    }
}

#[test]
fn the_latency_of_a_late_reply_has_the_time_that_it_waited() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    client.send(b"GET /series/1?late HTTP/1.1\r\nHost: h\r\n\r\n");
    let late = server.shelf.take("/series/1?late");
    let began = std::time::Instant::now();
    std::thread::sleep(Duration::from_millis(20));
    let waited = began.elapsed();
    late.send(Status(200), "text/plain", Vec::new());
    let _ = client.answer();
    let total = server.series().remove(0);
    assert!(u128::from(total.nanoseconds) >= waited.as_nanos(), "{total:?}");
}

#[test]
fn slow_requests_are_told_with_what_is_noted_of_their_work() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let for_log = Arc::clone(&told);
    let log = SlowLog::new(Duration::ZERO, move |request| {
        let work = request.work.map(str::to_owned);
        for_log.lock().unwrap().push((request.method, request.series.0, request.status.0, work));
    });
    let server = TestServer::start(HttpSettings { slow_log: Some(log), ..HttpSettings::default() });
    let mut client = server.connect();
    client.send(b"GET /series/3 HTTP/1.1\r\nHost: h\r\n\r\nPOST /watched HTTP/1.1\r\nHost: h\r\n\r\nnonsense\r\n\r\n");
    let late = server.shelf.take("/watched");
    late.presence().note_work("long");
    late.send(Status(200), "text/plain", Vec::new());
    client.rest();
    let expected = [
        (Some(Method::Get), 3, 202, None),
        (Some(Method::Post), 0, 200, Some("long".to_owned())),
        (None, 0, 400, None),
    ];
    assert_eq!(*told.lock().unwrap(), expected);
}

#[test]
fn a_request_that_is_not_slow_is_not_told() {
    let log = SlowLog::new(Duration::from_secs(86_400), |request| panic!("{request:?}"));
    let server = TestServer::start(HttpSettings { slow_log: Some(log), ..HttpSettings::default() });
    let mut client = server.connect();
    client.send(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    client.expect(200, "GET /a []");
    assert_eq!(server.metrics().panics, 0);
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no test panics while it writes").extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_access_log_has_a_line_for_each_reply() {
    let lines = Lines::default();
    let (writer, thread) = QueuedWriter::start(lines.clone()).unwrap();
    let server =
        TestServer::start(HttpSettings { access_log: Some(AccessLog::new(writer)), ..HttpSettings::default() });
    let mut client = server.connect();
    client.send(b"GET /a?b=\"c\" HTTP/1.1\r\nHost: h\r\n\r\nGET /stream-length/90000 HTTP/1.1\r\nHost: h\r\n\r\nGET /late/1 HTTP/1.0\r\n\r\n");
    server.shelf.answer("/late/1");
    client.rest();
    drop(thread);
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let peer = client.socket.local_addr().unwrap();
    let mut starts = Vec::new();
    for line in text.lines() {
        let (time, rest) = line.split_once(' ').unwrap();
        assert!(time.len() == 27 && time.ends_with('Z') && time.parse::<jiff::Timestamp>().is_ok(), "{line}");
        let start = rest.split_inclusive("\" 200 ").next().unwrap();
        let bytes: usize = rest[start.len()..].split(' ').next().unwrap().parse().unwrap();
        assert_eq!(start.contains("/stream-length/"), bytes > 90_000, "{line}");
        starts.push(start);
    }
    let expected = [
        format!("{peer} \"GET /a?b=%22c%22 HTTP/1.1\" 200 "),
        format!("{peer} \"GET /stream-length/90000 HTTP/1.1\" 200 "),
        format!("{peer} \"GET /late/1 HTTP/1.0\" 200 "),
    ];
    assert_eq!(starts, expected);
}
