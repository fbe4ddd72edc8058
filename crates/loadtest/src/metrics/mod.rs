//! `--metrics URL`: the server's own metrics during the run, in Prometheus's text format.
//!
//! A [`Sampler`] requests the page once a second on a separate thread, so that a slow page delays no request of the load. It
//! keeps selected series ([`series`]): CPU time, memory, queue lengths. Its memory is bounded: [`SERIES_MAX`] series, selected at
//! the first answer, and [`SAMPLES_MAX`] samples; in a longer run every second sample is dropped and the interval doubles.
//!
//! A wrong address is reported before the run. A page that fails later costs samples but not the run: failures are counted.

mod scrape;
pub(crate) mod series;
mod text;

use crate::recording::ServerSample;
use scrape::Page;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Largest number of series that are kept.
pub const SERIES_MAX: usize = 16;
/// Largest number of samples that are kept.
pub const SAMPLES_MAX: usize = 3600;
/// Initial interval between two scrapes.
const PACE: Duration = Duration::from_secs(1);

/// Why the server's metrics cannot be read. `Display` names the address and the remedy.
#[derive(Debug, PartialEq)]
pub struct MetricsError(String);

impl fmt::Display for MetricsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for MetricsError {}

/// Scrapes a server's metrics until it is stopped.
pub struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<Kept>,
}

/// Result of a sampler.
#[derive(Debug, Default)]
pub struct SamplerResult {
    /// The samples, by ascending time since the start of the run.
    pub samples: Vec<ServerSample>,
    /// Number of failed scrapes.
    pub failures: u64,
    /// Error of the last failed scrape.
    pub last_failure: Option<String>,
}

impl Sampler {
    /// Requests the page at `url` once to check it, and then once a second. `headers` are further header fields, such as
    /// `Authorization: Bearer …`.
    pub fn start(url: &str, headers: &[String]) -> Result<Sampler, MetricsError> {
        Sampler::start_at(url, headers, PACE)
    }

    fn start_at(url: &str, headers: &[String], pace: Duration) -> Result<Sampler, MetricsError> {
        let error_of = |reason: String| MetricsError(format!("--metrics {url}: {reason}"));
        let page = Page::new(url, headers).map_err(error_of)?;
        let first =
            page.get().map_err(|reason| error_of(format!("{reason}; is it the address of the server's metrics?")))?;
        let wanted = series::choose(&first, SERIES_MAX);
        if wanted.is_empty() {
            return Err(error_of(
                "has no series of CPU time, memory or queue lengths in Prometheus's text format".into(),
            ));
        }
        let (stop, stopped) = mpsc::channel();
        let mut kept = Kept { wanted, pace, moments: Vec::new(), failures: 0, last_failure: None };
        kept.add(Instant::now(), &first);
        let run = move || {
            let mut due = Instant::now() + kept.pace;
            while let Err(RecvTimeoutError::Timeout) =
                stopped.recv_timeout(due.saturating_duration_since(Instant::now()))
            {
                kept.sample(&page);
                // A slow page is requested again at the next whole interval; missed samples are not made up for.
                while due <= Instant::now() {
                    due += kept.pace;
                }
            }
            kept
        };
        let thread = std::thread::Builder::new().name("metrics".into()).spawn(run);
        Ok(Sampler { stop, thread: thread.map_err(|error| error_of(format!("no thread: {error}")))? })
    }

    /// Ends the sampling. Times count from `started`, the start of the run; earlier samples are dropped.
    pub fn stop(self, started: Instant) -> SamplerResult {
        // The thread also ends if the channel is closed.
        let _ = self.stop.send(());
        match self.thread.join() {
            Ok(kept) => kept.since(started),
            Err(_) => SamplerResult {
                last_failure: Some("the thread of --metrics panicked".into()),
                ..SamplerResult::default()
            },
        }
    }
}

/// The samples so far.
struct Kept {
    wanted: BTreeSet<String>,
    pace: Duration,
    moments: Vec<(Instant, ServerSample)>,
    failures: u64,
    last_failure: Option<String>,
}

impl Kept {
    fn sample(&mut self, page: &Page) {
        let asked = Instant::now();
        match page.get() {
            Ok(text) => self.add(asked, &text),
            Err(reason) => {
                self.failures += 1;
                self.last_failure = Some(reason);
            }
        }
    }

    fn add(&mut self, at: Instant, page: &str) {
        if self.moments.len() == SAMPLES_MAX {
            let mut index = 0;
            self.moments.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.pace *= 2;
        }
        let wanted =
            text::samples(page).filter(|sample| self.wanted.contains(sample.series) && sample.value.is_finite());
        let values = wanted.map(|sample| (sample.series.to_owned(), sample.value)).collect();
        self.moments.push((at, ServerSample { at: 0.0, values }));
    }

    fn since(self, started: Instant) -> SamplerResult {
        let placed = self.moments.into_iter().filter_map(|(at, sample)| {
            let at = at.checked_duration_since(started)?.as_secs_f64();
            Some(ServerSample { at, ..sample })
        });
        SamplerResult { samples: placed.collect(), failures: self.failures, last_failure: self.last_failure }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// A page that sends `replies` and then closes each connection unanswered. Returns its URL and the heads of the requests.
    fn page(replies: Vec<String>) -> (String, mpsc::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/_/metrics", listener.local_addr().unwrap());
        let (sender, asked) = mpsc::channel();
        std::thread::spawn(move || {
            let mut replies = replies.into_iter();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut head = [0; 1024];
                let length = stream.read(&mut head).unwrap_or(0);
                let _ = stream.write_all(replies.next().unwrap_or_default().as_bytes());
                if sender.send(String::from_utf8_lossy(&head[..length]).into_owned()).is_err() {
                    return;
                }
            }
        });
        (url, asked)
    }

    fn ok(body: &str) -> String {
        format!("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n{body}")
    }

    #[test]
    fn the_chosen_series_are_sampled_until_the_end_of_the_run() {
        let started = Instant::now();
        let body = |cpu: u32| ok(&format!("process_cpu_seconds_total {cpu}\nsapsan_pool_queued 3\nother_total 9\n"));
        let (url, asked) = page(vec![body(1), body(2), "HTTP/1.0 503 Busy\r\n\r\n".into(), body(4)]);
        let sampler = Sampler::start_at(&url, &["Authorization: Bearer t".into()], Duration::from_millis(5)).unwrap();
        let heads: Vec<String> = asked.iter().take(5).collect();
        let sampled = sampler.stop(started);
        assert!(heads[0].starts_with("GET /_/metrics HTTP/1.1\r\n"), "{heads:?}");
        assert!(heads[0].contains("\r\nAuthorization: Bearer t\r\n"), "{heads:?}");
        let cpu: Vec<f64> = sampled.samples.iter().map(|sample| sample.values["process_cpu_seconds_total"]).collect();
        assert_eq!(cpu, [1.0, 2.0, 4.0]);
        assert_eq!(sampled.samples[0].values.len(), 2, "{:?}", sampled.samples);
        assert!(sampled.samples.is_sorted_by(|left, right| left.at < right.at));
        assert!(sampled.failures >= 2 && sampled.last_failure.is_some(), "{sampled:?}");
    }

    #[test]
    fn what_came_before_the_run_is_left_out() {
        let (url, asked) = page(vec![ok("sapsan_pool_queued 3\n")]);
        let sampler = Sampler::start_at(&url, &[], Duration::from_millis(5)).unwrap();
        asked.recv().unwrap();
        assert_eq!(sampler.stop(Instant::now()).samples, []);
    }

    #[test]
    fn a_wrong_page_is_an_error_before_the_run() {
        for (reply, part) in [
            (ok("<html>no metrics</html>"), "no series"),
            ("HTTP/1.1 404 Not Found\r\n\r\n".to_owned(), "404"),
            (String::new(), "closed"),
        ] {
            let (url, _asked) = page(vec![reply]);
            let error = Sampler::start(&url, &[]).err().unwrap().to_string();
            assert!(error.contains(part) && error.contains(&url), "{part}: {error}");
        }
    }

    #[test]
    fn a_long_run_keeps_each_second_moment() {
        let mut kept = Kept {
            wanted: ["a_queued".to_owned()].into(),
            pace: PACE,
            moments: Vec::new(),
            failures: 0,
            last_failure: None,
        };
        let began = Instant::now();
        for second in 0..=SAMPLES_MAX {
            kept.add(began + PACE * second as u32, &format!("a_queued {second}\n"));
        }
        assert_eq!((kept.moments.len(), kept.pace), (SAMPLES_MAX / 2 + 1, PACE * 2));
        let sampled = kept.since(began);
        assert_eq!(sampled.samples.iter().take(3).map(|sample| sample.at).collect::<Vec<_>>(), [0.0, 2.0, 4.0]);
    }
}
