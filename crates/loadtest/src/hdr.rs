//! `--hdr FILE`: the histograms of a run as HdrHistogram's interval log, which its readers, plotters and mergers understand.
//!
//! The log has three lines of histograms, with the tags `latency`, `service` and `sending_error`. Each histogram is compressed
//! (version 2) and in base64. Values are nanoseconds. Histograms of one tag from several files or machines may be added, which
//! gives the percentiles of all requests together; percentiles themselves cannot be added.
//!
//! Format: <https://hdrhistogram.github.io/HdrHistogram/JavaDoc/org/HdrHistogram/HistogramLogWriter.html>

use crate::recording::Recording;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, IntervalLogWriterError, Tag};
use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

/// The column of maxima is for human readers, in milliseconds, as other writers of this format have it.
const NANOSECONDS_OF_A_MILLISECOND: f64 = 1e6;

/// Writes the log of a run to `output`.
pub fn write(run: &Recording, output: &mut impl Write) -> io::Result<()> {
    let started = seconds(run.started);
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("[Histogram log format version 1.3]")
        .with_start_time(UNIX_EPOCH + started)
        .with_max_value_divisor(NANOSECONDS_OF_A_MILLISECOND)
        .begin_log_with(output, &mut serializer)?;
    let latencies = &run.latencies;
    for (tag, histogram) in
        [("latency", &latencies.latency), ("service", &latencies.service), ("sending_error", &latencies.sending_error)]
    {
        log.write_histogram(histogram, started, seconds(run.seconds), Tag::new(tag)).map_err(|error| match error {
            IntervalLogWriterError::IoError(error) => error,
            IntervalLogWriterError::SerializeError(error) => io::Error::other(error),
        })?;
    }
    Ok(())
}

/// A duration in seconds; zero if the number is invalid.
fn seconds(number: f64) -> Duration {
    Duration::try_from_secs_f64(number).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_run::{self, Shape};
    use base64::Engine as _;
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
    use std::collections::BTreeMap;

    /// The histograms of a log by their tags, and the start of the run that the log states.
    fn read(log: &[u8]) -> (BTreeMap<String, Histogram<u64>>, Duration) {
        let (mut histograms, mut started) = (BTreeMap::new(), Duration::ZERO);
        for entry in IntervalLogIterator::new(log) {
            match entry.unwrap() {
                LogEntry::Interval(entry) => {
                    let bytes = base64::engine::general_purpose::STANDARD.decode(entry.encoded_histogram()).unwrap();
                    let histogram = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
                    histograms.insert(entry.tag().unwrap().as_str().to_owned(), histogram);
                }
                LogEntry::StartTime(moment) => started = moment,
                LogEntry::BaseTime(_) => panic!("times are absolute"),
            }
        }
        (histograms, started)
    }

    #[test]
    fn the_crates_reader_reads_what_was_written() {
        let run = sample_run::recording(Shape::Stall);
        let mut log = Vec::new();
        write(&run, &mut log).unwrap();
        let (histograms, started) = read(&log);
        assert_eq!(histograms.keys().collect::<Vec<_>>(), ["latency", "sending_error", "service"]);
        assert_eq!(histograms["latency"], run.latencies.latency);
        assert_eq!(histograms["service"], run.latencies.service);
        assert_eq!(started, Duration::from_secs_f64(run.started));
        let text = String::from_utf8(log).unwrap();
        assert!(text.contains(",HISTFAAA"), "compressed histograms, as other readers need them: {text}");
    }

    #[test]
    fn histograms_of_two_logs_can_be_merged() {
        let logs = [Shape::Calm, Shape::Stall].map(|shape| {
            let mut log = Vec::new();
            write(&sample_run::recording(shape), &mut log).unwrap();
            read(&log).0
        });
        let [calm, stall] = [&logs[0]["latency"], &logs[1]["latency"]];
        let mut both = calm.clone();
        both.add(stall).unwrap();
        assert_eq!(both.len(), calm.len() + stall.len());
        assert_eq!(both.max(), stall.max());
        assert!((calm.value_at_quantile(0.99)..=stall.value_at_quantile(0.99)).contains(&both.value_at_quantile(0.99)));
    }
}
