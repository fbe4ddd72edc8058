//! The arguments that select the outputs of a run.

use crate::engine::{LoadSettings, Show};
use crate::fail_if::FailIf;
use crate::live::Screen;
use crate::metrics::Sampler;
use crate::output::{self, Outputs};
use crate::recording::Recording;
use clap::Args;
use std::cell::RefCell;
use std::io::Stderr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

/// What is shown and kept of a run.
#[derive(Clone, Debug, Default, Args)]
pub struct ResultArguments {
    /// One JSON object instead of the table
    #[arg(long)]
    pub json: bool,
    /// Show nothing while the load runs
    #[arg(long)]
    pub quiet: bool,
    /// A page of charts and tables, in one file of HTML
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// The latencies as HdrHistogram's log, which its tools read and merge
    #[arg(long, value_name = "FILE")]
    pub hdr: Option<PathBuf>,
    /// Keep the run, for --compare of a later one
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Write each request as a line when it ends: NDJSON, or CSV if the name ends in .csv
    #[arg(long, value_name = "FILE", conflicts_with = "vs")]
    pub log: Option<PathBuf>,
    /// Compare with a run that --record has kept
    #[arg(long, value_name = "FILE", conflicts_with = "vs")]
    pub compare: Option<PathBuf>,
    /// Compare with a second server: both get the same load in turns, and the result says whether they differ
    #[arg(long, value_name = "URL", conflicts_with = "metrics")]
    pub vs: Option<String>,
    /// Turns of each server; at least 6 are needed to see a difference
    #[arg(long, value_name = "N", default_value_t = crate::versus::ROUNDS_USUAL, requires = "vs", value_parser = rounds)]
    pub rounds: usize,
    /// The address of the server's metrics in Prometheus's text format, which the report shows on the same time axis
    #[arg(long, value_name = "URL")]
    pub metrics: Option<String>,
    /// A header field for the metrics; may be given several times
    #[arg(long, value_name = "NAME: VALUE", requires = "metrics", value_parser = metrics_header)]
    pub metrics_header: Vec<String>,
    /// End with status 1 if this holds: p99>5ms, errors>0.1%, rps<1000, rating>100, invalid; may be given several times
    #[arg(long, value_name = "CONDITION")]
    pub fail_if: Vec<FailIf>,
}

fn metrics_header(text: &str) -> Result<String, String> {
    let (name, value) = text.split_once(':').ok_or("write NAME: VALUE")?;
    Ok(format!("{}: {}", name.trim(), value.trim()))
}

fn rounds(text: &str) -> Result<usize, String> {
    let allowed = 1..=crate::versus::ROUNDS_MAX;
    text.parse().ok().filter(|rounds| allowed.contains(rounds)).ok_or_else(|| format!("1 to {}", allowed.end()))
}

impl ResultArguments {
    pub(super) fn outputs(&self) -> Outputs {
        Outputs {
            is_json: self.json,
            report: self.report.clone(),
            hdr: self.hdr.clone(),
            record: self.record.clone(),
            fail_if: self.fail_if.clone(),
        }
    }

    /// Whether a condition names the contest's rating.
    pub(super) fn asks_for_rating(&self) -> bool {
        self.fail_if.iter().any(FailIf::is_of_rating)
    }

    /// The earlier run of `--compare`.
    pub(super) fn compared(&self) -> Result<Option<Recording>, String> {
        self.compare.as_deref().map(output::read_recording).transpose().map_err(|error| format!("--compare: {error}"))
    }

    /// Starts sampling the server's metrics, if an address is named.
    pub(super) fn sampler(&self) -> Result<Option<Sampler>, String> {
        let started = self.metrics.as_deref().map(|url| Sampler::start(url, &self.metrics_header));
        started.transpose().map_err(|error| error.to_string())
    }

    /// The live screen, and the callback that feeds it.
    pub(super) fn screen(&self, settings: &LoadSettings) -> (Option<Show>, LiveScreen) {
        let of = || Screen::on_standard_error(&settings.target, &settings.load_text());
        let screen = Rc::new(RefCell::new((!self.quiet).then(of)));
        let shown = Rc::clone(&screen);
        let show: Show = Box::new(move |progress| {
            if let Some(screen) = &mut *shown.borrow_mut() {
                screen.show(progress);
            }
        });
        ((!self.quiet).then_some(show), LiveScreen(screen))
    }
}

/// The screen of a run, if there is one.
pub(super) struct LiveScreen(Rc<RefCell<Option<Screen<Stderr>>>>);

impl LiveScreen {
    /// Clears the screen for the summary.
    pub(super) fn finish(self) {
        if let Some(screen) = self.0.borrow_mut().take() {
            screen.finish();
        }
    }
}

/// Puts the server's metrics on the time axis of the run. Returns a notice if scrapes failed.
pub(super) fn add_samples(sampler: Sampler, recording: &mut Recording) -> Option<String> {
    let since_start = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |now| now.as_secs_f64());
    let since_start = Duration::try_from_secs_f64(since_start - recording.started).unwrap_or_default();
    let now = Instant::now();
    let sampled = sampler.stop(now.checked_sub(since_start).unwrap_or(now));
    recording.server = sampled.samples;
    let why = sampled.last_failure?;
    Some(format!("--metrics: {} requests failed; the last one: {why}", sampled.failures))
}
