//! The open model: as many requests as planned, at planned moments, whatever the server does.

use crate::harness::{Answer, Server, check_sums, get, ok, open, record};
use loadtest::Validity;
use loadtest::engine::{LoadSettings, Stop, Watchers, run};
use std::time::{Duration, Instant};

#[test]
fn as_many_requests_are_sent_as_the_profile_plans() {
    let server = Server::start(|_| ok());
    let recording = record(&open(server.address, "line(50,350,1s) const(0,200ms) step(100,200,100,300ms)"));
    // Computed by hand: 200 for the line, 30 and 60 for the stairs.
    assert_eq!((recording.outcome.planned, recording.outcome.right, server.requests()), (290, 290, 290));
    let phases: Vec<(&str, u64)> =
        recording.phases.iter().map(|phase| (phase.name.as_str(), phase.outcome.right)).collect();
    assert_eq!(phases, [("line(50,350,1s)", 200), ("const(0,200ms)", 0), ("step(100,200,100,300ms)", 90)]);
    assert_eq!((recording.latencies.latency.len(), !recording.latencies.sending_error.is_empty()), (290, true));
    assert_eq!(recording.intervals.len(), 2);
    assert_eq!(recording.outcome.received_bytes, 290 * "HTTP/1.1 200 X\r\nContent-Length: 5\r\n\r\nhello".len() as u64);
}

/// The server delays each reply from 0.4 s to 0.7 s until 0.7 s. A request that is planned `x` before the end of the stall
/// therefore waits for `x`: of 1 s of requests 0.3 s wait, evenly from 0 to 0.3 s, and 1 in 10 waits for more than 0.2 s. On one
/// connection only the first of them is sent in time; a generator that counted from sending would see only one slow request.
fn stalled(connections: u32) -> loadtest::Recording {
    let (begin, end) = (Duration::from_millis(400), Duration::from_millis(700));
    let server = Server::start(move |arrived| {
        if (begin..end).contains(&arrived.since_first) {
            std::thread::sleep(end - arrived.since_first);
        }
        ok()
    });
    let settings = LoadSettings { connections, threads: 1, ..open(server.address, "const(500,1s)") };
    record(&settings)
}

#[test]
fn a_stall_is_in_the_percentiles_of_all_requests_that_were_planned_in_it() {
    for connections in [1, 300] {
        let recording = stalled(connections);
        let latency = &recording.latencies.latency;
        assert_eq!((recording.outcome.right, latency.len()), (500, 500));
        for (quantile, least_ms) in [(0.8, 100), (0.9, 200), (0.98, 280)] {
            let measured_ms = latency.value_at_quantile(quantile) / 1_000_000;
            // A few milliseconds lie between the engine's and the server's first moment.
            assert!(measured_ms + 15 >= least_ms, "{connections} connections: {quantile} waited for {measured_ms} ms");
        }
    }
}

#[test]
fn on_one_connection_the_service_time_hides_the_stall_that_the_latency_shows() {
    let recording = stalled(1);
    let slow = |histogram: &hdrhistogram::Histogram<u64>| histogram.count_between(100_000_000, u64::MAX);
    let (latency, service) = (slow(&recording.latencies.latency), slow(&recording.latencies.service));
    assert!(latency >= 90 && service * 10 < latency, "{latency} and {service} took longer than 100 ms");
    let (latency, service) = (recording.phases[0].latency.p90, recording.phases[0].service.p90);
    assert!(latency > service, "{latency} and {service}");
}

#[test]
fn requests_that_find_no_connection_until_the_timeout_are_unsent_and_cost_it() {
    let server = Server::start(|_| Answer::Silence);
    let timeout = Duration::from_millis(200);
    let settings = LoadSettings { connections: 1, threads: 1, timeout, ..open(server.address, "const(100,300ms)") };
    let recording = record(&settings);
    let failures = &recording.outcome.failures;
    assert_eq!((recording.outcome.planned, recording.outcome.answered), (30, 0));
    assert_eq!(failures.timeout + failures.unsent, 30);
    assert!(failures.timeout > 0 && failures.unsent > 0, "{failures:?}");
    assert_eq!(recording.outcome.rating, 30.0 * 0.2);
    let latency = &recording.latencies.latency;
    assert!(latency.len() == 30 && latency.min() >= 199_000_000, "they have waited for the timeout: {}", latency.min());
    assert_eq!(recording.latencies.service.len(), 0);
}

#[test]
fn more_connections_are_made_when_requests_wait() {
    let server = Server::start(|_| {
        std::thread::sleep(Duration::from_millis(100));
        ok()
    });
    // 200 requests per second of 100 ms each are 20 in flight; four connections exist at the start.
    let recording = record(&LoadSettings { connections: 64, ..open(server.address, "const(200,500ms)") });
    assert_eq!(recording.outcome.right, 100);
    assert!(server.connections() >= 10, "{} connections", server.connections());
    assert!(server.connections() <= 64, "{} connections", server.connections());
}

#[test]
fn a_run_is_ended_early_with_what_it_has() {
    let server = Server::start(|_| ok());
    let (settings, stop) = (open(server.address, "const(100,1h)"), Stop::default());
    let (begun, of_thread) = (Instant::now(), stop.clone());
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        of_thread.stop();
    });
    let recording = run(&settings, get(), Watchers::default(), &stop).unwrap().recording;
    assert!(begun.elapsed() < Duration::from_secs(20));
    check_sums(&recording);
    assert!((10..200).contains(&recording.outcome.right), "{:?}", recording.outcome);
    assert_eq!(recording.interval_seconds, 1);
}

#[test]
fn a_generator_without_a_processor_says_so() {
    let server = Server::start(|_| ok());
    // Far more than any loop can send.
    let profile = "const(9000000,300ms)";
    let timeout = Duration::from_millis(300);
    let settings = LoadSettings { threads: 1, timeout, ..open(server.address, profile) };
    let recording = record(&settings);
    assert!(recording.outcome.failures.unsent > 0);
    let Validity::Invalid(reason) = recording.validity else { return };
    assert!(reason.contains("late") || reason.contains("processor"), "{reason}");
}
