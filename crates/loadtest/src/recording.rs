//! The recording of a run: counts, histograms, a row for each second and for each phase. Its size is bounded, however long the
//! run.

use hdrhistogram::{Counter, Histogram};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The longest time that a histogram can represent, in nanoseconds; longer ones count as this.
pub const LONGEST_NS: u64 = 120_000_000_000;
/// Largest number of rows of time in a recording. A row is a second, or longer in a run that is planned for more seconds than
/// this.
pub const INTERVALS_MAX: usize = 3600;

/// The recording of one run, or of one side of a comparison. Its JSON form, with the histograms, is the file of `--record`, which
/// a later report reads to compare two runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recording {
    /// The address that was under load, as the user wrote it.
    pub target: String,
    /// The load in the user's form: the profile's text, or `64 connections, 16 pipelined, 30s`.
    pub load: String,
    /// Moment of the first planned request, in seconds of Unix time.
    pub started: f64,
    /// From the first planned moment to the last answer, in seconds.
    pub seconds: f64,
    /// All requests of the run.
    pub outcome: RequestCounts,
    /// The three distributions of the whole run.
    pub latencies: Latencies,
    /// A row for each second, or for each `interval_seconds` of a long run.
    pub intervals: Vec<Interval>,
    /// Length of a row in seconds.
    pub interval_seconds: u32,
    /// The parts of the profile, or of a contest; a single one if there are no parts.
    pub phases: Vec<Phase>,
    /// Results by tag, most requests first; empty if requests have no tags.
    #[serde(default)]
    pub tags: Vec<TagResult>,
    /// Passes through a scenario, if there is one.
    #[serde(default)]
    pub passes: Option<PassCounts>,
    /// The server's own metrics on the same time axis, if `--metrics` named an address.
    pub server: Vec<ServerSample>,
    /// Replies that were not compared with the answers file, because the queue of the comparing thread was full. They count by
    /// their status.
    #[serde(default)]
    pub unchecked: u64,
    /// Connections that were closed because bytes arrived although no request was in flight.
    #[serde(default)]
    pub unasked: u64,
    /// Whether the generator kept up with its plan.
    pub validity: Validity,
    /// Whether the user asked for the contest's rating, so that tables and pages show it.
    #[serde(default)]
    pub is_rated: bool,
}

/// Counts of requests. `planned = answered + failures`, all of them; `sent = planned - connect - unsent`;
/// `answered = right + wrong + late`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestCounts {
    /// Requests that the profile planned, or that the connections of a closed load began.
    pub planned: u64,
    /// Requests whose bytes were sent.
    pub sent: u64,
    /// Complete replies, including late and wrong ones.
    pub answered: u64,
    /// Replies within the timeout that are as expected: by the answers file, or else with status 200 to 399.
    pub right: u64,
    /// Replies within the timeout with another status or body.
    pub wrong: u64,
    /// Replies after the timeout, counted from the planned moment.
    pub late: u64,
    /// Requests without a reply, by cause.
    pub failures: Failures,
    /// Replies by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Sum of the latencies of right answers plus the timeout for each other request, seconds. Lower is better.
    pub rating: f64,
}

/// Requests without a reply.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Failures {
    /// No connection could be made, by the reason's text.
    pub connect: BTreeMap<String, u64>,
    /// The connection ended before the reply was complete.
    pub closed: u64,
    /// No reply within the timeout, counted from sending. The connection is then closed.
    pub timeout: u64,
    /// Bytes that are not an HTTP reply.
    pub malformed: u64,
    /// More bytes arrived than the replies to the requests in flight. The connection is then closed.
    #[serde(default)]
    pub surplus: u64,
    /// Planned, but not sent within the timeout: all connections were busy.
    pub unsent: u64,
}

impl Failures {
    /// All requests without a reply, including unsent ones.
    pub fn total(&self) -> u64 {
        self.connect.values().sum::<u64>() + self.closed + self.timeout + self.malformed + self.surplus + self.unsent
    }
}

impl RequestCounts {
    /// Requests without a right answer within the timeout: wrong, late, failed and unsent ones.
    pub fn errors(&self) -> u64 {
        self.wrong + self.late + self.failures.total()
    }
}

/// The distributions of a run, nanoseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Latencies {
    /// From the planned moment to the complete reply: the waiting time of a user of the server. Requests that timed out are
    /// included with their waiting time, so that losing requests cannot improve a percentile.
    #[serde(with = "encoded")]
    pub latency: Histogram<u64>,
    /// From passing the request to the socket to the complete reply. Requests without a reply are not included.
    #[serde(with = "encoded")]
    pub service: Histogram<u64>,
    /// Lateness of the generator itself: from the planned moment to the moment of sending, if a connection was free.
    #[serde(with = "encoded")]
    pub sending_error: Histogram<u64>,
}

/// Percentiles of one distribution, in nanoseconds; all zero if nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// The mean.
    pub mean: u64,
    /// Half took at most this.
    pub p50: u64,
    /// 75 of 100 took at most this.
    pub p75: u64,
    /// 90 of 100 took at most this.
    pub p90: u64,
    /// 95 of 100 took at most this.
    pub p95: u64,
    /// 99 of 100 took at most this.
    pub p99: u64,
    /// 999 of 1,000 took at most this.
    pub p999: u64,
    /// 9,999 of 10,000 took at most this.
    pub p9999: u64,
    /// The longest.
    pub max: u64,
}

impl Percentiles {
    /// Those of `histogram`, whose unit is the nanosecond.
    pub fn of<C: Counter>(histogram: &Histogram<C>) -> Percentiles {
        if histogram.is_empty() {
            return Percentiles::default();
        }
        let at = |quantile| histogram.value_at_quantile(quantile);
        Percentiles {
            mean: histogram.mean() as u64,
            p50: at(0.5),
            p75: at(0.75),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            max: histogram.max(),
        }
    }
}

/// Events of one row of time. A request is counted in the row of its planned moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Seconds from the start of the run to this row.
    pub at: u32,
    /// Planned requests.
    pub planned: u64,
    /// Requests whose bytes were sent.
    pub sent: u64,
    /// Right answers.
    pub right: u64,
    /// Wrong or late answers.
    pub wrong: u64,
    /// No answer.
    pub failed: u64,
    /// Latencies, from the planned moments.
    pub latency: Percentiles,
    /// Service times, from the moments of sending.
    pub service: Percentiles,
}

/// One part of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// The part of the profile, such as `line(1,200,180s)`, or the contest's name for it.
    pub name: String,
    /// Its beginning, in seconds from the start of the run.
    pub from: f64,
    /// Its end, in seconds from the start of the run.
    pub to: f64,
    /// Its requests.
    pub outcome: RequestCounts,
    /// Latencies, from the planned moments.
    pub latency: Percentiles,
    /// Service times, from the moments of sending.
    pub service: Percentiles,
}

/// The requests of one tag.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TagResult {
    /// The tag: the ammo's, or method and shape of the path.
    pub name: String,
    /// Its requests.
    pub requests: u64,
    /// Complete replies, including late and wrong ones.
    pub answered: u64,
    /// Requests without a right answer within the timeout.
    pub errors: u64,
    /// Latencies, from the planned moments, accurate to 1 %.
    pub latency: Percentiles,
}

/// Passes of all users through a scenario. One that was under way at the end is in neither count.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PassCounts {
    /// Passes whose steps all had right answers.
    pub complete: u64,
    /// Passes that ended with a wrong answer, or without one.
    pub given_up: u64,
}

/// The server's own metrics at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerSample {
    /// Seconds from the start of the run.
    pub at: f64,
    /// Values by series, such as `process_resident_memory_bytes` or `sapsan_queue_length{pool="query"}`.
    pub values: BTreeMap<String, f64>,
}

/// Whether the run measured the server or the generator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Validity {
    /// The generator sent at the planned moments.
    Valid,
    /// The generator was late, so the latencies are partly its own: the reason, with figures and remedy.
    Invalid(String),
}

/// A histogram as text: HdrHistogram's compressed form, version 2, in base64, as in its log files.
mod encoded {
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::{Deserializer, Serializer as _, V2DeflateSerializer};
    use serde::de::Error as _;
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer as Input, Serializer as Output};

    pub(super) fn serialize<S: Output>(histogram: &Histogram<u64>, output: S) -> Result<S::Ok, S::Error> {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(histogram, &mut bytes).map_err(S::Error::custom)?;
        output.serialize_str(&base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes))
    }

    pub(super) fn deserialize<'de, D: Input<'de>>(input: D) -> Result<Histogram<u64>, D::Error> {
        let text = String::deserialize(input)?;
        let bytes =
            base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text).map_err(D::Error::custom)?;
        Deserializer::new().deserialize(&mut bytes.as_slice()).map_err(D::Error::custom)
    }
}
