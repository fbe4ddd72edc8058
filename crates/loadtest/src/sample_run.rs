//! Recordings for tests: a simulated server with one queue under an open load, so that rates, latencies and errors are
//! consistent.
//!
//! The same shape always gives the same recording.

use crate::recording::{
    Failures, Interval, LONGEST_NS, Latencies, Percentiles, Phase, Recording, RequestCounts, ServerSample, TagResult,
    Validity,
};
use hdrhistogram::Histogram;
use std::collections::{BTreeMap, VecDeque};

/// How the simulated server behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shape {
    /// Every request takes about a millisecond and none fails.
    Calm,
    /// The same, a fifth slower.
    Slower,
    /// For three seconds nothing is answered; some requests fail.
    Stall,
}

/// Seconds of the rising part and of the whole run.
const RISING: f64 = 40.0;
const WHOLE: f64 = 60.0;
/// Requests a second at the beginning and at the end of the rising part.
const RATES: (f64, f64) = (10.0, 400.0);
const TIMEOUT: f64 = 2.0;
const SECOND: f64 = 1e9;

/// One simulated request.
struct Request {
    planned: f64,
    late: f64,
    latency: f64,
    service: f64,
    fate: Fate,
}

#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Right,
    Wrong,
    Refused,
    Timeout,
}

/// The recording of a run of that shape.
pub(crate) fn recording(shape: Shape) -> Recording {
    let requests = simulate(shape);
    let rows = (0..WHOLE as u32).map(|second| interval(second, &requests)).collect();
    let part = |name: &str, from: f64, to: f64| {
        let own: Vec<&Request> = requests.iter().filter(|request| (from..to).contains(&request.planned)).collect();
        let (latency, service) = (of(&own, |request| request.latency), of(&own, |request| request.service));
        Phase {
            name: name.into(),
            from,
            to,
            outcome: outcome(&own),
            latency: Percentiles::of(&latency),
            service: Percentiles::of(&service),
        }
    };
    let all: Vec<&Request> = requests.iter().collect();
    Recording {
        target: "http://127.0.0.1:8080/users/1".into(),
        load: "line(10,400,40s) const(400,20s)".into(),
        started: 1_500_000_000.25,
        seconds: WHOLE + 0.05,
        outcome: outcome(&all),
        latencies: Latencies {
            latency: of(&all, |request| request.latency),
            service: of(&all, |request| request.service),
            sending_error: of(&all, |request| request.late),
        },
        intervals: rows,
        interval_seconds: 1,
        phases: vec![part("line(10,400,40s)", 0.0, RISING), part("const(400,20s)", RISING, WHOLE)],
        tags: Vec::new(),
        passes: None,
        server: (0..WHOLE as u32).map(|second| server_sample(second, shape)).collect(),
        unchecked: 0,
        unasked: 0,
        validity: Validity::Valid,
        is_rated: false,
    }
}

/// A run of requests with two tags.
pub(crate) fn with_tags() -> Recording {
    let tag = |name: &str, requests, errors, max| TagResult {
        name: name.into(),
        requests,
        answered: requests - errors,
        errors,
        latency: Percentiles { p50: max / 2, p99: max, max, ..Percentiles::default() },
    };
    let tags = vec![tag("GET /users/{int}", 900, 0, 2_000_000), tag("<b>\u{1b}POST", 100, 7, 0)];
    Recording { tags, ..recording(Shape::Calm) }
}

/// A run whose connections were all refused.
pub(crate) fn nothing_answered() -> Recording {
    let mut run = recording(Shape::Calm);
    let empty = histogram();
    run.latencies = Latencies { latency: empty.clone(), service: empty.clone(), sending_error: empty };
    run.outcome = RequestCounts { planned: 10, sent: 10, rating: 20.0, ..RequestCounts::default() };
    run.outcome.failures.connect.insert("connection refused".into(), 10);
    run.intervals = vec![Interval { planned: 10, sent: 10, failed: 10, ..Interval::default() }];
    run.phases.clear();
    run.server.clear();
    run
}

/// An empty histogram with the bounds of a recording.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3).unwrap()
}

/// Random numbers between zero and one, from a seed.
fn random(seed: u64) -> impl FnMut() -> f64 {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(2 * seed + 1);
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The planned moments: a line, then a constant rate.
fn moments() -> Vec<f64> {
    let slope = (RATES.1 - RATES.0) / RISING;
    let rising = (0..).map(|index| (-RATES.0 + (RATES.0 * RATES.0 + 2.0 * slope * f64::from(index)).sqrt()) / slope);
    let steady = (0..).map(|index| RISING + f64::from(index) / RATES.1);
    rising.take_while(|at| *at < RISING).chain(steady.take_while(|at| *at < WHOLE)).collect()
}

fn simulate(shape: Shape) -> Vec<Request> {
    let mut random = random(shape as u64);
    let (slow, stalls) = match shape {
        Shape::Calm => (1.0, false),
        Shape::Slower => (1.2, false),
        Shape::Stall => (1.0, true),
    };
    let mut free = 0.0_f64;
    let mut waiting = VecDeque::new();
    for planned in moments() {
        let late = 20e-6 * (1.0 + 3.0 * random());
        let busy = slow * 0.9e-3 * (0.4 - 0.6 * (1.0 - random()).ln()).max(0.05);
        let mut begins = free.max(planned + late);
        if stalls && (25.0..28.0).contains(&begins) {
            begins = 28.0;
        }
        free = begins + busy;
        let latency = free - planned;
        let latency = latency.min(TIMEOUT);
        let fate = match (stalls, random()) {
            _ if latency >= TIMEOUT => Fate::Timeout,
            (true, chance) if chance < 0.002 => Fate::Wrong,
            (true, chance) if chance < 0.003 => Fate::Refused,
            _ => Fate::Right,
        };
        waiting.push_back(Request { planned, late, latency, service: latency - late, fate });
    }
    waiting.into()
}

fn of(requests: &[&Request], seconds: fn(&Request) -> f64) -> Histogram<u64> {
    let mut histogram = histogram();
    for request in requests.iter().filter(|request| request.fate != Fate::Refused) {
        histogram.record((seconds(request) * SECOND) as u64).unwrap();
    }
    histogram
}

fn number(requests: &[&Request], fate: Fate) -> u64 {
    requests.iter().filter(|request| request.fate == fate).count() as u64
}

fn interval(second: u32, requests: &[Request]) -> Interval {
    let own: Vec<&Request> = requests.iter().filter(|request| request.planned as u32 == second).collect();
    Interval {
        at: second,
        planned: own.len() as u64,
        sent: own.len() as u64,
        right: number(&own, Fate::Right),
        wrong: number(&own, Fate::Wrong),
        failed: number(&own, Fate::Refused) + number(&own, Fate::Timeout),
        latency: Percentiles::of(&of(&own, |request| request.latency)),
        service: Percentiles::of(&of(&own, |request| request.service)),
    }
}

fn outcome(requests: &[&Request]) -> RequestCounts {
    let [right, wrong, refused, timeout] =
        [Fate::Right, Fate::Wrong, Fate::Refused, Fate::Timeout].map(|fate| number(requests, fate));
    let planned = requests.len() as u64;
    let latencies = requests.iter().filter(|request| request.fate == Fate::Right).map(|request| request.latency);
    let connect = [("connection refused".to_owned(), refused)].into_iter().filter(|(_, count)| *count > 0).collect();
    let statuses = [(200, right), (503, wrong)].into_iter().filter(|(_, count)| *count > 0).collect();
    RequestCounts {
        planned,
        sent: planned,
        answered: right + wrong,
        right,
        wrong,
        late: 0,
        failures: Failures { connect, timeout, ..Failures::default() },
        statuses,
        sent_bytes: planned * 82,
        received_bytes: (right + wrong) * 431,
        rating: latencies.sum::<f64>() + (wrong + refused + timeout) as f64 * TIMEOUT,
    }
}

fn server_sample(second: u32, shape: Shape) -> ServerSample {
    let at = f64::from(second);
    let stalled = shape == Shape::Stall && (25..28).contains(&second);
    let values = [
        ("process_cpu_seconds_total", 3.0 + at * at.min(RISING) * 0.012),
        ("process_resident_memory_bytes", 120e6 + at * 1.3e6),
        ("sapsan_pool_queued", if stalled { 310.0 } else { f64::from(second % 3) }),
        ("sapsan_store_queue_depth", if stalled { 25.0 } else { 0.0 }),
    ];
    ServerSample {
        at: at + 0.4,
        values: values.map(|(name, value)| (name.to_owned(), value)).into_iter().collect::<BTreeMap<_, _>>(),
    }
}
