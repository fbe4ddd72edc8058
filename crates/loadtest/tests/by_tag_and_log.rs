//! Results by tag, the log of requests, and expectations that need no file of answers.

use crate::harness::{Answer, Server, closed, finish, get, open, reply};
use loadtest::ammo::{Ammo, AmmoOptions, Loops};
use loadtest::answers::{BodyCheck, BodyExpectation};
use loadtest::engine::{RequestLog, Watchers};
use serde_json::Value;
use std::num::NonZeroU64;
use std::time::Duration;

/// `/a` is answered 200, `/b/N` 404, and `/c` not at all.
fn server() -> Server {
    Server::start(|arrived| match arrived.head.split(' ').nth(1) {
        Some("/a") => Answer::Bytes(reply(200, "{\"n\": 1}")),
        Some("/c") => Answer::Last(Vec::new()),
        _ => Answer::Bytes(reply(404, "none")),
    })
}

fn ammo(text: &str, times: u64) -> Box<Ammo> {
    let loops = Loops::Times(NonZeroU64::new(times).unwrap());
    let stream = Box::new(std::io::Cursor::new(text.as_bytes().to_vec()));
    Box::new(Ammo::of_streams(("ammo", stream), None, AmmoOptions { loops, ..AmmoOptions::default() }).unwrap())
}

const AMMO: &str = "/a\n/a\n/b/1\n/b/2\n/c\n/a\n";

#[test]
fn results_by_tag_add_up_to_those_of_the_run() {
    for settings in [closed(server().address, 20_000), open(server().address, "const(500,1s)")] {
        let recording = finish(&settings, ammo(AMMO, 10), Watchers::default()).recording;
        let rows: Vec<(&str, u64, u64, u64)> =
            recording.tags.iter().map(|of| (of.name.as_str(), of.requests, of.answered, of.errors)).collect();
        let expected = [("GET /a", 30, 30, 0), ("GET /b/{int}", 20, 20, 20), ("GET /c", 10, 0, 10)];
        assert_eq!(rows, expected, "{}", recording.load);
        assert!(recording.tags[0].latency.max > 0 && recording.tags[2].latency.max == 0);
    }
    let constant = finish(&closed(server().address, 50), get(), Watchers::default()).recording;
    assert!(constant.tags.is_empty(), "a request that is always the same has no tag");
}

#[test]
fn what_the_observer_finds_counts_in_the_tag_and_in_the_log() {
    let (server, folder) = (server(), tempfile::tempdir().unwrap());
    let path = folder.path().join("log.ndjson");
    let check = BodyCheck::new(BodyExpectation { whole: Some(b"{\"n\":2}".to_vec()), ..BodyExpectation::default() });
    let log = Some(RequestLog::create(&path).unwrap());
    let watchers = Watchers { observer: Some(Box::new(check.clone())), log, ..Watchers::default() };
    let finished = finish(&closed(server.address, 20_000), ammo(AMMO, 5), watchers);
    let recording = &finished.recording;
    assert_eq!((recording.outcome.right, recording.outcome.wrong, recording.unchecked), (0, 25, 0));
    assert_eq!((recording.tags[0].errors, check.found().count, check.found().checked), (15, 25, 25));
    assert_eq!((finished.unlogged, finished.log_failure), (0, None));
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 30);
    let count = |tag: &str, result: &str| lines.iter().filter(|of| of["tag"] == tag && of["result"] == result).count();
    assert_eq!(
        (count("GET /a", "wrong"), count("GET /b/{int}", "wrong"), count("GET /c", "connection closed")),
        (15, 10, 5)
    );
    let mut numbers: Vec<u64> = lines.iter().map(|line| line["request"].as_u64().unwrap()).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..30));
    assert!(lines.iter().all(|line| line["status"].is_null() != (line["tag"] != "GET /c")), "{text}");
}

#[test]
fn a_log_has_a_line_for_each_request_without_an_observer_too() {
    let (server, folder) = (server(), tempfile::tempdir().unwrap());
    let path = folder.path().join("log.csv");
    let watchers = Watchers { log: Some(RequestLog::create(&path).unwrap()), ..Watchers::default() };
    let finished = finish(&open(server.address, "const(300,1s)"), get(), watchers);
    let text = std::fs::read_to_string(&path).unwrap();
    // The first line names the columns; a request without a tag has none.
    assert_eq!(text.lines().count() as u64, finished.recording.outcome.planned + 1);
    assert!(text.lines().skip(1).all(|line| line.contains(",404,wrong,") && line.ends_with(",,0")), "{text}");
    let at: Vec<f64> = text.lines().skip(1).map(|line| line.split(',').next().unwrap().parse().unwrap()).collect();
    assert!(at.iter().all(|at| (0.0..1.0).contains(at)), "planned moments: {at:?}");
}

#[test]
fn a_log_that_cannot_be_written_is_told_and_costs_no_request() {
    let server = server();
    let Ok(log) = RequestLog::create(std::path::Path::new("/dev/full")) else { return };
    let watchers = Watchers { log: Some(log), ..Watchers::default() };
    let finished = finish(&open(server.address, "const(300,300ms)"), get(), watchers);
    assert!(finished.log_failure.is_some() && finished.recording.outcome.answered == 90, "{:?}", finished.log_failure);
}

#[test]
fn expected_statuses_decide_what_is_right() {
    let mut settings = closed(server().address, 20_000);
    settings.timeout = Duration::from_secs(5);
    settings.expected = "404".parse().unwrap();
    let outcome = finish(&settings, ammo(AMMO, 1), Watchers::default()).recording.outcome;
    assert_eq!((outcome.right, outcome.wrong, outcome.failures.closed), (2, 3, 1));
}
